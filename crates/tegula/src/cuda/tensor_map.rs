//! Tensor maps, by which the TMA copies tiles of a matrix.
//!
//! The driver encodes them, and kernels receive them by value.

use std::ffi::c_void;

use cudarc::driver::sys::{self, CUtensorMap};

use super::driver::Named;
use crate::element::Type;
use crate::error::{Error, Result};

/// A matrix and its tiles, as a tensor map describes them: the contiguous axis first.
///
/// A row runs along the contiguous axis: it is a column of a column-major matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorMapLayout {
    /// Element type.
    pub ty: Type,
    /// Address of the first element.
    pub address: u64,
    /// Extents: elements of a row (inner, contiguous), rows (outer), matrices.
    pub extents: [u64; 3],
    /// Strides of rows and matrices in bytes, multiples of 16.
    pub strides: [u64; 2],
    /// Extents of the box, the tile of one copy: elements of a row (inner), rows (outer).
    pub box_extents: [u32; 2],
    /// Width of the swizzle in bytes; 16 for none.
    pub swizzle: u32,
}

/// Encodes a tensor map.
///
/// # Errors
/// [`Error::Unsupported`] for an element size without a tensor map type, and errors of the driver.
pub(super) fn encode(matrix: &TensorMapLayout) -> Result<CUtensorMap> {
    use sys::{
        CUtensorMapDataType as Data, CUtensorMapFloatOOBfill as Fill, CUtensorMapInterleave as Interleave,
        CUtensorMapL2promotion as Promotion, CUtensorMapSwizzle as Swizzle,
    };
    let &TensorMapLayout { ty, address, extents, strides, box_extents: [inner, outer], swizzle } = matrix;
    let unsupported = |what: &str| Error::Unsupported { what: what.into(), ty, device: "the TMA of this GPU".into() };
    // Elements are copied as bits of the same size.
    let data = match ty.size() {
        1 => Data::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        2 => Data::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        4 => Data::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        8 => Data::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        _ => return Err(unsupported("copying elements of this size")),
    };
    let swizzle = match swizzle {
        32 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        128 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        _ => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
    };
    let (box_extents, element_strides) = ([inner, outer, 1], [1; 3]);
    let mut map = CUtensorMap { opaque: [0; 16] };
    // SAFETY: the driver reads one number per dimension and writes the map. It does not access the
    // address.
    let code = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            data,
            3,
            address as *mut c_void,
            extents.as_ptr(),
            strides.as_ptr(),
            box_extents.as_ptr(),
            element_strides.as_ptr(),
            Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            // Unaligned rows of 128 bytes touch two lines already; a larger promotion would fetch
            // more than needed.
            Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    code.named("cuTensorMapEncodeTiled").map(|()| map)
}
