//! Checks the arguments of every call, before any backend sees it.

mod memory;
mod plain;
mod segments;

use std::time::Duration;

use unisono_schedule::Collective;

use crate::call::Call;
use crate::call::counts::{Counts, total};
use crate::call::descriptor::{Descriptor, Peer, Place, Tag};
use crate::call::log_name::LogName;
use crate::call::operation::Operation;
use crate::call::options::{AlgorithmName, CallOptions};
use crate::call::parent::ParentCall;
use crate::call::shape::CallShape;
use crate::check::memory::check_memory;
use crate::check::plain::check_plain;
use crate::check::segments::{check_segments, check_share_numbers};
use crate::elements::dtype::DType;
use crate::elements::reduce_op::ReduceOp;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::group::options::GroupOptions;
use crate::memory::Buffers;
use crate::short_text::ShortText;

/// The number of elements in a rank's input and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Elements read.
    pub input: u64,
    /// Elements written.
    pub output: u64,
}

/// The lengths that `descriptor` and `counts` require on this rank of `group`.
pub fn lengths(descriptor: &Descriptor, counts: &Counts, group: &Group) -> Lengths {
    let (n, ranks) = (descriptor.count, u64::from(group.size()));
    let at_root = descriptor.root == Some(group.rank());
    let rank = group.rank() as usize;
    let (share, all, sent, received) = match counts {
        Counts::Even => (n, n.saturating_mul(ranks), n.saturating_mul(ranks), n.saturating_mul(ranks)),
        Counts::PerRank(list) => {
            let all = total(list);
            (list.get(rank).copied().unwrap_or(0), all, all, all)
        }
        Counts::PerPair { send, receive } => (n, n, total(send), total(receive)),
    };
    let only_at_root = |length| if at_root { length } else { 0 };
    let (input, output) = match descriptor.operation {
        Operation::Collective(collective) => match collective {
            Collective::AllReduce | Collective::Broadcast | Collective::Scan => (n, n),
            Collective::Exscan => (n, if rank > 0 { n } else { 0 }),
            Collective::Reduce => (n, only_at_root(n)),
            Collective::ReduceScatter => (all, share),
            Collective::AllGather => (share, all),
            Collective::Gather => (share, only_at_root(all)),
            Collective::Scatter => (only_at_root(all), share),
            Collective::AllToAll => (sent, received),
            Collective::Barrier => (0, 0),
        },
        Operation::Send => (n, 0),
        Operation::Recv => (0, n),
    };
    Lengths { input, output }
}

/// Checks all arguments that this rank can check alone.
///
/// # Errors
/// [`Error::InvalidArgument`] that names the argument.
pub fn check(call: &Call<'_>, group: &Group) -> Result<()> {
    match CallShape::of(call) {
        Some(shape) => check_plain(call, shape, group),
        None => check_all(call, group),
    }
}

/// Every rule, for a call of any form.
fn check_all(call: &Call<'_>, group: &Group) -> Result<()> {
    check_request(&call.descriptor, &call.options, group)?;
    check_function(call)?;
    check_share_numbers(call, group)?;
    check_counts(call, group)?;
    check_memory(call)?;
    check_segments(call)?;
    check_lengths(call, lengths(&call.descriptor, &call.counts, group), group)
}

/// Checks the descriptor and the options of a call that has no buffers yet, as [`check`] does.
///
/// # Errors
/// [`Error::InvalidArgument`] that names the argument.
pub fn check_request(descriptor: &Descriptor, options: &CallOptions, group: &Group) -> Result<()> {
    check_arguments(descriptor, group)?;
    check_label(descriptor)?;
    check_options(options)
}

/// Checks the arguments that every call has. Gives the lengths of even counts.
fn check_arguments(descriptor: &Descriptor, group: &Group) -> Result<Lengths> {
    check_root(descriptor, group)?;
    check_barrier(descriptor)?;
    check_place(descriptor, group)?;
    check_peer(descriptor, group)?;
    check_op(descriptor)?;
    check_uneven(descriptor)?;
    let own = lengths(descriptor, &Counts::Even, group);
    // A descriptor has no uneven counts, but its own count must fit.
    let most = if descriptor.uneven { descriptor.count } else { own.input.max(own.output) };
    check_size(descriptor, most)?;
    Ok(own)
}

fn check_root(descriptor: &Descriptor, group: &Group) -> Result<()> {
    let operation = descriptor.operation;
    match (descriptor.root, operation.collective().is_some_and(Collective::is_rooted)) {
        (Some(root), _) if root >= group.size() => {
            Err(Error::invalid("root", format!("{root}, but the group has ranks 0 to {}", group.size() - 1)))
        }
        (None, true) => Err(Error::invalid("root", format!("{operation} needs one"))),
        (Some(_), false) => Err(Error::invalid("root", format!("{operation} has none"))),
        (Some(_), true) | (None, false) => Ok(()),
    }
}

