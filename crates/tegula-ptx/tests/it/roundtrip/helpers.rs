//! Helper kernels on their own: those that only pipelines of `wgmma` launch, and all that are
//! assembled.

use tegula_core::element::Type;
use tegula_core::epilogue::{BiasShape, Epilogue};
use tegula_core::matrix::{Layout, Shape};
use tegula_ir::{Order2d, check};
use tegula_kernels::{FixUp, FragmentReduction, GroupEnds, HelperKernel, Pack, PackBoth, SplitKReduction};

use super::engines;
use super::full;
use super::memory::{Bound, Contents, Memory, Random, Storage};

/// Runs a helper in both engines; returns the differences.
fn differences(helper: HelperKernel, memory: &mut Memory, arguments: &[Bound]) -> Vec<String> {
    let kernel = check(helper.build().expect("builds")).expect("valid");
    let outcomes = engines::run(&kernel, arguments, memory, 0).expect("a grid");
    let all = outcomes.differences().into_iter().chain(memory.difference());
    all.map(|difference| format!("{helper}: {difference}")).collect()
}

fn storage(order: Order2d) -> Storage {
    match order {
        Order2d::RowMajor => Storage::RowMajor,
        Order2d::ColMajor => Storage::ColMajor,
        Order2d::Strided => Storage::Strided,
    }
}

fn dense(shape: Shape) -> (Layout, usize) {
    Storage::RowMajor.layout(shape)
}

/// A batch of two.
fn two(rows: usize, cols: usize) -> Shape {
    Shape { batches: 2, rows, cols }
}

/// C, and the bias if any, for a reduction.
fn output(
    memory: &mut Memory,
    (ty, order, epilogue): (Type, Order2d, Epilogue),
    [rows, cols]: [usize; 2],
    random: &mut Random,
) -> Vec<Bound> {
    let c = memory.add("c", ty.output(), storage(order).layout(two(rows, cols)), Contents::InOut, random);
    let bias = epilogue.bias.map(|bias| {
        let shape = if bias == BiasShape::Row { two(1, cols) } else { two(rows, 1) };
        memory.add("bias", ty.output(), dense(shape), Contents::Input, random)
    });
    [c].into_iter().chain(bias).map(Bound::Matrix).collect()
}

fn scalar(ty: Type, value: f64) -> Bound {
    Bound::Scalar(ty.accumulator(), ty.accumulator().round(value))
}

/// Memory and arguments of a helper, for a C of 70 rows and 45 columns.
pub fn arguments(helper: HelperKernel) -> (Memory, Vec<Bound>) {
    let (mut memory, random) = (Memory::default(), &mut Random::new(7, true));
    let [rows, cols] = [70usize, 45];
    let input = |memory: &mut Memory, ty: Type, shape: Shape| {
        Bound::Matrix(memory.add("parts", ty, dense(shape), Contents::Input, &mut Random::new(5, true)))
    };
    let pack = |memory: &mut Memory, pack: Pack, random: &mut Random| {
        let from = memory.add("from", pack.ty, storage(pack.from).layout(two(rows, cols)), Contents::Input, random);
        let to = dense(two(rows, cols.next_multiple_of(pack.unit())));
        let to = memory.add("to", pack.ty, to, Contents::Output, random);
        [from, to].map(Bound::Matrix)
    };
    let arguments = match helper {
        HelperKernel::Pack(packing) => pack(&mut memory, packing, random).to_vec(),
        HelperKernel::PackBoth(PackBoth { ty, from, packing }) => {
            from.into_iter().flat_map(|from| pack(&mut memory, Pack { ty, from, packing }, random)).collect()
        }
        HelperKernel::SplitKReduction(SplitKReduction { ty, order, epilogue, .. }) => {
            let parts = input(&mut memory, ty.accumulator(), Shape { batches: 2 * 13, rows, cols });
            let output = output(&mut memory, (ty, order, epilogue), [rows, cols], random);
            [parts].into_iter().chain(output).chain([scalar(ty, 1.5), scalar(ty, -2.0)]).collect()
        }
        HelperKernel::FragmentReduction(FragmentReduction { ty, order, epilogue, .. }) => {
            // Two tiles of 64 by 24, 13 splits: a row of fragments of 64 by 8 for each row of
            // tiles.
            let parts = input(&mut memory, Type::F32, Shape { batches: 2 * 13, rows: 2, cols: 2 * 3 * 512 });
            let output = output(&mut memory, (ty, order, epilogue), [rows, cols], random);
            let layout = [64, 24].map(|extent| Bound::Scalar(Type::U32, extent));
            [parts].into_iter().chain(output).chain([scalar(ty, 1.5), scalar(ty, -2.0)]).chain(layout).collect()
        }
        HelperKernel::FixUp(FixUp { ty, order, epilogue }) => {
            // Tiles of 32 by 32 for 7 workers, with 5 steps each.
            let parts = input(&mut memory, ty.accumulator(), Shape { batches: 2 * 7, rows: 32, cols: 32 });
            let output = output(&mut memory, (ty, order, epilogue), [rows, cols], random);
            [parts].into_iter().chain(output).chain([scalar(ty, -2.0), Bound::Scalar(Type::U32, 5)]).collect()
        }
        HelperKernel::GroupEnds(_) => {
            let ends = dense(Shape::new(1, 2 * GroupEnds::PER_LAUNCH));
            let ends = Bound::Matrix(memory.add("ends", Type::U32, ends, Contents::Output, random));
            let numbers = (0..=GroupEnds::PER_LAUNCH as u64).map(|number| Bound::Scalar(Type::U32, 128 + 3 * number));
            [ends].into_iter().chain(numbers).collect()
        }
    };
    (memory, arguments)
}

/// All helpers that are assembled; by default every seventh, and one of each kind.
#[test]
fn helper_kernels() {
    let mut kinds = Vec::new();
    let mut all = Vec::new();
    for (number, helper) in HelperKernel::assembled().into_iter().enumerate() {
        let kind = std::mem::discriminant(&helper);
        if full() || number % 7 == 0 || !kinds.contains(&kind) {
            kinds.push(kind);
            let (mut memory, arguments) = arguments(helper);
            all.extend(differences(helper, &mut memory, &arguments));
        }
    }
    assert!(all.is_empty(), "{} differences:\n{}", all.len(), all[..all.len().min(60)].join("\n"));
}
