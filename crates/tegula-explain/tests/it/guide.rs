//! The guide, evaluated again: what is kept under `docs/guide` is what its template comes to. `TEGULA_BLESS=1` rewrites it; review the difference.

use std::fs;
use std::path::{Path, PathBuf};

use tegula_explain::guide::{Error, Fault, Guide, evaluate};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Results by their names under `benchmarks`.
fn results(name: &str) -> Option<String> {
    fs::read_to_string(root().join("benchmarks").join(name)).ok()
}

fn made(template: &str) -> Result<Guide, Error> {
    evaluate(template, &results)
}

/// All that is kept of a guide: its text and its figures.
fn files(guide: Guide) -> Vec<(String, String)> {
    let text = format!(
        "<!-- Made from guide.md.in by `TEGULA_BLESS=1 cargo test -p tegula-explain --test it guide`. -->\n\n{}",
        guide.text
    );
    [("README.md".to_string(), text)].into_iter().chain(guide.figures).collect()
}

#[test]
fn what_is_kept_is_what_the_template_comes_to() {
    let folder = root().join("docs/guide");
    let template = fs::read_to_string(folder.join("guide.md.in")).unwrap();
    let files = files(made(&template).unwrap_or_else(|error| panic!("{error}")));
    if std::env::var("TEGULA_BLESS").is_ok_and(|bless| bless == "1") {
        for (name, text) in &files {
            fs::write(folder.join(name), text).unwrap();
        }
    }
    for (name, text) in &files {
        let kept = fs::read_to_string(folder.join(name)).unwrap_or_default();
        let differs = kept.lines().zip(text.lines()).find(|(kept, now)| kept != now);
        assert!(kept == *text, "docs/guide/{name} is otherwise: {differs:#?}; if that is meant, TEGULA_BLESS=1");
    }
    let mut kept: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let mut known: Vec<_> =
        files.iter().map(|(name, _)| name.into()).chain([std::ffi::OsString::from("guide.md.in")]).collect();
    kept.sort();
    known.sort();
    assert_eq!(kept, known, "docs/guide holds a file that the template does not make, or lacks one");
}

fn fault(template: &str) -> (usize, Fault) {
    let Error { line, fault } = made(template).expect_err(template);
    (line, fault)
}

#[test]
fn facts_of_a_small_product() {
    let said = made(
        "{{let four = kernel tiled f32 4x4x4 tile 2}}\n\
         {{each T in 2 4}}\n\
         {{let t = kernel tiled i32 8x8x8 tile $T}}\n\
         $T: {{t.thread_global_loads}} {{t.global_load_elements / t.thread_global_loads : 1}}\n\
         {{end}}\n\
         {{four.blocks}} {{four.threads}} {{four.barriers_per_block}} {{four.a_load_sectors}} {{four.name}}\n",
    );
    assert_eq!(said.unwrap().text, "2: 8 64.0\n4: 4 64.0\n4 4 4 1 tiled_f32_2\n");
}

#[test]
fn figures_say_what_they_show() {
    let guide = made(
        "{{let far = kernel tiled i32 64x64x64 tile 32 x-row}}\n\
         {{figure one = requests far.a_load}}\n\
         {{figure two = banks far.tile_a_store}}\n",
    );
    let guide = guide.unwrap();
    assert!(guide.text.contains("32 sectors of 32 bytes, 128 bytes of them used"), "{}", guide.text);
    assert!(guide.text.contains("1 of 32 banks busy, 32 passes"), "{}", guide.text);
    for (name, svg) in &guide.figures {
        assert!(svg.starts_with("<svg ") && svg.contains("<desc ") && svg.contains("prefers-color-scheme"), "{name}");
    }
}

#[test]
fn mistakes_in_a_template_are_told_with_their_line() {
    let known = "{{let k = kernel naive f32 4x4x4 tile 2}}\n";
    assert!(matches!(fault("a\n{{let k = kernel K9 f32 4x4x4}}"), (2, Fault::Kernel(_))));
    assert!(
        matches!(fault(&format!("{known}a {{{{k.sectors}}}}")), (2, Fault::UnknownFact { fact, .. }) if fact == "sectors")
    );
    assert!(matches!(fault(&format!("{known}\n{{{{k.name + 1}}}}")), (3, Fault::NotANumber(_))));
    assert!(matches!(fault("{{l.fma}}"), (1, Fault::UnknownName(name)) if name == "l"));
    assert!(matches!(fault("{{let f = file nothing.json}}"), (1, Fault::File { .. })));
    assert!(matches!(fault("{{let f = file h200-f32.json rows[dtype=f32]}}"), (1, Fault::File { .. })));
    assert!(matches!(fault("{{let f = file plain/h200-vs-cuda.txt 1³ f32}}"), (1, Fault::File { .. })));
    for wrong in [
        "{{",
        "{{}}",
        "{{end}}",
        "{{each T in 1 2}}\n",
        "{{each T}}\n{{end}}",
        "{{1 : x}}",
        "{{let a}}",
        "{{let a = b}}",
        "{{let a = kernel naive f32 4x4}}",
        "{{let a = kernel naive f32 4x4x99999}}",
        "{{let a = kernel naive q8 4x4x4}}",
        "{{let a = kernel naive f32 4x4x4 slow}}",
        "{{let a = nest kji f32 4x4x4}}",
        "{{let a = mma f32:4x4x4}}",
        "{{figure ../a = bars x | a = 1}}",
        "{{figure a = bars x}}",
        "{{figure a = bars x | a = 0}}",
        "{{figure a = photo}}",
    ] {
        assert!(matches!(fault(wrong), (1, Fault::Syntax { .. })), "{wrong}");
    }
    let figure = |of: &str| fault(&format!("{known}{{{{let m = mma f64:8x8x4}}}}\n{{{{figure a = {of}}}}}"));
    for wrong in ["tiles m", "fragments k", "banks k.a_load", "pipeline k"] {
        assert!(matches!(figure(wrong), (3, Fault::NoFigure { .. })), "{wrong}");
    }
    assert!(matches!(figure("requests k.d_load"), (3, Fault::UnknownFact { .. })));
}
