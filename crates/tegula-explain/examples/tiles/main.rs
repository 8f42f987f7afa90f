//! Writes `docs/tiles.svg`, the picture in the README: `cargo run -p tegula-explain --example
//! tiles`.
//!
//! The test `it/tiles.rs` draws it again and compares; `TEGULA_BLESS=1` rewrites it there.

mod picture;

fn main() -> std::io::Result<()> {
    let path = picture::root().join("docs/tiles.svg");
    std::fs::write(&path, picture::draw())?;
    println!("{}", path.display());
    Ok(())
}
