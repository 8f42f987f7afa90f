//! Micro-kernels of AMX, which multiplies tiles of 16 rows of 64 bytes.
//!
//! The instructions are in the Intel SDM, volume 1, chapter 18.
//!
//! Each accumulates a 32×32 micro-tile in four tile registers, from two tiles of A and two of B:
//! 16-bit floats two steps of k at a time, bytes four. A 32-bit integer is four bytes, its limbs.
//! Mod 2³² a product is the ten products of limbs that reach the lower 32 bits.
//!
//! AMX treats subnormal bf16 numbers as zeros.

use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

use half::bf16;
use tegula_core::element::{Element, Scalar};

use super::micro_kernel::{MicroKernel, MicroOperands, OverlappedPacking, PackFn, SelectFn, VECTORS};
use super::pack_source::PackSource;
use super::vectors::array;
use super::x86::{avx512_f32, avx512_i8, avx512_i32};

/// Rows of a tile, and packed values along k that a tile holds.
const ROWS: usize = 16;
/// MR and NR: rows and columns of a micro-tile.
const SIDE: usize = 2 * ROWS;
/// Limbs of a 32-bit integer.
const LIMBS: usize = 4;

/// Tile configuration for `ldtilecfg`: eight tiles of 16 rows of 64 bytes.
#[repr(C, align(64))]
struct TileConfig([u8; 64]);

const TILE_CONFIG: TileConfig = {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        bytes[16 + 2 * tile] = 64;
        bytes[48 + tile] = ROWS as u8;
        tile += 1;
    }
    TileConfig(bytes)
};

/// Configures the tile registers of this thread.
fn setup() {
    // SAFETY: only AMX micro-kernels call this, and the CPU has AMX.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &TILE_CONFIG, options(nostack, readonly)) };
}

/// Releases the tile registers, so that the system need not save them.
fn teardown() {
    // SAFETY: as above.
    unsafe { asm!("tilerelease", options(nostack, nomem)) };
}

/// Bytes of a row of a tile.
const ROW: usize = 64;
/// Stride along k of packed B in bytes: 32 values.
const STEP: usize = 2 * ROW;
/// Bytes of 32 rows of limbs of A, or 16 steps of packed B.
const PLANE: usize = ROWS * STEP;

