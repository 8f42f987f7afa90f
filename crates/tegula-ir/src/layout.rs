//! Declared layouts of matrix parameters.

/// The storage order of a matrix parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Order2d {
    /// Arbitrary strides.
    #[default]
    Strided,
    /// Row-major: the column stride is 1.
    RowMajor,
    /// Column-major: the row stride is 1.
    ColMajor,
}
