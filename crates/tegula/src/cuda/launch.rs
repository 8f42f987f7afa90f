//! Launches of a function with a grid and kernel parameters.

use std::ffi::c_void;
use std::ptr::{from_mut, from_ref, null_mut};

use cudarc::driver::sys;
use smallvec::SmallVec;

use super::driver::Named;
use super::function::Function;
use super::gpu::Gpu;
use crate::element::Scalar;
use crate::error::{Error, Result};

/// Largest grid in x, y and z, on every GPU since compute capability 3.0.
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// A kernel parameter. An address in GPU memory is a `U64`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the variants are the types of the same name")]
pub enum Param {
    U8(u8),
    U16(u16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Tensor(sys::CUtensorMap),
}

impl Param {
    /// Size in bytes.
    pub fn size(self) -> usize {
        match self {
            Param::U8(_) => 1,
            Param::U16(_) => 2,
            Param::U32(_) | Param::I32(_) | Param::F32(_) => 4,
            Param::U64(_) | Param::I64(_) | Param::F64(_) => 8,
            Param::Tensor(_) => size_of::<sys::CUtensorMap>(),
        }
    }

    /// The bits in little-endian order, as the driver reads them on all hosts. The driver reads a
    /// tensor map in place, so its slot is unused.
    fn slot(self) -> [u8; 8] {
        let bits = match self {
            Param::U8(value) => u64::from(value),
            Param::U16(value) => u64::from(value),
            Param::U32(value) => value.to_bits(),
            Param::I32(value) => value.to_bits(),
            Param::U64(value) => value.to_bits(),
            Param::I64(value) => value.to_bits(),
            Param::F32(value) => Scalar::to_bits(value),
            Param::F64(value) => Scalar::to_bits(value),
            Param::Tensor(_) => 0,
        };
        bits.to_le_bytes()
    }
}

macro_rules! param {
    ($($t:ty => $variant:ident),*) => {$(
        impl From<$t> for Param {
            fn from(value: $t) -> Self {
                Param::$variant(value)
            }
        }
    )*};
}
param! { u8 => U8, u16 => U16, u32 => U32, i32 => I32, u64 => U64, i64 => I64, f32 => F32, f64 => F64 }

impl Gpu {
    /// Queues a kernel on this handle's stream and returns. A failure of the kernel itself is
    /// reported by a later call that waits.
    ///
    /// An empty grid queues nothing. Memory with another home stream needs
    /// [`Gpu::submit_in_order`].
    ///
    /// # Errors
    /// [`Error::Launch`] for a grid or parameters that do not match the kernel, as far as the
    /// driver reports its parameters; [`Error::DeviceMismatch`] for a function of another context.
    ///
    /// # Safety
    /// The parameters must be those of the kernel, in its order. The memory that the kernel
    /// accesses must be on this GPU and alive until the kernel is complete. No other work may write
    /// it meanwhile, or read it where the kernel writes. A kernel with programmatic dependent
    /// launch must wait for preceding work in every block.
    pub unsafe fn launch(&self, function: &Function, grid: [u32; 3], params: &[Param]) -> Result<()> {
        let wrong = |why| Error::Launch { kernel: function.entry().into(), why };
        self.same_context(function.module().context(), "the kernel")?;
        check_grid(grid).map_err(wrong)?;
        check_params(params, function.parameters()).map_err(wrong)?;
        if grid.contains(&0) {
            return Ok(());
        }
        self.bind()?;
        // Enough for the kernels of products; a kernel with more parameters costs an allocation.
        let mut slots: SmallVec<[[u8; 8]; 24]> = params.iter().map(|param| param.slot()).collect();
        let mut pointers: SmallVec<[*mut c_void; 24]> = slots.iter_mut().map(|slot| from_mut(slot).cast()).collect();
        for (pointer, param) in pointers.iter_mut().zip(params) {
            if let Param::Tensor(map) = param {
                *pointer = from_ref(map).cast_mut().cast();
            }
        }
        let ([gx, gy, gz], [bx, by, bz]) = (grid, function.block());
        let dependent = function.uses_griddep_wait();
        let mut attributes = [sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        }];
        let config = sys::CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: function.shared_bytes(),
            hStream: self.raw_stream(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: if dependent { 1 } else { 0 },
        };
        // SAFETY: function, context and stream are alive and of one context. By the caller's
        // promise each parameter has a pointer to a slot, or to a map, which is only read; the
        // driver copies them before it returns. A kernel with programmatic dependent launch waits
        // for preceding work before it accesses memory.
        let code = unsafe {
            if dependent {
                sys::cuLaunchKernelEx(&config, function.raw(), pointers.as_mut_ptr(), null_mut())
            } else {
                let (shared, stream) = (config.sharedMemBytes, config.hStream);
                let params = pointers.as_mut_ptr();
                sys::cuLaunchKernel(function.raw(), gx, gy, gz, bx, by, bz, shared, stream, params, null_mut())
            }
        };
        code.named(if dependent { "cuLaunchKernelEx" } else { "cuLaunchKernel" })
    }
}

pub(super) fn check_grid(grid: [u32; 3]) -> Result<(), String> {
    let too_long = grid.iter().zip(MAX_GRID).zip(["x", "y", "z"]).find(|((blocks, max), _)| *blocks > max);
    match too_long {
        Some(((blocks, max), axis)) => Err(format!("a grid of {blocks} blocks in {axis}; the limit is {max}")),
        None => Ok(()),
    }
}

/// Checks parameters against the sizes that the kernel declares, where the driver reports them.
fn check_params(params: &[Param], declared: Option<&[usize]>) -> Result<(), String> {
    let Some(declared) = declared else { return Ok(()) };
    if params.len() != declared.len() {
        return Err(format!("takes {} parameters, got {}", declared.len(), params.len()));
    }
    match params.iter().zip(declared).position(|(param, &size)| param.size() != size) {
        Some(i) => Err(format!("parameter {i} has {} bytes, got {:?}", declared[i], params[i])),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_slots_are_little_endian() {
        assert_eq!(Param::from(0x0102_0304u32).slot(), [4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(Param::from(-2i32).slot(), [0xfe, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(Param::from(-2i64).slot(), (-2i64).to_le_bytes());
        assert_eq!(Param::from(u64::MAX - 1).slot(), (u64::MAX - 1).to_le_bytes());
        assert_eq!(Param::from(1.5f32).slot()[..4], 1.5f32.to_le_bytes());
        assert_eq!(Param::from(-1.5f64).slot(), (-1.5f64).to_le_bytes());
    }

    #[test]
    fn grids_beyond_the_limits_are_refused() {
        assert!(check_grid([i32::MAX as u32, 65_535, 65_535]).is_ok());
        assert!(check_grid([0, 1, 1]).is_ok());
        assert!(check_grid([1 << 31, 1, 1]).unwrap_err().contains("in x"));
        assert!(check_grid([1, 65_536, 1]).unwrap_err().contains("in y"));
        assert!(check_grid([1, 1, 65_536]).unwrap_err().contains("the limit is 65535"));
    }

    #[test]
    fn parameters_are_checked_where_the_driver_reports_them() {
        let params = [Param::U64(0), Param::F32(1.0)];
        assert!(check_params(&params, None).is_ok());
        assert!(check_params(&params, Some(&[8, 4])).is_ok());
        assert!(check_params(&params, Some(&[8, 8])).unwrap_err().contains("parameter 1 has 8 bytes"));
        assert!(check_params(&params, Some(&[8, 4, 4])).unwrap_err().contains("takes 3 parameters, got 2"));
    }
}
