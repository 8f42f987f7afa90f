//! Micro-kernels: an MR×NR tile of C accumulates in registers, from packed or unpacked operands.

use std::ops::Range;
use std::ptr::{null, null_mut};

use tegula_core::element::{Arith, Element, Scalar};

use super::caches::Caches;
use super::isa::Isa;
use super::pack_source::PackSource;

/// Most vectors in a row of a micro-tile.
pub const VECTORS: usize = 8;
/// Most vectors of a micro-tile that packs the B it multiplies.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only vectors pack"))]
pub const PACKING_VECTORS: usize = 4;
/// Most rows of [`MicroKernel::whole_rows`].
pub const WHOLE_ROWS: usize = 4;
/// Columns of B that [`MicroKernel::whole_columns`] reads side by side: more leave too few
/// registers for four rows, and from a cache more are slower for any.
pub const WHOLE_COLUMNS: usize = 4;
/// The same for up to [`STREAMED_ROWS`] where B comes from memory, which more streams keep busier.
pub const STREAMED_COLUMNS: usize = 8;
/// Rows for which registers suffice beside so many columns.
const STREAMED_ROWS: usize = 3;
/// Bytes of B that are probably not in a cache.
const STREAMED_BYTES: usize = 16 << 20;
/// Least steps of k of whole columns, for several micro-tiles of rows: adding the lanes of an
/// accumulator takes as long as tens of steps, and other micro-kernels need not.
const MIN_DOT_STEPS: usize = 128;
/// Steps of k in which a micro-kernel prefetches [`PrefetchedRows::count`] rows.
pub const STEPS_PER_PREFETCH: usize = 16;
/// Most rows of a micro-tile whose accumulators start from a compensation.
pub const COMPENSATED_ROWS: usize = 8;

/// Multiply-adds below which products of most micro-kernels are not packed.
const SMALL_WORK: usize = 1 << 21;
/// Rows from which a micro-tile is high enough; from there on a wider one saves more loads of A.
const MIN_TILE_ROWS: usize = 6;

/// The operands of a micro-tile: A with its strides along rows and along k, B with its stride along
/// k.
#[derive(Clone, Copy)]
pub struct MicroOperands<'a, S> {
    /// The first value of A.
    pub a: *const S,
    /// Row stride of A in bytes.
    pub a_row_stride: isize,
    /// Stride of A along k, in packed values, or in elements of an unpacked operand.
    pub a_k_stride: isize,
    /// The first value of B; its columns are contiguous.
    pub b: *const S,
    /// Stride of B along k, as of A.
    pub b_k_stride: isize,
    /// Bytes from unpacked B to what a micro-kernel prefetches meanwhile, into the L2 cache from
    /// single steps of k, else into the L1 cache; 0 for nothing.
    pub b_ahead: usize,
    /// For [`AlongK`] and [`WholeColumns`]: bytes from a column of B to the next.
    pub b_col_stride: isize,
    /// The panel to which a micro-kernel also packs the B that it reads, or null. Steps of k are
    /// `b_k_stride` apart for [`AlongK`], else as far as the micro-tile is wide, in whole vectors.
    pub b_panel: *mut S,
    /// Other rows of B that the micro-kernels of [`FirstRows`] prefetch meanwhile.
    pub prefetch: &'a PrefetchedRows,
    /// The compensation of each row beside packed B, where [`MicroKernel::compensation`] is set;
    /// else unused.
    pub compensation: *const S,
    /// Packing and prefetching that an AMX micro-kernel does meanwhile.
    pub overlap: &'a OverlappedPacking,
}

impl<S> MicroOperands<'_, S> {
    /// Operands without prefetches, compensation, or packing: A with its strides, B with its stride
    /// along k.
    #[inline(always)]
    pub fn new(a: *const S, [a_row_stride, a_k_stride]: [isize; 2], b: *const S, b_k_stride: isize) -> Self {
        MicroOperands {
            a,
            a_row_stride,
            a_k_stride,
            b,
            b_k_stride,
            b_ahead: 0,
            b_col_stride: 0,
            b_panel: null_mut(),
            prefetch: &PrefetchedRows::NONE,
            compensation: null(),
            overlap: &OverlappedPacking::NONE,
        }
    }

    /// The operands from a step of k on, where A and B have a value for each step. The panel is
    /// `width` values wide.
    pub fn at_step(self, step: usize, width: usize) -> Self {
        let along = |k_stride: isize| k_stride.wrapping_mul(step as isize);
        let a = self.a.wrapping_offset(along(self.a_k_stride));
        let b = self.b.wrapping_offset(along(self.b_k_stride));
        let b_panel = if self.b_panel.is_null() { null_mut() } else { self.b_panel.wrapping_add(step * width) };
        MicroOperands { a, b, b_panel, ..self }
    }
}

