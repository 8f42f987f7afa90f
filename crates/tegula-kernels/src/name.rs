//! Kernel names on the command line.

use tegula_core::element::Type;

/// The name of a kernel, or the prefix of a family's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelName {
    /// The name.
    pub name: &'static str,
    /// The default element type.
    pub ty: Type,
    /// A description of one line.
    pub description: &'static str,
    /// The syntax after the name.
    pub syntax: NameSyntax,
}

/// The syntax of a kernel name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameSyntax {
    /// The name of a kernel whose tile and mapping are command line options. A check multiplies
    /// square matrices of this side, or of the next multiple of the tile if the kernel needs whole
    /// tiles.
    Options {
        /// Rows and columns.
        side: u32,
        /// Whether the side is a multiple of the tile.
        whole_tiles: bool,
    },
    /// A prefix, followed by the parameters of the kernel, as in `vector_16x4_threads32x8_load8`.
    Parameters,
    /// The name of a helper kernel.
    Helper,
}

impl KernelName {
    /// Whether `name` begins with this name, ignoring case.
    pub fn matches(&self, name: &str) -> bool {
        name.get(..self.name.len()).is_some_and(|start| start.eq_ignore_ascii_case(self.name))
    }
}
