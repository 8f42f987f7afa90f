//! Micro-kernels of AMX, which multiplies tiles of 16 rows of 64 bytes (Intel SDM, volume 1, chapter 18).
//!
//! All make 32×32 sums in four tiles, from two tiles of A, two of B, over and over: 16-bit floats two steps of k at a time, bytes four. A 32-bit integer
//! is four bytes, its limbs, and mod 2³² a product is the ten products of limbs that reach the lower 32 bits.
//!
//! Subnormal numbers of bf16 count as zeros, as AMX has it.

use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

use half::bf16;
use tegula_core::element::{Element, Scalar};

use super::kernel::{Choice, Factors, Later, Pack, Tiles, VECTORS};
use super::source::Source;
use super::x86::{avx512_f32, avx512_i8, avx512_i32};

/// Rows of a tile; steps of packed values that one holds.
const ROWS: usize = 16;
/// Rows and columns of sums.
const SIDE: usize = 2 * ROWS;
/// Limbs of a 32-bit integer.
const LIMBS: usize = 4;

/// What the eight tiles are: 16 rows of 64 bytes each.
#[repr(C, align(64))]
struct Palette([u8; 64]);

const PALETTE: Palette = {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        bytes[16 + 2 * tile] = 64;
        bytes[48 + tile] = ROWS as u8;
        tile += 1;
    }
    Palette(bytes)
};

/// Makes the tiles of this thread ready.
fn enter() {
    // SAFETY: only products of tiles come here, which the machine has.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &PALETTE, options(nostack, readonly)) };
}

/// Gives them up, so that the system need not save them.
fn leave() {
    // SAFETY: as above.
    unsafe { asm!("tilerelease", options(nostack, nomem)) };
}

/// Bytes of a row of a tile.
const ROW: usize = 64;
/// Bytes from one step of packed B to the next, which has 32 values.
const STEP: usize = 2 * ROW;
/// Bytes of 32 rows of limbs of A, or 16 steps of packed B.
const PLANE: usize = ROWS * STEP;

