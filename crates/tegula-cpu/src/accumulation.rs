//! How the sums of a product accumulate: KC, slices, and which operands are read unpacked. Sizes,
//! strides and the CPU decide, never values.

use tegula_core::element::Scalar;

use super::caches::{Caches, LINE};
use super::grid::{CONFLICT_BYTES, Grid, PAGE};
use super::micro_kernel::{CpuElement, FirstRows, MicroKernel, WHOLE_ROWS, columns_side_by_side};
use super::problem::{BlockingProblem, first_rows, grid_problem, justified_threads, work};
use super::scratch::MAX_FREE_BYTES;
use super::unpacked::BReads;

/// Row stride of B in bytes up to which its rows are as close as in a packed panel. On one thread
/// packing still pays for a long k.
const DENSE_STRIDE: usize = 256;
/// Columns of C up to which reading A takes most of the time.
const LONG_KC_COLS: usize = 128;
/// Where C is narrower than its accumulators, k of up to so many times KC is one step of most
/// packed products. On a Zen 4 those of bf16 and f16 of 256 rows and more take 2 to 7 percent less
/// time, and those of fewer rows between 1 less and 2.5 more.
const WHOLE_KC: usize = 4;
/// KC where B is streamed from memory: few enough steps to read its rows side by side.
const STREAMED_KC: usize = 32;
/// The same where the next rows are prefetched: more steps update C less often.
const PREFETCHED_KC: usize = 192;
/// Rows up to which AMX uses a shorter KC.
const SHORT_KC_ROWS: usize = 128;
/// The shorter KC in k units: few enough that packing reads along the rows of B.
const SHORT_KC_UNITS: usize = 8;
/// Least steps of k in a split-K slice.
const MIN_SLICE_STEPS: usize = 2048;
/// Most split-K slices.
const MAX_SLICES: usize = 16;
/// Most elements of C for which a long k is split into slices.
const SLICED_ELEMENTS: usize = 256 * 256;
/// The same where columns of B are read whole.
const SLICED_COLUMNS: usize = 256;
/// Most slices of few rows: enough that fast threads take more of them.
const MAX_SKINNY_SLICES: usize = 64;
/// Bytes of a row of B that a slice of few rows reads at once. Threads that share the columns
/// instead would read pieces of a few cache lines, each from another page, which the processor
/// does not fetch ahead.
const SLICED_ROW: usize = 4096;
/// Least steps of k of such a slice, and for each row of A: adding the slices takes a small part of
/// the time of reading B.
const MIN_SKINNY_STEPS: usize = 128;
const SKINNY_STEPS_PER_ROW: usize = 16;
/// Least multiply-adds of such a slice, and of a macro tile of one.
pub const MIN_SKINNY_WORK: usize = 1 << 19;
/// Multiply-adds below which several threads read both operands unpacked, if rows of B are less
/// than a page and not half a page apart: these stay in the cache of each thread. Rows that are
/// half a page apart fall into few sets of the L1 cache.
const CACHED_WORK: usize = 1 << 26;
/// Columns from which several rows of A read whole rows of B.
const WHOLE_ROWS_COLS: usize = 1024;
/// Least columns of a product with few rows that reads B once, and of a macro tile of it.
pub const STREAMED_COLS: usize = 256;

/// How the sums of a product accumulate: all that decides its bits, and whether it needs a plan.
/// What is packed may depend on the number of threads; KC, slices and `in_place` never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accumulation {
    /// Steps of k between two updates of C.
    pub kc: usize,
    /// Split-K slices, whose partial sums are added in order.
    pub slices: usize,
    /// Whether C itself holds the accumulators.
    pub in_place: bool,
    /// Whether A and B are packed.
    pub packed: [bool; 2],
    /// Whether C has few rows, so that B is read once.
    pub skinny: bool,
    /// How unpacked B is read.
    pub b_reads: BReads,
    /// The micro-tile with which the first rows of a macro tile may pack B.
    pub first_rows: Option<FirstRows>,
    /// Whether one thread computes the product in place from unpacked operands, without blocks,
    /// workspaces or tasks: they take longer than a product of a microsecond.
    pub unblocked: bool,
}

