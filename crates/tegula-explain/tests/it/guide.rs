//! The guide under `docs/guide` equals its evaluated template.
//!
//! `TEGULA_BLESS=1` rewrites it; review the diff.

use std::fs;
use std::path::{Path, PathBuf};

use tegula_explain::guide::{Error, ErrorKind, Guide, evaluate};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Results files by name under `benchmarks`.
fn results(name: &str) -> Option<String> {
    fs::read_to_string(root().join("benchmarks").join(name)).ok()
}

fn evaluated(template: &str) -> Result<Guide, Error> {
    evaluate(template, &results)
}

/// The files of a guide: text and figures.
fn files(guide: Guide) -> Vec<(String, String)> {
    let text = format!(
        "<!-- Generated from guide.md.in by `TEGULA_BLESS=1 cargo test -p tegula-explain --test it guide`. -->\n\n{}",
        guide.text
    );
    [("README.md".to_string(), text)].into_iter().chain(guide.figures).collect()
}

#[test]
fn guide_matches_its_template() {
    let folder = root().join("docs/guide");
    let template = fs::read_to_string(folder.join("guide.md.in")).unwrap();
    let files = files(evaluated(&template).unwrap_or_else(|error| panic!("{error}")));
    if std::env::var("TEGULA_BLESS").is_ok_and(|bless| bless == "1") {
        for (name, text) in &files {
            fs::write(folder.join(name), text).unwrap();
        }
    }
    for (name, text) in &files {
        let kept = fs::read_to_string(folder.join(name)).unwrap_or_default();
        let differs = kept.lines().zip(text.lines()).find(|(kept, now)| kept != now);
        assert!(kept == *text, "docs/guide/{name} is stale: {differs:#?}; run with TEGULA_BLESS=1");
    }
    let mut kept: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let mut known: Vec<_> =
        files.iter().map(|(name, _)| name.into()).chain([std::ffi::OsString::from("guide.md.in")]).collect();
    kept.sort();
    known.sort();
    assert_eq!(kept, known, "files of docs/guide");
}

fn error_of(template: &str) -> (usize, ErrorKind) {
    let Error { line, kind } = evaluated(template).expect_err(template);
    (line, kind)
}

#[test]
fn facts_of_a_small_launch() {
    let guide = evaluated(
        "{{let four = kernel tiled f32 4x4x4 tile 2}}\n\
         {{each T in 2 4}}\n\
         {{let t = kernel tiled i32 8x8x8 tile $T}}\n\
         $T: {{t.thread_global_loads}} {{t.global_load_elements / t.thread_global_loads : 1}}\n\
         {{end}}\n\
         {{four.blocks}} {{four.threads}} {{four.barriers_per_block}} {{four.a_load_sectors}} {{four.name}}\n",
    );
    assert_eq!(guide.unwrap().text, "2: 8 64.0\n4: 4 64.0\n4 4 4 1 tiled_f32_2\n");
}

#[test]
fn figures_have_descriptions() {
    let guide = evaluated(
        "{{let far = kernel tiled i32 64x64x64 tile 32 x-row}}\n\
         {{figure one = requests far.a_load}}\n\
         {{figure two = banks far.tile_a_store}}\n",
    );
    let guide = guide.unwrap();
    assert!(guide.text.contains("32 sectors of 32 bytes, 128 bytes used"), "{}", guide.text);
    assert!(guide.text.contains("1 of 32 banks busy, 32 wavefronts"), "{}", guide.text);
    for (name, svg) in &guide.figures {
        assert!(svg.starts_with("<svg ") && svg.contains("<desc ") && svg.contains("prefers-color-scheme"), "{name}");
    }
}

#[test]
fn template_errors_have_their_line() {
    let known = "{{let k = kernel naive f32 4x4x4 tile 2}}\n";
    assert!(matches!(error_of("a\n{{let k = kernel K9 f32 4x4x4}}"), (2, ErrorKind::Kernel(_))));
    assert!(
        matches!(error_of(&format!("{known}a {{{{k.sectors}}}}")), (2, ErrorKind::UnknownFact { fact, .. }) if fact == "sectors")
    );
    assert!(matches!(error_of(&format!("{known}\n{{{{k.name + 1}}}}")), (3, ErrorKind::NotANumber(_))));
    assert!(matches!(error_of("{{l.fma}}"), (1, ErrorKind::UnknownName(name)) if name == "l"));
    assert!(matches!(error_of("{{let f = file nothing.json}}"), (1, ErrorKind::File { .. })));
    assert!(matches!(error_of("{{let f = file h200-f32.json rows[dtype=f32]}}"), (1, ErrorKind::File { .. })));
    assert!(matches!(error_of("{{let f = file plain/h200-vs-cuda.txt 1³ f32}}"), (1, ErrorKind::File { .. })));
    for invalid in [
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
        assert!(matches!(error_of(invalid), (1, ErrorKind::Syntax { .. })), "{invalid}");
    }
    let figure = |of: &str| error_of(&format!("{known}{{{{let m = mma f64:8x8x4}}}}\n{{{{figure a = {of}}}}}"));
    for invalid in ["tiles m", "fragments k", "banks k.a_load", "pipeline k"] {
        assert!(matches!(figure(invalid), (3, ErrorKind::UnsupportedFigure { .. })), "{invalid}");
    }
    assert!(matches!(figure("requests k.d_load"), (3, ErrorKind::UnknownFact { .. })));
}
