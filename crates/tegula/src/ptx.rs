//! Kernels as PTX text.

/// A kernel as text, with what a launch has to know about it. Plain data: printing makes it, the driver assembles it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Image {
    /// Name of the entry in the text.
    pub entry: String,
    /// The PTX text.
    pub text: String,
    /// Dynamic shared memory of a block in bytes; 0 where all of it is static.
    pub shared_bytes: u32,
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
}
