//! Memory for messages, kept from call to call: fresh memory costs a page fault for every 4 KiB.

use unisono_communicator::{Result, zeroed};

/// Vectors of words that no call uses.
#[derive(Debug, Default)]
pub(crate) struct Pool(Vec<Vec<u32>>);

impl Pool {
    /// A vector of so many words, of any content.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::System`] when there is no memory.
    pub(crate) fn take(&mut self, words: usize) -> Result<Vec<u32>> {
        let fits = |vector: &Vec<u32>| vector.capacity() >= words && vector.capacity() / 2 <= words;
        let Some(at) = self.0.iter().position(fits) else { return zeroed(words) };
        let mut vector = self.0.swap_remove(at);
        vector.resize(words, 0);
        Ok(vector)
    }

    /// Takes a vector that is not needed any more.
    pub(crate) fn put(&mut self, vector: Vec<u32>) {
        if vector.capacity() > 0 {
            self.0.push(vector);
        }
    }
}
