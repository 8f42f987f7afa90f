//! The kernels on Hopper's matrix units, in the interpreter: right for any shape, layout and split, and clean on every seed where blocks make several
//! tiles, stages go round and edges are ragged.

use tegula::element::{Scalar, Type, bf16, f16};
use tegula::epilogue::{Activation, Along, Epilogue};
use tegula::{Accuracy, Device, Error, Layout, Shape};
use tegula_interp::{Buffer, Config, Severity};
use tegula_ir::launch::DeviceFacts;
use tegula_ir::{Order2d, check};
use tegula_kernels::plan::{Lie as Known, Operands, Recipe, Split, Workspace};
use tegula_kernels::{Hopper, Pipeline, Schedule};

use super::covering;
use super::effort::{is_asked, seeds, some};
use super::product::{Lie, Product, Random, Sample};

/// Small tiles, and the ways of the large ones.
const PIPELINES: [&str; 24] = [
    "hopper_64x64x64_1_2_1",
    "hopper_64x128x64_1_3_1",
    "hopper_128x64x64_2_3_1",
    "hopper_128x128x64_2_2_2",
    "hopper_256x64x64_2_3_1",
    "hopper_64x192x64_1_2_1",
    "hopper_192x64x64_3_2_1",
    "hopper_64x64x64_1_2_1_k2",
    "hopper_128x64x64_2_2_1_k4_g2",
    "hopper_64x128x64_1_2_1_k8",
    "hopper_64x192x64_1_2_2",
    "hopper_64x64x64_1_3_2",
    "hopper_64x128x64_1_2_2x2",
    "hopper_128x192x64_2_2_2x2",
    "hopper_64x64x64_1_3_1x2",
    "hopper_192x64x64_3_2_1x4",
    "hopper_64x192x64_1_2_4",
    "hopper_64x64x64_1_3_2x4",
    "hopper_128x64x64_2_2_4x2",
    "hopper_64x64x64_1_3_1x2_k2",
    "hopper_128x64x64_2_2_2_k4",
    "hopper_64x128x64_1_2_2x2_k2",
    "hopper_64x64x64_2_3_1_pp",
    "hopper_128x72x64_2_2_2_pp",
];

/// A random product by a random pipeline, whose work is split, or whose factors are packed, by chance.
pub fn any_product<T: Sample>(seed: u64, device: &Device) {
    let random = &mut Random(seed);
    let mut sizes = [1 + random.below(3) / 2, 1 + random.below(200), 1 + random.below(200), random.below(300)];
    if random.chance(2) {
        // Rows and columns that the copy engine finds.
        sizes[1..].iter_mut().for_each(|size| *size = size.next_multiple_of(8));
    }
    let mut product = Product::<T>::random(sizes, random);
    if random.chance(3) {
        let bias = [Along::Rows, Along::Columns][random.below(2)];
        let activation = [Activation::Relu, Activation::Gelu][random.below(2)];
        product = product.finished(Epilogue { bias: Some(bias), activation }, random);
    }
    let (swapped, packed) = (random.chance(2), [random.chance(4), random.chance(4)]);
    let kernel = Hopper::named(PIPELINES[random.below(PIPELINES.len())], T::TYPE).unwrap();
    let split = match random.below(3) {
        0 => Split::Parts(2 + random.below(4) as u32),
        1 if kernel.shares_tiles() => Split::Workers(1 + random.below(16) as u32),
        _ => Split::Whole,
    };
    product.by_recipe_at(device, Recipe { split, swapped, packed, ..kernel.into() }, Accuracy::Full);
}

#[test]
fn any_product_of_pipelines_is_right() {
    for seed in 0..seeds(8, 24) {
        any_product::<bf16>(seed, &Device::interp());
        any_product::<f16>(1000 + seed, &Device::interp());
    }
}

