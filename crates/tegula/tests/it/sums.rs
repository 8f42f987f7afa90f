//! The kernels that add the parts of split sums, in the interpreter: all ways of adding, few and many parts, small and wide C; and those of tiles
//! that were shared, by few workers, by many, and by more than there are steps.

use tegula::element::Type;
use tegula::epilogue::Epilogue;
use tegula::interpret;
use tegula::{Matrix, Shape};
use tegula_interp::{Arg, Config, run};
use tegula_ir::{Order2d, check};
use tegula_kernels::{Adding, Mend, Sum};

const ALL: [Adding; 3] = [Adding::Few, Adding::More, Adding::Shared];

#[test]
fn every_part_is_added_once() {
    for (adding, parts) in ALL.into_iter().flat_map(|adding| [1, 2, 4, 5, 8, 9, 17, 40].map(|parts| (adding, parts))) {
        for (rows, cols) in [(1, 1), (3, 70), (17, 32), (9, 33)] {
            let sum = Sum { ty: Type::I32, order: Order2d::RowMajor, adding, epilogue: Epilogue::NONE };
            let kernel = check(sum.build().unwrap()).unwrap();
            let shape = Shape { batches: 2 * parts, rows, cols };
            let element = |part: usize, row: usize, col: usize| (part * 1_000_003 + row * 1009 + col * 7) as i32;
            let values = Matrix::from_shape_fn(shape, element).unwrap();
            let before =
                Matrix::from_shape_fn(Shape { batches: 2, ..shape }, |_, row, col| (row + col) as i32).unwrap();
            let (from, c) = (interpret::input(values.view()).unwrap(), interpret::in_out(before.view()).unwrap());
            let args = [Arg::from(&from), Arg::from(&c), Arg::scalar(3i32), Arg::scalar(-1i32)];
            let outcome = run(&kernel, &args, &Config::default()).unwrap();
            assert_eq!(outcome.error(), None, "{sum:?}, {parts} parts of {rows}×{cols}");
            let total =
                |batch, row, col| (0..parts).map(|p| element(batch * parts + p, row, col)).fold(0, i32::wrapping_add);
            let want = |b, r, c| i32::wrapping_sub(i32::wrapping_mul(3, total(b, r, c)), (r + c) as i32);
            let want = Matrix::from_shape_fn(before.shape(), want).unwrap();
            assert!(interpret::to_matrix::<i32>(&c).unwrap() == want, "{sum:?}, {parts} parts of {rows}×{cols}");
        }
    }
}

#[test]
fn large_products_have_a_thread_for_each_element() {
    // What is chosen for so many parts of so many elements, and how often a thread waits.
    for (parts, elements, adding, rounds) in [
        (2, 100, Adding::Few, 1),
        (4, 1 << 20, Adding::Few, 1),
        (8, 100, Adding::More, 1),
        (9, 1 << 20, Adding::More, 2),
        (9, 1 << 10, Adding::Shared, 2),
        (9, 1 << 16, Adding::Shared, 2),
        (9, (1 << 16) + 1, Adding::More, 2),
        (66, 128 * 128, Adding::Shared, 4),
    ] {
        assert_eq!((Adding::of(parts, elements), adding.rounds(parts)), (adding, rounds), "{parts} of {elements}");
    }
}

#[test]
fn every_share_of_a_tile_is_added_once() {
    let cases = [(3, 2, 5), (5, 6, 3), (2, 3, 40), (7, 8, 1), (11, 1, 3), (64, 3, 5), (40, 21, 9)];
    for ((workers, each, steps), [tile_rows, tile_cols]) in
        cases.into_iter().flat_map(|case| [(case, [4, 4]), (case, [20, 70])])
    {
        // A row of tiles, and a column, of each of two matrices.
        for across in [true, false] {
            let (tiles, [tile_m, tile_n]) = (2 * each, if across { [1, each] } else { [each, 1] });
            let left = tiles % workers;
            // Where a worker's share of the steps of all tiles that are left over starts.
            let start = |worker: usize| worker * left * steps / workers;
            // What each worker has of a tile, in the slots that its kernel writes; elsewhere what would be seen.
            let value = |slot: usize, row: usize, col: usize| (slot * 100_003 + row * 1009 + col * 7) as i32;
            let parts =
                Matrix::from_shape_fn(Shape { batches: 2 * workers, rows: tile_rows, cols: tile_cols }, value).unwrap();
            let shape = Shape { batches: 2, rows: tile_m * tile_rows - 1, cols: tile_n * tile_cols - 1 };
            let old = |batch: usize, row: usize, col: usize| (batch + row + col) as i32;
            let c = interpret::in_out(Matrix::from_shape_fn(shape, old).unwrap().view()).unwrap();
            let parts = interpret::input(parts.view()).unwrap();
            let mend = Mend { ty: Type::I32, order: Order2d::RowMajor, epilogue: Epilogue::NONE };
            let kernel = check(mend.build().unwrap()).unwrap();
            let args = [Arg::from(&parts), Arg::from(&c), Arg::scalar(5i32), Arg::scalar(steps as u32)];
            assert_eq!(run(&kernel, &args, &Config::default()).unwrap().error(), None, "{workers} {tiles} {steps}");
            let want = |batch: usize, row: usize, col: usize| {
                let tile = batch * each + row / tile_rows + col / tile_cols;
                let Some(tile) = tile.checked_sub(tiles - left) else { return old(batch, row, col) };
                let sharing = (0..workers).filter(|w| (start(*w)..start(w + 1)).any(|step| step / steps == tile));
                let slot = |worker: usize| 2 * worker + usize::from(start(worker) < tile * steps);
                let sum: i32 = sharing.map(|worker| value(slot(worker), row % tile_rows, col % tile_cols)).sum();
                sum + 5 * old(batch, row, col)
            };
            let want = Matrix::from_shape_fn(shape, want).unwrap();
            assert!(
                interpret::to_matrix::<i32>(&c).unwrap() == want,
                "{workers} workers, {tiles} tiles of {steps} steps, {across}"
            );
        }
    }
}