/// Rows of B that a micro-kernel prefetches: `count` of them in every [`STEPS_PER_PREFETCH`] steps.
///
/// They are those of the columns that are multiplied next. A few cache lines of each row are read
/// there, and the next row is on another page, so the processor does not fetch ahead. Addresses may
/// be out of bounds of B.
#[derive(Clone, Copy)]
pub struct PrefetchedRows {
    /// The first row.
    pub first: *const u8,
    /// Bytes from a row to the next.
    pub stride: isize,
    /// Cache lines of a row.
    pub lines: usize,
    /// Rows.
    pub count: usize,
    /// Whether they are fetched into the L2 cache only: more than the L1 cache holds.
    pub to_l2: bool,
}

impl PrefetchedRows {
    /// No rows.
    pub const NONE: PrefetchedRows = PrefetchedRows { first: null(), stride: 0, lines: 0, count: 0, to_l2: false };

    /// The rows that are prefetched from a step of k on, a multiple of [`STEPS_PER_PREFETCH`].
    pub fn at_step(self, step: usize) -> Self {
        let rows = step / STEPS_PER_PREFETCH * self.count;
        PrefetchedRows { first: self.first.wrapping_offset(self.stride.wrapping_mul(rows as isize)), ..self }
    }
}

/// Packing of the next rows of A, and prefetching of C, while an AMX micro-kernel multiplies.
///
/// The vector units are nearly idle then.
#[derive(Clone, Copy)]
pub struct OverlappedPacking {
    /// The first unpacked row; null for none.
    pub source: *const u8,
    /// Stride of the unpacked rows in bytes.
    pub source_row: isize,
    /// Number of rows: 4, 8, 16 or 32.
    pub rows: usize,
    /// Destination of the first row.
    pub dest: *mut u8,
    /// Mask of the valid bytes in the last 64-byte piece of a row.
    pub tail_mask: u64,
    /// First row to prefetch for writing. A prefetch may be out of bounds of C.
    pub prefetch: *const u8,
    /// Stride of the rows to prefetch in bytes.
    pub prefetch_row: isize,
}

impl OverlappedPacking {
    /// No rows, no prefetch.
    pub const NONE: OverlappedPacking = OverlappedPacking {
        source: null(),
        source_row: 0,
        rows: 0,
        dest: null_mut(),
        tail_mask: 0,
        prefetch: null(),
        prefetch_row: 0,
    };
}

/// `C ← alpha·A·B + beta·C` for a micro-tile of rows, columns, and k groups, or steps of k of
/// unpacked operands. Where beta is 0, C is not read.
///
/// A group of A is broadcast to all lanes of a vector, and B is read along its rows. Only these
/// columns are read and written.
///
/// # Safety
/// The CPU has the instruction set. The micro-tile is at most [`MicroKernel::tile`],
/// [`FirstRows::tile`] or [`AlongK::tile_rows`] for packed operands, and at most
/// [`MicroKernel::max_rows`] for unpacked ones; [`MicroKernel::whole_rows`] and [`WholeColumns`]
/// have other limits, and for the latter rows of A are contiguous along k. `b_panel` is null, or
/// holds whole vectors for each k group. For [`AlongK`], A is packed, and without rows neither A
/// nor C is accessed.
/// [`MicroOperands::compensation`] has a value for each row where [`MicroKernel::compensation`] is
/// set and operands are packed. The operands can be read. C, with the row stride `row`, can be
/// written, and read unless beta is 0. For [`MicroKernel::select_rounded`] and
/// [`MicroKernel::select_unpacked_rounded`] its elements, of which the stride counts, are of type
/// `T::Out`.
pub type MicroKernelFn<S> = unsafe fn([usize; 3], S, &MicroOperands<S>, S, *mut S, row: isize);

/// Selects the micro-kernel for a micro-tile of `[rows, cols]`.
pub type SelectFn<S> = fn([usize; 2]) -> MicroKernelFn<S>;

