//! One call of a Python program: its arguments and its arrays, to be made on this thread or started.

use pyo3::prelude::*;
use unisono::call::{
    Buffer, BufferMut, Buffers, Call, Counts, Descriptor, Division, OwnedBuffer, OwnedBuffers, OwnedCall,
    OwnedMemory, Place,
};
use unisono::extend::calls::{PreparedNumber, SegmentList, Site};
use unisono::{Collectives, CollectivesAsync, UserFunction};

use crate::arrays::Array;
use crate::communicator::Communicator;
use crate::errors::{Raise, invalid};
use crate::foreign::{Piece, Started, empty};
use crate::interrupt::waiting;
use crate::results::Gives;
use crate::site::site;
use crate::work::Work;

/// The arrays of one side of a call.
pub(crate) enum Arrays {
    None,
    One(Array),
    Many(Vec<Array>, Division),
    /// All bytes of these arrays in another order; each array's own are in theirs.
    Pieces(Vec<Array>, Vec<Piece>, Division),
}

/// The memory of a call.
pub(crate) enum Memory {
    InPlace(Arrays),
    Separate { input: Arrays, output: Arrays },
}

/// A call, ready to be made.
pub(crate) struct Request {
    pub(crate) descriptor: Descriptor,
    pub(crate) counts: Counts,
    pub(crate) function: Option<UserFunction>,
    /// The plan that was prepared for it.
    pub(crate) prepared: Option<PreparedNumber>,
    pub(crate) memory: Memory,
    pub(crate) gives: Gives,
}

impl Arrays {
    /// These arrays in pieces.
    pub(crate) fn pieces(self, pieces: Vec<Piece>, division: Division) -> Arrays {
        match self {
            Arrays::Many(arrays, _) | Arrays::Pieces(arrays, ..) => Arrays::Pieces(arrays, pieces, division),
            Arrays::None | Arrays::One(_) => self,
        }
    }

    pub(crate) fn each(&self) -> &[Array] {
        match self {
            Arrays::None => &[],
            Arrays::One(array) => std::slice::from_ref(array),
            Arrays::Many(arrays, _) | Arrays::Pieces(arrays, ..) => arrays,
        }
    }

    pub(crate) fn each_mut(&mut self) -> &mut [Array] {
        match self {
            Arrays::None => &mut [],
            Arrays::One(array) => std::slice::from_mut(array),
            Arrays::Many(arrays, _) | Arrays::Pieces(arrays, ..) => arrays,
        }
    }

    fn buffer(&self) -> Buffer<'_> {
        match self {
            Arrays::None => Buffer::empty(),
            Arrays::One(array) => Buffer::of(array.bytes()),
            Arrays::Many(arrays, division) => {
                let slices: Vec<&[u8]> = arrays.iter().map(Array::bytes).collect();
                Buffer::of_list(&slices, *division)
            }
            Arrays::Pieces(arrays, pieces, division) => {
                let bytes = |(array, part): &Piece| &arrays[*array].bytes()[part.clone()];
                Buffer::of_list(&pieces.iter().map(bytes).collect::<Vec<_>>(), *division)
            }
        }
    }

    fn buffer_mut(&mut self) -> BufferMut<'_> {
        match self {
            Arrays::None => BufferMut::empty(),
            Arrays::One(array) => BufferMut::of(array.bytes_mut()),
            Arrays::Many(arrays, division) => {
                BufferMut::of_list(arrays.iter_mut().map(Array::bytes_mut), *division)
            }
            Arrays::Pieces(arrays, pieces, division) => {
                let mut rests: Vec<&mut [u8]> = arrays.iter_mut().map(Array::bytes_mut).collect();
                let next = |(array, part): &Piece| {
                    let (piece, rest) = std::mem::take(&mut rests[*array]).split_at_mut(part.len());
                    rests[*array] = rest;
                    piece
                };
                BufferMut::of_list(pieces.iter().map(next), *division)
            }
        }
    }

    /// Puts the arrays and their pieces behind the others of a call, and says how they belong together.
    fn put(self, arrays: &mut Vec<Array>, pieces: &mut Vec<Piece>) -> Side {
        let first = arrays.len();
        let (list, own, side) = match self {
            Arrays::None => return Side::None,
            Arrays::One(array) => (vec![array], None, Side::One),
            Arrays::Many(list, division) => {
                let side = Side::Many(list.len(), division);
                (list, None, side)
            }
            Arrays::Pieces(list, own, division) => {
                let side = Side::Many(own.len(), division);
                (list, Some(own), side)
            }
        };
        let whole = || list.iter().map(Array::whole).enumerate().collect();
        pieces.extend(own.unwrap_or_else(whole).into_iter().map(|(array, part)| (first + array, part)));
        arrays.extend(list);
        side
    }
}

/// The arrays of one side of a started call, as far as they are not memory.
enum Side {
    None,
    One,
    Many(usize, Division),
}

impl Side {
    /// The memory of this side, from the first of the buffers.
    fn memory(&self, buffers: &mut impl Iterator<Item = OwnedBuffer>, none: OwnedBuffer) -> OwnedMemory {
        match self {
            Side::None => OwnedMemory::One(none),
            Side::One => OwnedMemory::One(buffers.next().unwrap_or(none)),
            Side::Many(count, division) => {
                let list: Vec<OwnedBuffer> = buffers.take(*count).collect();
                OwnedMemory::Many(SegmentList::from(list).divided(*division))
            }
        }
    }
}

