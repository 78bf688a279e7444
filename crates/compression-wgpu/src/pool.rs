//! Buffers of the device that are used again: a new one costs a call of the driver and is filled with zeros.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use unisono_communicator::Result;

use crate::error::limited;
use crate::link::Link;

/// The bytes that are kept for later, at most.
const KEPT_BYTES_MAX: u64 = 256 << 20;

/// The smallest buffer.
const WORDS_MIN: usize = 64;

/// Buffers of one usage.
pub(crate) struct Pool {
    link: Arc<Link>,
    usage: wgpu::BufferUsages,
    kept: Mutex<Kept>,
}

/// Buffers by their length in words.
#[derive(Default)]
struct Kept {
    buffers: BTreeMap<usize, Vec<wgpu::Buffer>>,
    bytes: u64,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "buffers of {:?} on {:?}", self.usage, self.link)
    }
}

impl Pool {
    pub(crate) fn new(link: Arc<Link>, usage: wgpu::BufferUsages) -> Arc<Pool> {
        Arc::new(Pool { link, usage, kept: Mutex::default() })
    }

    /// A buffer of at least `words` words, of any content.
    pub(crate) fn take(self: &Arc<Pool>, words: usize) -> Result<Pooled> {
        let capacity = capacity(words);
        let kept = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let buffer = kept.buffers.get_mut(&capacity).and_then(Vec::pop);
            kept.bytes -= buffer.as_ref().map_or(0, wgpu::Buffer::size);
            buffer
        };
        let buffer = kept.map_or_else(|| self.create(capacity), Ok)?;
        Ok(Pooled { buffer, capacity, pool: Some(Arc::clone(self)) })
    }

    fn create(&self, words: usize) -> Result<wgpu::Buffer> {
        let size = words as u64 * 4;
        let most = self.link.device.limits().max_buffer_size;
        if size > most {
            let what = format!("a buffer of {size} bytes");
            return Err(limited(&self.link.adapter, &what, "max_buffer_size", size, most));
        }
        let descriptor =
            wgpu::BufferDescriptor { label: None, size, usage: self.usage, mapped_at_creation: false };
        self.link.checked("create_buffer", || self.link.device.create_buffer(&descriptor))
    }
}

/// A length that many requests share, at most a quarter longer than the request.
fn capacity(words: usize) -> usize {
    let words = words.max(WORDS_MIN);
    words.next_multiple_of(words.next_power_of_two() / 8)
}

/// A buffer that goes back to its pool.
pub(crate) struct Pooled {
    buffer: wgpu::Buffer,
    capacity: usize,
    /// `None` for a buffer that nobody may use again.
    pool: Option<Arc<Pool>>,
}

impl Pooled {
    pub(crate) fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// Frees it: it is in a state that is not known.
    pub(crate) fn discard(mut self) {
        self.pool = None;
    }
}

impl fmt::Debug for Pooled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} words", self.capacity)
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take() else { return };
        let size = self.buffer.size();
        let mut kept = pool.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.bytes + size > KEPT_BYTES_MAX {
            // Lengths that nobody asks for any more must not stay for ever.
            *kept = Kept::default();
        }
        if size <= KEPT_BYTES_MAX {
            kept.bytes += size;
            kept.buffers.entry(self.capacity).or_default().push(self.buffer.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_few_and_near() {
        let capacities: std::collections::BTreeSet<usize> = (0..10_000).map(capacity).collect();
        assert!(capacities.len() < 45, "{}", capacities.len());
        for words in 0..10_000 {
            assert!(capacity(words) >= words);
            assert!(words <= WORDS_MIN || capacity(words) * 4 <= words * 5, "{words}");
        }
    }
}
