//! From a call to its program: the library's own call if it has one, else a composition of other calls.
//!
//! | call | steps, without a call of the library's own |
//! | --- | --- |
//! | Avg | Sum, then each rank divides |
//! | PreMulSum | each rank multiplies, then Sum |
//! | reduce | an all-reduce, whose result only the root keeps |
//! | broadcast | an all-gather, of which the root's share is kept |
//! | barrier | an all-reduce of one byte, or an all-gather |
//! | all_gather_v | a broadcast of every share |
//! | reduce_scatter_v | a reduce of every share to its rank |
//! | scan, exscan | none: they run by a schedule (`scheduled.rs`) |
//! | gather, gather_v, scatter, scatter_v, all_to_all, all_to_all_v | an exchange |
//!
//! An exchange is the library's `AllToAllV`, else a group of sends and receives, else the pairs of ranks one after the
//! other. Exchanges, broadcasts and gathers move plain bytes. This file holds data and pure functions: nothing here
//! knows a library or an address.

use unisono_communicator::{Collective, Counts, DType, Descriptor, Group, Place};

use crate::capabilities::{Around, Capabilities, Native, Reduction};
use crate::device::Scale;
use crate::program::{Program, Region, Span, Step};
use crate::vendor::{Elements, NativeOp};

/// The program of a collective that [`Capabilities::check`] has accepted.
pub(crate) fn compose(
    collective: Collective,
    descriptor: &Descriptor,
    counts: &Counts,
    group: &Group,
    capabilities: &Capabilities,
) -> Program {
    let mut composer = Composer::new(descriptor, counts, group, capabilities);
    match collective {
        Collective::AllReduce | Collective::Reduce | Collective::ReduceScatter => {
            composer.reducing(collective)
        }
        Collective::Broadcast => composer.broadcast(),
        Collective::AllGather => composer.all_gather(),
        Collective::AllToAll => composer.all_to_all(),
        Collective::Gather => composer.gather(),
        Collective::Scatter => composer.scatter(),
        Collective::Barrier => composer.barrier(),
        Collective::Scan | Collective::Exscan => unreachable!("a schedule runs every {collective}"),
    }
    composer.program
}

struct Composer<'a> {
    descriptor: &'a Descriptor,
    counts: &'a Counts,
    capabilities: &'a Capabilities,
    ranks: usize,
    rank: usize,
    root: u32,
    in_place: bool,
    program: Program,
}

/// The shares of all ranks, one behind the other. Lengths are in bytes.
enum Shares {
    Even { length: usize, ranks: usize },
    Listed { lengths: Vec<usize>, starts: Vec<usize>, all: usize },
}

impl Shares {
    fn listed(lengths: Vec<usize>) -> Shares {
        let mut all = 0;
        let mut starts = Vec::with_capacity(lengths.len());
        for length in &lengths {
            starts.push(all);
            all += length;
        }
        Shares::Listed { lengths, starts, all }
    }

    /// Only one rank has a share.
    fn only(rank: usize, length: usize, ranks: usize) -> Shares {
        let mut lengths = vec![0; ranks];
        lengths[rank] = length;
        Shares::listed(lengths)
    }

    /// The length of all shares together.
    fn all(&self) -> usize {
        match self {
            Shares::Even { length, ranks } => length * ranks,
            Shares::Listed { all, .. } => *all,
        }
    }

    fn length(&self, rank: usize) -> usize {
        match self {
            Shares::Even { length, .. } => *length,
            Shares::Listed { lengths, .. } => lengths[rank],
        }
    }

    fn into_lengths(self) -> Vec<usize> {
        match self {
            Shares::Even { length, ranks } => vec![length; ranks],
            Shares::Listed { lengths, .. } => lengths,
        }
    }

    fn share(&self, of: Span, rank: usize) -> Span {
        let start = match self {
            Shares::Even { length, .. } => length * rank,
            Shares::Listed { starts, .. } => starts[rank],
        };
        of.part(start, self.length(rank))
    }
}

