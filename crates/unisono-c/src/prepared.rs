//! Prepared calls: arguments that are checked once, and a plan that is made once.

#![expect(unsafe_code, reason = "exported functions that take pointers")]

use unisono::call::{Counts, MemoryKind};
use unisono::extend::calls::Executor;

use crate::border::{border, unsupported};
use crate::call::arguments;
use crate::fields::CallFields;
use crate::handle::{CommHandle, PreparedHandle, handle_of, taken, value_of};
use crate::input::{check_address, structure};
use crate::status::Status;

/// Prepares calls of one shape (MPI's persistent collectives): a call whose `prepared` is the plan, with the same
/// arguments, looks nothing up. Other ranks need not prepare theirs. Sends nothing.
///
/// @param comm The communicator, which the plan belongs to.
/// @param call The call; its data is not looked at. Equal counts only.
/// @param prepared Where the plan goes, which the caller frees with unisono_prepared_free().
/// @return The errors of the call.
///
/// # Safety
/// The handle is not freed, and the structure and its pointers are as their documentation says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_prepare(
    comm: *const CommHandle,
    call: *const CallFields,
    prepared: *mut *mut PreparedHandle,
) -> Status {
    border(|| {
        check_address("prepared", prepared)?;
        // SAFETY: the caller promises all of it.
        let (comm, arguments) = unsafe {
            let comm = value_of("comm", comm)?;
            let fields = structure("call", call)?;
            let arguments = arguments(&fields, comm.communicator.group())?;
            (comm, arguments)
        };
        if arguments.counts != Counts::Even {
            return Err(unsupported("a plan of shares that differ by rank", "the call without a plan"));
        }
        let (descriptor, options, site) = (arguments.descriptor, arguments.options, arguments.site);
        let life = comm.communicator.life();
        let made = life.prepare(comm.communicator.group(), &descriptor, &options, MemoryKind::Host);
        let call = made.map_err(|error| error.in_call(&format_args!("prepare {descriptor}{}", site.at())))?;
        // SAFETY: the place is checked, and the caller promises that it is writable.
        unsafe { prepared.write(handle_of(PreparedHandle { call })) };
        Ok(())
    })
}

/// Frees a plan; null is left alone. Calls that run with it go on.
///
/// # Safety
/// The handle is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_prepared_free(prepared: *mut PreparedHandle) -> Status {
    // SAFETY: the caller gives the handle up.
    border(|| unsafe { taken("prepared", prepared) }.map(drop))
}
