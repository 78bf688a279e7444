//! One collective call in progress: its run, its reducer, its deadline, and what its failure means.

use std::panic::Location;
use std::task::Poll;
use std::time::{Duration, Instant};

use unisono_communicator::{
    Awaited, Buffer, BufferMut, Buffers, Call, CallInfo, Certainty, Collective, Descriptor, Error, Outcome,
    ReduceOp, Result, Segments, Site, deadline_after,
};

use crate::baton::Pause;
use crate::board::Board;
use crate::header::CallHeader;
use crate::links::Links;
use crate::memory::{Memory, TOKEN};
use crate::planner::{Planned, Planner};
use crate::reduce::Reducer;
use crate::run::{Failure, STAGE_BYTES, Turn};

/// What the holder of the baton works with.
pub(crate) struct Engine<L> {
    pub(crate) links: L,
    pub(crate) planner: Planner,
    stage: Vec<u8>,
    scratch: Vec<u8>,
}

impl<L: Links> Engine<L> {
    /// An engine over a transport's links.
    pub(crate) fn new(links: L, planner: Planner) -> Engine<L> {
        Engine { links, planner, stage: vec![0; STAGE_BYTES], scratch: Vec::new() }
    }
}

/// A collective that has its number.
pub(crate) struct ActiveCall {
    pub(crate) number: u64,
    pub(crate) started: Instant,
    pub(crate) deadline: Instant,
    descriptor: Descriptor,
    site: &'static Location<'static>,
    planned: Planned,
    reducer: Reducer,
    /// The scaled input of a PreMulSum, whose own input must stay as it is.
    scaled: Option<Vec<u8>>,
    links_open: bool,
}

impl ActiveCall {
    /// Plans a call and gives it its number. An error leaves no trace.
    pub(crate) fn start<L: Links>(
        call: &mut Call<'_>,
        engine: &mut Engine<L>,
        board: &Board,
        ranks: u32,
        timeout: Duration,
    ) -> Result<ActiveCall> {
        let descriptor = call.descriptor;
        let mut planned = engine.planner.take(&descriptor, &call.counts, &call.options)?;
        // Without an operator nothing is reduced; Max is one that every dtype has.
        let op = descriptor.op.unwrap_or(ReduceOp::Max);
        let reducer = Reducer::new(descriptor.dtype, op, ranks, call.user_function.clone());
        let scaled = if reducer.needs_prescale() { prescale(&reducer, &mut call.buffers) } else { None };
        let plan = &planned.run.plan;
        if engine.scratch.len() < plan.scratch_bytes {
            engine.scratch.resize(plan.scratch_bytes, 0);
        }
        let number = board.enter(&descriptor, call.site);
        let header = CallHeader::new(&descriptor, number, plan.algorithm_hash, plan.piece_bytes);
        planned.run.reset(header);
        let started = engine.links.now();
        let timeout = call.options.timeout.unwrap_or(timeout);
        let deadline = deadline_after(started, timeout);
        let site = call.site;
        Ok(ActiveCall {
            number,
            started,
            deadline,
            descriptor,
            site,
            planned,
            reducer,
            scaled,
            links_open: false,
        })
    }

    /// Moves what can move; true when something did.
    pub(crate) fn advance<L: Links>(
        &mut self,
        engine: &mut Engine<L>,
        buffers: &mut Buffers<'_>,
    ) -> Result<bool, Failure> {
        let run = &mut self.planned.run;
        if !self.links_open {
            match engine.links.open(&run.plan.edges) {
                Poll::Ready(Ok(())) => self.links_open = true,
                Poll::Ready(Err(error)) => return Err(Failure::NotOpened(error)),
                Poll::Pending => return Ok(false),
            }
        }
        let is_barrier = self.descriptor.collective == Collective::Barrier;
        let scaled = self.scaled.as_deref().map(Segments::One);
        let substitute = if is_barrier { Some(&TOKEN) } else { scaled.as_ref() };
        let memory = Memory::new(buffers, substitute, &mut engine.scratch);
        // INVARIANT: `execute` has refused device memory, and owned buffers are on the host.
        let memory = memory.expect("host memory");
        let mut turn =
            Turn { memory, links: &mut engine.links, stage: &mut engine.stage, reducer: &self.reducer };
        run.advance(&mut turn)
    }

    /// Whether the call is over.
    pub(crate) fn is_finished(&self) -> bool {
        self.planned.run.is_finished()
    }

    /// What to wait for.
    pub(crate) fn pause<L: Links>(&self, links: &mut L) -> Pause {
        let mut interest = Vec::new();
        if self.links_open {
            self.planned.run.interest(&mut interest);
        }
        Pause { interest, deadline: Some(self.deadline), awaited: self.awaited(links), number: self.number }
    }

    /// Whom the call waits for, the next one first.
    fn awaited<L: Links>(&self, links: &mut L) -> Vec<u32> {
        if self.links_open {
            return self.planned.run.awaited();
        }
        let edges = self.planned.run.plan.edges.iter();
        edges.filter(|&&edge| !links.is_open(edge)).map(|edge| edge.peer).collect()
    }

    /// The call as errors name it.
    pub(crate) fn info(&self) -> CallInfo {
        CallInfo {
            number: self.number,
            descriptor: self.descriptor,
            algorithm: Some(self.planned.run.plan.algorithm.name.into()),
            site: Some(Site::from(self.site)),
        }
    }

    /// Gives the run back to the planner.
    pub(crate) fn finish<L>(self, engine: &mut Engine<L>, bytes: u64) -> Outcome {
        let outcome = Outcome::done(bytes, self.planned.run.plan.algorithm.name);
        engine.planner.put_back(self.planned);
        outcome
    }

    /// What a failure of the run means. `rank_of` names a group rank in the job.
    pub(crate) fn error(&self, failure: Failure, rank: u32, rank_of: impl Fn(u32) -> u32) -> Error {
        let call = self.info();
        match failure {
            Failure::NotOpened(error) => error,
            Failure::Lost { peer, reason } => Error::PeerLost {
                culprits: vec![rank_of(peer)],
                call: Some(Box::new(call)),
                noticed_by: rank_of(rank),
                certainty: Certainty::Confirmed,
                reason,
            },
            Failure::Mismatch { peer, theirs, difference } => {
                Error::Mismatch { ours: Box::new(call), theirs, rank: peer, difference }
            }
            Failure::Panicked(panicked) => {
                Error::Panicked { rank, call: Box::new(call), text: panicked.text }
            }
        }
    }

    /// The error of a passed deadline.
    pub(crate) fn timeout<L: Links>(&self, links: &mut L, board: &Board, now: Instant) -> Error {
        let status = |rank| board.note_of(rank).unwrap_or_else(|| "has not answered".to_owned());
        let not_arrived =
            self.awaited(links).into_iter().map(|rank| Awaited { rank, status: status(rank) }).collect();
        Error::Timeout { call: Box::new(self.info()), waited: now - self.started, not_arrived }
    }
}

/// Multiplies the input by the factor: in place, or into a copy.
fn prescale(reducer: &Reducer, buffers: &mut Buffers<'_>) -> Option<Vec<u8>> {
    match buffers {
        Buffers::InOut(BufferMut::Host(buffer)) => buffer.for_each(|slice| reducer.prescale(slice)),
        Buffers::Separate { input: Buffer::Host(input), .. } => {
            let mut copy = input.to_vec();
            reducer.prescale(&mut copy);
            return Some(copy);
        }
        Buffers::InOut(BufferMut::Device(_)) | Buffers::Separate { .. } => {}
    }
    None
}
