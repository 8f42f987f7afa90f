//! The grid of a product: how threads share a block of C, by a cost model.
//!
//! A block of C is split into macro tiles, a grid of rows and columns, and threads claim tiles. The
//! model predicts the time of a grid in cycles of a core: of micro-kernels with their partial
//! micro-tiles, of reading A and B from the shared cache, of packing, of starting and joining
//! threads, and of waiting for the last tile. Its constants are fitted to the times of all grids of
//! 56 products on 16 cores, those of threads to empty jobs, those of sharing and of unpacked B to
//! 15 products on 1, 4 and 16 threads, and those of shared lines and of the first rows to products
//! on two threads of a Zen 4 (`benchmarks/NOTES.md`). They are rough: grids that matter differ by
//! more than they do.
//!
//! No grid affects the bits of the result.

use std::cell::RefCell;

use super::caches::Sharing;

/// Cycles to start a job and to join it, with workers that spin. Where they are parked, the caller
/// does not wait for those that come late, and takes about as long as alone.
const START: usize = if cfg!(miri) { 0 } else { 4000 };
/// The part that each thread adds.
const START_PER_THREAD: usize = if cfg!(miri) { 0 } else { 500 };
/// Cycles of a barrier between packing and multiplying, for each pair of threads up to so many, and
/// then in proportion to their number. An empty phase takes less: here the slowest thread is waited
/// for, and panels are written that others hold from the last call.
const BARRIER_PER_PAIR: usize = if cfg!(miri) { 0 } else { 1000 };
const PAIRED_THREADS: usize = 16;
/// Bytes per cycle that a core reads from the caches of other cores.
const SHARED_BYTES: usize = 8;
/// Bytes per cycle that a core packs.
const PACKED_BYTES: usize = 6;
/// The same where the first rows pack, by the time that they take beyond that of other rows.
const FIRST_ROWS_BYTES: usize = 8;
/// Rows of unpacked B that are at least so many bytes apart fall into few sets of the L1 cache.
pub const CONFLICT_BYTES: usize = 1024;
/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Cycles of a micro-tile besides its multiplications.
const TILE_OVERHEAD: usize = 40;
/// Cycles to claim a macro tile, and to begin it.
const CLAIM: usize = if cfg!(miri) { 0 } else { 300 };
/// A thread waits for this part of a tile at the end of a phase, for each doubling of the threads:
/// cores differ in speed, and the slowest of many differs most.
const UNEVEN: usize = 12;
/// Bytes of C of a macro tile that packs panel after panel, in sizes of the L2 cache.
pub const C_L2: usize = 4;
/// Tiles per thread that are tried.
const TILES_PER_THREAD: [usize; 4] = [1, 2, 4, 8];

/// A block of C that threads are to share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridProblem {
    /// Rows and columns of the block, and packed values along k.
    pub sizes: [usize; 3],
    /// MR and NR.
    pub tile: [usize; 2],
    /// The columns of a macro tile are a multiple of this.
    pub col_unit: usize,
    /// Packed values along k between two updates of C.
    pub kc: usize,
    /// Bytes of a packed value.
    pub value_bytes: usize,
    /// Packed values that a core multiplies in a cycle.
    pub rate: usize,
    /// Whether A is to be packed: by each macro tile for itself if there is one column of them,
    /// else by all threads before. False where the micro-kernel reads padded A.
    pub pack_a: bool,
    /// Whether B is to be packed, and whether threads may share its panels.
    pub pack_b: bool,
    pub may_share: bool,
    /// Whether a macro tile packs panel after panel of B while its first rows multiply them.
    pub first_rows_pack: bool,
    /// Bytes from a row of unpacked B to the next; 0 for packed B.
    pub b_row_bytes: usize,
    /// Bytes of the L2 cache.
    pub l2: usize,
    /// Costs of data that several threads use.
    pub sharing: Sharing,
    /// Available threads.
    pub threads: usize,
}

/// How threads share a block of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Threads that take part.
    pub threads: usize,
    /// Macro tiles, along rows and along columns.
    pub tiles: [usize; 2],
    /// Whether B is packed once for all threads, instead of by each tile for itself.
    pub shared_b: bool,
}

impl Grid {
    /// The grid of the least predicted time. It is remembered, since the search takes as long as a
    /// small product.
    pub fn choose(problem: &GridProblem) -> Grid {
        let search = || Grid::search(problem);
        RECENT.with_borrow_mut(|recent| recent.get(problem, search))
    }

