//! The calls that a compressed one is made of.

use unisono_collectives::{Collectives, CollectivesAsync, CollectivesOnDevice};
use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallAlgorithm, CallInfo, Collective, Communicator, Counts, DType,
    Descriptor, Error, Finished, OwnedBuffer, OwnedBuffers, OwnedCall, OwnedMemory, ReduceOp, Result, Scope,
    Site, Work,
};

use unisono_kernels::CodeSize;

use crate::codec::Codec;
use crate::device::DeviceMemory;
use crate::message::Fault;
use crate::message_memory::{Enqueued, Message, MessageMemory, SendReceive};
use crate::pool::Pool;

/// The way in which a call of the transport is made.
#[derive(Clone, Copy)]
pub(crate) enum Issue {
    /// This thread moves it, because it has nothing else to do.
    Blocking,
    /// It goes on while this thread works.
    Asynchronous,
}

/// The words of one piece.
pub(crate) enum Words<M> {
    Arrived(Message<M>),
    OnTheirWay(Work),
    Enqueued(Enqueued<M>),
}

impl<M> Words<M> {
    /// No call.
    pub(crate) const NONE: Words<M> = Words::Arrived(Message::NONE);

    /// The words that came by a call of `wire`; the sent words go back to the pool.
    pub(crate) fn wait(self, wire: &Wire<'_>, pool: &mut Pool) -> Result<Message<M>> {
        let work = match self {
            Words::Arrived(words) => return Ok(words),
            Words::Enqueued(Enqueued { ticket, words: [_, words], stream }) => {
                ticket.map(|ticket| wire.scope.resolve(ticket)).transpose()?;
                return Ok(Message::Device { words, stream });
            }
            Words::OnTheirWay(work) => work,
        };
        let Finished { result, buffers } = work.finish();
        result?;
        let Some(OwnedBuffers::Separate { input, output }) = buffers else { return Ok(Message::NONE) };
        pool.put(input.into_vec().unwrap_or_default());
        Ok(Message::Host(output.into_vec().unwrap_or_default()))
    }

    /// Moves words that are on their way, as far as they go without waiting.
    pub(crate) fn advance(&self) {
        match self {
            // A stream needs nobody.
            Words::Arrived(_) | Words::Enqueued(_) => {}
            Words::OnTheirWay(work) => {
                let _ = work.is_done();
            }
        }
    }
}

/// The call that carries words.
pub(crate) enum WordsCall {
    /// So many words to each rank, and from each.
    AllToAll { send: Vec<u64>, receive: Vec<u64> },
    /// So many words of each rank, to all.
    AllGather { of_ranks: Vec<u64> },
    /// A sum of codes of a size, of which each rank gets so many.
    SumOfCodes { size: CodeSize, of_ranks: Vec<u64> },
}

impl WordsCall {
    /// The call of rank `own`.
    fn asked(self, own: u32) -> (Descriptor, Counts) {
        let (descriptor, counts) = match self {
            WordsCall::AllToAll { send, receive } => {
                let descriptor = Descriptor::new(Collective::AllToAll, DType::U32, send.iter().sum());
                (descriptor, Counts::PerPair { send, receive })
            }
            WordsCall::AllGather { of_ranks } => {
                let descriptor = Descriptor::new(Collective::AllGather, DType::U32, of_ranks[own as usize]);
                (descriptor, Counts::PerRank(of_ranks))
            }
            WordsCall::SumOfCodes { size, of_ranks } => {
                (sum_of_codes(size, of_ranks[own as usize]), Counts::PerRank(of_ranks))
            }
        };
        (Descriptor { uneven: true, ..descriptor }, counts)
    }
}

pub(crate) struct Wire<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) site: Site,
}

/// The call that adds codes of `size` bytes, and gives this rank `count` of them.
pub(crate) fn sum_of_codes(size: CodeSize, count: u64) -> Descriptor {
    let dtype = match size {
        CodeSize::One => DType::I8,
        CodeSize::Two => DType::I16,
        CodeSize::Four => DType::I32,
    };
    let op = Some(ReduceOp::Sum);
    Descriptor { op, uneven: true, ..Descriptor::new(Collective::ReduceScatter, dtype, count) }
}

