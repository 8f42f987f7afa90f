//! Functions and constants of cublasLt, as in its headers since version 11.
//!
//! The headers of 12.4 and 13.1 were compared. The library is loaded on first use and stays loaded.

use std::env;
use std::ffi::{CStr, OsString, c_char, c_void};
use std::sync::OnceLock;

use libloading::Library;

/// `cublasStatus_t`.
pub type Status = i32;
pub const SUCCESS: Status = 0;
/// The product is not supported.
pub const NOT_SUPPORTED: Status = 15;

/// `cudaDataType`.
pub mod data {
    pub const R_32F: i32 = 0;
    pub const R_64F: i32 = 1;
    pub const R_16F: i32 = 2;
    pub const R_8I: i32 = 3;
    pub const R_32I: i32 = 10;
    pub const R_16BF: i32 = 14;
}

/// `cublasComputeType_t`. Of the float ones only `F32_BY_TF32` rounds inputs.
pub mod compute {
    pub const F32: i32 = 68;
    pub const F64: i32 = 70;
    pub const I32: i32 = 72;
    pub const F32_BY_TF32: i32 = 77;
}

/// `cublasOperation_t`.
pub mod operation {
    pub const AS_STORED: i32 = 0;
    pub const TRANSPOSED: i32 = 1;
}

/// `cublasLtMatmulDescAttributes_t`.
pub mod product {
    pub const TRANSPOSE_A: i32 = 3;
    pub const TRANSPOSE_B: i32 = 4;
    pub const EPILOGUE: i32 = 7;
    pub const BIAS: i32 = 8;
}

/// `cublasLtEpilogue_t`, a set of flags.
pub mod epilogue {
    pub const NONE: u32 = 1;
    pub const RELU: u32 = 2;
    pub const BIAS: u32 = 4;
    pub const GELU: u32 = 32;
}

/// `cublasLtMatrixLayoutAttribute_t`.
pub mod layout {
    pub const BATCH_COUNT: i32 = 5;
    pub const BATCH_STRIDE: i32 = 6;
}

/// `cublasLtMatmulPreferenceAttributes_t`.
pub mod preference {
    pub const MAX_WORKSPACE: i32 = 1;
    /// Minimum alignments of A, B, C and D.
    pub const ALIGNMENTS: [i32; 4] = [5, 6, 7, 8];
}

/// `cublasLtMatmulAlgoConfigAttributes_t`, with sizes in bytes.
pub mod config {
    pub const ID: (i32, usize) = (0, 4);
    pub const TILE: (i32, usize) = (1, 4);
    pub const SPLIT_K: (i32, usize) = (2, 4);
    pub const STAGES: (i32, usize) = (6, 4);
    pub const CLUSTER: (i32, usize) = (8, 2);
}

/// `cublasLtMatmulAlgo_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Algorithm {
    data: [u64; 8],
}

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Heuristic {
    pub algorithm: Algorithm,
    pub workspace: usize,
    pub state: Status,
    pub waves: f32,
    reserved: [i32; 4],
}

type Handle = *mut c_void;

macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// Function table of the library.
        pub struct Functions {
            $($(#[$doc])* pub $field: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// Keeps the library loaded.
            _library: Library,
        }

        impl Functions {
            /// Looks up all functions.
            fn load(library: Library) -> Result<Functions, String> {
                $(
                    // SAFETY: the type is that of the library's header.
                    let $field = *unsafe {
                        library.get::<unsafe extern "C" fn($($argument),*) -> $result>(stringify!($name).as_bytes())
                    }
                    .map_err(|_| concat!("the library has no ", stringify!($name)).to_owned())?;
                )*
                Ok(Functions { $($field,)* _library: library })
            }
        }
    };
}

