//! Products of all families without TMA and `wgmma`, with their helper kernels.

use tegula_core::element::Type;
use tegula_core::epilogue::{Activation, BiasShape, Epilogue};
use tegula_core::matrix::Shape;
use tegula_ir::{Checked, Kernel, check};
use tegula_kernels::plan::{Operands as Layouts, Recipe, Split};
use tegula_kernels::registry::FAMILIES;
use tegula_kernels::{GemmVariant, Mapping, PRESETS, Plain, PlainKind};

use super::engines::{self, Outcomes};
use super::full;
use super::memory::{Bound, Contents, Memory, Operands, Random, Storage};

/// A product: sizes, storage, and scalars other than 1 and 0.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Batches, and m, n and k.
    pub sizes: [usize; 4],
    pub storage: [Storage; 3],
    pub scaled: bool,
    pub epilogue: Epilogue,
    /// Whether there are infinities, NaNs, zeros of both signs and subnormal numbers.
    pub specials: bool,
    pub seed: u64,
}

impl Case {
    pub fn new(sizes: [usize; 4]) -> Self {
        Case {
            sizes,
            storage: [Storage::RowMajor; 3],
            scaled: false,
            epilogue: Epilogue::NONE,
            specials: false,
            seed: 0,
        }
    }

    /// A product with random storage, scalars and epilogue.
    fn random(sizes: [usize; 4], ty: Type, random: &mut Random) -> Self {
        let storages = [Storage::RowMajor, Storage::ColMajor, Storage::Strided, Storage::RowMajor];
        let storage = [(); 3].map(|()| storages[random.below(4)]);
        let bias = [None, Some(BiasShape::Row), Some(BiasShape::Column)][random.below(3)];
        let activations = Activation::ALL;
        let activation = activations[random.below(if ty.is_float() { 4 } else { 2 })];
        let epilogue = Epilogue { bias, activation };
        let [scaled, specials] = [(); 2].map(|()| random.below(2) == 0);
        Case { sizes, storage, scaled, epilogue, specials, seed: random.next() % 4 }
    }
}

/// The memory of a product, and the kernels of its launches with their arguments.
#[allow(clippy::type_complexity)]
pub fn launches(recipe: Recipe, case: &Case) -> (Memory, Vec<(Checked<Kernel>, Vec<Bound>)>) {
    let Case { sizes: [batches, m, n, k], storage, scaled, epilogue, specials, seed } = *case;
    let ty = recipe.kernel.ty();
    let (out, accumulator) = (ty.output(), ty.accumulator());
    let random = &mut Random::new(seed ^ (m << 20 | n << 10 | k) as u64, specials);
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
    let all = launches.launches.iter().map(|launch| {
        let kernel = check(launch.kernel.build().expect("builds")).expect("valid");
        (kernel, operands.arguments(launch))
    });
    (memory, all.collect())
}

/// Runs the launches of a product in both engines. Returns the memory, and the name and the
/// outcomes of each launch.
pub fn outcomes(recipe: Recipe, case: &Case) -> (Memory, Vec<(String, Outcomes)>) {
    let (mut memory, launches) = launches(recipe, case);
    let mut all = Vec::new();
    for (kernel, arguments) in launches {
        let outcomes = engines::run(&kernel, &arguments, &mut memory, case.seed);
        all.extend(outcomes.map(|outcomes| (kernel.name().to_string(), outcomes)));
    }
    (memory, all)
}

/// The differences of the engines for a product.
fn differences(recipe: Recipe, case: &Case) -> Vec<String> {
    let (memory, launches) = outcomes(recipe, case);
    let of_launch = |(name, outcomes): &(String, Outcomes)| {
        outcomes.differences().into_iter().map(|difference| format!("{name}: {difference}")).collect::<Vec<_>>()
    };
    let all = launches.iter().flat_map(of_launch).chain(memory.difference());
    all.map(|difference| format!("{} {:?}: {difference}", recipe.name(), case.sizes)).collect()
}