/// Largest m, n and k of a small product: one step of k, one slice, too little work for a plan for
/// several threads, and rows of B in the L1 cache at any stride.
pub const SMALL_EXTENT: usize = 64;

/// Whether a small product, if the columns of B are contiguous, reads it unpacked. The micro-kernel
/// and the sizes decide, as in [`Accumulation::new`].
#[inline]
pub fn is_small_unpacked<T: CpuElement>(kernel: &MicroKernel<T>, sizes @ [m, ..]: [usize; 3]) -> bool {
    kernel.select_unpacked.is_some() && work(sizes) < kernel.unpacked_work(m)
}

/// Steps of k in each of `slices` slices, a multiple of KC; the last slice may have fewer.
pub fn slice_len(k: usize, slices: usize, kc: usize) -> usize {
    k.div_ceil(slices).next_multiple_of(kc)
}

/// The slices of a product with few rows: a power of two.
fn skinny_slices<T: CpuElement>(sizes @ [m, n, k]: [usize; 3]) -> usize {
    let bytes = |rows: usize, size: usize| rows.saturating_mul(n).saturating_mul(size);
    let most = [
        MAX_SKINNY_SLICES / (bytes(1, size_of::<T>()) / SLICED_ROW).max(1),
        k / MIN_SKINNY_STEPS.max(SKINNY_STEPS_PER_ROW * m),
        work(sizes) / MIN_SKINNY_WORK,
        // A thread keeps a buffer of so many for the next product.
        MAX_FREE_BYTES / bytes(m, size_of::<T::Acc>()),
    ];
    1 << most.into_iter().fold(MAX_SKINNY_SLICES, usize::min).max(1).ilog2()
}

/// Whether few rows of A, and columns of B, are contiguous along k, so that the micro-kernels read
/// them whole.
#[inline]
pub fn reads_whole_columns<T: CpuElement>(
    kernel: &MicroKernel<T>,
    sizes @ [_, n, k]: [usize; 3],
    a_strides: [isize; 2],
    b_strides: [isize; 2],
) -> bool {
    // Short columns of a small product are transposed on the stack before lanes would be added.
    let is_long = n > SMALL_EXTENT || k >= 2 * kernel.vector_len;
    b_strides[1] == 1
        && (b_strides[0] != 1 || n == 1)
        && a_strides[1] == 1
        && kernel.whole_columns.is_some_and(|whole| is_long && whole.suits::<T>(sizes))
}

/// The slices of a product by [whole columns](BReads::WholeColumns): threads share the columns, and
/// only few columns are sliced.
fn column_slices(sizes @ [m, n, k]: [usize; 3]) -> usize {
    match m.saturating_mul(n) {
        ..=SLICED_COLUMNS => (k / MIN_SLICE_STEPS).min(work(sizes) / MIN_SKINNY_WORK).clamp(1, MAX_SLICES),
        _ => 1,
    }
}

