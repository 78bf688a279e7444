//! Collectives and messages.

use std::collections::HashSet;

use unisono_double_common::memory::Part;
use unisono_double_common::movement::Collective;
use unisono_double_common::{In, export};

use crate::codes::HcclError;
use crate::communicator::Communicator;
use crate::product::Feature;
use crate::request::{Extents, Request, bytes_of};

/// `HcclSendRecvItem`, 32 bytes.
#[derive(Clone, Copy)]
#[repr(C)]
struct SendRecvItem {
    /// HCCL_SEND is 0, HCCL_RECV 1.
    kind: i32,
    buffer: usize,
    count: u64,
    dtype: i32,
    peer: u32,
}

/// INT8, for calls without elements.
const BYTES: i32 = 0;

/// Refuses two sends to one rank, and two receives from one. CANN's page of the function (8.0 to 8.3) forbids them, and
/// `CollBatchSendRecvExecutor::GetPairWiseList` (cann-hccl, `coll_batch_send_recv_executor.cc`) answers HCCL_E_PARA.
fn check_pairs(items: &[SendRecvItem]) -> Result<(), HcclError> {
    let mut pairs = HashSet::new();
    let are_apart = items.iter().all(|item| pairs.insert((item.kind, item.peer)));
    if are_apart { Ok(()) } else { Err(HcclError::PARA) }
}

fn rank_and_size(comm: usize) -> Result<(u32, u32), HcclError> {
    let communicator = Communicator::of(comm)?;
    Ok((communicator.mesh.rank(), communicator.mesh.size()))
}

/// The call with extents of both buffers.
fn all_to_all_v(
    comm: usize,
    stream: usize,
    [send, recv]: [(usize, Extents); 2],
    [send_type, recv_type]: [i32; 2],
) -> Result<(), HcclError> {
    let request = Request::new(comm, stream, send_type, Feature::Symmetric)?;
    if send_type != recv_type || send.0 == recv.0 && send.0 != 0 {
        return Err(HcclError::PARA);
    }
    let [outgoing, incoming] = [send, recv].map(|(address, extents)| extents.parts(address, request.element));
    request.uneven("AlltoAllV", outgoing?, incoming?, None)
}