fn check_barrier(descriptor: &Descriptor) -> Result<()> {
    let (dtype, count) = (descriptor.dtype, descriptor.count);
    match descriptor.operation.collective() {
        Some(Collective::Barrier) if (dtype, count) != (DType::U8, 0) => {
            Err(Error::invalid("count", format!("{count} x {dtype}, but a barrier has no data: 0 x u8")))
        }
        _ => Ok(()),
    }
}

fn check_place(descriptor: &Descriptor, group: &Group) -> Result<()> {
    let operation = descriptor.operation;
    match (operation, descriptor.place) {
        (Operation::Collective(Collective::Broadcast), Place::Separate) => {
            Err(Error::invalid("place", "broadcast has one buffer, which is in place on every rank"))
        }
        (Operation::Collective(Collective::Reduce), Place::InPlace)
            if descriptor.root != Some(group.rank()) =>
        {
            let problem = "only the root of a reduce has an output; the other ranks give an input";
            Err(Error::invalid("place", problem))
        }
        (Operation::Collective(Collective::Exscan), Place::InPlace) if group.rank() == 0 => {
            let problem = "rank 0 of an exscan has no output; it gives an input";
            Err(Error::invalid("place", problem))
        }
        (Operation::Collective(Collective::Barrier) | Operation::Send | Operation::Recv, Place::InPlace) => {
            Err(Error::invalid("place", format!("{operation} is not in place")))
        }
        _ => Ok(()),
    }
}

fn check_peer(descriptor: &Descriptor, group: &Group) -> Result<()> {
    match (descriptor.peer, descriptor.operation) {
        (Some(Peer::Rank(rank)), _) if rank >= group.size() => {
            Err(Error::invalid("peer", format!("{rank}, but the group has ranks 0 to {}", group.size() - 1)))
        }
        (Some(Peer::Any), Operation::Send) => Err(Error::invalid("peer", "a send needs one receiver")),
        (None, Operation::Send | Operation::Recv) => Err(Error::invalid("peer", "missing")),
        (Some(_), Operation::Collective(collective)) => {
            Err(Error::invalid("peer", format!("{collective} has none")))
        }
        (Some(Peer::Rank(_) | Peer::None), Operation::Send) if descriptor.tag == Tag::Any => {
            Err(Error::invalid("tag", "a send has one tag"))
        }
        (Some(Peer::Rank(_) | Peer::None), Operation::Send | Operation::Recv)
        | (Some(Peer::Any), Operation::Recv)
        | (None, Operation::Collective(_)) => Ok(()),
    }
}

/// Refuses a label that is too long.
///
/// # Errors
/// [`Error::InvalidArgument`].
pub fn check_label(descriptor: &Descriptor) -> Result<()> {
    match descriptor.label {
        Some(label) if label.is_too_long() => Err(too_long("label", label)),
        Some(_) | None => Ok(()),
    }
}

/// Refuses an algorithm's name that the process could not keep, and a log name that is too long.
///
/// # Errors
/// [`Error::InvalidArgument`].
pub fn check_options(options: &CallOptions) -> Result<()> {
    match options.log_name.map(LogName::text) {
        Some(name) if name.is_too_long() => return Err(too_long("log_name", name)),
        Some(_) | None => {}
    }
    options.algorithm.map(AlgorithmName::text).transpose().map(drop)
}

fn too_long(argument: &'static str, text: ShortText) -> Error {
    Error::invalid(argument, format!("\"{text}...\" has more than {} bytes", ShortText::BYTES_MAX))
}

impl GroupOptions {
    /// Refuses options that no group can have. Whether there is an algorithm of the name, the backend knows.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a timeout of zero, and for a name or a label that is too long.
    pub fn check(&self) -> Result<()> {
        if self.timeout == Some(Duration::ZERO) {
            return Err(Error::invalid("timeout", "0 s, in which no call ends"));
        }
        if let Some(label) = self.label.filter(ShortText::is_too_long) {
            return Err(too_long("label", label));
        }
        check_options(&CallOptions { algorithm: self.algorithm, ..CallOptions::default() })
    }
}

impl ParentCall {
    /// This parent, labelled with the scope's label.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty name, and for a name or a label that is too long.
    pub fn labelled(mut self, options: &CallOptions) -> Result<ParentCall> {
        self.descriptor.label = options.label;
        let texts = [("name", Some(self.name)), ("label", options.label)];
        for (argument, text) in texts {
            if let Some(text) = text.filter(ShortText::is_too_long) {
                return Err(too_long(argument, text));
            }
        }
        if self.name.as_str().is_empty() {
            return Err(Error::invalid("name", "a scope has one, which errors show"));
        }
        Ok(self)
    }
}

fn check_op(descriptor: &Descriptor) -> Result<()> {
    let (operation, dtype) = (descriptor.operation, descriptor.dtype);
    match (descriptor.op, operation.collective().is_some_and(Collective::reduces)) {
        (None, true) => Err(Error::invalid("op", format!("{operation} needs one"))),
        (Some(_), false) => Err(Error::invalid("op", format!("{operation} has none"))),
        (Some(ReduceOp::User(user)), true) if user.name.is_too_long() => Err(too_long("op", user.name)),
        (Some(ReduceOp::Avg), true) if operation.collective().is_some_and(Collective::is_prefix) => {
            let problem = "each rank's result is of another number of ranks; divide a sum";
            Err(Error::invalid("op", format!("avg is not defined in {operation}: {problem}")))
        }
        (Some(op), true) => match op.refusal(dtype) {
            Some(reason) => Err(Error::invalid("op", format!("{op} is not defined on {dtype}: {reason}"))),
            None => Ok(()),
        },
        (None, false) => Ok(()),
    }
}