/// Computes the compensation of a few rows of A: the values from which their accumulators start.
///
/// Arguments: the first value, the row stride in bytes, rows, and packed values of a row.
///
/// # Safety
/// The CPU has the instruction set, and the rows can be read.
pub type CompensationFn<S> = unsafe fn(*const S, isize, rows: usize, k_groups: usize) -> [S; COMPENSATED_ROWS];

/// Packs some lanes of an operand for a range of k.
///
/// Arguments are those of [`pack_lane_major`](crate::pack::pack_lane_major) and
/// [`pack`](crate::pack::pack).
///
/// # Safety
/// The CPU has the instruction set. The lanes and k are in the matrix. The destination holds the
/// whole panel and is not aliased.
pub type PackFn<T> = unsafe fn(PackSource<T>, Range<usize>, Range<usize>, usize, *mut <T as Element>::Acc);

/// Rounds accumulators to the type of C.
///
/// Arguments: the accumulators and their row stride, C and its row stride, `[rows, cols]`. Strides
/// are in values and elements.
///
/// # Safety
/// The CPU has the instruction set. The accumulators can be read and C can be written.
pub type NarrowFn<T> = unsafe fn(*const <T as Element>::Acc, usize, *mut <T as Element>::Out, row: isize, [usize; 2]);

/// [`NarrowFn`], by [`CpuElement::narrow_slice`].
///
/// # Safety
/// As for [`NarrowFn`], without the instruction set.
#[inline(always)]
pub unsafe fn narrow<T: CpuElement>(
    from: *const T::Acc,
    width: usize,
    to: *mut T::Out,
    row: isize,
    [rows, cols]: [usize; 2],
) {
    for i in 0..rows {
        // SAFETY: the caller's promise.
        unsafe {
            let (from, to) = (from.add(i * width), to.offset(i as isize * row));
            T::narrow_slice(std::slice::from_raw_parts(from, cols), std::slice::from_raw_parts_mut(to, cols));
        }
    }
}

/// The micro-kernels of an instruction set for an element type, with their blocking. Sizes are in
/// elements of C, or of k.
pub struct MicroKernel<T: CpuElement> {
    /// Elements of a SIMD vector.
    pub vector_len: usize,
    /// Most rows of a micro-tile by its width in vectors, for unpacked operands; 0 where packing is
    /// required.
    pub max_rows: [usize; VECTORS],
    /// MR and NR: the micro-tile of large products.
    pub tile: [usize; 2],
    /// KC of large products: steps of k between two updates of C.
    pub kc: usize,
    /// Steps of k in one packed value.
    pub k_pack: usize,
    /// The packed values of a row of A or a column of B are a multiple of this.
    pub k_unit: usize,
    /// Multiply-adds below which a product with suitable strides is not packed; for few rows, see
    /// [`unpacked_work`](Self::unpacked_work).
    pub small_work: usize,
    /// Rows up to which reading B once, unpacked, is faster than packing it.
    pub skinny_rows: usize,
    /// Whether unpacked A may be read beside packed B. Where a packed value holds several steps, A
    /// has to be contiguous along k, and unless `padded_a`, k a multiple of these steps.
    pub direct_a: bool,
    /// Whether all MR rows are read, also those out of bounds; packed A is padded for them.
    pub padded_a: bool,
    /// Computes the initial accumulators of the rows of A beside packed B; `None` if they are 0.
    ///
    /// VNNI packs B plus 128, to make it unsigned. The accumulators of a row of A then start from
    /// -128 times the sum of the row.
    pub compensation: Option<CompensationFn<T::Acc>>,
    /// Packing of a few rows of A, lane-major but for AMX, and of a panel of B, group-major.
    /// [`pack_b`](Self::pack_b) packs columns contiguous along k otherwise.
    pub pack: [PackFn<T>; 2],
    /// Rounds accumulators to the type of C.
    pub narrow: NarrowFn<T>,
    /// Prepares the thread for the micro-kernels: AMX configures its tile registers (`ldtilecfg`).
    /// Other instruction sets need nothing.
    pub setup: fn(),
    /// Undoes `setup`: AMX releases its tile registers (`tilerelease`).
    pub teardown: fn(),
    /// Selects the micro-kernel for packed operands.
    pub select_packed: SelectFn<T::Acc>,
    /// The same for an alpha of 1, a beta of 0, and a C of type `T::Out`: accumulators are rounded
    /// in registers, to the bits of [`narrow`](Self::narrow). At most [`tile`](Self::tile); `None`
    /// where accumulators are elements of C, or go through memory.
    pub select_rounded: Option<SelectFn<T::Acc>>,
    /// Selects the micro-kernel for unpacked operands; `None` where packing is required. Strides of
    /// [`MicroOperands`] are in elements.
    pub select_unpacked: Option<SelectFn<T::Acc>>,
    /// The same, with accumulators rounded as by [`select_rounded`](Self::select_rounded).
    pub select_unpacked_rounded: Option<SelectFn<T::Acc>>,
    /// The micro-tile where the first rows pack B; `None` where B is always packed before.
    pub first_rows: Option<FirstRows>,
    /// The micro-kernels for columns of B contiguous along k; `None` where B is packed first.
    pub along_k: Option<AlongK<T::Acc>>,
    /// Selects the micro-kernel for unpacked operands, at most [`WHOLE_ROWS`] rows, any number of
    /// columns, and an alpha of 1, for B from memory; `None` where micro-tiles read it.
    pub whole_rows: Option<SelectFn<T::Acc>>,
    /// The micro-kernels for few rows that are contiguous along k as columns of B are; `None` where
    /// those of [`along_k`](Self::along_k) multiply them.
    pub whole_columns: Option<WholeColumns<T::Acc>>,
}

