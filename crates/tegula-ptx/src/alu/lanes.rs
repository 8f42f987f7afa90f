//! Loops over the lanes of a warp.
//!
//! Frequent instructions have a loop each, which the compiler vectorizes ([`map`]). The others
//! share one that calls a function for each lane ([`map_calls`]): loops for all of them would be
//! much of what compiling the crate costs.

use super::Lanes;

/// Applies a function of N sources to each lane of `out`.
///
/// If fewer than N sources are given, `out` is zero.
#[inline(always)]
pub(super) fn map<const N: usize>(sources: &[&Lanes], out: &mut [u64], function: impl Fn([u64; N]) -> u64) {
    let Some(sources) = sources.first_chunk::<N>() else { return out.fill(0) };
    // With a number of lanes that is not a constant, the compiler vectorizes the loop.
    let count = out.len().min(32);
    let sources = each(*sources, |source| &source[..count]);
    for (lane, out) in out[..count].iter_mut().enumerate() {
        *out = function(each(sources, |source| source[lane]));
    }
}

/// As [`map`], with one loop for all functions of N sources.
#[inline(never)]
pub(super) fn map_calls<const N: usize>(sources: &[&Lanes], out: &mut [u64], function: &dyn Fn([u64; N]) -> u64) {
    map(sources, out, function);
}

/// Applies a function to each element of an array.
///
/// The same as `array::map`, but always inlined, so that the caller's loop is vectorized.
#[inline(always)]
pub(super) fn each<const N: usize, T: Copy, U: Copy>(values: [T; N], function: impl Fn(T) -> U) -> [U; N] {
    let mut results = [function(values[0]); N];
    for n in 1..N {
        results[n] = function(values[n]);
    }
    results
}

/// Applies a function of 16-bit values to one value, or to both halves of a pair.
pub(super) fn map_halves<const N: usize>(
    sources: &[&Lanes],
    out: &mut [u64],
    pair: bool,
    function: &dyn Fn([u16; N]) -> u16,
) {
    if pair {
        map_calls(sources, out, &|values: [u64; N]| {
            let low = function(each(values, |value| value as u16));
            let high = function(each(values, |value| (value >> 16) as u16));
            u64::from(low) | u64::from(high) << 16
        });
    } else {
        map_calls(sources, out, &|values: [u64; N]| u64::from(function(each(values, |value| value as u16))));
    }
}

/// Applies a function of 32-bit values to one value, or to both halves of a pair.
pub(super) fn map_words<const N: usize>(
    sources: &[&Lanes],
    out: &mut [u64],
    pair: bool,
    function: &dyn Fn([u32; N]) -> u32,
) {
    if pair {
        map_calls(sources, out, &|values: [u64; N]| {
            let low = function(each(values, |value| value as u32));
            let high = function(each(values, |value| (value >> 32) as u32));
            u64::from(low) | u64::from(high) << 32
        });
    } else {
        map_calls(sources, out, &|values: [u64; N]| u64::from(function(each(values, |value| value as u32))));
    }
}
