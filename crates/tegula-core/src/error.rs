//! What can go wrong, and what to do about it. No input makes the library panic, but for operators
//! (`*` and `[]` of matrices), which cannot return an error.

use std::fmt;

use crate::element::Type;

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything the library can refuse or fail at. Each message names the thing and says what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The shapes of A, B and C do not make a product.
    #[error("{0}")]
    Shape(String),
    /// Strides, offset and length that do not fit together, or an output whose elements overlap.
    #[error("{0}")]
    Layout(String),
    /// GPU memory that begins between elements.
    #[error("address {address:#x} is not a multiple of the {} bytes of an element of {ty}; align the memory to its elements", .ty.size())]
    Misaligned {
        /// The address.
        address: u64,
        /// The element type.
        ty: Type,
    },
    /// The output shares memory with an input.
    #[error("the output overlaps input {input}; give C memory of its own")]
    Aliased {
        /// `A`, `B` or `bias`.
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
        faults: Vec<crate::diagnostic::Fault>,
    },
    /// A kernel that has something for which a printer of readable text has no words.
    #[error("kernel {kernel} cannot be printed as CUDA C++, which has no plain form of {what}; print it as PTX")]
    NotPrintable {
        /// The kernel's name.
        kernel: String,
        /// What it has.
        what: String,
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
        finding: Box<crate::diagnostic::Finding>,
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
    /// Work that cannot be recorded while its stream is captured into a CUDA graph.
    #[error(
        "this cannot be captured into a CUDA graph: {why}; capture what has run once, and allocate, copy and wait outside"
    )]
    Capture {
        /// What cannot be recorded.
        why: String,
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
    /// A library to compare with is not here, or cannot be used.
    #[error("{library} is not here: {why}; {advice}")]
    NoPeer {
        /// The library.
        library: &'static str,
        /// What was looked for and not found.
        why: String,
        /// What to do.
        advice: &'static str,
    },
    /// A call of a library to compare with failed.
    #[error("{call} failed: {status}")]
    Peer {
        /// The library's function.
        call: &'static str,
        /// The library's name of its error.
        status: String,
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
    #[error("out of memory: {} for {what} on {device}{}; {}", Bytes(*.bytes), free(*.available), remedy(.device))]
    OutOfMemory {
        /// What was to be stored.
        what: String,
        /// How many bytes it needs.
        bytes: u128,
        /// Where: `the host`, `cuda:0`.
        device: String,
        /// How many bytes were free there, where that is known.
        available: Option<u128>,
    },
}

/// The message, so that `fn main() -> Result<(), Error>` prints it.
impl Error {
    /// The refusal of a type that kernels do not multiply.
    pub fn no_kernels(ty: Type) -> Error {
        Error::KernelOption(format!("there are no kernels for {ty}"))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn free(available: Option<u128>) -> String {
    available.map_or_else(String::new, |bytes| format!(", where {} are free", Bytes(bytes)))
}

fn remedy(device: &str) -> &'static str {
    if device.starts_with("cuda") { "use the CPU (--device cpu) or smaller matrices" } else { "use smaller matrices" }
}

/// A number of bytes as people read it: `12.0 GiB`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bytes(pub u128);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let (mut value, mut unit) = (self.0 as f64 / 1024.0, 0);
        // What would be printed as 1024.0 is 1.0 of the next.
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
    fn debug_is_the_message() {
        let error = Error::Shape("A is 2×3 and B is 2×3".into());
        assert_eq!(format!("{error:?}"), error.to_string());
    }

    #[test]
    fn bytes_are_readable() {
        let shown = |bytes| Bytes(bytes).to_string();
        assert_eq!([0, 1023, 1024, 1536].map(shown), ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB"]);
        assert_eq!([(1 << 20) - 1, 12 << 30, 1 << 70].map(shown), ["1.0 MiB", "12.0 GiB", "1024.0 EiB"]);
    }

    #[test]
    fn memory_that_is_missing_is_put_in_numbers() {
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