impl Accumulation {
    /// Chooses the accumulation of a product.
    #[inline(always)]
    pub fn new<T: CpuElement>(kernel: &MicroKernel<T>, problem: &BlockingProblem<T::Acc>) -> Accumulation {
        let BlockingProblem { sizes: [_, n, k], scalars: [alpha, beta], c_col, .. } = *problem;
        let reads = Reads::new(kernel, problem);
        let b_reads = reads.b_reads(kernel, problem);
        let kc = reads.kc(kernel, problem, b_reads);
        let slices = reads.slices::<T>(problem, kc);
        let unpacked = reads.always_unpacked || reads.gains_unpacked(kernel, problem, [kc, slices]);
        let exact = alpha == T::Acc::ONE && beta == T::Acc::ZERO || T::Acc::TYPE.is_int();
        // A float accumulator over several KC steps is scaled once, when complete: alpha times a
        // partial sum might overflow where the whole does not.
        let in_place =
            slices == 1 && <T::Out as Scalar>::TYPE == T::Acc::TYPE && (exact || k <= kc) && (c_col == 1 || n == 1);
        let unblocked = unpacked && in_place && justified_threads::<T>(problem) == 1;
        let packed = [!(unpacked || reads.a_readable), !unpacked];
        let Reads { skinny, first_rows, .. } = reads;
        Accumulation { kc, slices, in_place, packed, skinny, b_reads, first_rows, unblocked }
    }
}

/// How the operands of a product may be read.
struct Reads {
    /// Whether the order of accumulation must not depend on m or on strides, and matters.
    fixed_order: bool,
    /// Whether A, and whether B, may be read unpacked.
    a_readable: bool,
    b_readable: bool,
    /// [`Accumulation::skinny`].
    skinny: bool,
    /// [`Accumulation::first_rows`].
    first_rows: Option<FirstRows>,
    /// Whether B is read by whole columns.
    whole_columns: bool,
    /// Whether both are read unpacked on any number of threads: KC and slices depend on it, and so
    /// do the bits.
    always_unpacked: bool,
}

/// Whether elements of type `T` so far apart fall into few sets of the L1 cache.
fn conflicts<T>(stride: isize) -> bool {
    stride.unsigned_abs().saturating_mul(size_of::<T>()) >= CONFLICT_BYTES
}

impl Reads {
    #[inline(always)]
    fn new<T: CpuElement>(kernel: &MicroKernel<T>, problem: &BlockingProblem<T::Acc>) -> Reads {
        let BlockingProblem { sizes: [m, n, k], a, b, prepacked, .. } = *problem;
        let [_, nr] = kernel.tile;
        let b_readable = kernel.select_unpacked.is_some() && (b[0] == 1 || n == 1);
        let small = work(problem.sizes) < kernel.unpacked_work(m) && (!conflicts::<T>(b[1]) || k <= 64);
        let skinny = m <= kernel.skinny_rows && n >= STREAMED_COLS;
        let narrow = n <= kernel.vector_len / 2 || m == 1;
        // Only floats round. The unpacked micro-kernels beside AMX round in another order than it.
        let fixed_order = problem.batch_invariant && !T::Acc::TYPE.is_int();
        // Rows of A contiguous along k are read unpacked. Distant columns would touch another page
        // at every k.
        let a_along_k = || a[1] == 1 && (kernel.padded_a || k.is_multiple_of(kernel.k_pack));
        let a_readable =
            kernel.direct_a && (a_along_k() || kernel.k_pack == 1 && (!conflicts::<T>(a[1]) || n <= 2 * nr));
        // Few rows of a strided A are read unpacked, since packed A is not sliced.
        let first_rows = first_rows(kernel, problem).filter(|_| a_readable || !skinny);
        // Panels of bytes, which have no bits to lose, are better than interleaving rows of B.
        let streamed = skinny && first_rows.is_none() && !(prepacked && kernel.compensation.is_some());
        let whole_columns = !fixed_order && reads_whole_columns(kernel, problem.sizes, a, b);
        let by_rows = b_readable && (streamed || narrow || small && !prepacked) && !(fixed_order && kernel.padded_a);
        let always_unpacked = whole_columns || by_rows;
        Reads { fixed_order, a_readable, b_readable, skinny, first_rows, whole_columns, always_unpacked }
    }