/// Defines the loop of a micro-kernel of `$rows` rows, with the instructions for the lower 16.
macro_rules! k_loop {
    ($name:ident, $multiply:literal, $rows:expr, [$($load:literal),*], [$($zero:literal),*], [$($low:expr),*], [$($store:literal),*]) => {
        /// `c ← A·B`, or `c ← c + A·B` with `add`, for 32 columns of accumulators.
        ///
        /// The row stride of the accumulators is `row` bytes. Packed A and B have `times` pieces
        /// along k.
        ///
        /// Meanwhile it packs `FOURS` times four rows of A for the next micro-panel. During the
        /// last pieces it prefetches the rows that will be written, as few at a time as possible:
        /// all at once would delay the tile loads.
        ///
        /// # Safety
        /// The CPU has AVX-512, and the tile registers of the thread are configured. No size is 0.
        /// The operands can be read. The accumulators can be written, and read with `add`. The rows
        /// to pack can be read, and their destination can be written.
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        unsafe fn $name<const FOURS: usize>(times: usize, a: *const u8, b: *const u8, c: *mut u8, row: isize, add: bool, overlap: &OverlappedPacking) {
            // SAFETY: the caller's promise. Tile registers hold nothing between calls.
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
                    // Uses the operand in the variant of 16 rows, which has no lower rows.
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
                    soon = inout(reg) overlap.prefetch => _,
                    soon_row = in(reg) overlap.prefetch_row,
                    from = inout(reg) overlap.source => _,
                    from_row = in(reg) overlap.source_row,
                    to = inout(reg) overlap.dest => _,
                    four = inout(reg) usize::from(add) => _,
                    fours = const FOURS,
                    rows = const $rows,
                    in("k2") overlap.tail_mask,
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
    ($name:ident, $name_16_rows:ident, $multiply:literal) => {
        k_loop!(
            $name, $multiply, SIDE,
            ["tileloadd tmm2, [{low} + {row}]", "tileloadd tmm3, [{low} + {row} + 64]"],
            ["tilezero tmm2", "tilezero tmm3"],
            ["tileloadd tmm5, [{a} + {line} + 1024]", concat!($multiply, " tmm2, tmm5, tmm6"), concat!($multiply, " tmm3, tmm5, tmm7")],
            ["tilestored [{low} + {row}], tmm2", "tilestored [{low} + {row} + 64], tmm3"]
        );
        k_loop!($name_16_rows, $multiply, ROWS, [], [], [], []);
    };
}

k_loop!(k_loop_bf16, k_loop_bf16_16_rows, "tdpbf16ps");
k_loop!(k_loop_i8, k_loop_i8_16_rows, "tdpbssd");

/// `c ← A·B` for contiguous 32×32 accumulators and operands of four planes of limbs. Of each piece,
/// plane i of A is multiplied by plane `pairs` - 1 - i of B.
///
/// # Safety
/// The tile registers of the thread are configured. No size is 0. The operands can be read and the
/// accumulators can be written.
#[inline]
unsafe fn k_loop_limbs(times: usize, pairs: usize, a: *const u8, b: *const u8, c: *mut i32) {
    // SAFETY: the caller's promise. Tile registers hold nothing between calls.
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

/// A micro-tile of accumulators in memory.
#[repr(C, align(64))]
struct AccumulatorTile<S>([[S; SIDE]; SIDE]);

/// Defines a micro-kernel whose packed values the tile registers take unchanged.
macro_rules! micro_kernel {
    ($name:ident, $t:ty, $k_loop:ident, $k_loop_16_rows:ident, $times:expr, $plus:expr) => {
        /// # Safety
        /// As for [`super::micro_kernel::MicroKernelFn`]. The tile registers of the thread are
        /// configured, and the operands are packed for them.
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        unsafe fn $name(
            [rows, cols, k_groups]: [usize; 3],
            alpha: $t,
            operands: &MicroOperands<$t>,
            beta: $t,
            c: *mut $t,
            row: isize,
        ) {
            let (one, zero) = (1 as $t, 0 as $t);
            let (times, a, b) = (k_groups / ROWS, operands.a.cast(), operands.b.cast());
            let high = if rows <= ROWS { ROWS } else { SIDE };
            // SAFETY: the caller's promise; a partial micro-tile accumulates in scratch instead of
            // C.
            unsafe {
                let k_loop = match operands.overlap.rows {
                    _ if rows <= ROWS => $k_loop_16_rows::<1>,
                    ..=4 => $k_loop::<1>,
                    8 => $k_loop::<2>,
                    16 => $k_loop::<4>,
                    _ => $k_loop::<8>,
                };
                if [rows, cols] == [high, SIDE] && alpha == one && (beta == zero || beta == one) {
                    return k_loop(
                        times,
                        a,
                        b,
                        c.cast(),
                        row * size_of::<$t>() as isize,
                        beta == one,
                        operands.overlap,
                    );
                }
                let mut accumulators = MaybeUninit::<AccumulatorTile<$t>>::uninit();
                k_loop(times, a, b, accumulators.as_mut_ptr().cast(), STEP as isize, false, operands.overlap);
                store_scaled(accumulators.as_ptr().cast(), [rows, cols], alpha, beta, c, row, $times, $plus);
            }
        }
    };
}

micro_kernel!(micro_kernel_bf16, f32, k_loop_bf16, k_loop_bf16_16_rows, |x, y| x * y, |x, y| x + y);
micro_kernel!(micro_kernel_i8, i32, k_loop_i8, k_loop_i8_16_rows, i32::wrapping_mul, i32::wrapping_add);

/// The micro-kernel on four planes of limbs. Products of limbs of the same power of 256 accumulate
/// together, from the highest power down.
///
/// # Safety
/// As for the other micro-kernels.
unsafe fn micro_kernel_i32(
    [rows, cols, k_groups]: [usize; 3],
    alpha: i32,
    operands: &MicroOperands<i32>,
    beta: i32,
    c: *mut i32,
    row: isize,
) {
    let (times, a, b) = (k_groups / (LIMBS * ROWS), operands.a.cast(), operands.b.cast());
    let (mut accumulators, mut power) = (AccumulatorTile([[0i32; SIDE]; SIDE]), AccumulatorTile([[0i32; SIDE]; SIDE]));
    for pairs in (1..=LIMBS).rev() {
        // SAFETY: the caller's promise.
        unsafe { k_loop_limbs(times, pairs, a, b, (&raw mut power).cast()) };
        // SAFETY: the CPU has AVX-512.
        unsafe { shift_and_add(&mut accumulators, &power) };
    }
    // SAFETY: the caller's promise.
    unsafe {
        store_scaled(&raw const accumulators.0, [rows, cols], alpha, beta, c, row, i32::wrapping_mul, i32::wrapping_add)
    };
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn shift_and_add(accumulators: &mut AccumulatorTile<i32>, other: &AccumulatorTile<i32>) {
    for (sum, &other) in accumulators.0.as_flattened_mut().iter_mut().zip(other.0.as_flattened()) {
        *sum = (*sum << 8).wrapping_add(other);
    }
}

/// `c ← alpha·accumulators + beta·c` for the first rows and columns.
///
/// # Safety
/// The accumulators of these rows and columns are initialized. C has these rows and columns, and
/// can be read unless beta is 0. The CPU has AVX-512.
#[allow(clippy::too_many_arguments, reason = "the arguments of a micro-kernel")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn store_scaled<S: Scalar + PartialEq>(
    accumulators: *const [[S; SIDE]; SIDE],
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
            let (accumulators, c) =
                (std::slice::from_raw_parts(accumulators.cast::<S>().add(i * SIDE), cols), c.offset(i as isize * row));
            for (j, &sum) in accumulators.iter().enumerate() {
                let sum = times(alpha, sum);
                c.add(j).write(if beta == S::ZERO { sum } else { plus(sum, times(beta, c.add(j).read())) });
            }
        }
    }
}

/// Packs rows of A: piece after piece along k, each of 32 rows of 64 bytes of unconverted elements.
///
/// Steps out of bounds are zeros. Rows out of bounds keep what they held, since their accumulators
/// are dropped.
///
/// # Safety
/// As for [`PackFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn pack_rows<T: Element>(from: PackSource<T>, lanes: Range<usize>, k: Range<usize>, _: usize, to: *mut T::Acc) {
    let (to, piece_len, size) = (to.cast::<u8>(), ROW / size_of::<T>(), size_of::<T>());
    for i in 0..lanes.len() {
        for (piece, first) in k.clone().step_by(piece_len).enumerate() {
            let valid = piece_len.min(k.end - first);
            let at = |step| from.at(lanes.start + i, first + step);
            // SAFETY: the caller's promise: these elements are in the matrix, and `to` holds whole
            // pieces.
            unsafe {
                let to = to.add(piece * PLANE + i * ROW);
                if from.strides()[1] == 1 {
                    let here = _mm512_maskz_loadu_epi8(u64::MAX >> (ROW - valid * size), at(0).cast());
                    _mm512_store_si512(to.cast(), here);
                } else {
                    let to = to.cast::<T>();
                    for step in 0..valid {
                        to.add(step).write(at(step).read());
                    }
                    to.add(valid).write_bytes(0, piece_len - valid);
                }
            }
        }
    }
}

