//! placeholder
/// A fault.
#[derive(Clone, Debug)] pub struct Fault;
impl std::fmt::Display for Fault { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("fault") } }
