//! Hopper pipelines in the interpreter: correct for any shape, layout and split. No schedule has
//! findings, with several tiles per block, reused stages and ragged edges.

use tegula::element::{Scalar, Type, bf16, f16};
use tegula::epilogue::{Activation, BiasShape, Epilogue};
use tegula::{Accuracy, Device, Error, Layout, Shape};
use tegula_interp::{Buffer, Config, Severity};
use tegula_ir::launch::DeviceProperties;
use tegula_ir::{Order2d, check};
use tegula_kernels::plan::{OperandLayout, Operands, Recipe, Split, Workspace};
use tegula_kernels::{Hopper, Pipeline, Schedule};

use super::covering;
use super::effort::{full, is_full_run, seeds, some};
use super::product::{Product, Random, Sample, StorageLayout};

/// Small tiles, otherwise configured like the large pipelines.
const PIPELINES: [&str; 27] = [
    "hopper_64x64x64_consumers1_stages2",
    "hopper_64x128x64_consumers1_stages3",
    "hopper_128x64x64_consumers2_stages3",
    "hopper_128x128x64_consumers2_stages2_cluster2x1",
    "hopper_256x64x64_consumers2_stages3",
    "hopper_64x192x64_consumers1_stages2",
    "hopper_192x64x64_consumers3_stages2",
    "hopper_64x64x64_consumers1_stages2_clusterk2",
    "hopper_128x64x64_consumers2_stages2_clusterk4_raster2",
    "hopper_64x128x64_consumers1_stages2_clusterk8",
    "hopper_64x192x64_consumers1_stages2_cluster2x1",
    "hopper_64x64x64_consumers1_stages3_cluster2x1",
    "hopper_64x128x64_consumers1_stages2_cluster2x2",
    "hopper_128x192x64_consumers2_stages2_cluster2x2",
    "hopper_64x64x64_consumers1_stages3_cluster1x2",
    "hopper_192x64x64_consumers3_stages2_cluster1x4",
    "hopper_64x192x64_consumers1_stages2_cluster4x1",
    "hopper_64x64x64_consumers1_stages3_cluster2x4",
    "hopper_128x64x64_consumers2_stages2_cluster4x2",
    "hopper_64x64x64_consumers1_stages3_cluster1x2_clusterk2",
    "hopper_128x64x64_consumers2_stages2_cluster2x1_clusterk4",
    "hopper_64x128x64_consumers1_stages2_cluster2x2_clusterk2",
    "hopper_64x64x64_consumers2_stages3_pingpong",
    "hopper_128x72x64_consumers2_stages2_cluster2x1_pingpong",
    "hopper_128x168x64_consumers2_stages2_cluster1x2_pingpong",
    "hopper_64x64x64_consumers1_stages2_cluster4x1_clusterk2",
    "hopper_64x48x64_consumers1_stages2_cluster4x1_clusterk2",
];

/// Runs a random product with a random pipeline, split and packing.
pub fn random_product<T: Sample>(seed: u64, device: &Device) {
    let random = &mut Random(seed);
    let mut sizes = [1 + random.below(3) / 2, 1 + random.below(200), 1 + random.below(200), random.below(300)];
    if random.chance(2) {
        // Rows and columns that TMA supports.
        sizes[1..].iter_mut().for_each(|size| *size = size.next_multiple_of(8));
    }
    let mut product = Product::<T>::random(sizes, random);
    if random.chance(3) {
        let bias = [BiasShape::Row, BiasShape::Column][random.below(2)];
        let activation = [Activation::Relu, Activation::Gelu][random.below(2)];
        product = product.with_epilogue(Epilogue { bias: Some(bias), activation }, random);
    }
    let (swapped, packed) = (random.chance(2), [random.chance(4), random.chance(4)]);
    let kernel = Hopper::named(PIPELINES[random.below(PIPELINES.len())], T::TYPE).unwrap();
    let split = match random.below(3) {
        0 => Split::SplitK(2 + random.below(4) as u32),
        1 if kernel.supports_stream_k() => Split::StreamK(1 + random.below(16) as u32),
        _ => Split::Whole,
    };
    product.run_recipe_at(device, Recipe { split, swapped, packed, ..kernel.into() }, Accuracy::Full);
}