    /// The predicted cycles of a product in its best grid.
    pub fn best_cycles(problem: &GridProblem) -> usize {
        problem.cycles(&Grid::choose(problem))
    }

    fn search(problem: &GridProblem) -> Grid {
        let alone = problem.alone();
        let (mut best, mut time) = (alone, problem.cycles(&alone));
        let mut threads = problem.threads;
        while threads > 1 {
            if problem.least_cycles(threads) >= time {
                threads = fewer(threads);
                continue;
            }
            let (grid, cycles) = problem.best_with(threads);
            // Fewer threads only save time while the work is small.
            if best.threads > threads && cycles > time {
                break;
            }
            if cycles < time {
                (best, time) = (grid, cycles);
            }
            threads = fewer(threads);
        }
        best
    }
}

/// Grids that a thread remembers.
const MAX_RECENT: usize = 16;

thread_local! {
    static RECENT: RefCell<Recent> = const { RefCell::new(Recent { grids: [None; MAX_RECENT], oldest: 0 }) };
}

/// The grids of the last problems, in a ring.
struct Recent {
    grids: [Option<(GridProblem, Grid)>; MAX_RECENT],
    oldest: usize,
}

impl Recent {
    /// The grid of a problem: remembered, or searched for.
    fn get(&mut self, problem: &GridProblem, search: impl Fn() -> Grid) -> Grid {
        if let Some((_, grid)) = self.grids.iter().flatten().find(|(of, _)| of == problem) {
            return *grid;
        }
        let grid = search();
        self.grids[self.oldest] = Some((*problem, grid));
        self.oldest = (self.oldest + 1) % MAX_RECENT;
        grid
    }
}

/// The next smaller number of threads that is tried.
fn fewer(threads: usize) -> usize {
    threads.div_ceil(2).min(threads - 1)
}

impl GridProblem {
    /// The grid of one thread.
    fn alone(&self) -> Grid {
        Grid { threads: 1, tiles: [1, self.min_col_tiles()], shared_b: false }
    }

    /// The best grid for a number of threads, with its time.
    fn best_with(&self, threads: usize) -> (Grid, usize) {
        let [max_rows, max_cols] = self.units();
        let mut best = (self.alone(), usize::MAX);
        let min_cols = self.min_col_tiles();
        for tiles in TILES_PER_THREAD.map(|each| each * threads) {
            // For each number of rows the most columns: about 2·√tiles grids.
            let mut cols = 1;
            while cols <= tiles {
                let rows = tiles / cols;
                cols = tiles / rows;
                for shared_b in [false, true] {
                    let tiles = [rows.min(max_rows), cols.clamp(min_cols, max_cols.max(min_cols))];
                    let grid = Grid { threads, tiles, shared_b };
                    if !shared_b || self.pack_b && self.may_share && tiles[0] > 1 {
                        let cycles = self.cycles(&grid);
                        best = if cycles < best.1 { (grid, cycles) } else { best };
                    }
                }
                cols += 1;
            }
            if tiles >= max_rows * max_cols {
                break;
            }
        }
        best
    }

    /// Units of MR rows, and of columns.
    fn units(&self) -> [usize; 2] {
        [self.sizes[0].div_ceil(self.tile[0]), self.sizes[1].div_ceil(self.col_unit)]
    }

    /// The minimum number of column tiles for which packed panels fit in half of the L2 cache. The
    /// other half is for micro-panels of A.
    ///
    /// A macro tile that holds one panel at a time may be wider, while its C, which every step of k
    /// adds to, is not much larger than the cache.
    fn min_col_tiles(&self) -> usize {
        let unit = self.kc.min(self.sizes[2]) * self.value_bytes * self.col_unit;
        let c_unit = self.sizes[0].saturating_mul(self.value_bytes * self.col_unit);
        let of_c = if self.first_rows_pack { C_L2 * self.l2 / c_unit.max(1) } else { 0 };
        self.units()[1].div_ceil((self.l2 / 2 / unit.max(1)).max(of_c).max(1))
    }

    /// A lower bound of the predicted time of any grid for several threads.
    fn least_cycles(&self, threads: usize) -> usize {
        let [row_units, col_units] = self.units();
        let multiplications = row_units.saturating_mul(self.micro_panel(col_units * self.col_unit));
        (multiplications / threads).saturating_add(START + START_PER_THREAD * threads)
    }

