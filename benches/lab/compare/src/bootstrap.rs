//! How sure a median is: an interval by the bootstrap (Efron 1979), the percentile method.

use unisono_schedule::SplitMix;

use crate::judge::{median, quantile};

/// Resamplings behind an interval.
const RESAMPLES: usize = 4000;
/// Share of the resampled medians inside the interval.
pub(crate) const CONFIDENCE: f64 = 0.9;
/// Fixed, so that a report made again from the same figures is the same report.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// An interval that holds the median of what `values` were drawn from with a probability of [`CONFIDENCE`]; NaN of
/// none.
pub(crate) fn interval(values: &[f64]) -> (f64, f64) {
    if values.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    let mut random = SplitMix(SEED);
    let mut resample = || {
        let drawn: Vec<f64> = values.iter().map(|_| values[below(&mut random, values.len())]).collect();
        median(&drawn)
    };
    let medians: Vec<f64> = (0..RESAMPLES).map(|_| resample()).collect();
    let tail = (1.0 - CONFIDENCE) / 2.0;
    (quantile(&medians, tail), quantile(&medians, 1.0 - tail))
}

/// A number below `count`.
fn below(random: &mut SplitMix, count: usize) -> usize {
    ((u128::from(random.next_u64()) * count as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_leave_no_doubt_and_no_values_say_nothing() {
        assert_eq!(interval(&[1.5; 11]), (1.5, 1.5));
        let (low, high) = interval(&[]);
        assert!(low.is_nan() && high.is_nan());
    }

    #[test]
    fn it_surrounds_the_median_and_narrows_with_more_values() {
        let spread = |count: usize| {
            let values: Vec<f64> = (0..count).map(|index| index as f64 / count as f64).collect();
            let (low, high) = interval(&values);
            let middle = median(&values);
            assert!(low <= middle && middle <= high, "{low} {middle} {high}");
            high - low
        };
        assert!(spread(200) < spread(20) / 2.0);
    }

    /// Of many samples from a known distribution, about nine of ten intervals hold its median.
    #[test]
    fn it_holds_the_true_median_as_often_as_it_says() {
        let seed = 7;
        println!("seed {seed}");
        let mut random = SplitMix(seed);
        let mut sample = || (0..15).map(|_| below(&mut random, 1000) as f64).collect::<Vec<f64>>();
        let holds = |values: Vec<f64>| {
            let (low, high) = interval(&values);
            low <= 499.5 && 499.5 <= high
        };
        let held = (0..300).map(|_| sample()).filter(|values| holds(values.clone())).count();
        assert!((240..=297).contains(&held), "{held} of 300");
    }

    #[test]
    fn one_outlier_does_not_move_it_far() {
        let mut values = vec![1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.1, 1.2, 1.3, 1.2, 1.2];
        let before = interval(&values);
        values[0] = 100.0;
        let after = interval(&values);
        assert!((after.1 - before.1).abs() < 0.2, "{before:?} {after:?}");
    }
}