    #[inline(always)]
    fn b_reads<T: CpuElement>(&self, kernel: &MicroKernel<T>, problem: &BlockingProblem<T::Acc>) -> BReads {
        let [m, n, _] = problem.sizes;
        // Micro-tiles of several rows are as fast where rows of B are short.
        let has_long_rows = m == 1 || n >= WHOLE_ROWS_COLS;
        match kernel.whole_rows {
            _ if self.whole_columns => BReads::WholeColumns(columns_side_by_side::<T>(problem.sizes)),
            _ if !(self.always_unpacked && self.skinny) => BReads::Direct,
            Some(_) if m <= WHOLE_ROWS && has_long_rows && !self.fixed_order => BReads::WholeRows,
            _ if Caches::detect().need_prefetch => BReads::Prefetched,
            _ => BReads::Direct,
        }
    }

    /// Steps of k between two updates of C.
    #[inline(always)]
    fn kc<T: CpuElement>(&self, kernel: &MicroKernel<T>, problem: &BlockingProblem<T::Acc>, b_reads: BReads) -> usize {
        let BlockingProblem { sizes: [m, n, k], prepacked, .. } = *problem;
        let prefetched = b_reads == BReads::Prefetched;
        let is_packed = !(self.always_unpacked || prepacked);
        match () {
            _ if self.fixed_order => kernel.kc,
            _ if self.whole_columns => k.div_ceil(column_slices(problem.sizes)).next_multiple_of(LINE),
            _ if prefetched && kernel.first_rows.is_some() => PREFETCHED_KC,
            _ if prefetched && (m > 1 || kernel.compensation.is_some()) => 4 * STREAMED_KC,
            _ if self.always_unpacked && self.skinny => STREAMED_KC,
            _ if is_packed && kernel.padded_a && m <= SHORT_KC_ROWS => SHORT_KC_UNITS * kernel.k_unit * kernel.k_pack,
            // Rows of A are better read in long pieces.
            _ if !prepacked && !kernel.padded_a && n <= LONG_KC_COLS => 2 * kernel.kc,
            _ if is_packed && takes_whole_k(kernel, problem.sizes) => WHOLE_KC * kernel.kc,
            _ => kernel.kc,
        }
    }

    /// Split-K slices.
    #[inline(always)]
    fn slices<T: CpuElement>(&self, problem: &BlockingProblem<T::Acc>, kc: usize) -> usize {
        let [m, n, k] = problem.sizes;
        let long_k = k >= 2 * MIN_SLICE_STEPS && m.saturating_mul(n) <= SLICED_ELEMENTS;
        let slices = match () {
            _ if self.fixed_order || !(self.always_unpacked || self.a_readable) => 1,
            _ if self.whole_columns => column_slices(problem.sizes),
            _ if (self.always_unpacked || self.first_rows.is_some()) && self.skinny => {
                skinny_slices::<T>(problem.sizes)
            }
            _ if long_k => (k / MIN_SLICE_STEPS).min(MAX_SLICES),
            _ => 1,
        };
        // Rounded up to whole KC steps, fewer slices may cover k; none may be empty.
        if slices > 1 { k.div_ceil(slice_len(k, slices, kc)) } else { 1 }
    }

    /// Whether a product that may be packed is faster unpacked. Its bits are the same.
    #[inline(always)]
    fn gains_unpacked<T: CpuElement>(
        &self,
        kernel: &MicroKernel<T>,
        problem: &BlockingProblem<T::Acc>,
        [kc, slices]: [usize; 2],
    ) -> bool {
        let BlockingProblem { sizes: [m, n, k], scalars: [alpha, _], b, prepacked, .. } = *problem;
        let decided = self.always_unpacked || prepacked || self.first_rows.is_some() && self.skinny;
        let is_empty = alpha == T::Acc::ZERO || k == 0;
        // Elements that packing would group take longer unpacked.
        if kernel.k_pack > 1 || !(self.a_readable && self.b_readable) || decided || is_empty {
            return false;
        }
        let b_row_bytes = b[1].unsigned_abs().saturating_mul(size_of::<T>());
        let cycles =
            |packs_b| Grid::best_cycles(&grid_problem(kernel, problem, [m, n], [kc, slices], [false, packs_b]));
        let one_pass = || m <= kernel.max_rows[kernel.unpacked_vectors(m, false) - 1];
        match justified_threads::<T>(problem) {
            // Packing takes as long as multiplying some tens of rows. Several passes read rows of B
            // on pages of their own slowly.
            1 if m <= kernel.skinny_rows && self.first_rows.is_none() => b_row_bytes <= PAGE || one_pass(),
            1 => b_row_bytes <= DENSE_STRIDE && k <= 2 * kernel.kc,
            _ if b_row_bytes <= PAGE && !b_row_bytes.is_multiple_of(PAGE / 2) && work(problem.sizes) < CACHED_WORK => {
                true
            }
            _ => cycles(false) < cycles(true),
        }
    }
}