/// Sums in tiles. `$rows` of them, with the instructions for the lower 16.
macro_rules! sums {
    ($name:ident, $multiply:literal, $rows:expr, [$($load:literal),*], [$($zero:literal),*], [$($low:expr),*], [$($store:literal),*]) => {
        /// `c ← A·B` for 32 columns of sums, `row` bytes from one row to the next, or `c + A·B` if there are some to `add` to. Packed A and B are `times` pieces.
        ///
        /// Meanwhile `FOURS` times four rows of A are packed for later, and while the last pieces are multiplied, the rows that will be written are asked for, as few at a time as can be: all at once would hold up
        /// the loads of tiles.
        ///
        /// # Safety
        /// The machine has AVX-512, the thread's tiles are ready, the factors can be read and the sums written, and read if they are to be added to. Nothing is 0. What is packed can
        /// be read, and there is room for it.
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw")]
        unsafe fn $name<const FOURS: usize>(times: usize, a: *const u8, b: *const u8, c: *mut u8, row: isize, add: bool, later: &Later) {
            // SAFETY: the caller's promise. Tiles hold nothing between calls.
            unsafe {
                asm!(
                    "test {four}, {four}",
                    "jz 2f",
                    "tileloadd tmm0, [{c} + {row}]",
                    "tileloadd tmm1, [{c} + {row} + 64]",
                    $($load,)*
                    "jmp 3f",
                    "2:",
                    "tilezero tmm0",
                    "tilezero tmm1",
                    $($zero,)*
                    "3:",
                    // For the macro's few rows, which do not need it.
                    "/* {low} */",
                    "kxnorq k1, k1, k1",
                    "4:",
                    "tileloadd tmm4, [{a} + {line}]",
                    "tileloadd tmm6, [{b} + {line} * 2]",
                    concat!($multiply, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{b} + {line} * 2 + 64]",
                    concat!($multiply, " tmm1, tmm4, tmm7"),
                    $($low,)*
                    "test {from}, {from}",
                    "jz 6f",
                    "cmp {times}, 1",
                    "jne 5f",
                    "kmovq k1, k2",
                    "5:",
                    "mov {four}, {from}",
                    ".set at, 0",
                    ".rept {fours}",
                    "vmovdqu8 zmm0 {{k1}} {{z}}, [{four}]",
                    "vmovdqu8 zmm1 {{k1}} {{z}}, [{four} + {from_row}]",
                    "lea {four}, [{four} + {from_row} * 2]",
                    "vmovdqu8 zmm2 {{k1}} {{z}}, [{four}]",
                    "vmovdqu8 zmm3 {{k1}} {{z}}, [{four} + {from_row}]",
                    "lea {four}, [{four} + {from_row} * 2]",
                    "vmovdqa64 [{to} + at], zmm0",
                    "vmovdqa64 [{to} + at + 64], zmm1",
                    "vmovdqa64 [{to} + at + 128], zmm2",
                    "vmovdqa64 [{to} + at + 192], zmm3",
                    ".set at, at + 256",
                    ".endr",
                    "add {from}, 64",
                    "add {to}, 2048",
                    "6:",
                    "cmp {times}, {rows}",
                    "ja 7f",
                    "kmovq {four}, k3",
                    "8:",
                    "prefetchw [{soon}]",
                    "prefetchw [{soon} + 64]",
                    "add {soon}, {soon_row}",
                    "dec {four}",
                    "jnz 8b",
                    "7:",
                    "add {a}, 2048",
                    "add {b}, 2048",
                    "dec {times}",
                    "jnz 4b",
                    "tilestored [{c} + {row}], tmm0",
                    "tilestored [{c} + {row} + 64], tmm1",
                    $($store,)*
                    times = inout(reg) times => _,
                    a = inout(reg) a => _,
                    b = inout(reg) b => _,
                    line = in(reg) ROW,
                    c = in(reg) c,
                    low = in(reg) c.wrapping_offset(ROWS as isize * row),
                    row = in(reg) row,
                    soon = inout(reg) later.soon => _,
                    soon_row = in(reg) later.soon_row,
                    from = inout(reg) later.from => _,
                    from_row = in(reg) later.row,
                    to = inout(reg) later.to => _,
                    four = inout(reg) usize::from(add) => _,
                    fours = const FOURS,
                    rows = const $rows,
                    in("k2") later.last,
                    in("k3") $rows.div_ceil(times),
                    out("k1") _,
                    out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
    ($name:ident, $few:ident, $multiply:literal) => {
        sums!(
            $name, $multiply, SIDE,
            ["tileloadd tmm2, [{low} + {row}]", "tileloadd tmm3, [{low} + {row} + 64]"],
            ["tilezero tmm2", "tilezero tmm3"],
            ["tileloadd tmm5, [{a} + {line} + 1024]", concat!($multiply, " tmm2, tmm5, tmm6"), concat!($multiply, " tmm3, tmm5, tmm7")],
            ["tilestored [{low} + {row}], tmm2", "tilestored [{low} + {row} + 64], tmm3"]
        );
        sums!($few, $multiply, ROWS, [], [], [], []);
    };
}

sums!(sum_bf16, sum_few_bf16, "tdpbf16ps");
sums!(sum_i8, sum_few_i8, "tdpbssd");

/// `c ← A·B` for 32×32 sums beside each other, of bytes as four planes of limbs: of each piece the plane i of A is multiplied by the plane `pairs` - 1 - i of B.
///
/// # Safety
/// The thread's tiles are ready, the factors can be read and the sums written. Nothing is 0.
#[inline]
unsafe fn sum_limbs(times: usize, pairs: usize, a: *const u8, b: *const u8, c: *mut i32) {
    // SAFETY: the caller's promise. Tiles hold nothing between calls.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "3:",
            "mov {of_a}, {a}",
            "lea {of_b}, [{pairs} - 1]",
            "shl {of_b}, 11",
            "add {of_b}, {b}",
            "mov {i}, {pairs}",
            "4:",
            "tileloadd tmm4, [{of_a} + {row}]",
            "tileloadd tmm6, [{of_b} + {row} * 2]",
            "tdpbuud tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{of_b} + {row} * 2 + 64]",
            "tdpbuud tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{of_a} + {row} + 1024]",
            "tdpbuud tmm2, tmm5, tmm6",
            "tdpbuud tmm3, tmm5, tmm7",
            "add {of_a}, {plane}",
            "sub {of_b}, {plane}",
            "dec {i}",
            "jnz 4b",
            "add {a}, {piece}",
            "add {b}, {piece}",
            "dec {times}",
            "jnz 3b",
            "tilestored [{c} + {row} * 2], tmm0",
            "tilestored [{c} + {row} * 2 + 64], tmm1",
            "tilestored [{c} + {row} * 2 + 2048], tmm2",
            "tilestored [{c} + {row} * 2 + 2112], tmm3",
            i = out(reg) _,
            times = inout(reg) times => _,
            pairs = in(reg) pairs,
            a = inout(reg) a => _,
            b = inout(reg) b => _,
            of_a = out(reg) _,
            of_b = out(reg) _,
            row = in(reg) ROW,
            c = in(reg) c,
            plane = const PLANE,
            piece = const LIMBS * PLANE,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// 32×32 sums in memory.
#[repr(C, align(64))]
struct Sums<S>([[S; SIDE]; SIDE]);

/// A micro-kernel whose values go through the tiles as they are.
macro_rules! run {
    ($name:ident, $t:ty, $sum:ident, $sum_few:ident, $times:expr, $plus:expr) => {
        /// # Safety
        /// As [`super::kernel::Tile`] asks; the thread's tiles are ready and the factors packed as they want them.
        #[target_feature(enable = "avx512f,avx512bw")]
        unsafe fn $name(
            [rows, cols, steps]: [usize; 3],
            alpha: $t,
            factors: Factors<$t>,
            beta: $t,
            c: *mut $t,
            row: isize,
        ) {
            let (one, zero) = (1 as $t, 0 as $t);
            let (times, a, b) = (steps / ROWS, factors.a.cast(), factors.b.cast());
            let high = if rows <= ROWS { ROWS } else { SIDE };
            // SAFETY: the caller's promise; C has these rows and columns, or the sums are made beside it.
            unsafe {
                let sum = match factors.later.rows {
                    _ if rows <= ROWS => $sum_few::<1>,
                    ..=4 => $sum::<1>,
                    8 => $sum::<2>,
                    16 => $sum::<4>,
                    _ => $sum::<8>,
                };
                if [rows, cols] == [high, SIDE] && alpha == one && (beta == zero || beta == one) {
                    return sum(times, a, b, c.cast(), row * size_of::<$t>() as isize, beta == one, &factors.later);
                }
                let mut sums = MaybeUninit::<Sums<$t>>::uninit();
                sum(times, a, b, sums.as_mut_ptr().cast(), STEP as isize, false, &factors.later);
                add(sums.as_ptr().cast(), [rows, cols], alpha, beta, c, row, $times, $plus);
            }
        }
    };
}

run!(run_bf16, f32, sum_bf16, sum_few_bf16, |x, y| x * y, |x, y| x + y);
run!(run_i8, i32, sum_i8, sum_few_i8, i32::wrapping_mul, i32::wrapping_add);

/// As the others, with four planes of limbs: the sums of limbs that stand for the same power of 256 are made together, from the highest power down.
///
/// # Safety
/// As for the others.
unsafe fn run_i32(
    [rows, cols, steps]: [usize; 3],
    alpha: i32,
    factors: Factors<i32>,
    beta: i32,
    c: *mut i32,
    row: isize,
) {
    let (times, a, b) = (steps / (LIMBS * ROWS), factors.a.cast(), factors.b.cast());
    let (mut sums, mut of_power) = (Sums([[0i32; SIDE]; SIDE]), Sums([[0i32; SIDE]; SIDE]));
    for pairs in (1..=LIMBS).rev() {
        // SAFETY: the caller's promise.
        unsafe { sum_limbs(times, pairs, a, b, (&raw mut of_power).cast()) };
        // SAFETY: the machine has it.
        unsafe { shift_and_add(&mut sums, &of_power) };
    }
    // SAFETY: the caller's promise.
    unsafe { add(&raw const sums.0, [rows, cols], alpha, beta, c, row, i32::wrapping_mul, i32::wrapping_add) };
}

#[target_feature(enable = "avx512f")]
fn shift_and_add(sums: &mut Sums<i32>, other: &Sums<i32>) {
    for (sum, &other) in sums.0.as_flattened_mut().iter_mut().zip(other.0.as_flattened()) {
        *sum = (*sum << 8).wrapping_add(other);
    }
}

/// `c ← alpha·sums + beta·c` for the first rows and columns.
///
/// # Safety
/// These sums are there. C has these rows and columns, readable unless beta is 0. The machine has AVX-512.
#[allow(clippy::too_many_arguments, reason = "the arguments of a micro-kernel")]
#[target_feature(enable = "avx512f")]
unsafe fn add<S: Scalar + PartialEq>(
    sums: *const [[S; SIDE]; SIDE],
    [rows, cols]: [usize; 2],
    alpha: S,
    beta: S,
    c: *mut S,
    row: isize,
    times: impl Fn(S, S) -> S,
    plus: impl Fn(S, S) -> S,
) {
    for i in 0..rows {
        // SAFETY: the caller's promise.
        unsafe {
            let (sums, c) =
                (std::slice::from_raw_parts(sums.cast::<S>().add(i * SIDE), cols), c.offset(i as isize * row));
            if beta == S::ZERO {
                (0..cols).for_each(|j| c.add(j).write(times(alpha, sums[j])));
            } else {
                (0..cols).for_each(|j| c.add(j).write(plus(times(alpha, sums[j]), times(beta, c.add(j).read()))));
            }
        }
    }
}

/// Packs rows of A: piece after piece of k, in each 32 rows of 64 bytes, which are elements as they are. Steps that are not there are
/// zeros; rows are left alone, since their sums are dropped.
///
/// # Safety
/// As [`Pack`] asks.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn pack_rows<T: Element>(from: Source<T>, lanes: Range<usize>, k: Range<usize>, _: usize, to: *mut T::Acc) {
    let (to, of_piece, size) = (to.cast::<u8>(), ROW / size_of::<T>(), size_of::<T>());
    for i in 0..lanes.len() {
        for (piece, first) in k.clone().step_by(of_piece).enumerate() {
            let there = of_piece.min(k.end - first);
            let at = |step| from.at(lanes.start + i, first + step);
            // SAFETY: the caller's promise: these elements are in the matrix, and there is room for whole pieces.
            unsafe {
                let to = to.add(piece * PLANE + i * ROW);
                if from.strides()[1] == 1 {
                    let here = _mm512_maskz_loadu_epi8(u64::MAX >> (ROW - there * size), at(0).cast());
                    _mm512_store_si512(to.cast(), here);
                } else {
                    let to = to.cast::<T>();
                    (0..there).for_each(|step| to.add(step).write(at(step).read()));
                    to.add(there).write_bytes(0, of_piece - there);
                }
            }
        }
    }
}

/// Packs columns of B: 16 steps after 16 steps, each of 32 values that are so many elements along k. Columns and steps that are not there are zeros.
///
/// # Safety
/// As [`Pack`] asks.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn pack_panel<T: Element, const DEPTH: usize>(
    from: Source<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    _: usize,
    to: *mut T::Acc,
) {
    let steps = k.len().next_multiple_of(DEPTH * ROWS) / DEPTH;
    if from.strides()[0] == 1 && lanes.len() == SIDE {
        let (mut to, whole) = (to.cast::<u8>(), k.len() / DEPTH);
        let (mut at, row) =
            (from.at(lanes.start, k.start).cast::<u8>(), from.strides()[1].wrapping_mul(size_of::<T>() as isize));
        for _ in 0..whole {
            // SAFETY: the caller's promise: these rows are in the matrix, and there is room for whole pieces.
            unsafe { zip::<DEPTH>(std::array::from_fn(|d| at.wrapping_offset(d as isize * row)), to) };
            (at, to) = (at.wrapping_offset(DEPTH as isize * row), to.wrapping_add(2 * ROW));
        }
        for i in whole..steps {
            let there = |d| k.start + i * DEPTH + d < k.end;
            // SAFETY: as above, but for rows of zeros.
            unsafe {
                let row = |d| if there(d) { at.wrapping_offset(d as isize * row) } else { (&raw const ZEROS).cast() };
                zip::<DEPTH>(std::array::from_fn(row), to);
            }
            to = to.wrapping_add(2 * ROW);
        }
    } else {
        // SAFETY: the caller's promise.
        (0..steps).for_each(|i| unsafe { pack_any_step::<T, DEPTH>(from, &lanes, &k, i, to.cast()) });
    }
}

/// A step of a panel, its columns anywhere.
///
/// # Safety
/// As [`Pack`] asks.
unsafe fn pack_any_step<T: Element, const DEPTH: usize>(
    from: Source<T>,
    lanes: &Range<usize>,
    k: &Range<usize>,
    i: usize,
    to: *mut [[T; DEPTH]; SIDE],
) {
    let first = k.start + i * DEPTH;
    let there = k.end.saturating_sub(first).min(DEPTH);
    // SAFETY: the caller's promise: these elements are in the matrix, and there is room for whole pieces.
    unsafe {
        let to = to.add(i);
        if there == DEPTH && from.strides()[1] == 1 {
            let value = |j| from.at(lanes.start + j, first).cast::<[T; DEPTH]>().read_unaligned();
            *to = std::array::from_fn(|j| if j < lanes.len() { value(j) } else { [T::ZERO; DEPTH] });
        } else {
            let element = |j, d| from.at(lanes.start + j, first + d).read();
            let is_there = |j, d| j < lanes.len() && d < there;
            let value = |j, d| if is_there(j, d) { element(j, d) } else { T::ZERO };
            *to = std::array::from_fn(|j| std::array::from_fn(|d| value(j, d)));
        }
    }
}

/// A row of B that is not there.
static ZEROS: [u8; ROW] = [0; ROW];

/// 32 columns of `DEPTH` rows, each 64 bytes together, as 64 bytes of 16 columns after another.
///
/// # Safety
/// The rows can be read for 64 bytes divided by half their number, and there is room.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn zip<const DEPTH: usize>(rows: [*const u8; DEPTH], to: *mut u8) {
    let order = const { turns(DEPTH) };
    for half in 0..2 {
        // SAFETY: the caller's promise.
        unsafe {
            let order = _mm512_loadu_si512(order.as_ptr().cast());
            let columns = if DEPTH == 2 {
                let of = |d: usize| _mm256_loadu_si256(rows[d].add(32 * half).cast());
                _mm512_inserti64x4::<1>(_mm512_castsi256_si512(of(0)), of(1))
            } else {
                let of = |d: usize| _mm_loadu_si128(rows[d].add(16 * half).cast());
                let columns = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(of(0)), of(1));
                _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(columns, of(2)), of(3))
            };
            _mm512_store_si512(to.add(ROW * half).cast(), _mm512_permutexvar_epi8(order, columns));
        }
    }
}

