//! How the copy engine finds tiles of a matrix: a *tensor map*, which the driver makes and a kernel is passed by value.

use std::ffi::c_void;

use cudarc::driver::sys::{self, CUtensorMap};

use super::driver::Named;
use crate::element::Type;
use crate::error::{Error, Result};

/// A matrix and its tiles, as the copy engine sees them: along memory first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiled {
    /// Of its elements.
    pub ty: Type,
    /// Of the first element.
    pub address: u64,
    /// Elements of a line, lines, matrices.
    pub extents: [u64; 3],
    /// Bytes from a line and a matrix to the next: multiples of 16.
    pub strides: [u64; 2],
    /// Elements of a line of a tile, and its lines.
    pub tile: [u32; 2],
    /// Bytes within which pieces change places; 16 where they do not.
    pub swizzle: u32,
}

/// The map.
///
/// # Errors
/// [`Error::Unsupported`] for a type that there are no such maps of, and what the driver says.
pub(super) fn encode(matrix: &Tiled) -> Result<CUtensorMap> {
    use sys::{
        CUtensorMapDataType as Data, CUtensorMapFloatOOBfill as Fill, CUtensorMapInterleave as Interleave,
        CUtensorMapL2promotion as Promotion, CUtensorMapSwizzle as How,
    };
    let &Tiled { ty, address, extents, strides, tile: [row, rows], swizzle } = matrix;
    let unsupported =
        |what: &str| Error::Unsupported { what: what.into(), ty, device: "this GPU's copy engine".into() };
    // Elements are copied as they are, whatever they mean.
    let data = match ty.size() {
        1 => Data::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        2 => Data::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        4 => Data::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        8 => Data::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        _ => return Err(unsupported("copying elements of this size")),
    };
    let swizzle = match swizzle {
        32 => How::CU_TENSOR_MAP_SWIZZLE_32B,
        64 => How::CU_TENSOR_MAP_SWIZZLE_64B,
        128 => How::CU_TENSOR_MAP_SWIZZLE_128B,
        _ => How::CU_TENSOR_MAP_SWIZZLE_NONE,
    };
    let (tile, steps) = ([row, rows, 1], [1; 3]);
    let mut map = CUtensorMap { opaque: [0; 16] };
    // SAFETY: the driver reads as many numbers as there are dimensions and writes the map. The address is not followed.
    let code = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            data,
            3,
            address as *mut c_void,
            extents.as_ptr(),
            strides.as_ptr(),
            tile.as_ptr(),
            steps.as_ptr(),
            Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            // Rows of 128 bytes that begin anywhere touch two lines: to bring their neighbours as well is more than what is asked for.
            Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    code.named("cuTensorMapEncodeTiled").map(|()| map)
}
