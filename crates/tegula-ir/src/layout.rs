//! Layouts of matrix parameters.

/// How a matrix parameter may be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Order2d {
    /// Any strides.
    #[default]
    Strided,
    /// Columns lie side by side: the column stride is 1.
    RowMajor,
    /// Rows lie side by side: the row stride is 1.
    ColMajor,
}
