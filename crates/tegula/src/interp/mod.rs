//! placeholder
/// A finding.
#[derive(Clone, Debug)] pub struct Finding;
impl std::fmt::Display for Finding { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("finding") } }
