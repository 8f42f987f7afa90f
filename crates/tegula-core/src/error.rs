//! The error type of the library.
//!
//! No input makes the library panic, except through operators (`*` and `[]` of matrices), which
//! cannot return an error.

use std::fmt;

use crate::element::Type;

/// The library's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// All errors of the library. Each message names the object and the remedy.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Shapes of A, B and C that do not form a product.
    #[error("{0}")]
    Shape(String),
    /// Inconsistent strides, offset and length, or an output whose elements overlap.
    #[error("{0}")]
    Layout(String),
    /// GPU memory that is not aligned to its element type.
    #[error("address {address:#x} is not a multiple of the {} bytes of an element of {ty}; align the memory to its elements", .ty.size())]
    Misaligned {
        /// The address.
        address: u64,
        /// The element type.
        ty: Type,
    },
    /// An output that shares memory with an input.
    #[error("the output C shares memory with the input {input}; C must not overlap an input")]
    Aliased {
        /// `A`, `B` or `bias`.
        input: &'static str,
    },
    /// An operation that the device does not support for this element type.
    #[error("{what} is not available for {ty} on {device}")]
    Unsupported {
        /// The operation.
        what: String,
        /// The element type.
        ty: Type,
        /// The device.
        device: String,
    },
    /// An invalid kernel description; nothing was printed or run.
    #[error("invalid kernel {kernel}: {}", .faults.first().map_or_else(String::new, ToString::to_string))]
    InvalidKernel {
        /// The kernel's name.
        kernel: String,
        /// All faults, in source order.
        faults: Vec<crate::diagnostic::Fault>,
    },
    /// An operation that the CUDA C++ printer does not support.
    #[error("kernel {kernel} cannot be printed as CUDA C++: {what} not supported; print it as PTX")]
    NotPrintable {
        /// The kernel's name.
        kernel: String,
        /// The unsupported operation.
        what: String,
    },
    /// An invalid or unsupported option of a built-in kernel.
    #[error("{0}")]
    KernelOption(String),
    /// Arguments that do not match a kernel's parameters.
    #[error("kernel {kernel}: {why}")]
    Launch {
        /// The kernel's name.
        kernel: String,
        /// The mismatch.
        why: String,
    },
    /// An error that the interpreter found while running a kernel.
    #[error("kernel {kernel}: {finding}")]
    Finding {
        /// The kernel's name.
        kernel: String,
        /// The first error.
        finding: Box<crate::diagnostic::Finding>,
    },
    /// A missing or unusable NVIDIA driver.
    #[error("no NVIDIA driver: {why}; use the CPU (--device cpu) or install the driver")]
    NoDriver {
        /// The search that failed.
        why: String,
    },
    /// A GPU ordinal beyond the number of GPUs.
    #[error("cuda:{ordinal} not found: {count} GPU(s) available{}", if *.count == 0 { String::new() } else { format!(", cuda:0 to cuda:{}", .count - 1) })]
    NoSuchGpu {
        /// The requested ordinal.
        ordinal: usize,
        /// The number of GPUs.
        count: usize,
    },
    /// An object of another GPU, or of another context of the same GPU.
    #[error("{what} belongs to {owner}, but the work runs on {gpu}; copy it to {gpu}, or run on {owner}")]
    DeviceMismatch {
        /// The object.
        what: String,
        /// The GPU or context that owns it.
        owner: String,
        /// The GPU that runs the work.
        gpu: String,
    },
    /// Work that cannot be captured into a CUDA graph.
    #[error(
        "cannot capture into a CUDA graph: {why}; run the work once before the capture, and allocate, copy and wait outside it"
    )]
    Capture {
        /// The operation that cannot be captured.
        why: String,
    },
    /// A driver call that failed.
    #[error("{call} failed: {message} (CUDA error {code})")]
    Driver {
        /// The driver function.
        call: &'static str,
        /// The CUDA error number.
        code: i32,
        /// The driver's description of the error.
        message: String,
    },
    /// A peer library that is missing or unusable.
    #[error("{library} is not available: {why}; {advice}")]
    PeerUnavailable {
        /// The library.
        library: &'static str,
        /// The search that failed.
        why: String,
        /// The remedy.
        advice: &'static str,
    },
    /// A failed call of a peer library.
    #[error("{call} failed: {status}")]
    Peer {
        /// The library function.
        call: &'static str,
        /// The library's name of the error.
        status: String,
    },
    /// A kernel that the driver's assembler rejected, or warned about.
    ///
    /// Only warnings that mean a slow or wrong kernel count.
    #[error("the driver could not assemble kernel {kernel}: {errors}{info}")]
    Assemble {
        /// The kernel's name.
        kernel: String,
        /// The assembler's error log.
        errors: String,
        /// The assembler's information log.
        info: String,
    },
    /// Insufficient memory on a device or on the host.
    #[error("out of memory: {} for {what} on {device}{}; {}", Bytes((*.bytes).into()), free(*.available), remedy(.device))]
    OutOfMemory {
        /// The data.
        what: String,
        /// The required bytes, at most `u64::MAX`.
        bytes: u64,
        /// The device: `the host`, `cuda:0`.
        device: String,
        /// The free bytes, if known.
        available: Option<u64>,
    },
}

