//! Failures and the end of a communicator.

#![expect(unsafe_code, reason = "exported functions that take pointers")]

use std::time::Duration;

use unisono::{Communicator, Error};

use crate::border::border;
use crate::group::of_world;
use crate::handle::{CommHandle, value_of};
use crate::input::{check_address, give, list_mut, seconds};
use crate::status::Status;

/// After a failure: agrees with the other survivors on who is left, and gives the communicator in which they go on.
/// Collective over the survivors; it copes with ranks that fail meanwhile.
///
/// @param comm The communicator that has failed.
/// @param survivors Where the new communicator goes, which the caller frees with unisono_comm_free().
/// @param new_ranks Room for the new rank of each old rank, -1 for lost ones; or null.
/// @param rank_count The number of old ranks, if `new_ranks` is not null.
/// @param last_common_call Where the number of collectives goes that every survivor has completed; or null.
/// @return UNISONO_STATUS_EVICTED when the others have taken this rank for dead, UNISONO_STATUS_NO_QUORUM,
/// UNISONO_STATUS_TIMEOUT with the living ranks that have not called it: then call it again.
///
/// # Safety
/// The handle is not freed, and the other pointers are as their documentation says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_shrink(
    comm: *const CommHandle,
    survivors: *mut *mut CommHandle,
    new_ranks: *mut i32,
    rank_count: usize,
    last_common_call: *mut u64,
) -> Status {
    border(|| {
        check_address("survivors", survivors)?;
        // SAFETY: the caller promises all of it.
        unsafe {
            let comm = value_of("comm", comm)?;
            let (room, size) = (if new_ranks.is_null() { 0 } else { rank_count }, comm.communicator.size());
            if !new_ranks.is_null() && rank_count != size as usize {
                let problem = format!("{rank_count}, but the communicator has {size}");
                return Err(Error::invalid("rank_count", problem));
            }
            let places = list_mut("new_ranks", new_ranks, room)?;
            let shrunk = comm.communicator.shrink()?;
            let new = shrunk.new_ranks.iter().map(|rank| rank.map_or(-1, |rank| rank as i32));
            places.iter_mut().zip(new).for_each(|(place, rank)| *place = rank);
            give("last_common_call", last_common_call, shrunk.last_common_call)?;
            survivors.write(of_world(&comm.world, shrunk.communicator));
        }
        Ok(())
    })
}

/// The logical AND of the survivors' flags, the same on all. It works while ranks fail, and after a failure.
///
/// @param comm The communicator.
/// @param flag 0 or not 0.
/// @param agreed Where 0 or 1 goes.
///
/// # Safety
/// The handle is not freed, and `agreed` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_agree(comm: *const CommHandle, flag: i32, agreed: *mut i32) -> Status {
    border(|| {
        check_address("agreed", agreed)?;
        // SAFETY: the caller promises it.
        unsafe {
            let comm = value_of("comm", comm)?;
            agreed.write(i32::from(comm.communicator.agree(flag != 0)?));
        }
        Ok(())
    })
}

/// Ends every call on every rank with UNISONO_STATUS_ABORTED. Any thread may call it at any time.
///
/// # Safety
/// The handle is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_abort(comm: *const CommHandle) -> Status {
    // SAFETY: the caller promises it.
    border(|| unsafe { value_of("comm", comm) }?.communicator.abort())
}

/// Waits until all ranks have called it. Its timeout names exactly the ranks that have not come, and revokes nothing.
///
/// @param comm The communicator.
/// @param timeout_s The longest wait in seconds, of this rank.
/// @return UNISONO_STATUS_TIMEOUT with the missing ranks.
///
/// # Safety
/// The handle is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_monitored_barrier(comm: *const CommHandle, timeout_s: f64) -> Status {
    border(|| {
        // SAFETY: the caller promises it.
        let comm = unsafe { value_of("comm", comm) }?;
        let timeout = seconds("timeout_s", timeout_s)?.unwrap_or(Duration::ZERO);
        comm.communicator.monitored_barrier(timeout)
    })
}

/// Tells the other ranks that this one makes no more calls: later ones give UNISONO_STATUS_CLOSED. May be called again.
/// The handle stays, to be freed.
///
/// @return The first cause if the communicator was revoked and this rank has not gone on with unisono_shrink();
/// UNISONO_STATUS_MISMATCH when ranks close after different calls.
///
/// # Safety
/// The handle is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_close(comm: *const CommHandle) -> Status {
    // SAFETY: the caller promises it.
    border(|| unsafe { value_of("comm", comm) }?.communicator.close())
}
