//! Loops over the lanes of a warp.

use super::Lanes;

/// Applies a function of N sources in each lane.
///
/// Lanes are zero if sources are missing.
#[inline(always)]
pub(super) fn map<const N: usize>(sources: &[&Lanes], out: &mut Lanes, function: impl Fn([u64; N]) -> u64) {
    let Some(sources) = sources.first_chunk::<N>() else { return out.fill(0) };
    // Of eight lanes at a time the compiler makes vector instructions; it unrolls longer loops first.
    for (chunk, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let chunks = sources.map(|source| source.as_chunks::<8>().0[chunk]);
        *out = std::array::from_fn(|lane| function(chunks.map(|chunk| chunk[lane])));
    }
}

/// Applies a function of 16-bit values to one value, or to both halves of a pair.
#[inline(always)]
pub(super) fn map_halves<const N: usize>(
    sources: &[&Lanes],
    out: &mut Lanes,
    pair: bool,
    function: impl Fn([u16; N]) -> u16,
) {
    if pair {
        map(sources, out, |values: [u64; N]| {
            let low = function(values.map(|value| value as u16));
            let high = function(values.map(|value| (value >> 16) as u16));
            u64::from(low) | u64::from(high) << 16
        });
    } else {
        map(sources, out, |values: [u64; N]| u64::from(function(values.map(|value| value as u16))));
    }
}

/// Applies a function of 32-bit values to one value, or to both halves of a pair.
#[inline(always)]
pub(super) fn map_words<const N: usize>(
    sources: &[&Lanes],
    out: &mut Lanes,
    pair: bool,
    function: impl Fn([u32; N]) -> u32,
) {
    if pair {
        map(sources, out, |values: [u64; N]| {
            let low = function(values.map(|value| value as u32));
            let high = function(values.map(|value| (value >> 32) as u32));
            u64::from(low) | u64::from(high) << 32
        });
    } else {
        map(sources, out, |values: [u64; N]| u64::from(function(values.map(|value| value as u32))));
    }
}
