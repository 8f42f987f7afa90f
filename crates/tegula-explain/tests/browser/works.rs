//! Interaction with the page.

use tegula_core::element::Type;
use tegula_explain::page::Selection;
use tegula_explain::sass::Tools;
use tegula_kernels::{Plain, PlainKind};

use crate::chromium::{Window, page, page_of};

fn at(window: &Window) -> u32 {
    window.eval("document.getElementById('at').value").parse().unwrap()
}

#[test]
fn keys_step_forward_and_back() {
    let Some(window) = page("") else { return };
    assert!(window.text("#say").contains("The launch has"));
    for expected in 1..=9 {
        window.press("ArrowRight");
        assert_eq!(at(&window), expected);
    }
    let seen = |window: &Window| window.eval("document.querySelector('main').innerHTML");
    let before = seen(&window);
    window.press("ArrowRight");
    assert_ne!(seen(&window), before);
    window.press("ArrowLeft");
    assert_eq!(seen(&window), before);
    window.press("End");
    assert_eq!(window.eval("document.querySelectorAll('#matrices .c text').length"), "16", "all of C is there");
    assert!(window.text("#formula").contains("→ so far 90"));
    window.press("Home");
    assert_eq!(at(&window), 0);
    // Phases: load, wait, multiply, wait, slide.
    let phases: Vec<String> = (0..5)
        .map(|_| {
            window.press("]");
            window.eval("document.querySelector('#phases .now').className.split(' ')[0]")
        })
        .collect();
    assert_eq!(phases, ["load", "wait", "multiply", "wait", "slide"]);
    window.press("[");
    assert_eq!(window.eval("document.querySelector('#phases .now').className.split(' ')[0]"), "wait");
    window.assert_quiet();
}

#[test]
fn play_and_pause() {
    let Some(window) = page("") else { return };
    window.press(" ");
    window.until("document.getElementById('at').value >= 2");
    window.press(" ");
    let stopped = at(&window);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(at(&window), stopped);
    window.assert_quiet();
}

#[test]
fn thread_is_selected_by_click_and_by_key() {
    let Some(window) = page("at=27") else { return };
    window.click("[data-thread='3']");
    assert!(window.text("#formula").contains("Thread (1, 1) of block (0, 0)"));
    // Row 1 of A with column 1 of B: 5·2 + 6·6 + 7·10 + 8·14.
    assert!(window.text("#formula").contains("c11 =") && window.text("#formula").contains("228"));
    window.press("t");
    assert!(window.text("#formula").contains("Thread (0, 0)"));
    window.press("b");
    let formula = window.text("#formula");
    assert!(formula.contains("block (1, 0)") && formula.contains("col = block x·2 + x = 1·2 + 0 = 2"), "{formula}");
    window.press("v");
    assert_eq!(window.eval("document.querySelector('#matrices .a text').textContent"), "a00");
    window.assert_quiet();
}

#[test]
fn address_holds_the_state() {
    let state = "kernel=tiled&tile=4&map=x-row&size=8x8x8&type=f32&at=7&block=1,0&thread=2,3&view=memory";
    let Some(window) = page(state) else { return };
    assert_eq!(at(&window), 7);
    assert!(window.text("#what").starts_with("tiled_f32_4_x_row: C = A·B, 8×8"));
    assert!(window.text("#formula").contains("Thread (2, 3) of block (1, 0)"));
    assert!(window.text("#view").contains("Warp 0: load from tile_b, shared memory"), "{}", window.text("#view"));
    let address = window.eval("decodeURIComponent(location.hash.slice(1))");
    assert_eq!(address, state);
    // Invalid values are ignored.
    window.eval("location.hash = 'kernel=none&tile=-1&size=zxy&at=1e9&block=9,9&thread=a,b&view=?'");
    window.until("document.getElementById('at').value > 7");
    window.assert_quiet();
}

/// SASS is tested if a disassembler is installed.
#[test]
fn code_has_costs_in_each_language() {
    let selection = Selection { plain: Plain::new(PlainKind::Tiled, Type::F32, 2), extents: [4; 3] };
    let Some(window) = page_of(selection, "kernel=tiled&tile=2&size=4x4x4&at=20&view=code") else { return };
    let machine = Tools::find().map(|_| ("sass", "FFMA"));
    for (language, work) in [("rust", "mul_add"), ("cuda", "fmaf"), ("ptx", "fma.rn.f32")].into_iter().chain(machine) {
        window.click(&format!("[data-language='{language}']"));
        let costly = "[...document.querySelectorAll('#view .code tr')].filter((row) => row.cells[1].textContent.includes('64 fma'))";
        assert_eq!(window.eval(&format!("{costly}.length")), "1", "{language}");
        let text = window.eval(&format!("{costly}[0].cells[2].textContent"));
        assert!(text.contains(work), "{language}: {text}");
        let language_in_address = window.eval("new URLSearchParams(location.hash.slice(1)).get('text') ?? 'rust'");
        assert_eq!(language_in_address, language);
    }
    window.assert_quiet();
}

