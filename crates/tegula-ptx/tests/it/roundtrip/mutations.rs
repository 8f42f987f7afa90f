//! Kernels without one of their barriers or waits: the race detector finds each in the PTX.

use tegula_core::diagnostic::FindingKind;
use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_ir::ptx::{Image, print_lines};
use tegula_ir::{Checked, Kernel, Order2d, check};
use tegula_kernels::plan::Recipe;
use tegula_kernels::{
    FragmentReduction, GemmVariant, HelperKernel, Pack, Packing, Plain, PlainKind, ReductionSchedule, SplitKReduction,
};

use super::memory::{Bound, Memory};
use super::products::{Case, blocked, launches};
use super::{engines, full, helpers};

/// Checks that the kernel runs without an error, and with one if a line of this instruction is
/// missing, unless it does not run or a barrier there is noted as redundant. Returns the number of
/// lines.
fn check_each(
    kernel: &Checked<Kernel>,
    arguments: &[Bound],
    memory: &dyn Fn() -> Memory,
    (instruction, expected): (&str, &[FindingKind]),
) -> usize {
    let (image, _) = print_lines(kernel).expect("prints");
    let whole = engines::run(kernel, arguments, &mut memory(), 0).expect("a grid");
    assert!(whole.ptx.error().is_none(), "{}: {:?}", kernel.name(), whole.ptx.error());
    let redundant = |line: usize| {
        let notes = whole.ptx.diagnostics.iter().filter(|found| found.kind == FindingKind::RedundantBarrier);
        notes.flat_map(|found| &found.lines).any(|known| known.line as usize == line + 1)
    };
    let runs = |line: usize| {
        let mut known = whole.ptx.lines.iter().filter(|(known, _)| known.line as usize == line + 1);
        known.any(|(_, counters)| counters.lane_instructions > 0)
    };
    let lines: Vec<&str> = image.text.lines().collect();
    let numbers = (0..lines.len()).filter(|&line| lines[line].contains(instruction) && runs(line) && !redundant(line));
    let mut count = 0;
    for number in numbers {
        let mut lines = lines.clone();
        lines[number] = "";
        let mutated = Image { text: lines.join("\n"), ..image.clone() };
        let found = (0..4).find_map(|seed| {
            let outcome = engines::run_ptx(kernel, &mutated, whole.interp.grid, arguments, &mut memory(), seed);
            outcome.error().map(|error| error.kind)
        });
        let line = number + 1;
        assert!(found.is_some_and(|kind| expected.contains(&kind)), "{} without line {line}: {found:?}", kernel.name());
        count += 1;
    }
    count
}

const BARRIER: (&str, &[FindingKind]) =
    ("bar.sync", &[FindingKind::Race, FindingKind::Uninitialized, FindingKind::InFlight]);
const WAIT: (&str, &[FindingKind]) = ("cp.async.wait_group", &[FindingKind::InFlight, FindingKind::Race]);

/// Checks the barriers and the waits of a product; returns their numbers.
fn check_product(recipe: Recipe, sizes: [usize; 3]) -> [usize; 2] {
    let [m, n, k] = sizes;
    let case = Case::new([1, m, n, k]);
    let (_, mut all) = launches(recipe, &case);
    let (kernel, arguments) = all.pop().expect("a launch");
    [BARRIER, WAIT].map(|what| check_each(&kernel, &arguments, &|| launches(recipe, &case).0, what))
}

#[test]
fn products_need_every_barrier_and_wait() {
    // The other kernels of Tensor Cores take packed operands.
    let recipes = ["register", "dmma", "mma"].into_iter().flat_map(blocked);
    for recipe in recipes.filter(|recipe| recipe.kernel.packing() == Packing::Same && recipe.kernel.ty() != Type::I8) {
        let [m, n, k] = recipe.kernel.check_size().map(|extent| extent as usize);
        let [barriers, waits] = check_product(recipe, [m, n, k]);
        assert!(barriers > 0 && waits > 0, "{}: {barriers} barriers, {waits} waits", recipe.name());
    }
    for ty in [Type::F32, Type::F16] {
        let recipe = Recipe::named("vector_4x4_threads32x8_load4", ty).unwrap();
        let [barriers, _] = check_product(recipe, [4, 128, 256]);
        assert!(barriers > 0, "{}: {barriers} barriers", recipe.name());
    }
    let plain = [2, 8, 32].map(|tile| Plain::new(PlainKind::Tiled, Type::F32, tile));
    for plain in if full() { &plain[..] } else { &plain[1..2] } {
        let side = plain.tile as usize;
        assert_eq!(check_product((*plain).into(), [side, side, 2 * side + 1]), [2, 0]);
    }
}

#[test]
fn helpers_need_every_barrier() {
    let (order, epilogue) = (Order2d::RowMajor, Epilogue::NONE);
    let schedule = ReductionSchedule::MultiThread;
    for helper in [
        HelperKernel::SplitKReduction(SplitKReduction { ty: Type::F32, order, schedule, epilogue }),
        HelperKernel::FragmentReduction(FragmentReduction { ty: Type::F16, order, cooperative: true, epilogue }),
        HelperKernel::Pack(Pack { ty: Type::F32, from: Order2d::ColMajor, packing: Packing::Same }),
    ] {
        let kernel = check(helper.build().expect("builds")).expect("valid");
        let (_, arguments) = helpers::arguments(helper);
        let barriers = check_each(&kernel, &arguments, &|| helpers::arguments(helper).0, BARRIER);
        assert!(barriers > 0, "{helper}");
    }
}
