//! The ACL run time: streams and events.

use std::sync::Arc;
use std::time::Duration;

use unisono_double_common::fault::{self, Fault};
use unisono_double_common::memory::{self, Part};
use unisono_double_common::stream::{EVENTS, Event, STREAMS, Stream, default_of};
use unisono_double_common::{Out, export};

use crate::codes::{AclError, put_acl};
use crate::runtime::current;

/// ACL_STREAM_STATUS_COMPLETE is 0.
const STREAM_STATUS_NOT_READY: u32 = 0xffff;
/// ACL_EVENT_RECORDED_STATUS_NOT_READY is 0.
const EVENT_STATUS_COMPLETE: i32 = 1;

/// The stream of a handle; null is the default one of the device.
pub(crate) fn stream(handle: usize) -> Result<Arc<Stream>, AclError> {
    let device = current()?;
    if handle == 0 {
        return Ok(default_of(device));
    }
    STREAMS.get(handle).ok_or(AclError::INVALID_PARAM)
}

/// The same, if it is of the current context.
fn stream_of_context(handle: usize) -> Result<Arc<Stream>, AclError> {
    let stream = stream(handle)?;
    if stream.device() == current()? { Ok(stream) } else { Err(AclError::STREAM_CONTEXT) }
}

/// Gives work to a stream of the current device.
pub(crate) fn enqueue(handle: usize, work: impl FnOnce() -> i32 + Send + 'static) -> Result<(), AclError> {
    enqueue_output(handle, [Vec::new(), Vec::new()], work)
}

/// The same, for work that reads and writes these.
pub(crate) fn enqueue_output(
    handle: usize,
    parts: [Vec<Part>; 2],
    work: impl FnOnce() -> i32 + Send + 'static,
) -> Result<(), AclError> {
    let stream = stream(handle)?;
    if stream.device() != current()? {
        return Err(AclError::INVALID_PARAM);
    }
    let fault = fault::take_of_work();
    stream.enqueue_output(parts, move || match fault {
        Some(Fault::Code(code)) => code,
        Some(Fault::Hang) => {
            fault::hang(0);
            AclError::RUNTIME_INTERNAL.0
        }
        None => work(),
    });
    Ok(())
}

fn end_of_work(code: i32) -> Result<(), AclError> {
    match code {
        0 if memory::is_intact() => Ok(()),
        0 => Err(AclError::RUNTIME_INTERNAL),
        code => Err(AclError(code)),
    }
}

/// Waits for all work on a device.
pub(crate) fn synchronize_device(device: u32) -> Result<(), AclError> {
    let streams = STREAMS.all().into_iter().filter(|stream| stream.device() == device);
    let codes = streams.chain([default_of(device)]).filter_map(|stream| stream.synchronize(None));
    end_of_work(codes.fold(0, |first, code| if first == 0 { code } else { first }))
}

fn event(handle: usize) -> Result<Arc<Event>, AclError> {
    current()?;
    EVENTS.get(handle).ok_or(AclError::INVALID_PARAM)
}

export! {
    fn aclrtCreateStream(handle: Out<usize>) -> AclError {
        let device = current()?;
        if handle.is_null() {
            return Err(AclError::INVALID_PARAM);
        }
        put_acl(handle, STREAMS.insert_with(|_| Stream::start(device, false)).0)
    }

    fn aclrtDestroyStream(handle: usize) -> AclError {
        STREAMS.remove(handle).ok_or(AclError::INVALID_PARAM)?.close();
        Ok(())
    }

    fn aclrtSynchronizeStream(handle: usize) -> AclError {
        end_of_work(stream(handle)?.synchronize(None).unwrap_or(0))
    }

    fn aclrtSynchronizeStreamWithTimeout(handle: usize, milliseconds: i32) -> AclError {
        // -1 is for ever.
        let limit = u64::try_from(milliseconds).ok().map(Duration::from_millis);
        end_of_work(stream(handle)?.synchronize(limit).ok_or(AclError::STREAM_SYNC_TIMEOUT)?)
    }

    fn aclrtStreamQuery(handle: usize, status: Out<u32>) -> AclError {
        let stream = stream_of_context(handle)?;
        put_acl(status, if stream.is_idle() { 0 } else { STREAM_STATUS_NOT_READY })
    }

    // Nothing is captured here.
    fn aclmdlRICaptureGetInfo(handle: usize, status: Out<i32>, model: Out<usize>) -> AclError {
        stream_of_context(handle)?;
        put_acl(status, 0)?;
        put_acl(model, 0)
    }

    fn aclrtStreamWaitEvent(handle: usize, event_handle: usize) -> AclError {
        event(event_handle)?.hold_back(&*stream(handle)?);
        Ok(())
    }

    fn aclrtCreateEvent(handle: Out<usize>) -> AclError {
        current()?;
        put_acl(handle, EVENTS.insert(Event::default()))
    }

    fn aclrtRecordEvent(event_handle: usize, handle: usize) -> AclError {
        event(event_handle)?.record(&stream(handle)?);
        Ok(())
    }

    fn aclrtQueryEventStatus(event_handle: usize, status: Out<i32>) -> AclError {
        put_acl(status, if event(event_handle)?.is_done() { EVENT_STATUS_COMPLETE } else { 0 })
    }

    fn aclrtSynchronizeEvent(event_handle: usize) -> AclError {
        end_of_work(event(event_handle)?.synchronize())
    }

    fn aclrtEventElapsedTime(milliseconds: Out<f32>, start: usize, end: usize) -> AclError {
        let elapsed = event(end)?.elapsed_ms(&*event(start)?).ok_or(AclError::INVALID_PARAM)?;
        put_acl(milliseconds, elapsed)
    }

    fn aclrtDestroyEvent(event_handle: usize) -> AclError {
        EVENTS.remove(event_handle).map(drop).ok_or(AclError::INVALID_PARAM)
    }
}