/// Runs a product on two SMs, so that each block computes several tiles, with at most `most` schedules.
fn clean<T: Sample>(name: &str, orders: [Order2d; 3], [m, n, k]: [usize; 3], beta: bool, most: u64) {
    let lie = |order| Lie { transposed: order == Order2d::ColMajor, ..Lie::default() };
    let factors = (T::Acc::ONE, if beta { T::Acc::ONE } else { T::Acc::ZERO });
    let product = Product::<T>::new([1, m, n, k], orders.map(lie), &mut Random(7), factors);
    let lies = orders.map(|order| Known::new(order, true));
    let recipe = Recipe::named(name, T::TYPE).unwrap();
    let layouts = [Shape::new(m, k), Shape::new(k, n), Shape::new(m, n)].map(|shape| Layout::row_major(shape).unwrap());
    let launches = recipe.launches(&Operands { layouts, lies, epilogue: Epilogue::NONE }).unwrap();
    let kernel = check(launches.main().kernel.build().unwrap()).unwrap();
    for seed in 0..seeds(1, most) {
        let config = Config { seed, device: DeviceFacts { multiprocessors: 2 }, ..Config::default() };
        let workspace = |workspace: &Workspace| match workspace.zeroed {
            true => Buffer::zeros(workspace.ty, workspace.layout).unwrap(),
            false => Buffer::output(workspace.ty, workspace.layout).unwrap(),
        };
        let more: Vec<_> = launches.workspaces.iter().map(workspace).collect();
        let (outcome, c) = product.run_with(&kernel, &more, &config);
        if let [.., flags] = &*more {
            assert!(flags.to_vec::<u32>().unwrap().iter().all(|flag| *flag == 0), "{name} leaves flags");
        }
        let first = outcome.findings.iter().find(|f| f.severity() == Severity::Error);
        assert!(first.is_none(), "{name} {orders:?} {m}×{n}×{k}, seed {seed}: {}", first.unwrap());
        let report = product.report(&c);
        let bound = tegula_bench::oracle::bound::<T>(k);
        assert!(report.within(bound) && report.mismatches == 0, "{name} {m}×{n}×{k}: {report:?} beyond {bound}");
    }
}

const ROW: Order2d = Order2d::RowMajor;
const COL: Order2d = Order2d::ColMajor;
/// Of factors.
const LAYOUTS: [(Order2d, Order2d); 4] = [(ROW, ROW), (ROW, COL), (COL, ROW), (COL, COL)];

#[test]
fn pipelines_are_clean_on_every_seed() {
    // Every layout, tiles in number beyond the blocks, stages that go round several times, edges in all three.
    for &(a, b) in some(&LAYOUTS) {
        clean::<bf16>("hopper_64x64x64_1_2_1", [a, b, ROW], [136, 200, 200], false, 8);
        clean::<bf16>("hopper_128x64x64_2_3_1", [a, b, COL], [200, 136, 264], false, 8);
        clean::<f16>("hopper_128x128x64_2_2_2", [a, b, ROW], [520, 136, 200], false, 8);
        clean::<f16>("hopper_128x64x64_2_2_1_k2", [a, b, ROW], [264, 136, 392], false, 8);
    }
}

#[test]
fn clusters_that_share_b_are_clean_on_every_seed() {
    // Of columns, blocks share pieces, halves of pieces, or both.
    for &(a, b) in some(&LAYOUTS) {
        clean::<f16>("hopper_64x192x64_1_2_2", [a, b, ROW], [136, 200, 136], false, 32);
        clean::<f16>("hopper_64x64x64_1_3_2", [a, b, COL], [200, 72, 264], true, 32);
        clean::<f16>("hopper_64x64x64_1_3_4", [a, b, ROW], [264, 72, 264], true, 8);
    }
}

#[test]
fn clusters_that_share_a_are_clean_on_every_seed() {
    for &(a, b) in some(&LAYOUTS) {
        clean::<f16>("hopper_64x128x64_1_2_1x2", [a, b, ROW], [72, 392, 136], true, 32);
        clean::<f16>("hopper_192x64x64_3_3_1x4", [a, b, COL], [264, 264, 264], false, 8);
    }
}

