//! Products of all families without TMA and `wgmma`, with their helper kernels.

use tegula_core::element::Type;
use tegula_core::epilogue::{Activation, BiasShape, Epilogue};
use tegula_core::matrix::Shape;
use tegula_ir::check;
use tegula_kernels::plan::{Operands as Layouts, Recipe, Split};
use tegula_kernels::{GemmVariant, Mapping, PRESETS, Plain, PlainKind};

use crate::engines;
use crate::full;
use crate::memory::{Contents, Memory, Operands, Random, Storage};

/// A product: sizes, storage, and scalars other than 1 and 0.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Batches, and m, n and k.
    pub sizes: [usize; 4],
    pub storage: [Storage; 3],
    pub scaled: bool,
    pub epilogue: Epilogue,
    pub seed: u64,
}

impl Case {
    pub fn new(sizes: [usize; 4]) -> Self {
        Case { sizes, storage: [Storage::RowMajor; 3], scaled: false, epilogue: Epilogue::NONE, seed: 0 }
    }
}

/// Runs the launches of a product in both engines, and returns the differences.
pub fn differences(recipe: Recipe, case: &Case) -> Vec<String> {
    let Case { sizes: [batches, m, n, k], storage, scaled, epilogue, seed } = *case;
    let ty = recipe.kernel.ty();
    let (out, accumulator) = (ty.output(), ty.accumulator());
    let random = &mut Random(seed ^ (m << 20 | n << 10 | k) as u64);
    let shapes = [(m, k), (k, n), (m, n)].map(|(rows, cols)| Shape { batches, rows, cols });
    let [a, b, c] = [0, 1, 2].map(|i| storage[i].layout(shapes[i]));
    let layouts = Layouts::aligned(ty, [a.0, b.0, c.0], epilogue);
    let launches = recipe.launches(&layouts).expect("small");
    let oriented = |operand: usize, (layout, len)| (launches.layout(operand, layout), len);
    let mut memory = Memory::default();
    let (alpha, beta) = if scaled { (1.25, -2.0) } else { (1.0, 0.0) };
    let before = if scaled { Contents::InOut } else { Contents::Output };
    let mut operands = Operands {
        a: memory.add("a", ty, oriented(0, a), Contents::Input, random),
        b: memory.add("b", ty, oriented(1, b), Contents::Input, random),
        c: memory.add("c", out, oriented(2, c), before, random),
        bias: epilogue.bias.map(|bias| {
            let (rows, cols) = if bias == BiasShape::Row { (1, n) } else { (m, 1) };
            let bias = Storage::RowMajor.layout(Shape { batches, rows, cols });
            memory.add("bias", out, oriented(2, bias), Contents::Input, random)
        }),
        workspaces: Vec::new(),
        alpha: (accumulator, accumulator.round(alpha)),
        beta: (accumulator, accumulator.round(beta)),
    };
    operands.add_workspaces(&launches, &mut memory);
    let mut all = Vec::new();
    for launch in &launches.launches {
        let kernel = check(launch.kernel.build().expect("builds")).expect("valid");
        let Some(outcomes) = engines::run(&kernel, &operands.arguments(launch), &mut memory, seed) else { continue };
        let differences = outcomes.differences().into_iter().chain(memory.difference());
        all.extend(differences.map(|difference| format!("{} {:?}: {difference}", kernel.name(), case.sizes)));
    }
    all
}

/// Checks a recipe with products of these sizes.
fn assert_same(recipe: Recipe, cases: impl IntoIterator<Item = Case>) {
    let differences: Vec<String> = cases.into_iter().flat_map(|case| differences(recipe, &case)).collect();
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn presets_of_the_articles() {
    for name in PRESETS {
        let plain = Plain::named(name).unwrap();
        let t = plain.tile as usize;
        for sizes in [[1, t, t, t], [1, 2 * t, t, 3 * t], [2, t + 1, 2 * t - 1, t + 3]] {
            assert_same(plain.into(), [Case::new(sizes)]);
        }
    }
}