/// Where the bytes of 16 columns come from, of 64 bytes that are so many rows.
const fn turns(depth: usize) -> [u8; ROW] {
    let mut order = [0; ROW];
    let (size, row) = (LIMBS / depth, ROW / depth);
    let mut i = 0;
    while i < ROW {
        let (column, d, byte) = (i / LIMBS, i % LIMBS / size, i % size);
        order[i] = (d * row + column * size + byte) as u8;
        i += 1;
    }
    order
}

/// Four neighbours along k as the limb of each that a plane has.
#[inline(always)]
fn limbs(of: [i32; 4], plane: usize) -> u32 {
    let limb = |i: usize| (of[i] as u32) >> (8 * plane) & 255;
    limb(0) | limb(1) << 8 | limb(2) << 16 | limb(3) << 24
}

/// Packs rows of A: piece after piece of k, in each its planes, in each 32 rows of 64 limbs. Rows and steps that are not there are zeros.
///
/// # Safety
/// As [`Pack`] asks.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn pack_rows_of_limbs(from: Source<i32>, lanes: Range<usize>, k: Range<usize>, _: usize, to: *mut i32) {
    const PIECE: usize = LIMBS * ROWS;
    let to = to.cast::<[u8; ROW]>();
    // Row by row, as they lie in memory.
    for row in 0..SIDE {
        for (p, first) in k.clone().step_by(PIECE).enumerate() {
            let there = if row < lanes.len() { (k.end - first).min(PIECE) } else { 0 };
            let mut line = [0; PIECE];
            // SAFETY: the caller's promise: these elements are in the matrix.
            let read = |step: usize| unsafe { from.at(lanes.start + row, first + step).read() };
            if from.strides()[1] == 1 && there == PIECE {
                // SAFETY: as above; they lie side by side.
                line = unsafe { from.at(lanes.start + row, first).cast::<[i32; PIECE]>().read() };
            } else {
                line.iter_mut().enumerate().take(there).for_each(|(step, to)| *to = read(step));
            }
            for plane in 0..LIMBS {
                let limbs = line.map(|x| (x >> (8 * plane)) as u8);
                // SAFETY: there is room for whole pieces.
                unsafe { to.add((p * LIMBS + plane) * SIDE + row).write(limbs) };
            }
        }
    }
}

