//! What a micro-kernel is: tiles of C summed in registers, from factors wherever they lie.

use std::ops::Range;

use tegula_core::element::{Arith, Element};

use super::isa::Isa;
use super::source::Source;

/// Vectors of a tile's width at most.
pub const VECTORS: usize = 8;
/// Rows at most of a tile whose sums do not start from 0.
pub const STARTS: usize = 8;

/// Where a tile's factors are: A from an element on with the steps to the next row and the next k, B with the step to the next k.
#[derive(Clone, Copy)]
pub struct Factors<S> {
    /// The first number of A.
    pub a: *const S,
    /// From one row of A to the next, in bytes.
    pub a_row: isize,
    /// From one k to the next in A, in packed values, or elements as they lie.
    pub a_step: isize,
    /// The first number of B; columns lie together.
    pub b: *const S,
    /// From one k to the next in B, as in A.
    pub b_step: isize,
    /// What the sums of each row start from, where the tiles say what that is; else nothing.
    pub starts: *const S,
    /// What tiles of AMX do besides.
    pub later: Later,
}

/// What is done while rows of A are multiplied, since the processor has little else to do then: others are packed, and memory that will be written is asked for.
#[derive(Clone, Copy)]
pub struct Later {
    /// The first of them, as they lie; nowhere if there are none.
    pub from: *const u8,
    /// Bytes to the next.
    pub row: isize,
    /// How many: 4, 8, 16 or 32.
    pub rows: usize,
    /// Where the first goes.
    pub to: *mut u8,
    /// The bytes of the last piece of a row that are there, a bit each.
    pub last: u64,
    /// Where rows will be written: the first, and bytes to the next. They are only asked for, so the last may lie outside C.
    pub soon: *const u8,
    /// See `soon`.
    pub soon_row: isize,
}

impl Later {
    /// Nothing.
    pub const NONE: Later = Later {
        from: std::ptr::null(),
        row: 0,
        rows: 0,
        to: std::ptr::null_mut(),
        last: 0,
        soon: std::ptr::null(),
        soon_row: 0,
    };
}

/// `C ← alpha·A·B + beta·C` for a tile of so many rows, columns and steps. Where beta is 0, C is not read.
///
/// A number of A goes to all lanes of a vector, and B is read along its rows; only the columns asked for are read and written.
///
/// # Safety
/// The machine has the instruction set, and the tile is no larger than [`Tiles::block`] for packed factors, and than [`Tiles::rows`] says for factors as they lie. [`Factors::starts`] has a value for each row where
/// [`Tiles::starts`] says what it is. The factors can be read, and C, with `row` from one row to the
/// next, written, and read unless beta is 0.
pub type Tile<S> = unsafe fn([usize; 3], S, Factors<S>, S, *mut S, row: isize);

/// Selects the micro-kernel for a tile of so many rows and columns.
pub type Choice<S> = fn([usize; 2]) -> Tile<S>;

/// What the sums of a few rows of A start from: where the first number is, bytes from one row to the next, rows, and packed values of a row.
///
/// # Safety
/// The machine has the instruction set, and the rows can be read.
pub type Starts<S> = unsafe fn(*const S, isize, rows: usize, steps: usize) -> [S; STARTS];

/// Packs some lanes of a source for a range of k: arguments as [`pack_rows`](crate::pack::pack_rows) and [`pack`](crate::pack::pack) say.
///
/// # Safety
/// The machine has the instruction set, the lanes and steps are in the matrix, and there is room for the whole panel, which is ours alone.
pub type Pack<T> = unsafe fn(Source<T>, Range<usize>, Range<usize>, usize, *mut <T as Element>::Acc);

/// Rounds sums to what C holds: rows that are so many values apart to rows so many elements apart, and how many rows and columns.
///
/// # Safety
/// The machine has the instruction set. The sums can be read and C written.
pub type Narrow<T> = unsafe fn(*const <T as Element>::Acc, usize, *mut <T as Element>::Out, row: isize, [usize; 2]);

/// [`Narrow`], by [`Operand::narrow_all`].
///
/// # Safety
/// As [`Narrow`] asks, but for instructions.
#[inline(always)]
pub unsafe fn narrow<T: Operand>(
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
            T::narrow_all(std::slice::from_raw_parts(from, cols), std::slice::from_raw_parts_mut(to, cols));
        }
    }
}

