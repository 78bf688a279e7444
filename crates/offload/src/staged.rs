//! Calls on memory of the host by a library that works on a device: what they read goes to the device first, and what
//! they write comes back.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use unisono_communicator::{Buffer, BufferMut, Buffers, Error, Result};

use crate::device::{Device, RawEvent, RawStream};
use crate::device_turn::DevicePass;
use crate::program::{Program, SCRATCH_ALIGN, Span};
use crate::run::{Memory, Place, Start};
use crate::vendor::Vendor;

/// Memory of the vendor's device, freed when this is dropped.
pub(crate) struct Allocation<V: Vendor> {
    vendor: Arc<V>,
    start: *mut c_void,
    pub(crate) bytes: usize,
}

// SAFETY: the device's functions may be called from any thread.
unsafe impl<V: Vendor> Send for Allocation<V> {}

impl<V: Vendor> Allocation<V> {
    /// `bytes` bytes of it.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn new(vendor: &Arc<V>, bytes: usize) -> Result<Allocation<V>> {
        let start = match vendor.device() {
            Some(device) if bytes > 0 => device.allocate(bytes)?,
            Some(_) | None => std::ptr::null_mut(),
        };
        Ok(Allocation { vendor: vendor.clone(), start, bytes })
    }

    pub(crate) fn start(&self) -> Start {
        Start { address: self.start.cast(), bytes: self.bytes }
    }
}

impl<V: Vendor> Drop for Allocation<V> {
    fn drop(&mut self) {
        if let (Some(device), false) = (self.vendor.device(), self.start.is_null()) {
            // SAFETY: it is of `allocate`; whoever drops it knows that the work with it is done.
            unsafe { device.free(self.start) };
        }
    }
}

/// A stream of the vendor's device and memory on it, which are made for the first call that needs them, and memory that
/// grows with the calls.
pub(crate) struct Staging<V: Vendor> {
    vendor: Arc<V>,
    state: Mutex<Station<V>>,
}

/// What calls pass by.
struct Station<V: Vendor> {
    stream: Option<(RawStream, RawEvent)>,
    memory: Option<Allocation<V>>,
}

impl<V: Vendor> Drop for Staging<V> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let (Some(device), Some((stream, event))) = (self.vendor.device(), state.stream) {
            // SAFETY: both are this value's; every call on the stream has waited for its end, but for one that failed,
            // whose work the driver keeps.
            unsafe {
                device.destroy_event(event);
                device.destroy_stream(stream);
            }
        }
    }
}

/// The next place where any element may start.
fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(SCRATCH_ALIGN)
}

/// The way to a device, for one call.
struct Way<'a> {
    device: &'a dyn Device,
    stream: RawStream,
    /// Behind the call's work.
    event: RawEvent,
}

/// What a call asks of its communicator.
pub(crate) struct Turns<'a, 't> {
    /// The turn on the device, to enqueue its work.
    pub(crate) take_turn: &'a dyn Fn() -> Result<Option<DevicePass<'t>>>,
    /// Fails when the call is given up; asked now and then.
    pub(crate) gives_up: &'a dyn Fn() -> Result<()>,
}

/// How long a thread asks whether work is done without sleeping, and how long it sleeps between two questions then.
const SPIN: Duration = Duration::from_micros(100);
const SLEEP_MIN: Duration = Duration::from_micros(10);
const SLEEP_MAX: Duration = Duration::from_millis(2);

/// How long a call goes on after `gives_up` has failed first: news of a failure overtake work that is nearly done.
const GOES_ON_MAX: Duration = Duration::from_millis(20);

impl<V: Vendor> Staging<V> {
    /// None yet.
    pub(crate) fn new(vendor: &Arc<V>) -> Staging<V> {
        Staging { vendor: vendor.clone(), state: Mutex::new(Station { stream: None, memory: None }) }
    }

