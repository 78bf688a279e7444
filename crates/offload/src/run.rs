//! Runs a program on a call's memory: spans become addresses, steps become the library's calls. On memory of the host
//! lists become one piece first.

#![expect(unsafe_code, reason = "calls a vendor's library on memory, by its address")]

use std::ffi::c_void;

use bytemuck::{Pod, Zeroable};
use unisono_communicator::{Buffer, BufferMut, Buffers, Error, Result, Segments, SegmentsMut, zeroed};

use crate::device::RawStream;
use crate::program::{Program, Region, SCRATCH_ALIGN, Span, Step};
use crate::scale::scale;
use crate::vendor::{NativeCall, Vendor};

/// Bytes with an alignment for any element.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; SCRATCH_ALIGN]);

struct Aligned {
    lines: Vec<Line>,
    bytes: usize,
}

impl Aligned {
    fn zeroed(bytes: usize) -> Result<Aligned> {
        Ok(Aligned { lines: zeroed(bytes.div_ceil(SCRATCH_ALIGN))?, bytes })
    }

    fn copy_of<'b>(segments: impl Iterator<Item = &'b [u8]>, bytes: usize) -> Result<Aligned> {
        let mut copy = Aligned::zeroed(bytes)?;
        let mut rest = copy.slice_mut();
        for segment in segments {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(segment.len());
            now.copy_from_slice(segment);
            rest = later;
        }
        Ok(copy)
    }

    fn slice(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.bytes]
    }

    fn slice_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.bytes]
    }
}

/// The start and the length of a region.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    pub(crate) address: *mut u8,
    pub(crate) bytes: usize,
}

impl Start {
    /// No memory.
    pub(crate) const NOTHING: Start = Start { address: std::ptr::null_mut(), bytes: 0 };

    /// At most `bytes` bytes of the region, from byte `at` on.
    pub(crate) fn part(self, at: usize, bytes: usize) -> Start {
        Start { address: self.address.wrapping_add(at), bytes }
    }

    fn of(bytes: &mut [u8]) -> Start {
        Start { address: bytes.as_mut_ptr(), bytes: bytes.len() }
    }

    /// The start of memory that no step writes.
    fn read_only(bytes: &[u8]) -> Start {
        Start { address: bytes.as_ptr().cast_mut(), bytes: bytes.len() }
    }
}

/// The memory of a call as a program sees it: of the host, or of a device.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) input: Start,
    pub(crate) output: Start,
    pub(crate) scratch: Start,
}

impl Memory {
    /// The address of a span.
    ///
    /// # Errors
    /// When the span is not within its region, which is a defect of this crate.
    pub(crate) fn at(&self, span: Span) -> Result<*mut u8> {
        let start = match span.region {
            Region::Input => self.input,
            Region::Output => self.output,
            Region::Scratch => self.scratch,
        };
        let end = span.offset.checked_add(span.bytes);
        if end.is_none_or(|end| end > start.bytes) {
            let problem = format!("{span:?} of a region of {} bytes", start.bytes);
            return Err(Error::System { what: "the program of a call".to_owned(), text: problem });
        }
        Ok(start.address.wrapping_add(span.offset))
    }

    fn read(&self, span: Span) -> Result<*const c_void> {
        Ok(self.at(span)?.cast_const().cast())
    }

    fn write(&self, span: Span) -> Result<*mut c_void> {
        Ok(self.at(span)?.cast())
    }

    fn write_optional(&self, span: Option<Span>) -> Result<*mut c_void> {
        span.map_or(Ok(std::ptr::null_mut()), |span| self.write(span))
    }

    fn read_optional(&self, span: Option<Span>) -> Result<*const c_void> {
        span.map_or(Ok(std::ptr::null()), |span| self.read(span))
    }
}

/// The place at which a program runs.
pub(crate) struct Place<'a, V: Vendor> {
    pub(crate) vendor: &'a V,
    pub(crate) comm: &'a V::Comm,
    /// The stream on which it is enqueued.
    pub(crate) stream: RawStream,
}