export! {
    fn HcclAllReduce[comm](
        send: usize, recv: usize, count: u64, dtype: i32, op: i32, comm: usize, stream: usize,
    ) -> HcclError {
        let request = Request::new(comm, stream, dtype, Feature::Symmetric)?;
        request.even(Collective::AllReduce, [send, recv], count, Some(op))
    }

    fn HcclBroadcast[comm](
        buffer: usize, count: u64, dtype: i32, root: u32, comm: usize, stream: usize,
    ) -> HcclError {
        let request = Request::new(comm, stream, dtype, Feature::Rooted)?;
        let root = request.rank(root)?;
        request.even(Collective::Broadcast(root), [buffer; 2], count, None)
    }

    fn HcclReduce[comm](
        send: usize, recv: usize, count: u64, dtype: i32, op: i32, root: u32, comm: usize, stream: usize,
    ) -> HcclError {
        let request = Request::new(comm, stream, dtype, Feature::Rooted)?;
        let root = request.rank(root)?;
        request.even(Collective::Reduce(root), [send, recv], count, Some(op))
    }

    fn HcclReduceScatter[comm](
        send: usize, recv: usize, count: u64, dtype: i32, op: i32, comm: usize, stream: usize,
    ) -> HcclError {
        let request = Request::new(comm, stream, dtype, Feature::Symmetric)?;
        request.even(Collective::ReduceScatter, [send, recv], count, Some(op))
    }

    fn HcclReduceScatterV[comm](
        send: usize, counts: In<u64>, displacements: In<u64>, recv: usize, count: u64, dtype: i32, op: i32,
        comm: usize, stream: usize,
    ) -> HcclError {
        let (rank, size) = rank_and_size(comm)?;
        let request = Request::new(comm, stream, dtype, Feature::Uneven)?;
        let reduction = request.reduction(op)?;
        let extents = Extents::read(counts, displacements, size)?;
        if extents.count_of(rank) != count {
            return Err(HcclError::PARA);
        }
        let outgoing = extents.parts(send, request.element)?;
        let incoming = vec![Some(Part::new(recv, bytes_of(count, request.element)?)); size as usize];
        let what = ("ReduceScatterV", extents.counts().to_vec());
        request.uneven(what, outgoing, incoming, Some(reduction))
    }

    fn HcclScatter[comm](
        send: usize, recv: usize, count: u64, dtype: i32, root: u32, comm: usize, stream: usize,
    ) -> HcclError {
        let request = Request::new(comm, stream, dtype, Feature::Rooted)?;
        let root = request.rank(root)?;
        request.even(Collective::Scatter(root), [send, recv], count, None)
    }

    fn HcclAllGather[comm](
        send: usize, recv: usize, count: u64, dtype: i32, comm: usize, stream: usize,
    ) -> HcclError {
        let request = Request::new(comm, stream, dtype, Feature::Symmetric)?;
        request.even(Collective::AllGather, [send, recv], count, None)
    }

    fn HcclAllGatherV[comm](
        send: usize, count: u64, recv: usize, counts: In<u64>, displacements: In<u64>, dtype: i32,
        comm: usize, stream: usize,
    ) -> HcclError {
        let (rank, size) = rank_and_size(comm)?;
        let request = Request::new(comm, stream, dtype, Feature::Uneven)?;
        let extents = Extents::read(counts, displacements, size)?;
        if extents.count_of(rank) != count {
            return Err(HcclError::PARA);
        }
        let outgoing = vec![Some(Part::new(send, bytes_of(count, request.element)?)); size as usize];
        let incoming = extents.parts(recv, request.element)?;
        request.uneven(("AllGatherV", extents.counts().to_vec()), outgoing, incoming, None)
    }

    fn HcclAlltoAll[comm](
        send: usize, send_count: u64, send_type: i32, recv: usize, recv_count: u64, recv_type: i32, comm: usize,
        stream: usize,
    ) -> HcclError {
        let request = Request::new(comm, stream, send_type, Feature::Symmetric)?;
        if send_type != recv_type || send_count != recv_count || send == recv && send != 0 {
            return Err(HcclError::PARA);
        }
        request.even(Collective::AllToAll, [send, recv], send_count, None)
    }

    fn HcclAlltoAllV[comm](
        send: usize, send_counts: In<u64>, send_displacements: In<u64>, send_type: i32, recv: usize,
        recv_counts: In<u64>, recv_displacements: In<u64>, recv_type: i32, comm: usize, stream: usize,
    ) -> HcclError {
        let (_, size) = rank_and_size(comm)?;
        let sent = Extents::read(send_counts, send_displacements, size)?;
        let received = Extents::read(recv_counts, recv_displacements, size)?;
        all_to_all_v(comm, stream, [(send, sent), (recv, received)], [send_type, recv_type])
    }

    fn HcclAlltoAllVC[comm](
        send: usize, matrix: In<u64>, send_type: i32, recv: usize, recv_type: i32, comm: usize, stream: usize,
    ) -> HcclError {
        let (rank, size) = rank_and_size(comm)?;
        let (rank, size) = (rank as usize, size as usize);
        let matrix = matrix.list(size * size).ok_or(HcclError::PTR)?;
        // The parts lie one behind the other.
        let dense = |counts: Vec<u64>| {
            let add = |end: &mut u64, count: &u64| Some(std::mem::replace(end, end.saturating_add(*count)));
            let displacements = counts.iter().scan(0, add).collect();
            Extents::new(counts, displacements)
        };
        let sent = dense(matrix[rank * size..][..size].to_vec());
        let received = dense((0..size).map(|peer| matrix[peer * size + rank]).collect());
        all_to_all_v(comm, stream, [(send, sent), (recv, received)], [send_type, recv_type])
    }

    fn HcclBarrier[comm](comm: usize, stream: usize) -> HcclError {
        let request = Request::new(comm, stream, BYTES, Feature::Symmetric)?;
        request.even(Collective::AllGather, [0, 0], 0, None)
    }

    fn HcclSend[comm](
        buffer: usize, count: u64, dtype: i32, peer: u32, comm: usize, stream: usize,
    ) -> HcclError {
        let request = Request::new(comm, stream, dtype, Feature::Rooted)?;
        let part = Part::new(buffer, bytes_of(count, request.element)?);
        request.pass(vec![(true, peer, part)])
    }

    fn HcclRecv[comm](
        buffer: usize, count: u64, dtype: i32, peer: u32, comm: usize, stream: usize,
    ) -> HcclError {
        let request = Request::new(comm, stream, dtype, Feature::Rooted)?;
        let part = Part::new(buffer, bytes_of(count, request.element)?);
        request.pass(vec![(false, peer, part)])
    }

    fn HcclBatchSendRecv[comm](items: In<SendRecvItem>, count: u32, comm: usize, stream: usize) -> HcclError {
        let items = items.list(count as usize).filter(|items| !items.is_empty()).ok_or(HcclError::PTR)?;
        check_pairs(&items)?;
        let messages = items.iter().map(|item| {
            let request = Request::new(comm, stream, item.dtype, Feature::Rooted)?;
            let part = Part::new(item.buffer, bytes_of(item.count, request.element)?);
            request.rank(item.peer)?;
            request.check(&[part])?;
            match item.kind {
                0 => Ok((true, item.peer, part)),
                1 => Ok((false, item.peer, part)),
                _ => Err(HcclError::PARA),
            }
        });
        let messages = messages.collect::<Result<_, _>>()?;
        Request::new(comm, stream, BYTES, Feature::Rooted)?.pass(messages)
    }
}