fn check_function(call: &Call<'_>) -> Result<()> {
    match call.descriptor.op {
        Some(ReduceOp::User(user)) if call.user_function.is_none() => {
            Err(Error::invalid("op", format!("user operator {:?} without its function", user.name)))
        }
        Some(_) | None => Ok(()),
    }
}

fn check_uneven(descriptor: &Descriptor) -> Result<()> {
    let has_form = match descriptor.operation {
        Operation::Collective(collective) => match collective {
            Collective::AllGather
            | Collective::ReduceScatter
            | Collective::Gather
            | Collective::Scatter
            | Collective::AllToAll => true,
            Collective::AllReduce
            | Collective::Broadcast
            | Collective::Reduce
            | Collective::Barrier
            | Collective::Scan
            | Collective::Exscan => false,
        },
        Operation::Send | Operation::Recv => false,
    };
    if descriptor.uneven && !has_form { Err(no_such_form(descriptor.operation)) } else { Ok(()) }
}

fn no_such_form(operation: Operation) -> Error {
    Error::invalid("counts", format!("{operation} has no form with such counts"))
}

fn check_counts(call: &Call<'_>, group: &Group) -> Result<()> {
    let operation = call.descriptor.operation;
    let ranks = group.size() as usize;
    let check_length = |list: &[u64]| {
        if list.len() == ranks {
            Ok(())
        } else {
            Err(Error::invalid("counts", format!("{} counts for {ranks} ranks", list.len())))
        }
    };
    match (&call.counts, operation) {
        (Counts::Even, _) => {}
        (
            Counts::PerRank(list),
            Operation::Collective(
                Collective::AllGather | Collective::ReduceScatter | Collective::Gather | Collective::Scatter,
            ),
        ) => check_length(list)?,
        (Counts::PerPair { send, receive }, Operation::Collective(Collective::AllToAll)) => {
            check_length(send)?;
            check_length(receive)?;
            let own = group.rank() as usize;
            if send[own] != receive[own] {
                let problem = format!(
                    "rank {own} sends {} elements to itself, but receives {}",
                    send[own], receive[own]
                );
                return Err(Error::invalid("counts", problem));
            }
            if call.descriptor.place == Place::InPlace && send != receive {
                return Err(Error::invalid(
                    "counts",
                    "in place, what is sent to a rank must be as long as what comes back",
                ));
            }
        }
        _ => return Err(no_such_form(operation)),
    }
    if call.descriptor.uneven == (call.counts == Counts::Even) {
        return Err(Error::invalid(
            "counts",
            "the descriptor and the counts disagree: one says even, the other uneven",
        ));
    }
    let all = match &call.counts {
        Counts::Even => return Ok(()),
        Counts::PerRank(list) => total(list),
        Counts::PerPair { send, receive } => total(send).max(total(receive)),
    };
    let own = lengths(&call.descriptor, &call.counts, group);
    check_size(&call.descriptor, own.input.max(own.output).max(all))
}

/// Checks that a buffer of `elements` elements, the largest of any rank, fits into the address space.
fn check_size(descriptor: &Descriptor, elements: u64) -> Result<()> {
    let bytes = elements.checked_mul(descriptor.dtype.bytes() as u64);
    match bytes.filter(|&bytes| bytes <= isize::MAX as u64) {
        Some(_) => Ok(()),
        None => Err(Error::invalid("count", "the buffer would exceed the address space")),
    }
}

fn check_lengths(call: &Call<'_>, expected: Lengths, group: &Group) -> Result<()> {
    let element = call.descriptor.dtype.bytes() as u64;
    let check = |argument, bytes: usize, elements: u64| {
        if bytes as u64 == elements * element {
            return Ok(());
        }
        if !(bytes as u64).is_multiple_of(element) {
            let (dtype, operation) = (call.descriptor.dtype, call.descriptor.operation);
            let problem = format!("{bytes} bytes, but {operation} of {dtype} has elements of {element}");
            return Err(Error::invalid(argument, problem));
        }
        Err(Error::invalid(
            argument,
            format!(
                "{} elements, but {} needs {elements} on rank {}",
                bytes as u64 / element,
                call.descriptor,
                group.rank()
            ),
        ))
    };
    match (&call.buffers, call.descriptor.place) {
        (Buffers::InOut(buffer), Place::InPlace) => {
            check("buffer", buffer.bytes(), expected.input.max(expected.output))
        }
        (Buffers::Separate { input, output }, Place::Separate) => {
            check("input", input.bytes(), expected.input)?;
            check("output", output.bytes(), expected.output)
        }
        _ => Err(Error::invalid("place", "the descriptor and the buffers disagree")),
    }
}