/// The naive kernel moves 5 sectors of 32 bytes for each product of a warp, tiles of 32 a
/// twentieth.
#[test]
fn roofline_places_each_kernel_by_its_counts() {
    let Some(window) = page("view=roof&tile=32&size=32x32x32") else { return };
    let cell = |row: &str, column: u32| {
        let rows = "[...document.querySelectorAll('#view tbody tr')]";
        window.eval(&format!("{rows}.find(r => r.cells[0].innerText.endsWith({row:?})).cells[{column}].innerText"))
    };
    assert_eq!([cell("naive, 32×32 threads", 1), cell("tiled, T = 32", 1)], ["344", "17.2"]);
    assert_eq!([cell("naive, 32×32 threads", 2), cell("naive, 32×32 threads", 5)], ["0", "0.40"]);
    let drawn = |selector: &str| window.eval(&format!("document.querySelectorAll('.roofline {selector}').length"));
    let rows = window.eval("document.querySelectorAll('[aria-label=Kernels] tbody tr').length");
    assert_eq!(drawn("circle.dot"), rows, "a dot per kernel");
    assert!(drawn("circle.measured").parse::<u32>().unwrap() >= 2);
    assert_eq!(drawn("circle.now"), "1", "the current kernel is highlighted");
    assert_eq!(drawn("path.roof"), "4");
    // No kernel is above the flat roof.
    let heights = "[...document.querySelectorAll('.roofline .dot')].every(d => d.getBBox().y > document.querySelector('.roofline path.roof:not(.shared, .l2, .dram)').getBBox().y - 5)";
    assert_eq!(window.eval(heights), "true");
    assert!(window.eval("document.getElementById('roof-desc').textContent").contains("naive, 32×32 threads: 0.40"));
    window.assert_quiet();
}

/// Every tick highlights a line in each language, also for loads within an expression.
#[test]
fn each_tick_highlights_a_line_of_code() {
    for kernel in ["tiled", "naive"] {
        let Some(window) = page(&format!("kernel={kernel}&tile=2&size=4x4x4&view=code&at=1")) else { return };
        for language in ["rust", "cuda", "ptx"] {
            window.press("Home");
            window.click(&format!("[data-language='{language}']"));
            let last: u32 = window.eval("document.getElementById('at').max").parse().unwrap();
            for tick in 1..=last {
                window.press("ArrowRight");
                let slide = window.eval("document.querySelector('#phases .now').className").contains("slide");
                let lit = window.eval("document.querySelectorAll('#view .lit').length");
                assert_eq!(lit == "0", slide, "{kernel}, {language}, tick {tick}");
            }
        }
        window.click("[data-language='cuda']");
        // The cost of loads is shown at their statement.
        let sum = "[...document.querySelectorAll('#view .code tr')].find(row => row.cells[2].textContent.includes('fmaf(') && row.cells[1].textContent)";
        let cost = window.eval(&format!("{sum}.cells[1].textContent"));
        assert!(cost.contains("64 fma") && cost.contains(" ld"), "{cost}");
        window.assert_quiet();
    }
}

#[test]
fn compare_shows_sources_side_by_side() {
    let Some(window) = page("kernel=tiled&tile=4&size=8x8x8&view=compare&text=cuda&beside=naive 4 x-col") else {
        return;
    };
    let differs = |column: u32| {
        let cells = format!("[...document.querySelectorAll('.pair td:nth-child({column}).differs')]");
        window.eval(&format!("{cells}.map(cell => cell.textContent).join('\\n')"))
    };
    let (mine, theirs) = (differs(2), differs(4));
    assert!(mine.contains("− ") && mine.contains("__syncthreads();") && !theirs.contains("__syncthreads"), "{mine}");
    assert!(theirs.contains("+ ") && theirs.contains("fmaf(a["), "{theirs}");
    let scaled =
        "[...document.querySelectorAll('.pair tr')].filter(row => row.cells[1].textContent.includes('scaled = alpha'))";
    let both = window.eval(&format!("{scaled}[0].cells[3].textContent === {scaled}[0].cells[1].textContent"));
    assert_eq!((both.as_str(), mine.contains("scaled = alpha")), ("true", false));
    window.click("[data-language='rust']");
    assert!(differs(2).contains("tile_a.store(") && differs(4).contains("product.a.load("), "{}", differs(4));
    window.assert_quiet();
}

#[test]
#[ignore = "long; .ci/run runs it"]
fn every_trace_of_the_page_is_complete() {
    let Some(window) = page("") else { return };
    for size in ["4×4×4", "5×6×7", "32×32×32"] {
        window.enter("#choice [name=size]", size);
        for family in ["naive", "tiled"] {
            window.enter("#choice [name=family]", family);
            for tile in ["2", "32"] {
                window.enter("#choice [name=tile]", tile);
                window.until(&format!("document.getElementById('what').innerText.startsWith('{family}_f32_{tile}')"));
                window.press("End");
                let empty =
                    "[...document.querySelectorAll('#matrices .c title')].filter(t => !t.textContent.includes('='))";
                let whole = window.eval(&format!("{empty}.length"));
                assert_eq!(whole, "0", "{family} {tile} {size}: every element of C is written");
            }
        }
    }
    window.assert_quiet();
}

