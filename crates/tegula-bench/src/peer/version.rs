//! Versions of peer libraries.

use std::ffi::{CStr, c_char, c_int};

use libloading::Library;

use super::{Blas, symbol};

/// Queries the version of a library.
///
/// # Safety
/// `library` is the library `which`.
pub unsafe fn of(library: &Library, which: Blas) -> Option<String> {
    /// Version numbers, the first fields of oneDNN's and MKL's version structures.
    #[repr(C)]
    struct Numbers([c_int; 3]);
    /// `MKLVersion`: more fields follow the numbers.
    #[repr(C)]
    struct MklVersion(Numbers, [usize; 16]);
    // SAFETY: the types are those of the libraries' headers; returned pointers are static.
    unsafe {
        let text = |names: &[&str]| {
            let version: unsafe extern "C" fn() -> *const c_char = symbol(library, names)?;
            let version = version();
            (!version.is_null()).then(|| CStr::from_ptr(version).to_string_lossy().into_owned())
        };
        match which {
            Blas::Mkl => {
                let get: unsafe extern "C" fn(*mut MklVersion) = symbol(library, &["MKL_Get_Version"])?;
                let mut version = MklVersion(Numbers([0; 3]), [0; 16]);
                get(&mut version);
                // The minor version is always 0 and not part of the usual notation.
                let Numbers([major, _, update]) = version.0;
                Some(format!("{major}.{update}"))
            }
            Blas::OpenBlas => {
                let config =
                    text(&["openblas_get_config", "scipy_openblas_get_config64_", "scipy_openblas_get_config"])?;
                config.split_whitespace().nth(1).map(Into::into)
            }
            Blas::Blis => text(&["bli_info_get_version_str"]),
            Blas::OneDnn => {
                let get: unsafe extern "C" fn() -> *const Numbers = symbol(library, &["dnnl_version"])?;
                get().as_ref().map(|Numbers([major, minor, patch])| format!("{major}.{minor}.{patch}"))
            }
            Blas::Gemm | Blas::Matrixmultiply => None,
        }
    }
}