/// The micro-tile of products that pack B with their first rows: the micro-kernel for unpacked
/// operands stores the B that it multiplies.
///
/// Packing before would read all of B from memory while no multiplication runs, which takes as long
/// as multiplying some tens of rows. The AVX-512 `sgemm` of oneDNN does the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstRows {
    /// Rows and vectors: lower and wider than [`MicroKernel::tile`], since long pieces of the rows
    /// of B are read faster. At most [`PACKING_VECTORS`] vectors.
    pub tile: [usize; 2],
    /// The least rows of a product that gains from it. Fewer read unpacked B once.
    pub min_rows: usize,
}

/// Micro-kernels for packed A, and columns of B that are unpacked, each contiguous along k.
#[derive(Clone, Copy)]
pub struct AlongK<S> {
    /// Rows of a product up to which they are faster than packing B before.
    pub max_rows: usize,
    /// Most rows of a micro-tile of one vector, with B unpacked or packed.
    pub tile_rows: usize,
    /// Rows from which the latency of multiplications is hidden.
    pub full_rows: usize,
    /// Selects the micro-kernel, for at most one vector of columns. Its last size is in steps of k.
    /// One of no rows only packs B.
    pub select: SelectFn<S>,
}

/// Micro-kernels for rows of A and columns of B that are unpacked, and contiguous along k.
#[derive(Clone, Copy)]
pub struct WholeColumns<S> {
    /// Most rows of A that a micro-kernel multiplies at once.
    pub tile_rows: usize,
    /// Rows of a product up to which they are faster than those of [`AlongK`], and up to which they
    /// are while B is in the L2 cache: only the first of several micro-tiles reads memory.
    pub max_rows: usize,
    pub cached_rows: usize,
    /// Selects the micro-kernel, for any number of columns, by its rows and by the columns of B
    /// that it reads side by side, as [`columns_side_by_side`] says.
    pub select: SelectFn<S>,
}

impl<S> WholeColumns<S> {
    /// Micro-kernels for products of a single micro-tile of rows.
    pub const fn single(tile_rows: usize, select: SelectFn<S>) -> Self {
        WholeColumns { tile_rows, max_rows: tile_rows, cached_rows: tile_rows, select }
    }

    /// Whether they are the fastest for a product of these sizes.
    #[inline]
    pub fn suits<T>(&self, [m, n, k]: [usize; 3]) -> bool {
        let is_cached = || n.saturating_mul(k).saturating_mul(size_of::<T>()) <= Caches::detect().l2;
        match m {
            _ if m <= self.tile_rows => true,
            _ if m <= self.max_rows => k >= MIN_DOT_STEPS,
            _ => m <= self.cached_rows && k >= MIN_DOT_STEPS && is_cached(),
        }
    }
}

/// Columns of B that are read side by side for a product of these sizes.
pub fn columns_side_by_side<T>([m, n, k]: [usize; 3]) -> usize {
    let streamed = n.saturating_mul(k).saturating_mul(size_of::<T>()) >= STREAMED_BYTES;
    if streamed && m <= STREAMED_ROWS { STREAMED_COLUMNS } else { WHOLE_COLUMNS }
}

