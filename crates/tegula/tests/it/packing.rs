//! Packing both operands in one launch equals packing them in two, without a race.

use tegula::element::{Type, bf16};
use tegula::interpret;
use tegula::{Layout, Matrix, Shape, View};
use tegula_interp::{self as interp, Arg, Buffer, Config, Severity};
use tegula_ir::{Order2d, check};
use tegula_kernels::{HelperKernel, Pack, PackBoth, Packing, Variant};

use crate::product::{Random, Sample};

const ORDERS: [Order2d; 3] = [Order2d::RowMajor, Order2d::ColMajor, Order2d::Strided];

fn run(variant: Variant, buffers: &[&Buffer]) {
    let kernel = check(variant.build().unwrap()).unwrap();
    let args: Vec<Arg<'_>> = buffers.iter().copied().map(Arg::from).collect();
    let outcome = interp::run(&kernel, &args, &Config::default()).unwrap();
    let error = outcome.findings.iter().find(|finding| finding.severity() == Severity::Error);
    assert!(error.is_none(), "{variant}: {}", error.unwrap());
}

const fn pack(ty: Type, from: Order2d) -> Pack {
    Pack { ty, from, packing: Packing::Same }
}

/// A matrix in this storage order, and the layout of its packed copy.
fn operand<T: Sample>(order: Order2d, shape: Shape, unit: usize, random: &mut Random) -> (Buffer, Layout) {
    let Shape { batches, rows, cols } = shape;
    let dense = |rows, cols| Shape { batches, rows, cols };
    let stored_shape = if order == Order2d::ColMajor { dense(cols, rows) } else { dense(rows, cols) };
    let all = Matrix::<T>::from_shape_fn(stored_shape, |_, _, _| T::element(random)).unwrap();
    let view: View<'_, T> = if order == Order2d::ColMajor { all.view().t() } else { all.view() };
    (interpret::input(view).unwrap(), Layout::row_major(dense(rows, cols.next_multiple_of(unit))).unwrap())
}

fn check_pack_both<T: Sample>(from: [Order2d; 2], packing: Packing, random: &mut Random) {
    let packs = from.map(|from| Pack { ty: T::TYPE, from, packing });
    let shape = |random: &mut Random| {
        let [batches, rows, cols] = [2, 150, 150].map(|most| 1 + random.below(most));
        Shape { batches, rows, cols }
    };
    let shapes = [shape(random), shape(random)];
    let operands = [0, 1].map(|i| operand::<T>(from[i], shapes[i], packs[i].unit(), random));
    let copies = || operands.each_ref().map(|(_, layout)| Buffer::output(T::TYPE, *layout).unwrap());
    let (separate, together) = (copies(), copies());
    (0..2).for_each(|i| run(HelperKernel::Pack(packs[i]).into(), &[&operands[i].0, &separate[i]]));
    let both = PackBoth::of(packs, operands.each_ref().map(|(_, layout)| layout.shape)).unwrap();
    run(HelperKernel::PackBoth(both).into(), &[&operands[0].0, &together[0], &operands[1].0, &together[1]]);
    for (separate, together) in separate.iter().zip(&together) {
        let [separate, together] = [separate, together].map(|copy| interpret::to_matrix::<T>(copy).unwrap());
        let same = separate.as_slice().iter().zip(together.as_slice()).all(|(x, y)| x.to_bits() == y.to_bits());
        assert!(same, "{both} of {shapes:?}");
    }
}

#[test]
fn packing_both_operands_equals_packing_each() {
    let random = &mut Random(1);
    for (a, b) in ORDERS.into_iter().flat_map(|a| ORDERS.map(|b| (a, b))) {
        check_pack_both::<bf16>([a, b], Packing::Same, random);
        check_pack_both::<f64>([a, b], Packing::Same, random);
        check_pack_both::<f32>([a, b], Packing::Tf32, random);
        check_pack_both::<i32>([a, b], Packing::Limbs, random);
    }
}

#[test]
fn different_or_large_operands_are_packed_by_two_launches() {
    let packed = |ty, packing| Pack { packing, ..pack(ty, Order2d::RowMajor) };
    let small = Shape::new(100, 100);
    let same = pack(Type::F32, Order2d::RowMajor);
    assert!(PackBoth::of([same; 2], [small; 2]).is_some());
    assert!(PackBoth::of([same, packed(Type::F32, Packing::Tf32)], [small; 2]).is_none());
    assert!(PackBoth::of([same, pack(Type::F64, Order2d::RowMajor)], [small; 2]).is_none());
    assert!(PackBoth::of([same; 2], [small, Shape::new(1 << 22, 1 << 21)]).is_none());
    assert!(PackBoth::of([same; 2], [small, Shape { batches: usize::MAX, rows: usize::MAX, cols: 2 }]).is_none());
    assert!(PackBoth { ty: Type::F16, from: ORDERS[..2].try_into().unwrap(), packing: Packing::Tf32 }.build().is_err());
}
