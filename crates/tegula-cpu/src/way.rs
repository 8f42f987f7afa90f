//! How a product is made: what is copied, how it is cut, and for how many threads. Sizes and strides decide, never the values.
//!
//! Nothing here but [`Way::slices`] and [`Way::kc`] reaches the result's bits, and those do not depend on the number of threads.

use std::ops::Range;

use tegula_core::element::Scalar;

use super::caches::Caches;
use super::kernel::{Operand, Tiles};

/// Bytes from one row of B to the next from which on its rows fall into few sets of the first cache.
const NEAR: usize = 1024;
/// Columns of C with which most of the time goes to reading A.
const LONG_RUN_COLS: usize = 128;
/// Steps where B comes from memory: so few that its rows are read side by side.
const STREAMED_STEPS: usize = 32;
/// Rows that AMX multiplies in shorter runs of k.
const SHORT_RUN_ROWS: usize = 128;
/// Units of k of such a run: so few that B is packed along its rows.
const SHORT_RUN: usize = 8;
/// Columns of a part of a product of few rows, at least.
const STREAMED_COLS: usize = 256;
/// Multiply-adds that are worth another thread; fewer for Miri, which looks for races.
const WORTH_A_THREAD: usize = if cfg!(miri) { 1 << 7 } else { 1 << 20 };
/// Steps of k of a slice, at least, and slices at most.
const SLICES: (usize, usize) = (2048, 16);
/// Elements of C up to which a long k is summed in slices.
const SLICED: usize = 256 * 256;
/// Rows and columns of C that are summed at a time where they need memory of their own; multiples of all tiles.
const AT_A_TIME: usize = 3840;
/// Tasks for each thread: so many that none waits long for the last.
const TASKS: usize = 2;

/// How a product is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Steps of k between two visits to C.
    pub kc: usize,
    /// Whether A and B are packed.
    pub packed: [bool; 2],
    /// Runs of k that are summed apart, and then together in order.
    pub slices: usize,
    /// Whether sums are made in C itself.
    pub in_place: bool,
    /// Whether a few rows are summed over all of k, and then written to C.
    pub strips: bool,
    /// Rows and columns of C at a time.
    pub block: [usize; 2],
    /// Parts of a block, a task each: downwards and sideways.
    pub cut: [usize; 2],
    /// Whether all of B has been packed before, and is read so.
    pub panels: bool,
    /// Columns that a part has a multiple of.
    pub across: usize,
    /// Threads that are worth their while.
    pub threads: usize,
}

/// What decides.
#[derive(Clone, Copy)]
pub struct Question<S> {
    /// m, n and k, none of them 0.
    pub sizes: [usize; 3],
    /// alpha and beta.
    pub factors: [S; 2],
    /// From one row of A to the next, and from one k to the next.
    pub a: [isize; 2],
    /// From one column of B to the next, and from one k to the next.
    pub b: [isize; 2],
    /// From one column of C to the next.
    pub c_col: isize,
    /// Whether all of B has been packed before.
    pub panels: bool,
    /// Threads that there are.
    pub threads: usize,
}

/// Steps of k of each of so many slices, whole runs of KC; the last may have fewer.
pub fn slice_of(k: usize, slices: usize, kc: usize) -> usize {
    k.div_ceil(slices).next_multiple_of(kc)
}