    /// Runs a program by way of `device`; returns when its results are in `buffers`.
    ///
    /// # Errors
    /// Those of the library, of the device and of `turns`.
    pub(crate) fn run(
        &self,
        device: &dyn Device,
        comm: &V::Comm,
        program: &Program,
        buffers: &mut Buffers<'_>,
        turns: &Turns<'_, '_>,
    ) -> Result<()> {
        let (input_bytes, output_bytes) = match buffers {
            Buffers::InOut(buffer) => (0, buffer.bytes()),
            Buffers::Separate { input, output } => (input.bytes(), output.bytes()),
        };
        let scratch_at = aligned(input_bytes) + aligned(output_bytes);
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (stream, event) = match state.stream {
            Some(known) => known,
            None => *state.stream.insert((device.create_stream()?, device.create_event()?)),
        };
        let all = state.memory_of(&self.vendor, scratch_at + program.scratch_bytes)?;
        let output = all.part(aligned(input_bytes), output_bytes);
        let is_in_place = matches!(buffers, Buffers::InOut(_));
        let input = if is_in_place { output } else { all.part(0, input_bytes) };
        let memory = Memory { input, output, scratch: all.part(scratch_at, program.scratch_bytes) };
        let way = Way { device, stream, event };
        way.upload(memory.input, buffers)?;
        // Not while this waits for the other ranks.
        let pass = (turns.take_turn)()?;
        let run = Place { vendor: &*self.vendor, comm, stream }.run(program, &memory);
        drop(pass);
        if let Err(error) = run.and_then(|()| way.wait(turns.gives_up)) {
            // Its work may still use them, and nobody will know when that is over.
            std::mem::forget(state.memory.take());
            state.stream = None;
            return Err(error);
        }
        let written: Vec<Span> = program.written().collect();
        way.download(&memory, &written, buffers)
    }
}

impl<V: Vendor> Station<V> {
    /// At least `bytes` bytes.
    fn memory_of(&mut self, vendor: &Arc<V>, bytes: usize) -> Result<Start> {
        if self.memory.as_ref().is_none_or(|kept| kept.bytes < bytes) {
            // Freed first: there may not be room for both.
            self.memory = None;
            self.memory = Some(Allocation::new(vendor, bytes)?);
        }
        Ok(self.memory.as_ref().map_or(Start::NOTHING, Allocation::start))
    }
}

impl Way<'_> {
    /// Waits for the work that is on the stream now. The driver's own way of waiting would not end with a call that is
    /// given up.
    fn wait(&self, gives_up: &dyn Fn() -> Result<()>) -> Result<()> {
        // SAFETY: both are of this device, and live.
        unsafe { self.device.record(self.event, self.stream) }?;
        let (started, mut sleep, mut failed) = (Instant::now(), SLEEP_MIN, None);
        // SAFETY: as above.
        while !unsafe { self.device.is_done(self.event) }? {
            if started.elapsed() < SPIN {
                std::thread::yield_now();
                continue;
            }
            std::thread::sleep(sleep);
            sleep = (sleep * 2).min(SLEEP_MAX);
            if sleep == SLEEP_MAX
                && let Err(error) = gives_up()
                && failed.get_or_insert_with(Instant::now).elapsed() >= GOES_ON_MAX
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// What the call reads.
    fn upload(&self, to: Start, buffers: &Buffers<'_>) -> Result<()> {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            let to = to.part(at, bytes.len());
            at += bytes.len();
            if bytes.is_empty() {
                return Ok(());
            }
            // SAFETY: the region is as long as the buffer, whose parts follow each other, and is this call's.
            unsafe { self.device.upload(to.address.cast(), bytes, self.stream) }
        };
        match buffers {
            Buffers::InOut(BufferMut::Host(list)) => list.iter().try_for_each(&mut put),
            Buffers::Separate { input: Buffer::Host(list), .. } => list.iter().try_for_each(&mut put),
            Buffers::InOut(BufferMut::Device(_)) | Buffers::Separate { .. } => Err(on_device()),
        }
    }

    /// What the call has written. What it has not written stays as it is.
    fn download(&self, memory: &Memory, written: &[Span], buffers: &mut Buffers<'_>) -> Result<()> {
        let (Buffers::InOut(BufferMut::Host(list)) | Buffers::Separate { output: BufferMut::Host(list), .. }) =
            buffers
        else {
            return Err(on_device());
        };
        let (mut at, mut result) = (0, Ok(()));
        list.for_each(|bytes| {
            let part = written.iter().try_for_each(|span| self.fetch(memory, *span, at, bytes));
            result = std::mem::replace(&mut result, Ok(())).and(part);
            at += bytes.len();
        });
        result
    }

    /// What `span` of the output and `bytes`, which start at byte `at` of it, have in common.
    fn fetch(&self, memory: &Memory, span: Span, at: usize, bytes: &mut [u8]) -> Result<()> {
        let (from, to) = (span.offset.max(at), (span.offset + span.bytes).min(at + bytes.len()));
        if from >= to {
            return Ok(());
        }
        let start = memory.at(Span { offset: from, bytes: to - from, ..span })?;
        // SAFETY: the bytes are within the output's region, and this call's.
        unsafe { self.device.download(&mut bytes[from - at..to - at], start.cast(), self.stream) }
    }
}

/// Checked above: calls on memory of a device are enqueued.
fn on_device() -> Error {
    Error::invalid("buffer", "on a device, and the call is on memory of the host")
}