impl<S> AlongK<S> {
    /// The height of the micro-tiles of some rows, one below the other.
    pub fn height(&self, rows: usize) -> usize {
        let height = |most: usize| rows.div_ceil(rows.div_ceil(most).max(1)).max(1);
        let time = |height: usize| rows.div_ceil(height) * height.max(self.full_rows);
        let [lower, higher] = [height(self.full_rows), height(self.tile_rows)];
        if time(lower) <= time(higher) { lower } else { higher }
    }
}

/// Bytes from columns of B contiguous along k to what is prefetched while they are read; 0 where
/// the CPU needs no prefetch.
pub fn bytes_ahead() -> usize {
    if Caches::detect().need_prefetch { 256 } else { 0 }
}

/// Bytes from B to what [`MicroKernel::whole_rows`] prefetches for some rows: beside more than one,
/// the processor does not fetch far enough ahead by itself.
pub fn whole_rows_ahead(rows: usize) -> usize {
    if rows > 1 && Caches::detect().need_prefetch { 512 } else { 0 }
}

/// Bytes from a column of B to what [`MicroKernel::whole_columns`] prefetches for some rows: the
/// same with fewer streams.
pub fn whole_columns_ahead(rows: usize) -> usize {
    2 * whole_rows_ahead(rows)
}

impl<T: CpuElement> MicroKernel<T> {
    /// Micro-kernels on vectors of values as `pack` makes them.
    pub const fn of_vectors(
        vector_len: usize,
        max_rows: [usize; VECTORS],
        tile: [usize; 2],
        kc: usize,
        pack: [PackFn<T>; 2],
        select_packed: SelectFn<T::Acc>,
    ) -> Self {
        // Elements of the accumulator type need no packing.
        let same = T::K_PACK == 1 && size_of::<T>() == size_of::<T::Acc>();
        MicroKernel {
            vector_len,
            max_rows,
            tile,
            kc: kc * T::K_PACK,
            k_pack: T::K_PACK,
            k_unit: 1,
            small_work: SMALL_WORK,
            skinny_rows: if same { 64 } else { 32 },
            direct_a: same,
            select_unpacked: if same { Some(select_packed) } else { None },
            first_rows: None,
            along_k: None,
            whole_rows: None,
            whole_columns: None,
            padded_a: false,
            compensation: None,
            pack,
            narrow: narrow::<T>,
            setup: || (),
            teardown: || (),
            select_packed,
            select_rounded: None,
            select_unpacked_rounded: None,
        }
    }

    /// Packs columns of B for a range of k: k groups are `stride` values apart.
    ///
    /// # Safety
    /// As for [`PackFn`], and `to` holds whole vectors of each group.
    pub unsafe fn pack_b(
        &self,
        from: PackSource<T>,
        cols: Range<usize>,
        k: Range<usize>,
        stride: usize,
        to: *mut T::Acc,
    ) {
        let [col_stride, k_stride] = from.strides();
        let Some(along_k) = self.along_k.filter(|_| k_stride == 1 && col_stride != 1) else {
            // SAFETY: the caller's promise.
            return unsafe { (self.pack[1])(from, cols, k, stride, to) };
        };
        from.assert_contains(&cols, &k);
        for first in cols.clone().step_by(self.vector_len) {
            let sizes = [0, self.vector_len.min(cols.end - first), k.len()];
            let operands = MicroOperands {
                b_col_stride: col_stride.wrapping_mul(size_of::<T>() as isize),
                b_ahead: bytes_ahead(),
                b_panel: to.wrapping_add(first - cols.start),
                ..MicroOperands::new(null(), [0; 2], from.at(first, k.start).cast(), stride as isize)
            };
            // SAFETY: the caller's promise. Without rows, neither A nor C is accessed.
            unsafe { (along_k.select)([0, sizes[1]])(sizes, T::Acc::ONE, &operands, T::Acc::ZERO, null_mut(), 0) };
        }
    }

    /// Multiply-adds below which a product of `rows` rows with suitable strides is not packed.
    #[inline]
    pub fn unpacked_work(&self, rows: usize) -> usize {
        if rows <= self.skinny_rows { SMALL_WORK } else { self.small_work }
    }