/// Packs columns of B: piece after piece of k, in each its planes, in each 16 steps of 32 values of four limbs. Columns and steps that are not there are zeros.
///
/// # Safety
/// As [`Pack`] asks.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn pack_panel_of_limbs(from: Source<i32>, lanes: Range<usize>, k: Range<usize>, _: usize, to: *mut i32) {
    let to = to.cast::<[u32; SIDE]>();
    let whole = from.strides()[0] == 1 && lanes.len() == SIDE;
    for (step, first) in (k.start..k.start + k.len().next_multiple_of(LIMBS * ROWS)).step_by(LIMBS).enumerate() {
        let mut rows = [[0; SIDE]; LIMBS];
        for (d, row) in rows.iter_mut().enumerate() {
            // SAFETY: the caller's promise: these elements are in the matrix.
            unsafe {
                if first + d >= k.end {
                } else if whole {
                    *row = from.at(lanes.start, first + d).cast::<[i32; SIDE]>().read();
                } else {
                    row.iter_mut().zip(lanes.clone()).for_each(|(to, lane)| *to = from.at(lane, first + d).read());
                }
            }
        }
        let (piece, step) = (step / ROWS, step % ROWS);
        for plane in 0..LIMBS {
            let values = std::array::from_fn(|i| limbs(std::array::from_fn(|d| rows[d][i]), plane));
            // SAFETY: there is room for whole pieces.
            unsafe { to.add((piece * LIMBS + plane) * ROWS + step).write(values) };
        }
    }
}

