//! The calls of the double's library.

#![expect(unsafe_code, reason = "memory of a call, by its address")]

use std::ffi::c_void;
use std::sync::Arc;

use unisono_communicator::Result;
use unisono_offload::{Elements, NativeCall};

use super::arithmetic::reduce;
use super::room::Place;
use super::{
    Grouped, LibraryComm, LibraryDouble, bytes_at, bytes_at_mut, into_group, length, part, write_front,
};

/// Each is what [`NativeCall`] says, and has the terms of `Vendor::call`.
impl LibraryDouble {
    /// Makes a call.
    ///
    /// # Safety
    /// As `Vendor::call`.
    pub(super) unsafe fn make(&self, comm: &LibraryComm, call: &NativeCall<'_>) -> Result<()> {
        // SAFETY: the caller's.
        unsafe {
            match *call {
                NativeCall::AllReduce { input, output, elements } => {
                    self.all_reduce(comm, input, output, elements)
                }
                NativeCall::Reduce { input, output, elements, root } => {
                    self.reduce(comm, input, output, elements, root)
                }
                NativeCall::ReduceScatter { input, output, elements } => {
                    self.reduce_scatter(comm, input, output, elements)
                }
                NativeCall::Broadcast { buffer, bytes, root } => self.broadcast(comm, buffer, bytes, root),
                NativeCall::AllGather { input, output, bytes } => self.all_gather(comm, input, output, bytes),
                NativeCall::AllToAll { input, output, bytes } => self.all_to_all(comm, input, output, bytes),
                NativeCall::AllToAllV { input, send, output, receive } => {
                    self.all_to_all_v(comm, input, send, output, receive)
                }
                NativeCall::Gather { input, output, bytes, root } => {
                    self.gather(comm, input, output, bytes, root)
                }
                NativeCall::Scatter { input, output, bytes, root } => {
                    self.scatter(comm, input, output, bytes, root)
                }
                NativeCall::Send { input, bytes, peer } => self.send(comm, input, bytes, peer),
                NativeCall::Recv { output, bytes, peer } => self.recv(comm, output, bytes, peer),
            }
        }
    }

    // SAFETY: the terms of `Vendor::call`.
    unsafe fn all_reduce(
        &self,
        comm: &LibraryComm,
        input: *const c_void,
        output: *mut c_void,
        elements: Elements,
    ) -> Result<()> {
        let own = comm.place.rank as usize;
        // SAFETY: the caller's. The input is read before the output, which may be the same, is written.
        let input = unsafe { bytes_at(input, length(elements)) };
        self.collective("double_all_reduce", comm, input, |all| {
            let result = reduce(all, own, elements, self.capabilities.arithmetic.nan_in_min_max);
            // SAFETY: the caller's; nobody reads the input any more.
            write_front(unsafe { bytes_at_mut(output, length(elements)) }, &result);
        })
    }

    // SAFETY: the terms of `Vendor::call`.
    unsafe fn reduce(
        &self,
        comm: &LibraryComm,
        input: *const c_void,
        output: *mut c_void,
        elements: Elements,
        root: u32,
    ) -> Result<()> {
        let own = comm.place.rank;
        // SAFETY: as in `all_reduce`.
        let input = unsafe { bytes_at(input, length(elements)) };
        self.collective("double_reduce", comm, input, |all| {
            if own == root {
                let result = reduce(all, own as usize, elements, self.capabilities.arithmetic.nan_in_min_max);
                // SAFETY: as in `all_reduce`.
                write_front(unsafe { bytes_at_mut(output, length(elements)) }, &result);
            }
        })
    }

    // SAFETY: the terms of `Vendor::call`.
    unsafe fn reduce_scatter(
        &self,
        comm: &LibraryComm,
        input: *const c_void,
        output: *mut c_void,
        elements: Elements,
    ) -> Result<()> {
        let (own, share) = (comm.place.rank as usize, length(elements));
        // SAFETY: as in `all_reduce`.
        let input = unsafe { bytes_at(input, share * comm.place.ranks as usize) };
        self.collective("double_reduce_scatter", comm, input, |all| {
            let shares: Vec<Arc<[u8]>> =
                all.iter().map(|input| part(input, own * share, share).into()).collect();
            let result = reduce(&shares, own, elements, self.capabilities.arithmetic.nan_in_min_max);
            // SAFETY: as in `all_reduce`.
            write_front(unsafe { bytes_at_mut(output, share) }, &result);
        })
    }

    // SAFETY: the terms of `Vendor::call`.
    unsafe fn broadcast(
        &self,
        comm: &LibraryComm,
        buffer: *mut c_void,
        bytes: usize,
        root: u32,
    ) -> Result<()> {
        let own = comm.place.rank == root;
        // SAFETY: as in `all_reduce`.
        let input = unsafe { bytes_at(buffer, if own { bytes } else { 0 }) };
        self.collective("double_broadcast", comm, input, |all| {
            // SAFETY: as in `all_reduce`.
            write_front(unsafe { bytes_at_mut(buffer, bytes) }, &all[root as usize]);
        })
    }

