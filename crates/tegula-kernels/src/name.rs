//! Names of kernels, as users type them.

use tegula_core::element::Type;

/// A name of a kernel, or what names of a family begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelName {
    /// The name.
    pub name: &'static str,
    /// The element type that is meant where none is given.
    pub ty: Type,
    /// One line that describes it.
    pub description: &'static str,
    /// What else a name takes.
    pub form: Form,
}

/// What stands behind a name of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Nothing: it names a kernel whose tile and mapping options set. A check is of matrices with
    /// this side, or, where the kernel needs whole tiles, with the next multiple of the tile.
    Options {
        /// Rows and columns.
        side: u32,
        /// Whether the side is a multiple of the tile.
        whole_tiles: bool,
    },
    /// The parameters of the kernel, as in `vector_16x4_32x8_8`.
    Parameters,
    /// Nothing: it names a kernel that helps others.
    Helper,
}

impl KernelName {
    /// Whether a name is this one or begins with it.
    pub fn matches(&self, name: &str) -> bool {
        name.get(..self.name.len()).is_some_and(|start| start.eq_ignore_ascii_case(self.name))
    }
}