/// Packs columns of B: step after step of 32 values, each of `K_PACK` elements along k. Columns and
/// steps out of bounds are zeros.
///
/// # Safety
/// As for [`PackFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn pack_panel<T: Element, const K_PACK: usize>(
    from: PackSource<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    _: usize,
    to: *mut T::Acc,
) {
    let steps = k.len().next_multiple_of(K_PACK * ROWS) / K_PACK;
    if from.strides()[0] == 1 && lanes.len() == SIDE {
        let (mut to, whole) = (to.cast::<u8>(), k.len() / K_PACK);
        let (mut at, row) =
            (from.at(lanes.start, k.start).cast::<u8>(), from.strides()[1].wrapping_mul(size_of::<T>() as isize));
        for _ in 0..whole {
            // SAFETY: the caller's promise: these rows are in the matrix, and `to` holds whole
            // pieces.
            unsafe { interleave::<K_PACK>(array!([at; K_PACK], |d| at.wrapping_offset(d as isize * row)), to) };
            (at, to) = (at.wrapping_offset(K_PACK as isize * row), to.wrapping_add(2 * ROW));
        }
        for i in whole..steps {
            let valid = |d| k.start + i * K_PACK + d < k.end;
            // SAFETY: as above; rows out of bounds are rows of zeros.
            unsafe {
                let row = |d| if valid(d) { at.wrapping_offset(d as isize * row) } else { (&raw const ZEROS).cast() };
                interleave::<K_PACK>(array!([at; K_PACK], |d| row(d)), to);
            }
            to = to.wrapping_add(2 * ROW);
        }
    } else {
        // SAFETY: the caller's promise.
        (0..steps).for_each(|i| unsafe { pack_any_step::<T, K_PACK>(from, &lanes, &k, i, to.cast()) });
    }
}