#[test]
fn clusters_that_share_a_and_b_are_clean_on_every_seed() {
    for &(a, b) in some(&LAYOUTS) {
        clean::<f16>("hopper_64x128x64_1_2_2x2", [a, b, ROW], [136, 264, 136], true, 32);
        clean::<f16>("hopper_128x64x64_2_3_2x2", [a, b, COL], [264, 72, 264], false, 8);
        clean::<f16>("hopper_64x64x64_1_2_2x4", [a, b, ROW], [136, 264, 200], true, 4);
        clean::<f16>("hopper_64x64x64_1_2_4x2", [a, b, COL], [264, 136, 200], false, 4);
        // Blocks that copy a right factor along k in turns, whose stages are not as many, or do not divide by them.
        clean::<bf16>("hopper_64x72x64_1_3_2", [a, b, ROW], [200, 136, 456], true, 8);
        clean::<bf16>("hopper_64x88x64_1_5_4", [a, b, COL], [264, 80, 584], false, 4);
    }
}

#[test]
fn clusters_that_share_factors_and_k_are_clean_on_every_seed() {
    for &(a, b) in some(&LAYOUTS) {
        clean::<f16>("hopper_64x64x64_1_2_1x2_k2", [a, b, ROW], [72, 136, 328], true, 8);
        clean::<f16>("hopper_128x64x64_2_2_2_k4", [a, b, COL], [264, 72, 584], false, 2);
        clean::<f16>("hopper_64x128x64_1_2_2x2_k2", [a, b, ROW], [136, 264, 264], false, 2);
    }
    // Steps for some of those that share them only.
    clean::<bf16>("hopper_64x64x64_1_2_1x2_k4", [ROW, COL, ROW], [136, 136, 136], true, 32);
    clean::<bf16>("hopper_64x96x64_1_3_2_k4", [ROW, COL, COL], [136, 200, 392], true, 2);
}

#[test]
fn consumers_that_take_turns_are_clean_on_every_seed() {
    for &(a, b) in some(&LAYOUTS) {
        // Tiles of fewer steps than stages, of as many, and of more; an odd number of tiles; one tile, so that a consumer has none.
        clean::<bf16>("hopper_64x64x64_2_4_1_pp", [a, b, ROW], [264, 200, 136], true, 32);
        clean::<f16>("hopper_128x64x64_2_2_1_pp", [a, b, COL], [264, 136, 328], false, 8);
        clean::<bf16>("hopper_64x72x64_3_3_1_pp", [a, b, ROW], [328, 168, 200], false, 8);
        clean::<bf16>("hopper_64x64x64_2_3_1_pp", [a, b, COL], [56, 64, 72], true, 4);
        clean::<f16>("hopper_64x64x64_2_3_2x2_pp", [a, b, ROW], [520, 264, 264], true, 4);
        clean::<f16>("hopper_64x72x64_2_3_4_pp", [a, b, ROW], [520, 136, 264], true, 4);
    }
    clean::<bf16>("hopper_64x64x64_2_2_1_pp", [ROW, COL, ROW], [264, 136, 0], true, 4);
    clean::<bf16>("hopper_64x256x64_2_2_1_pp", [ROW, COL, ROW], [264, 520, 136], true, 4);
    clean::<bf16>("hopper_128x128x64_2_2_1_pp", [ROW, ROW, ROW], [392, 264, 136], true, 4);
}

/// The parameters of a pipeline and of a product that it makes, by their values.
struct Sweep;

impl Sweep {
    const ROWS: [u32; 4] = [64, 128, 192, 256];
    /// C is stored by 16, 24, 32, 40, 48, 56 or 64 columns at a time, or by 8.
    const COLS: [u32; 10] = [16, 24, 64, 72, 80, 96, 112, 136, 192, 256];
    const CONSUMERS: [u32; 3] = [1, 2, 3];
    const STAGES: [u32; 4] = [2, 3, 4, 5];
    const CLUSTERS: [[u32; 2]; 8] = [[1, 1], [2, 1], [1, 2], [2, 2], [4, 1], [1, 4], [2, 4], [4, 2]];
    const SPLITS: [u32; 4] = [1, 2, 4, 8];
    const GROUPS: [u32; 2] = [1, 2];
    const SIZES: [[usize; 3]; 4] = [[264, 200, 136], [72, 264, 392], [136, 168, 264], [200, 72, 328]];

