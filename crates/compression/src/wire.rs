//! The calls that a compressed one is made of.

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallAlgorithm, CallInfo, Collective, Collectives, CollectivesAsync,
    Counts, DType, Descriptor, Error, Finished, OwnedBuffer, OwnedBuffers, OwnedCall, OwnedMemory, ReduceOp,
    Result, Scope, Site, Work,
};

use unisono_kernels::CodeSize;

use crate::codec::Codec;
use crate::message::Fault;
use crate::pool::Pool;

/// How a call of the transport is made.
#[derive(Clone, Copy)]
pub(crate) enum Issue {
    /// This thread moves it, because it has nothing else to do.
    Blocking,
    /// It goes on while this thread works.
    Asynchronous,
}

/// The words of one piece.
pub(crate) enum Words {
    Arrived(Vec<u32>),
    OnTheirWay(Work),
}

impl Words {
    /// No call.
    pub(crate) const NONE: Words = Words::Arrived(Vec::new());

    /// What came; what was sent goes back to the pool.
    pub(crate) fn wait(self, pool: &mut Pool) -> Result<Vec<u32>> {
        let work = match self {
            Words::Arrived(words) => return Ok(words),
            Words::OnTheirWay(work) => work,
        };
        let Finished { result, buffers } = work.finish();
        result?;
        let Some(OwnedBuffers::Separate { input, output }) = buffers else { return Ok(Vec::new()) };
        pool.put(input.into_vec().unwrap_or_default());
        Ok(output.into_vec().unwrap_or_default())
    }

    /// Moves what is on its way, as far as it goes without waiting.
    pub(crate) fn advance(&self) {
        match self {
            Words::Arrived(_) => {}
            Words::OnTheirWay(work) => {
                let _ = work.is_done();
            }
        }
    }
}

pub(crate) struct Wire<'a> {
    pub(crate) scope: &'a dyn Scope,
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
    /// Sends words to each rank; gives those that came, in rank order.
    pub(crate) fn all_to_all(
        &self,
        words: Vec<u32>,
        send: Vec<u64>,
        receive: Vec<u64>,
        issue: Issue,
        pool: &mut Pool,
    ) -> Result<Words> {
        let arriving = pool.take(receive.iter().sum::<u64>() as usize)?;
        let counts = Counts::PerPair { send, receive };
        let descriptor = Descriptor::new(Collective::AllToAll, DType::U32, words.len() as u64);
        self.call(descriptor, counts, [words, arriving], issue, pool)
    }

    /// Sends words to all; gives those of all, in rank order.
    pub(crate) fn all_gather(
        &self,
        words: Vec<u32>,
        of_ranks: Vec<u64>,
        issue: Issue,
        pool: &mut Pool,
    ) -> Result<Words> {
        let arriving = pool.take(of_ranks.iter().sum::<u64>() as usize)?;
        let descriptor = Descriptor::new(Collective::AllGather, DType::U32, words.len() as u64);
        self.call(descriptor, Counts::PerRank(of_ranks), [words, arriving], issue, pool)
    }

    /// Adds codes of `size` bytes, of which each rank gets so many; gives those of this rank.
    pub(crate) fn reduce_scatter(
        &self,
        size: CodeSize,
        of_ranks: Vec<u64>,
        words: [Vec<u32>; 2],
        issue: Issue,
        pool: &mut Pool,
    ) -> Result<Words> {
        let count = of_ranks[self.scope.group().rank() as usize];
        self.call(sum_of_codes(size, count), Counts::PerRank(of_ranks), words, issue, pool)
    }

    fn call(
        &self,
        descriptor: Descriptor,
        counts: Counts,
        [input, mut output]: [Vec<u32>; 2],
        issue: Issue,
        pool: &mut Pool,
    ) -> Result<Words> {
        let descriptor = Descriptor { uneven: true, ..descriptor };
        let site = self.site;
        match issue {
            Issue::Blocking => {
                let (read, written) = (Buffer::of(&input), BufferMut::of(&mut output));
                let buffers = Buffers::Separate { input: read, output: written };
                self.scope.issue(Call { counts, site, ..Call::new(descriptor, buffers) })?;
                pool.put(input);
                Ok(Words::Arrived(output))
            }
            Issue::Asynchronous => {
                let dtype = descriptor.dtype;
                let memory = |words| OwnedBuffer::new(words).as_elements(dtype).map(OwnedMemory::One);
                let (input, output) = (memory(input)?, memory(output)?);
                let buffers = OwnedBuffers::Separate { input, output };
                let call = OwnedCall { counts, site, ..OwnedCall::new(descriptor, buffers) };
                Ok(Words::OnTheirWay(self.scope.start(call)))
            }
        }
    }

    /// The lowest fault that a rank knows of, the same on all ranks.
    pub(crate) fn agree(&self, fault: Option<Fault>) -> Result<Option<Fault>> {
        /// What not every library reduces unsigned goes with its order as an `i64`.
        const SHIFT: u64 = 1 << 63;
        let mut lowest = [(fault.map_or(u64::MAX, Fault::code) ^ SHIFT).cast_signed()];
        self.scope.all_reduce(&mut lowest, ReduceOp::Min)?;
        let lowest = lowest[0].cast_unsigned() ^ SHIFT;
        Ok((lowest < u64::MAX).then(|| Fault::from_code(lowest)))
    }

    /// The call, for errors.
    pub(crate) fn call_info(&self) -> CallInfo {
        let scope = self.scope;
        let site = Some(self.site.into());
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