    /// The predicted time of a grid.
    fn cycles(&self, grid: &Grid) -> usize {
        let [.., k] = self.sizes;
        let Grid { threads, tiles: [row_tiles, col_tiles], shared_b } = *grid;
        let [row_units, col_units] = self.units();
        let (row_units, cols) = (row_units.div_ceil(row_tiles), col_units.div_ceil(col_tiles) * self.col_unit);
        let bytes = k.saturating_mul(self.value_bytes);
        let b_bytes = cols.saturating_mul(bytes);
        let mut tile = row_units.saturating_mul(self.micro_panel(cols)).saturating_add(CLAIM);
        let (rows, side_by_side) = (row_units * self.tile[0], threads > 1 && col_tiles > 1);
        // All threads have packed A, unless each macro tile packs its own rows.
        let rate = if self.pack_a && side_by_side { self.sharing.written_rate } else { SHARED_BYTES };
        tile = tile.saturating_add(rows.saturating_mul(bytes) / rate);
        if side_by_side {
            // Macro tiles side by side share a line in each row of C.
            tile = tile.saturating_add(rows.saturating_mul(self.sharing.line));
        }
        if self.pack_b && !shared_b {
            let rate = if self.first_rows_pack { FIRST_ROWS_BYTES } else { PACKED_BYTES };
            tile = tile.saturating_add(b_bytes / rate);
        }
        let tiles = (row_tiles * col_tiles).div_ceil(threads);
        let mut cycles = tile.saturating_mul(tiles);
        if shared_b || !self.pack_b {
            // The tiles of a thread are one below the other, so their columns of B stay in its
            // cache, if they fit.
            let reads = if b_bytes <= self.l2 / 2 { tiles.div_ceil(row_tiles) } else { tiles };
            let rate = if shared_b { self.sharing.written_rate } else { SHARED_BYTES };
            cycles = cycles.saturating_add(b_bytes.saturating_mul(reads) / rate);
        }
        if shared_b {
            cycles = cycles.saturating_add(b_bytes.saturating_mul(col_tiles) / threads / PACKED_BYTES);
        }
        if shared_b || self.pack_a && side_by_side {
            cycles = cycles.saturating_add(BARRIER_PER_PAIR * threads * threads.min(PAIRED_THREADS) / 2);
        }
        if threads > 1 {
            let wait = tile.saturating_mul(threads.ilog2() as usize) / UNEVEN;
            cycles = cycles.saturating_add(wait + START + START_PER_THREAD * threads);
        }
        cycles
    }