    /// How many values each parameter has: eight of the pipeline, stream-K or not, and six of the product.
    const LEVELS: [usize; 15] = [4, 10, 3, 2, 4, 8, 4, 2, 2, 2, 2, 2, 2, 2, 4];

    fn hopper(row: &[usize]) -> Hopper {
        let pipeline = Pipeline {
            tile: [Self::ROWS[row[0]], Self::COLS[row[1]], 64],
            consumers: Self::CONSUMERS[row[2]],
            ping_pong: row[3] == 1,
            stages: Self::STAGES[row[4]],
            cluster: Self::CLUSTERS[row[5]],
            split: Self::SPLITS[row[6]],
            group: Self::GROUPS[row[7]],
        };
        let order = |column_major: usize| if column_major == 1 { COL } else { ROW };
        let schedule = if row[8] == 1 { Schedule::Balanced } else { Schedule::Tiles };
        let orders = [row[9], row[10], row[11]].map(order);
        Hopper { orders, schedule, ..Hopper::new(if row[12] == 1 { Type::F16 } else { Type::BF16 }, pipeline) }
    }

    /// Stages and partial sums leave shared memory for tiles of C.
    fn is_valid(row: &[usize]) -> bool {
        let hopper = Self::hopper(row);
        let [rows, cols, depth] = hopper.pipeline.tile;
        let staged_cols = if hopper.orders[1] == COL { cols } else { cols.next_multiple_of(64) };
        let stages = hopper.pipeline.stages * (rows + staged_cols) * depth * 2;
        let sums = if hopper.pipeline.split > 1 { rows * cols * 4 } else { 0 };
        let stored = hopper.pipeline.consumers * (16 << 10);
        hopper.validate().is_ok() && stages + sums + stored <= 226 << 10
    }

    /// Multiplications, in whole tiles and clusters.
    fn cost(row: &[usize]) -> u64 {
        let (Pipeline { tile: [rows, cols, depth], cluster, split, .. }, [m, n, k]) =
            (Self::hopper(row).pipeline, Self::SIZES[row[14]].map(|extent| extent as u64));
        let whole = |extent: u64, tile: u32| extent.next_multiple_of(tile.into());
        whole(m, rows * cluster[0]) * whole(n, cols * cluster[1]) * whole(k, depth * split)
    }
}

/// Every two values of the parameters of pipelines and their products, in the quick run; on many seeds in the full one.
#[test]
fn pipelines_of_every_two_parameters_are_clean() {
    let rows = covering::pairs(&Sweep::LEVELS, Sweep::is_valid, Sweep::cost);
    println!("{} pipelines", rows.len());
    for row in rows {
        let hopper = Sweep::hopper(&row);
        let workers = if hopper.schedule == Schedule::Balanced { ":w5" } else { "" };
        let name = format!("{}{workers}", hopper.short_name());
        let (sizes, beta) = (Sweep::SIZES[row[14]], row[13] == 1);
        match hopper.ty {
            Type::F16 => clean::<f16>(&name, hopper.orders, sizes, beta, 4),
            _ => clean::<bf16>(&name, hopper.orders, sizes, beta, 4),
        }
    }
}

#[test]
fn pipelines_of_every_shape_are_clean() {
    if !is_asked() {
        return;
    }
    for name in PIPELINES {
        clean::<bf16>(name, [ROW, COL, ROW], [264, 200, 136], true, 4);
        clean::<f16>(name, [ROW, ROW, COL], [72, 264, 392], false, 4);
    }
}