/// The tiles of an instruction set for an element type, and the blocking they like. All sizes are in elements of C, or of k.
pub struct Tiles<T: Operand> {
    /// Elements of a vector.
    pub lanes: usize,
    /// Rows of a tile whose width is so many vectors, at most, for factors as they lie; none where they must be packed.
    pub rows: [usize; VECTORS],
    /// Rows and columns of the tile that large products are made of.
    pub block: [usize; 2],
    /// Steps of k between two visits to C, of large products.
    pub kc: usize,
    /// Steps of k in one packed value.
    pub depth: usize,
    /// Packed values of a lane come in multiples of this.
    pub unit: usize,
    /// Multiply-adds below which no product is packed, if its factors lie well.
    pub small: usize,
    /// Rows up to which B is better read once, as it lies, than packed.
    pub few: usize,
    /// Whether A may be read as it lies beside packed B: along k, where a packed value holds several steps, and unless rows are read `whole`, in whole packed values.
    pub direct: bool,
    /// Whether all rows of a block are read, also those that are not there; they have room where A is packed.
    pub whole: bool,
    /// What sums start from beside packed B, if not from 0: what makes up for how B is packed.
    pub starts: Option<Starts<T::Acc>>,
    /// How A and B are packed: a few rows of A one after the other, and a panel of B step after step.
    pub pack: [Pack<T>; 2],
    /// Rounds sums to what C holds.
    pub narrow: Narrow<T>,
    /// Readies the thread for `run`.
    pub enter: fn(),
    /// The end of that.
    pub leave: fn(),
    /// The function for packed factors.
    pub run: Choice<T::Acc>,
    /// The function for factors as they lie: addresses and steps in [`Factors`] are of elements. None where they have to be packed.
    pub lying: Option<Choice<T::Acc>>,
}

impl<T: Operand> Tiles<T> {
    /// Vectors of values `pack`ed as the processor multiplies and adds them.
    pub const fn of_vectors(
        lanes: usize,
        rows: [usize; VECTORS],
        block: [usize; 2],
        kc: usize,
        pack: [Pack<T>; 2],
        run: Choice<T::Acc>,
    ) -> Self {
        // What is summed as it is needs no packing.
        let same = T::DEPTH == 1 && size_of::<T>() == size_of::<T::Acc>();
        Tiles {
            lanes,
            rows,
            block,
            kc: kc * T::DEPTH,
            depth: T::DEPTH,
            unit: 1,
            small: 1 << 21,
            few: 32,
            direct: same,
            lying: if same { Some(run) } else { None },
            whole: false,
            starts: None,
            pack,
            narrow: narrow::<T>,
            enter: || (),
            leave: || (),
            run,
        }
    }

    /// Packed values of a lane for so many steps of k.
    pub fn steps(&self, k: usize) -> usize {
        k.div_ceil(self.depth).next_multiple_of(self.unit)
    }
}

/// The accumulator types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accumulator {
    F64,
    F32,
    I32,
}

/// A type that sums are kept in, with the arithmetic that the plain loop does: rounded for floats, wrapping for integers.
pub trait Sum: Arith + PartialOrd + bytemuck::Pod {
    /// Which it is.
    const ACCUMULATOR: Accumulator;
    /// The product.
    fn times(self, other: Self) -> Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
}

macro_rules! sum {
    ($($t:ty, $tag:ident, $times:expr, $plus:expr;)*) => {$(impl Sum for $t {
        const ACCUMULATOR: Accumulator = Accumulator::$tag;
        #[inline(always)]
        fn times(self, other: Self) -> Self { let f: fn($t, $t) -> $t = $times; f(self, other) }
        #[inline(always)]
        fn plus(self, other: Self) -> Self { let f: fn($t, $t) -> $t = $plus; f(self, other) }
    })*};
}

sum! {
    f64, F64, |x, y| x * y, |x, y| x + y;
    f32, F32, |x, y| x * y, |x, y| x + y;
    i32, I32, i32::wrapping_mul, i32::wrapping_add;
}

/// An element type that has micro-kernels.
///
/// Whatever the element type, packed values have the size of a sum: 16-bit floats are widened when they are packed, and `i8`
/// goes two steps of k to a packed `i32`, 16 bits each, which is what the processor's pairwise multiply-add takes. Tiles may pack as they like
/// ([`Tiles::depth`]): with VNNI and AMX, `i8` goes four steps to an `i32`.
pub trait Operand: Element<Acc: Sum> {
    /// Steps of k in one packed value: 1 or 2.
    const DEPTH: usize;
    /// This element, and for a depth of 2 the one at the next k, as a packed value.
    fn pack(self, next: Self) -> Self::Acc;
    /// Neighbours along k as packed values, as many to each as it holds.
    #[inline(always)]
    fn pack_all(from: &[Self], to: &mut [Self::Acc]) {
        from.chunks_exact(Self::DEPTH).zip(to).for_each(|(from, to)| *to = from[0].pack(from[Self::DEPTH - 1]));
    }
    /// `sum` plus the product of two packed values, for the portable kernel.
    fn step(a: Self::Acc, b: Self::Acc, sum: Self::Acc) -> Self::Acc;
    /// Rounds sums to what C holds.
    #[inline(always)]
    fn narrow_all(from: &[Self::Acc], to: &mut [Self::Out]) {
        from.iter().zip(to).for_each(|(&from, to)| *to = <Self as Element>::narrow(from));
    }
    /// The micro-kernels of an instruction set that this machine has.
    fn tiles(isa: Isa) -> Tiles<Self>;
    /// The instruction set whose tiles those are: not every one has some of its own for every type.
    fn own(isa: Isa) -> Isa;
}