/// Rounds sums to bf16, subnormal numbers to zeros.
///
/// # Safety
/// As [`Narrow`] asks; the machine has AVX-512 with bf16.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn narrow(from: *const f32, width: usize, to: *mut bf16, row: isize, [rows, cols]: [usize; 2]) {
    for i in 0..rows {
        let (from, to) = (from.wrapping_add(i * width), to.wrapping_offset(i as isize * row));
        for col in (0..cols).step_by(SIDE) {
            let mask = u32::MAX >> (SIDE - SIDE.min(cols - col));
            // SAFETY: the caller's promise; what the mask leaves out is not touched. A vector of bf16 is one of bits.
            unsafe {
                let low = _mm512_maskz_loadu_ps(mask as u16, from.add(col));
                let high = _mm512_maskz_loadu_ps((mask >> ROWS) as u16, from.wrapping_add(col + ROWS));
                let both = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
                _mm512_mask_storeu_epi16(to.add(col).cast(), mask, both);
            }
        }
    }
}

macro_rules! tiles {
    ($(#[$doc:meta])* $name:ident: $t:ty as $sums:ty, kc $kc:literal, depth $depth:literal, unit $unit:expr, direct $direct:literal, $rows:expr, $panel:expr, $run:ident, else $vectors:expr) => {
        $(#[$doc])*
        pub fn $name() -> Tiles<$t> {
            let pack: [Pack<$t>; 2] = [$rows, $panel];
            let run: Choice<$sums> = |_| $run;
            Tiles { lanes: SIDE, rows: [0; VECTORS], block: [SIDE, SIDE], kc: $kc, depth: $depth, unit: $unit, direct: $direct, whole: true, pack, enter, leave, run, lying: None, ..$vectors }
        }
    };
}

tiles! {
    /// 16-bit floats, summed as f32.
    of_bf16: bf16 as f32, kc 2048, depth 2, unit ROWS, direct true, pack_rows, pack_panel::<_, 2>, run_bf16, else Tiles { narrow, ..avx512_f32() }
}
tiles! {
    /// Bytes, summed as i32.
    of_i8: i8 as i32, kc 4096, depth 4, unit ROWS, direct true, pack_rows, pack_panel::<_, 4>, run_i8, else avx512_i8()
}
tiles! {
    /// 32-bit integers by their limbs.
    of_i32: i32 as i32, kc 512, depth 1, unit LIMBS * ROWS, direct false, pack_rows_of_limbs, pack_panel_of_limbs, run_i32, else avx512_i32()
}

#[cfg(test)]
mod tests {
    use tegula_core::matrix::{Layout, Shape};

    use super::*;

    /// Columns whose rows lie together, and the same elsewhere, make the same panel.
    fn panel<T: Element + PartialEq + std::fmt::Debug, const DEPTH: usize>(number: impl Fn(usize) -> T) {
        const WIDE: usize = 40;
        let (lanes, most) = (5..5 + SIDE, 150);
        let rows: Vec<T> = (0..most * WIDE).map(&number).collect();
        let columns: Vec<T> = (0..WIDE * most).map(|i| rows[i % most * WIDE + i / most]).collect();
        let by_rows = Layout::row_major(Shape::new(most, WIDE)).unwrap().transposed();
        let by_columns = Layout::row_major(Shape::new(WIDE, most)).unwrap();
        let packed = |memory: &[T], layout, k: Range<usize>| {
            let len = k.len().next_multiple_of(DEPTH * ROWS) * SIDE;
            let mut to = vec![T::ONE; len];
            // Stores of whole vectors want lines of their own.
            let mut room = vec![[T::ONE; 64]; len / 64 + 1];
            let start = room.as_mut_ptr().cast::<T>();
            let start = start.wrapping_add(start.align_offset(ROW));
            // SAFETY: the numbers outlive the source; lanes and steps are among them, and there is room for whole pieces. The caller has asked for the instructions.
            unsafe {
                pack_panel::<T, DEPTH>(Source::rows(memory.as_ptr(), layout), lanes.clone(), k, 0, start.cast());
                to.copy_from_slice(std::slice::from_raw_parts(start, len));
            }
            to
        };
        for k in [0..1, 3..5, 0..DEPTH * ROWS, 7..7 + 2 * DEPTH * ROWS, 1..DEPTH * ROWS + 2, 2..most] {
            let (fast, plain) = (packed(&rows, by_rows, k.clone()), packed(&columns, by_columns, k.clone()));
            assert_eq!(fast, plain, "{} {k:?}", T::TYPE);
        }
        // The stride of a single step is never used, and may be anything.
        let far = Layout { shape: Shape::new(WIDE, 1), strides: [0, 1, isize::MAX], offset: 0 };
        assert_eq!(packed(&rows, far, 0..1), packed(&rows, by_rows, 0..1));
    }

    #[test]
    fn a_panel_does_not_depend_on_where_its_columns_lie() {
        if !is_x86_feature_detected!("avx512vbmi") || !is_x86_feature_detected!("avx512bw") {
            return eprintln!("skipped: the packing of AMX (no VBMI on this machine)");
        }
        panel::<bf16, 2>(|i| bf16::from_bits(i as u16));
        panel::<i8, 4>(|i| (i * 7) as i8);
    }
}