impl Way {
    /// The way for a product.
    pub fn of<T: Operand>(tiles: &Tiles<T>, asked: &Question<T::Acc>) -> Way {
        let Question { sizes: [m, n, k], factors: [alpha, beta], a, b, c_col, panels, threads } = *asked;
        let [mr, nr] = tiles.block;
        let work = m.saturating_mul(n).saturating_mul(k);
        let threads = threads.min(work / WORTH_A_THREAD).max(1);

        let far = |stride: isize| stride.unsigned_abs().saturating_mul(size_of::<T>()) >= NEAR;
        let b_lies = tiles.lying.is_some() && (b[0] == 1 || n == 1);
        let small = work < tiles.small && (!far(b[1]) || k <= 64);
        let few = m <= tiles.few && n >= STREAMED_COLS;
        let narrow = n <= tiles.lanes / 2 || m == 1;
        let unpacked = b_lies && (few || narrow || small && !panels);
        // Rows of A that lie along k are read as they are; columns far apart would be on another page for every k.
        let along_k = a[1] == 1 && (tiles.whole || k.is_multiple_of(tiles.depth));
        let a_lies = unpacked || tiles.direct && (along_k || tiles.depth == 1 && (!far(a[1]) || n <= 2 * nr));
        let kc = match () {
            _ if unpacked && few => STREAMED_STEPS,
            _ if !unpacked && !panels && tiles.whole && m <= SHORT_RUN_ROWS => SHORT_RUN * tiles.unit * tiles.depth,
            // A's rows are better read in long pieces.
            _ if !panels && !tiles.whole && n <= LONG_RUN_COLS => 2 * tiles.kc,
            _ => tiles.kc,
        };

        let long = m.saturating_mul(n) <= SLICED && a_lies && !few;
        let slices = if long { (k / SLICES.0).clamp(1, SLICES.1) } else { 1 };
        // In whole runs of KC fewer may be enough, and none is empty.
        let slices = k.div_ceil(slice_of(k, slices, kc));
        let exact = alpha == T::Acc::ONE && beta == T::Acc::ZERO || T::Acc::TYPE.is_int();
        // A float sum of several runs of k is scaled as a whole, when it is complete: a part of it times alpha might overflow where the whole
        // does not.
        let in_place =
            slices == 1 && <T::Out as Scalar>::TYPE == T::Acc::TYPE && (exact || k <= kc) && (c_col == 1 || n == 1);

        if unpacked && in_place && threads == 1 {
            return Way {
                kc,
                packed: [false; 2],
                slices,
                in_place,
                strips: false,
                block: [m, n],
                cut: [1, 1],
                across: tiles.lanes,
                panels: false,
                threads,
            };
        }
        let at_a_time = |len: usize, needed: bool| if needed { len.min(AT_A_TIME) } else { len };
        let strips = !in_place && !unpacked && slices == 1 && k <= kc;
        let whole = !in_place && !strips;
        let block = [at_a_time(m, !a_lies || whole), at_a_time(n, whole)];
        // Pieces are multiples of tiles, or of vectors; there are more of them than threads, so that none waits long for the last.
        let units = [block[0].div_ceil(mr), block[1].div_ceil(tiles.lanes)];
        let tasks = match () {
            // Slices are tasks already.
            _ if threads == 1 || slices >= threads => 1,
            // Long pieces of B's rows lie on fewer pages.
            _ if few => threads,
            _ => TASKS * threads,
        };
        let least = if unpacked { STREAMED_COLS.div_ceil(tiles.lanes) } else { 2 * nr / tiles.lanes };
        // What is packed of B stays in the second cache while the rows of A go by.
        let most = if unpacked {
            usize::MAX
        } else {
            Caches::here().l2 / 2 / (tiles.steps(kc) * size_of::<T::Acc>() * tiles.lanes)
        };
        // As many for each thread as for the others.
        let shared = tasks.min(units[1] / least) / threads * threads;
        let wide = units[1].div_ceil(most.max(1)).next_multiple_of(threads.min(shared.max(1))).max(shared).max(1);
        let high = if wide < threads { tasks.div_ceil(wide).min(units[0]) } else { 1 };
        let cut = [high, wide];
        // Ragged tiles only at the end, if all parts are several tiles wide.
        let across = if !unpacked && (panels || block[1] >= 2 * nr * wide) { nr } else { tiles.lanes };
        Way {
            kc,
            packed: [!a_lies, !unpacked],
            slices,
            in_place,
            strips,
            block,
            cut,
            across,
            panels: panels && !unpacked,
            threads,
        }
    }

    /// Rows and columns of each block of C.
    pub fn blocks(&self, [m, n]: [usize; 2]) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let [rows, cols] = self.block;
        blocks(0..m, rows).flat_map(move |rows| blocks(0..n, cols).map(move |cols| (rows.clone(), cols)))
    }

    /// Whether one thread makes it in C, from factors as they lie.
    pub fn is_plain(&self) -> bool {
        self.in_place && self.packed == [false; 2] && self.cut == [1, 1]
    }

    /// Extents of what room is taken for: packed A, packed B of each thread, and sums. Only what allocates multiplies them.
    pub fn room<T: Operand>(&self, tiles: &Tiles<T>, [m, n, k]: [usize; 3]) -> [[usize; 3]; 3] {
        let steps = tiles.steps(k.min(self.kc));
        let [rows, cols] = [m.min(self.block[0]), n.min(self.block[1])];
        let high = if tiles.whole { rows.next_multiple_of(tiles.block[0]) } else { rows };
        let of_a = if self.packed[0] { [high, steps, 1] } else { [0; 3] };
        let of_b = if self.packed[1] { [self.lanes_of_worker(tiles, cols), steps, self.threads] } else { [0; 3] };
        let sums = match () {
            _ if self.in_place => [0; 3],
            _ if self.strips => [tiles.block[0], self.widest(tiles, cols), self.threads],
            _ => [rows, cols, self.slices],
        };
        [of_a, of_b, sums]
    }

    /// Lanes that a worker packs: its part of so many columns of B, and where tiles take whole rows of A that are not packed yet, these and the next.
    pub fn lanes_of_worker<T: Operand>(&self, tiles: &Tiles<T>, cols: usize) -> usize {
        let strips = if tiles.whole && !self.packed[0] { 2 * tiles.block[0] } else { 0 };
        let of_b = if self.panels { 0 } else { self.widest(tiles, cols) };
        of_b + strips
    }

    /// Columns of the widest part of so many, in whole vectors.
    pub fn widest<T: Operand>(&self, tiles: &Tiles<T>, cols: usize) -> usize {
        (cols.div_ceil(self.across).div_ceil(self.cut[1]) * self.across).min(cols.next_multiple_of(tiles.lanes))
    }
}

/// A range cut into pieces of `size`, the last perhaps smaller.
pub fn blocks(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(size).map(move |start| start..range.end.min(start + size))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums of an empty slice would be whatever their memory held.
    #[test]
    fn no_slice_is_empty() {
        for k in (1..200_000).step_by(397).chain([20_000]) {
            for isa in crate::Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let tiles = f32::tiles(isa);
                let asked = Question {
                    sizes: [8, 8, k],
                    factors: [1.0, 0.0],
                    a: [k as isize, 1],
                    b: [1, 8],
                    c_col: 1,
                    panels: false,
                    threads: 2,
                };
                let Way { slices, kc, .. } = Way::of::<f32>(&tiles, &asked);
                let each = slice_of(k, slices, kc);
                assert!((slices - 1) * each < k && k <= slices * each, "{isa} {k}: {slices} slices of {each}");
            }
        }
    }
}