/// Checks products of these sizes, each with a draw of storage, scalars and epilogue.
///
/// The first is plain; the full run makes this number of draws of each.
fn assert_same(recipes: impl IntoIterator<Item = Recipe>, draws: usize, sizes: impl Fn(&Recipe) -> Vec<[usize; 4]>) {
    let mut all = Vec::new();
    let mut random = Random::new(1, false);
    for recipe in recipes {
        for (number, sizes) in sizes(&recipe).into_iter().enumerate() {
            if number == 0 {
                all.extend(differences(recipe, &Case::new(sizes)));
            }
            for _ in 0..if full() { draws } else { usize::from(number > 0) } {
                all.extend(differences(recipe, &Case::random(sizes, recipe.kernel.ty(), &mut random)));
            }
        }
    }
    assert!(all.is_empty(), "{} differences:\n{}", all.len(), all[..all.len().min(60)].join("\n"));
}

/// Whole tiles, a shape beyond them in every direction, and one smaller than a tile.
fn tiles([m, n, k]: [usize; 3]) -> Vec<[usize; 4]> {
    vec![[1, m, n, 2 * k], [2, m + 3, 2 * n - 1, k + 5], [1, m.div_ceil(2) + 1, 5, 3]]
}

#[test]
fn presets_of_the_articles() {
    let presets = PRESETS.map(|name| Plain::named(name).unwrap());
    assert_same(presets.map(Recipe::from), 6, |recipe| tiles([recipe.kernel.tile()[0] as usize; 3]));
}

#[test]
fn plain_kernels_of_all_types_and_mappings() {
    let mut kernels = Vec::new();
    for (number, ty) in Type::OPERANDS.into_iter().enumerate() {
        for (kind, mapping) in [PlainKind::Naive, PlainKind::Tiled]
            .into_iter()
            .flat_map(|kind| [Mapping::XCol, Mapping::XRow].map(|mapping| (kind, mapping)))
        {
            let tiles = [2, 8, 16, 32, 5];
            let tiles = if full() { &tiles[..] } else { &tiles[number % 3..number % 3 + 1] };
            kernels.extend(tiles.iter().map(|&tile| Plain { mapping, ..Plain::new(kind, ty, tile) }));
        }
    }
    assert_same(kernels.into_iter().map(Recipe::from), 6, |recipe| tiles([recipe.kernel.tile()[0] as usize; 3]));
}

/// Small tiles; the full run has those of large products, too.
const BLOCKED: [(&str, &[Type]); 15] = [
    ("register_32x64x16_warp16x32_thread4x4_stages3", &[Type::F32, Type::F64, Type::I32]),
    ("register_32x32x8_warp16x32_thread4x4_stages2_blocks2", &[Type::F32, Type::F64, Type::I32]),
    ("register_64x32x16_warp32x16_thread4x4_stages4", &[Type::F32, Type::F64, Type::I32]),
    ("register_32x32x16_warp32x32_thread8x4_stages3_slices2", &[Type::F32, Type::F64, Type::I32]),
    ("register_32x64x32_warp32x32_thread4x8_stages2_slices4", &[Type::F32, Type::F64, Type::I32]),
    ("dmma16x16_32x32x16_warp16x16_thread16x16_stages3", &[Type::F64]),
    ("dmma16x8_64x64x16_warp32x32_thread16x8_stages3", &[Type::F64]),
    ("dmma16x4_64x64x16_warp32x32_thread16x4_stages4", &[Type::F64]),
    ("dmma8x4_64x64x32_warp32x32_thread8x4_stages2", &[Type::F64]),
    ("mma_64x64x32_warp32x32_thread16x8_stages3", &[Type::F16, Type::BF16]),
    ("mma_64x64x128_warp64x16_thread16x8_stages2", &[Type::F16, Type::BF16, Type::I8]),
    ("mma_64x64x64_warp32x32_thread16x8_stages3", &[Type::I8]),
    ("tf32_64x64x16_warp32x32_thread16x8_stages3", &[Type::F32]),
    ("tf32_64x64x64_warp64x16_thread16x8_stages2", &[Type::F32]),
    ("limbs_64x32x32_warp32x16_thread16x8_stages3", &[Type::I32]),
];

/// The small blocked kernels of a family; by default one for each type.
pub fn blocked(family: &str) -> Vec<Recipe> {
    let mut recipes: Vec<Recipe> = Vec::new();
    for (name, types) in BLOCKED.into_iter().filter(|(name, _)| name.starts_with(family)) {
        for &ty in types {
            if full() || recipes.iter().all(|known| known.kernel.ty() != ty) {
                recipes.push(Recipe::named(name, ty).unwrap());
            }
        }
    }
    recipes
}

