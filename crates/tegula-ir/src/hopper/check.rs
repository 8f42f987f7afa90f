//! Checks of Hopper operations and TMA tiles.

use tegula_core::diagnostic::{Fault, FaultKind};
use tegula_core::element::Type;

use super::{HopperOp, LeftOperand, Swizzle, Tiles, Wgmma};
use crate::ops::*;

/// The faults that only Hopper operations can have; [`check()`](crate::check()) finds the others.
pub(crate) fn faults(kernel: &Kernel, op: &HopperOp) -> Vec<(FaultKind, String)> {
    let mut faults = Vec::new();
    let mut fault = |kind, message: String| faults.push((kind, message));
    let array = |place: &MemoryRef| match place {
        MemoryRef::Shared { array, .. } => Some(&kernel.shared[array.index()]),
        _ => None,
    };
    let is_mbarrier = |place: &MemoryRef| array(place).is_some_and(|array| array.contents == ArrayContents::Mbarriers);
    match op {
        HopperOp::MbarrierInit { barrier, .. }
        | HopperOp::MbarrierArrive { barrier, .. }
        | HopperOp::MbarrierWait { barrier, .. }
            if !is_mbarrier(barrier) =>
        {
            fault(FaultKind::Type, "the operand must be an mbarrier".into());
        }
        HopperOp::MbarrierInit { arrivals, .. } if !(1..1 << 20).contains(arrivals) => {
            fault(FaultKind::Type, format!("an mbarrier expects 1 to 2²⁰ − 1 arrivals, not {arrivals}"));
        }
        HopperOp::TmaLoad { matrix, to: place, barrier, .. } => {
            if !is_mbarrier(barrier) {
                fault(FaultKind::Type, "a TMA load needs an mbarrier".into());
            }
            tile_faults(kernel, *matrix, array(place), false, &mut fault);
        }
        HopperOp::StoreAsync { to, values, barrier, .. } => {
            if !is_mbarrier(barrier) {
                fault(FaultKind::Type, "an asynchronous store needs an mbarrier".into());
            }
            let ty = match array(to) {
                Some(SharedArray { ty, contents: ArrayContents::DsmemBuffer, .. }) if ty.size() == 4 => Some(*ty),
                _ => None,
            };
            if ty.is_none() || values.iter().any(|&value| Some(kernel.operand_type(value)) != ty) {
                fault(
                    FaultKind::Type,
                    "an asynchronous store writes 32-bit values to a DSMEM buffer of the same type".into(),
                );
            }
            if !matches!(values.len(), 1 | 2 | 4) {
                fault(FaultKind::Width, format!("an asynchronous store writes 1, 2 or 4 values, not {}", values.len()));
            }
        }
        HopperOp::TmaStore { matrix, from: place, .. } => {
            tile_faults(kernel, *matrix, array(place), true, &mut fault);
        }
        HopperOp::Wgmma { wgmma, a, b, .. } => {
            if !Wgmma::supports(wgmma.ty) || wgmma.n == 0 || wgmma.n > 256 || wgmma.n % 8 != 0 {
                fault(FaultKind::Type, format!("{wgmma} is not supported"));
            }
            let left = if let LeftOperand::Shared(a) = a { Some(a) } else { None };
            for operand in left.into_iter().chain([b]) {
                match array(&operand.at) {
                    Some(SharedArray { ty, contents: ArrayContents::Tiles(swizzle), dims, .. })
                        if *ty == wgmma.ty && *swizzle != Swizzle::None && dims[2] * 2 == swizzle.row_bytes() => {}
                    _ => fault(
                        FaultKind::Type,
                        format!(
                            "{wgmma} needs operands in swizzled tiles of {} with rows of the swizzle's width",
                            wgmma.ty
                        ),
                    ),
                }
            }
            if let LeftOperand::Registers(a) = a
                && (a.len() != 4 || a.iter().any(|&a| kernel.operand_type(a) != Type::U32))
            {
                fault(FaultKind::Type, format!("{wgmma} needs A in four u32 registers"));
            }
        }
        HopperOp::StoreMatrix { to, values, .. } if array(to).is_none() || !matches!(values.len(), 1 | 2 | 4) => {
            fault(
                FaultKind::Width,
                format!("stmatrix stores 1, 2 or 4 matrices to shared memory, not {}", values.len()),
            );
        }
        HopperOp::PrefetchTensorMap { matrix } => {
            let Param { name, kind } = &kernel.params[matrix.index()];
            if !matches!(kind, ParamKind::Matrix { tiles: Some(_), .. }) {
                fault(FaultKind::Type, format!("{name} is not declared with TMA tiles"));
            }
        }
        HopperOp::SetMaxRegisters { count, .. } => {
            if !(24..=256).contains(count) || count % 8 != 0 {
                fault(
                    FaultKind::Launch,
                    format!("setmaxnreg of {count} registers is not supported; use a multiple of 8 from 24 to 256"),
                );
            }
            if kernel.min_blocks != 1 {
                fault(FaultKind::Launch, "setmaxnreg needs a kernel with `min_blocks(1)`".into());
            }
        }
        _ => {}
    }
    faults
}

