//! Calls on memory of a device: their steps are enqueued on the caller's stream.

#![expect(unsafe_code, reason = "memory and streams of a device, by their addresses")]

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_backend::Turn;
use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, Completion, DeviceBuffer, DeviceStream, Ending, Error, Finished,
    Outcome, OwnedCall, Result, Ticket, Work, deadline_after,
};

use crate::device::{Device, RawStream};
use crate::known::Known;
use crate::offloaded::Offloaded;
use crate::pending::{Enqueued, Handle};
use crate::program::{Program, Region, SCRATCH_ALIGN, Span};
use crate::run::{Memory, Place, Start};
use crate::scheduled::Means;
use crate::staged::Allocation;
use crate::tend::EnqueuedWork;
use crate::thread::VendorShared;
use crate::vendor::Vendor;

/// The device's buffers of a call; `None` where it has none.
pub(crate) struct Sides<'a> {
    pub(crate) input: Option<&'a DeviceBuffer>,
    pub(crate) output: Option<&'a DeviceBuffer>,
    is_in_place: bool,
}

impl<'a> Sides<'a> {
    pub(crate) fn of(buffers: &'a Buffers<'_>) -> Sides<'a> {
        let written = |buffer: &'a BufferMut<'_>| match buffer {
            BufferMut::Device(buffer) => Some(&***buffer),
            BufferMut::Host(_) => None,
        };
        match buffers {
            Buffers::InOut(buffer) => Sides { input: None, output: written(buffer), is_in_place: true },
            Buffers::Separate { input, output } => {
                let input = match input {
                    Buffer::Device(buffer) => Some(*buffer),
                    Buffer::Host(_) => None,
                };
                Sides { input, output: written(output), is_in_place: false }
            }
        }
    }

    fn each(&self) -> impl Iterator<Item = (&'static str, &'a DeviceBuffer)> {
        let output = if self.is_in_place { "buffer" } else { "output" };
        [("input", self.input), (output, self.output)]
            .into_iter()
            .filter_map(|(name, side)| side.map(|side| (name, side)))
    }
}

/// A side as one piece: where it is, or where it is copied to.
#[derive(Clone, Copy)]
pub(crate) enum Piece {
    Own(Start),
    /// From this byte of the scratch memory on.
    Copied {
        at: usize,
        bytes: usize,
    },
}

impl Piece {
    /// The piece of one side; lists take their place behind `end` of the scratch memory.
    pub(crate) fn of(side: Option<&DeviceBuffer>, end: &mut usize) -> Piece {
        match side.map(|side| (side.spans(), side.bytes())) {
            None | Some((_, 0)) => Piece::Own(Start::NOTHING),
            Some(([span], bytes)) => {
                let address = std::ptr::with_exposed_provenance_mut(span.address());
                Piece::Own(Start { address, bytes })
            }
            Some((_, bytes)) => {
                let at = end.next_multiple_of(SCRATCH_ALIGN);
                *end = at + bytes;
                Piece::Copied { at, bytes }
            }
        }
    }

    pub(crate) fn start(self, scratch: Start) -> Start {
        match self {
            Piece::Own(start) => start,
            Piece::Copied { at, bytes } => scratch.part(at, bytes),
        }
    }
}

/// A call that is on its stream, before its caller has its ticket.
pub(crate) struct Put<'c, V: Vendor> {
    pub(crate) enqueued: Enqueued<V>,
    pub(crate) known: Known,
    /// The turn in which it was issued.
    pub(crate) _turn: Turn<'c>,
}

/// A call that was not enqueued, or not whole.
pub(crate) struct NotEnqueued {
    pub(crate) error: Error,
    /// Whether enqueued parts of it may still use its memory.
    pub(crate) is_in_use: bool,
}

/// The place at which a call is enqueued.
pub(crate) struct Target<'a> {
    pub(crate) device: &'a dyn Device,
    pub(crate) stream: RawStream,
}

impl Target<'_> {
    /// Copies between a list and a piece: the `parts` of the piece, or all.
    pub(crate) fn copy_list(
        &self,
        list: &DeviceBuffer,
        piece: Start,
        parts: &[Span],
        into_piece: bool,
    ) -> Result<()> {
        let mut at = 0;
        for span in list.spans() {
            let end = at + span.bytes();
            for part in parts {
                let (from, to) = (part.offset.max(at), (part.offset + part.bytes).min(end));
                if from < to {
                    let own = std::ptr::with_exposed_provenance_mut::<u8>(span.address() + from - at);
                    let other = piece.part(from, to - from).address;
                    let (source, target) = if into_piece { (own, other) } else { (other, own) };
                    // SAFETY: the span is the caller's for the call, the piece the call's own, and both are as long as
                    // the part.
                    unsafe { self.device.copy(target.cast(), source.cast(), to - from, self.stream) }?;
                }
            }
            at = end;
        }
        Ok(())
    }
}