#[test]
fn pipelines_of_every_width_are_clean() {
    if !is_asked() {
        return;
    }
    // C is stored by 16, 32, 24, 40, 48 and 56 columns at a time, and by 8.
    for name in [
        "hopper_64x16x64_1_4_1",
        "hopper_128x32x64_2_3_1",
        "hopper_64x16x64_1_4_1_k2",
        "hopper_64x16x64_1_4_2",
        "hopper_64x32x64_1_3_2x2",
        "hopper_64x72x64_1_2_1",
        "hopper_64x24x64_1_3_1x2",
        "hopper_128x80x64_2_2_2",
        "hopper_192x96x64_3_2_1x4",
        "hopper_64x80x64_1_2_2x4",
        "hopper_64x72x64_1_2_4",
        "hopper_64x72x64_1_3_2x2",
        "hopper_64x72x64_1_2_4x2",
        "hopper_192x96x64_3_2_4x2",
        "hopper_64x112x64_1_2_1",
        "hopper_64x136x64_1_2_1",
    ] {
        clean::<bf16>(name, [ROW, COL, ROW], [264, 168, 264], true, 4);
        clean::<bf16>(name, [COL, COL, COL], [264, 168, 264], false, 4);
        clean::<bf16>(name, [ROW, ROW, COL], [136, 168, 200], true, 4);
        clean::<bf16>(name, [COL, ROW, ROW], [136, 168, 200], false, 2);
    }
    clean::<bf16>("hopper_64x80x64_1_2_1:w5", [ROW, COL, ROW], [136, 200, 392], true, 4);
    clean::<bf16>("hopper_128x72x64_2_2_1:w5", [ROW, COL, COL], [136, 200, 392], true, 4);
}

#[test]
fn pipelines_that_share_tiles_are_clean() {
    // Fewer tiles than workers, of which some have nothing; one tile for all; some waves and what is left over; nothing left over.
    for (workers, [m, n, k]) in [(5, [136, 136, 392]), (7, [64, 64, 264]), (3, [264, 200, 200]), (4, [256, 128, 136])] {
        let name = |pipeline: &str| format!("{pipeline}:w{workers}");
        clean::<bf16>(&name("hopper_64x64x64_1_2_1"), [ROW, ROW, ROW], [m, n, k], true, 8);
        clean::<f16>(&name("hopper_128x64x64_2_3_1"), [COL, COL, COL], [m, n, k], false, 8);
    }
    clean::<bf16>("hopper_128x128x64_2_2_2:w6", [ROW, COL, ROW], [520, 264, 328], true, 8);
    // Three consumers; the second is stored in an even number of rounds, in which it needs no register to tell them apart.
    clean::<bf16>("hopper_192x64x64_3_2_1:w5", [ROW, ROW, ROW], [264, 136, 392], true, 4);
    clean::<bf16>("hopper_192x128x64_3_2_1:w5", [ROW, ROW, ROW], [264, 264, 264], false, 2);
    clean::<bf16>("hopper_64x64x64_1_2_1:w9", [ROW, ROW, ROW], [72, 72, 64], false, 8);
    clean::<bf16>("hopper_64x64x64_1_2_1:w3", [ROW, ROW, ROW], [136, 72, 0], true, 1);
}

#[test]
fn the_largest_pipelines_are_clean() {
    if !is_asked() {
        return;
    }
    for name in ["hopper_128x256x64_2_4_1", "hopper_128x256x64_2_4_2", "hopper_256x128x64_2_4_1"] {
        clean::<bf16>(name, [ROW, ROW, ROW], [264, 264, 392], false, 2);
    }
}

#[test]
fn parts_are_added_however_tiles_and_c_lie() {
    // By warpgroups that share the parts of a piece and by such that do not; tiles of more than 64 rows a warpgroup, of widths of 8, in clusters.
    let epilogue = Epilogue { bias: Some(Along::Columns), activation: Activation::Gelu };
    let random = &mut Random(12);
    for name in [
        "hopper_64x72x64_1_2_1:3",
        "hopper_256x64x64_2_2_1:2",
        "hopper_192x64x64_3_2_1x2:4",
        "hopper_64x128x64_1_2_2x2:11",
        "hopper_64x64x64_1_2_1_k2:9:s",
    ] {
        for &transposed in some(&[true, false]) {
            let lies = [false, true, transposed].map(|transposed| Lie { transposed, ..Lie::default() });
            let product = Product::<bf16>::new([2, 137, 202, 704], lies, random, (1.5, -0.5));
            let recipe = Recipe::named(name, Type::BF16).unwrap();
            product.by_recipe_at(&Device::interp(), recipe, Accuracy::Full);
            product.finished(epilogue, random).by_recipe_at(&Device::interp(), recipe, Accuracy::Full);
        }
    }
}

