//! What is wrong with Hopper's operations and tiles, whatever the data.

use tegula_core::diagnostic::{Fault, FaultKind};
use tegula_core::element::Type;

use super::{Hopper, LeftFactor, Swizzle, Wgmma};
use crate::ops::*;

/// What is wrong with an operation whatever the data, besides what [`check()`](crate::check()) asks of all.
pub(crate) fn faults(kernel: &Kernel, op: &Hopper) -> Vec<(FaultKind, String)> {
    let mut faults = Vec::new();
    let mut refuse = |kind, message: String| faults.push((kind, message));
    let array = |place: &Place| match place {
        Place::Shared { array, .. } => Some(&kernel.shared[array.index()]),
        _ => None,
    };
    let is_barrier = |place: &Place| array(place).is_some_and(|array| array.holds == Holds::Barriers);
    match op {
        Hopper::InitBarrier { barrier, .. } | Hopper::Arrive { barrier, .. } | Hopper::Await { barrier, .. }
            if !is_barrier(barrier) =>
        {
            refuse(FaultKind::Type, "this takes an element of an array of barriers".into());
        }
        Hopper::InitBarrier { arrivals, .. } if !(1..1 << 20).contains(arrivals) => {
            refuse(FaultKind::Type, format!("a barrier takes 1 to 2²⁰ − 1 arrivals, not {arrivals}"));
        }
        Hopper::CopyTile { matrix, to: place, barrier, .. } => {
            if !is_barrier(barrier) {
                refuse(FaultKind::Type, "the bytes of a tile count at a barrier".into());
            }
            tile_faults(kernel, *matrix, array(place), false, &mut refuse);
        }
        Hopper::Send { to, values, barrier, .. } => {
            if !is_barrier(barrier) {
                refuse(FaultKind::Type, "what is sent counts at a barrier".into());
            }
            let ty = match array(to) {
                Some(SharedArray { ty, holds: Holds::Inbox, .. }) if ty.size() == 4 => Some(*ty),
                _ => None,
            };
            if ty.is_none() || values.iter().any(|&value| Some(kernel.operand_type(value)) != ty) {
                refuse(FaultKind::Type, "numbers of 32 bits are sent to an inbox of their type".into());
            }
            if !matches!(values.len(), 1 | 2 | 4) {
                refuse(FaultKind::Width, "1, 2 or 4 numbers are sent at once".into());
            }
        }
        Hopper::StoreTile { matrix, from: place, .. } => {
            tile_faults(kernel, *matrix, array(place), true, &mut refuse);
        }
        Hopper::Wgmma { wgmma, a, b, .. } => {
            if !Wgmma::multiplies(wgmma.ty) || wgmma.n == 0 || wgmma.n > 256 || wgmma.n % 8 != 0 {
                refuse(FaultKind::Type, format!("there is no {wgmma}"));
            }
            let left = if let LeftFactor::Shared(a) = a { Some(a) } else { None };
            for factor in left.into_iter().chain([b]) {
                match array(&factor.at) {
                    Some(SharedArray { ty, holds: Holds::Tiles(swizzle), dims, .. })
                        if *ty == wgmma.ty && *swizzle != Swizzle::None && dims[2] * 2 == swizzle.row_bytes() => {}
                    _ => refuse(
                        FaultKind::Type,
                        format!("{wgmma} takes factors from swizzled tiles of {}, with whole rows", wgmma.ty),
                    ),
                }
            }
            if let LeftFactor::Registers(a) = a
                && (a.len() != 4 || a.iter().any(|&a| kernel.operand_type(a) != Type::U32))
            {
                refuse(FaultKind::Type, format!("{wgmma} takes four u32 as A"));
            }
        }
        Hopper::StoreMatrix { to, values, .. } if array(to).is_none() || !matches!(values.len(), 1 | 2 | 4) => {
            refuse(FaultKind::Width, "1, 2 or 4 matrices are stored at once, to shared memory".into());
        }
        Hopper::Prefetch { matrix } => {
            let Param { name, kind } = &kernel.params[matrix.index()];
            if !matches!(kind, ParamKind::Matrix { tiles: Some(_), .. }) {
                refuse(FaultKind::Type, format!("{name} is not copied by tiles"));
            }
        }
        Hopper::SetRegisters { count, .. } => {
            if !(24..=256).contains(count) || count % 8 != 0 {
                refuse(FaultKind::Launch, format!("{count} registers a thread; it is a multiple of 8 from 24 to 256"));
            }
            if kernel.min_blocks != 1 {
                refuse(FaultKind::Launch, "registers move only in a kernel with `min_blocks(1)`".into());
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
    refuse: &mut impl FnMut(FaultKind, String),
) {
    let Param { name, kind } = &kernel.params[matrix.index()];
    let (ParamKind::Matrix { ty, access, order, tiles: Some(tiles), .. }, Some(array)) = (kind, array) else {
        return refuse(FaultKind::Type, format!("{name} is not copied by tiles"));
    };
    let [rows, row] = tiles.lines(*order);
    // Parts of a tile begin where the swizzle does.
    let is_part = |of: u32| {
        let bytes = u64::from(rows) * u64::from(row) * ty.size() as u64;
        rows % 8 == 0 && of.is_multiple_of(rows) && bytes.is_multiple_of(tiles.swizzle.alignment().into())
    };
    let fits = matches!(array.dims[1..], [of, same] if same == row && (of == rows || is_part(of)));
    if array.ty != *ty || array.holds != Holds::Tiles(tiles.swizzle) || !fits {
        let message =
            format!("a tile of {name} is {rows} rows of {row} {ty} ({:?}), not as {}", tiles.swizzle, array.name);
        refuse(FaultKind::Type, message + " has them");
    }
    if store == (*access == Access::Read) {
        refuse(FaultKind::Type, format!("{name} is declared {access:?}"));
    }
}

/// What is wrong with a matrix's tiles.
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
                format!("{name} cannot be copied by tiles of {}×{} ({:?})", tiles.rows, tiles.cols, tiles.swizzle);
            faults.push(Fault { kind: FaultKind::Type, message, source: None });
        }
    }
}
