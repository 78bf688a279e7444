//! The communication log and the flight record, as JSON.

#![expect(unsafe_code, reason = "exported functions that take pointers")]

use std::ffi::c_char;
use std::path::Path;

use unisono::{Error, Result};

use crate::border::border;
use crate::handle::{CommHandle, value_of};
use crate::input::needed_text;
use crate::status::Status;
use crate::text::{OwnedBytes, give_bytes};

/// Switches the communication log of this rank on: it records the calls of all communicators of the world.
///
/// # Safety
/// The handle is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_log_start(comm: *const CommHandle) -> Status {
    border(|| {
        // SAFETY: the caller promises it.
        unsafe { value_of("comm", comm) }?.world.comms_logger().start();
        Ok(())
    })
}

/// Switches the communication log off. Its records stay.
///
/// # Safety
/// The handle is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_log_stop(comm: *const CommHandle) -> Status {
    border(|| {
        // SAFETY: the caller promises it.
        unsafe { value_of("comm", comm) }?.world.comms_logger().stop();
        Ok(())
    })
}

/// Forgets the records of the communication log.
///
/// # Safety
/// The handle is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_log_reset(comm: *const CommHandle) -> Status {
    border(|| {
        // SAFETY: the caller promises it.
        unsafe { value_of("comm", comm) }?.world.comms_logger().reset();
        Ok(())
    })
}

/// The communication log as JSON: a row for each kind of call (docs/logging.md).
///
/// @param comm The world, or any communicator of it.
/// @param json Where the text goes; freed with unisono_bytes_free().
///
/// # Safety
/// The handle is not freed, and `json` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_log_json(comm: *const CommHandle, json: *mut OwnedBytes) -> Status {
    border(|| {
        // SAFETY: the caller promises it.
        unsafe {
            let comm = value_of("comm", comm)?;
            give_bytes(json, written(serde_json::to_vec(&comm.world.comms_logger().report()))?)
        }
    })
}

/// The flight record as JSON: the last calls of this rank in all communicators, as `unisono doctor --flight` reads it.
///
/// @param comm The world, or any communicator of it.
/// @param json Where the text goes; freed with unisono_bytes_free().
/// @return UNISONO_STATUS_UNSUPPORTED in a world of one, which keeps none.
///
/// # Safety
/// The handle is not freed, and `json` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_flight_json(comm: *const CommHandle, json: *mut OwnedBytes) -> Status {
    border(|| {
        // SAFETY: the caller promises it.
        unsafe {
            let comm = value_of("comm", comm)?;
            give_bytes(json, written(serde_json::to_vec(&comm.world.flight_record()?))?)
        }
    })
}

/// Writes the flight record to its file in a folder, `rank-N.json`.
///
/// @param comm The world, or any communicator of it.
/// @param folder The folder, which is made if need be.
///
/// # Safety
/// The handle is not freed, and `folder` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_flight_dump(comm: *const CommHandle, folder: *const c_char) -> Status {
    border(|| {
        // SAFETY: the caller promises it.
        let (comm, folder) = unsafe { (value_of("comm", comm)?, needed_text("folder", folder)?) };
        comm.world.dump_flight(Path::new(folder)).map(drop)
    })
}

fn written(json: serde_json::Result<Vec<u8>>) -> Result<Vec<u8>> {
    json.map_err(|error| Error::System { what: "write a record as JSON".to_owned(), text: error.to_string() })
}
