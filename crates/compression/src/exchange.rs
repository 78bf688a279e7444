//! One compressed call. In an all-reduce every rank encodes its vector and sends each owner its share; owners sum the
//! shares, encode the sum and send it to all. A reduce-scatter is the first half, an all-gather the second. In two
//! levels ([`crate::Route`]) the ranks of a host sum their vectors before they encode.
//!
//! It goes piece by piece, so that a piece is on the wire while the next one is encoded. An all-reduce and an
//! all-gather change nothing that the caller sees before all pieces have come and none of them says that a rank has an
//! element that is not finite.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use unisono_communicator::{Communicator, Error, Result, Scope, Site};

use crate::codec::Summable;
use crate::data::Data;
use crate::device::KernelDevice;
use crate::message::Fault;
use crate::message_memory::Message;
use crate::rank::{Rank, Stage};
use crate::route::Route;
use crate::state::{CompressionState, LastCall, Shape};
use crate::summed;
use crate::turn::Turn;
use crate::wire::{Issue, Wire, Words, WordsCall};

/// Runs the call within `scope`: it writes the sum times `weight`. After an error the residuals are as before, and in
/// place the vector is.
///
/// # Errors
/// [`Error::NonFinite`], and the communicator is as usable as before; [`Error::Corrupted`]; errors of the collectives
/// and of the device.
pub(crate) fn run<D: KernelDevice>(
    scope: &Scope,
    data: &mut dyn Data<D>,
    weight: f32,
    state: &mut CompressionState<D>,
    site: Site,
) -> Result<()> {
    let wire = Wire { scope, site };
    let call = || exchange(&wire, data, weight, state);
    // A panic of a codec would leave the others waiting until the call's deadline.
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let _ = scope.revoke(panicked(&wire, &*panic));
        resume_unwind(panic)
    });
    if let Err(error) = &result {
        let was_agreed = matches!(error, Error::NonFinite { .. });
        // The others wait for messages that this rank will not send.
        let was_refused = error.is_before_start() && scope.numbers().is_empty();
        if !was_agreed && !was_refused {
            let _ = scope.revoke(error.clone());
        }
    }
    result
}

fn panicked(wire: &Wire<'_>, panic: &dyn Any) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text").to_owned();
    let call = Box::new(wire.call_info());
    Error::Panicked { rank: wire.scope.group().own_job_rank(), call, text }
}

fn exchange<D: KernelDevice>(
    wire: &Wire<'_>,
    data: &mut dyn Data<D>,
    weight: f32,
    state: &mut CompressionState<D>,
) -> Result<()> {
    let codec = state.codec.clone();
    let (shape, route) = (state.shape.clone(), state.route);
    let summable = codec.summable().filter(|_| route == Route::SummedCodes);
    let mut rank = Rank::new(&*codec, state);
    let fault = match shape {
        Shape::Whole(_) => {
            let mut gathering = Vec::with_capacity(rank.layout.pieces);
            let fault = match summable {
                Some(summable) => summed::send_codes(wire, &mut rank, summable, data, &mut gathering)?,
                None => {
                    send_shares(wire, &mut rank, data, &mut Then::Gather(&mut gathering))?;
                    None
                }
            };
            match fault {
                Some(fault) => Some(fault),
                None => finish(wire, &mut rank, data, weight, gathering)?,
            }
        }
        Shape::Vectors(_) => {
            let mut lowest = None;
            send_shares(wire, &mut rank, data, &mut Then::Decode { weight, lowest: &mut lowest })?;
            wire.agree(lowest)?
        }
        Shape::Shares(_) => {
            let gathering = send_own(wire, &mut rank, data)?;
            finish(wire, &mut rank, data, weight, gathering)?
        }
    };
    if let Some(fault) = fault {
        let is_sum = rank.layout.teams.has_members() || summable.is_some();
        let fault = if is_sum { culprit(wire, &mut rank, summable, data, fault)? } else { fault };
        return Err(wire.error(fault, &*codec));
    }
    rank.keep_first_pieces()?;
    state.end_call(LastCall::Compressed)
}

