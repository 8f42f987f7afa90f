//! Modules: the driver assembles PTX text and loads it, with the assembler's logs where that fails.
//!
//! The driver caches assembled code on disk (see [`super::cache`]), and does not export the binary
//! of whole-program code. Its linker exports binaries, but of relocatable code, whose registers and
//! schedule differ: a tuned kernel gets slower.

use std::ffi::{CString, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUjit_option as Jit};
use tegula_ir::ptx::Image;

use super::driver::{Named, bind_to_release, text_until_nul};
use crate::error::{Error, Result};

/// Size of each log in bytes.
const LOG_BYTES: usize = 64 << 10;

/// Codes of assembler warnings that mean a slow or altered kernel.
///
/// Examples are registers not reallocated and wgmma serialized.
///
/// Not every driver reports them (580 omits C7508), and none does for a kernel from its cache. So
/// tests also assemble the kernels offline.
const FATAL_WARNINGS: std::ops::RangeInclusive<u32> = 7508..=7520;

/// Assembles and loads an image.
///
/// # Errors
/// [`Error::Assemble`] with both logs, also for a warning in [`FATAL_WARNINGS`]; [`Error::Capture`]
/// during a stream capture.
pub(super) fn assemble(context: &Arc<CudaContext>, image: &Image) -> Result<Module> {
    let text = CString::new(image.text.as_str()).map_err(|_| refused(image, "the text contains a NUL byte", ""))?;
    let mut logs = Logs::new();
    match Module::load(context, &text, &mut logs) {
        Ok(module) => logs.accept(image).map(|()| module),
        Err(error @ Error::Capture { .. }) => Err(error),
        Err(error) => Err(logs.refuse(image, &error)),
    }
}

/// A loaded module. Dropping it unloads it.
pub(super) struct Module {
    handle: sys::CUmodule,
    context: Arc<CudaContext>,
}

// SAFETY: any thread on which the context is current may use the handle.
unsafe impl Send for Module {}
// SAFETY: as above; a loaded module is immutable.
unsafe impl Sync for Module {}

impl Module {
    fn load(context: &Arc<CudaContext>, text: &CString, logs: &mut Logs) -> Result<Self> {
        context.bind_to_thread().named("cuCtxSetCurrent")?;
        let mut handle = null_mut();
        let (count, names, values) = logs.options();
        // SAFETY: the context is current; the text is a C string; the options and the buffers they
        // point to outlive the call.
        let code = unsafe { sys::cuModuleLoadDataEx(&mut handle, text.as_ptr().cast(), count, names, values) };
        code.named("cuModuleLoadDataEx")?;
        Ok(Module { handle, context: context.clone() })
    }

    /// The driver's handle.
    pub fn raw(&self) -> sys::CUmodule {
        self.handle
    }

    /// The context it is loaded in.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        bind_to_release(&self.context);
        // SAFETY: the handle is owned and unloaded once; without its context the driver refuses. A
        // failure needs no action.
        let _ = unsafe { sys::cuModuleUnload(self.handle) };
    }
}

/// The assembler's two logs, and the JIT options that point to them.
pub(super) struct Logs {
    info: Vec<u8>,
    errors: Vec<u8>,
    names: [Jit; 4],
    values: [*mut c_void; 4],
}

impl Logs {
    fn new() -> Self {
        let (mut info, mut errors) = (vec![0; LOG_BYTES], vec![0; LOG_BYTES]);
        let size = without_provenance_mut(LOG_BYTES);
        let values = [info.as_mut_ptr().cast(), size, errors.as_mut_ptr().cast(), size];
        let names = [
            Jit::CU_JIT_INFO_LOG_BUFFER,
            Jit::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            Jit::CU_JIT_ERROR_LOG_BUFFER,
            Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        Logs { info, errors, names, values }
    }

    /// Number, names and values of the JIT options. The driver overwrites the sizes with the bytes
    /// written.
    fn options(&mut self) -> (u32, *mut Jit, *mut *mut c_void) {
        (self.names.len() as u32, self.names.as_mut_ptr(), self.values.as_mut_ptr())
    }

    /// Refuses a kernel that the driver assembled with a fatal warning.
    fn accept(&self, image: &Image) -> Result<()> {
        let (info, errors) = (text_until_nul(&self.info), text_until_nul(&self.errors));
        match info.lines().chain(errors.lines()).find(|line| fatal_warning(line)) {
            Some(line) => Err(refused(image, &format!("a warning that means a slow or altered kernel: {line}"), &info)),
            None => Ok(()),
        }
    }

    /// The error for a text that failed to assemble, with the driver's error code and both logs.
    fn refuse(&self, image: &Image, error: &Error) -> Error {
        let (info, errors) = (text_until_nul(&self.info), text_until_nul(&self.errors));
        refused(image, &format!("{error}\n{errors}"), &info)
    }
}

fn refused(image: &Image, errors: &str, info: &str) -> Error {
    Error::Assemble { kernel: image.entry.clone(), errors: format!("{}\n", errors.trim_end()), info: info.into() }
}

/// Whether a line of a log contains a code of [`FATAL_WARNINGS`]: a `C` and four digits.
fn fatal_warning(line: &str) -> bool {
    let number = |tail: &str| {
        let digits = tail.bytes().take_while(u8::is_ascii_digit).count();
        (digits == 4).then(|| tail[..4].parse::<u32>().ok()).flatten()
    };
    line.split('C').skip(1).filter_map(number).any(|code| FATAL_WARNINGS.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        Image {
            entry: "tiled".into(),
            text: String::new(),
            shared_bytes: 0,
            block: [1, 1, 1],
            uses_griddep_wait: false,
        }
    }

    fn logs(info: &str, errors: &str) -> Logs {
        let mut logs = Logs::new();
        logs.info[..info.len()].copy_from_slice(info.as_bytes());
        logs.errors[..errors.len()].copy_from_slice(errors.as_bytes());
        logs
    }

    #[test]
    fn fatal_warnings_are_found() {
        for code in 7508..=7520 {
            assert!(fatal_warning(&format!("ptxas warning : (C{code}) Potential Performance Loss: ...")));
        }
        for line in
            ["(C7507)", "(C7521)", "(C75100)", "C751", "7510", "(C 7510)", "C", "Compiling 7510 (C7000)", "Cé7510"]
        {
            assert!(!fatal_warning(line), "{line}");
        }
        assert!(fatal_warning("C7000, then C7510"));
    }

    #[test]
    fn fatal_warning_refuses_the_kernel_by_name() {
        assert!(logs("info    : 16 registers\nwarning : (C7521) fine\n", "").accept(&image()).is_ok());
        let error = logs("16 registers\nwarning : (C7510) wgmma serialized\n", "").accept(&image()).unwrap_err();
        assert!(error.to_string().contains("kernel tiled"), "{error}");
        assert!(error.to_string().contains("(C7510) wgmma serialized"), "{error}");
        assert!(logs("", "warning : (C7508) setmaxnreg ignored").accept(&image()).is_err());
    }

    #[test]
    fn assembly_error_has_both_logs_and_the_code() {
        let cause = Error::Driver { call: "cuModuleLoadDataEx", code: 218, message: "CUDA_ERROR_INVALID_PTX".into() };
        let error = logs("for sm_90\n", "line 7; error : unknown").refuse(&image(), &cause).to_string();
        for part in ["for sm_90", "line 7; error", "CUDA_ERROR_INVALID_PTX", "218"] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }
}
