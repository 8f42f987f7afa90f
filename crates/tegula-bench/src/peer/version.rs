//! Which version a library is.

use std::ffi::{CStr, c_char, c_int};

use libloading::Library;

use super::{Blas, symbol};

/// The version that a library tells.
///
/// # Safety
/// It is that library.
pub unsafe fn of(library: &Library, which: Blas) -> Option<String> {
    /// What oneDNN, and after it MKL, begin their versions with.
    #[repr(C)]
    struct Numbers([c_int; 3]);
    /// MKL writes more behind the numbers.
    #[repr(C)]
    struct Long(Numbers, [usize; 16]);
    // SAFETY: the types that the libraries' headers give; texts and numbers are the library's and stay.
    unsafe {
        let text = |names: &[&str]| {
            let told: unsafe extern "C" fn() -> *const c_char = symbol(library, names)?;
            let told = told();
            (!told.is_null()).then(|| CStr::from_ptr(told).to_string_lossy().into_owned())
        };
        match which {
            Blas::Mkl => {
                let tell: unsafe extern "C" fn(*mut Long) = symbol(library, &["MKL_Get_Version"])?;
                let mut version = Long(Numbers([0; 3]), [0; 16]);
                tell(&mut version);
                // The number in the middle is always 0, and nobody says it.
                let Numbers([major, _, update]) = version.0;
                Some(format!("{major}.{update}"))
            }
            Blas::OpenBlas => {
                let told = text(&["openblas_get_config", "scipy_openblas_get_config64_", "scipy_openblas_get_config"])?;
                told.split_whitespace().nth(1).map(Into::into)
            }
            Blas::Blis => text(&["bli_info_get_version_str"]),
            Blas::OneDnn => {
                let tell: unsafe extern "C" fn() -> *const Numbers = symbol(library, &["dnnl_version"])?;
                tell().as_ref().map(|Numbers([major, minor, patch])| format!("{major}.{minor}.{patch}"))
            }
            Blas::Gemm | Blas::Matrixmultiply => None,
        }
    }
}