    // SAFETY: the terms of `Vendor::call`.
    unsafe fn all_gather(
        &self,
        comm: &LibraryComm,
        input: *const c_void,
        output: *mut c_void,
        bytes: usize,
    ) -> Result<()> {
        let ranks = comm.place.ranks as usize;
        // SAFETY: as in `all_reduce`.
        let input = unsafe { bytes_at(input, bytes) };
        self.collective("double_all_gather", comm, input, |all| {
            // SAFETY: as in `all_reduce`.
            let output = unsafe { bytes_at_mut(output, bytes * ranks) };
            let places = output.chunks_exact_mut(bytes.max(1));
            places.zip(all).for_each(|(place, input)| write_front(place, input));
        })
    }

    // SAFETY: the terms of `Vendor::call`.
    unsafe fn all_to_all(
        &self,
        comm: &LibraryComm,
        input: *const c_void,
        output: *mut c_void,
        bytes: usize,
    ) -> Result<()> {
        let (own, ranks) = (comm.place.rank as usize, comm.place.ranks as usize);
        // SAFETY: as in `all_reduce`.
        let input = unsafe { bytes_at(input, bytes * ranks) };
        self.collective("double_all_to_all", comm, input, |all| {
            // SAFETY: as in `all_reduce`.
            let output = unsafe { bytes_at_mut(output, bytes * ranks) };
            let places = output.chunks_exact_mut(bytes.max(1));
            places.zip(all).for_each(|(place, input)| write_front(place, part(input, own * bytes, bytes)));
        })
    }

    // SAFETY: the terms of `Vendor::call`.
    unsafe fn all_to_all_v(
        &self,
        comm: &LibraryComm,
        input: *const c_void,
        send: &[usize],
        output: *mut c_void,
        receive: &[usize],
    ) -> Result<()> {
        let own = comm.place.rank as usize;
        let ends = [send, receive].map(|lengths| lengths.iter().sum::<usize>());
        let starts = [input as usize, output as usize];
        if starts[0] < starts[1] + ends[1] && starts[1] < starts[0] + ends[0] {
            self.room.note_misuse("double_all_to_all_v in place".to_owned());
        }
        // Each rank lays down its lengths before its bytes, as only the sender knows where a part starts.
        let mut laid: Vec<u8> = send.iter().flat_map(|bytes| (*bytes as u64).to_le_bytes()).collect();
        // SAFETY: as in `all_reduce`; input and output are apart.
        laid.extend_from_slice(unsafe { bytes_at(input, send.iter().sum()) });
        self.collective("double_all_to_all_v", comm, &laid, |all| {
            // SAFETY: as in `all_reduce`.
            let mut rest = unsafe { bytes_at_mut(output, receive.iter().sum()) };
            for (input, &bytes) in all.iter().zip(receive) {
                let (place, later) = std::mem::take(&mut rest).split_at_mut(bytes);
                let (lengths, data) = input.split_at(8 * all.len().min(input.len() / 8));
                let lengths: Vec<usize> = lengths
                    .chunks_exact(8)
                    .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()) as usize)
                    .collect();
                let start = lengths.iter().take(own).sum();
                write_front(place, part(data, start, lengths.get(own).copied().unwrap_or(0)));
                rest = later;
            }
        })
    }

    // SAFETY: the terms of `Vendor::call`.
    unsafe fn gather(
        &self,
        comm: &LibraryComm,
        input: *const c_void,
        output: *mut c_void,
        bytes: usize,
        root: u32,
    ) -> Result<()> {
        let Place { rank, ranks, .. } = comm.place;
        // SAFETY: as in `all_reduce`.
        let input = unsafe { bytes_at(input, bytes) };
        self.collective("double_gather", comm, input, |all| {
            // SAFETY: as in `all_reduce`; null on other ranks.
            let output =
                unsafe { bytes_at_mut(output, if rank == root { bytes * ranks as usize } else { 0 }) };
            let places = output.chunks_exact_mut(bytes.max(1));
            places.zip(all).for_each(|(place, input)| write_front(place, input));
        })
    }

    // SAFETY: the terms of `Vendor::call`.
    unsafe fn scatter(
        &self,
        comm: &LibraryComm,
        input: *const c_void,
        output: *mut c_void,
        bytes: usize,
        root: u32,
    ) -> Result<()> {
        let Place { rank, ranks, .. } = comm.place;
        // SAFETY: as in `all_reduce`; null on other ranks.
        let input = unsafe { bytes_at(input, if rank == root { bytes * ranks as usize } else { 0 }) };
        self.collective("double_scatter", comm, input, |all| {
            // SAFETY: as in `all_reduce`.
            let output = unsafe { bytes_at_mut(output, bytes) };
            write_front(output, part(&all[root as usize], rank as usize * bytes, bytes));
        })
    }

    // SAFETY: the terms of `Vendor::call`.
    unsafe fn send(&self, comm: &LibraryComm, input: *const c_void, bytes: usize, peer: u32) -> Result<()> {
        let one = Grouped { place: comm.place, address: input as usize, bytes, peer, is_send: true };
        let Err(one) = into_group(one) else { return Ok(()) };
        self.call("double_send", comm, || self.run_group(&[one]))
    }

    // SAFETY: the terms of `Vendor::call`.
    unsafe fn recv(&self, comm: &LibraryComm, output: *mut c_void, bytes: usize, peer: u32) -> Result<()> {
        let one = Grouped { place: comm.place, address: output as usize, bytes, peer, is_send: false };
        let Err(one) = into_group(one) else { return Ok(()) };
        self.call("double_recv", comm, || self.run_group(&[one]))
    }
}
