//! What the page does.

use tegula_explain::sass::Tools;

use crate::chromium::{Window, page};

fn at(window: &Window) -> u32 {
    window.ask("document.getElementById('at').value").parse().unwrap()
}

#[test]
fn steps_lead_forth_and_back() {
    let Some(window) = page("") else { return };
    assert!(window.text("#say").contains("about to start"));
    for expected in 1..=9 {
        window.press("ArrowRight");
        assert_eq!(at(&window), expected);
    }
    let seen = |window: &Window| window.ask("document.querySelector('main').innerHTML");
    let before = seen(&window);
    window.press("ArrowRight");
    assert_ne!(seen(&window), before);
    window.press("ArrowLeft");
    assert_eq!(seen(&window), before);
    window.press("End");
    assert_eq!(window.ask("document.querySelectorAll('#matrices .c text').length"), "16", "all of C is there");
    assert!(window.text("#formula").contains("→ so far 90"));
    window.press("Home");
    assert_eq!(at(&window), 0);
    // Acts: load, wait, multiply, wait, slide.
    let acts: Vec<String> = (0..5)
        .map(|_| {
            window.press("]");
            window.ask("document.querySelector('#acts .now').className.split(' ')[0]")
        })
        .collect();
    assert_eq!(acts, ["load", "wait", "multiply", "wait", "slide"]);
    window.press("[");
    assert_eq!(window.ask("document.querySelector('#acts .now').className.split(' ')[0]"), "wait");
    window.was_quiet();
}

#[test]
fn it_plays_and_stops() {
    let Some(window) = page("") else { return };
    window.press(" ");
    window.until("document.getElementById('at').value >= 2");
    window.press(" ");
    let stopped = at(&window);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(at(&window), stopped);
    window.was_quiet();
}

#[test]
fn a_thread_is_chosen_by_click_and_by_key() {
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
    assert_eq!(window.ask("document.querySelector('#matrices .a text').textContent"), "a00");
    window.was_quiet();
}

#[test]
fn the_address_holds_the_state() {
    let state = "kernel=tiled&tile=4&map=x-row&size=8x8x8&type=f32&at=7&block=1,0&thread=2,3&view=memory";
    let Some(window) = page(state) else { return };
    assert_eq!(at(&window), 7);
    assert!(window.text("#what").starts_with("tiled_f32_4_x_row: C = A·B, 8×8"));
    assert!(window.text("#formula").contains("Thread (2, 3) of block (1, 0)"));
    assert!(window.text("#view").contains("Warp 0: load from tile_b, shared memory"), "{}", window.text("#view"));
    let address = window.ask("decodeURIComponent(location.hash.slice(1))");
    assert_eq!(address, state);
    // Nonsense in it is passed over.
    window.ask("location.hash = 'kernel=none&tile=-1&size=zxy&at=1e9&block=9,9&thread=a,b&view=?'");
    window.until("document.getElementById('at').value > 7");
    window.was_quiet();
}

/// Machine code where there is a disassembler.
#[test]
fn code_is_shown_in_each_language_with_its_costs() {
    let Some(window) = page("kernel=tiled&tile=2&size=4x4x4&at=20&view=code") else { return };
    let machine = Tools::find().map(|_| ("sass", "FFMA"));
    for (language, work) in [("rust", "mul_add"), ("cuda", "fmaf"), ("ptx", "fma.rn.f32")].into_iter().chain(machine) {
        window.click(&format!("[data-language='{language}']"));
        let costly = "[...document.querySelectorAll('#view .code tr')].filter((row) => row.cells[1].textContent.includes('64 fma'))";
        assert_eq!(window.ask(&format!("{costly}.length")), "1", "{language}");
        let text = window.ask(&format!("{costly}[0].cells[2].textContent"));
        assert!(text.contains(work), "{language}: {text}");
        let told = window.ask("new URLSearchParams(location.hash.slice(1)).get('text') ?? 'rust'");
        assert_eq!(told, language);
    }
    window.was_quiet();
}