#[test]
fn three_consumers_store_fewer_columns_beside_a_long_end() {
    // 40 columns at a time of 80, and of 160, which they do not share evenly: they have no registers left for that.
    let epilogue = Epilogue { bias: Some(Along::Rows), activation: Activation::Gelu };
    let random = &mut Random(11);
    for name in ["hopper_192x80x64_3_2_1:s", "hopper_192x160x64_3_2_1:s", "hopper_192x160x64_3_2_1:s:w5"] {
        let lies = [Lie::default(); 3];
        let product = Product::<bf16>::new([1, 264, 264, 136], lies, random, (1.5, -0.5)).finished(epilogue, random);
        let recipe = Recipe::named(name, Type::BF16).unwrap();
        product.by_recipe_at(&Device::interp(), recipe, Accuracy::Full);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |pipeline: &str, ty: Type| {
        let pipeline: Pipeline = pipeline.parse().unwrap();
        matches!(Hopper::new(ty, pipeline).build(), Err(Error::KernelOption(_)))
    };
    for wrong in [
        "128x256x32_2_4_1",
        "128x256x64_2_8_1",
        "96x64x64_1_2_1",
        "128x272x64_2_2_1",
        "128x256x64_1_2_1",
        "64x64x64_1_1_1",
        "64x64x64_0_2_1",
        "256x64x64_4_2_1",
        "64x64x64_1_4000000000_1",
        "64x64x64_4000000000_2_1",
        "64x64x64_1_2_3",
        "64x64x64_1_2_8",
        "64x64x64_1_2_8x1",
        "64x64x64_1_2_4x4",
        "64x64x64_1_2_0x1",
        "64x64x64_1_2_1x0",
        "64x64x64_1_2_0",
        "64x64x64_1_2_65536x65536",
        "64x64x64_1_2_65536_k65536",
        "64x64x64_1_2_1_k0",
        "64x64x64_1_2_4_k4",
        "64x64x64_1_2_2x2_k4",
        "64x64x64_1_2_1x2_k8",
        "64x64x64_1_2_1_k3",
        "64x16x64_1_2_1_k4",
        "64x64x64_1_2_1_g0",
        "64x64x64_1_2_1_pp",
        "64x64x64_2_2_1_pp_k2",
        "128x256x64_2_2_1_pp",
    ] {
        assert!(refused(wrong, Type::BF16), "{wrong}");
    }
    assert!(!refused("128x256x64_2_4_1", Type::F16));
    assert!(!refused("128x192x64_2_4_2", Type::F16));
    assert!(!refused("128x256x64_2_4_2x2", Type::F16));
    assert!(refused("128x256x64_2_4_1", Type::F32));
    for (name, is_refused) in [
        ("64x72x64_1_2_1", false),
        ("64x72x64_1_2_2", false),
        ("64x72x64_1_2_1x4", false),
        // A stage of columns that do not lie along k has room for 256 of them.
        ("128x200x64_2_5_1", false),
        ("64x76x64_1_2_1", true),
        // Of nine times eight columns eight blocks cannot finish as many each.
        ("64x72x64_1_2_1_k8", true),
    ] {
        let orders = [ROW, COL, ROW];
        let built = Hopper { orders, ..Hopper::new(Type::F16, name.parse().unwrap()) }.build();
        assert_eq!(built.is_err(), is_refused, "{name}");
    }
    assert!("128x256_2_4".parse::<Pipeline>().is_err());
    assert!("64x64x64_1_2_1x2x2".parse::<Pipeline>().is_err());
    assert!("64x64x64_1_2_2_2".parse::<Pipeline>().is_err());
    assert!("64x64x64_1_2".parse::<Pipeline>().is_err());
    let many =
        Hopper { schedule: Schedule::Groups, ..Hopper::new(Type::F16, "64x64x64_1_2_65536_k65536".parse().unwrap()) };
    assert!(many.build().is_err());
    for name in ["64x64x64_1_2_1", "64x64x64_1_2_4", "64x64x64_1_2_2x2", "64x64x64_1_2_1x4_g16", "64x64x64_1_2_1_k2"] {
        assert_eq!(name.parse::<Pipeline>().unwrap().to_string(), name);
    }
    assert!("128x256x64_2_4_1_g".parse::<Pipeline>().is_err());
}