/// The next step of an owner with a piece of its share.
enum Then<'a, M> {
    /// It sends the sum to all.
    Gather(&'a mut Vec<Words<M>>),
    /// It keeps it.
    Decode { weight: f32, lowest: &'a mut Option<Fault> },
}

/// The first half: the owners get their shares.
fn send_shares<D: KernelDevice>(
    wire: &Wire<'_>,
    rank: &mut Rank<'_, D>,
    data: &mut dyn Data<D>,
    then: &mut Then<'_, D::Memory>,
) -> Result<()> {
    let pieces = rank.layout.pieces;
    if rank.layout.has_idle_owner() && rank.codec.has_feedback() {
        // A rank that owns nothing hears nothing from the others, and must not write its residuals before they have
        // come.
        wire.barrier(rank.message_memory)?;
    }
    // In two levels, two pieces are on their way within hosts before the first one goes between hosts.
    let of_team = [0, 1].map(|raw| Turn { encoded: None, raw });
    let first = to_team(wire, rank, data, of_team[0], Issue::Blocking)?.wait(wire, rank.pool)?;
    let (_, first) = rank.divide(of_team[0], first)?;
    let second = to_team(wire, rank, data, of_team[1], Issue::Asynchronous)?;
    let summed = rank.sum_team(0, data, first)?;
    if rank.codec.measures() {
        // This rank writes its residuals before anything comes from the others; see `Rank::keep_first_pieces`.
        wire.barrier(rank.message_memory)?;
        rank.measure(Stage::Worker, data, summed.as_ref())?;
    }
    let messages = rank.encode(0, data, summed, &|| ())?;
    let turn = |piece| Turn { encoded: Some(piece), raw: piece + 2 };
    let mut arriving = to_others(wire, rank, data, turn(0), messages, Issue::Blocking)?;
    let second = second.wait(wire, rank.pool)?;
    let (_, mut team) = rank.divide(of_team[1], second)?;
    for piece in 0..pieces {
        let next = if piece + 1 == pieces {
            Words::NONE
        } else {
            let summed = rank.sum_team(piece + 1, data, std::mem::take(&mut team))?;
            // Earlier calls are under way: this thread moves them, between the parts that it encodes.
            let gathering = match then {
                Then::Gather(gathering) => gathering.last(),
                Then::Decode { .. } => None,
            };
            let advance = || [Some(&arriving), gathering].into_iter().flatten().for_each(Words::advance);
            let messages = rank.encode(piece + 1, data, summed, &advance)?;
            to_others(wire, rank, data, turn(piece + 1), messages, Issue::Asynchronous)?
        };
        let words = std::mem::replace(&mut arriving, next).wait(wire, rank.pool)?;
        let messages;
        (messages, team) = rank.divide(turn(piece), words)?;
        match then {
            Then::Gather(gathering) => {
                let sum = rank.reduce(piece, messages)?;
                gathering.push(to_all(wire, rank, piece, sum)?);
            }
            Then::Decode { weight, lowest } => {
                let fault = rank.decode_sum(piece, messages, *weight, data)?;
                **lowest = [**lowest, fault].into_iter().flatten().min();
            }
        }
    }
    Ok(())
}

/// The second half when nothing was summed: every rank encodes its own share.
fn send_own<D: KernelDevice>(
    wire: &Wire<'_>,
    rank: &mut Rank<'_, D>,
    data: &mut dyn Data<D>,
) -> Result<Vec<Words<D::Memory>>> {
    if rank.codec.has_feedback() {
        // This rank writes its residuals before anything comes from the others; see `Rank::keep_first_pieces`.
        wire.barrier(rank.message_memory)?;
    }
    if rank.codec.measures() {
        rank.measure(Stage::Owner, data, None)?;
    }
    let mut gathering = Vec::with_capacity(rank.layout.pieces);
    for piece in 0..rank.layout.pieces {
        let message = rank.encode_own(piece, data)?;
        gathering.push(to_all(wire, rank, piece, message)?);
    }
    Ok(gathering)
}

/// Writes the shares that all owners have sent, unless there is a fault.
fn finish<D: KernelDevice>(
    wire: &Wire<'_>,
    rank: &mut Rank<'_, D>,
    data: &mut dyn Data<D>,
    weight: f32,
    gathering: Vec<Words<D::Memory>>,
) -> Result<Option<Fault>> {
    let mut sums =
        gathering.into_iter().map(|work| work.wait(wire, rank.pool)).collect::<Result<Vec<_>>>()?;
    let fault = rank.accept_sums(&mut sums)?;
    if fault.is_none() {
        rank.decode(sums, weight, data)?;
    }
    Ok(fault)
}

/// When vectors were summed before they were encoded, or their magnitudes were compared, nobody knows more than that
/// something cannot be encoded. All ranks have the same fault, and tell each other whose element it is.
fn culprit<D: KernelDevice>(
    wire: &Wire<'_>,
    rank: &mut Rank<'_, D>,
    summable: Option<Summable>,
    data: &mut dyn Data<D>,
    fault: Fault,
) -> Result<Fault> {
    if matches!(fault, Fault::Damaged { .. }) {
        return Ok(fault);
    }
    let own = match summable {
        Some(summable) => rank.first_without_scale(summable, data)?,
        None => rank.first_not_finite(data)?,
    };
    // Where no rank's can be blamed, it is the sum.
    Ok(wire.agree(own)?.unwrap_or(fault))
}

/// Sends each rank of the team the f32 that it sums.
fn to_team<D: KernelDevice>(
    wire: &Wire<'_>,
    rank: &mut Rank<'_, D>,
    data: &mut dyn Data<D>,
    turn: Turn,
    issue: Issue,
) -> Result<Words<D::Memory>> {
    if !rank.layout.teams.has_members() || turn.raw >= rank.layout.pieces {
        return Ok(Words::NONE);
    }
    to_others(wire, rank, data, turn, Message::NONE, issue)
}

/// Sends all that others get in a turn; gives the words that came, in rank order. `codes` are for owners, in their
/// order.
fn to_others<D: KernelDevice>(
    wire: &Wire<'_>,
    rank: &mut Rank<'_, D>,
    data: &mut dyn Data<D>,
    turn: Turn,
    codes: Message<D::Memory>,
    issue: Issue,
) -> Result<Words<D::Memory>> {
    let (own, ranks) = (rank.own, 0..rank.layout.ranks);
    let words = |from, to| rank.words_between(turn, from, to).iter().sum::<usize>() as u64;
    let send = ranks.clone().map(|to| words(own, to)).collect();
    let receive: Vec<u64> = ranks.map(|from| words(from, own)).collect();
    let arriving = receive.iter().sum::<u64>() as usize;
    let words = rank.assemble(turn, codes, data)?.with_arriving(arriving, rank.device, rank.pool)?;
    wire.call(WordsCall::AllToAll { send, receive }, words, issue, rank.pool)
}

/// Sends this rank's sum of a piece to all; gives all sums in rank order. Of the last piece this thread moves it.
pub(crate) fn to_all<D: KernelDevice>(
    wire: &Wire<'_>,
    rank: &mut Rank<'_, D>,
    piece: usize,
    message: Message<D::Memory>,
) -> Result<Words<D::Memory>> {
    let is_last = piece + 1 == rank.layout.pieces;
    let issue = if is_last { Issue::Blocking } else { Issue::Asynchronous };
    let of_ranks: Vec<u64> = (0..rank.layout.ranks).map(|owner| rank.words(piece, owner) as u64).collect();
    let arriving = of_ranks.iter().sum::<u64>() as usize;
    let words = message.with_arriving(arriving, rank.device, rank.pool)?;
    wire.call(WordsCall::AllGather { of_ranks }, words, issue, rank.pool)
}
