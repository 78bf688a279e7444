//! Calls: one function for a call that blocks, one for a call with a handle, one for several calls as one.

#![expect(unsafe_code, reason = "exported functions that take pointers")]

use std::sync::Arc;

use unisono::extend::calls::Operation;
use unisono::{Collectives, CollectivesAsync, CollectivesGrouped, Outcome, Received, Result};

use crate::border::{border, unsupported};
use crate::call::{Request, release, request};
use crate::compressed::compressed;
use crate::fields::CallFields;
use crate::handle::{CommHandle, WorkHandle, handle_of, value_of};
use crate::input::{check_address, give, list};
use crate::outcome::OutcomeFields;
use crate::sited::Sited;
use crate::status::Status;
use crate::threaded::start_compressed;

/// Makes a call, and returns when it has ended. All ranks of the communicator make the same collectives in the same
/// order. The calling thread does the work. Ranks that make different calls get UNISONO_STATUS_MISMATCH with both calls
/// and their lines; the loss of a rank ends the call on all others, which name it.
///
/// @param comm The communicator.
/// @param call The call; it and its lists may go afterwards.
/// @return UNISONO_STATUS_INVALID_ARGUMENT, UNISONO_STATUS_UNSUPPORTED, UNISONO_STATUS_CONCURRENT_USE,
/// UNISONO_STATUS_TRUNCATED and UNISONO_STATUS_NON_FINITE leave the communicator as it was. After any other error it is
/// revoked on all ranks: inputs are intact, outputs indeterminate; go on with unisono_shrink().
///
/// # Safety
/// The handle is not freed, and the structure and its pointers are as their documentation says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_call(comm: *const CommHandle, call: *const CallFields) -> Status {
    border(|| {
        // SAFETY: the caller promises all of it.
        unsafe {
            let comm = value_of("comm", comm)?;
            let request = request(call, comm.communicator.group())?;
            request.check_blocking()?;
            let outcome = match &request.state {
                Some(state) => {
                    let sited = Sited::new(comm.communicator.clone(), request.site);
                    compressed(&sited, state, &request)?;
                    Outcome::done(request.sides.output().bytes(), "compressed")
                }
                None => comm.communicator.issue(request.borrowed())?,
            };
            give("outcome", request.outcome, OutcomeFields::of(&outcome))
        }
    })
}

/// Starts a call, and returns at once; with UNISONO_QUEUED after the calls of other threads. The handle tells its end
/// and its error, also the error of a call that is refused. Asynchronous and blocking calls follow one order of issue.
///
/// The memory of the data stays the caller's. It must be valid, and the output untouched, until the call has ended:
/// until unisono_work_test() or a wait says so, a callback of unisono_work_on_done() has begun, or `release` is called.
/// Freeing the handle does not end the call. A compressed call has a thread of its own, and the function returns when
/// the call has its turn; until it ends, other collectives of this rank need UNISONO_QUEUED.
///
/// @param comm The communicator.
/// @param call The call, without `outcome`; it and its lists may go afterwards, `user_op`'s context and the
/// data when the call has ended.
/// @param work Where the handle goes, which the caller frees with unisono_work_free().
/// @return An error only where there is no handle: a pointer or a number in `call` cannot be used. Nothing was sent.
///
/// # Safety
/// As unisono_call(), until the call has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_start(
    comm: *const CommHandle,
    call: *const CallFields,
    work: *mut *mut WorkHandle,
) -> Status {
    border(|| {
        // SAFETY: the caller promises all of it.
        unsafe {
            let release = release(call)?;
            check_address("work", work)?;
            let comm = value_of("comm", comm)?;
            let request = request(call, comm.communicator.group())?;
            request.check_no_outcome("unisono_work_wait() gives it")?;
            let (communicator, tells) = (&comm.communicator, release.is_some());
            let started = match request.state.clone() {
                Some(state) => start_compressed(communicator, state, request, release),
                None => {
                    let call = request.owned(release.as_ref())?;
                    // From here on the call's buffers alone keep it.
                    drop(release);
                    communicator.start(call)
                }
            };
            work.write(handle_of(WorkHandle { work: started, tells }));
            Ok(())
        }
    })
}

/// Makes several calls as one, as NCCL's group: sends and receives start together and come first, so they cannot
/// deadlock in any order; collectives follow in their order, with no other thread's call between. Every rank groups the
/// same collectives. Collectives on lists with UNISONO_DIVISION_COALESCED travel as one message per link; calls of this
/// group travel one by one.
///
/// @param comm The communicator.
/// @param calls Pointers to the calls, none compressed. Their `outcome` is filled for receives only.
/// @param call_count The number of calls.
/// @return The first error. An argument that cannot be used refuses all calls before any starts.
///
/// # Safety
/// As unisono_call(), for all calls together: no output overlaps other memory of the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_call_group(
    comm: *const CommHandle,
    calls: *const *const CallFields,
    call_count: usize,
) -> Status {
    border(|| {
        // SAFETY: the caller promises all of it.
        unsafe {
            let comm = value_of("comm", comm)?;
            let calls = list("calls", calls, call_count)?;
            let group = comm.communicator.group();
            let read = |call: &*const CallFields| request(*call, group);
            let requests = calls.iter().map(read).collect::<Result<Vec<Request>>>()?;
            if requests.iter().any(|request| request.state.is_some()) {
                return Err(unsupported("a compressed call in a group", "unisono_call()"));
            }
            let is_receive = |request: &&Request| request.descriptor.operation == Operation::Recv;
            requests.iter().try_for_each(Request::check_blocking)?;
            let others = requests.iter().filter(|request| !is_receive(request));
            others
                .into_iter()
                .try_for_each(|one| one.check_no_outcome("in a group only receives have one"))?;
            let Some(first) = requests.first() else { return Ok(()) };
            let sited = Sited::new(Arc::clone(&comm.communicator), first.site);
            let received = sited
                .group_calls(|group| requests.iter().for_each(|request| group.call(request.borrowed())))?;
            let receives = requests.iter().filter(is_receive);
            receives.zip(received).try_for_each(|(request, received)| {
                give("outcome", request.outcome, OutcomeFields::of(&outcome(request, received)))
            })
        }
    })
}

fn outcome(request: &Request, received: Received) -> Outcome {
    let bytes = (received.count * request.descriptor.dtype.bytes()) as u64;
    Outcome { source: received.source, tag: received.tag, ..Outcome::done(bytes, "message") }
}

/// Whether this rank can make such a call, without making it: sends nothing. Faults of buffers, of uneven counts and of
/// the order of calls are not looked for.
///
/// @return The error of the call.
///
/// # Safety
/// As unisono_call(); the data is not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_supports(comm: *const CommHandle, call: *const CallFields) -> Status {
    border(|| {
        use unisono::Communicator;
        // SAFETY: the caller promises all of it.
        let (comm, arguments) = unsafe {
            let comm = value_of("comm", comm)?;
            let fields = crate::input::structure("call", call)?;
            let arguments = crate::call::arguments(&fields, comm.communicator.group())?;
            (comm, arguments)
        };
        let memory = unisono::call::MemoryKind::Host;
        comm.communicator.supports(&arguments.descriptor, &arguments.options, memory)
    })
}
