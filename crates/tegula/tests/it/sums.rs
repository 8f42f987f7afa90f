//! The kernels that add the parts of split sums, in the interpreter: all ways of adding, few and many parts, small and wide C; and those of tiles
//! that were shared, by few workers, by many, and by more than there are steps.

use tegula::element::Type;
use tegula::epilogue::Epilogue;
use tegula::interp::{Arg, Buffer, Config, run};
use tegula::ir::{Order2d, check};
use tegula::kernels::{Adding, Mend, Sum};
use tegula::{Matrix, Shape};

const ALL: [Adding; 3] = [Adding::Few, Adding::More, Adding::Shared];

#[test]
fn every_part_is_added_once() {
    for (adding, parts) in ALL.into_iter().flat_map(|adding| [1, 2, 4, 5, 8, 9, 17, 40].map(|parts| (adding, parts))) {
        for (rows, cols) in [(1, 1), (3, 70), (17, 32), (9, 33)] {
            let sum = Sum { ty: Type::I32, order: Order2d::RowMajor, adding, epilogue: Epilogue::NONE };
            let kernel = check(sum.build().unwrap()).unwrap();
            let shape = Shape { batches: 2 * parts, rows, cols };
            let element = |part: usize, row: usize, col: usize| (part * 1_000_003 + row * 1009 + col * 7) as i32;
            let values = Matrix::from_fn(shape, element).unwrap();
            let before = Matrix::from_fn(Shape { batches: 2, ..shape }, |_, row, col| (row + col) as i32).unwrap();
            let (from, c) = (Buffer::input(values.view()).unwrap(), Buffer::in_out(before.view()).unwrap());
            let args = [Arg::from(&from), Arg::from(&c), Arg::scalar(3i32), Arg::scalar(-1i32)];
            let outcome = run(&kernel, &args, &Config::default()).unwrap();
            assert_eq!(outcome.error(), None, "{sum:?}, {parts} parts of {rows}×{cols}");
            let total =
                |batch, row, col| (0..parts).map(|p| element(batch * parts + p, row, col)).fold(0, i32::wrapping_add);
            let want = |b, r, c| i32::wrapping_sub(i32::wrapping_mul(3, total(b, r, c)), (r + c) as i32);
            let want = Matrix::from_fn(before.shape(), want).unwrap();
            assert!(c.to_matrix::<i32>().unwrap() == want, "{sum:?}, {parts} parts of {rows}×{cols}");
        }
    }
}

#[test]
fn a_thread_waits_as_often_as_is_said() {
    // What is chosen for so many parts of so many elements, and its rounds.
    for (parts, elements, adding, rounds) in [
        (2, 100, Adding::Few, 1),
        (4, 1 << 20, Adding::Few, 1),
        (8, 100, Adding::More, 1),
        (9, 1 << 20, Adding::More, 2),
        (9, 1 << 10, Adding::Shared, 2),
        (66, 128 * 128, Adding::Shared, 4),
    ] {
        assert_eq!((Adding::of(parts, elements), adding.rounds(parts)), (adding, rounds), "{parts} of {elements}");
    }
}

#[test]
fn every_share_of_a_tile_is_added_once() {
    const TILE: usize = 4;
    for (workers, tiles, steps) in [(3, 4, 5), (5, 7, 3), (2, 3, 40), (7, 8, 1), (11, 2, 3), (64, 3, 5), (40, 41, 9)] {
        let left = tiles % workers;
        let units = left * steps;
        // Where a worker's share of the steps of all tiles that are left over starts.
        let start = |worker: usize| worker * units / workers;
        // What each worker has of a tile, in the slots that its kernel writes; elsewhere what would be seen.
        let value = |slot: usize, row: usize, col: usize| (slot * 1009 + row * 31 + col * 7) as i32;
        let shape = Shape { batches: 2 * workers, rows: TILE, cols: TILE };
        let (rows, cols) = (3, tiles * TILE - 1);
        let parts = Matrix::from_fn(shape, value).unwrap();
        let before = Matrix::from_fn(Shape::new(rows, cols), |_, row, col| (row + col) as i32).unwrap();
        let (parts, c) = (Buffer::input(parts.view()).unwrap(), Buffer::in_out(before.view()).unwrap());
        let mend = Mend { ty: Type::I32, order: Order2d::RowMajor, epilogue: Epilogue::NONE };
        let kernel = check(mend.build().unwrap()).unwrap();
        let args = [Arg::from(&parts), Arg::from(&c), Arg::scalar(5i32), Arg::scalar(steps as u32)];
        assert_eq!(run(&kernel, &args, &Config::default()).unwrap().error(), None, "{workers} {tiles} {steps}");
        let want = |_, row: usize, col: usize| {
            let before = (row + col) as i32;
            let Some(tile) = (col / TILE).checked_sub(tiles - left) else { return before };
            let of_tile = |unit: usize| unit / steps == tile;
            let sharing = (0..workers).filter(|worker| (start(*worker)..start(worker + 1)).any(of_tile));
            let slot = |worker: usize| 2 * worker + usize::from(start(worker) < tile * steps);
            sharing.map(|worker| value(slot(worker), row, col % TILE)).sum::<i32>() + 5 * before
        };
        let want = Matrix::from_fn(before.shape(), want).unwrap();
        assert!(c.to_matrix::<i32>().unwrap() == want, "{workers} workers, {tiles} tiles of {steps} steps");
    }
}
