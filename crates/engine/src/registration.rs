//! The registration of an algorithm from outside by a group. All ranks get the same verdict. The messages are ordinary
//! calls.
//!
//! 1. Rank 0 proves the algorithm for as many roots as the budget allows. It broadcasts their number, or the refusal.
//! 2. Every rank builds its own schedules for these roots and sends their digest.
//! 3. Rank 0 compares the digests. It broadcasts the facts that plans need, or the ranks that differ. For a trusted
//!    algorithm it only checks that every send has its receive.
//!
//! Every rank proves the other roots at first use.

use std::sync::Arc;
use std::time::Duration;

use unisono_collectives::Collectives;
use unisono_communicator::{CallOptions, Communicator, Error, Result, beginning};
use unisono_schedule::{
    Algorithm, Cost, Digest, Facts, Fraction, PROOF_STEPS_MAX, Refusal, Refused, Registry, Shape, Totals,
    Trust, prove,
};

/// The numbers of one message; unused numbers are 0.
const NUMBERS: usize = 24;

/// The longest text of a refusal, in bytes.
const TEXT_BYTES: usize = 2048;

/// The longest wait of the other ranks for rank 0's proof.
const PROOF_TIMEOUT: Duration = Duration::from_secs(300);

type Numbers = [u64; NUMBERS];

/// Rank 0's verdict: numbers, or the text of a refusal.
type Told = Result<Numbers, String>;

/// The registry with the algorithm, the same on all ranks.
pub(crate) fn register<C: Communicator + ?Sized>(
    communicator: &C,
    mut registry: Registry,
    shape: &Shape,
    algorithm: Arc<Algorithm>,
    trust: Trust,
) -> Result<Registry> {
    let own_rank = communicator.group().rank();
    let candidate = Candidate { algorithm: &algorithm, shape, trust };
    let added = registry.add(algorithm.clone(), trust);
    let offer = (own_rank == 0).then(|| added.clone().and_then(|()| candidate.offer()));
    let (roots, offer) = match offer {
        Some(Ok(offer)) => (offer.roots, Some(Ok(offer))),
        Some(Err(refused)) => (0, Some(Err(refused.to_string()))),
        None => (0, None),
    };
    let told =
        offer.as_ref().map(|offer| offer.as_ref().map(|_| numbers(&[roots.into()])).map_err(String::clone));
    let [roots, ..] = candidate.spread(communicator, told)?;
    let own = Reply::of(&candidate, own_rank, roots as u32, &added);
    let mut replies = vec![0; if own_rank == 0 { Reply::NUMBERS * shape.ranks as usize } else { 0 }];
    let calls = communicator.with(options());
    calls.gather(&own.numbers(), (own_rank == 0).then_some(&mut replies[..]), 0)?;
    let verdict =
        offer.and_then(Result::ok).map(|offer| candidate.judge(&offer, &replies).map(|facts| pack(&facts)));
    let facts = unpack(&candidate.spread(communicator, verdict)?);
    for root in 0..roots as u32 {
        registry.note(&algorithm, &shape.with_root(root), facts);
    }
    Ok(registry)
}

fn options() -> CallOptions {
    CallOptions::new().label("register").needed().profiled(false).timeout(PROOF_TIMEOUT)
}

fn numbers(some: &[u64]) -> Numbers {
    std::array::from_fn(|index| some.get(index).copied().unwrap_or(0))
}

/// An algorithm to register, and its group.
struct Candidate<'a> {
    algorithm: &'a Algorithm,
    shape: &'a Shape,
    trust: Trust,
}

/// The findings of rank 0 before the replies.
struct Offer {
    /// The algorithm is registered for the roots below this number.
    roots: u32,
    cost: Option<Cost>,
    canonical: bool,
    steps: u64,
}