/// Packs a step of columns of any strides.
///
/// # Safety
/// As for [`PackFn`].
unsafe fn pack_any_step<T: Element, const K_PACK: usize>(
    from: PackSource<T>,
    lanes: &Range<usize>,
    k: &Range<usize>,
    i: usize,
    to: *mut [[T; K_PACK]; SIDE],
) {
    let first = k.start + i * K_PACK;
    let valid = k.end.saturating_sub(first).min(K_PACK);
    // SAFETY: the caller's promise: these elements are in the matrix, and `to` holds whole pieces.
    unsafe {
        let to = to.add(i);
        if valid == K_PACK && from.strides()[1] == 1 {
            let value = |j| from.at(lanes.start + j, first).cast::<[T; K_PACK]>().read_unaligned();
            *to = std::array::from_fn(|j| if j < lanes.len() { value(j) } else { [T::ZERO; K_PACK] });
        } else {
            let element = |j, d| from.at(lanes.start + j, first + d).read();
            let is_valid = |j, d| j < lanes.len() && d < valid;
            let value = |j, d| if is_valid(j, d) { element(j, d) } else { T::ZERO };
            *to = std::array::from_fn(|j| std::array::from_fn(|d| value(j, d)));
        }
    }
}

/// A row of B out of bounds.
static ZEROS: [u8; ROW] = [0; ROW];

