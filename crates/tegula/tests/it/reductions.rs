//! Split-K reduction and stream-K fix-up kernels in the interpreter. All schedules, few and many
//! partial sums, small and wide C; few workers, many, and more than steps.

use tegula::element::Type;
use tegula::epilogue::Epilogue;
use tegula::interpret;
use tegula::{Matrix, Shape};
use tegula_interp::{Arg, Config, run};
use tegula_ir::{Order2d, check};
use tegula_kernels::{FixUp, ReductionSchedule, SplitKReduction};

const ALL: [ReductionSchedule; 3] =
    [ReductionSchedule::Prefetch4, ReductionSchedule::Prefetch8, ReductionSchedule::MultiThread];

#[test]
fn split_k_reduction_adds_every_partial_sum_once() {
    for (schedule, parts) in
        ALL.into_iter().flat_map(|schedule| [1, 2, 4, 5, 8, 9, 17, 40].map(|parts| (schedule, parts)))
    {
        for (rows, cols) in [(1, 1), (3, 70), (17, 32), (9, 33)] {
            let reduction =
                SplitKReduction { ty: Type::I32, order: Order2d::RowMajor, schedule, epilogue: Epilogue::NONE };
            let kernel = check(reduction.build().unwrap()).unwrap();
            let shape = Shape { batches: 2 * parts, rows, cols };
            let element = |part: usize, row: usize, col: usize| (part * 1_000_003 + row * 1009 + col * 7) as i32;
            let values = Matrix::from_shape_fn(shape, element).unwrap();
            let before =
                Matrix::from_shape_fn(Shape { batches: 2, ..shape }, |_, row, col| (row + col) as i32).unwrap();
            let (from, c) = (interpret::input(values.view()).unwrap(), interpret::in_out(before.view()).unwrap());
            let args = [Arg::from(&from), Arg::from(&c), Arg::scalar(3i32), Arg::scalar(-1i32)];
            let outcome = run(&kernel, &args, &Config::default()).unwrap();
            assert_eq!(outcome.error(), None, "{reduction:?}, {parts} parts of {rows}×{cols}");
            let total =
                |batch, row, col| (0..parts).map(|p| element(batch * parts + p, row, col)).fold(0, i32::wrapping_add);
            let expected = |b, r, c| i32::wrapping_sub(i32::wrapping_mul(3, total(b, r, c)), (r + c) as i32);
            let expected = Matrix::from_shape_fn(before.shape(), expected).unwrap();
            assert!(
                interpret::to_matrix::<i32>(&c).unwrap() == expected,
                "{reduction:?}, {parts} parts of {rows}×{cols}"
            );
        }
    }
}

#[test]
fn reduction_schedule_depends_on_partial_sums_and_elements() {
    // Partial sums, elements, chosen schedule, and load rounds of a thread.
    for (parts, elements, schedule, rounds) in [
        (2, 100, ReductionSchedule::Prefetch4, 1),
        (4, 1 << 20, ReductionSchedule::Prefetch4, 1),
        (8, 100, ReductionSchedule::Prefetch8, 1),
        (9, 1 << 20, ReductionSchedule::Prefetch8, 2),
        (9, 1 << 10, ReductionSchedule::MultiThread, 2),
        (9, 1 << 16, ReductionSchedule::MultiThread, 2),
        (9, (1 << 16) + 1, ReductionSchedule::Prefetch8, 2),
        (66, 128 * 128, ReductionSchedule::MultiThread, 4),
    ] {
        assert_eq!(
            (ReductionSchedule::of(parts, elements), schedule.rounds(parts)),
            (schedule, rounds),
            "{parts} of {elements}"
        );
    }
}

#[test]
fn fix_up_adds_every_partial_tile_once() {
    let cases = [(3, 2, 5), (5, 6, 3), (2, 3, 40), (7, 8, 1), (11, 1, 3), (64, 3, 5), (40, 21, 9)];
    for ((workers, tiles_per_matrix, steps), [tile_rows, tile_cols]) in
        cases.into_iter().flat_map(|case| [(case, [4, 4]), (case, [20, 70])])
    {
        // A row and a column of tiles, in each of two matrices.
        for horizontal in [true, false] {
            let (tiles, [tile_m, tile_n]) =
                (2 * tiles_per_matrix, if horizontal { [1, tiles_per_matrix] } else { [tiles_per_matrix, 1] });
            let remainder = tiles % workers;
            // First step of a worker's share of the steps of the remaining tiles.
            let start = |worker: usize| worker * remainder * steps / workers;
            // Partial tile of each worker, in the slots that its kernel writes. Other slots have
            // values that would show.
            let value = |slot: usize, row: usize, col: usize| (slot * 100_003 + row * 1009 + col * 7) as i32;
            let parts =
                Matrix::from_shape_fn(Shape { batches: 2 * workers, rows: tile_rows, cols: tile_cols }, value).unwrap();
            let shape = Shape { batches: 2, rows: tile_m * tile_rows - 1, cols: tile_n * tile_cols - 1 };
            let initial = |batch: usize, row: usize, col: usize| (batch + row + col) as i32;
            let c = interpret::in_out(Matrix::from_shape_fn(shape, initial).unwrap().view()).unwrap();
            let parts = interpret::input(parts.view()).unwrap();
            let fix_up = FixUp { ty: Type::I32, order: Order2d::RowMajor, epilogue: Epilogue::NONE };
            let kernel = check(fix_up.build().unwrap()).unwrap();
            let args = [Arg::from(&parts), Arg::from(&c), Arg::scalar(5i32), Arg::scalar(steps as u32)];
            assert_eq!(run(&kernel, &args, &Config::default()).unwrap().error(), None, "{workers} {tiles} {steps}");
            let expected = |batch: usize, row: usize, col: usize| {
                let tile = batch * tiles_per_matrix + row / tile_rows + col / tile_cols;
                let Some(tile) = tile.checked_sub(tiles - remainder) else { return initial(batch, row, col) };
                let contributors = (0..workers).filter(|w| (start(*w)..start(w + 1)).any(|step| step / steps == tile));
                let slot = |worker: usize| 2 * worker + usize::from(start(worker) < tile * steps);
                let total: i32 = contributors.map(|worker| value(slot(worker), row % tile_rows, col % tile_cols)).sum();
                total + 5 * initial(batch, row, col)
            };
            let expected = Matrix::from_shape_fn(shape, expected).unwrap();
            assert!(
                interpret::to_matrix::<i32>(&c).unwrap() == expected,
                "{workers} workers, {tiles} tiles of {steps} steps, {horizontal}"
            );
        }
    }
}