/// A sector is 32 bytes: the naive kernel moves 5 of them for each product of a warp, tiles of 32 a twentieth of that.
#[test]
fn the_roofline_shows_each_kernel_where_its_counts_put_it() {
    let Some(window) = page("view=roof&tile=32&size=32x32x32") else { return };
    let cell = |row: &str, column: u32| {
        let rows = "[...document.querySelectorAll('#view tbody tr')]";
        window.ask(&format!("{rows}.find(r => r.cells[0].innerText.endsWith({row:?})).cells[{column}].innerText"))
    };
    assert_eq!([cell("naive, 32×32 threads", 1), cell("tiled, T = 32", 1)], ["344", "17.2"]);
    assert_eq!([cell("naive, 32×32 threads", 2), cell("naive, 32×32 threads", 5)], ["0", "0.40"]);
    let drawn = |selector: &str| window.ask(&format!("document.querySelectorAll('.roofline {selector}').length"));
    let rows = window.ask("document.querySelectorAll('[aria-label=Kernels] tbody tr').length");
    assert_eq!(drawn("circle.dot"), rows, "each kernel has a dot");
    assert!(drawn("circle.measured").parse::<u32>().unwrap() >= 2);
    assert_eq!(drawn("circle.now"), "1", "the kernel that is shown stands out");
    assert_eq!(drawn("path.roof"), "4");
    // No kernel is above the flat roof, and numbers do not cover each other.
    let heights = "[...document.querySelectorAll('.roofline .dot')].every(d => d.getBBox().y > document.querySelector('.roofline path.roof:not(.shared, .l2, .dram)').getBBox().y - 5)";
    assert_eq!(window.ask(heights), "true");
    assert!(window.ask("document.getElementById('roof-desc').textContent").contains("naive, 32×32 threads: 0.40"));
    window.was_quiet();
}

/// Every moment of a thread lights a line of each language, also where a load stands within an expression.
#[test]
fn each_moment_lights_a_line_of_code() {
    for kernel in ["tiled", "naive"] {
        let Some(window) = page(&format!("kernel={kernel}&tile=2&size=4x4x4&view=code&at=1")) else { return };
        for language in ["rust", "cuda", "ptx"] {
            window.press("Home");
            window.click(&format!("[data-language='{language}']"));
            let last: u32 = window.ask("document.getElementById('at').max").parse().unwrap();
            for moment in 1..=last {
                window.press("ArrowRight");
                let slide = window.ask("document.querySelector('#acts .now').className").contains("slide");
                let lit = window.ask("document.querySelectorAll('#view .lit').length");
                assert_eq!(lit == "0", slide, "{kernel}, {language}, moment {moment}");
            }
        }
        window.click("[data-language='cuda']");
        // What the loads cost stands where they are.
        let sum = "[...document.querySelectorAll('#view .code tr')].find(row => row.cells[2].textContent.includes('fmaf(') && row.cells[1].textContent)";
        let cost = window.ask(&format!("{sum}.cells[1].textContent"));
        assert!(cost.contains("64 fma") && cost.contains(" ld"), "{cost}");
        window.was_quiet();
    }
}

#[test]
fn two_sources_stand_side_by_side() {
    let Some(window) = page("kernel=tiled&tile=4&size=8x8x8&view=compare&text=cuda&beside=naive 4 x-col") else {
        return;
    };
    let differs = |column: u32| {
        let cells = format!("[...document.querySelectorAll('.pair td:nth-child({column}).differs')]");
        window.ask(&format!("{cells}.map(cell => cell.textContent).join('\\n')"))
    };
    let (mine, theirs) = (differs(2), differs(4));
    assert!(mine.contains("− ") && mine.contains("__syncthreads();") && !theirs.contains("__syncthreads"), "{mine}");
    assert!(theirs.contains("+ ") && theirs.contains("fmaf(a["), "{theirs}");
    let scaled =
        "[...document.querySelectorAll('.pair tr')].filter(row => row.cells[1].textContent.includes('scaled = alpha'))";
    let both = window.ask(&format!("{scaled}[0].cells[3].textContent === {scaled}[0].cells[1].textContent"));
    assert_eq!((both.as_str(), mine.contains("scaled = alpha")), ("true", false));
    window.click("[data-language='rust']");
    assert!(differs(2).contains("tile_a.store(") && differs(4).contains("product.a.load("), "{}", differs(4));
    window.was_quiet();
}

#[test]
fn every_trace_of_the_page_can_be_shown() {
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
                let whole = window.ask(&format!("{empty}.length"));
                assert_eq!(whole, "0", "{family} {tile} {size}: every element of C is written");
            }
        }
    }
    window.was_quiet();
}