impl<V: Vendor> VendorShared<V> {
    /// Refuses a stream or a buffer that is not of the library's device.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]; [`Error::Unsupported`] for a stream that is being captured.
    pub(crate) fn check_device_call(
        &self,
        stream: Option<DeviceStream>,
        buffers: &Buffers<'_>,
    ) -> Result<()> {
        let (device, stream) = self.device_and_stream(stream)?;
        let own = device.ordinal();
        if stream.device() != own {
            let problem = format!("of device {}, and this communicator is on device {own}", stream.device());
            return Err(Error::invalid("stream", problem));
        }
        // SAFETY: the maker of the `DeviceStream` has promised that it lives.
        unsafe { device.check_stream(RawStream(stream.handle())) }?;
        let sides = Sides::of(buffers);
        sides.each().try_for_each(|(name, side)| {
            let mut spans = side.spans().iter().filter(|span| span.bytes() > 0);
            spans.try_for_each(|span| {
                device.check_address(name, span.address())?;
                device.check_address(name, span.address() + span.bytes() - 1)
            })
        })
    }

    fn device_and_stream(&self, stream: Option<DeviceStream>) -> Result<(&dyn Device, DeviceStream)> {
        let device = self.vendor.device().ok_or_else(|| Error::no_device(V::BACKEND))?;
        Ok((device, stream.ok_or_else(|| Error::invalid("stream", "missing"))?))
    }

    /// The place of calls on `stream`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without a device, [`Error::InvalidArgument`] without a stream.
    pub(crate) fn target(&self, stream: Option<DeviceStream>) -> Result<Target<'_>> {
        let (device, stream) = self.device_and_stream(stream)?;
        Ok(Target { device, stream: RawStream(stream.handle()) })
    }

    /// Enqueues call `number`, and an event behind it.
    ///
    /// # Errors
    /// The errors of the library and of the device.
    fn enqueue(&self, call: &Call<'_>, number: u64, means: &Means) -> Result<Enqueued<V>> {
        let (target, (_, stream)) = (self.target(call.stream)?, self.device_and_stream(call.stream)?);
        self.companion.gate().board().on_streams().note(number, stream);
        let program = self.program(&call.descriptor, &call.counts, means)?;
        let sides = Sides::of(&call.buffers);
        let bytes = sides.each().map(|(_, side)| side.bytes() as u64).max().unwrap_or(0);
        let outcome = Outcome::done(bytes, means.named::<V>().0);
        self.before_event(&target, outcome, || self.enqueue_program(&target, &program, &sides))
    }

    /// Enqueues work, and an event behind it. `put` gives the memory that the work uses besides its call's.
    ///
    /// # Errors
    /// The errors of `put` and of the device.
    pub(crate) fn before_event(
        &self,
        target: &Target<'_>,
        outcome: Outcome,
        put: impl FnOnce() -> Result<Option<Allocation<V>>>,
    ) -> Result<Enqueued<V>> {
        // Made first: without it nothing is under way.
        let event = self.pending.event(target.device)?;
        let enqueued = put().and_then(|scratch| {
            let scratch = ManuallyDrop::new(scratch);
            // SAFETY: both are of this device. After an error nobody knows when the scratch memory is free.
            unsafe { target.device.record(event, target.stream) }?;
            Ok(ManuallyDrop::into_inner(scratch))
        });
        let scratch = enqueued.inspect_err(|_| self.pending.take_back(event))?;
        Ok(Enqueued { event, scratch, outcome })
    }

    /// Enqueues a program. Returns the memory that it uses besides the call's.
    fn enqueue_program(
        &self,
        target: &Target<'_>,
        program: &Program,
        sides: &Sides<'_>,
    ) -> Result<Option<Allocation<V>>> {
        let mut scratch_bytes = program.scratch_bytes;
        let output = Piece::of(sides.output, &mut scratch_bytes);
        let input = if sides.is_in_place { output } else { Piece::of(sides.input, &mut scratch_bytes) };
        let kept = if scratch_bytes > 0 { Some(Allocation::new(&self.vendor, scratch_bytes)?) } else { None };
        // After an error part of the program may be under way with it, and nobody will know when that is over.
        let kept = ManuallyDrop::new(kept);
        let scratch = kept.as_ref().map_or(Start::NOTHING, Allocation::start);
        let memory = Memory { input: input.start(scratch), output: output.start(scratch), scratch };
        let read = if sides.is_in_place { sides.output } else { sides.input };
        if let (Piece::Copied { bytes, .. }, Some(list)) = (input, read) {
            target.copy_list(list, memory.input, &[Span::whole(Region::Input, bytes)], true)?;
        }
        let place = Place { vendor: &*self.vendor, comm: self.comm()?, stream: target.stream };
        place.run(program, &memory)?;
        if let (Piece::Copied { .. }, Some(list)) = (output, sides.output) {
            let written: Vec<Span> = program.written().collect();
            target.copy_list(list, memory.output, &written, false)?;
        }
        Ok(ManuallyDrop::into_inner(kept))
    }
}

