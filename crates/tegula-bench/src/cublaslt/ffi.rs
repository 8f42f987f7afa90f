//! The functions and numbers of cublasLt that are used, as its headers have had them since version 11: those of 12.4 and 13.1 were
//! compared. The library is opened when it is first asked for and stays loaded.

use std::env;
use std::ffi::{CStr, OsString, c_char, c_void};
use std::sync::OnceLock;

use libloading::Library;

/// `cublasStatus_t`.
pub type Status = i32;
pub const SUCCESS: Status = 0;
/// There is no such product.
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

/// `cublasOperation_t`, as the attributes take it.
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

/// `cublasLtEpilogue_t`, of which the flags are added.
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
    pub const MOST_WORKSPACE: i32 = 1;
    /// Of A, B, C and D.
    pub const ALIGNMENTS: [i32; 4] = [5, 6, 7, 8];
}

/// `cublasLtMatmulAlgoConfigAttributes_t`.
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
        /// The functions.
        pub struct Functions {
            $($(#[$doc])* pub $field: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// Loaded for as long as they may be called.
            _library: Library,
        }

        impl Functions {
            /// Looks every function up.
            fn of(library: Library) -> Result<Functions, String> {
                $(
                    // SAFETY: the type is that of the function in the library's headers.
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
    /// Computation, type of alpha and beta.
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
    /// Product, A, B, C, D, preference; how many at most, where they go, how many there are.
    heuristics = cublasLtMatmulAlgoGetHeuristic(
        Handle, Handle, Handle, Handle, Handle, Handle, Handle, i32, *mut Heuristic, *mut i32
    ) -> Status;
    /// Attribute, where it goes, its size, how much was written.
    config = cublasLtMatmulAlgoConfigGetAttribute(*const Algorithm, i32, *mut c_void, usize, *mut usize) -> Status;
    /// Product; alpha, A and its layout, B and its layout, beta, C and its layout, D and its layout; algorithm, workspace, its size,
    /// stream.
    matmul = cublasLtMatmul(
        Handle, Handle, *const c_void, u64, Handle, u64, Handle, *const c_void, u64, Handle, u64, Handle,
        *const Algorithm, u64, usize, *mut c_void
    ) -> Status;
}

/// Names a library to open in place of the ones that are looked for.
pub const VARIABLE: &str = "TEGULA_CUBLASLT";

/// Where it is looked for: first where the system looks, then where toolkits are installed.
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

/// The library, opened once a process; why not, where it cannot be.
pub fn functions() -> Result<&'static Functions, String> {
    static OPENED: OnceLock<Result<Functions, String>> = OnceLock::new();
    OPENED.get_or_init(|| open(env::var_os(VARIABLE))).as_ref().map_err(Clone::clone)
}

fn open(named: Option<OsString>) -> Result<Functions, String> {
    if let Some(path) = named.filter(|path| !path.is_empty()) {
        // SAFETY: opening a library runs its initialisers, which is what whoever named it asks for.
        let library = unsafe { Library::new(&path) };
        let why = |why| format!("{VARIABLE} names {}, which cannot be opened: {why}", path.to_string_lossy());
        return Functions::of(library.map_err(why)?);
    }
    // SAFETY: as above, of a library whose initialisers are known to be harmless.
    let found = NAMES.into_iter().find_map(|name| unsafe { Library::new(name) }.ok());
    Functions::of(found.ok_or_else(|| format!("none of {} was found", NAMES[..NAMES.len().min(3)].join(", ")))?)
}

impl Functions {
    /// The library's name of a status.
    pub fn name_of(&self, status: Status) -> String {
        // SAFETY: any number may be asked for; the text is static.
        let name = unsafe { (self.status_name)(status) };
        if name.is_null() {
            return format!("status {status}");
        }
        // SAFETY: it is a C string that is never freed.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

/// `13.1.0` of the number that the library gives.
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
    fn a_library_that_is_not_there_is_said_to_be() {
        let why = open(Some("/nowhere/libcublasLt.so".into())).err().unwrap();
        assert!(why.starts_with("TEGULA_CUBLASLT names /nowhere/libcublasLt.so, which cannot be opened"), "{why}");
        assert_eq!((version_text(130_100).as_str(), version_text(120_405).as_str()), ("13.1.0", "12.4.5"));
    }
}