/// Runs a program of a library that works on memory of the host, on the memory of its call.
///
/// # Errors
/// Errors of the library; [`Error::System`] when there is no memory for copies; [`Error::Unsupported`] for memory of a
/// device.
pub(crate) fn run_on_host<V: Vendor>(
    vendor: &V,
    comm: &V::Comm,
    program: &Program,
    buffers: &mut Buffers<'_>,
) -> Result<()> {
    let place = Place { vendor, comm, stream: RawStream::HOST };
    let mut scratch = Aligned::zeroed(program.scratch_bytes)?;
    let scratch = Start::of(scratch.slice_mut());
    match buffers {
        Buffers::InOut(BufferMut::Host(SegmentsMut::One(buffer))) => {
            let both = Start::of(buffer);
            place.run(program, &Memory { input: both, output: both, scratch })
        }
        Buffers::InOut(BufferMut::Host(list)) => {
            let mut copy = Aligned::copy_of(list.iter(), list.bytes())?;
            let both = Start::of(copy.slice_mut());
            place.run(program, &Memory { input: both, output: both, scratch })?;
            list.write_front(&Segments::One(copy.slice()));
            Ok(())
        }
        Buffers::Separate { input: Buffer::Host(input), output: BufferMut::Host(output) } => {
            let copy;
            let input = match input {
                Segments::One(input) => Start::read_only(input),
                list => {
                    copy = Aligned::copy_of(list.iter(), list.bytes())?;
                    Start::read_only(copy.slice())
                }
            };
            if let SegmentsMut::One(output) = output {
                return place.run(program, &Memory { input, output: Start::of(output), scratch });
            }
            let mut written = Aligned::zeroed(output.bytes())?;
            place.run(program, &Memory { input, output: Start::of(written.slice_mut()), scratch })?;
            output.write_front(&Segments::One(written.slice()));
            Ok(())
        }
        Buffers::InOut(BufferMut::Device(_)) | Buffers::Separate { .. } => Err(Error::no_device(V::BACKEND)),
    }
}

impl<V: Vendor> Place<'_, V> {
    /// Runs a program. If a call fails within a group, the group is ended here, and nowhere else.
    ///
    /// # Errors
    /// Errors of the library.
    pub(crate) fn run(&self, program: &Program, memory: &Memory) -> Result<()> {
        let mut is_in_group = false;
        let ran = program.steps.iter().try_for_each(|step| {
            // A group end closes the group even if it fails. A group start that fails has opened no group.
            is_in_group &= !matches!(step, Step::GroupEnd);
            // SAFETY: `Memory::at` finds every span within its region, whose memory the caller of the call has lent for
            // reading and, but for the input of a call that is not in place, for writing, until the call or its work
            // on the stream is done; no step writes that input. Spans that a call reads and writes are equal or apart,
            // as `compose` makes them and the vendor allows. Every rank runs the program of the same call, as the
            // communicator has compared, or the caller has promised.
            unsafe { self.step(step, memory) }?;
            is_in_group |= matches!(step, Step::GroupStart);
            Ok(())
        });
        if is_in_group {
            // The error of the call says more than this one.
            let _ = self.vendor.group_end();
        }
        ran
    }

    /// One step.
    ///
    /// # Safety
    /// As [`Vendor::call`].
    unsafe fn step(&self, step: &Step, memory: &Memory) -> Result<()> {
        let call = match step {
            Step::GroupStart => return self.vendor.group_start(),
            Step::GroupEnd => return self.vendor.group_end(),
            Step::Copy { from, to } => {
                // SAFETY: the caller guarantees it.
                return unsafe { self.copy(memory.at(*from)?, memory.at(*to)?, from.bytes) };
            }
            // A device starts no kernel for 0 elements.
            Step::Scale { buffer, .. } if buffer.bytes == 0 => return Ok(()),
            Step::Scale { buffer, dtype, by } => {
                let (start, stream) = (memory.at(*buffer)?, self.stream);
                let Some(device) = self.vendor.device() else {
                    // SAFETY: the caller guarantees it.
                    scale(unsafe { std::slice::from_raw_parts_mut(start, buffer.bytes) }, *dtype, *by);
                    return Ok(());
                };
                let count = buffer.bytes / dtype.bytes();
                // SAFETY: the caller guarantees it.
                return unsafe { device.scale(start.cast(), count, *dtype, *by, stream) };
            }
            Step::Combine { left, right, to, dtype, by } => {
                let operands = [memory.read(*left)?, memory.read(*right)?];
                let (to, count, stream) = (memory.write(*to)?, to.bytes / dtype.bytes(), self.stream);
                let device = self.vendor.device().ok_or_else(|| Error::no_device(V::BACKEND))?;
                // SAFETY: the caller guarantees it.
                return unsafe { device.combine(to, operands, count, *dtype, *by, stream) };
            }
            Step::AllReduce { .. }
            | Step::Reduce { .. }
            | Step::ReduceScatter { .. }
            | Step::Broadcast { .. }
            | Step::AllGather { .. }
            | Step::AllToAll { .. }
            | Step::AllToAllV { .. }
            | Step::Gather { .. }
            | Step::Scatter { .. }
            | Step::Send { .. }
            | Step::Recv { .. } => native(step, memory)?,
        };
        // SAFETY: the caller guarantees it.
        unsafe { self.vendor.call(self.comm, &call, self.stream) }
    }

    /// Copies. `from` and `to` do not overlap.
    ///
    /// # Safety
    /// As [`Vendor::call`].
    unsafe fn copy(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        match self.vendor.device() {
            // SAFETY: the caller guarantees it.
            Some(device) => unsafe { device.copy(to.cast(), from.cast(), bytes, self.stream) },
            None => {
                // SAFETY: the caller guarantees it.
                unsafe { std::ptr::copy(from, to, bytes) };
                Ok(())
            }
        }
    }
}

