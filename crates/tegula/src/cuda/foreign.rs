//! One launch of a kernel in PTX that Tegula did not print: buffers and parameters are bytes.
//!
//! The command line compares such a kernel on a GPU with the interpreter.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys;
use tegula_ir::ptx::Image;

use super::driver::Named;
use super::function::Function;
use super::gpu::Gpu;
use super::launch::check_grid;
use super::memory::Buffer;
use crate::error::{Error, Result};
use crate::matrix::{View, ViewMut};

/// A parameter.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignParam {
    /// The address of a buffer, by index, plus bytes.
    Buffer { index: usize, offset: i64 },
    /// The bytes of a number or of a structure.
    Bytes(Vec<u8>),
}

/// A launch.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct ForeignLaunch {
    pub image: Image,
    pub grid: [u32; 3],
    pub params: Vec<ForeignParam>,
    /// Variables of the module: name and first bytes.
    pub variables: Vec<(String, Vec<u8>)>,
}

impl Gpu {
    /// Copies buffers to this GPU, runs a kernel, and copies them back.
    ///
    /// # Errors
    /// Those of [`Gpu::load`]; [`Error::Launch`] for parameters or variables that the kernel does
    /// not have; errors of the driver, including the failure of the kernel.
    ///
    /// # Safety
    /// The kernel accesses no memory but its buffers and its module's variables. An address outside
    /// of them can be other memory of this process, page-locked host memory included. The
    /// interpreter finds such accesses.
    #[doc(hidden)]
    pub unsafe fn run_foreign(&self, launch: &ForeignLaunch, buffers: &mut [Vec<u8>]) -> Result<()> {
        let (function, _) = self.load(&launch.image)?;
        let wrong = |why| Error::Launch { kernel: launch.image.entry.clone(), why };
        check_grid(launch.grid).map_err(wrong)?;
        launch.variables.iter().try_for_each(|(name, bytes)| self.set_variable(&function, name, bytes))?;
        let mut memory = Vec::with_capacity(buffers.len());
        for bytes in buffers.iter() {
            let mut buffer = Buffer::<u8>::uninit(self, bytes.len())?;
            buffer.upload(View::new(bytes, 1, bytes.len())?)?;
            memory.push(buffer);
        }
        let params = params(&launch.params, &memory, function.parameters()).map_err(wrong)?;
        // SAFETY: the caller's.
        unsafe { self.launch_bytes(&function, launch.grid, params)? };
        self.synchronize()?;
        for (bytes, buffer) in buffers.iter_mut().zip(&memory) {
            let len = bytes.len();
            buffer.download(ViewMut::new(bytes, 1, len)?)?;
        }
        Ok(())
    }

    /// Sets the first bytes of a variable of a function's module.
    fn set_variable(&self, function: &Function, name: &str, bytes: &[u8]) -> Result<()> {
        let wrong = |why: String| Error::Launch { kernel: function.entry().into(), why };
        let text = CString::new(name).map_err(|_| wrong(format!("the name of variable {name} contains a NUL byte")))?;
        self.bind()?;
        let (mut address, mut size) = (0, 0);
        // SAFETY: the module is loaded, its context is current, and the name is a C string.
        let code =
            unsafe { sys::cuModuleGetGlobal_v2(&mut address, &mut size, function.module().raw(), text.as_ptr()) };
        code.named("cuModuleGetGlobal")?;
        if bytes.len() > size {
            return Err(wrong(format!("{} bytes for variable {name}, which has {size}", bytes.len())));
        }
        // SAFETY: the variable has at least these bytes, and the wait below is before they are
        // dropped.
        let code = unsafe { sys::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), self.raw_stream()) };
        code.named("cuMemcpyHtoDAsync")?;
        self.synchronize()
    }

    /// Queues a kernel with parameters of the sizes that it declares.
    ///
    /// # Safety
    /// That of [`Gpu::run_foreign`].
    unsafe fn launch_bytes(&self, function: &Function, [gx, gy, gz]: [u32; 3], mut params: Vec<Vec<u8>>) -> Result<()> {
        self.bind()?;
        let mut pointers: Vec<*mut c_void> = params.iter_mut().map(|bytes| bytes.as_mut_ptr().cast()).collect();
        let ([bx, by, bz], shared, stream) = (function.block(), function.shared_bytes(), self.raw_stream());
        // SAFETY: function, context and stream are alive and of one context. Each parameter has the
        // bytes that the kernel declares, and the driver copies them before it returns. Buffers are
        // freed in the order of the stream.
        let code = unsafe {
            let params = pointers.as_mut_ptr();
            sys::cuLaunchKernel(function.raw(), gx, gy, gz, bx, by, bz, shared, stream, params, null_mut())
        };
        code.named("cuLaunchKernel")
    }
}

/// The bytes of the parameters, checked against their sizes where the driver reports them.
fn params(
    params: &[ForeignParam],
    memory: &[Buffer<u8>],
    declared: Option<&[usize]>,
) -> std::result::Result<Vec<Vec<u8>>, String> {
    let bytes = |param: &ForeignParam| match param {
        ForeignParam::Bytes(bytes) => Ok(bytes.clone()),
        ForeignParam::Buffer { index, offset } => {
            let buffer = memory.get(*index).ok_or_else(|| format!("buffer {index} of {}", memory.len()))?;
            Ok(buffer.address().wrapping_add_signed(*offset).to_le_bytes().to_vec())
        }
    };
    let bytes: Vec<Vec<u8>> = params.iter().map(bytes).collect::<std::result::Result<_, String>>()?;
    let Some(declared) = declared else { return Ok(bytes) };
    if bytes.len() != declared.len() {
        return Err(format!("takes {} parameters, got {}", declared.len(), bytes.len()));
    }
    match bytes.iter().zip(declared).position(|(bytes, &size)| bytes.len() != size) {
        Some(i) => Err(format!("parameter {i} has {} bytes, got {}", declared[i], bytes[i].len())),
        None => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_parameters_are_checked_where_the_driver_reports_them() {
        let all = [ForeignParam::Bytes(vec![1, 2, 3, 4]), ForeignParam::Bytes(vec![0; 12])];
        assert_eq!(params(&all, &[], None), Ok(vec![vec![1, 2, 3, 4], vec![0; 12]]));
        assert!(params(&all, &[], Some(&[4, 12])).is_ok());
        assert!(params(&all, &[], Some(&[4, 8])).unwrap_err().contains("parameter 1 has 8 bytes, got 12"));
        assert!(params(&all, &[], Some(&[4])).unwrap_err().contains("takes 1 parameters, got 2"));
        let missing = [ForeignParam::Buffer { index: 0, offset: 0 }];
        assert!(params(&missing, &[], None).unwrap_err().contains("buffer 0 of 0"));
    }
}
