//! From the structure of a call to the call that it describes: the arguments are read here, once.

#![expect(unsafe_code, reason = "pointers in a structure of the caller")]

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use unisono::call::{Call, Counts, Descriptor, Division, OwnedCall, Place};
use unisono::extend::calls::{Operation, PreparedNumber, ShortText, Site, check_request, lengths};
use unisono::{CallOptions, Collective, Determinism, Error, Group, Peer, Result, Tag, UserFunction};

use crate::buffers::{Memory, Piece, Release, Sides};
use crate::fields::CallFields;
use crate::handle::{PreparedHandle, StateHandle, value_of};
use crate::input::{check_address, list, seconds, structure, text};
use crate::names;
use crate::outcome::OutcomeFields;
use crate::user_op::user_op;

/// The longest file name of a line that errors show whole; of a longer one they show the end.
const FILE_BYTES_MAX: usize = 256;

/// A call whose arguments are read, and as far checked as memory safety needs.
pub(crate) struct Request {
    pub(crate) descriptor: Descriptor,
    pub(crate) counts: Counts,
    pub(crate) options: CallOptions,
    pub(crate) user_function: Option<UserFunction>,
    pub(crate) site: Site,
    pub(crate) sides: Sides,
    pub(crate) prepared: Option<Arc<PreparedHandle>>,
    pub(crate) state: Option<Arc<StateHandle>>,
    pub(crate) outcome: *mut OutcomeFields,
    /// Whether the caller wants to be told of the end of the memory's use.
    has_release: bool,
}

/// A call without its memory: the arguments of a plan.
pub(crate) struct Arguments {
    pub(crate) descriptor: Descriptor,
    pub(crate) counts: Counts,
    pub(crate) options: CallOptions,
    pub(crate) user_function: Option<UserFunction>,
    pub(crate) site: Site,
}

impl Request {
    /// Refuses a field of calls with handles.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`].
    pub(crate) fn check_blocking(&self) -> Result<()> {
        if self.has_release {
            return Err(self.named(Error::invalid("release", "given, but unisono_start() alone has one")));
        }
        Ok(())
    }

    /// Refuses the place of an outcome where it would stay empty.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`].
    pub(crate) fn check_no_outcome(&self, instead: &str) -> Result<()> {
        if !self.outcome.is_null() {
            return Err(self.named(Error::invalid("outcome", format!("given, but {instead}"))));
        }
        Ok(())
    }

    fn named(&self, error: Error) -> Error {
        error.in_call(&format_args!("{}{}", self.descriptor, self.site.at()))
    }

    /// The call, to block in it.
    ///
    /// # Safety
    /// While the result is used, nobody writes the call's input, and nobody else uses its output.
    pub(crate) unsafe fn borrowed<'a>(&self) -> Call<'a> {
        // SAFETY: as the caller promises.
        let buffers = unsafe { self.sides.borrowed() };
        Call {
            counts: self.counts.clone(),
            options: self.options(),
            user_function: self.user_function.clone(),
            prepared: self.plan(),
            site: self.site,
            ..Call::new(self.descriptor, buffers)
        }
    }

    /// The call, to start it.
    ///
    /// # Safety
    /// As [`Request::borrowed`], until the call has ended, or `release` is dropped if there is one.
    pub(crate) unsafe fn owned(self, release: Option<&Arc<Release>>) -> Result<OwnedCall> {
        // SAFETY: as the caller promises.
        let buffers = unsafe { self.sides.owned(self.descriptor.dtype, release) }?;
        let (options, prepared) = (self.options(), self.plan());
        Ok(OwnedCall {
            counts: self.counts,
            options,
            user_function: self.user_function,
            prepared,
            site: self.site,
            ..OwnedCall::new(self.descriptor, buffers)
        })
    }

    fn options(&self) -> CallOptions {
        self.prepared.as_ref().map_or(self.options, |prepared| prepared.call.options)
    }

