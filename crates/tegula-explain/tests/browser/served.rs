//! The served page, which runs each selection.

use std::thread;

use tegula_core::element::Type;
use tegula_explain::page::Selection;
use tegula_explain::serve::Server;
use tegula_kernels::{Plain, PlainKind};

use crate::chromium::open;
use crate::full;

#[test]
#[ignore = "long; .ci/run runs it"]
fn controls_run_a_new_launch() {
    let server =
        Server::bind(0, Selection { plain: Plain::new(PlainKind::Tiled, Type::F32, 2), extents: [4; 3] }).unwrap();
    let url = server.url();
    thread::spawn(move || server.run());
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
    // An invalid value is rejected, and the view stays.
    window.enter("#choice [name=m]", "65");
    window.until("document.getElementById('trouble').innerText.includes('the range is 1 to 64')");
    shows("tiled_f64_3_x_row_unguarded: C = A·B, 4×4");
    assert_eq!(window.eval("document.querySelector('#choice [name=m]').value"), "4");
    window.assert_quiet();
    // The address restores the state.
    let address = window.eval("location.href");
    let Some(again) = open(&address) else { return };
    again.until(
        "document.getElementById('what').innerText.startsWith('tiled_f64_3_x_row_unguarded: C = A·B, 4×4 = 4×11')",
    );
}

/// Every kernel, type, mapping and bug, with extents that no saved page holds.
#[test]
#[ignore = "long; .ci/run runs it"]
fn each_value_of_each_control_runs() {
    let server =
        Server::bind(0, Selection { plain: Plain::new(PlainKind::Tiled, Type::F32, 2), extents: [5, 3, 6] }).unwrap();
    let url = server.url();
    thread::spawn(move || server.run());
    let Some(window) = open(&url) else { return };
    let name = || window.eval("document.getElementById('what').innerText.split(':')[0]");
    let options = |control: &str| -> Vec<String> {
        let values = format!("[...document.querySelector('#choice [name={control}]').options].map(o => o.value)");
        window.eval(&format!("{values}.join(' ')")).split(' ').map(String::from).collect()
    };
    for (control, expected) in [("dtype", 6), ("mapping", 2), ("tile", 12), ("mistake", 6), ("family", 2)] {
        let values = options(control);
        assert_eq!(values.len(), expected, "{control}: {values:?}");
        // The first and the last value; in the full run all values.
        let last = values.len() - 1;
        for (_, value) in values.into_iter().enumerate().filter(|(i, _)| full() || [0, last].contains(i)) {
            // The naive kernel does not support the last bug.
            if control == "family" {
                window.enter("#choice [name=mistake]", "");
            }
            window.enter(&format!("#choice [name={control}]"), &value);
            assert_eq!(window.eval("document.getElementById('trouble').hidden"), "true", "{control} {value}");
            let chosen = window.eval(&format!("document.querySelector('#choice [name={control}]').value"));
            assert_eq!(chosen, value, "{}", name());
        }
    }
    assert!(name().starts_with("naive_i8_32_x_row"), "{}", name());
    // The naive kernel has no barriers.
    window.enter("#choice [name=mistake]", "missing-first-barrier");
    window.until("!document.getElementById('trouble').hidden");
    for (control, value) in [("m", "64"), ("n", "1"), ("k", "64")] {
        window.enter(&format!("#choice [name={control}]"), value);
    }
    assert!(window.text("#what").contains("64×1 = 64×64 · 64×1"), "{}", window.text("#what"));
    window.assert_quiet();
}