impl Memory {
    fn written(&self) -> &[Array] {
        match self {
            Memory::InPlace(arrays) | Memory::Separate { output: arrays, .. } => arrays.each(),
        }
    }

    /// Bytes of the arrays that the call writes.
    pub(crate) fn bytes_written(&self) -> usize {
        self.written().iter().map(|array| array.whole().len()).sum()
    }

    fn read(&self) -> &[Array] {
        match self {
            Memory::InPlace(_) => &[],
            Memory::Separate { input, .. } => input.each(),
        }
    }

    /// Refuses memory that nobody may write, and arrays of which one is written and shares memory with another one.
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        let written = self.written();
        if let Some(index) = written.iter().position(Array::is_read_only) {
            let which = if written.len() > 1 { format!("array {index} ") } else { String::new() };
            let problem = format!("{which}is read-only; give a copy, or out= where the call has it");
            return Err(invalid(py, self.written_name(), problem));
        }
        let is_shared = written.iter().enumerate().any(|(index, one)| {
            written[index + 1..].iter().chain(self.read()).any(|other| one.overlaps(other))
        });
        if is_shared {
            let problem =
                "shares memory with another array of the call; for a call in place give the same array";
            return Err(invalid(py, self.written_name(), problem));
        }
        Ok(())
    }

    /// Refuses calls, made together, of which one may not be, or of which one writes memory of another.
    pub(crate) fn check_all<'m>(py: Python<'_>, calls: impl IntoIterator<Item = &'m Memory>) -> PyResult<()> {
        let mut ranges = Vec::new();
        for memory in calls {
            memory.check(py)?;
            let of = |written| move |array: &Array| (array.addresses(), written);
            ranges.extend(memory.written().iter().map(of(true)).chain(memory.read().iter().map(of(false))));
        }
        ranges.retain(|(range, _)| !range.is_empty());
        ranges.sort_by_key(|(range, _)| range.start);
        let (mut used, mut written) = (0, 0);
        for (range, is_written) in ranges {
            if range.start < if is_written { used } else { written } {
                let problem = "one of the calls writes memory that another one of them uses";
                return Err(invalid(py, "out", format!("shares memory: {problem}")));
            }
            used = used.max(range.end);
            if is_written {
                written = written.max(range.end);
            }
        }
        Ok(())
    }

    fn written_name(&self) -> &'static str {
        match self {
            Memory::InPlace(_) => "array",
            Memory::Separate { .. } => "out",
        }
    }

    fn buffers(&mut self) -> Buffers<'_> {
        match self {
            Memory::InPlace(arrays) => Buffers::InOut(arrays.buffer_mut()),
            Memory::Separate { input, output } => {
                Buffers::Separate { input: input.buffer(), output: output.buffer_mut() }
            }
        }
    }
}

impl Request {
    /// A request with even counts.
    pub(crate) fn new(descriptor: Descriptor, memory: Memory, gives: Gives) -> Request {
        let place = match memory {
            Memory::InPlace(_) => Place::InPlace,
            Memory::Separate { .. } => Place::Separate,
        };
        let descriptor = Descriptor { place, ..descriptor };
        Request { descriptor, counts: Counts::Even, function: None, prepared: None, memory, gives }
    }

    /// The call, of a line of the program.
    #[inline]
    pub(crate) fn call(&mut self, comm: &Communicator, site: Site) -> Call<'_> {
        Call {
            counts: std::mem::take(&mut self.counts),
            options: comm.options,
            user_function: self.function.take(),
            prepared: self.prepared,
            site,
            ..Call::new(self.descriptor, self.memory.buffers())
        }
    }

    /// Makes the call on this thread, without the interpreter's lock.
    pub(crate) fn run(mut self, py: Python<'_>, comm: &Communicator) -> PyResult<Py<PyAny>> {
        self.memory.check(py)?;
        let (communicator, site, request) = (&*comm.inner, site(py), &mut self);
        let outcome = waiting(py, || communicator.issue(request.call(comm, site)))?;
        self.gives.value(py, &outcome, self.descriptor.dtype)
    }

    /// Starts the call.
    pub(crate) fn start(self, py: Python<'_>, comm: &Communicator) -> PyResult<Work> {
        self.memory.check(py)?;
        let Request { descriptor, counts, function, prepared, memory, gives } = self;
        let dtype = descriptor.dtype;
        let (mut arrays, mut pieces) = (Vec::new(), Vec::new());
        let mut put = |side: Arrays| side.put(&mut arrays, &mut pieces);
        let (input, output) = match memory {
            Memory::InPlace(both) => (None, put(both)),
            Memory::Separate { input, output } => (Some(put(input)), put(output)),
        };
        let [no_input, no_output] = [empty(dtype).raise(py)?, empty(dtype).raise(py)?];
        let (communicator, options, site) = (&*comm.inner, comm.options, site(py));
        let arrays = arrays.into_iter().map(Array::into_memory).collect();
        let started = Started::new(py, arrays, pieces, |buffers| {
            let mut buffers = buffers.into_iter();
            let input = input.map(|input| input.memory(&mut buffers, no_input));
            let output = output.memory(&mut buffers, no_output);
            let buffers = match input {
                Some(input) => OwnedBuffers::Separate { input, output },
                None => OwnedBuffers::InOut(output),
            };
            let call = OwnedCall {
                counts,
                options,
                user_function: function,
                prepared,
                site,
                ..OwnedCall::new(descriptor, buffers)
            };
            communicator.start(call)
        });
        Ok(Work::new(started.raise(py)?, gives, dtype))
    }
}
