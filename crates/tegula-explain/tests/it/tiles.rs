//! The picture in the README, drawn again. `TEGULA_BLESS=1` rewrites it; review the difference.

#[path = "../../examples/tiles/picture.rs"]
mod picture;

#[test]
fn readme_picture_matches_its_trace() {
    let (path, drawn) = (picture::root().join("docs/tiles.svg"), picture::draw());
    if std::env::var("TEGULA_BLESS").is_ok_and(|bless| bless == "1") {
        std::fs::write(&path, &drawn).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept == drawn, "docs/tiles.svg is stale: run `cargo run -p tegula-explain --example tiles`");
    assert!(drawn.len() < 200_000 && drawn.contains("prefers-color-scheme"));
}
