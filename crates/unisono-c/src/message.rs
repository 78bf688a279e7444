//! Probes: a message that has been found belongs to its finder.

#![expect(unsafe_code, reason = "exported functions that take pointers")]

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use unisono::call::{Descriptor, OwnedBuffer, OwnedBuffers, OwnedCall, OwnedMemory};
use unisono::extend::calls::{GroupRank, Operation, Site};
use unisono::{Communicator, DType, Error, Outcome, Peer, PointToPoint, Probed, Result, Tag};

use crate::border::{border, border_or};
use crate::buffers::Memory;
use crate::call::{peer, site, tag};
use crate::handle::{CommHandle, handle_of, taken, value_of};
use crate::input::{check_address, give};
use crate::names::DTypeName;
use crate::outcome::OutcomeFields;
use crate::sited::Sited;
use crate::status::Status;

/// A message that a probe has found. Nobody else receives it.
pub struct MessageHandle {
    /// `None` when it was received.
    found: Mutex<Option<Probed>>,
    /// The line of the probe.
    site: Site,
    /// The communicator stays as long as its message.
    _communicator: Arc<dyn Communicator>,
}

/// Facts of a found message.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MessageFields {
    /// The rank that has sent it; -1 for nobody.
    pub source: i64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its length in elements.
    pub count: u64,
    /// Its tag.
    pub tag: u32,
    /// The unisono_dtype of its elements.
    pub dtype: i32,
    /// Bytes of an element.
    pub element_bytes: u32,
    /// 0.
    pub reserved: u32,
}

/// Waits for a message, or looks for one, and gives it without receiving it, so that its length is known. Of several
/// messages the oldest is found.
///
/// @param comm The communicator.
/// @param from The sender's rank, UNISONO_ANY or UNISONO_NOBODY.
/// @param with_tag The tag, or UNISONO_ANY.
/// @param waits 0 to look only: then UNISONO_STATUS_PENDING says that there is none.
/// @param file The file of the caller's line, or null.
/// @param line The line.
/// @param message Where the message goes, which the caller frees with unisono_message_free().
///
/// # Safety
/// The handle is not freed; `file` is null or a text; `message` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_probe(
    comm: *const CommHandle,
    from: i32,
    with_tag: i64,
    waits: u32,
    file: *const c_char,
    line: u32,
    message: *mut *mut MessageHandle,
) -> Status {
    border_or(|| {
        check_address("message", message)?;
        // SAFETY: the caller promises it.
        let (comm, site) = unsafe { (value_of("comm", comm)?, site(file, line)?) };
        let (from, tag) = (peer(from)?, tag(with_tag)?);
        let sited = Sited::new(comm.communicator.clone(), site);
        let found = match waits {
            0 => sited.try_probe(from, tag),
            _ => sited.probe(from, tag).map(Some),
        };
        let found = found.map_err(|error| sited.at_own_line(error, &format_args!("probe({tag})")))?;
        let Some(found) = found else { return Ok(Status::Pending) };
        let found = Mutex::new(Some(found));
        let handle = MessageHandle { found, site, _communicator: comm.communicator.clone() };
        // SAFETY: it is checked, and the caller promises that it is writable.
        unsafe { message.write(handle_of(handle)) };
        Ok(Status::Ok)
    })
}

/// Facts of a found message that is not received yet.
///
/// # Safety
/// The handle is not freed, and `fields` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_message_info(
    message: *const MessageHandle,
    fields: *mut MessageFields,
) -> Status {
    border(|| {
        check_address("fields", fields)?;
        // SAFETY: the caller promises it.
        let message = unsafe { value_of("message", message) }?;
        let found = message.found.lock().unwrap_or_else(PoisonError::into_inner);
        let found = found.as_ref().ok_or_else(was_received)?;
        let dtype = found.dtype();
        let facts = MessageFields {
            source: found.source().map_or(-1, i64::from),
            bytes: found.bytes(),
            count: found.bytes() / dtype.bytes() as u64,
            tag: found.tag(),
            dtype: match dtype {
                DType::Opaque { .. } => DTypeName::Opaque as i32,
                plain => i32::from(plain.code()[0]),
            },
            element_bytes: dtype.bytes() as u32,
            reserved: 0,
        };
        // SAFETY: it is checked, and the caller promises that it is writable.
        unsafe { fields.write(facts) };
        Ok(())
    })
}

/// Receives a found message, once.
///
/// @param message The message, which is freed apart.
/// @param data Where its bytes go, aligned as its elements are. It is used until the function returns.
/// @param room_bytes The room there, which may be more than the message.
/// @param outcome Where the outcome goes, or null.
/// @return UNISONO_STATUS_TRUNCATED when the room is too small: the message can still be received.
///
/// # Safety
/// The handle is not freed, and `data` has so many writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_message_receive(
    message: *const MessageHandle,
    data: *mut c_void,
    room_bytes: u64,
    outcome: *mut OutcomeFields,
) -> Status {
    border(|| {
        // SAFETY: the caller promises it.
        unsafe {
            let message = value_of("message", message)?;
            let mut found = message.found.lock().unwrap_or_else(PoisonError::into_inner);
            let probed = found.as_ref().ok_or_else(was_received)?;
            let Some(source) = probed.source() else {
                found.take();
                return give("outcome", outcome, OutcomeFields::of(&Outcome::done(0, "nobody")));
            };
            if probed.bytes() > room_bytes {
                let (source_rank, tag, sent_bytes) = (GroupRank::new(source), probed.tag(), probed.bytes());
                return Err(Error::Truncated { source_rank, tag, sent_bytes, room_bytes });
            }
            let call = receive_call(probed, source, data, message.site)?;
            let taken = found.take().and_then(Probed::into_found).ok_or_else(was_received)?;
            let ended = taken.receive(call).wait()?;
            give("outcome", outcome, OutcomeFields::of(&ended))
        }
    })
}

/// The receive of a found message into memory of its length.
///
/// # Safety
/// `data` has as many writable bytes as the message, until the call has ended.
unsafe fn receive_call(probed: &Probed, source: u32, data: *mut c_void, site: Site) -> Result<OwnedCall> {
    let (dtype, bytes) = (probed.dtype(), probed.bytes());
    Memory::one("data", data, bytes / dtype.bytes() as u64, dtype)?;
    let descriptor = Descriptor {
        peer: Some(Peer::Rank(source)),
        tag: Tag::Is(probed.tag()),
        ..Descriptor::new(Operation::Recv, dtype, bytes / dtype.bytes() as u64)
    };
    // SAFETY: as the caller promises.
    let output = unsafe { OwnedBuffer::lent(data.cast(), bytes as usize, dtype) }?;
    let input = OwnedMemory::of(Vec::<u8>::new());
    let buffers = OwnedBuffers::Separate { input, output: output.into() };
    Ok(OwnedCall { site, ..OwnedCall::new(descriptor, buffers) })
}

fn was_received() -> Error {
    Error::invalid("message", "was received already")
}

/// Frees a message; null is left alone. A message that was not received goes back to its place, and another receive or
/// probe gets it.
///
/// # Safety
/// The handle is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_message_free(message: *mut MessageHandle) -> Status {
    // SAFETY: the caller gives the handle up.
    border(|| unsafe { taken("message", message) }.map(drop))
}
