//! Errors of traces, listings and the page.

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel could not be built or run.
    #[error(transparent)]
    Kernel(#[from] tegula_core::Error),
    /// The launch records more than a trace may hold.
    #[error(
        "the trace would hold more than {limit} per-thread values; trace fewer blocks, warps or steps, \
         or a smaller problem"
    )]
    TraceTooLarge {
        /// The limit.
        limit: usize,
    },
    /// Bytes that are no valid trace, or a trace of another version.
    #[error("invalid trace: {0}")]
    InvalidTrace(String),
    /// The page could not be served.
    #[error("port {port} cannot be used: {reason}; choose another port")]
    Serve {
        /// The port.
        port: u16,
        /// The system's message.
        reason: String,
    },
    /// The client closed the connection before the launch was traced.
    #[error("canceled: the client closed the connection")]
    Canceled,
    /// The assembler and the disassembler are not installed.
    #[error(
        "ptxas and nvdisasm not found; install the CUDA toolkit, or set TEGULA_PTXAS to its ptxas (no GPU is needed)"
    )]
    ToolsNotFound,
    /// A program of the CUDA toolkit failed.
    #[error("{program}: {reason}")]
    Tool {
        /// The program.
        program: String,
        /// Its message.
        reason: String,
    },
    /// The machine code cannot be matched with the kernel's operations.
    #[error("the machine code does not match the kernel: {0}")]
    Mismatch(String),
    /// The built-in device descriptions are invalid.
    #[error("invalid device descriptions: {0}")]
    InvalidDevices(String),
    /// A trace could not be written.
    #[error("cannot write the trace: {0}")]
    Output(#[from] std::io::Error),
}

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;
