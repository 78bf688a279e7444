//! Allocations of a device that are used again: to give out or take back memory, drivers wait for all work of a device.

use std::sync::{Mutex, PoisonError};

/// Allocations that are kept: a few messages of a call, its first pieces, and the buffers of its steps.
const KEPT_MAX: usize = 16;

/// The allocations of past kernels, for the kernels behind them on their stream.
#[derive(Debug)]
pub struct DevicePool<A>(Mutex<Vec<Pooled<A>>>);

#[derive(Debug)]
struct Pooled<A> {
    bytes: usize,
    allocation: A,
}

impl<A> Default for DevicePool<A> {
    fn default() -> DevicePool<A> {
        DevicePool(Mutex::default())
    }
}

impl<A> DevicePool<A> {
    /// The smallest that has so many bytes and is not more than twice as long.
    pub fn take(&self, bytes: usize) -> Option<A> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = kept.iter().enumerate().filter(|(_, one)| (bytes..=2 * bytes).contains(&one.bytes));
        let best = fitting.min_by_key(|(_, one)| one.bytes).map(|(index, _)| index)?;
        Some(kept.swap_remove(best).allocation)
    }

    /// Keeps an allocation of so many bytes. The shortest, if there are too many.
    #[must_use = "what is not kept must be freed"]
    pub fn put(&self, bytes: usize, allocation: A) -> Option<A> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(Pooled { bytes, allocation });
        if kept.len() <= KEPT_MAX {
            return None;
        }
        let shortest = (0..kept.len()).min_by_key(|index| kept[*index].bytes)?;
        Some(kept.swap_remove(shortest).allocation)
    }

    /// Gives up all.
    #[must_use = "what is not kept must be freed"]
    pub fn take_all(&self) -> Vec<A> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.drain(..).map(|one| one.allocation).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_that_fits_is_taken_and_the_shortest_given_up() {
        let pool = DevicePool::default();
        for bytes in [64, 16, 32] {
            assert_eq!(pool.put(bytes, bytes), None);
        }
        assert_eq!((pool.take(17), pool.take(17), pool.take(65)), (Some(32), None, None));
        let given_up: Vec<usize> = (100..100 + KEPT_MAX).filter_map(|bytes| pool.put(bytes, bytes)).collect();
        assert_eq!(given_up, [16, 64]);
        assert_eq!(pool.take_all().len(), KEPT_MAX);
        assert_eq!(pool.take(16), None);
    }
}
