//! Fused multiply-add over the 32 lanes of a warp, for the interpreter and the reference.
//!
//! Each lane computes `f32::mul_add` (or `f64::mul_add`), with one rounding. In a program built
//! without FMA instructions, `mul_add` is a library call. The functions are therefore compiled a
//! second time with FMA enabled, and selected at run time.

macro_rules! lanes {
    ($name:ident, $fused:ident, $plain:ident, $t:ty) => {
        #[doc = concat!("`out[i] = a[i]·b[i] + c[i]`, rounded once, as by [`", stringify!($t), "::mul_add`].")]
        ///
        /// The bits equal those of `mul_add` for every lane that is not NaN. The payload of a NaN
        /// is unspecified, as in Rust.
        #[inline]
        pub fn $name(a: &[$t; 32], b: &[$t; 32], c: &[$t; 32], out: &mut [$t; 32]) {
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("fma") && is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has both features that the function is compiled for.
                return unsafe { $fused(a, b, c, out) };
            }
            $plain(a, b, c, out);
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "fma,avx2")]
        fn $fused(a: &[$t; 32], b: &[$t; 32], c: &[$t; 32], out: &mut [$t; 32]) {
            $plain(a, b, c, out);
        }

        #[inline(always)]
        fn $plain(a: &[$t; 32], b: &[$t; 32], c: &[$t; 32], out: &mut [$t; 32]) {
            for i in 0..32 {
                out[i] = a[i].mul_add(b[i], c[i]);
            }
        }
    };
}

lanes!(mul_add_f32, fused_f32, plain_f32, f32);
lanes!(mul_add_f64, fused_f64, plain_f64, f64);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Arbitrary bit patterns, including subnormals, infinities and NaN.
    fn warp() -> impl Strategy<Value = [u64; 32]> {
        proptest::array::uniform32(any::<u64>())
    }

    proptest! {
        #[test]
        fn every_lane_equals_mul_add(a in warp(), b in warp(), c in warp()) {
            let ([a, b, c], mut out) = ([a, b, c].map(|x| x.map(f64::from_bits)), [0.0; 32]);
            mul_add_f64(&a, &b, &c, &mut out);
            for i in 0..32 {
                let want = a[i].mul_add(b[i], c[i]);
                prop_assert!(out[i].to_bits() == want.to_bits() || out[i].is_nan() && want.is_nan());
            }
            let ([a, b, c], mut out) = ([a, b, c].map(|x| x.map(|x| f32::from_bits(x.to_bits() as u32))), [0.0; 32]);
            mul_add_f32(&a, &b, &c, &mut out);
            for i in 0..32 {
                let want = a[i].mul_add(b[i], c[i]);
                prop_assert!(out[i].to_bits() == want.to_bits() || out[i].is_nan() && want.is_nan());
            }
        }

        #[test]
        fn product_is_not_rounded_before_the_addition(x in 1.0f64..2.0) {
            let (a, mut out) = ([x; 32], [0.0; 32]);
            mul_add_f64(&a, &a, &[-(x * x); 32], &mut out);
            prop_assert_eq!(out, [x.mul_add(x, -(x * x)); 32]);
            let (x, mut out) = (x as f32, [0.0; 32]);
            mul_add_f32(&[x; 32], &[x; 32], &[-(x * x); 32], &mut out);
            prop_assert_eq!(out, [x.mul_add(x, -(x * x)); 32]);
        }
    }
}