impl Wire<'_> {
    /// Returns when all ranks have come.
    pub(crate) fn barrier(&self, memory: MessageMemory) -> Result<()> {
        match memory {
            MessageMemory::Host => self.scope.barrier(),
            MessageMemory::Device(stream) => {
                let on = self.scope.on(stream);
                on.wait(on.barrier()?).map(drop)
            }
        }
    }

    /// Makes a call with words; gives the words that came, in rank order.
    pub(crate) fn call<M: DeviceMemory>(
        &self,
        call: WordsCall,
        words: SendReceive<M>,
        issue: Issue,
        pool: &mut Pool,
    ) -> Result<Words<M>> {
        let (descriptor, counts) = call.asked(self.scope.group().rank());
        let site = self.site;
        match (words, issue) {
            (SendReceive::Host([input, mut output]), Issue::Blocking) => {
                let (read, written) = (Buffer::of(&input), BufferMut::of(&mut output));
                let buffers = Buffers::Separate { input: read, output: written };
                self.scope.issue(Call { counts, site, ..Call::new(descriptor, buffers) })?;
                pool.put(input);
                Ok(Words::Arrived(Message::Host(output)))
            }
            (SendReceive::Host([input, output]), Issue::Asynchronous) => {
                let dtype = descriptor.dtype;
                let memory = |words| OwnedBuffer::new(words).as_elements(dtype).map(OwnedMemory::One);
                let (input, output) = (memory(input)?, memory(output)?);
                let buffers = OwnedBuffers::Separate { input, output };
                let call = OwnedCall { counts, site, ..OwnedCall::new(descriptor, buffers) };
                Ok(Words::OnTheirWay(self.scope.start(call)))
            }
            // A call on a stream never waits for the host.
            (SendReceive::Device { words: [input, mut output], stream }, _) => {
                let (length, arriving) = (input.words(), output.words());
                let (read, mut written) = (input.view(0..length), output.view_mut(0..arriving));
                let buffers = Buffers::Separate { input: read.buffer(), output: written.buffer() };
                let call = Call { counts, site, stream: Some(stream), ..Call::new(descriptor, buffers) };
                let ticket = self.scope.issue(call)?.ticket();
                drop((read, written));
                Ok(Words::Enqueued(Enqueued { ticket, words: [input, output], stream }))
            }
        }
    }

    /// The lowest fault that a rank knows of, the same on all ranks.
    pub(crate) fn agree(&self, fault: Option<Fault>) -> Result<Option<Fault>> {
        /// Not every library reduces unsigned integers: a code goes with its order as an `i64`.
        const SHIFT: u64 = 1 << 63;
        let mut lowest = [(fault.map_or(u64::MAX, Fault::code) ^ SHIFT).cast_signed()];
        self.scope.all_reduce(&mut lowest, ReduceOp::Min)?;
        let lowest = lowest[0].cast_unsigned() ^ SHIFT;
        Ok((lowest < u64::MAX).then(|| Fault::from_code(lowest)))
    }

    /// The call, for errors.
    pub(crate) fn call_info(&self) -> CallInfo {
        let scope = self.scope;
        let site = self.site.text();
        CallInfo { site, ..CallInfo::new(scope.numbers().start, scope.parent().descriptor) }
    }

    pub(crate) fn error(&self, fault: Fault, codec: &dyn Codec) -> Error {
        let group = self.scope.group();
        let job_rank = |rank: u32| group.job_ranks()[rank as usize];
        let call = Box::new(CallInfo {
            algorithm: Some(CallAlgorithm { name: codec.tag().into(), schedules: 0 }),
            ..self.call_info()
        });
        match fault {
            Fault::NonFinite { block, rank: from } => {
                let block_elements = codec.block() as u64;
                Error::NonFinite { rank: job_rank(from), block: block.into(), block_elements, call }
            }
            Fault::Damaged { from, to } => {
                let reason = "an encoded part has impossible content".to_owned();
                Error::Corrupted { from: job_rank(from), to: job_rank(to), call: Some(call), reason }
            }
        }
    }
}