/// The library's call for a step, with addresses in place of spans.
fn native<'s>(step: &'s Step, memory: &Memory) -> Result<NativeCall<'s>> {
    let (read, write) = (|span: Span| memory.read(span), |span: Span| memory.write(span));
    Ok(match *step {
        Step::AllReduce { from, to, elements } => {
            NativeCall::AllReduce { input: read(from)?, output: write(to)?, elements }
        }
        Step::Reduce { from, to, elements, root } => {
            NativeCall::Reduce { input: read(from)?, output: memory.write_optional(to)?, elements, root }
        }
        Step::ReduceScatter { from, to, elements } => {
            NativeCall::ReduceScatter { input: read(from)?, output: write(to)?, elements }
        }
        Step::Broadcast { buffer, root } => {
            NativeCall::Broadcast { buffer: write(buffer)?, bytes: buffer.bytes, root }
        }
        Step::AllGather { from, to } => {
            NativeCall::AllGather { input: read(from)?, output: write(to)?, bytes: from.bytes }
        }
        Step::AllToAll { from, to, part } => {
            NativeCall::AllToAll { input: read(from)?, output: write(to)?, bytes: part }
        }
        Step::AllToAllV { from, ref send, to, ref receive } => {
            NativeCall::AllToAllV { input: read(from)?, send, output: write(to)?, receive }
        }
        Step::Gather { from, to, root } => NativeCall::Gather {
            input: read(from)?,
            output: memory.write_optional(to)?,
            bytes: from.bytes,
            root,
        },
        Step::Scatter { from, to, root } => NativeCall::Scatter {
            input: memory.read_optional(from)?,
            output: write(to)?,
            bytes: to.bytes,
            root,
        },
        Step::Send { from, peer } => NativeCall::Send { input: read(from)?, bytes: from.bytes, peer },
        Step::Recv { to, peer } => NativeCall::Recv { output: write(to)?, bytes: to.bytes, peer },
        Step::GroupStart | Step::GroupEnd | Step::Copy { .. } | Step::Scale { .. } | Step::Combine { .. } => {
            let (what, text) = ("the program of a call".to_owned(), format!("{step:?} is no call"));
            return Err(Error::System { what, text });
        }
    })
}
