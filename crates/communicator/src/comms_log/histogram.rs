//! Durations in a fixed number of buckets, however many there are.

/// Buckets per doubling: a bucket's ends differ by 19 to 25 %.
const PER_OCTAVE: u32 = 4;

/// The first bucket ends here; a call takes longer.
const FIRST_BITS: u32 = 6;

/// The number of buckets: up to 2^40 ns, 18 minutes. The last bucket has everything above.
const BUCKETS: usize = ((40 - FIRST_BITS) * PER_OCTAVE) as usize;

/// The number of durations in each of a fixed number of buckets (log-linear, as in HdrHistogram), with the exact
/// number, sum, minimum and maximum of all. It never grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[u32; BUCKETS]>,
    count: u64,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: Box::new([0; BUCKETS]), count: 0, sum_ns: 0, min_ns: u64::MAX, max_ns: 0 }
    }
}

impl Histogram {
    pub(super) fn add(&mut self, ns: u64) {
        let bucket = &mut self.buckets[bucket_of(ns)];
        *bucket = bucket.saturating_add(1);
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        (self.min_ns, self.max_ns) = (self.min_ns.min(ns), self.max_ns.max(ns));
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The least; 0 without any.
    pub fn min_ns(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min_ns }
    }

    /// The greatest; 0 without any.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Their mean; 0 without any.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 }
    }

    /// The duration below which a part of them lies, 0.5 for the median: the middle of its bucket, within 12 %, but
    /// never outside the least and the greatest.
    pub fn quantile_ns(&self, part: f64) -> u64 {
        let wanted = (part.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let bucket = self.buckets.iter().position(|&count| {
            below += u64::from(count);
            below >= wanted
        });
        let Some(bucket) = bucket.filter(|_| wanted < self.count) else { return self.max_ns };
        let (from, to) = (start_of(bucket), start_of(bucket + 1));
        u64::midpoint(from, to).clamp(self.min_ns(), self.max_ns)
    }

    /// The buckets that are not empty: where each begins in nanoseconds, and how many durations it has.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u32)> {
        let all = self.buckets.iter().enumerate();
        all.filter(|(_, count)| **count > 0).map(|(bucket, &count)| (start_of(bucket), count))
    }
}

/// As a list of `[start_ns, count]`, which is all that a reader needs to draw it.
#[cfg(feature = "serde")]
impl serde::Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.buckets())
    }
}

fn bucket_of(ns: u64) -> usize {
    let Some(octave) = ns.max(1).ilog2().checked_sub(FIRST_BITS) else { return 0 };
    let quarter = (ns >> (octave + FIRST_BITS - PER_OCTAVE.ilog2())) as u32 % PER_OCTAVE;
    ((octave * PER_OCTAVE + quarter) as usize).min(BUCKETS - 1)
}

/// The least duration of a bucket; 0 for the first one.
fn start_of(bucket: usize) -> u64 {
    let (octave, quarter) = (bucket as u32 / PER_OCTAVE, (bucket as u32 % PER_OCTAVE) as u64);
    if bucket == 0 {
        0
    } else {
        (u64::from(PER_OCTAVE) + quarter) << (octave + FIRST_BITS - PER_OCTAVE.ilog2())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i12_each_duration_is_in_the_bucket_whose_ends_hold_it() {
        for ns in (0..40).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + (1 << bits) / 3]) {
            let bucket = bucket_of(ns);
            assert!((start_of(bucket)..start_of(bucket + 1)).contains(&ns), "{ns} in {bucket}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_within_a_bucket_of_the_truth() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile_ns(0.5), histogram.min_ns(), histogram.mean_ns()), (0, 0, 0.0));
        (1..=1000).for_each(|microseconds| histogram.add(microseconds * 1000));
        for (part, truth) in [(0.5, 500_000f64), (0.99, 990_000.0), (0.1, 100_000.0)] {
            let found = histogram.quantile_ns(part) as f64;
            assert!((found / truth - 1.0).abs() < 0.13, "{part}: {found}");
        }
        assert_eq!((histogram.quantile_ns(0.0), histogram.quantile_ns(1.0)), (1000, 1_000_000));
        assert_eq!((histogram.count(), histogram.mean_ns()), (1000, 500_500.0));
        assert_eq!(histogram.buckets().map(|(_, count)| u64::from(count)).sum::<u64>(), 1000);
    }
}
