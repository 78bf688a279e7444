//! Collectives, messages, operators and registered memory.

use std::sync::Arc;

use unisono_double_common::fault;
use unisono_double_common::memory::{self, FreeError, Part, Place};
use unisono_double_common::mesh::Message;
use unisono_double_common::movement::{Collective, Factor, Movement};
use unisono_double_common::stream::Stream;
use unisono_double_common::{Element, Handles, Out, Reduction, export, lock};

use crate::codes::{INVALID_USAGE, NcclError, UNHANDLED_CUDA_ERROR, put, version};
use crate::communicator::Communicator;
use crate::context::current_or_first;
use crate::driver_memory::synchronize;
use crate::driver_stream::{PER_THREAD, stream_on};
use crate::group::{self, Operation, What};

/// The first version with floats of eight bits.
const FLOAT8_VERSION: u32 = 22400;
/// ncclNumOps: operators of programs are numbered from here on.
const OWN_OPERATORS: i32 = 5;

static REGISTRATIONS: Handles<Part> = Handles::new("registration");

fn element(dtype: i32) -> Option<Element> {
    let element = match dtype {
        0 => Element::I8,
        1 => Element::U8,
        2 => Element::I32,
        3 => Element::U32,
        4 => Element::I64,
        5 => Element::U64,
        6 => Element::F16,
        7 => Element::F32,
        8 => Element::F64,
        9 => Element::BF16,
        10 => Element::F8E4M3,
        11 => Element::F8E5M2,
        _ => return None,
    };
    (element.bytes() > 1 || dtype < 2 || version() >= FLOAT8_VERSION).then_some(element)
}

/// A call's arguments that all of them have.
struct Request<'a> {
    call: &'a str,
    communicator: Arc<Communicator>,
    stream: Arc<Stream>,
    /// Whether that is the default one of a thread.
    is_of_thread: bool,
    element: Element,
    bytes: usize,
}

impl<'a> Request<'a> {
    fn new(
        call: &'a str,
        comm: usize,
        stream: usize,
        count: usize,
        dtype: i32,
    ) -> Result<Request<'a>, NcclError> {
        let communicator = Communicator::ready(comm, call)?;
        let invalid = || NcclError::argument(format!("{call} : invalid type {dtype}"));
        let element = element(dtype).ok_or_else(invalid)?;
        let too_large = || NcclError::argument(format!("{call} : invalid count {count}"));
        let bytes =
            count.checked_mul(element.bytes()).filter(|bytes| *bytes < 1 << 48).ok_or_else(too_large)?;
        let is_of_thread = stream == PER_THREAD;
        let stream = stream_on(communicator.device, stream);
        let wrong = || NcclError::new(UNHANDLED_CUDA_ERROR, "Cuda failure 'invalid resource handle'");
        let stream = stream.filter(|stream| stream.device() == communicator.device).ok_or_else(wrong)?;
        Ok(Request { call, communicator, stream, is_of_thread, element, bytes })
    }

    fn rank(&self, name: &str, rank: i32) -> Result<u32, NcclError> {
        let size = self.communicator.mesh()?.size();
        let text = || {
            let call = self.call;
            NcclError::argument(format!(
                "{call} : invalid {name} {rank} ({name} should be in the 0..{size} range)"
            ))
        };
        u32::try_from(rank).ok().filter(|rank| *rank < size).ok_or_else(text)
    }

    /// The reduction, and what elements are multiplied by before.
    fn reduction(&self, op: i32) -> Result<(Reduction, Option<Factor>), NcclError> {
        let plain = match op {
            0 => Reduction::Sum,
            1 => Reduction::Prod,
            2 => Reduction::Max,
            3 => Reduction::Min,
            4 => Reduction::Avg,
            _ => {
                let operators = lock(&self.communicator.operators);
                let own = operators.get(&op).filter(|(element, _)| *element == self.element);
                let invalid =
                    || NcclError::argument(format!("{} : invalid reduction operation {op}", self.call));
                return own
                    .map(|(_, factor)| (Reduction::PreMulSum, Some(factor.clone())))
                    .ok_or_else(invalid);
            }
        };
        Ok((plain, None))
    }

    fn check(&self, parts: &[Part], name: &str) -> Result<(), NcclError> {
        let device = self.communicator.device;
        match parts.iter().find(|part| !memory::is_on(**part, device)) {
            None => Ok(()),
            Some(part) => Err(NcclError::argument(format!(
                "{} : {name} {:#x} is not a valid pointer to {} bytes of device {device}",
                self.call, part.address, part.bytes
            ))),
        }
    }

    /// Gives the collective to the stream.
    fn collective(
        self,
        collective: Collective,
        buffers: [usize; 2],
        op: Option<i32>,
    ) -> Result<(), NcclError> {
        let (reduction, factor) = op.map(|op| self.reduction(op)).transpose()?.unzip();
        if self.bytes == 0 {
            return Ok(());
        }
        let mesh = self.communicator.mesh()?;
        let place = (mesh.rank(), mesh.size());
        let mut movement = Movement::new(collective, place, buffers, self.bytes, self.element, reduction);
        movement.factor = factor.flatten();
        self.check(&movement.inputs(), "sendbuff")?;
        self.check(&movement.outputs(), "recvbuff")?;
        self.operate(What::Collective(movement))
    }

    fn message(self, peer: i32, is_send: bool, address: usize) -> Result<(), NcclError> {
        let peer = self.rank("peer", peer)?;
        let part = Part::new(address, self.bytes);
        if self.bytes == 0 {
            return Ok(());
        }
        self.check(&[part], if is_send { "sendbuff" } else { "recvbuff" })?;
        self.operate(What::Message(Message { peer, is_send, part, number: 0 }))
    }

    fn operate(self, what: What) -> Result<(), NcclError> {
        let fault = fault::take_of_work();
        let Request { communicator, stream, is_of_thread, .. } = self;
        group::operate(Operation { communicator, stream, is_of_thread, fault, what })
    }
}

