//! An element of the reference in double-double arithmetic, with an exponent beyond that of f64.
//! The sources of the algorithms are [above](super).

/// Element of the reference: an unevaluated sum high + low, and its magnitude.
///
/// The magnitude is |α||A||B| + |β||C₀|.
#[derive(Clone, Copy, Default)]
pub struct ReferenceElement {
    pub high: f64,
    pub low: f64,
    pub magnitude: f64,
    /// Power of 2 that scales all three.
    ///
    /// Nonzero only if value or magnitude exceed the range of f64.
    pub exponent: i32,
    /// Whether partial sums may exceed the range of the accumulator type.
    pub may_overflow: bool,
}

impl ReferenceElement {
    /// Creates an element.
    ///
    /// `low` becomes 0 if it is NaN, which follows from an infinite or NaN value.
    pub fn new(high: f64, low: f64, magnitude: f64) -> Self {
        ReferenceElement {
            high,
            low: if low.is_finite() { low } else { 0.0 },
            magnitude,
            ..ReferenceElement::default()
        }
    }

    /// Value rounded to f64; infinite beyond its range.
    pub fn value(self) -> f64 {
        scale_by_power(self.high + self.low, self.exponent)
    }
}

/// Computes x·2ⁿ, rounded once, or twice for subnormal results.
pub fn scale_by_power(x: f64, exponent: i32) -> f64 {
    // 2ⁿ alone may overflow where x·2ⁿ does not.
    let exponent = exponent.clamp(-2000, 2000);
    x * 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2)
}

/// Splits x into a mantissa of magnitude 1 to 2, or less if subnormal, and an exponent of 2.
///
/// Infinities, NaN and 0 are unchanged.
pub fn mantissa_exponent(x: f64) -> (f64, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    let exponent = (x.to_bits() >> 52 & 0x7FF) as i32 - 1023;
    (scale_by_power(x, -exponent), exponent)
}

impl ReferenceElement {
    /// Rescales to a magnitude near 1.
    pub fn normalized(self) -> Self {
        let exponent = mantissa_exponent(self.magnitude).1;
        let [high, low, magnitude] = [self.high, self.low, self.magnitude].map(|x| scale_by_power(x, -exponent));
        ReferenceElement { high, low, magnitude, exponent: self.exponent + exponent, ..self }
    }

    /// Adds two elements, with the range and precision of the larger.
    pub fn plus(self, other: Self) -> Self {
        let (x, y) = (self.normalized(), other.normalized());
        if x.magnitude == 0.0 || y.magnitude == 0.0 {
            return if y.magnitude == 0.0 { x } else { y };
        }
        let exponent = x.exponent.max(y.exponent);
        let at =
            |z: ReferenceElement| [z.high, z.low, z.magnitude].map(|part| scale_by_power(part, z.exponent - exponent));
        let ([x, x_low, x_size], [y, y_low, y_size]) = (at(x), at(y));
        let (high, error_of_sum) = two_sum(x, y);
        ReferenceElement { exponent, ..ReferenceElement::new(high, x_low + y_low + error_of_sum, x_size + y_size) }
    }
}

/// Computes x + y and its rounding error.
#[inline(always)]
pub fn two_sum(x: f64, y: f64) -> (f64, f64) {
    let sum = x + y;
    let part = sum - x;
    (sum, (x - (sum - part)) + (y - part))
}

/// Computes x·y and its rounding error.
pub fn two_product(x: f64, y: f64) -> (f64, f64) {
    (x * y, x.mul_add(y, -(x * y)))
}