    fn plan(&self) -> Option<PreparedNumber> {
        self.prepared.as_ref().and_then(|prepared| prepared.call.number)
    }
}

/// Reads the structure of a call of a member of `group`.
///
/// # Safety
/// `call` and everything that it points to are as their documentation says.
pub(crate) unsafe fn request(call: *const CallFields, group: &Group) -> Result<Request> {
    // SAFETY: the caller promises it.
    let fields = unsafe { structure("call", call) }?;
    // SAFETY: as above.
    let arguments = unsafe { arguments(&fields, group) }?;
    let Arguments { descriptor, counts, options, user_function, site } = arguments;
    let named = |error: Error| error.in_call(&format_args!("{descriptor}{}", site.at()));
    // SAFETY: as above.
    let sides = unsafe { sides(&fields, &descriptor, &counts, group) }.map_err(named)?;
    // SAFETY: as above.
    let prepared = unsafe { prepared(fields.prepared, &descriptor) }.map_err(named)?;
    let state = match fields.state.is_null() {
        true => None,
        // SAFETY: as above.
        false => Some(unsafe { value_of("state", fields.state) }.map_err(named)?),
    };
    if !fields.outcome.is_null() {
        check_address("outcome", fields.outcome).map_err(named)?;
    }
    let (outcome, has_release) = (fields.outcome, fields.release.is_some());
    Ok(Request {
        descriptor,
        counts,
        options,
        user_function,
        site,
        sides,
        prepared,
        state,
        outcome,
        has_release,
    })
}

/// The function that is told of the end of the memory's use. It is read first, so that it is told of a refusal too.
///
/// # Safety
/// As [`request`].
pub(crate) unsafe fn release(call: *const CallFields) -> Result<Option<Arc<Release>>> {
    // SAFETY: the caller promises it.
    let fields = unsafe { structure("call", call) }?;
    Ok(Release::new(fields.release, fields.release_context))
}

/// Reads everything but the memory.
///
/// # Safety
/// As [`request`].
pub(crate) unsafe fn arguments(fields: &CallFields, group: &Group) -> Result<Arguments> {
    // SAFETY: the caller promises it.
    let site = unsafe { site(fields.file, fields.line) }?;
    let operation = names::operation(fields.operation)?;
    let at = |error: Error| error.in_call(&format_args!("{operation}{}", site.at()));
    // SAFETY: as above.
    let (counts, options, user) = unsafe {
        let counts = uneven_counts(fields, operation).map_err(at)?;
        (counts, call_options(fields).map_err(at)?, user_op(fields.user_op).map_err(at)?)
    };
    let (user, user_function) = user.unzip();
    // SAFETY: as above.
    let label = unsafe { text("label", fields.label) }.map_err(at)?;
    let descriptor = Descriptor {
        op: names::op(fields.op, fields.factor, user).map_err(at)?,
        root: root(fields.root, operation).map_err(at)?,
        peer: peer_of_call(fields.peer, operation).map_err(at)?,
        tag: tag(fields.tag).map_err(at)?,
        label: label.map(ShortText::new),
        place: place(fields.flags, operation),
        uneven: counts != Counts::Even,
        ..Descriptor::new(
            operation,
            names::dtype(fields.dtype, fields.element_bytes, operation).map_err(at)?,
            count(fields.count, &counts, operation, group).map_err(at)?,
        )
    };
    let named = |error: Error| error.in_call(&format_args!("{descriptor}{}", site.at()));
    if fields.reserved != 0 || operation.collective().is_some() && fields.tag != 0 {
        let argument = if fields.reserved != 0 { "reserved" } else { "tag" };
        return Err(named(Error::invalid(argument, "not 0, but the call has none")));
    }
    check_request(&descriptor, &options, group).map_err(named)?;
    Ok(Arguments { descriptor, counts, options, user_function, site })
}

