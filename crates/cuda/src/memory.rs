//! Memory of a device.

#![expect(unsafe_code, reason = "calls NVIDIA's driver")]

use std::ops::Range;

use unisono_communicator::{Error, Result};

use crate::context::Context;
use crate::driver::Address;
use crate::stream::Stream;

/// Bytes on a device. Memory of its own is freed on drop, after all work that is under way on the device.
#[derive(Debug)]
pub struct Memory {
    context: Context,
    address: Address,
    bytes: usize,
    is_own: bool,
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.is_own {
            return;
        }
        // SAFETY: it was allocated, and nothing uses it any more.
        unsafe { self.context.free_raw(self.address) };
    }
}

impl Memory {
    pub(crate) fn new(context: Context, bytes: usize) -> Result<Memory> {
        // The driver refuses to allocate nothing.
        let address = if bytes > 0 { context.allocate_raw(bytes)? } else { 0 };
        Ok(Memory { context, address, bytes, is_own: bytes > 0 })
    }

    /// Memory that belongs to somebody else, such as a tensor.
    ///
    /// # Safety
    /// The bytes must be valid memory of the context's device as long as this value lives and work with it is under
    /// way, and every other user must use them in the order of the streams that this value is used with.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an address that the driver knows on another device or not at all.
    pub unsafe fn from_raw(context: &Context, address: u64, bytes: usize) -> Result<Memory> {
        if bytes > 0 && !context.owns(address) {
            let problem = format!("{address:#x}, which is no memory of {context:?}");
            return Err(Error::invalid("address", problem));
        }
        Ok(Memory { context: context.clone(), address, bytes, is_own: false })
    }

    /// The address; 0 if it is empty.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of `length` bytes from byte `at` on.
    fn part(&self, argument: &'static str, at: usize, length: usize) -> Result<Address> {
        if at.checked_add(length).is_none_or(|end| end > self.bytes) {
            let problem = format!("{length} bytes from byte {at} of memory of {} bytes", self.bytes);
            return Err(Error::invalid(argument, problem));
        }
        Ok(self.address + at as u64)
    }

    /// Copies to the device, in the order of `stream`. Returns when `from` may be changed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for bytes outside; [`Error::Vendor`].
    pub fn write(&mut self, at: usize, from: &[u8], stream: &Stream) -> Result<()> {
        let to = self.part("at", at, from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: the device's bytes are this memory's, as just checked.
        unsafe { self.context.upload(to, from, stream.handle()) }
    }

    /// Copies to the host, in the order of `stream`. Returns when the bytes are there.
    ///
    /// # Errors
    /// As [`Memory::write`], and errors of the work before it on the stream.
    pub fn read(&self, at: usize, to: &mut [u8], stream: &Stream) -> Result<()> {
        let from = self.part("at", at, to.len())?;
        if to.is_empty() {
            return Ok(());
        }
        // SAFETY: the device's bytes are this memory's, as just checked.
        unsafe { self.context.download(to, from, stream.handle()) }
    }

    /// Copies from the same device, in the order of `stream`; returns at once.
    ///
    /// # Errors
    /// As [`Memory::write`].
    pub fn copy(&mut self, at: usize, from: &Memory, range: Range<usize>, stream: &Stream) -> Result<()> {
        let length = range.len();
        let (to, from) = (self.part("at", at, length)?, from.part("range", range.start, length)?);
        if length == 0 {
            return Ok(());
        }
        // SAFETY: both are this device's, as just checked, and cannot overlap: one is borrowed for writing.
        unsafe { self.context.copy(to, from, length, stream.handle()) }
    }

    /// Fills `words` words of 4 bytes from byte `at` on, in the order of `stream`; returns at once.
    ///
    /// # Errors
    /// As [`Memory::write`]; `at` must be a multiple of 4.
    pub fn fill(&mut self, at: usize, word: u32, words: usize, stream: &Stream) -> Result<()> {
        let to = self.part("at", at, words.saturating_mul(4))?;
        if !to.is_multiple_of(4) {
            return Err(Error::invalid("at", format!("{at}, which is no whole word")));
        }
        if words == 0 {
            return Ok(());
        }
        let (_current, driver) = (self.context.enter()?, self.context.driver());
        // SAFETY: the device's words are this memory's, as just checked.
        let code = unsafe { (driver.table.memset_words)(to, word, words, stream.handle()) };
        driver.check("cuMemsetD32Async", code)
    }
}