fn tile_faults(
    kernel: &Kernel,
    matrix: ParamId,
    array: Option<&SharedArray>,
    store: bool,
    fault: &mut impl FnMut(FaultKind, String),
) {
    let Param { name, kind } = &kernel.params[matrix.index()];
    let (ParamKind::Matrix { ty, access, order, tiles: Some(tiles), .. }, Some(array)) = (kind, array) else {
        return fault(FaultKind::Type, format!("{name} is not declared with TMA tiles"));
    };
    let [rows, row] = tiles.lines(*order);
    // A part of a tile must start at a boundary of the swizzle pattern.
    let is_part = |of: u32| {
        let bytes = u64::from(rows) * u64::from(row) * ty.size() as u64;
        rows % 8 == 0 && of.is_multiple_of(rows) && bytes.is_multiple_of(tiles.swizzle.alignment().into())
    };
    let fits = matches!(array.dims[1..], [of, same] if same == row && (of == rows || is_part(of)));
    if array.ty != *ty || array.contents != ArrayContents::Tiles(tiles.swizzle) || !fits {
        let message = format!(
            "a tile of {name} has {rows} rows of {row} {ty} ({:?}), unlike the array {}",
            tiles.swizzle, array.name
        );
        fault(FaultKind::Type, message);
    }
    if store == (*access == Access::Read) {
        fault(FaultKind::Type, format!("{name} is declared with access {access:?}, which does not permit this copy"));
    }
}

/// Checks the declared TMA tiles of all matrices.
pub(crate) fn check_tiles(kernel: &Kernel, faults: &mut Vec<Fault>) {
    for Param { name, kind } in kernel.params() {
        let ParamKind::Matrix { ty, order, tiles: Some(tiles), .. } = kind else { continue };
        let [rows, row] = tiles.lines(*order);
        let bytes = row.saturating_mul(ty.size() as u32);
        let fits = match tiles.swizzle {
            Swizzle::None => bytes % 16 == 0 && row <= 256,
            swizzle => bytes % 16 == 0 && bytes <= swizzle.row_bytes(),
        };
        if !fits || !(1..=256).contains(&rows) || *order == Order2d::Strided {
            let message =
                format!("TMA does not support tiles of {}×{} ({:?}) for {name}", tiles.rows, tiles.cols, tiles.swizzle);
            faults.push(Fault { kind: FaultKind::Type, message, source: None });
        }
        if tiles.clipped && rows % Tiles::PATTERN_LINES != 0 {
            let message =
                format!("clipped tiles of {name} have {rows} lines; use a multiple of {}", Tiles::PATTERN_LINES);
            faults.push(Fault { kind: FaultKind::Type, message, source: None });
        }
    }
}
