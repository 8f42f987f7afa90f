//! The driver's assembler: PTX text in, a loaded module out, with what the assembler said when it did not work.
//!
//! The driver keeps what it assembles on disk (see [`super::cache`]), and that is the cache: it gives the binary of whole-program code
//! to nobody. Its linker gives out binaries, but of relocatable code, whose registers and schedule are others: a kernel that was
//! tuned loses by it.

use std::ffi::{CString, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUjit_option as Jit};
use tegula_ir::ptx::Image;

use super::driver::{Named, bind_to_release, until_nul};
use crate::error::{Error, Result};

/// Bytes kept of each log.
const LOG_BYTES: usize = 64 << 10;

/// Warnings after which a kernel still runs, but slower than it was written or not as it was written: registers not
/// reallocated, wgmma serialised, and their kin. Not every driver tells (580 keeps C7508 to itself), so kernels are also
/// assembled offline when they are tested; nor does one that finds the kernel in its cache.
const FATAL_WARNINGS: std::ops::RangeInclusive<u32> = 7508..=7520;

/// Assembles and loads an image.
///
/// # Errors
/// [`Error::Assemble`] with both logs, also for a warning that [`FATAL_WARNINGS`] names; [`Error::Capture`] while a stream is captured.
pub(super) fn assemble(context: &Arc<CudaContext>, image: &Image) -> Result<Module> {
    let text = CString::new(image.text.as_str()).map_err(|_| refused(image, "the text holds a NUL byte", ""))?;
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

// SAFETY: a module's handle is an opaque name that any thread may use, as long as the context is current there.
unsafe impl Send for Module {}
// SAFETY: as above; nothing changes a module after it was loaded.
unsafe impl Sync for Module {}

impl Module {
    fn load(context: &Arc<CudaContext>, text: &CString, logs: &mut Logs) -> Result<Self> {
        context.bind_to_thread().named("cuCtxSetCurrent")?;
        let mut handle = null_mut();
        let (count, names, values) = logs.options();
        // SAFETY: the context is current; the text is a C string; the options and the buffers they point to outlive the call.
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
        // SAFETY: the handle is ours and unloaded once; without its context the driver refuses. A failure leaves nothing to be done.
        let _ = unsafe { sys::cuModuleUnload(self.handle) };
    }
}

/// The assembler's two logs, and the options that tell the driver of them.
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

    /// Number, names and values of the options. The driver overwrites the sizes with what it wrote.
    fn options(&mut self) -> (u32, *mut Jit, *mut *mut c_void) {
        (self.names.len() as u32, self.names.as_mut_ptr(), self.values.as_mut_ptr())
    }

    /// Refuses a kernel that was assembled with a fatal warning.
    fn accept(&self, image: &Image) -> Result<()> {
        let (info, errors) = (until_nul(&self.info), until_nul(&self.errors));
        match info.lines().chain(errors.lines()).find(|line| fatal_warning(line)) {
            Some(line) => Err(refused(image, &format!("a warning that makes the kernel useless: {line}"), &info)),
            None => Ok(()),
        }
    }

    /// The error for a text that was not assembled; the driver's code says it where the log does not.
    fn refuse(&self, image: &Image, error: &Error) -> Error {
        let (info, errors) = (until_nul(&self.info), until_nul(&self.errors));
        refused(image, &format!("{error}\n{errors}"), &info)
    }
}

fn refused(image: &Image, errors: &str, info: &str) -> Error {
    Error::Assemble { kernel: image.entry.clone(), errors: format!("{}\n", errors.trim_end()), info: info.into() }
}

/// Whether a line of a log carries one of [`FATAL_WARNINGS`]: a `C` and four digits.
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
        Image { entry: "tiled".into(), text: String::new(), shared_bytes: 0, block: [1, 1, 1], early: false }
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
    fn a_fatal_warning_refuses_the_kernel_and_says_which() {
        assert!(logs("info    : 16 registers\nwarning : (C7521) fine\n", "").accept(&image()).is_ok());
        let error = logs("16 registers\nwarning : (C7510) wgmma serialised\n", "").accept(&image()).unwrap_err();
        assert!(error.to_string().contains("kernel tiled"), "{error}");
        assert!(error.to_string().contains("(C7510) wgmma serialised"), "{error}");
        assert!(logs("", "warning : (C7508) setmaxnreg ignored").accept(&image()).is_err());
    }

    #[test]
    fn a_refusal_carries_both_logs_and_the_code() {
        let cause = Error::Driver { call: "cuModuleLoadDataEx", code: 218, message: "CUDA_ERROR_INVALID_PTX".into() };
        let error = logs("for sm_90\n", "line 7; error : unknown").refuse(&image(), &cause).to_string();
        for part in ["for sm_90", "line 7; error", "CUDA_ERROR_INVALID_PTX", "218"] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }
}