    /// The vectors of a micro-tile of unpacked operands for `rows`.
    ///
    /// The widest that is still high enough. Where B streams from memory, few micro-tiles below
    /// each other count more: the first of them waits for memory, and the others leave it idle.
    #[inline]
    pub fn unpacked_vectors(&self, rows: usize, streams_b: bool) -> usize {
        let widest = |max_rows: usize| (2..=VECTORS).rev().find(|vectors| self.max_rows[vectors - 1] >= max_rows);
        if streams_b {
            let mut tiles = if self.first_rows.is_some() { 1..=2 } else { 1..=1 };
            if let Some(vectors) = tiles.find_map(|tiles| widest(rows.div_ceil(tiles))) {
                return vectors;
            }
            if self.first_rows.is_some() {
                return self.tile[1] / self.vector_len;
            }
        }
        widest(rows.min(MIN_TILE_ROWS)).unwrap_or(1)
    }

    /// Vectors that cover `cols` columns. A division takes longer than a small micro-tile.
    #[inline(always)]
    pub fn vectors_of(&self, cols: usize) -> usize {
        (cols + self.vector_len - 1) >> self.vector_len.trailing_zeros()
    }

    /// Groups of `k_pack` steps that cover `k` steps, padded to `k_unit`.
    ///
    /// This is the number of packed values of a row of A or a column of B.
    pub fn k_groups(&self, k: usize) -> usize {
        k.div_ceil(self.k_pack).next_multiple_of(self.k_unit)
    }
}

/// The accumulator types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accumulator {
    F64,
    F32,
    I32,
}

/// An accumulator type, with the arithmetic of the scalar loop.
///
/// Floats are rounded, integers wrap.
pub trait Accumulate: Arith + PartialOrd + bytemuck::Pod {
    /// The type as a tag.
    const ACCUMULATOR: Accumulator;
    /// The product.
    fn times(self, other: Self) -> Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
}

macro_rules! accumulate {
    ($($t:ty, $tag:ident, $times:expr, $plus:expr;)*) => {$(impl Accumulate for $t {
        const ACCUMULATOR: Accumulator = Accumulator::$tag;
        #[inline(always)]
        fn times(self, other: Self) -> Self { let f: fn($t, $t) -> $t = $times; f(self, other) }
        #[inline(always)]
        fn plus(self, other: Self) -> Self { let f: fn($t, $t) -> $t = $plus; f(self, other) }
    })*};
}

accumulate! {
    f64, F64, |x, y| x * y, |x, y| x + y;
    f32, F32, |x, y| x * y, |x, y| x + y;
    i32, I32, i32::wrapping_mul, i32::wrapping_add;
}

/// An element type that has micro-kernels.
///
/// A packed value has the size of an accumulator for every element type. 16-bit floats are widened
/// by packing. Two steps of k of `i8` become a packed `i32`, 16 bits each, as the pairwise
/// multiply-add instruction takes them. Micro-kernels may pack in another way
/// ([`MicroKernel::k_pack`]): VNNI and AMX pack four steps of `i8` into an `i32`, the bf16
/// instructions and AMX two steps of bf16.
pub trait CpuElement: Element<Acc: Accumulate> {
    /// Adjacent k in one packed value, a k group: 1 or 2.
    const K_PACK: usize;
    /// Packs this element, and for a `K_PACK` of 2 the one at the next k.
    fn pack(self, next: Self) -> Self::Acc;
    /// Packs neighbors along k, `K_PACK` to a value.
    #[inline(always)]
    fn pack_slice(from: &[Self], to: &mut [Self::Acc]) {
        from.chunks_exact(Self::K_PACK).zip(to).for_each(|(from, to)| *to = from[0].pack(from[Self::K_PACK - 1]));
    }
    /// `sum` plus the product of two packed values, for the portable micro-kernel.
    fn multiply_add(a: Self::Acc, b: Self::Acc, sum: Self::Acc) -> Self::Acc;
    /// Rounds accumulators to the type of C.
    #[inline(always)]
    fn narrow_slice(from: &[Self::Acc], to: &mut [Self::Out]) {
        from.iter().zip(to).for_each(|(&from, to)| *to = <Self as Element>::narrow(from));
    }
    /// The micro-kernels of an instruction set that this CPU has.
    fn micro_kernel(isa: Isa) -> &'static MicroKernel<Self>;
    /// The instruction set of those micro-kernels: not every one has its own for every type.
    fn micro_kernel_isa(isa: Isa) -> Isa;
}
