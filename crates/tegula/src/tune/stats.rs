//! Statistics of samples: quantiles, median and noise floor.
//!
//! The module depends on numbers only, not on what they measure.

/// Median, 20th and 80th percentile of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    /// 20th percentile.
    pub p20: f64,
    /// 50th percentile.
    pub median: f64,
    /// 80th percentile.
    pub p80: f64,
}

impl Quantiles {
    /// Computes quantiles of unsorted samples by linear interpolation; `None` of no samples.
    pub fn of(samples: &[f64]) -> Option<Quantiles> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |fraction: f64| {
            let rank = fraction * last as f64;
            let below = rank as usize;
            let above = sorted[(below + 1).min(last)];
            sorted[below] + (rank - below as f64) * (above - sorted[below])
        };
        Some(Quantiles { p20: at(0.2), median: at(0.5), p80: at(0.8) })
    }
}

/// Median of samples; NaN of none.
pub fn median(samples: &[f64]) -> f64 {
    Quantiles::of(samples).map_or(f64::NAN, |quantiles| quantiles.median)
}

/// Noise floor of a run: the deviation from 1 of the ratio of a program's time to its own.
///
/// The program is timed twice in each round. The result is the largest |ratio of medians − 1| over
/// the whole run and over each third of it. A speedup closer to 1 than this is not significant.
pub fn noise_floor(first: &[f64], second: &[f64]) -> f64 {
    let deviation = |first: &[f64], second: &[f64]| (median(first) / median(second) - 1.0).abs();
    let pairs = thirds(first).zip(thirds(second)).filter(|(a, b)| !a.is_empty() && !b.is_empty());
    pairs.map(|(a, b)| deviation(a, b)).fold(deviation(first, second), f64::max)
}

/// Splits samples into three consecutive parts of nearly equal length.
fn thirds(samples: &[f64]) -> impl Iterator<Item = &[f64]> {
    (0..3).map(|i| &samples[i * samples.len() / 3..(i + 1) * samples.len() / 3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_do_not_depend_on_order() {
        let samples: Vec<f64> = (0..=10).map(f64::from).collect();
        let reversed: Vec<f64> = samples.iter().rev().copied().collect();
        let expected = Quantiles { p20: 2.0, median: 5.0, p80: 8.0 };
        assert_eq!([Quantiles::of(&samples), Quantiles::of(&reversed)], [Some(expected); 2]);
    }

    #[test]
    fn quantiles_of_few_samples_are_interpolated() {
        assert_eq!(Quantiles::of(&[]), None);
        assert_eq!(Quantiles::of(&[3.0]), Some(Quantiles { p20: 3.0, median: 3.0, p80: 3.0 }));
        assert_eq!(Quantiles::of(&[1.0, 2.0]), Some(Quantiles { p20: 1.2, median: 1.5, p80: 1.8 }));
    }

    #[test]
    fn median_ignores_one_outlier() {
        assert_eq!(median(&[1.0, 1.0, 1.0, 1.0, 900.0]), 1.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn noise_floor_includes_drift_within_the_run() {
        let steady = [1.0; 9];
        assert_eq!(noise_floor(&steady, &steady), 0.0);
        // The same median overall, a larger one in the last third.
        let late = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.2, 1.2, 1.2];
        assert_eq!((median(&late), (noise_floor(&late, &steady) - 0.2).abs() < 1e-12), (1.0, true));
        assert!(noise_floor(&[1.1], &[1.0]) > 0.0999);
    }
}