impl<V: Vendor> Offloaded<V> {
    /// Enqueues a collective; its ticket tells its end.
    ///
    /// # Errors
    /// The errors of the arguments, before the call has a number; of the library and of the device; the first cause.
    pub(crate) fn issue(&self, call: &mut Call<'_>, means: &Means, timeout: Duration) -> Result<Outcome> {
        let put = self.put_on_stream(call, means, timeout).map_err(|failed| failed.error)?;
        Ok(self.leave(put, timeout, None))
    }

    /// Enqueues a call whose memory moves in until its work is done.
    pub(crate) fn submit_on_stream(&self, mut call: OwnedCall, means: &Means, timeout: Duration) -> Work {
        let put = match call.descriptor.operation.collective() {
            Some(_) => self.put_on_stream(&mut call.borrow(), means, timeout),
            None => self.put_messages(&mut [&mut call.borrow()], timeout),
        };
        let put = match put {
            Ok(put) => put,
            Err(NotEnqueued { error, is_in_use: false }) => {
                return Work::refused(call, error);
            }
            Err(NotEnqueued { error, is_in_use: true }) => {
                let result = Err(error.in_call(&call));
                std::mem::forget(call.buffers);
                return Work::finished(Finished { result, buffers: None });
            }
        };
        let OwnedCall { buffers, descriptor, site, .. } = call;
        let (ending, number) = (Arc::<Ending>::default(), put.known.number());
        let handle = Handle { ending: ending.clone(), buffers };
        let ticket = self.ticket(put, timeout, Some(handle));
        self.thread.shared.ask_to_tend();
        let shared = Arc::downgrade(&self.thread.shared);
        Work::new(EnqueuedWork { shared, ticket, ending, number, descriptor, site })
    }

    fn put_on_stream(
        &self,
        call: &mut Call<'_>,
        means: &Means,
        timeout: Duration,
    ) -> Result<Put<'_, V>, NotEnqueued> {
        self.hold(|| {
            let mut is_in_use = false;
            let checked = self.thread.shared.check_device_call(call.stream, &call.buffers);
            let put = checked.and_then(|()| {
                self.inline(call, means, Some(timeout), |thread, call, number| {
                    let until = deadline_after(Instant::now(), timeout);
                    let pass = thread.take_device(&call.descriptor, Some(number), Some(until))?;
                    is_in_use = true;
                    let enqueued = thread.enqueue(call, number, means);
                    drop(pass);
                    enqueued
                })
            });
            let put = put.map(|(enqueued, entered)| {
                let recorded = self.companion.gate().board().recorded(entered.number);
                let known = Known::Collective { number: entered.number, recorded };
                Put { enqueued, known, _turn: entered.turn }
            });
            put.map_err(|error| self.not_enqueued(error, is_in_use))
        })
    }

    /// The failure of a call; `is_in_use` where parts of it may be on the stream.
    pub(crate) fn not_enqueued(&self, error: Error, is_in_use: bool) -> NotEnqueued {
        if is_in_use {
            self.thread.shared.leave_work();
        }
        NotEnqueued { error, is_in_use }
    }

    /// Enqueues a call within [`Device::hold`].
    pub(crate) fn hold<R>(&self, put: impl FnOnce() -> Result<R, NotEnqueued>) -> Result<R, NotEnqueued> {
        let (mut put, mut done) = (Some(put), None);
        let mut put_once = || done = put.take().map(|put| put());
        match self.thread.shared.vendor.device() {
            Some(device) => device.hold(&mut put_once),
            None => put_once(),
        }
        let never = || NotEnqueued { error: Error::no_device(V::BACKEND), is_in_use: false };
        done.unwrap_or_else(|| Err(never()))
    }

    /// The call that was put on its stream has returned, and is under way.
    pub(crate) fn leave(&self, put: Put<'_, V>, timeout: Duration, handle: Option<Handle>) -> Outcome {
        let outcome = put.enqueued.outcome;
        Outcome { completion: Completion::StreamOrdered(self.ticket(put, timeout, handle)), ..outcome }
    }

    /// The ticket of a call that was put on its stream.
    fn ticket(&self, put: Put<'_, V>, timeout: Duration, handle: Option<Handle>) -> Ticket {
        let Put { enqueued, known, _turn } = put;
        // Before anybody can learn that its work is done.
        match known {
            Known::Collective { number, .. } => {
                self.companion.gate().board().progress().leave_enqueued(number);
            }
            Known::Messages(_) => {}
        }
        self.thread.shared.pending.push(known, timeout, enqueued, handle)
    }
}