#[test]
fn race_is_shown_at_its_tick() {
    let Some(window) = page("mistake=missing-first-barrier&view=mistakes") else { return };
    let view = window.text("#view");
    assert!(view.contains("Error: race") && view.contains("reads tile_a[0, 0]"), "{view}");
    window.click("[data-finding='0']");
    assert_eq!(window.eval("document.querySelectorAll('#shared .s .bad').length"), "1", "the element");
    assert_eq!(window.eval("document.querySelectorAll('#shared [data-thread].bad').length"), "2", "both threads");
    assert!(window.text("#say").contains("reads tile_a[0][0]"));
    let bad = |place: &str| window.eval(&format!("document.querySelectorAll('{place} .bad').length"));
    window.enter("#choice [name=mistake]", "missing-second-barrier");
    window.until("document.getElementById('view').innerText.includes('writes tile_a[0, 0]')");
    window.click("[data-finding='0']");
    assert_eq!([bad("#shared .s"), bad("#shared .c")], ["1", "2"], "the element and both threads");
    window.enter("#choice [name=mistake]", "extra-barrier");
    window.until("document.getElementById('view').innerText.includes('Note: redundant-barrier')");
    window.click("[data-finding='0']");
    assert!(window.text("#say").contains("this one orders nothing"), "{}", window.text("#say"));
    window.assert_quiet();
}

#[test]
fn out_of_bounds_access_is_shown_at_its_tick() {
    let Some(window) = page("mistake=no-guards&size=5x6x7&view=mistakes") else { return };
    let found: usize = window.eval("document.querySelectorAll('[data-finding]').length").parse().unwrap();
    assert!(found >= 3, "of a, b and c");
    for finding in 0..found {
        window.click(&format!("[data-finding='{finding}']"));
        let message =
            window.eval(&format!("document.querySelectorAll('.finding.error p:nth-child(2)')[{finding}].innerText"));
        let element = message.split("element (").nth(1).unwrap().split(')').next().unwrap();
        let marked = window.eval("document.querySelector('#matrices .out-of-bounds').textContent");
        assert!(marked.contains(&format!("[{element}] does not exist")), "{message}: {marked}");
        assert_eq!(window.eval("document.querySelectorAll('#shared .c .bad').length"), "1", "the thread");
        assert!(window.text("#say").contains("accesses an element out of bounds"), "{}", window.text("#say"));
    }
    window.enter("#choice [name=mistake]", "floor-launch");
    window.until("document.getElementById('view').innerText.includes('was never written')");
    window.click("#view [data-go=end]");
    let missing = window.eval("document.querySelectorAll('#matrices .c .bad').length");
    assert!(
        window.text("#view").contains(&format!("{missing} of 30 elements are missing")),
        "{}",
        window.text("#view")
    );
    window.assert_quiet();
}

#[test]
fn all_controls_are_reachable_by_keyboard() {
    let Some(window) = page("mistake=missing-second-barrier&view=mistakes&at=3") else { return };
    let reachable = "[...document.querySelectorAll('button, select, input')].filter(e => e.checkVisibility() && !e.disabled && e.tabIndex >= 0).length";
    let count: usize = window.eval(reachable).parse().unwrap();
    let mut reached = std::collections::BTreeSet::new();
    for _ in 0..count + 8 {
        window.press("Tab");
        let (name, outline) = (
            window.eval("(e => e.id || e.name || e.dataset.go || e.dataset.view || e.dataset.finding || e.tagName)(document.activeElement)"),
            window.eval("document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle"),
        );
        assert!(outline != "none", "{name} has a visible focus");
        reached.insert(name);
    }
    for name in
        ["family", "tile", "mapping", "size", "dtype", "mistake", "start", "play", "at", "tab-mistakes", "0", "view"]
    {
        assert!(reached.contains(name), "{name} in {reached:?}");
    }
    // Arrow keys switch tabs.
    window.eval("document.getElementById('tab-mistakes').focus()");
    window.press("ArrowRight");
    assert_eq!(window.eval("document.activeElement.id"), "tab-threads");
    window.press("3");
    assert_eq!(window.eval("document.querySelector('[aria-selected=true]').id"), "tab-code");
    window.assert_quiet();
}

#[test]
fn large_trace_opens_at_its_position() {
    let Some(window) = page("kernel=tiled&tile=32&size=32x32x32&at=40&view=memory") else { return };
    assert!(window.text("#view").contains("32 lanes"));
    assert_eq!(at(&window), 40);
    assert_ne!(window.eval("document.querySelectorAll('#phases .now').length"), "0", "the timeline is drawn");
    // Printed for information: times are not asserted.
    eprintln!("ready after {} ms", window.eval("document.body.dataset.ready"));
    window.assert_quiet();
}
