//! What is said of many times: their median, how far they scatter, and how far the same program is from itself.
//!
//! It knows numbers, not what they measure.

/// The middle of a sample, and what a fifth of it is below and above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    /// A fifth is below.
    pub p20: f64,
    /// Half is below.
    pub median: f64,
    /// A fifth is above.
    pub p80: f64,
}

impl Quantiles {
    /// Of a sample in any order; between two of its values in proportion. `None` of no values.
    pub fn of(sample: &[f64]) -> Option<Quantiles> {
        let mut sorted = sample.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |part: f64| {
            let place = part * last as f64;
            let below = place as usize;
            let above = sorted[(below + 1).min(last)];
            sorted[below] + (place - below as f64) * (above - sorted[below])
        };
        Some(Quantiles { p20: at(0.2), median: at(0.5), p80: at(0.8) })
    }
}

/// The median, NaN of no values.
pub fn median(sample: &[f64]) -> f64 {
    Quantiles::of(sample).map_or(f64::NAN, |quantiles| quantiles.median)
}

/// How far the same program, timed twice in each round, is from itself: the most by which the ratio of the two medians leaves 1, over the
/// whole run or over a third of it. A ratio to somebody else that is nearer to 1 than this says nothing.
pub fn spread(first: &[f64], second: &[f64]) -> f64 {
    let apart = |first: &[f64], second: &[f64]| (median(first) / median(second) - 1.0).abs();
    let thirds = parts(first).zip(parts(second)).filter(|(a, b)| !a.is_empty() && !b.is_empty());
    thirds.map(|(a, b)| apart(a, b)).fold(apart(first, second), f64::max)
}

/// Three successive parts, as equal as can be.
fn parts(sample: &[f64]) -> impl Iterator<Item = &[f64]> {
    (0..3).map(|i| &sample[i * sample.len() / 3..(i + 1) * sample.len() / 3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_do_not_depend_on_order() {
        let sample: Vec<f64> = (0..=10).map(f64::from).collect();
        let backwards: Vec<f64> = sample.iter().rev().copied().collect();
        let expected = Quantiles { p20: 2.0, median: 5.0, p80: 8.0 };
        assert_eq!([Quantiles::of(&sample), Quantiles::of(&backwards)], [Some(expected); 2]);
    }

    #[test]
    fn quantiles_of_few_lie_between_them() {
        assert_eq!(Quantiles::of(&[]), None);
        assert_eq!(Quantiles::of(&[3.0]), Some(Quantiles { p20: 3.0, median: 3.0, p80: 3.0 }));
        assert_eq!(Quantiles::of(&[1.0, 2.0]), Some(Quantiles { p20: 1.2, median: 1.5, p80: 1.8 }));
    }

    #[test]
    fn one_outlier_does_not_move_the_median() {
        assert_eq!(median(&[1.0, 1.0, 1.0, 1.0, 900.0]), 1.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_program_that_drifts_is_apart_from_itself() {
        let steady = [1.0; 9];
        assert_eq!(spread(&steady, &steady), 0.0);
        // As fast on the whole, not in the last third.
        let late = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.2, 1.2, 1.2];
        assert_eq!((median(&late), (spread(&late, &steady) - 0.2).abs() < 1e-12), (1.0, true));
        assert!(spread(&[1.1], &[1.0]) > 0.0999);
    }
}
