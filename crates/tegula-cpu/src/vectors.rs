//! What the vectorized micro-kernels share: strides, prefetches, masks, and dot products.

use std::arch::x86_64::*;
use std::ops::Range;

use tegula_core::element::Scalar;

use super::caches::{Caches, LINE};
use super::micro_kernel::{PrefetchedRows, STEPS_PER_PREFETCH};
use super::pack_source::PackSource;

/// Steps along k, of packed values or of unpacked elements, from which a micro-kernel prefetches
/// its C: enough to hide the cache miss.
pub const PREFETCH_STEPS: usize = 64;
/// Bytes from a row of a panel to what is prefetched while it is packed.
pub const PANELS_AHEAD: usize = 192;

/// An offset or an address that the compiler does not combine with others.
macro_rules! hidden {
    ($value:expr) => {{
        let mut value = $value;
        // SAFETY: the assembly is a comment.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) value, options(nomem, nostack, preserves_flags, pure)) };
        value
    }};
}

/// Begins the stack frame of a function at a cache line.
///
/// Where registers do not suffice for all accumulators, some go through the stack in every step. A
/// vector that crosses a cache line would take several times as long. The compiler aligns them only
/// if a variable needs it.
macro_rules! align_frame {
    () => {
        #[repr(align(64))]
        struct CacheLine(#[allow(dead_code, reason = "only its alignment counts")] u8);
        let line = std::mem::MaybeUninit::<CacheLine>::uninit();
        // SAFETY: the assembly is a comment.
        unsafe { std::arch::asm!("/* {0} */", in(reg) line.as_ptr(), options(readonly, nostack, preserves_flags)) };
    };
}
pub(super) use align_frame;

/// Multiples of a row stride in bytes, so that an address is one register plus a multiple of
/// another. The compiler would otherwise step from row to row, with instructions that displace
/// multiplications.
#[derive(Clone, Copy)]
pub struct RowStrides {
    one: isize,
    three: isize,
    five: isize,
    seven: isize,
    eight: isize,
}

impl RowStrides {
    #[inline(always)]
    pub fn of(row: isize) -> RowStrides {
        // The stride of a single row is never used, and may have any value.
        let [one, three, five, seven, eight] = [1, 3, 5, 7, 8].map(|times| row.wrapping_mul(times));
        RowStrides { one: hidden!(one), three: hidden!(three), five: hidden!(five), seven: hidden!(seven), eight }
    }

    /// The address `i` rows below `from`.
    #[inline(always)]
    #[allow(clippy::pointers_in_nomem_asm_block, reason = "the assembly is a comment")]
    pub fn at<S>(self, from: *const S, i: usize) -> *const S {
        let from = if i < 8 { from } else { hidden!(from.wrapping_byte_offset(self.eight)) };
        from.wrapping_byte_offset(match i % 8 {
            0 => 0,
            1 => self.one,
            2 => self.one.wrapping_mul(2),
            3 => self.three,
            4 => self.one.wrapping_mul(4),
            5 => self.five,
            6 => self.three.wrapping_mul(2),
            _ => self.seven,
        })
    }
}

/// Prefetches rows of C for writing; the row stride and their length are in bytes.
///
/// Not inlined, or each micro-kernel would be compiled with the loops.
#[inline(never)]
pub fn prefetch_c(c: *const i8, rows: usize, row: isize, bytes: usize) {
    for i in 0..rows {
        for line in (0..bytes).step_by(LINE) {
            let address = c.wrapping_offset(i as isize * row).wrapping_add(line);
            // SAFETY: every x86-64 CPU has the instruction, which accesses no memory.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(address) };
        }
    }
}

/// Prefetches the cache line `ahead` bytes after an address, possibly out of bounds.
#[inline(always)]
pub fn prefetch_ahead<S>(from: *const S, ahead: usize) {
    // SAFETY: as above.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_byte_add(ahead).cast()) };
}

/// The same, into the L2 cache.
#[inline(always)]
pub fn prefetch_to_l2<S>(from: *const S, ahead: usize) {
    // SAFETY: as above.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(from.wrapping_byte_add(ahead).cast()) };
}

/// Prefetches rows for the next steps of k, at most `left`. Returns how many steps these are.
///
/// A micro-kernel then multiplies these steps alone: between all steps, the addresses would take
/// registers that the multiplications need.
#[inline(always)]
pub fn prefetch_rows(rows: &mut PrefetchedRows, left: usize) -> usize {
    if rows.count == 0 {
        return left;
    }
    for _ in 0..rows.count {
        for line in 0..rows.lines {
            match rows.to_l2 {
                true => prefetch_to_l2(rows.first, line * LINE),
                false => prefetch_ahead(rows.first, line * LINE),
            }
        }
        rows.first = rows.first.wrapping_offset(rows.stride);
    }
    left.min(STEPS_PER_PREFETCH)
}

/// Whether rows of B are prefetched for the panels that are packed next.
#[inline(always)]
pub fn panels_need_prefetch<T: Scalar>(from: PackSource<T>) -> bool {
    let [lane_stride, k_stride] = from.strides();
    let row_bytes = k_stride.unsigned_abs().saturating_mul(size_of::<T>());
    Caches::detect().need_prefetch && lane_stride == 1 && row_bytes > 2 * PANELS_AHEAD
}

/// Prefetches rows of B for the panels that are packed next.
///
/// Rows of a panel of bytes or bf16 are a cache line or two, and the next ones are far away: the
/// processor does not fetch ahead.
#[inline(always)]
pub fn prefetch_panels<T: Scalar>(from: PackSource<T>, lanes: Range<usize>, k: Range<usize>) {
    if !panels_need_prefetch(from) {
        return;
    }
    for k in k {
        for line in (0..lanes.len() * size_of::<T>()).step_by(LINE) {
            prefetch_ahead(from.at(lanes.start, k), PANELS_AHEAD + line);
        }
    }
}

/// Defines masks of the first lanes of a vector.
macro_rules! masks {
    ($($name:ident: $features:literal, $mask:ty, $lanes:ident => $made:expr;)*) => {$(
        #[inline]
        #[target_feature(enable = $features)]
        pub fn $name($lanes: usize) -> $mask {
            $made
        }
    )*};
}

masks! {
    first16: "avx512f,avx512bw,avx512vl", __mmask16, lanes => ((1u32 << lanes) - 1) as __mmask16;
    first32: "avx512f,avx512bw,avx512vl", __mmask32, lanes => ((1u64 << lanes) - 1) as __mmask32;
    first64: "avx512f,avx512bw,avx512vl", __mmask64, lanes => ((1u128 << lanes) - 1) as __mmask64;
    first8: "avx512f,avx512bw,avx512vl", __mmask8, lanes => ((1u32 << lanes) - 1) as __mmask8;
    words: "avx2", __m256i, lanes => _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    longs: "avx2", __m256i, lanes => _mm256_cmpgt_epi64(_mm256_set1_epi64x(lanes as i64), _mm256_setr_epi64x(0, 1, 2, 3));
}

/// `c ← alpha·sum + beta·c` for the accumulators of a micro-tile of rows and vectors. `c` is read
/// unless `beta` is 0.
macro_rules! update_c {
    ($accumulators:ident: [$rows:expr, $vectors:expr], $alpha:expr, $beta:expr, $c:expr, $row:expr, $mask:expr, $t:ty, $lanes:expr, $splat:ident, $mul:ident, $add:ident, $load:expr, $store:expr) => {{
        let (scale, keep) = ($splat($alpha), $splat($beta));
        let mut sums = from_registers(&$accumulators, $splat(0 as $t));
        // A multiplication of 32-bit integers costs as much as several steps.
        if $alpha != 1 as $t {
            for i in 0..$rows {
                for v in 0..$vectors {
                    sums[i][v] = $mul(scale, sums[i][v]);
                }
            }
        }
        for i in 0..$rows {
            for v in 0..$vectors {
                let c = $c.offset(i as isize * $row).add(v * $lanes);
                let mut sum = sums[i][v];
                if $beta != 0 as $t {
                    sum = $add(sum, $mul(keep, $load(c, $mask(v))));
                }
                $store(c, $mask(v), sum)
            }
        }
    }};
}
pub(super) use update_c;

/// A loop over rows. The compiler may not unroll one of more than eight, which would keep the
/// accumulators in memory: it is split into eights.
macro_rules! for_rows {
    ($i:ident in $rows:expr, $body:block) => {
        if $rows <= 8 {
            for $i in 0..$rows $body
        } else {
            for eighth in 0..usize::div_ceil($rows, 8) {
                for $i in 8 * eighth..usize::min($rows, 8 * eighth + 8) $body
            }
        }
    };
}
pub(super) use for_rows;

/// An array, from the value for each index.
///
/// `from_fn` and `map` are compiled without the instruction set, so closures that need it are
/// inlined only where these functions are inlined before.
macro_rules! array {
    ([$any:expr; $len:expr], |$i:ident| $value:expr) => {{
        let mut values = [$any; $len];
        $crate::vectors::for_rows!($i in $len, {
            values[$i] = $value;
        });
        values
    }};
}
pub(super) use array;

/// A copy of accumulators, for the end of a micro-kernel; `any` is any vector.
///
/// An array is in registers only if all its indices are constants once loops are unrolled. A long
/// loop is not: of that at the end, only the copy is in memory.
#[inline(always)]
pub fn from_registers<V: Copy, const N: usize, const R: usize>(accumulators: &[[V; N]; R], any: V) -> [[V; N]; R] {
    let mut copy = [[any; N]; R];
    for_rows!(i in R, {
        for j in 0..N {
            copy[i][j] = accumulators[i][j];
        }
    });
    copy
}

/// `sum` plus the products of four signed bytes of `a` and four unsigned bytes of `b`, wrapping.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn wide_step_bytes(a: __m512i, b: __m512i, sum: __m512i) -> __m512i {
    _mm512_dpbusd_epi32(sum, b, a)
}

/// `sum` plus the products of two bf16 of `a` and `b`, which the lanes hold.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub fn step_bf16(a: __m512, b: __m512, sum: __m512) -> __m512 {
    // SAFETY: all are vectors of 64 bytes.
    let [a, b] = unsafe { std::mem::transmute::<[__m512; 2], [__m512bh; 2]>([a, b]) };
    _mm512_dpbf16_ps(sum, a, b)
}

/// Rounds f32 to bf16, subnormals to 0.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub fn rounded_to_bf16(sums: __m512) -> __m256i {
    // SAFETY: both are vectors of 32 bytes.
    unsafe { std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(sums)) }
}

/// Widens bf16 to f32.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub fn widened(from: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(from)))
}

/// `sum + a·b` of 32-bit integers, wrapping.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub fn wide_step_i32(a: __m512i, b: __m512i, sum: __m512i) -> __m512i {
    _mm512_add_epi32(sum, _mm512_mullo_epi32(a, b))
}
