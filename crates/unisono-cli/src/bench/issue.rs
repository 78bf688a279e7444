//! The call of a row in each of its forms.

use unisono::call::{
    Buffer, BufferMut, Buffers, Call, Counts, Descriptor, Division, OwnedBuffer, OwnedBuffers, OwnedCall,
    OwnedMemory,
};
use unisono::extend::calls::{Operation, SegmentList, Segments, SegmentsMut};
use unisono::{
    Collective, Collectives, CollectivesAsync, CollectivesOfObjects, Communicator, Complex, DType, Element,
    Outcome, Peer, Result,
};

use super::case::{Case, Memory};
use super::form::Form;
use super::operations::MeasuredOperation;

/// The number of buffers of a coalesced call; fewer, if there are fewer elements.
const COALESCED_BUFFERS: usize = 8;

impl Case {
    /// Issues the call. The outcome of a rank without a partner has "idle" for its algorithm.
    pub(crate) fn call(
        &self,
        comm: &dyn Communicator,
        root: Option<u32>,
        memory: &mut Memory,
    ) -> Result<Outcome> {
        if self.form == Form::Asynchronous {
            return self.start_and_wait(comm, root, memory);
        }
        let (input, output) = self.bytes(comm, root);
        let (input, output) = (&memory.input[..input], &mut memory.output[..output]);
        if self.form == Form::Objects {
            return self.exchange_objects(comm, root, input, output);
        }
        let collective = match self.operation {
            MeasuredOperation::Collective(collective) => collective,
            MeasuredOperation::SendRecv => return self.exchange(comm, input, output),
        };
        let descriptor = self.descriptor(collective, root);
        let (input, output) = (self.cut(input), self.cut_mut(output));
        let buffers =
            if self.in_place(root) { Buffers::InOut(output) } else { Buffers::Separate { input, output } };
        if self.form != Form::Uneven {
            return self.issue(comm, descriptor, buffers);
        }
        let list = vec![self.count; self.ranks as usize];
        let (counts, count) = match collective {
            Collective::AllToAll => {
                let total = self.count * u64::from(self.ranks);
                (Counts::PerPair { send: list.clone(), receive: list }, total)
            }
            _ => (Counts::PerRank(list), self.count),
        };
        let descriptor = Descriptor { uneven: true, count, ..descriptor };
        comm.issue(Call { counts, options: self.options(), ..Call::new(descriptor, buffers) })
    }

    /// Starts a collective on memory that moves in, and waits until it has come back. An operation in this form is a
    /// collective.
    fn start_and_wait(
        &self,
        comm: &dyn Communicator,
        root: Option<u32>,
        memory: &mut Memory,
    ) -> Result<Outcome> {
        let Some(collective) = self.operation.collective() else { return Ok(Outcome::done(0, "idle")) };
        let place = self.place_of_owned(root);
        let buffers = match memory.owned[place].take() {
            Some(buffers) => buffers,
            None => self.owned_buffers(comm, root, memory)?,
        };
        let call = OwnedCall::new(self.descriptor(collective, root), buffers);
        let finished = comm.start(OwnedCall { options: self.options(), ..call }).finish();
        memory.owned[place] = finished.buffers;
        finished.result
    }

    /// The buffers of an asynchronous call, with the contents of the memory.
    fn owned_buffers(
        &self,
        comm: &dyn Communicator,
        root: Option<u32>,
        memory: &Memory,
    ) -> Result<OwnedBuffers> {
        let (input, output) = self.bytes(comm, root);
        let output = self.owned(&memory.output[..output])?;
        if !self.operation.has_size() {
            return Ok(OwnedBuffers::None);
        }
        if self.in_place(root) {
            return Ok(OwnedBuffers::InOut(output));
        }
        Ok(OwnedBuffers::Separate { input: self.owned(&memory.input[..input])?, output })
    }

    /// Memory with these bytes, in elements of the call's type. Vectors of integers of its size are aligned for it.
    fn owned(&self, bytes: &[u8]) -> Result<OwnedMemory> {
        fn buffer<T: Element>(bytes: &[u8], dtype: DType) -> Result<OwnedMemory> {
            OwnedBuffer::new(bytemuck::pod_collect_to_vec::<u8, T>(bytes))
                .as_elements(dtype)
                .map(OwnedMemory::One)
        }
        match self.dtype.bytes() {
            1 => buffer::<u8>(bytes, self.dtype),
            2 => buffer::<u16>(bytes, self.dtype),
            4 => buffer::<u32>(bytes, self.dtype),
            8 => buffer::<u64>(bytes, self.dtype),
            _ => buffer::<Complex<f64>>(bytes, self.dtype),
        }
    }

