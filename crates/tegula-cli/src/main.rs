//! `tegula`: multiply matrices that live in files.
fn main() {}
