//! Calls on memory of the host by a library that works on a device. Inputs are copied to the device first, and outputs
//! are copied back.

#![expect(unsafe_code, reason = "memory and streams of a device, by their addresses")]

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
    /// Allocates `bytes` bytes.
    ///
    /// # Errors
    /// Errors of the device.
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
            // SAFETY: the memory is from `allocate`, and this value is dropped only when the work with it is done.
            unsafe { device.free(self.start) };
        }
    }
}

/// A stream of the vendor's device, and memory on the device. The first call that needs them makes them. The memory
/// grows with the calls.
pub(crate) struct Staging<V: Vendor> {
    vendor: Arc<V>,
    state: Mutex<Station<V>>,
}

/// The resources that calls share.
struct Station<V: Vendor> {
    stream: Option<(RawStream, RawEvent)>,
    memory: Option<Allocation<V>>,
}

impl<V: Vendor> Drop for Staging<V> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let (Some(device), Some((stream, event))) = (self.vendor.device(), state.stream) {
            // SAFETY: event and stream belong to this value. Every call on the stream has waited for its end, except a
            // failed call, whose work the driver keeps.
            unsafe {
                device.destroy_event(event);
                device.destroy_stream(stream);
            }
        }
    }
}

/// The next multiple of the alignment for any element.
fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(SCRATCH_ALIGN)
}

/// The way to a device, for one call.
struct Way<'a> {
    device: &'a dyn Device,
    stream: RawStream,
    /// The event behind the call's work.
    event: RawEvent,
}

/// Functions of the communicator that a call needs.
pub(crate) struct Turns<'a, 't> {
    /// Takes the turn on the device, to enqueue the call's work.
    pub(crate) take_turn: &'a dyn Fn() -> Result<Option<DevicePass<'t>>>,
    /// Fails when the call is given up. Called now and then.
    pub(crate) gives_up: &'a dyn Fn() -> Result<()>,
}

/// The time that a thread polls without sleeping, and the limits of its sleeps between two polls afterwards.
const SPIN: Duration = Duration::from_micros(100);
const SLEEP_MIN: Duration = Duration::from_micros(10);
const SLEEP_MAX: Duration = Duration::from_millis(2);

/// The time for which a call goes on after `gives_up` has failed for the first time: news of a failure may overtake
/// work that is nearly done.
const GOES_ON_MAX: Duration = Duration::from_millis(20);

impl<V: Vendor> Staging<V> {
    /// No resources yet.
    pub(crate) fn new(vendor: &Arc<V>) -> Staging<V> {
        Staging { vendor: vendor.clone(), state: Mutex::new(Station { stream: None, memory: None }) }
    }

    /// Runs a program by way of `device`. Returns when its results are in `buffers`.
    ///
    /// # Errors
    /// Errors of the library, of the device and of `turns`.
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
        // The pass is dropped before this thread waits for the other ranks.
        let pass = (turns.take_turn)()?;
        let run = Place { vendor: &*self.vendor, comm, stream }.run(program, &memory);
        drop(pass);
        if let Err(error) = run.and_then(|()| way.wait(turns.gives_up)) {
            // The call's work may still use the memory, and the end of the work will not be known.
            std::mem::forget(state.memory.take());
            state.stream = None;
            return Err(error);
        }
        let written: Vec<Span> = program.written().collect();
        way.download(&memory, &written, buffers)
    }
}

impl<V: Vendor> Station<V> {
    /// Memory of at least `bytes` bytes.
    fn memory_of(&mut self, vendor: &Arc<V>, bytes: usize) -> Result<Start> {
        if self.memory.as_ref().is_none_or(|kept| kept.bytes < bytes) {
            // The old memory is freed first, because there may not be room for both.
            self.memory = None;
            self.memory = Some(Allocation::new(vendor, bytes)?);
        }
        Ok(self.memory.as_ref().map_or(Start::NOTHING, Allocation::start))
    }
}

impl Way<'_> {
    /// Waits for the work that is on the stream now. The driver's own wait would not end when the call is given up.
    fn wait(&self, gives_up: &dyn Fn() -> Result<()>) -> Result<()> {
        // SAFETY: event and stream are of this device, and live.
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

    /// Copies the call's inputs to the device.
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

    /// Copies the spans that the call has written to `buffers`. Other bytes stay as they are.
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

    /// Copies the intersection of `span` and `bytes` from the device. `bytes` starts at byte `at` of the output.
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

/// The error for memory of a device. Callers enqueue calls on such memory, so it does not occur.
fn on_device() -> Error {
    Error::invalid("buffer", "on a device, and the call is on memory of the host")
}