    /// Cycles of MR rows of a macro tile: LOOP 1 over all of k.
    fn micro_panel(&self, cols: usize) -> usize {
        let ([.., k], [mr, nr]) = (self.sizes, self.tile);
        let (whole, rest) = (cols / nr, cols % nr);
        // A narrow micro-tile takes as long as its loads of A.
        let of_width = |width: usize| k.saturating_mul((mr * width).max((mr + 1) * self.rate / 2)) / self.rate;
        let overhead = k.div_ceil(self.kc.max(1)) * TILE_OVERHEAD;
        let cycles =
            whole.saturating_mul(of_width(nr) + overhead) + if rest > 0 { of_width(rest) + overhead } else { 0 };
        // Micro-tiles read rows that conflict from the L2 cache each time, and those on pages of
        // their own without a prefetch.
        match self.b_row_bytes {
            0..CONFLICT_BYTES => cycles,
            CONFLICT_BYTES..=PAGE => cycles.saturating_add(cycles / 8),
            _ => cycles.saturating_add(cycles / 3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F32: GridProblem = GridProblem {
        sizes: [1024; 3],
        tile: [8, 48],
        col_unit: 16,
        kc: 256,
        value_bytes: 4,
        rate: 32,
        pack_a: false,
        pack_b: true,
        may_share: true,
        first_rows_pack: false,
        b_row_bytes: 0,
        l2: 2 << 20,
        sharing: Sharing::INTEL,
        threads: 16,
    };

    fn choose(sizes: [usize; 3], threads: usize) -> Grid {
        Grid::choose(&GridProblem { sizes, threads, ..F32 })
    }

    #[test]
    fn grid_of_a_square_product_is_nearly_square() {
        for (size, threads) in [(512, 16), (1024, 16), (2048, 16), (1024, 4), (4096, 64)] {
            let Grid { threads: used, tiles: [rows, cols], .. } = choose([size; 3], threads);
            assert_eq!(used, threads, "{size}");
            assert!(rows <= 8 * cols && cols <= 4 * rows, "{size}: {rows}×{cols}");
            assert!(rows * cols >= threads, "{size}: {rows}×{cols}");
        }
    }

    #[test]
    fn small_products_use_few_threads() {
        assert_eq!(choose([48; 3], 16).threads, 1);
        assert!(choose([64; 3], 16).threads <= 4, "{:?}", choose([64; 3], 16));
        assert!((2..16).contains(&choose([96; 3], 16).threads), "{:?}", choose([96; 3], 16));
        assert_eq!(choose([256; 3], 16).threads, 16);
        assert_eq!(choose([4096; 3], 1), Grid { threads: 1, tiles: [1, 4], shared_b: false });
    }

    #[test]
    fn tiles_of_skinny_products_split_the_long_side() {
        let Grid { tiles: [rows, cols], .. } = choose([4096, 64, 4096], 16);
        assert!(rows >= 16 && cols <= 2, "{rows}×{cols}");
        let Grid { tiles: [rows, cols], .. } = choose([40, 4096, 4096], 16);
        assert!(rows <= 2 && cols >= 8, "{rows}×{cols}");
    }

    /// A thread packs its own columns where few macro tiles need them. Threads share panels where
    /// each is read by many.
    #[test]
    fn panels_are_shared_where_many_tiles_read_them() {
        let amx = GridProblem { tile: [32; 2], col_unit: 32, kc: 128, rate: 256, ..F32 };
        let cases = [(amx, [100, 1000, 1008]), (amx, [512, 512, 256]), (F32, [40, 4096, 4096])];
        for (problem, sizes) in cases {
            let problem = GridProblem { sizes, ..problem };
            assert!(!Grid::choose(&problem).shared_b, "{problem:?}");
        }
        assert!(choose([4096, 64, 4096], 16).shared_b);
        assert!(choose([1024; 3], 16).shared_b);
        // Waiting for all threads takes longer than packing.
        assert!(!choose([512; 3], 16).shared_b);
    }

    #[test]
    fn remembered_grid_is_that_of_its_problem() {
        let tall = GridProblem { tile: [6, 64], pack_b: false, ..F32 };
        for _ in 0..2 {
            for (problem, threads) in [(F32, 16), (tall, 16), (F32, 3), (GridProblem { col_unit: 48, ..F32 }, 16)] {
                for sizes in [[256; 3], [128, 1024, 128], [100, 100, 1000]] {
                    let problem = GridProblem { sizes, threads, ..problem };
                    assert_eq!(Grid::choose(&problem), Grid::search(&problem), "{problem:?}");
                }
            }
        }
    }

    /// The bound that ends a search early never hides a better grid.
    #[test]
    fn no_grid_is_predicted_to_be_faster_than_the_bound() {
        for size in [[128; 3], [100, 1000, 1008], [1, 1, 1], [9, 4000, 3], [7000, 17, 5], [2048; 3]] {
            for threads in [2, 3, 16, 64] {
                let packed = GridProblem { sizes: size, threads, ..F32 };
                let unpacked = |b_row_bytes| GridProblem { tile: [6, 64], pack_b: false, b_row_bytes, ..packed };
                for problem in [packed, unpacked(256), unpacked(PAGE), unpacked(1 << 20)] {
                    let (grid, cycles) = problem.best_with(threads);
                    assert!(problem.least_cycles(threads) <= cycles, "{problem:?} {grid:?}");
                }
            }
        }
    }

    /// More tiles than units would be empty; wider ones would not fit the L2 cache.
    #[test]
    fn grids_of_any_size_are_within_their_limits() {
        for size in [[1, 1, 1], [8, 16, 1 << 20], [9, 4000, 3], [70_000, 17, 5], [usize::MAX >> 8, 1, 1]] {
            for threads in [1, 2, 3, 7, 16, 64, 200] {
                let problem = GridProblem { sizes: size, threads, ..F32 };
                let (grid, [rows, cols]) = (Grid::choose(&problem), problem.units());
                assert!(grid.threads <= threads && grid.tiles[0] <= rows && grid.tiles[1] <= cols, "{grid:?}");
                assert!(grid.tiles[1] >= problem.min_col_tiles());
            }
        }
    }
}