impl<'a> Composer<'a> {
    fn new(
        descriptor: &'a Descriptor,
        counts: &'a Counts,
        group: &Group,
        capabilities: &'a Capabilities,
    ) -> Composer<'a> {
        Composer {
            descriptor,
            counts,
            capabilities,
            ranks: group.size() as usize,
            rank: group.rank() as usize,
            root: descriptor.root.unwrap_or(0),
            in_place: descriptor.place == Place::InPlace,
            program: Program::default(),
        }
    }

    fn bytes(&self, elements: u64) -> usize {
        elements as usize * self.descriptor.dtype.bytes()
    }

    fn at_root(&self) -> bool {
        self.root as usize == self.rank
    }

    /// The share of each rank.
    fn shares(&self) -> Shares {
        match self.counts {
            Counts::PerRank(list) => Shares::listed(list.iter().map(|&count| self.bytes(count)).collect()),
            Counts::Even | Counts::PerPair { .. } => self.even(),
        }
    }

    fn even(&self) -> Shares {
        Shares::Even { length: self.bytes(self.descriptor.count), ranks: self.ranks }
    }

    fn is_even(&self) -> bool {
        matches!(self.counts, Counts::Even)
    }

    /// The shares that this rank sends to each rank, and the shares that it receives from each.
    fn pairs(&self) -> [Shares; 2] {
        let listed = |list: &Vec<u64>| Shares::listed(list.iter().map(|&count| self.bytes(count)).collect());
        match self.counts {
            Counts::PerPair { send, receive } => [listed(send), listed(receive)],
            Counts::Even | Counts::PerRank(_) => [self.even(), self.even()],
        }
    }

    fn reduction(&self) -> Reduction {
        let found = self.descriptor.op.and_then(|op| self.capabilities.reduction(op, self.descriptor.dtype));
        // `Capabilities::check` has refused the call otherwise.
        found.unwrap_or(Reduction { op: NativeOp::Sum, around: Around::Nothing })
    }

    fn reducing(&mut self, collective: Collective) {
        let Reduction { op, around } = self.reduction();
        let (dtype, is_scattered) = (self.descriptor.dtype, collective == Collective::ReduceScatter);
        let shares = self.shares();
        let all = if is_scattered { shares.all() } else { self.bytes(self.descriptor.count) };
        let mut input = Span::whole(Region::Input, all);
        if let Around::MultiplyFirst(factor) = around {
            // A call must not change an input that its result does not replace.
            let is_replaced = self.in_place && (collective != Collective::Reduce || self.at_root());
            let scaled = if is_replaced { input } else { self.program.scratch(all) };
            self.program.copy(input, scaled);
            self.program.push(Step::Scale { buffer: scaled, dtype, by: Scale::Multiply(factor) });
            input = scaled;
        }
        let output = match (is_scattered, self.in_place) {
            (false, _) => Span::whole(Region::Output, all),
            (true, false) => Span::whole(Region::Output, shares.length(self.rank)),
            (true, true) => shares.share(Span::whole(Region::Output, all), self.rank),
        };
        let elements = |bytes: usize| Elements { count: bytes / dtype.bytes(), dtype, op };
        match collective {
            Collective::Reduce => {
                self.reduce_to(input, self.at_root().then_some(output), elements(all), self.root)
            }
            Collective::ReduceScatter if self.is_even() => {
                let elements = elements(shares.length(self.rank));
                self.program.push(Step::ReduceScatter { from: input, to: output, elements });
            }
            Collective::ReduceScatter => {
                for rank in (0..self.ranks).filter(|&rank| shares.length(rank) > 0) {
                    let (from, to) = (shares.share(input, rank), (rank == self.rank).then_some(output));
                    self.reduce_to(from, to, elements(shares.length(rank)), rank as u32);
                }
            }
            _ => self.program.push(Step::AllReduce { from: input, to: output, elements: elements(all) }),
        }
        let has_result = collective != Collective::Reduce || self.at_root();
        if around == Around::DivideByRanks && has_result {
            self.program.push(Step::Scale { buffer: output, dtype, by: Scale::Divide(self.ranks as u32) });
        }
    }

    /// A reduce to `root`. Only the root has `to`.
    fn reduce_to(&mut self, from: Span, to: Option<Span>, elements: Elements, root: u32) {
        if self.capabilities.has(Native::Reduce) {
            return self.program.push(Step::Reduce { from, to, elements, root });
        }
        let to = to.unwrap_or_else(|| self.program.scratch(from.bytes));
        self.program.push(Step::AllReduce { from, to, elements });
    }

    fn broadcast(&mut self) {
        let buffer = Span::whole(Region::Output, self.bytes(self.descriptor.count));
        self.broadcast_from(buffer, self.root);
    }

    fn broadcast_from(&mut self, buffer: Span, root: u32) {
        if self.capabilities.has(Native::Broadcast) {
            return self.program.push(Step::Broadcast { buffer, root });
        }
        let all = self.program.scratch(buffer.bytes * self.ranks);
        self.program.push(Step::AllGather { from: buffer, to: all });
        if root as usize != self.rank {
            self.program.copy(all.part(root as usize * buffer.bytes, buffer.bytes), buffer);
        }
    }

    fn all_gather(&mut self) {
        let shares = self.shares();
        let to = Span::whole(Region::Output, shares.all());
        let own = shares.share(to, self.rank);
        let from = if self.in_place { own } else { Span::whole(Region::Input, own.bytes) };
        if self.is_even() {
            return self.program.push(Step::AllGather { from, to });
        }
        self.program.copy(from, own);
        for rank in (0..self.ranks).filter(|&rank| shares.length(rank) > 0) {
            self.broadcast_from(shares.share(to, rank), rank as u32);
        }
    }

    fn all_to_all(&mut self) {
        let [send, receive] = self.pairs();
        let (mut from, to) =
            (Span::whole(Region::Input, send.all()), Span::whole(Region::Output, receive.all()));
        let is_native = self.is_even() && self.capabilities.has(Native::AllToAll);
        if self.in_place && !(is_native && self.capabilities.has(Native::AllToAllInPlace)) {
            // In place, received bytes would overwrite bytes that are still to be sent.
            let apart = self.program.scratch(send.all());
            self.program.copy(from, apart);
            from = apart;
        }
        if is_native {
            let part = send.length(self.rank);
            return self.program.push(Step::AllToAll { from, to, part });
        }
        self.exchange(from, send, to, receive);
    }

    fn gather(&mut self) {
        let shares = self.shares();
        let own = shares.length(self.rank);
        let to = self.at_root().then_some(Span::whole(Region::Output, shares.all()));
        let mut from = Span::whole(Region::Input, own);
        if let (Some(to), true) = (to, self.in_place) {
            // Sent and received bytes must not overlap.
            let apart = self.program.scratch(own);
            self.program.copy(shares.share(to, self.rank), apart);
            from = apart;
        }
        if self.is_even() && self.capabilities.has(Native::Gather) {
            return self.program.push(Step::Gather { from, to, root: self.root });
        }
        let send = Shares::only(self.root as usize, own, self.ranks);
        let nothing = Span::whole(Region::Output, 0);
        match to {
            Some(to) => self.exchange(from, send, to, shares),
            None => self.exchange(from, send, nothing, Shares::Even { length: 0, ranks: self.ranks }),
        }
    }

    fn scatter(&mut self) {
        let shares = self.shares();
        let own = shares.length(self.rank);
        let from = self.at_root().then_some(Span::whole(Region::Input, shares.all()));
        // In place, the root's share is already where it belongs.
        let keeps = self.in_place && self.at_root();
        let to = if keeps { self.program.scratch(own) } else { Span::whole(Region::Output, own) };
        if self.is_even() && self.capabilities.has(Native::Scatter) {
            return self.program.push(Step::Scatter { from, to, root: self.root });
        }
        let receive = Shares::only(self.root as usize, own, self.ranks);
        let nothing = Span::whole(Region::Input, 0);
        match from {
            Some(from) => self.exchange(from, shares, to, receive),
            None => self.exchange(nothing, Shares::Even { length: 0, ranks: self.ranks }, to, receive),
        }
    }

    fn barrier(&mut self) {
        if !self.capabilities.reduces(NativeOp::Max, DType::U8) {
            let tokens = self.program.scratch(self.ranks);
            return self.program.push(Step::AllGather { from: tokens.part(self.rank, 1), to: tokens });
        }
        let token = self.program.scratch(1);
        let elements = Elements { count: 1, dtype: DType::U8, op: NativeOp::Max };
        self.program.push(Step::AllReduce { from: token, to: token, elements });
    }

    /// Sends a part to every rank and receives a part from every rank. `from` and `to` do not overlap.
    fn exchange(&mut self, from: Span, send: Shares, to: Span, receive: Shares) {
        if self.capabilities.has(Native::AllToAllV) {
            let (send, receive) = (send.into_lengths(), receive.into_lengths());
            return self.program.push(Step::AllToAllV { from, send, to, receive });
        }
        self.program.copy(send.share(from, self.rank), receive.share(to, self.rank));
        let sends = |peer: usize| (send.length(peer) > 0).then(|| (send.share(from, peer), peer as u32));
        let receives =
            |peer: usize| (receive.length(peer) > 0).then(|| (receive.share(to, peer), peer as u32));
        let others = (0..self.ranks).filter(|&peer| peer != self.rank);
        let program = &mut self.program;
        if self.capabilities.has(Native::Groups) {
            program.push(Step::GroupStart);
            for peer in others {
                sends(peer).into_iter().for_each(|(from, peer)| program.push(Step::Send { from, peer }));
                receives(peer).into_iter().for_each(|(to, peer)| program.push(Step::Recv { to, peer }));
            }
            return program.push(Step::GroupEnd);
        }
        // Ranks handle their pairs in one global order, by (lower rank, higher rank). Both ranks of the first
        // unfinished pair are at this pair, so progress is certain.
        for peer in others {
            let sent = sends(peer).map(|(from, peer)| Step::Send { from, peer });
            let received = receives(peer).map(|(to, peer)| Step::Recv { to, peer });
            let ordered = if self.rank < peer { [sent, received] } else { [received, sent] };
            ordered.into_iter().flatten().for_each(|step| program.push(step));
        }
    }
}