/// The line of a caller.
///
/// # Safety
/// `file` is null or a text.
pub(crate) unsafe fn site(file: *const c_char, line: u32) -> Result<Site> {
    // SAFETY: the caller promises it.
    let Some(file) = unsafe { text("file", file) }? else { return Ok(Site::UNKNOWN) };
    let mut start = file.len().saturating_sub(FILE_BYTES_MAX);
    while !file.is_char_boundary(start) {
        start += 1;
    }
    Site::interned(&file[start..], line)
}

/// The other side of a message or a probe.
pub(crate) fn peer(number: i32) -> Result<Peer> {
    match number {
        names::ANY => Ok(Peer::Any),
        names::NOBODY => Ok(Peer::None),
        rank => u32::try_from(rank).map(Peer::Rank).map_err(|_| Error::invalid("peer", format!("{rank}"))),
    }
}

/// The tag of a message, or of the messages that a receive takes.
pub(crate) fn tag(number: i64) -> Result<Tag> {
    if number == i64::from(names::ANY) {
        return Ok(Tag::Any);
    }
    let problem = || format!("{number}, but tags are 0 to {}", u32::MAX);
    u32::try_from(number).map(Tag::Is).map_err(|_| Error::invalid("tag", problem()))
}

fn peer_of_call(number: i32, operation: Operation) -> Result<Option<Peer>> {
    match operation {
        Operation::Send | Operation::Recv => peer(number).map(Some),
        Operation::Collective(_) if number == 0 => Ok(None),
        Operation::Collective(_) => {
            Err(Error::invalid("peer", format!("{number}, but {operation} has none")))
        }
    }
}

fn root(number: i32, operation: Operation) -> Result<Option<u32>> {
    match operation.collective().is_some_and(Collective::is_rooted) {
        true => u32::try_from(number)
            .map(Some)
            .map_err(|_| Error::invalid("root", format!("{number}, but ranks begin at 0"))),
        false if number == 0 => Ok(None),
        false => Err(Error::invalid("root", format!("{number}, but {operation} has none"))),
    }
}

fn place(flags: u32, operation: Operation) -> Place {
    let is_broadcast = operation == Operation::Collective(Collective::Broadcast);
    if is_broadcast || flags & names::IN_PLACE != 0 { Place::InPlace } else { Place::Separate }
}

/// # Safety
/// As [`request`].
unsafe fn uneven_counts(fields: &CallFields, operation: Operation) -> Result<Counts> {
    // SAFETY: the caller promises it.
    let (counts, receive) = unsafe {
        let counts = list("counts", fields.counts, fields.counts_length)?;
        (counts, list("receive_counts", fields.receive_counts, fields.receive_counts_length)?)
    };
    let is_all_to_all = operation == Operation::Collective(Collective::AllToAll);
    match (counts.is_empty(), receive.is_empty()) {
        (true, true) => Ok(Counts::Even),
        (false, false) if is_all_to_all => {
            Ok(Counts::PerPair { send: counts.into(), receive: receive.into() })
        }
        (false, true) if !is_all_to_all => Ok(Counts::PerRank(counts.into())),
        (_, false) if !is_all_to_all => {
            Err(Error::invalid("receive_counts", format!("{operation} has one list of counts")))
        }
        _ => Err(Error::invalid("counts", "all_to_all has counts and receive_counts, or neither")),
    }
}

/// The count of the descriptor: with uneven counts, the elements that this rank contributes or receives.
fn count(given: u64, counts: &Counts, operation: Operation, group: &Group) -> Result<u64> {
    let own = match counts {
        Counts::Even => return Ok(given),
        Counts::PerRank(list) => list.get(group.rank() as usize).copied().unwrap_or(0),
        Counts::PerPair { send, .. } => send.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)),
    };
    if given != 0 && given != own {
        let problem = format!("{given}, but by the counts {operation} has {own} on this rank; 0 will do");
        return Err(Error::invalid("count", problem));
    }
    Ok(own)
}

