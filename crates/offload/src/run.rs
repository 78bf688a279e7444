//! Runs a program on a call's memory: lists become one piece, spans become addresses, steps become the library's calls.

#![allow(unsafe_code)]

use std::ffi::c_void;

use bytemuck::{Pod, Zeroable};
use unisono_communicator::{Buffer, BufferMut, Buffers, Error, Result, Segments, SegmentsMut, zeroed};

use crate::program::{Program, Region, SCRATCH_ALIGN, Span, Step};
use crate::scale::scale;
use crate::vendor::Vendor;

/// Bytes that start where any element may.
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

/// Where a region starts, and how long it is.
#[derive(Clone, Copy)]
struct Start {
    address: *mut u8,
    bytes: usize,
}

impl Start {
    fn of(bytes: &mut [u8]) -> Start {
        Start { address: bytes.as_mut_ptr(), bytes: bytes.len() }
    }

    /// Of memory that no step writes.
    fn read_only(bytes: &[u8]) -> Start {
        Start { address: bytes.as_ptr().cast_mut(), bytes: bytes.len() }
    }
}

/// The memory of a call as a program sees it.
struct Memory {
    input: Start,
    output: Start,
    scratch: Start,
}

impl Memory {
    /// The address of a span.
    ///
    /// # Errors
    /// When it is not within its region, which is a defect of this crate.
    fn at(&self, span: Span) -> Result<*mut u8> {
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

/// Runs a program on the memory of its call.
///
/// # Errors
/// Those of the library; [`Error::System`] when there is no memory for copies; [`Error::Unsupported`] for memory of a
/// device.
pub(crate) fn run<V: Vendor>(
    vendor: &V,
    comm: &V::Comm,
    program: &Program,
    buffers: &mut Buffers<'_>,
) -> Result<()> {
    let mut scratch = Aligned::zeroed(program.scratch_bytes)?;
    let scratch = Start::of(scratch.slice_mut());
    match buffers {
        Buffers::InOut(BufferMut::Host(SegmentsMut::One(buffer))) => {
            let both = Start::of(buffer);
            steps(vendor, comm, program, &Memory { input: both, output: both, scratch })
        }
        Buffers::InOut(BufferMut::Host(list)) => {
            let mut copy = Aligned::copy_of(list.iter(), list.bytes())?;
            let both = Start::of(copy.slice_mut());
            steps(vendor, comm, program, &Memory { input: both, output: both, scratch })?;
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
                return steps(vendor, comm, program, &Memory { input, output: Start::of(output), scratch });
            }
            let mut written = Aligned::zeroed(output.bytes())?;
            let memory = Memory { input, output: Start::of(written.slice_mut()), scratch };
            steps(vendor, comm, program, &memory)?;
            output.write_front(&Segments::One(written.slice()));
            Ok(())
        }
        Buffers::InOut(BufferMut::Device(_)) | Buffers::Separate { .. } => Err(Error::no_device(V::BACKEND)),
    }
}

fn steps<V: Vendor>(vendor: &V, comm: &V::Comm, program: &Program, memory: &Memory) -> Result<()> {
    program.steps.iter().try_for_each(|step| {
        // SAFETY: `Memory::at` has found every span within its region, whose memory the caller of `run` has lent for
        // reading and, but for the input of a call that is not in place, for writing; no step writes that input. Spans
        // that a call reads and writes are equal or apart, as `compose` makes them and the vendor allows. Every rank
        // runs the program of the same call, as the communicator has compared, or the caller has promised.
        unsafe { one(vendor, comm, step, memory) }
    })
}

/// One step.
///
/// # Safety
/// As [`Vendor`].
unsafe fn one<V: Vendor>(vendor: &V, comm: &V::Comm, step: &Step, memory: &Memory) -> Result<()> {
    // SAFETY: the caller's.
    unsafe {
        match step {
            Step::AllReduce { from, to, elements } => {
                vendor.all_reduce(comm, memory.read(*from)?, memory.write(*to)?, *elements)
            }
            Step::Reduce { from, to, elements, root } => {
                vendor.reduce(comm, memory.read(*from)?, memory.write_optional(*to)?, *elements, *root)
            }
            Step::ReduceScatter { from, to, elements } => {
                vendor.reduce_scatter(comm, memory.read(*from)?, memory.write(*to)?, *elements)
            }
            Step::Broadcast { buffer, root } => {
                vendor.broadcast(comm, memory.write(*buffer)?, buffer.bytes, *root)
            }
            Step::AllGather { from, to } => {
                vendor.all_gather(comm, memory.read(*from)?, memory.write(*to)?, from.bytes)
            }
            Step::AllToAll { from, to, part } => {
                vendor.all_to_all(comm, memory.read(*from)?, memory.write(*to)?, *part)
            }
            Step::AllToAllV { from, send, to, receive } => {
                vendor.all_to_all_v(comm, memory.read(*from)?, send, memory.write(*to)?, receive)
            }
            Step::Scatter { from, to, root } => {
                vendor.scatter(comm, memory.read_optional(*from)?, memory.write(*to)?, to.bytes, *root)
            }
            Step::GroupStart => vendor.group_start(),
            Step::GroupEnd => vendor.group_end(),
            Step::Send { from, peer } => vendor.send(comm, memory.read(*from)?, from.bytes, *peer),
            Step::Recv { to, peer } => vendor.recv(comm, memory.write(*to)?, to.bytes, *peer),
            Step::Copy { from, to } => {
                std::ptr::copy(memory.at(*from)?, memory.at(*to)?, from.bytes);
                Ok(())
            }
            Step::Scale { buffer, dtype, by } => {
                let bytes = std::slice::from_raw_parts_mut(memory.at(*buffer)?, buffer.bytes);
                scale(bytes, *dtype, *by);
                Ok(())
            }
        }
    }
}