/// Whether a packed product takes all of a longer k in one step: accumulators are then in registers
/// or in a row strip, and in a workspace as large as C otherwise.
fn takes_whole_k<T: CpuElement>(kernel: &MicroKernel<T>, [m, _, k]: [usize; 3]) -> bool {
    size_of::<T::Out>() < size_of::<T::Acc>()
        && (kernel.kc + 1..=WHOLE_KC * kernel.kc).contains(&k)
        && kernel.along_k.is_none_or(|along_k| m > along_k.max_rows)
        && !kernel.padded_a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few rows on one thread read B unpacked, unless several passes read pages of their own.
    #[test]
    fn few_rows_of_any_length_are_not_packed() {
        fn check<T: CpuElement>(sizes: [usize; 3], b_row: usize, packed: bool) {
            for isa in [crate::Isa::Avx2, crate::Isa::Avx512].into_iter().filter(|isa| isa.is_available()) {
                let problem = BlockingProblem {
                    sizes,
                    scalars: [T::Acc::ONE, T::Acc::ZERO],
                    a: [sizes[2] as isize, 1],
                    b: [1, b_row as isize],
                    c_col: 1,
                    prepacked: false,
                    threads: 1,
                    batch_invariant: false,
                };
                let accumulation = Accumulation::new(T::micro_kernel(isa), &problem);
                assert_eq!(accumulation.packed, [false, packed], "{isa} {sizes:?} {b_row}");
            }
        }
        check::<f64>([16, 200, 300], 200, false);
        check::<f64>([33, 100, 5000], 100, false);
        check::<f32>([16, 200, 10_000], 200, false);
        check::<f32>([2, 200, 10_000], 100_000, false);
        check::<f32>([33, 200, 10_000], 100_000, true);
        check::<f64>([200, 200, 300], 200, true);
    }

    /// All of k in one step only where that keeps sums out of memory.
    #[test]
    fn narrowed_products_accumulate_all_of_k() {
        fn kc<T: CpuElement>(sizes @ [_, n, k]: [usize; 3], [prepacked, batch_invariant]: [bool; 2]) -> usize {
            let (a, b, scalars) = ([k as isize, 1], [1, n as isize], [T::Acc::ONE, T::Acc::ZERO]);
            let problem = BlockingProblem { sizes, scalars, a, b, c_col: 1, prepacked, threads: 2, batch_invariant };
            Accumulation::new(T::micro_kernel(crate::Isa::Portable), &problem).kc
        }
        let short = half::bf16::micro_kernel(crate::Isa::Portable).kc;
        let of_bf16 = |m, k| kc::<half::bf16>([m, 600, k], [false; 2]);
        assert!(of_bf16(600, 2 * short) >= 2 * short);
        assert!(of_bf16(100, 2 * short) >= 2 * short, "sums of a small C too");
        assert_eq!(of_bf16(600, WHOLE_KC * short + 1), short, "too long");
        assert_eq!(of_bf16(600, short), short, "one step already");
        for fixed in [[true, false], [false, true]] {
            assert_eq!(kc::<half::bf16>([600, 600, 2 * short], fixed), short, "{fixed:?}");
        }
        let of_f32 = f32::micro_kernel(crate::Isa::Portable).kc;
        assert_eq!(kc::<f32>([600, 600, 2 * of_f32], [false; 2]), of_f32, "C holds the sums");
    }

    /// The number of threads decides what is packed, but not KC or slices.
    #[test]
    fn threads_decide_packing_alone() {
        fn check<T: CpuElement>(sizes: [usize; 3], packs_on_16: Option<bool>) {
            let [_, n, k] = sizes;
            for isa in crate::Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let kernel = T::micro_kernel(isa);
                let accumulation = |threads| {
                    let (a, b) = ([k as isize, 1], [1, n as isize]);
                    let scalars = [T::Acc::ONE, T::Acc::ZERO];
                    let common = BlockingProblem {
                        sizes,
                        scalars,
                        a,
                        b,
                        c_col: 1,
                        prepacked: false,
                        threads,
                        batch_invariant: false,
                    };
                    Accumulation::new(kernel, &common)
                };
                let (alone, of_16) = (accumulation(1), accumulation(16));
                assert_eq!((alone.kc, alone.slices, alone.in_place), (of_16.kc, of_16.slices, of_16.in_place), "{isa}");
                // Elements that packing groups are always packed.
                let readable = kernel.k_pack == 1 && kernel.direct_a && kernel.select_unpacked.is_some();
                let packs_on_16 = if readable { packs_on_16 } else { Some(true) };
                assert!(alone.packed[1], "{isa} {} {sizes:?}", T::TYPE);
                assert_eq!(packs_on_16.unwrap_or(of_16.packed[1]), of_16.packed[1], "{isa} {} {sizes:?}", T::TYPE);
            }
        }
        // In the caches; as the model decides; so many rows that packing is little work.
        for (sizes, packs_on_16) in [([320; 3], Some(false)), ([512; 3], None), ([4096, 4096, 64], Some(true))] {
            check::<f32>(sizes, packs_on_16);
            check::<f64>(sizes, packs_on_16);
            check::<i8>(sizes, packs_on_16);
            check::<half::bf16>(sizes, packs_on_16);
        }
    }

    #[test]
    fn few_rows_are_sliced_if_that_is_worthwhile() {
        let slices = skinny_slices::<f32>;
        assert_eq!([[7, 768, 3072], [4, 576, 7168], [32, 896, 4864]].map(slices), [16, 16, 8]);
        // Long rows of B are shared along the columns.
        assert_eq!([[1, 6144, 4096], [16, 16384, 4096], [8, 65536, 4096]].map(slices), [8, 4, 1]);
        // Little work, and more rows to add than steps to multiply.
        assert_eq!([[3, 300, 512], [32, 512, 1024], [1, 256, 300]].map(slices), [1, 2, 1]);
        assert_eq!([[32, 4096, usize::MAX >> 40], [1, usize::MAX >> 8, 200]].map(slices), [8, 1]);
    }

    /// The workspace of an empty slice would stay uninitialized.
    #[test]
    fn slices_of_any_k_are_not_empty() {
        for (n, k) in (1..200_000).step_by(397).chain([20_000]).flat_map(|k| [(8, k), (600, k)]) {
            for isa in crate::Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let kernel = f32::micro_kernel(isa);
                let problem = BlockingProblem {
                    sizes: [8, n, k],
                    scalars: [1.0, 0.0],
                    a: [k as isize, 1],
                    b: [1, n as isize],
                    c_col: 1,
                    prepacked: false,
                    threads: 2,
                    batch_invariant: false,
                };
                let Accumulation { slices, kc, .. } = Accumulation::new(kernel, &problem);
                let each = slice_len(k, slices, kc);
                assert!((slices - 1) * each < k && k <= slices * each, "{isa} {k}: {slices} slices of {each}");
            }
        }
    }
}
