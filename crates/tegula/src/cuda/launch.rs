//! Launches: a function, a grid, and parameters.

use std::ffi::c_void;
use std::ptr::{from_mut, from_ref, null_mut};

use cudarc::driver::sys;
use smallvec::SmallVec;

use super::driver::Named;
use super::gpu::Gpu;
use super::image::Function;
use crate::element::Scalar;
use crate::error::{Error, Result};

/// Most blocks of a grid in x, y and z, on every GPU since compute capability 3.0.
const MOST_BLOCKS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// A parameter of a kernel. An address in GPU memory is a `U64`.
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
    /// Bytes it takes.
    pub fn size(self) -> usize {
        match self {
            Param::U8(_) => 1,
            Param::U16(_) => 2,
            Param::U32(_) | Param::I32(_) | Param::F32(_) => 4,
            Param::U64(_) | Param::I64(_) | Param::F64(_) => 8,
            Param::Tensor(_) => size_of::<sys::CUtensorMap>(),
        }
    }

    /// Its bits from the lowest byte up, which is where the driver starts to read: GPUs and their hosts are little-endian.
    /// That of a tensor map is the map itself.
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
    /// Queues a kernel on this handle's stream and returns; a failure of the kernel itself shows at a later call that
    /// waits. A grid without blocks queues nothing. Memory at home on another stream goes through [`Gpu::ordered`].
    ///
    /// # Errors
    /// [`Error::Launch`] for a grid or parameters that the kernel cannot take, as far as the driver tells what it takes;
    /// [`Error::Elsewhere`] for a function of another context.
    ///
    /// # Safety
    /// The parameters have to be those of the kernel, in its order, and what the kernel reads and writes through them has
    /// to be memory of this GPU that is alive until the kernel is done and that nothing else writes meanwhile (nor reads,
    /// where the kernel writes). A kernel that starts early has to wait for what precedes it, in every block.
    pub unsafe fn launch(&self, function: &Function, grid: [u32; 3], params: &[Param]) -> Result<()> {
        let wrong = |why| Error::Launch { kernel: function.entry().into(), why };
        self.same_context(function.module().context(), "the kernel")?;
        check_grid(grid).map_err(wrong)?;
        check_params(params, function.parameters()).map_err(wrong)?;
        if grid.contains(&0) {
            return Ok(());
        }
        self.bind()?;
        // Room for those of a product; a kernel with more costs an allocation.
        let mut slots: SmallVec<[[u8; 8]; 24]> = params.iter().map(|param| param.slot()).collect();
        let mut pointers: SmallVec<[*mut c_void; 24]> = slots.iter_mut().map(|slot| from_mut(slot).cast()).collect();
        for (pointer, param) in pointers.iter_mut().zip(params) {
            if let Param::Tensor(map) = param {
                *pointer = from_ref(map).cast_mut().cast();
            }
        }
        let ([gx, gy, gz], [bx, by, bz]) = (grid, function.block());
        let early = function.starts_early();
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
            numAttrs: if early { 1 } else { 0 },
        };
        // SAFETY: function, context and stream are alive and belong together; there is a pointer to a slot (or a map, which
        // nobody writes) for each parameter, by the caller's promise, and the driver copies them before it returns. A function that starts
        // early is of a kernel that waits for what precedes it before it uses memory.
        let code = unsafe {
            if early {
                sys::cuLaunchKernelEx(&config, function.raw(), pointers.as_mut_ptr(), null_mut())
            } else {
                let (shared, stream) = (config.sharedMemBytes, config.hStream);
                let params = pointers.as_mut_ptr();
                sys::cuLaunchKernel(function.raw(), gx, gy, gz, bx, by, bz, shared, stream, params, null_mut())
            }
        };
        code.named(if early { "cuLaunchKernelEx" } else { "cuLaunchKernel" })
    }
}

fn check_grid(grid: [u32; 3]) -> Result<(), String> {
    let too_long = grid.iter().zip(MOST_BLOCKS).zip(["x", "y", "z"]).find(|((blocks, most), _)| *blocks > most);
    match too_long {
        Some(((blocks, most), axis)) => Err(format!("a grid of {blocks} blocks in {axis}, {most} is the most")),
        None => Ok(()),
    }
}

/// Compares parameters with the sizes that the kernel declares, where the driver tells them.
fn check_params(params: &[Param], declared: Option<&[usize]>) -> Result<(), String> {
    let Some(declared) = declared else { return Ok(()) };
    if params.len() != declared.len() {
        return Err(format!("takes {} parameters and got {}", declared.len(), params.len()));
    }
    match params.iter().zip(declared).position(|(param, &size)| param.size() != size) {
        Some(i) => Err(format!("parameter {i} has {} bytes and got {:?}", declared[i], params[i])),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_packed_from_the_lowest_byte() {
        assert_eq!(Param::from(0x0102_0304u32).slot(), [4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(Param::from(-2i32).slot(), [0xfe, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(Param::from(-2i64).slot(), (-2i64).to_le_bytes());
        assert_eq!(Param::from(u64::MAX - 1).slot(), (u64::MAX - 1).to_le_bytes());
        assert_eq!(Param::from(1.5f32).slot()[..4], 1.5f32.to_le_bytes());
        assert_eq!(Param::from(-1.5f64).slot(), (-1.5f64).to_le_bytes());
    }

    #[test]
    fn grids_have_limits() {
        assert!(check_grid([i32::MAX as u32, 65_535, 65_535]).is_ok());
        assert!(check_grid([0, 1, 1]).is_ok());
        assert!(check_grid([1 << 31, 1, 1]).unwrap_err().contains("in x"));
        assert!(check_grid([1, 65_536, 1]).unwrap_err().contains("in y"));
        assert!(check_grid([1, 1, 65_536]).unwrap_err().contains("65535 is the most"));
    }

    #[test]
    fn parameters_are_checked_where_the_driver_tells() {
        let params = [Param::U64(0), Param::F32(1.0)];
        assert!(check_params(&params, None).is_ok());
        assert!(check_params(&params, Some(&[8, 4])).is_ok());
        assert!(check_params(&params, Some(&[8, 8])).unwrap_err().contains("parameter 1 has 8 bytes"));
        assert!(check_params(&params, Some(&[8, 4, 4])).unwrap_err().contains("takes 3 parameters and got 2"));
    }
}