functions! {
    version = cublasLtGetVersion() -> usize;
    status_name = cublasLtGetStatusName(Status) -> *const c_char;
    create = cublasLtCreate(*mut Handle) -> Status;
    destroy = cublasLtDestroy(Handle) -> Status;
    /// Compute type, type of alpha and beta.
    product = cublasLtMatmulDescCreate(*mut Handle, i32, i32) -> Status;
    product_set = cublasLtMatmulDescSetAttribute(Handle, i32, *const c_void, usize) -> Status;
    product_destroy = cublasLtMatmulDescDestroy(Handle) -> Status;
    /// Type, rows, columns, leading dimension.
    layout = cublasLtMatrixLayoutCreate(*mut Handle, i32, u64, u64, i64) -> Status;
    layout_set = cublasLtMatrixLayoutSetAttribute(Handle, i32, *const c_void, usize) -> Status;
    layout_destroy = cublasLtMatrixLayoutDestroy(Handle) -> Status;
    preference = cublasLtMatmulPreferenceCreate(*mut Handle) -> Status;
    preference_set = cublasLtMatmulPreferenceSetAttribute(Handle, i32, *const c_void, usize) -> Status;
    preference_destroy = cublasLtMatmulPreferenceDestroy(Handle) -> Status;
    /// Operation, A, B, C, D, preference; capacity, results, number of results.
    heuristics = cublasLtMatmulAlgoGetHeuristic(
        Handle, Handle, Handle, Handle, Handle, Handle, Handle, i32, *mut Heuristic, *mut i32
    ) -> Status;
    /// Attribute, destination, size, bytes written.
    config = cublasLtMatmulAlgoConfigGetAttribute(*const Algorithm, i32, *mut c_void, usize, *mut usize) -> Status;
    /// Operation; alpha, A and its layout, B and its layout, beta, C and its layout, D and its
    /// layout; algorithm, workspace, its size, stream.
    matmul = cublasLtMatmul(
        Handle, Handle, *const c_void, u64, Handle, u64, Handle, *const c_void, u64, Handle, u64, Handle,
        *const Algorithm, u64, usize, *mut c_void
    ) -> Status;
}

/// Environment variable with the path of the library to load.
pub const VARIABLE: &str = "TEGULA_CUBLASLT";

/// Names to load: first for the dynamic linker, then paths of CUDA toolkits.
#[cfg(not(windows))]
const NAMES: [&str; 6] = [
    "libcublasLt.so.13",
    "libcublasLt.so.12",
    "libcublasLt.so",
    "/usr/local/cuda/lib64/libcublasLt.so.13",
    "/usr/local/cuda/lib64/libcublasLt.so.12",
    "/usr/local/cuda/lib64/libcublasLt.so",
];
#[cfg(windows)]
const NAMES: [&str; 2] = ["cublasLt64_13.dll", "cublasLt64_12.dll"];

/// The library, loaded once per process, or the error of loading it.
pub fn functions() -> Result<&'static Functions, String> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    LOADED.get_or_init(|| open(env::var_os(VARIABLE))).as_ref().map_err(Clone::clone)
}

fn open(path: Option<OsString>) -> Result<Functions, String> {
    if let Some(path) = path.filter(|path| !path.is_empty()) {
        // SAFETY: loading a library runs its initializers. The user requested this library.
        let library = unsafe { Library::new(&path) };
        let message = |error| format!("{VARIABLE}={} cannot be loaded: {error}", path.to_string_lossy());
        return Functions::load(library.map_err(message)?);
    }
    // SAFETY: as above; the initializers of cublasLt are harmless.
    let found = NAMES.into_iter().find_map(|name| unsafe { Library::new(name) }.ok());
    Functions::load(found.ok_or_else(|| format!("found none of {}", NAMES[..NAMES.len().min(3)].join(", ")))?)
}

impl Functions {
    /// Name of a status.
    pub fn status_text(&self, status: Status) -> String {
        // SAFETY: the function accepts any number.
        let name = unsafe { (self.status_name)(status) };
        if name.is_null() {
            return format!("status {status}");
        }
        // SAFETY: the name is a static C string.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

/// Formats a version number of the library, such as 130100 as `13.1.0`.
pub fn version_text(version: usize) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_headers() {
        assert_eq!((size_of::<Algorithm>(), size_of::<Heuristic>()), (64, 96));
        assert_eq!(std::mem::offset_of!(Heuristic, workspace), 64);
        assert_eq!(std::mem::offset_of!(Heuristic, state), 72);
    }

    #[test]
    fn open_missing_library_names_the_path() {
        let message = open(Some("/nowhere/libcublasLt.so".into())).err().unwrap();
        assert!(message.starts_with("TEGULA_CUBLASLT=/nowhere/libcublasLt.so cannot be loaded"), "{message}");
        assert_eq!((version_text(130_100).as_str(), version_text(120_405).as_str()), ("13.1.0", "12.4.5"));
    }
}
