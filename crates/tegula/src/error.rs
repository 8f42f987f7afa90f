//! What can go wrong, and what to do about it. No input makes the library panic.

use crate::element::Type;

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything the library can refuse or fail at. Each message names the thing and says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The shapes of A, B and C do not make a product.
    #[error("{0}")]
    Shape(String),
    /// Strides, offset and length that do not fit together, or an output whose elements overlap.
    #[error("{0}")]
    Layout(String),
    /// The output shares memory with an input.
    #[error("the output overlaps input {input}; give C memory of its own")]
    Aliased {
        /// `A` or `B`.
        input: &'static str,
    },
    /// An operation that this element type has no path for on this device.
    #[error("{what} is not available for {ty} on {device}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// The element type.
        ty: Type,
        /// The device.
        device: String,
    },
    /// A kernel's description is wrong; nothing was printed or run.
    #[error("kernel {kernel} is refused: {}", .faults.first().map_or_else(String::new, ToString::to_string))]
    Refused {
        /// The kernel's name.
        kernel: String,
        /// Every fault found, in source order.
        faults: Vec<crate::ir::Fault>,
    },
    /// An option of a built-in kernel that it does not have or cannot take.
    #[error("{0}")]
    KernelOption(String),
    /// Arguments that do not fit a kernel's parameters.
    #[error("kernel {kernel}: {why}")]
    Launch {
        /// The kernel's name.
        kernel: String,
        /// What does not fit.
        why: String,
    },
    /// The interpreter found an error while running a kernel.
    #[error("kernel {kernel}: {finding}")]
    Found {
        /// The kernel's name.
        kernel: String,
        /// The first error.
        finding: Box<crate::interp::Finding>,
    },
    /// There is no usable NVIDIA driver.
    #[error("no NVIDIA driver: {why}; use the CPU (--device cpu) or install the driver")]
    NoDriver {
        /// What was looked for and not found.
        why: String,
    },
    /// The driver is there, this GPU is not.
    #[error("there is no cuda:{ordinal}: {count} GPU(s) found{}", if *.count == 0 { String::new() } else { format!(", cuda:0 to cuda:{}", .count - 1) })]
    NoSuchGpu {
        /// The ordinal asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// Something that belongs to another GPU, or to another context of the same one.
    #[error("{what} belongs to {owner}, the work runs on {gpu}; move it there or run the work where it is")]
    Elsewhere {
        /// What was handed over.
        what: String,
        /// Where it belongs.
        owner: String,
        /// Where the work runs.
        gpu: String,
    },
    /// A driver call failed.
    #[error("{call} failed: {message} (CUDA error {code})")]
    Driver {
        /// The driver function.
        call: &'static str,
        /// The driver's error number.
        code: i32,
        /// The driver's text for it.
        message: String,
    },
    /// The driver's assembler refused a kernel, or warned where a warning means a slow or wrong kernel.
    #[error("the driver could not assemble kernel {kernel}: {errors}{info}")]
    Assemble {
        /// The kernel's name.
        kernel: String,
        /// The assembler's error log.
        errors: String,
        /// The assembler's information log.
        info: String,
    },
    /// Not enough memory on a device or on the host.
    #[error("out of memory: {what} needs {bytes} bytes on {device}")]
    OutOfMemory {
        /// What was to be stored.
        what: String,
        /// How much it needs.
        bytes: u128,
        /// Where.
        device: String,
    },
}