#[test]
fn a_race_is_shown_where_it_happens() {
    let Some(window) = page("mistake=missing-first-barrier&view=mistakes") else { return };
    let view = window.text("#view");
    assert!(view.contains("Wrong: race") && view.contains("reads tile_a[0, 0]"), "{view}");
    window.click("[data-finding='0']");
    assert_eq!(window.ask("document.querySelectorAll('#shared .s .bad').length"), "1", "the element");
    assert_eq!(window.ask("document.querySelectorAll('#shared [data-thread].bad').length"), "2", "both threads");
    assert!(window.text("#say").contains("reads tile_a[0][0]"));
    let bad = |place: &str| window.ask(&format!("document.querySelectorAll('{place} .bad').length"));
    window.enter("#choice [name=mistake]", "missing-second-barrier");
    window.until("document.getElementById('view').innerText.includes('writes tile_a[0, 0]')");
    window.click("[data-finding='0']");
    assert_eq!([bad("#shared .s"), bad("#shared .c")], ["1", "2"], "the element and both threads");
    window.enter("#choice [name=mistake]", "extra-barrier");
    window.until("document.getElementById('view').innerText.includes('Note: redundant-barrier')");
    window.click("[data-finding='0']");
    assert!(window.text("#say").contains("this one orders nothing"), "{}", window.text("#say"));
    window.was_quiet();
}

#[test]
fn an_access_beyond_the_edge_is_shown_where_it_happens() {
    let Some(window) = page("mistake=no-guards&size=5x6x7&view=mistakes") else { return };
    let found: usize = window.ask("document.querySelectorAll('[data-finding]').length").parse().unwrap();
    assert!(found >= 3, "of a, b and c");
    for finding in 0..found {
        window.click(&format!("[data-finding='{finding}']"));
        let told =
            window.ask(&format!("document.querySelectorAll('.finding.error p:nth-child(2)')[{finding}].innerText"));
        let element = told.split("element (").nth(1).unwrap().split(')').next().unwrap();
        let marked = window.ask("document.querySelector('#matrices .beyond').textContent");
        assert!(marked.contains(&format!("[{element}] does not exist")), "{told}: {marked}");
        assert_eq!(window.ask("document.querySelectorAll('#shared .c .bad').length"), "1", "the thread");
        assert!(window.text("#say").contains("asks for what lies beyond the edge"), "{}", window.text("#say"));
    }
    window.enter("#choice [name=mistake]", "floor-launch");
    window.until("document.getElementById('view').innerText.includes('was never written')");
    window.click("#view [data-go=end]");
    let missing = window.ask("document.querySelectorAll('#matrices .c .bad').length");
    assert!(
        window.text("#view").contains(&format!("{missing} of 30 elements are missing")),
        "{}",
        window.text("#view")
    );
    window.was_quiet();
}

#[test]
fn everything_can_be_reached_by_keys_alone() {
    let Some(window) = page("mistake=missing-second-barrier&view=mistakes&at=3") else { return };
    let reachable = "[...document.querySelectorAll('button, select, input')].filter(e => e.checkVisibility() && !e.disabled && e.tabIndex >= 0).length";
    let count: usize = window.ask(reachable).parse().unwrap();
    let mut reached = std::collections::BTreeSet::new();
    for _ in 0..count + 8 {
        window.press("Tab");
        let (who, seen) = (
            window.ask("(e => e.id || e.name || e.dataset.go || e.dataset.view || e.dataset.finding || e.tagName)(document.activeElement)"),
            window.ask("document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle"),
        );
        assert!(seen != "none", "{who} shows that it has the focus");
        reached.insert(who);
    }
    for name in
        ["family", "tile", "mapping", "size", "dtype", "mistake", "start", "play", "at", "tab-mistakes", "0", "view"]
    {
        assert!(reached.contains(name), "{name} in {reached:?}");
    }
    // Tabs by arrows.
    window.ask("document.getElementById('tab-mistakes').focus()");
    window.press("ArrowRight");
    assert_eq!(window.ask("document.activeElement.id"), "tab-threads");
    window.press("3");
    assert_eq!(window.ask("document.querySelector('[aria-selected=true]').id"), "tab-code");
    window.was_quiet();
}

#[test]
fn a_larger_trace_is_there_at_once() {
    let Some(window) = page("kernel=tiled&tile=32&size=32x32x32&at=40&view=memory") else { return };
    assert!(window.text("#view").contains("32 lanes"));
    assert_eq!(at(&window), 40);
    assert_ne!(window.ask("document.querySelectorAll('#acts .now').length"), "0", "the timeline is drawn");
    // Times decide no test; whoever reads the output may judge this one.
    eprintln!("ready after {} ms", window.ask("document.body.dataset.ready"));
    window.was_quiet();
}