/// # Safety
/// As [`request`].
unsafe fn call_options(fields: &CallFields) -> Result<CallOptions> {
    let known = names::IN_PLACE
        | names::FIXED_ORDER
        | names::QUEUED
        | names::NEEDED
        | names::HOST_BY_COMPANION
        | names::PROFILED
        | names::NOT_PROFILED;
    names::flags(fields.flags, known)?;
    let has = |flag: u32| fields.flags & flag != 0;
    if has(names::PROFILED) && has(names::NOT_PROFILED) {
        return Err(Error::invalid("flags", "the log cannot record a call always and never"));
    }
    let mut options = CallOptions { timeout: seconds("timeout_s", fields.timeout_s)?, ..CallOptions::new() };
    // SAFETY: the caller promises it.
    let (algorithm, log_name) =
        unsafe { (text("algorithm", fields.algorithm)?, text("log_name", fields.log_name)?) };
    if let Some(name) = algorithm {
        options = options.algorithm(name);
    }
    if let Some(name) = log_name {
        options = options.log_name(name);
    }
    if has(names::FIXED_ORDER) {
        options = options.determinism(Determinism::Fixed);
    }
    if has(names::QUEUED) {
        options = options.queued();
    }
    if has(names::NEEDED) {
        options = options.needed();
    }
    if has(names::HOST_BY_COMPANION) {
        options = options.host_by_companion();
    }
    if has(names::PROFILED | names::NOT_PROFILED) {
        options = options.profiled(has(names::PROFILED));
    }
    Ok(options)
}

/// # Safety
/// As [`request`].
unsafe fn sides(
    fields: &CallFields,
    descriptor: &Descriptor,
    counts: &Counts,
    group: &Group,
) -> Result<Sides> {
    let division = match fields.division {
        0 => Division::Anywhere,
        1 => Division::Shares,
        2 => Division::Coalesced,
        other => return Err(Error::invalid("division", format!("{other} is the number of none"))),
    };
    if fields.division != 0 && fields.input_count == 0 && fields.output_count == 0 {
        return Err(Error::invalid("division", "given, but there is no list"));
    }
    let dtype = descriptor.dtype;
    // SAFETY: the caller promises it.
    let (inputs, outputs) = unsafe {
        let inputs = list("inputs", fields.inputs, fields.input_count)?;
        (inputs, list("outputs", fields.outputs, fields.output_count)?)
    };
    let memory = |argument, start: *mut c_void, pieces: &[Piece], elements| {
        if pieces.is_empty() {
            return Memory::one(argument, start, elements, dtype);
        }
        if !start.is_null() {
            return Err(Error::invalid(argument, "given, beside a list of pieces"));
        }
        Memory::list(argument, pieces, division, dtype)
    };
    let needed = lengths(descriptor, counts, group);
    match descriptor.place {
        Place::Separate => {
            let input = memory("input", fields.input.cast_mut(), inputs, needed.input)?;
            Sides::new(Some(input), memory("output", fields.output, outputs, needed.output)?)
        }
        Place::InPlace => {
            let is_output = ptr::eq(fields.input, fields.output);
            if !(fields.input.is_null() || is_output) || !inputs.is_empty() {
                return Err(Error::invalid(
                    "input",
                    "given, but the call is in place: its output is its input",
                ));
            }
            let elements = needed.input.max(needed.output);
            Sides::new(None, memory("output", fields.output, outputs, elements)?)
        }
    }
}

/// # Safety
/// As [`request`].
unsafe fn prepared(
    handle: *const PreparedHandle,
    descriptor: &Descriptor,
) -> Result<Option<Arc<PreparedHandle>>> {
    if handle.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises it.
    let prepared = unsafe { value_of("prepared", handle) }?;
    if prepared.call.descriptor != *descriptor {
        let problem = format!("is a plan of {}", prepared.call.descriptor);
        return Err(Error::invalid("prepared", problem));
    }
    Ok(Some(prepared))
}
