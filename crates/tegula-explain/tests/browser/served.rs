//! The page that a server gives out: whatever is chosen is run anew.

use std::thread;

use tegula_core::element::Type;
use tegula_explain::page::Choice;
use tegula_explain::serve::Page;
use tegula_kernels::{Family, Plain};

use crate::chromium::open;
use crate::full;

#[test]
fn whatever_is_chosen_is_run() {
    let page = Page::open(0, Choice { plain: Plain::new(Family::Tiled, Type::F32, 2), sizes: [4; 3] }).unwrap();
    let url = page.url();
    thread::spawn(move || page.run());
    let Some(window) = open(&url) else { return };
    let shows = |name: &str| window.until(&format!("document.getElementById('what').innerText.startsWith({name:?})"));
    shows("tiled_f32_2: C = A·B, 4×4 = 4×4 · 4×4; 2 steps");
    window.enter("#choice [name=tile]", "3");
    shows("tiled_f32_3: C = A·B, 4×4 = 4×4 · 4×4; 2 steps");
    window.enter("#choice [name=k]", "11");
    shows("tiled_f32_3: C = A·B, 4×4 = 4×11 · 11×4; 4 steps");
    window.enter("#choice [name=dtype]", "f64");
    shows("tiled_f64_3");
    window.enter("#choice [name=mapping]", "x-row");
    shows("tiled_f64_3_x_row");
    window.enter("#choice [name=mistake]", "no-guards");
    shows("tiled_f64_3_x_row_unguarded");
    window.press("8");
    window.until("document.getElementById('view').innerText.includes('out-of-bounds')");
    // What cannot be is refused, and what was shown stays.
    window.enter("#choice [name=m]", "65");
    window.until("document.getElementById('trouble').innerText.includes('it may be 1 to 64')");
    shows("tiled_f64_3_x_row_unguarded: C = A·B, 4×4");
    assert_eq!(window.ask("document.querySelector('#choice [name=m]').value"), "4");
    window.was_quiet();
    // The address leads to the same again.
    let address = window.ask("location.href");
    let Some(again) = open(&address) else { return };
    again.until(
        "document.getElementById('what').innerText.startsWith('tiled_f64_3_x_row_unguarded: C = A·B, 4×4 = 4×11')",
    );
}

/// Every kernel, type, mapping and mistake in place, at a size that no page holds.
#[test]
fn each_control_runs_its_choice() {
    let page = Page::open(0, Choice { plain: Plain::new(Family::Tiled, Type::F32, 2), sizes: [5, 3, 6] }).unwrap();
    let url = page.url();
    thread::spawn(move || page.run());
    let Some(window) = open(&url) else { return };
    let name = || window.ask("document.getElementById('what').innerText.split(':')[0]");
    let options = |control: &str| -> Vec<String> {
        let values = format!("[...document.querySelector('#choice [name={control}]').options].map(o => o.value)");
        window.ask(&format!("{values}.join(' ')")).split(' ').map(String::from).collect()
    };
    for (control, expected) in [("dtype", 6), ("mapping", 2), ("tile", 12), ("mistake", 6), ("family", 2)] {
        let values = options(control);
        assert_eq!(values.len(), expected, "{control}: {values:?}");
        // The first and the last, and in the full run those between.
        let last = values.len() - 1;
        for (_, value) in values.into_iter().enumerate().filter(|(i, _)| full() || [0, last].contains(i)) {
            // The last mistake is taken back before there is a kernel that cannot have it.
            if control == "family" {
                window.enter("#choice [name=mistake]", "");
            }
            window.enter(&format!("#choice [name={control}]"), &value);
            assert_eq!(window.ask("document.getElementById('trouble').hidden"), "true", "{control} {value}");
            let chosen = window.ask(&format!("document.querySelector('#choice [name={control}]').value"));
            assert_eq!(chosen, value, "{}", name());
        }
    }
    assert!(name().starts_with("naive_i8_32_x_row"), "{}", name());
    // There is no barrier to forget here.
    window.enter("#choice [name=mistake]", "missing-first-barrier");
    window.until("!document.getElementById('trouble').hidden");
    for (control, value) in [("m", "64"), ("n", "1"), ("k", "64")] {
        window.enter(&format!("#choice [name={control}]"), value);
    }
    assert!(window.text("#what").contains("64×1 = 64×64 · 64×1"), "{}", window.text("#what"));
    window.was_quiet();
}
