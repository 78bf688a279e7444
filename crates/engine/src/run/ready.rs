//! The movers of a run: directions of links, and local copies. A blocked mover waits for one step, and is not polled
//! until that step moves.
//!
//! So the cost of a poll depends on the number of movers that can move, not on the number of links.

use unisono_schedule::StepIndex;

use crate::plan::Plan;

/// No mover.
const NONE: u32 = u32::MAX;

const BITS: usize = u64::BITS as usize;

/// A part of a run that moves bytes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mover {
    /// The sending half of a link.
    Send(usize),
    /// The receiving half of a link.
    Receive(usize),
    /// A local copy, by its place in the plan's list of copies.
    Copy(usize),
}

/// A set of small numbers, as a bitmap.
#[derive(Clone, Debug)]
pub(super) struct Set {
    words: Vec<u64>,
}

impl Set {
    fn new(members: impl ExactSizeIterator<Item = bool>) -> Set {
        let mut set = Set { words: vec![0; members.len().div_ceil(BITS)] };
        members.enumerate().filter(|&(_, is_member)| is_member).for_each(|(member, _)| set.insert(member));
        set
    }

    pub(super) fn insert(&mut self, member: usize) {
        self.words[member / BITS] |= 1 << (member % BITS);
    }

    pub(super) fn remove(&mut self, member: usize) {
        self.words[member / BITS] &= !(1 << (member % BITS));
    }

    pub(super) fn contains(&self, member: usize) -> bool {
        self.words[member / BITS] & 1 << (member % BITS) != 0
    }

    /// The number of words that hold the set.
    pub(super) fn words(&self) -> usize {
        self.words.len()
    }

    /// The members in one word at the time of the call. The set may change while the caller visits them.
    pub(super) fn members(&self, word: usize) -> Members {
        Members { bits: self.words[word], first: word * BITS }
    }
}

/// The members of a set in ascending order.
pub(super) struct Members {
    bits: u64,
    first: usize,
}

impl Iterator for Members {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let lowest = self.bits.trailing_zeros() as usize;
        (self.bits != 0).then(|| {
            self.bits &= self.bits - 1;
            self.first + lowest
        })
    }
}

/// The movers that may move, and the step for which each other mover waits.
pub(super) struct Ready {
    pub(super) sends: Set,
    pub(super) receives: Set,
    pub(super) copies: Set,
    /// The links with posted bytes that are not released. They wait for no step.
    pub(super) releases: Set,
    /// For each step, the first mover that waits for it.
    first: Vec<u32>,
    /// For each mover, the next mover that waits for the same step.
    next: Vec<u32>,
    links: usize,
    /// The initial sends, receives and copies.
    fresh: [Set; 3],
}

impl Ready {
    /// The state before a call: every mover that has a step may move.
    pub(super) fn new(plan: &Plan) -> Ready {
        let sends = Set::new(plan.links.iter().map(|link| !link.send.steps.is_empty()));
        let receives = Set::new(plan.links.iter().map(|link| !link.recv.steps.is_empty()));
        let copies = Set::new(plan.copies.iter().map(|_| true));
        Ready {
            first: vec![NONE; plan.steps.len()],
            next: vec![NONE; 2 * plan.links.len() + plan.copies.len()],
            links: plan.links.len(),
            fresh: [sends.clone(), receives.clone(), copies.clone()],
            releases: Set::new(plan.links.iter().map(|_| false)),
            sends,
            receives,
            copies,
        }
    }

    /// Restores the state before a call. Allocates nothing.
    pub(super) fn reset(&mut self) {
        let [sends, receives, copies] = &self.fresh;
        self.sends.words.copy_from_slice(&sends.words);
        self.receives.words.copy_from_slice(&receives.words);
        self.copies.words.copy_from_slice(&copies.words);
        self.releases.words.fill(0);
        self.first.fill(NONE);
    }

    /// Notes that this mover has nothing left to do.
    pub(super) fn close(&mut self, mover: Mover) {
        match mover {
            Mover::Send(link) => self.sends.remove(link),
            Mover::Receive(link) => self.receives.remove(link),
            Mover::Copy(copy) => self.copies.remove(copy),
        }
    }

    /// Notes that this mover cannot go on until `step` moves.
    pub(super) fn block(&mut self, mover: Mover, step: StepIndex) {
        self.close(mover);
        let index = self.index(mover);
        self.next[index] = self.first[step.index()];
        self.first[step.index()] = index as u32;
    }

    /// Notes that `step` has moved, so that the movers waiting for it may move again.
    #[inline]
    pub(super) fn wake(&mut self, step: StepIndex) {
        let mut waiting = std::mem::replace(&mut self.first[step.index()], NONE);
        while waiting != NONE {
            let index = waiting as usize;
            waiting = self.next[index];
            self.open(index);
        }
    }

    /// The index of a mover: sends come first, then receives, then copies.
    fn index(&self, mover: Mover) -> usize {
        match mover {
            Mover::Send(link) => link,
            Mover::Receive(link) => self.links + link,
            Mover::Copy(copy) => 2 * self.links + copy,
        }
    }

    fn open(&mut self, index: usize) {
        match index {
            send if send < self.links => self.sends.insert(send),
            receive if receive < 2 * self.links => self.receives.insert(receive - self.links),
            copy => self.copies.insert(copy - 2 * self.links),
        }
    }
}
