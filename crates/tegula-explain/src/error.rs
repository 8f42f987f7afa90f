//! What can go wrong, and what to do.

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel could not be built or run.
    #[error(transparent)]
    Kernel(#[from] tegula_core::Error),
    /// More happens than a trace holds.
    #[error(
        "the trace would hold more than {most} numbers of single threads; trace some of it (blocks, warps, steps) or a smaller problem"
    )]
    TooLong {
        /// How many it may hold.
        most: usize,
    },
    /// Bytes that are no trace, or one this version cannot read.
    #[error("this is no trace that can be read: {0}")]
    Unreadable(String),
    /// The page could not be given out.
    #[error("port {port} of this machine cannot be used: {why}; another one can be chosen")]
    Serve {
        /// The port.
        port: u16,
        /// Why not.
        why: String,
    },
    /// Whoever asked for a product has gone.
    #[error("stopped: nobody waits for it any more")]
    Stopped,
    /// There is no assembler and disassembler.
    #[error(
        "ptxas and nvdisasm are not found; install the CUDA toolkit, or let TEGULA_PTXAS name its ptxas (no GPU is needed)"
    )]
    NoTools,
    /// A program of the CUDA toolkit did not do its work.
    #[error("{program}: {why}")]
    Tool {
        /// The program.
        program: String,
        /// What it said.
        why: String,
    },
    /// The machine code is not that of the kernel, or does what cannot be followed.
    #[error("the machine code cannot be put beside the kernel: {0}")]
    Unlike(String),
    /// What the program knows of devices is not as it should be.
    #[error("what is known of devices cannot be read: {0}")]
    Devices(String),
    /// A trace could not be written.
    #[error("the trace could not be written: {0}")]
    Output(#[from] std::io::Error),
}

/// What came of it.
pub type Result<T> = std::result::Result<T, Error>;