impl Candidate<'_> {
    fn roots_max(&self) -> u32 {
        if self.algorithm.collective.is_rooted() { self.shape.ranks } else { 1 }
    }

    fn offer(&self) -> Result<Offer, Refused> {
        let Candidate { algorithm, shape, trust } = self;
        if *trust == Trust::Trusted {
            let cost = algorithm.try_cost_of(shape)?;
            return Ok(Offer { roots: self.roots_max(), cost, canonical: algorithm.canonical, steps: 0 });
        }
        let first = prove(algorithm, shape, PROOF_STEPS_MAX)?;
        let mut offer =
            Offer { roots: 1, cost: Some(first.cost), canonical: first.canonical, steps: first.steps };
        let mut left = PROOF_STEPS_MAX - first.steps;
        while offer.roots < self.roots_max() {
            match prove(algorithm, &shape.with_root(offer.roots), left) {
                Ok(proof) => {
                    left -= proof.steps;
                    offer.canonical &= proof.canonical;
                    offer.steps = offer.steps.max(proof.steps);
                    offer.roots += 1;
                }
                // The ranks prove the other roots at first use.
                Err(Refused { reason: Refusal::TooLarge { .. }, .. }) => break,
                Err(refused) => return Err(refused),
            }
        }
        Ok(offer)
    }

    /// The verdict, from rank 0's offer and the replies of all ranks.
    fn judge(&self, offer: &Offer, replies: &[u64]) -> Result<Facts, String> {
        let replies: Vec<Reply> = replies.chunks_exact(Reply::NUMBERS).map(Reply::parse).collect();
        let name = self.algorithm.qualified_name();
        for (rank, reply) in (0..).zip(&replies) {
            let problem = match reply.status {
                Reply::FINE if reply.claims != replies[0].claims => {
                    "registers another algorithm, or makes other claims"
                }
                Reply::FINE => {
                    let expected = match self.trust {
                        Trust::Prove => Reply::of(self, rank, offer.roots, &Ok(())).digest,
                        Trust::Trusted => reply.digest,
                    };
                    if expected == reply.digest {
                        continue;
                    }
                    "has another schedule than rank 0 builds for it"
                }
                Reply::NOT_ADDED => "has another algorithm of this name",
                _ => "cannot build its schedule",
            };
            return Err(format!("{name}: rank {rank} {problem}"));
        }
        if replies.iter().fold(0, |sum: u64, reply| sum.wrapping_add(reply.balance)) != 0 {
            return Err(format!("{name}: what some rank sends is not what the other receives"));
        }
        Ok(Facts {
            cost: offer.cost,
            scratch_chunks: replies.iter().map(|reply| reply.scratch_chunks).max().unwrap_or(0),
            canonical: offer.canonical,
            digest: Some(Digest::of_all(replies.iter().map(|reply| reply.digest)).value()),
            steps: offer.steps,
        })
    }

    /// Broadcasts rank 0's message; `told` is `None` on other ranks. A refusal is the same error on all ranks.
    fn spread<C: Communicator + ?Sized>(&self, communicator: &C, told: Option<Told>) -> Result<Numbers> {
        let calls = communicator.with(options());
        let mut message = match &told {
            Some(Ok(numbers)) => *numbers,
            Some(Err(_)) | None => [0; NUMBERS],
        };
        let mut refusal = [u8::from(matches!(told, Some(Err(_))))];
        calls.broadcast(&mut refusal, 0)?;
        if refusal == [0] {
            calls.broadcast(&mut message, 0)?;
            return Ok(message);
        }
        let mut text = vec![0; TEXT_BYTES];
        if let Some(Err(reason)) = told {
            let reason = beginning(&reason, TEXT_BYTES).as_bytes();
            text[..reason.len()].copy_from_slice(reason);
        }
        calls.broadcast(&mut text, 0)?;
        let reason = String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned();
        Err(Error::AlgorithmRefused { algorithm: self.algorithm.qualified_name(), reason })
    }
}

/// One rank's message to rank 0.
struct Reply {
    status: u64,
    /// The digest of the algorithm's name and claims.
    claims: u64,
    /// The digest of the rank's own schedules.
    digest: u64,
    /// [`Digest::balance`] of its schedules.
    balance: u64,
    scratch_chunks: u32,
}

impl Reply {
    const NUMBERS: usize = 5;
    const FINE: u64 = 0;
    const NOT_ADDED: u64 = 1;
    const NOT_BUILT: u64 = 2;

    fn of(candidate: &Candidate<'_>, rank: u32, roots: u32, added: &Result<(), Refused>) -> Reply {
        let Candidate { algorithm, shape, trust } = candidate;
        let broken = |status| Reply { status, claims: 0, digest: 0, balance: 0, scratch_chunks: 0 };
        if added.is_err() {
            return broken(Reply::NOT_ADDED);
        }
        let Ok(claims) = algorithm.claims(shape) else { return broken(Reply::NOT_BUILT) };
        let (mut digest, mut balance, mut scratch_chunks) = (Digest::default(), 0_u64, 0);
        for root in 0..roots {
            let Ok(schedule) = algorithm.try_schedule(&shape.with_root(root), rank) else {
                return broken(Reply::NOT_BUILT);
            };
            digest = digest.number(Digest::of(&schedule).value());
            balance = balance.wrapping_add(Digest::balance(&schedule, root.into()));
            scratch_chunks = scratch_chunks.max(schedule.scratch_chunks);
        }
        let claims = claims.number(u64::from(*trust == Trust::Trusted)).value();
        Reply { status: Reply::FINE, claims, digest: digest.value(), balance, scratch_chunks }
    }

    fn numbers(&self) -> [u64; Reply::NUMBERS] {
        [self.status, self.claims, self.digest, self.balance, self.scratch_chunks.into()]
    }

    fn parse(numbers: &[u64]) -> Reply {
        let [status, claims, digest, balance, scratch_chunks] = std::array::from_fn(|index| numbers[index]);
        Reply { status, claims, digest, balance, scratch_chunks: scratch_chunks as u32 }
    }
}

fn pack(facts: &Facts) -> Numbers {
    let Facts { cost, scratch_chunks, canonical, digest, steps } = facts;
    let Cost { rounds, messages, peers, sent, received, reduced, all } = cost.unwrap_or(Cost::FREE);
    let mut list = vec![
        u64::from(*canonical),
        u64::from(*scratch_chunks),
        digest.unwrap_or(0),
        *steps,
        u64::from(cost.is_some()),
        rounds,
        messages,
        peers,
        all.messages,
    ];
    let parts = [sent, received, reduced, all.sent, all.reduced];
    list.extend(parts.iter().flat_map(|part| [part.numerator(), part.denominator()]));
    numbers(&list)
}

fn unpack(numbers: &Numbers) -> Facts {
    let [
        canonical,
        scratch_chunks,
        digest,
        steps,
        has_cost,
        rounds,
        messages,
        peers,
        all_messages,
        parts @ ..,
    ] = numbers;
    let [sent, received, reduced, all_sent, all_reduced] =
        std::array::from_fn(|nth| Fraction::new(parts[2 * nth], parts[2 * nth + 1].max(1)));
    let all = Totals { messages: *all_messages, sent: all_sent, reduced: all_reduced };
    let cost = Cost { rounds: *rounds, messages: *messages, peers: *peers, sent, received, reduced, all };
    Facts {
        cost: (*has_cost == 1).then_some(cost),
        scratch_chunks: *scratch_chunks as u32,
        canonical: *canonical == 1,
        digest: Some(*digest),
        steps: *steps,
    }
}