impl Error {
    /// The error for data that does not fit in the memory of a device.
    pub fn out_of_memory(what: String, bytes: u128, device: String, available: Option<u128>) -> Error {
        let saturated = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        Error::OutOfMemory { what, bytes: saturated(bytes), device, available: available.map(saturated) }
    }

    /// The error for an operand type without kernels.
    pub fn no_kernels(ty: Type) -> Error {
        Error::KernelOption(format!("no kernel supports {ty}"))
    }
}

/// Formats the message, which `fn main() -> Result<(), Error>` prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn free(available: Option<u64>) -> String {
    available.map_or_else(String::new, |bytes| format!(", where {} are free", Bytes(bytes.into())))
}

fn remedy(device: &str) -> &'static str {
    if device.starts_with("cuda") { "use the CPU (--device cpu) or smaller matrices" } else { "use smaller matrices" }
}

/// A number of bytes, formatted as `12.0 GiB`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bytes(pub u128);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let (mut value, mut unit) = (self.0 as f64 / 1024.0, 0);
        // 1024.0 of one unit is printed as 1.0 of the next.
        while value >= 1023.95 && unit + 1 < UNITS.len() {
            (value, unit) = (value / 1024.0, unit + 1);
        }
        if self.0 < 1024 { write!(f, "{} bytes", self.0) } else { write!(f, "{value:.1} {}", UNITS[unit]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_is_the_message() {
        let error = Error::Shape("A is 2×3 and B is 2×3".into());
        assert_eq!(format!("{error:?}"), error.to_string());
    }

    #[test]
    fn bytes_are_formatted_in_binary_units() {
        let shown = |bytes| Bytes(bytes).to_string();
        assert_eq!([0, 1023, 1024, 1536].map(shown), ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB"]);
        assert_eq!([(1 << 20) - 1, 12 << 30, 1 << 70].map(shown), ["1.0 MiB", "12.0 GiB", "1024.0 EiB"]);
    }

    /// The tag of an enum is as wide as its alignment. One of 16 bytes is stored in halves but
    /// loaded at once, which waits for both: 10 ns for every small product.
    #[test]
    fn tag_of_an_error_is_one_word() {
        assert!(align_of::<Error>() <= align_of::<u64>());
    }

    #[test]
    fn out_of_memory_message_has_the_numbers() {
        let error = |device: &str, available| {
            Error::OutOfMemory { what: "A, B and C".into(), bytes: 148 << 30, device: device.into(), available }
                .to_string()
        };
        assert_eq!(
            error("cuda:0", Some(139 << 30)),
            "out of memory: 148.0 GiB for A, B and C on cuda:0, where 139.0 GiB are free; use the CPU (--device cpu) or smaller matrices"
        );
        assert_eq!(
            error("the host", None),
            "out of memory: 148.0 GiB for A, B and C on the host; use smaller matrices"
        );
    }
}