/// A call that is part of a group if one is open: its refusal is that of the group.
fn grouped(result: Result<(), NcclError>) -> Result<(), NcclError> {
    result.map_err(group::note)
}

fn reduce_to(
    request: Result<Request<'_>, NcclError>,
    make: impl FnOnce(u32) -> Collective,
    buffers: [usize; 2],
    root: i32,
    op: Option<i32>,
) -> Result<(), NcclError> {
    let request = request?;
    let root = request.rank("root", root)?;
    request.collective(make(root), buffers, op)
}

export! {
    fn ncclAllReduce[comm](
        send: usize, recv: usize, count: usize, dtype: i32, op: i32, comm: usize, stream: usize,
    ) -> NcclError {
        let request = Request::new("AllReduce", comm, stream, count, dtype);
        grouped(request.and_then(|one| one.collective(Collective::AllReduce, [send, recv], Some(op))))
    }

    fn ncclBroadcast[comm](
        send: usize, recv: usize, count: usize, dtype: i32, root: i32, comm: usize, stream: usize,
    ) -> NcclError {
        let request = Request::new("Broadcast", comm, stream, count, dtype);
        grouped(reduce_to(request, Collective::Broadcast, [send, recv], root, None))
    }

    fn ncclBcast[comm](
        buffer: usize, count: usize, dtype: i32, root: i32, comm: usize, stream: usize,
    ) -> NcclError {
        let request = Request::new("Bcast", comm, stream, count, dtype);
        grouped(reduce_to(request, Collective::Broadcast, [buffer; 2], root, None))
    }

    fn ncclReduce[comm](
        send: usize, recv: usize, count: usize, dtype: i32, op: i32, root: i32, comm: usize, stream: usize,
    ) -> NcclError {
        let request = Request::new("Reduce", comm, stream, count, dtype);
        grouped(reduce_to(request, Collective::Reduce, [send, recv], root, Some(op)))
    }

    fn ncclAllGather[comm](
        send: usize, recv: usize, count: usize, dtype: i32, comm: usize, stream: usize,
    ) -> NcclError {
        let request = Request::new("AllGather", comm, stream, count, dtype);
        grouped(request.and_then(|one| one.collective(Collective::AllGather, [send, recv], None)))
    }

    fn ncclReduceScatter[comm](
        send: usize, recv: usize, count: usize, dtype: i32, op: i32, comm: usize, stream: usize,
    ) -> NcclError {
        let request = Request::new("ReduceScatter", comm, stream, count, dtype);
        grouped(request.and_then(|one| one.collective(Collective::ReduceScatter, [send, recv], Some(op))))
    }

    fn ncclAlltoAll[comm](
        send: usize, recv: usize, count: usize, dtype: i32, comm: usize, stream: usize,
    ) -> NcclError {
        if send == recv && count > 0 {
            return Err(group::note(NcclError::argument("AlltoAll : in place is not supported")));
        }
        let request = Request::new("AlltoAll", comm, stream, count, dtype);
        grouped(request.and_then(|one| one.collective(Collective::AllToAll, [send, recv], None)))
    }

    fn ncclGather[comm](
        send: usize, recv: usize, count: usize, dtype: i32, root: i32, comm: usize, stream: usize,
    ) -> NcclError {
        let request = Request::new("Gather", comm, stream, count, dtype);
        grouped(reduce_to(request, Collective::Gather, [send, recv], root, None))
    }

    fn ncclScatter[comm](
        send: usize, recv: usize, count: usize, dtype: i32, root: i32, comm: usize, stream: usize,
    ) -> NcclError {
        let request = Request::new("Scatter", comm, stream, count, dtype);
        grouped(reduce_to(request, Collective::Scatter, [send, recv], root, None))
    }

    fn ncclSend[comm](
        send: usize, count: usize, dtype: i32, peer: i32, comm: usize, stream: usize,
    ) -> NcclError {
        let request = Request::new("Send", comm, stream, count, dtype);
        grouped(request.and_then(|one| one.message(peer, true, send)))
    }

    fn ncclRecv[comm](
        recv: usize, count: usize, dtype: i32, peer: i32, comm: usize, stream: usize,
    ) -> NcclError {
        let request = Request::new("Recv", comm, stream, count, dtype);
        grouped(request.and_then(|one| one.message(peer, false, recv)))
    }

    fn ncclRedOpCreatePreMulSum[comm](
        op: Out<i32>, scalar: usize, dtype: i32, residence: i32, comm: usize,
    ) -> NcclError {
        let communicator = Communicator::ready(comm, "RedOpCreatePreMulSum")?;
        let element = element(dtype).ok_or_else(|| NcclError::argument("RedOpCreatePreMulSum : invalid type"))?;
        let part = Part::new(scalar, element.bytes());
        let factor = match residence {
            // ncclScalarDevice
            0 if memory::is_on(part, communicator.device) => Factor::Memory(part),
            // ncclScalarHostImmediate
            1 => Factor::Value(
                memory::read_any(part).ok_or_else(|| NcclError::null("RedOpCreatePreMulSum", "scalar"))?,
            ),
            _ => return Err(NcclError::argument("RedOpCreatePreMulSum : invalid scalar or residence")),
        };
        let mut operators = lock(&communicator.operators);
        let number = operators.keys().next_back().map_or(OWN_OPERATORS, |last| last + 1);
        operators.insert(number, (element, factor));
        unisono_double_common::handles::count("operator", 1);
        put(op, number, "RedOpCreatePreMulSum", "op")
    }

    fn ncclRedOpDestroy[comm](op: i32, comm: usize) -> NcclError {
        let communicator = Communicator::of(comm, "RedOpDestroy")?;
        if lock(&communicator.operators).remove(&op).is_none() {
            return Err(NcclError::argument(format!("RedOpDestroy : operator {op} is not one of the program's")));
        }
        unisono_double_common::handles::count("operator", -1);
        Ok(())
    }

    fn ncclCommRegister[comm](comm: usize, buffer: usize, bytes: usize, handle: Out<usize>) -> NcclError {
        let communicator = Communicator::ready(comm, "CommRegister")?;
        let part = Part::new(buffer, bytes);
        if bytes == 0 || !memory::is_on(part, communicator.device) {
            return Err(NcclError::argument("CommRegister : buff is not a valid pointer"));
        }
        put(handle, REGISTRATIONS.insert(part), "CommRegister", "handle")
    }

    fn ncclCommDeregister[comm](comm: usize, handle: usize) -> NcclError {
        Communicator::of(comm, "CommDeregister")?;
        let unknown = || NcclError::new(INVALID_USAGE, "CommDeregister : handle is unknown");
        REGISTRATIONS.remove(handle).map(drop).ok_or_else(unknown)
    }

    fn ncclMemAlloc(address: Out<usize>, bytes: usize) -> NcclError {
        let device = current_or_first()?;
        if bytes == 0 || address.is_null() {
            return Err(NcclError::argument("MemAlloc : invalid pointer or size"));
        }
        let none = || NcclError::new(UNHANDLED_CUDA_ERROR, "Cuda failure 'out of memory'");
        let memory = memory::allocate(Place::Device(device), bytes).ok_or_else(none)?;
        put(address, memory, "MemAlloc", "ptr")
    }

    fn ncclMemFree(address: usize) -> NcclError {
        let device = match memory::find(Part::new(address, 0)) {
            Some((_, Place::Device(device))) => device,
            _ => current_or_first()?,
        };
        synchronize(device)?;
        match memory::free(address, false) {
            Ok(()) => Ok(()),
            Err(FreeError::Unknown) => Err(NcclError::argument("MemFree : invalid pointer")),
            Err(FreeError::Overrun) => {
                Err(NcclError::new(UNHANDLED_CUDA_ERROR, "Cuda failure 'an illegal memory access was encountered'"))
            }
        }
    }
}
