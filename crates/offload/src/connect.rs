//! The first calls of a communicator of a device's library: a small call of each kind, made together with the
//! communicator. A library connects ranks in the first call of a kind, and waits for the other ranks there (NCCL since
//! 2.22 unless `NCCL_RUNTIME_CONNECT=0`, HCCL always). At this point all ranks have met, and all have the turn on their
//! device. Later, two ranks that make the first calls of two communicators in opposite orders would wait for each
//! other.
//!
//! Connections that a library makes for large calls only, such as for another algorithm of NCCL, are not made here.

#![expect(unsafe_code, reason = "calls a vendor's library on memory of a device")]

use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::{DType, Error, Result};

use crate::capabilities::{Capabilities, Native};
use crate::device::{Device, RawEvent, RawStream};
use crate::program::{Program, SCRATCH_ALIGN, Span, Step};
use crate::run::{Memory, Place, Start};
use crate::staged::Allocation;
use crate::thread::VendorShared;
use crate::vendor::{Elements, NativeOp, Vendor};

/// The largest group in which every pair of ranks connects for messages. A pair costs memory on both devices.
const MESSAGE_RANKS_MAX: u32 = 64;

/// The time that a thread sleeps before it asks again whether the calls are done.
const PAUSE: Duration = Duration::from_micros(100);

/// The first of these element types that the library sums is used.
const SUMMED: [DType; 4] = [DType::F32, DType::F16, DType::I32, DType::I8];

/// One call of each kind that the libraries of all ranks have, with parts as small as possible.
fn first_calls(known: &Capabilities, rank: u32, ranks: u32) -> Program {
    let mut program = Program::default();
    let (parts, part) = (ranks as usize, SCRATCH_ALIGN);
    let [all, other, one] = [parts * part, parts * part, part].map(|bytes| program.scratch(bytes));
    let summed = SUMMED.into_iter().find(|dtype| known.reduces(NativeOp::Sum, *dtype));
    if let Some(dtype) = summed {
        let elements = Elements { count: part / dtype.bytes(), dtype, op: NativeOp::Sum };
        let (from, to) = (one, other.part(0, part));
        program.push(Step::AllReduce { from, to, elements });
        program.push(Step::ReduceScatter { from: all, to: one, elements });
        if known.has(Native::Reduce) {
            program.push(Step::Reduce { from, to: (rank == 0).then_some(to), elements, root: 0 });
        }
    }
    if known.has(Native::Broadcast) {
        program.push(Step::Broadcast { buffer: one, root: 0 });
    }
    program.push(Step::AllGather { from: one, to: all });
    if known.has(Native::AllToAll) {
        program.push(Step::AllToAll { from: all, to: other, part });
    }
    if known.has(Native::AllToAllV) {
        let lengths = vec![part; parts];
        program.push(Step::AllToAllV { from: all, send: lengths.clone(), to: other, receive: lengths });
    }
    let on_root = |span: Span| (rank == 0).then_some(span);
    if known.has(Native::Gather) {
        program.push(Step::Gather { from: one, to: on_root(all), root: 0 });
    }
    if known.has(Native::Scatter) {
        program.push(Step::Scatter { from: on_root(all), to: one, root: 0 });
    }
    if known.has(Native::Groups) && ranks <= MESSAGE_RANKS_MAX {
        program.push(Step::GroupStart);
        for peer in (0..ranks).filter(|peer| *peer != rank) {
            let at = peer as usize * part;
            program.push(Step::Send { from: all.part(at, part), peer });
            program.push(Step::Recv { to: other.part(at, part), peer });
        }
        program.push(Step::GroupEnd);
    }
    program
}

/// The resources of the first calls on the device.
struct Things<'a, V: Vendor> {
    device: &'a dyn Device,
    stream: RawStream,
    event: RawEvent,
    memory: Allocation<V>,
}