#[test]
fn random_pipeline_products_are_correct() {
    for seed in 0..seeds(4, 24) {
        random_product::<bf16>(seed, &Device::interp());
        random_product::<f16>(1000 + seed, &Device::interp());
    }
}

/// Runs a product on two SMs, so that each block computes several tiles, with at most
/// `max_schedules` schedules.
fn check_schedules<T: Sample>(name: &str, orders: [Order2d; 3], [m, n, k]: [usize; 3], beta: bool, max_schedules: u64) {
    let layout = |order| StorageLayout { transposed: order == Order2d::ColMajor, ..StorageLayout::default() };
    let scalars = (T::Acc::ONE, if beta { T::Acc::ONE } else { T::Acc::ZERO });
    let product = Product::<T>::new([1, m, n, k], orders.map(layout), &mut Random(7), scalars);
    // TMA stores C if its rows are whole units of 16 bytes, or its columns.
    let [a, b, c] = orders;
    let is_aligned = if c == Order2d::ColMajor { m } else { n }.is_multiple_of(8);
    let operand_layouts =
        [(a, true), (b, true), (c, is_aligned)].map(|(order, aligned)| OperandLayout::new(order, aligned));
    let recipe = Recipe::named(name, T::TYPE).unwrap();
    let layouts = [Shape::new(m, k), Shape::new(k, n), Shape::new(m, n)].map(|shape| Layout::row_major(shape).unwrap());
    let launches = recipe.launches(&Operands { layouts, operand_layouts, epilogue: Epilogue::NONE }).unwrap();
    let kernel = check(launches.gemm().kernel.build().unwrap()).unwrap();
    for seed in 0..seeds(1, max_schedules) {
        let config = Config { seed, device: DeviceProperties { multiprocessors: 2 }, ..Config::default() };
        let workspace = |workspace: &Workspace| match workspace.zeroed {
            true => Buffer::zeros(workspace.ty, workspace.layout).unwrap(),
            false => Buffer::output(workspace.ty, workspace.layout).unwrap(),
        };
        let workspaces: Vec<_> = launches.workspaces.iter().map(workspace).collect();
        let (outcome, c) = product.run_with(&kernel, &workspaces, &config);
        if let [.., flags] = &*workspaces {
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
/// Storage orders of A and B.
const LAYOUTS: [(Order2d, Order2d); 4] = [(ROW, ROW), (ROW, COL), (COL, ROW), (COL, COL)];

#[test]
fn pipelines_have_no_findings_on_every_seed() {
    // Every layout, more tiles than blocks, stages reused several times, ragged edges in m, n and
    // k.
    for &(a, b) in some(&LAYOUTS) {
        check_schedules::<bf16>("hopper_64x64x64_consumers1_stages2", [a, b, ROW], [136, 200, 200], false, 8);
        check_schedules::<bf16>("hopper_128x64x64_consumers2_stages3", [a, b, COL], [200, 136, 264], false, 8);
        check_schedules::<f16>(
            "hopper_128x128x64_consumers2_stages2_cluster2x1",
            [a, b, ROW],
            [520, 136, 200],
            false,
            8,
        );
        check_schedules::<f16>("hopper_128x64x64_consumers2_stages2_clusterk2", [a, b, ROW], [264, 136, 392], false, 8);
    }
}

#[test]
fn clusters_with_multicast_b_have_no_findings() {
    // A column-major B is multicast by swizzle-wide pieces, by halves of them, or both.
    for &(a, b) in some(&LAYOUTS) {
        check_schedules::<f16>(
            "hopper_64x192x64_consumers1_stages2_cluster2x1",
            [a, b, ROW],
            [136, 200, 136],
            false,
            32,
        );
        check_schedules::<f16>("hopper_64x64x64_consumers1_stages3_cluster2x1", [a, b, COL], [200, 72, 264], true, 32);
        check_schedules::<f16>("hopper_64x64x64_consumers1_stages3_cluster4x1", [a, b, ROW], [264, 72, 264], true, 8);
    }
}

#[test]
fn clusters_with_multicast_a_have_no_findings() {
    for &(a, b) in some(&LAYOUTS) {
        check_schedules::<f16>("hopper_64x128x64_consumers1_stages2_cluster1x2", [a, b, ROW], [72, 392, 136], true, 32);
        check_schedules::<f16>(
            "hopper_192x64x64_consumers3_stages3_cluster1x4",
            [a, b, COL],
            [264, 264, 264],
            false,
            8,
        );
    }
}

#[test]
fn clusters_with_multicast_a_and_b_have_no_findings() {
    for &(a, b) in some(&LAYOUTS) {
        check_schedules::<f16>(
            "hopper_64x128x64_consumers1_stages2_cluster2x2",
            [a, b, ROW],
            [136, 264, 136],
            true,
            32,
        );
        check_schedules::<f16>("hopper_128x64x64_consumers2_stages3_cluster2x2", [a, b, COL], [264, 72, 264], false, 8);
        check_schedules::<f16>("hopper_64x64x64_consumers1_stages2_cluster2x4", [a, b, ROW], [136, 264, 200], true, 4);
        check_schedules::<f16>("hopper_64x64x64_consumers1_stages2_cluster4x2", [a, b, COL], [264, 136, 200], false, 4);
        // The blocks alternate in loading a right operand along k. The number of stages differs
        // from that of the blocks, or is no multiple of it.
        check_schedules::<bf16>("hopper_64x72x64_consumers1_stages3_cluster2x1", [a, b, ROW], [200, 136, 456], true, 8);
        check_schedules::<bf16>("hopper_64x88x64_consumers1_stages5_cluster4x1", [a, b, COL], [264, 80, 584], false, 4);
    }
}

#[test]
#[ignore = "long; .ci/run runs it"]
fn clusters_that_split_k_with_multicast_have_no_findings() {
    for &(a, b) in some(&LAYOUTS) {
        check_schedules::<f16>(
            "hopper_64x64x64_consumers1_stages2_cluster1x2_clusterk2",
            [a, b, ROW],
            [72, 136, 328],
            true,
            8,
        );
        check_schedules::<f16>(
            "hopper_128x64x64_consumers2_stages2_cluster2x1_clusterk4",
            [a, b, COL],
            [264, 72, 584],
            false,
            2,
        );
        check_schedules::<f16>(
            "hopper_64x128x64_consumers1_stages2_cluster2x2_clusterk2",
            [a, b, ROW],
            [136, 264, 264],
            false,
            2,
        );
    }
    // Only some blocks of the cluster have steps along k.
    check_schedules::<bf16>(
        "hopper_64x64x64_consumers1_stages2_cluster1x2_clusterk4",
        [ROW, COL, ROW],
        [136, 136, 136],
        true,
        32,
    );
    check_schedules::<bf16>(
        "hopper_64x96x64_consumers1_stages3_cluster2x1_clusterk4",
        [ROW, COL, COL],
        [136, 200, 392],
        true,
        2,
    );
}

#[test]
fn ping_pong_pipelines_have_no_findings_on_every_seed() {
    for &(a, b) in some(&LAYOUTS) {
        // Tiles with fewer steps than stages, equally many, and more; an odd number of tiles; one
        // tile, so that a consumer has none.
        check_schedules::<bf16>("hopper_64x64x64_consumers2_stages4_pingpong", [a, b, ROW], [264, 200, 136], true, 32);
        check_schedules::<f16>("hopper_128x64x64_consumers2_stages2_pingpong", [a, b, COL], [264, 136, 328], false, 8);
        check_schedules::<bf16>("hopper_64x72x64_consumers3_stages3_pingpong", [a, b, ROW], [328, 168, 200], false, 8);
        check_schedules::<bf16>("hopper_64x64x64_consumers2_stages3_pingpong", [a, b, COL], [56, 64, 72], true, 4);
        check_schedules::<f16>(
            "hopper_64x64x64_consumers2_stages3_cluster2x2_pingpong",
            [a, b, ROW],
            [520, 264, 264],
            true,
            4,
        );
        check_schedules::<f16>(
            "hopper_64x72x64_consumers2_stages3_cluster4x1_pingpong",
            [a, b, ROW],
            [520, 136, 264],
            true,
            4,
        );
    }
    check_schedules::<bf16>("hopper_64x64x64_consumers2_stages2_pingpong", [ROW, COL, ROW], [264, 136, 0], true, 4);
    check_schedules::<bf16>("hopper_64x256x64_consumers2_stages2_pingpong", [ROW, COL, ROW], [264, 520, 136], true, 4);
    check_schedules::<bf16>("hopper_128x128x64_consumers2_stages2_pingpong", [ROW, ROW, ROW], [392, 264, 136], true, 4);
    // One staging tile for each consumer, stored by TMA and by elements.
    for n in [360, 361] {
        let (name, orders) = ("hopper_128x176x64_consumers2_stages2_pingpong", [ROW, COL, ROW]);
        check_schedules::<bf16>(name, orders, [392, n, 72], false, 4);
    }
}

/// The parameter values of a pipeline and its product.
struct Sweep;

impl Sweep {
    const ROWS: [u32; 4] = [64, 128, 192, 256];
    /// C is stored in steps of 8, 16, 24, 32, 40, 48, 56 or 64 columns.
    const COLS: [u32; 10] = [16, 24, 64, 72, 80, 96, 112, 136, 192, 256];
    const CONSUMERS: [u32; 3] = [1, 2, 3];
    const STAGES: [u32; 4] = [2, 3, 4, 5];
    const CLUSTERS: [[u32; 2]; 8] = [[1, 1], [2, 1], [1, 2], [2, 2], [4, 1], [1, 4], [2, 4], [4, 2]];
    const SPLITS: [u32; 4] = [1, 2, 4, 8];
    const GROUPS: [u32; 2] = [1, 2];
    const SIZES: [[usize; 3]; 5] = [[264, 200, 136], [72, 264, 392], [136, 168, 264], [200, 72, 328], [24, 40, 264]];

    /// Number of values of each parameter: eight of the pipeline, the schedule, six of the product,
    /// and whether copies are clipped.
    const LEVELS: [usize; 16] = [4, 10, 3, 2, 4, 8, 4, 2, 2, 2, 2, 2, 2, 2, 5, 2];

    fn hopper(row: &[usize]) -> Hopper {
        let pipeline = Pipeline {
            tile: [Self::ROWS[row[0]], Self::COLS[row[1]], 64],
            consumers: Self::CONSUMERS[row[2]],
            ping_pong: row[3] == 1,
            stages: Self::STAGES[row[4]],
            cluster: Self::CLUSTERS[row[5]],
            cluster_k: Self::SPLITS[row[6]],
            clipped: row[15] == 1,
            group_m: Self::GROUPS[row[7]],
        };
        let order = |column_major: usize| if column_major == 1 { COL } else { ROW };
        let schedule = if row[8] == 1 { Schedule::StreamK } else { Schedule::DataParallel };
        let orders = [row[9], row[10], row[11]].map(order);
        Hopper { orders, schedule, ..Hopper::new(if row[12] == 1 { Type::F16 } else { Type::BF16 }, pipeline) }
    }

    /// Whether stages and partial sums leave shared memory for tiles of C.
    fn is_valid(row: &[usize]) -> bool {
        let hopper = Self::hopper(row);
        let [rows, cols, depth] = hopper.pipeline.tile;
        let staged_cols = if hopper.orders[1] == COL { cols } else { cols.next_multiple_of(64) };
        let stages = hopper.pipeline.stages * (rows + staged_cols) * depth * 2;
        let accumulators = if hopper.pipeline.cluster_k > 1 { rows * cols * 4 } else { 0 };
        let c_buffers = hopper.pipeline.consumers * (16 << 10);
        hopper.validate().is_ok() && stages + accumulators + c_buffers <= 226 << 10
    }

    /// Multiply-adds, in whole tiles and clusters.
    fn cost(row: &[usize]) -> u64 {
        let (Pipeline { tile: [rows, cols, depth], cluster, cluster_k, .. }, [m, n, k]) =
            (Self::hopper(row).pipeline, Self::SIZES[row[14]].map(|extent| extent as u64));
        let whole = |extent: u64, tile: u32| extent.next_multiple_of(tile.into());
        whole(m, rows * cluster[0]) * whole(n, cols * cluster[1]) * whole(k, depth * cluster_k)
    }
}

/// Every parameter value. The full run has every pair of values, in a covering array, and
/// more seeds.
#[test]
fn pipelines_of_every_parameter_have_no_findings() {
    let pairs = covering::pairs(&Sweep::LEVELS, Sweep::is_valid, Sweep::cost);
    let rows = if full() { pairs } else { covering::each_value(pairs, 1) };
    println!("{} pipelines", rows.len());
    for row in rows {
        let hopper = Sweep::hopper(&row);
        let workers = if hopper.schedule == Schedule::StreamK { ":w5" } else { "" };
        let name = format!("{}{workers}", hopper.short_name());
        let (sizes, beta) = (Sweep::SIZES[row[14]], row[13] == 1);
        match hopper.ty {
            Type::F16 => check_schedules::<f16>(&name, hopper.orders, sizes, beta, 4),
            _ => check_schedules::<bf16>(&name, hopper.orders, sizes, beta, 4),
        }
    }
}

#[test]
fn pipelines_of_every_listed_shape_have_no_findings() {
    if !is_full_run() {
        return;
    }
    for name in PIPELINES {
        check_schedules::<bf16>(name, [ROW, COL, ROW], [264, 200, 136], true, 4);
        check_schedules::<f16>(name, [ROW, ROW, COL], [72, 264, 392], false, 4);
    }
}

#[test]
fn pipelines_of_every_listed_width_have_no_findings() {
    if !is_full_run() {
        return;
    }
    // C is stored in steps of 8, 16, 24, 32, 40, 48 and 56 columns.
    for name in [
        "hopper_64x16x64_consumers1_stages4",
        "hopper_128x32x64_consumers2_stages3",
        "hopper_64x16x64_consumers1_stages4_clusterk2",
        "hopper_64x16x64_consumers1_stages4_cluster2x1",
        "hopper_64x32x64_consumers1_stages3_cluster2x2",
        "hopper_64x72x64_consumers1_stages2",
        "hopper_64x24x64_consumers1_stages3_cluster1x2",
        "hopper_128x80x64_consumers2_stages2_cluster2x1",
        "hopper_192x96x64_consumers3_stages2_cluster1x4",
        "hopper_64x80x64_consumers1_stages2_cluster2x4",
        "hopper_64x72x64_consumers1_stages2_cluster4x1",
        "hopper_64x72x64_consumers1_stages3_cluster2x2",
        "hopper_64x72x64_consumers1_stages2_cluster4x2",
        "hopper_192x96x64_consumers3_stages2_cluster4x2",
        "hopper_64x112x64_consumers1_stages2",
        "hopper_64x136x64_consumers1_stages2",
    ] {
        check_schedules::<bf16>(name, [ROW, COL, ROW], [264, 168, 264], true, 4);
        check_schedules::<bf16>(name, [COL, COL, COL], [264, 168, 264], false, 4);
        check_schedules::<bf16>(name, [ROW, ROW, COL], [136, 168, 200], true, 4);
        check_schedules::<bf16>(name, [COL, ROW, ROW], [136, 168, 200], false, 2);
    }
    check_schedules::<bf16>("hopper_64x80x64_consumers1_stages2:w5", [ROW, COL, ROW], [136, 200, 392], true, 4);
    check_schedules::<bf16>("hopper_128x72x64_consumers2_stages2:w5", [ROW, COL, COL], [136, 200, 392], true, 4);
}

/// Matrices of fewer rows or columns than a tile, and copies of no more lines than the matrix.
#[test]
fn clipped_pipelines_have_no_findings() {
    // A has fewer rows than a tile, B fewer columns, both, and neither; an operand that is not
    // contiguous along k is copied whole.
    for (name, orders, sizes) in [
        ("64x72x64_consumers1_stages3_clipped", [ROW, COL, ROW], [3, 200, 200]),
        ("64x16x64_consumers1_stages4_clusterk2_clipped", [ROW, COL, COL], [136, 5, 392]),
        ("128x64x64_consumers2_stages3_clipped", [ROW, ROW, ROW], [20, 136, 200]),
        ("64x64x64_consumers2_stages3_pingpong_clipped", [ROW, COL, ROW], [9, 40, 136]),
        ("64x64x64_consumers1_stages2_clipped:w5", [COL, COL, COL], [200, 1, 264]),
        ("192x64x64_consumers3_stages2_clipped", [ROW, COL, COL], [200, 72, 136]),
    ] {
        check_schedules::<bf16>(&format!("hopper_{name}"), orders, sizes, true, 8);
    }
}

#[test]
#[ignore = "long; .ci/run runs it"]
fn stream_k_pipelines_have_no_findings() {
    // Fewer tiles than workers, some of which are idle; one tile for all workers; several waves
    // with a remainder; several waves without one.
    for (workers, [m, n, k]) in [(5, [136, 136, 392]), (7, [64, 64, 264]), (3, [264, 200, 200]), (4, [256, 128, 136])] {
        let name = |pipeline: &str| format!("{pipeline}:w{workers}");
        check_schedules::<bf16>(&name("hopper_64x64x64_consumers1_stages2"), [ROW, ROW, ROW], [m, n, k], true, 8);
        check_schedules::<f16>(&name("hopper_128x64x64_consumers2_stages3"), [COL, COL, COL], [m, n, k], false, 8);
    }
    check_schedules::<bf16>(
        "hopper_128x128x64_consumers2_stages2_cluster2x1:w6",
        [ROW, COL, ROW],
        [520, 264, 328],
        true,
        8,
    );
    // Three consumers. The second kernel stores in an even number of rounds, which needs no
    // register for the parity.
    check_schedules::<bf16>("hopper_192x64x64_consumers3_stages2:w5", [ROW, ROW, ROW], [264, 136, 392], true, 4);
    check_schedules::<bf16>("hopper_192x128x64_consumers3_stages2:w5", [ROW, ROW, ROW], [264, 264, 264], false, 2);
    check_schedules::<bf16>("hopper_64x64x64_consumers1_stages2:w9", [ROW, ROW, ROW], [72, 72, 64], false, 8);
    check_schedules::<bf16>("hopper_64x64x64_consumers1_stages2:w3", [ROW, ROW, ROW], [136, 72, 0], true, 1);
}

#[test]
fn largest_pipelines_have_no_findings() {
    if !is_full_run() {
        return;
    }
    for name in [
        "hopper_128x256x64_consumers2_stages4",
        "hopper_128x256x64_consumers2_stages4_cluster2x1",
        "hopper_256x128x64_consumers2_stages4",
    ] {
        check_schedules::<bf16>(name, [ROW, ROW, ROW], [264, 264, 392], false, 2);
    }
}

#[test]
#[ignore = "long; .ci/run runs it"]
fn split_k_reduction_of_any_tile_and_layout_is_correct() {
    // Warpgroups that share the partial sums of a piece, and ones that do not; more than 64 rows
    // per warpgroup, widths that are multiples of 8, clusters.
    let epilogue = Epilogue { bias: Some(BiasShape::Column), activation: Activation::Gelu };
    let random = &mut Random(12);
    let mut is_plain = false;
    for name in [
        "hopper_64x72x64_consumers1_stages2:3",
        "hopper_256x64x64_consumers2_stages2:2",
        "hopper_192x64x64_consumers3_stages2_cluster1x2:4",
        "hopper_64x128x64_consumers1_stages2_cluster2x2:11",
        "hopper_64x64x64_consumers1_stages2_clusterk2:9:s",
    ] {
        for &transposed in some(&[true, false]) {
            // The quick run alternates between products with and without an epilogue.
            is_plain = !is_plain;
            let layouts =
                [false, true, transposed].map(|transposed| StorageLayout { transposed, ..StorageLayout::default() });
            let product = Product::<bf16>::new([2, 137, 202, 704], layouts, random, (1.5, -0.5));
            let recipe = Recipe::named(name, Type::BF16).unwrap();
            if full() || is_plain {
                product.run_recipe_at(&Device::interp(), recipe, Accuracy::Full);
            }
            if full() || !is_plain {
                product.with_epilogue(epilogue, random).run_recipe_at(&Device::interp(), recipe, Accuracy::Full);
            }
        }
    }
}

#[test]
fn three_consumers_with_a_long_epilogue_are_correct() {
    // C is stored 40 columns at a time, of 80 and of 160. The consumers do not share these evenly,
    // since the registers do not suffice for that.
    let epilogue = Epilogue { bias: Some(BiasShape::Row), activation: Activation::Gelu };
    let random = &mut Random(11);
    for name in [
        "hopper_192x80x64_consumers3_stages2:s",
        "hopper_192x160x64_consumers3_stages2:s",
        "hopper_192x160x64_consumers3_stages2:s:w5",
    ] {
        let layouts = [StorageLayout::default(); 3];
        let product =
            Product::<bf16>::new([1, 264, 264, 136], layouts, random, (1.5, -0.5)).with_epilogue(epilogue, random);
        let recipe = Recipe::named(name, Type::BF16).unwrap();
        product.run_recipe_at(&Device::interp(), recipe, Accuracy::Full);
    }
}

#[test]
fn invalid_pipelines_are_errors() {
    let is_invalid = |pipeline: &str, ty: Type| {
        let pipeline: Pipeline = pipeline.parse().unwrap();
        matches!(Hopper::new(ty, pipeline).build(), Err(Error::KernelOption(_)))
    };
    for invalid in [
        "128x256x32_consumers2_stages4",
        "128x256x64_consumers2_stages8",
        "96x64x64_consumers1_stages2",
        "128x272x64_consumers2_stages2",
        "128x256x64_consumers1_stages2",
        "64x64x64_consumers1_stages1",
        "64x64x64_consumers0_stages2",
        "256x64x64_consumers4_stages2",
        "64x64x64_consumers1_stages4000000000",
        "64x64x64_consumers4000000000_stages2",
        "64x64x64_consumers1_stages2_cluster3x1",
        "64x64x64_consumers1_stages2_cluster8x1",
        "64x64x64_consumers1_stages2_cluster4x4",
        "64x64x64_consumers1_stages2_cluster0x1",
        "64x64x64_consumers1_stages2_cluster1x0",
        "64x64x64_consumers1_stages2_cluster65536x65536",
        "64x64x64_consumers1_stages2_cluster65536x1_clusterk65536",
        "64x64x64_consumers1_stages2_clusterk0",
        "64x64x64_consumers1_stages2_cluster4x1_clusterk4",
        "64x64x64_consumers1_stages2_cluster2x2_clusterk4",
        "64x64x64_consumers1_stages2_cluster1x2_clusterk8",
        "64x64x64_consumers1_stages2_clusterk3",
        "64x16x64_consumers1_stages2_clusterk4",
        "64x64x64_consumers1_stages2_raster0",
        "64x64x64_consumers1_stages2_pingpong",
        "64x64x64_consumers2_stages2_pingpong_clusterk2",
        "128x256x64_consumers2_stages2_pingpong",
    ] {
        assert!(is_invalid(invalid, Type::BF16), "{invalid}");
    }
    assert!(!is_invalid("128x256x64_consumers2_stages4", Type::F16));
    assert!(!is_invalid("128x192x64_consumers2_stages4_cluster2x1", Type::F16));
    assert!(!is_invalid("128x256x64_consumers2_stages4_cluster2x2", Type::F16));
    assert!(is_invalid("128x256x64_consumers2_stages4", Type::F32));
    for (name, is_error) in [
        ("64x72x64_consumers1_stages2", false),
        ("64x72x64_consumers1_stages2_cluster2x1", false),
        ("64x72x64_consumers1_stages2_cluster1x4", false),
        // A stage with a B not contiguous along k holds 256 columns.
        ("128x200x64_consumers2_stages5", false),
        ("64x76x64_consumers1_stages2", true),
        // 72 columns are nine groups of eight, which eight blocks cannot share evenly.
        ("64x72x64_consumers1_stages2_clusterk8", true),
    ] {
        let orders = [ROW, COL, ROW];
        let built = Hopper { orders, ..Hopper::new(Type::F16, name.parse().unwrap()) }.build();
        assert_eq!(built.is_err(), is_error, "{name}");
    }
    assert!("128x256_consumers2_stages4".parse::<Pipeline>().is_err());
    assert!("64x64x64_consumers1_stages2_cluster1x2x2".parse::<Pipeline>().is_err());
    assert!("64x64x64_consumers1_stages2_cluster2x1_2".parse::<Pipeline>().is_err());
    assert!("64x64x64_consumers1".parse::<Pipeline>().is_err());
    let grouped = Hopper {
        schedule: Schedule::Grouped,
        ..Hopper::new(Type::F16, "64x64x64_consumers1_stages2_cluster65536x1_clusterk65536".parse().unwrap())
    };
    assert!(grouped.build().is_err());
    for name in [
        "64x64x64_consumers1_stages2",
        "64x64x64_consumers1_stages2_cluster4x1",
        "64x64x64_consumers1_stages2_cluster2x2",
        "64x64x64_consumers1_stages2_cluster1x4_raster16",
        "64x64x64_consumers1_stages2_clusterk2",
    ] {
        assert_eq!(name.parse::<Pipeline>().unwrap().to_string(), name);
    }
    assert!("128x256x64_consumers2_stages4_raster".parse::<Pipeline>().is_err());
}
