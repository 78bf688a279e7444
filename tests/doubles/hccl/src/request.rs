//! What is checked of a call before its work is given to the stream.

use std::sync::Arc;

use unisono_double_common::callers;
use unisono_double_common::memory::{self, Part};
use unisono_double_common::mesh::{Mesh, Message};
use unisono_double_common::movement::{Collective, Movement, descriptor};
use unisono_double_common::stream::{STREAMS, Stream};
use unisono_double_common::{Element, In, Reduction};

use crate::codes::HcclError;
use crate::communicator::Communicator;
use crate::product::{Feature, Product, element};

/// The arguments that all calls have.
pub(crate) struct Request {
    pub(crate) communicator: Arc<Communicator>,
    stream: Arc<Stream>,
    dtype: i32,
    pub(crate) element: Element,
    feature: Feature,
}

/// Where one rank's part of a buffer lies, in elements.
pub(crate) struct Extents {
    counts: Vec<u64>,
    displacements: Vec<u64>,
}

impl Extents {
    pub(crate) fn new(counts: Vec<u64>, displacements: Vec<u64>) -> Extents {
        Extents { counts, displacements }
    }

    /// Those of C arrays, one element for each rank.
    pub(crate) fn read(counts: In<u64>, displacements: In<u64>, size: u32) -> Result<Extents, HcclError> {
        let size = size as usize;
        let counts = counts.list(size).ok_or(HcclError::PTR)?;
        Ok(Extents { counts, displacements: displacements.list(size).ok_or(HcclError::PTR)? })
    }

    pub(crate) fn count_of(&self, rank: u32) -> u64 {
        self.counts.get(rank as usize).copied().unwrap_or(0)
    }

    pub(crate) fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The bytes of each rank in a buffer.
    pub(crate) fn parts(&self, address: usize, element: Element) -> Result<Vec<Option<Part>>, HcclError> {
        let part = |(count, displacement): (&u64, &u64)| {
            let bytes = bytes_of(*count, element)?;
            let offset = bytes_of(*displacement, element)?;
            Ok(Some(Part::new(address.wrapping_add(offset), bytes)))
        };
        self.counts.iter().zip(&self.displacements).map(part).collect()
    }
}

/// The bytes of so many elements.
pub(crate) fn bytes_of(count: u64, element: Element) -> Result<usize, HcclError> {
    let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(element.bytes()));
    bytes.filter(|bytes| *bytes < 1 << 48).ok_or(HcclError::PARA)
}

/// The reduction of a number of `HcclReduceOp`.
fn reduction(op: i32) -> Result<Reduction, HcclError> {
    match op {
        0 => Ok(Reduction::Sum),
        1 => Ok(Reduction::Prod),
        2 => Ok(Reduction::Max),
        3 => Ok(Reduction::Min),
        _ => Err(HcclError::PARA),
    }
}

impl Request {
    /// A call on a communicator, whose type must be one that the product moves.
    pub(crate) fn new(
        comm: usize,
        stream: usize,
        dtype: i32,
        feature: Feature,
    ) -> Result<Request, HcclError> {
        if stream == 0 {
            return Err(HcclError::PTR);
        }
        let communicator = Communicator::ready(comm)?;
        let stream = STREAMS.get(stream).filter(|stream| stream.device() == communicator.device);
        let stream = stream.ok_or(HcclError::PARA)?;
        let product = Product::chosen();
        let element = element(dtype).ok_or(HcclError::NOT_SUPPORT)?;
        if !product.moves(dtype) || !product.has(feature, communicator.mesh.size()) {
            return Err(HcclError::NOT_SUPPORT);
        }
        Ok(Request { communicator, stream, dtype, element, feature })
    }

    /// The reduction, if the product has it.
    pub(crate) fn reduction(&self, op: i32) -> Result<Reduction, HcclError> {
        let reduction = reduction(op)?;
        let is_there = Product::chosen().reduces(self.dtype, &reduction, self.feature);
        if is_there { Ok(reduction) } else { Err(HcclError::NOT_SUPPORT) }
    }

    /// A rank of the communicator.
    pub(crate) fn rank(&self, rank: u32) -> Result<u32, HcclError> {
        if rank < self.communicator.mesh.size() { Ok(rank) } else { Err(HcclError::PARA) }
    }

    /// Checks memory that the work uses.
    pub(crate) fn check(&self, parts: &[Part]) -> Result<(), HcclError> {
        for part in parts.iter().filter(|part| part.bytes > 0) {
            if part.address == 0 {
                return Err(HcclError::PTR);
            }
            if !part.address.is_multiple_of(self.element.bytes()) {
                return Err(HcclError::PARA);
            }
            if !memory::is_on(*part, self.communicator.device) {
                return Err(HcclError::MEMORY);
            }
        }
        Ok(())
    }

    /// A collective whose parts all have `count` elements.
    pub(crate) fn even(
        self,
        collective: Collective,
        buffers: [usize; 2],
        count: u64,
        op: Option<i32>,
    ) -> Result<(), HcclError> {
        let reduction = op.map(|op| self.reduction(op)).transpose()?;
        let bytes = bytes_of(count, self.element)?;
        let mesh = &self.communicator.mesh;
        let place = (mesh.rank(), mesh.size());
        let movement = Movement::new(collective, place, buffers, bytes, self.element, reduction);
        self.go(movement)
    }

    /// A collective of parts of any size. `what` is the same on all ranks.
    pub(crate) fn uneven(
        self,
        what: impl std::hash::Hash,
        outgoing: Vec<Option<Part>>,
        incoming: Vec<Option<Part>>,
        reduction: Option<Reduction>,
    ) -> Result<(), HcclError> {
        let descriptor = descriptor((what, self.element, &reduction));
        let reduction = reduction.map(|reduction| (self.element, reduction));
        self.go(Movement { descriptor, outgoing, incoming, reduction, factor: None })
    }

    fn go(self, movement: Movement) -> Result<(), HcclError> {
        let (inputs, outputs) = (movement.inputs(), movement.outputs());
        self.check(&inputs)?;
        self.check(&outputs)?;
        let _there = callers::work_on(self.communicator.device, self.communicator.handle, "a collective");
        self.communicator.mesh.connect_for(true, &[])?;
        let number = self.communicator.mesh.next_collective();
        let run = move |mesh: &Mesh| movement.run(mesh, number);
        self.communicator.enqueue(&self.stream, [inputs, outputs], run);
        Ok(())
    }

    /// Messages, all at once.
    pub(crate) fn pass(self, messages: Vec<(bool, u32, Part)>) -> Result<(), HcclError> {
        for (_, peer, part) in &messages {
            self.rank(*peer)?;
            self.check(&[*part])?;
        }
        let mesh = &self.communicator.mesh;
        let _there = callers::work_on(self.communicator.device, self.communicator.handle, "messages");
        let pairs: Vec<_> = messages.iter().map(|(is_send, peer, _)| (*peer, *is_send)).collect();
        mesh.connect_for(false, &pairs)?;
        let number = |(is_send, peer, part): &(bool, u32, Part)| {
            let number = mesh.number(*peer, *is_send);
            Message { peer: *peer, is_send: *is_send, part: *part, number }
        };
        let messages: Vec<Message> = messages.iter().map(number).collect();
        let parts = [true, false].map(|is_send| {
            messages.iter().filter(|one| one.is_send == is_send).map(|one| one.part).collect()
        });
        self.communicator.enqueue(&self.stream, parts, move |mesh| mesh.pass(&messages));
        Ok(())
    }
}
