//! Pseudorandom numbers from a seed.

/// A pseudorandom number below `limit`.
pub fn next(random: &mut u64, limit: u64) -> u64 {
    *random = mix(*random);
    *random % limit
}

/// Shuffles items.
pub fn shuffle<T>(items: &mut [T], random: &mut u64) {
    for i in (1..items.len()).rev() {
        items.swap(i, next(random, i as u64 + 1) as usize);
    }
}

/// A step of the splitmix64 generator.
///
/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