/// Interleaves `K_PACK` rows of 32 columns into two vectors of 16 columns each.
///
/// # Safety
/// 128 / `K_PACK` bytes of each row can be read, and 128 bytes of `to` can be written.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn interleave<const K_PACK: usize>(rows: [*const u8; K_PACK], to: *mut u8) {
    let order = const { interleave_order(K_PACK) };
    for half in 0..2 {
        // SAFETY: the caller's promise.
        unsafe {
            let order = _mm512_loadu_si512(order.as_ptr().cast());
            let columns = if K_PACK == 2 {
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

/// The byte permutation that interleaves `k_pack` rows of 16 columns, 64 bytes in all.
const fn interleave_order(k_pack: usize) -> [u8; ROW] {
    let mut order = [0; ROW];
    let (size, row) = (LIMBS / k_pack, ROW / k_pack);
    let mut i = 0;
    while i < ROW {
        let (column, d, byte) = (i / LIMBS, i % LIMBS / size, i % size);
        order[i] = (d * row + column * size + byte) as u8;
        i += 1;
    }
    order
}

/// The limbs of four neighbors along k in a plane.
#[inline(always)]
fn limbs(of: [i32; 4], plane: usize) -> u32 {
    let limb = |i: usize| (of[i] as u32) >> (8 * plane) & 255;
    limb(0) | limb(1) << 8 | limb(2) << 16 | limb(3) << 24
}

/// Packs rows of A as limbs: piece after piece along k.
///
/// A piece has four planes, each of 32 rows of 64 limbs. Rows and steps out of bounds are zeros.
///
/// # Safety
/// As for [`PackFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn pack_rows_of_limbs(from: PackSource<i32>, lanes: Range<usize>, k: Range<usize>, _: usize, to: *mut i32) {
    const PIECE: usize = LIMBS * ROWS;
    let to = to.cast::<[u8; ROW]>();
    // Row by row, as they are stored.
    for row in 0..SIDE {
        for (p, first) in k.clone().step_by(PIECE).enumerate() {
            let valid = if row < lanes.len() { (k.end - first).min(PIECE) } else { 0 };
            let mut line = [0; PIECE];
            // SAFETY: the caller's promise: these elements are in the matrix.
            let read = |step: usize| unsafe { from.at(lanes.start + row, first + step).read() };
            if from.strides()[1] == 1 && valid == PIECE {
                // SAFETY: as above; they are contiguous.
                line = unsafe { from.at(lanes.start + row, first).cast::<[i32; PIECE]>().read() };
            } else {
                line.iter_mut().enumerate().take(valid).for_each(|(step, to)| *to = read(step));
            }
            for plane in 0..LIMBS {
                let limbs = line.map(|x| (x >> (8 * plane)) as u8);
                // SAFETY: `to` holds whole pieces.
                unsafe { to.add((p * LIMBS + plane) * SIDE + row).write(limbs) };
            }
        }
    }
}

/// Packs columns of B as limbs: piece after piece along k.
///
/// A piece has four planes, each of 16 steps of 32 values of four limbs. Columns and steps out of
/// bounds are zeros.
///
/// # Safety
/// As for [`PackFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn pack_panel_of_limbs(from: PackSource<i32>, lanes: Range<usize>, k: Range<usize>, _: usize, to: *mut i32) {
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
            // SAFETY: `to` holds whole pieces.
            unsafe { to.add((piece * LIMBS + plane) * ROWS + step).write(values) };
        }
    }
}

/// Rounds accumulators to bf16, subnormal numbers to zeros.
///
/// # Safety
/// As for [`NarrowFn`](super::micro_kernel::NarrowFn). The CPU has AVX-512 with bf16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn narrow(from: *const f32, width: usize, to: *mut bf16, row: isize, [rows, cols]: [usize; 2]) {
    for i in 0..rows {
        let (from, to) = (from.wrapping_add(i * width), to.wrapping_offset(i as isize * row));
        for col in (0..cols).step_by(SIDE) {
            let mask = u32::MAX >> (SIDE - SIDE.min(cols - col));
            // SAFETY: the caller's promise; masked elements are not accessed. A vector of bf16 is a
            // vector of bits.
            unsafe {
                let low = _mm512_maskz_loadu_ps(mask as u16, from.add(col));
                let high = _mm512_maskz_loadu_ps((mask >> ROWS) as u16, from.wrapping_add(col + ROWS));
                let both = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
                _mm512_mask_storeu_epi16(to.add(col).cast(), mask, both);
            }
        }
    }
}