    /// Moves the same bytes as objects, which are made of the input, and copied into the output. Bytes of another
    /// length stay out of it, and count as wrong.
    fn exchange_objects(
        &self,
        comm: &dyn Communicator,
        root: Option<u32>,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<Outcome> {
        fn put(output: &mut [u8], object: &[u8]) {
            if output.len() == object.len() {
                output.copy_from_slice(object);
            }
        }
        let share_bytes = (self.count as usize * self.dtype.bytes()).max(1);
        let (own, is_root) = (root.unwrap_or_default(), root == Some(self.rank));
        let put_all = |output: &mut [u8], objects: Vec<Vec<u8>>| {
            let shares = output.chunks_mut(share_bytes).zip(&objects);
            shares.for_each(|(output, object)| put(output, object));
        };
        match self.operation.collective() {
            Some(Collective::Broadcast) => {
                let object = comm.broadcast_object(is_root.then(|| output.to_vec()), own)?;
                put(output, &object);
            }
            Some(Collective::AllGather) => put_all(output, comm.all_gather_object(input.to_vec())?),
            Some(Collective::Gather) => {
                let objects = comm.gather_object(input.to_vec(), own)?;
                put_all(output, objects.unwrap_or_default());
            }
            Some(Collective::Scatter) => {
                let objects = || input.chunks(share_bytes).map(<[u8]>::to_vec).collect();
                put(output, &comm.scatter_object(is_root.then(objects), own)?);
            }
            Some(
                Collective::AllReduce
                | Collective::ReduceScatter
                | Collective::AllToAll
                | Collective::Reduce
                | Collective::Barrier
                | Collective::Scan
                | Collective::Exscan,
            ) => return Ok(Outcome::done(0, "idle")),
            None => {
                let Some(partner) = self.partner() else { return Ok(Outcome::done(0, "idle")) };
                let mut receive =
                    || comm.recv_object::<Vec<u8>>(partner, 0).map(|(object, _)| put(output, &object));
                if self.rank <= partner {
                    comm.send_object(input.to_vec(), partner, 0)?;
                    receive()?;
                } else {
                    receive()?;
                    comm.send_object(input.to_vec(), partner, 0)?;
                }
            }
        }
        Ok(Outcome::done((input.len() + output.len()) as u64, "objects"))
    }

    /// The length of each piece of a buffer of so many bytes, and the meaning of the pieces. `has_shares` says whether
    /// the buffer has a share for each rank.
    fn pieces(&self, bytes: usize, has_shares: bool) -> Option<(usize, Division)> {
        let element = self.dtype.bytes();
        match self.form {
            Form::List => {
                (has_shares && bytes > 0).then_some((self.count as usize * element, Division::Shares))
            }
            Form::Coalesced => {
                let piece = (bytes / element).div_ceil(COALESCED_BUFFERS) * element;
                (bytes > 0).then_some((piece, Division::Coalesced))
            }
            Form::Plain
            | Form::Uneven
            | Form::Prepared
            | Form::Asynchronous
            | Form::Objects
            | Form::Exchange => None,
        }
    }

    fn cut<'a>(&self, bytes: &'a [u8]) -> Buffer<'a> {
        let has_shares = matches!(
            self.operation.collective(),
            Some(Collective::ReduceScatter | Collective::Scatter | Collective::AllToAll)
        );
        Buffer::Host(match self.pieces(bytes.len(), has_shares) {
            Some((length, division)) => {
                let pieces: Vec<&[u8]> = bytes.chunks(length.max(1)).collect();
                Segments::Many(SegmentList::from(pieces).divided(division))
            }
            None => Segments::One(bytes),
        })
    }

    fn cut_mut<'a>(&self, bytes: &'a mut [u8]) -> BufferMut<'a> {
        let has_shares = matches!(
            self.operation.collective(),
            Some(Collective::AllGather | Collective::Gather | Collective::AllToAll)
        );
        BufferMut::Host(match self.pieces(bytes.len(), has_shares) {
            Some((length, division)) => {
                let pieces: Vec<&mut [u8]> = bytes.chunks_mut(length.max(1)).collect();
                SegmentsMut::Many(SegmentList::from(pieces).divided(division))
            }
            None => SegmentsMut::One(bytes),
        })
    }

    /// The lower rank of a pair begins, or both begin at once.
    fn exchange(&self, comm: &dyn Communicator, input: &[u8], output: &mut [u8]) -> Result<Outcome> {
        let Some(partner) = self.partner() else { return Ok(Outcome::done(0, "idle")) };
        let peer = Some(Peer::Rank(partner));
        let message = |operation| Descriptor { peer, ..Descriptor::new(operation, self.dtype, self.count) };
        if self.form == Form::Exchange {
            let input = Buffer::Host(Segments::One(input));
            let output = BufferMut::Host(SegmentsMut::One(output));
            let mut calls = [
                Call::separate(message(Operation::Send), input, BufferMut::empty()),
                Call::separate(message(Operation::Recv), Buffer::empty(), output),
            ];
            let mut results = [None, None];
            comm.life().exchange(&mut calls, &mut results)?;
            let [sent, received] = results.map(|result| result.unwrap_or(Ok(Outcome::done(0, "idle"))));
            return sent.and(received);
        }
        let send = || {
            let descriptor = message(Operation::Send);
            let input = Buffer::Host(Segments::One(input));
            self.issue(comm, descriptor, Buffers::Separate { input, output: BufferMut::empty() })
        };
        let mut receive = || {
            let descriptor = message(Operation::Recv);
            let output = BufferMut::Host(SegmentsMut::One(output));
            self.issue(comm, descriptor, Buffers::Separate { input: Buffer::empty(), output })
        };
        if self.rank <= partner {
            send()?;
            receive()
        } else {
            receive()?;
            send()
        }
    }

    fn issue(
        &self,
        comm: &dyn Communicator,
        descriptor: Descriptor,
        buffers: Buffers<'_>,
    ) -> Result<Outcome> {
        let plans = self.prepared.as_ref();
        let plan = plans.and_then(|plans| plans.get(descriptor.root.unwrap_or_default() as usize));
        let prepared = plan.and_then(|plan| plan.number);
        comm.issue(Call { options: self.options(), prepared, ..Call::new(descriptor, buffers) })
    }
}