impl<'a, V: Vendor> Things<'a, V> {
    fn new(vendor: &Arc<V>, device: &'a dyn Device, bytes: usize) -> Result<Things<'a, V>> {
        let memory = Allocation::new(vendor, bytes)?;
        let stream = device.create_stream()?;
        let event = device.create_event().inspect_err(|_| {
            // SAFETY: the stream was just made, and no work is on it.
            unsafe { device.destroy_stream(stream) };
        })?;
        Ok(Things { device, stream, event, memory })
    }

    /// Frees the resources, because the calls are done.
    fn give_back(self) {
        // SAFETY: no work uses the event or the stream.
        unsafe {
            self.device.destroy_event(self.event);
            self.device.destroy_stream(self.stream);
        }
    }

    /// Leaves the resources until the end of the process, because work that uses them may be under way.
    fn leave(self) {
        std::mem::forget(self.memory);
    }
}

impl<V: Vendor> VendorShared<V> {
    /// Makes the first calls, if communicators take turns on the library's device.
    ///
    /// # Errors
    /// Errors of the library and of the device; [`Error::Closed`] if the communicator has been given up.
    pub(crate) fn connect(&self) -> Result<()> {
        let (group, comm) = (self.companion.group(), self.comm()?);
        let takes_turns = self.device_turn().is_some() && group.size() > 1;
        let Some(device) = self.vendor.device().filter(|_| takes_turns) else { return Ok(()) };
        let program = first_calls(&self.capabilities, group.rank(), group.size());
        let things = Things::new(&self.vendor, device, program.scratch_bytes)?;
        let (stream, scratch) = (things.stream, things.memory.start());
        let memory = Memory { input: Start::NOTHING, output: Start::NOTHING, scratch };
        let run = Place { vendor: &*self.vendor, comm, stream }.run(&program, &memory);
        match run.and_then(|()| self.await_first_calls(&things)) {
            Ok(()) => {
                things.give_back();
                Ok(())
            }
            Err(error) => {
                things.leave();
                Err(error)
            }
        }
    }

    fn await_first_calls(&self, things: &Things<'_, V>) -> Result<()> {
        // SAFETY: both are of this device, and live.
        unsafe { things.device.record(things.event, things.stream) }?;
        // SAFETY: as above.
        while !unsafe { things.device.is_done(things.event) }? {
            if self.is_given_up() {
                return Err(Error::closed());
            }
            self.late_error()?;
            std::thread::sleep(PAUSE);
        }
        if V::EVENTS_TELL_ERRORS { Ok(()) } else { self.late_error() }
    }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::ReduceOp;

    use super::*;
    use crate::capabilities::{Arithmetic, NanInMinMax};

    fn known(natives: &[Native], summed: &[DType]) -> Capabilities {
        let arithmetic = Arithmetic {
            nan_in_min_max: NanInMinMax::AnyOperand,
            orders_zeros: false,
            truncates: &[],
            equal_bits: true,
        };
        let known = Capabilities::new(arithmetic).reducing(NativeOp::Sum, summed);
        let known = natives.iter().fold(known, |known, native| known.with(*native));
        known.combining(ReduceOp::PLAIN, &[])
    }

    /// Every rank makes the same calls, and only calls that the library has.
    #[test]
    fn every_kind_that_is_there_is_called_once() {
        let all = [
            Native::AllToAllV,
            Native::Scatter,
            Native::Groups,
            Native::Gather,
            Native::AllToAll,
            Native::Broadcast,
            Native::Reduce,
        ];
        let kinds = |program: &Program| program.steps.iter().map(std::mem::discriminant).collect::<Vec<_>>();
        let [first, last] = [0, 2].map(|rank| first_calls(&known(&all, &[DType::I32]), rank, 3));
        assert_eq!(kinds(&first), kinds(&last));
        // Nine kinds, and a group with two messages in each direction.
        assert_eq!(first.steps.len(), 9 + 2 + 4);
        let least = first_calls(&known(&[], &[]), 0, 3);
        assert!(matches!(least.steps[..], [Step::AllGather { .. }]), "{least:?}");
        let many = first_calls(&known(&[Native::Groups], &[]), 0, MESSAGE_RANKS_MAX + 1);
        assert!(!many.steps.contains(&Step::GroupStart));
    }
}