/// Shapes of a blocked kernel: a tile, aligned rows beyond it, and rows that are not aligned.
fn block_tiles(recipe: &Recipe) -> Vec<[usize; 4]> {
    let [m, n, k] = recipe.kernel.check_size().map(|extent| extent as usize);
    vec![[1, m, n, k], [1, m - 16, n + 16, k / 2 + 16], [2, m + 3, 17, k / 2 - 5], [1, 3, n - 1, 7]]
}

fn blocked_family(family: &str) {
    assert_same(blocked(family), 6, block_tiles);
}

#[test]
fn register_kernels() {
    blocked_family("register");
}

#[test]
fn dmma_kernels() {
    blocked_family("dmma");
}

#[test]
fn mma_kernels() {
    blocked_family("mma");
}

#[test]
fn tf32_kernels() {
    blocked_family("tf32");
}

#[test]
fn limbs_kernels() {
    blocked_family("limbs");
}

/// The candidates for large products, in the full run.
#[test]
fn kernels_of_large_products() {
    if !full() {
        return;
    }
    let mut recipes: Vec<Recipe> = Vec::new();
    for family in FAMILIES.iter().filter(|family| family.names.iter().any(|name| name.name == "register")) {
        for ty in Type::OPERANDS {
            for name in (family.listed)(ty) {
                let recipe = Recipe::named(&name, ty).unwrap();
                let [m, n, k] = recipe.kernel.check_size().map(|extent| extent as usize);
                let mut random = Random::new(recipes.len() as u64, false);
                let random = Case::random([1, m / 2 + 1, n + 3, k / 2 + 7], ty, &mut random);
                let cases = [Case::new([1, m, n, k]), random, Case::new([2, 3, 5, 7])];
                let all: Vec<String> = cases.iter().flat_map(|case| differences(recipe, case)).collect();
                assert!(all.is_empty(), "{} differences:\n{}", all.len(), all[..all.len().min(60)].join("\n"));
                recipes.push(recipe);
            }
        }
    }
    assert!(recipes.len() > 20);
}

/// Split-K with each schedule of its reduction, stream-K with its fix-up, and packed operands.
#[test]
fn splits_and_packing() {
    let mut recipes = Vec::new();
    for family in ["register", "dmma", "mma", "tf32", "limbs"] {
        for (number, recipe) in blocked(family).into_iter().enumerate() {
            let splits = [Split::SplitK(3), Split::StreamK(5), Split::SplitK(7), Split::SplitK(11), Split::StreamK(37)];
            let splits = if full() { &splits[..] } else { &splits[number % 4..number % 4 + 2] };
            let packs = [[false; 2], [true, false], [false, true], [true; 2]];
            recipes.extend(splits.iter().enumerate().map(|(i, &split)| Recipe {
                split,
                packed: packs[i % 4],
                ..recipe
            }));
        }
    }
    assert_same(recipes, 1, |recipe| block_tiles(recipe)[if full() { 0 } else { 2 }..].to_vec());
}

#[test]
fn vector_kernels() {
    let family = FAMILIES.iter().find(|family| family.names.iter().any(|name| name.name == "vector")).unwrap();
    let mut recipes = Vec::new();
    for (number, ty) in Type::OPERANDS.into_iter().enumerate() {
        let names = (family.listed)(ty);
        let step = if full() { 1 } else { names.len() / 2 };
        let names = names.iter().skip(number % 3).step_by(step);
        recipes.extend(names.enumerate().map(|(i, name)| {
            let split = if i % 2 == 1 { Split::SplitK(3) } else { Split::Whole };
            Recipe { split, ..Recipe::named(name, ty).unwrap() }
        }));
    }
    assert_same(recipes, 2, |recipe| {
        let [m, n, k] = recipe.kernel.check_size().map(|extent| extent as usize);
        let (m, k) = (m.min(4), k.min(160));
        vec![[1, m, n, k], [2, m + 1, n.div_ceil(16) * 8, 80], [1, m, n.min(77) - 1, 37]]
    });
}