macro_rules! micro_kernels {
    ($(#[$doc:meta])* $name:ident: $t:ty as $acc:ty, kc $kc:literal, k_pack $k_pack:literal, k_unit $k_unit:expr, direct_a $direct_a:literal, $rows:expr, $panel:expr, $micro_kernel:ident, else $vectors:expr) => {
        $(#[$doc])*
        pub const fn $name() -> MicroKernel<$t> {
            let pack: [PackFn<$t>; 2] = [$rows, $panel];
            let select_packed: SelectFn<$acc> = |_| $micro_kernel;
            MicroKernel { vector_len: SIDE, max_rows: [0; VECTORS], tile: [SIDE, SIDE], kc: $kc, k_pack: $k_pack, k_unit: $k_unit, direct_a: $direct_a, padded_a: true, pack, setup, teardown, select_packed, select_rounded: None, select_unpacked: None, select_unpacked_rounded: None, along_k: None, whole_columns: None, ..$vectors }
        }
    };
}

micro_kernels! {
    /// bf16 with f32 accumulators.
    of_bf16: bf16 as f32, kc 2048, k_pack 2, k_unit ROWS, direct_a true, pack_rows, pack_panel::<_, 2>, micro_kernel_bf16, else MicroKernel { narrow, ..avx512_f32() }
}
micro_kernels! {
    /// i8 with i32 accumulators.
    of_i8: i8 as i32, kc 4096, k_pack 4, k_unit ROWS, direct_a true, pack_rows, pack_panel::<_, 4>, micro_kernel_i8, else avx512_i8()
}
micro_kernels! {
    /// i32 by limbs.
    of_i32: i32 as i32, kc 512, k_pack 1, k_unit LIMBS * ROWS, direct_a false, pack_rows_of_limbs, pack_panel_of_limbs, micro_kernel_i32, else avx512_i32()
}

#[cfg(test)]
mod tests {
    use tegula_core::matrix::{Layout, Shape};

    use super::*;

    /// Columns with contiguous rows, and the same columns contiguous along k, pack to the same
    /// panel.
    fn check_panel<T: Element + PartialEq + std::fmt::Debug, const K_PACK: usize>(number: impl Fn(usize) -> T) {
        const WIDE: usize = 40;
        let (lanes, most) = (5..5 + SIDE, 150);
        let rows: Vec<T> = (0..most * WIDE).map(&number).collect();
        let columns: Vec<T> = (0..WIDE * most).map(|i| rows[i % most * WIDE + i / most]).collect();
        let by_rows = Layout::row_major(Shape::new(most, WIDE)).unwrap().transposed();
        let by_columns = Layout::row_major(Shape::new(WIDE, most)).unwrap();
        let packed = |memory: &[T], layout, k: Range<usize>| {
            let len = k.len().next_multiple_of(K_PACK * ROWS) * SIDE;
            let mut to = vec![T::ONE; len];
            // Stores of whole vectors need aligned lines.
            let mut panel = vec![[T::ONE; 64]; len / 64 + 1];
            let start = panel.as_mut_ptr().cast::<T>();
            let start = start.wrapping_add(start.align_offset(ROW));
            // SAFETY: the elements outlive the source, lanes and steps are in the matrix, and the
            // panel holds whole pieces. The caller has detected the instructions.
            unsafe {
                pack_panel::<T, K_PACK>(PackSource::rows(memory.as_ptr(), layout), lanes.clone(), k, 0, start.cast());
                to.copy_from_slice(std::slice::from_raw_parts(start, len));
            }
            to
        };
        for k in [0..1, 3..5, 0..K_PACK * ROWS, 7..7 + 2 * K_PACK * ROWS, 1..K_PACK * ROWS + 2, 2..most] {
            let (fast, plain) = (packed(&rows, by_rows, k.clone()), packed(&columns, by_columns, k.clone()));
            assert_eq!(fast, plain, "{} {k:?}", T::TYPE);
        }
        // The stride of a single step is never used, and may have any value.
        let far = Layout { shape: Shape::new(WIDE, 1), strides: [0, 1, isize::MAX], offset: 0 };
        assert_eq!(packed(&rows, far, 0..1), packed(&rows, by_rows, 0..1));
    }

    #[test]
    fn packed_panel_is_independent_of_strides() {
        if !is_x86_feature_detected!("avx512vbmi") || !is_x86_feature_detected!("avx512bw") {
            return eprintln!("skipped: packing for AMX (this CPU has no AVX-512 VBMI)");
        }
        check_panel::<bf16, 2>(|i| bf16::from_bits(i as u16));
        check_panel::<i8, 4>(|i| (i * 7) as i8);
    }
}
