//! The CUDA driver: streams and events.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use unisono_double_common::fault::{self, Fault};
use unisono_double_common::stream::{EVENTS, Event, STREAMS, Stream, default_of};
use unisono_double_common::{Out, export};

use crate::capture::check_unseen;
use crate::context::{CuError, context_of, current, end_of_work, put};

/// Null, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD.
pub(crate) const DEFAULT_STREAMS: [usize; 3] = [0, 1, PER_THREAD];
pub(crate) const PER_THREAD: usize = 2;

thread_local! {
    /// The default streams of this thread, by device.
    static OWN: RefCell<BTreeMap<u32, Arc<Stream>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The stream of a handle on a device; `None` for a handle of none. CU_STREAM_PER_THREAD is another one on each thread
/// (`cuda.h`: "implicit stream with per-thread synchronization behavior"), and so on a thread of NCCL's.
pub(crate) fn stream_on(device: u32, handle: usize) -> Option<Arc<Stream>> {
    match handle {
        PER_THREAD => {
            Some(OWN.with_borrow_mut(|own| {
                own.entry(device).or_insert_with(|| Stream::start(device, true)).clone()
            }))
        }
        0 | 1 => Some(default_of(device)),
        handle => STREAMS.get(handle),
    }
}

/// The stream of a handle, which may be a default one of the current device.
pub(crate) fn stream(handle: usize) -> Result<Arc<Stream>, CuError> {
    stream_on(current()?, handle).ok_or(CuError::INVALID_HANDLE)
}

/// Gives work to a stream of the current device.
pub(crate) fn enqueue(handle: usize, work: impl FnOnce() -> i32 + Send + 'static) -> Result<(), CuError> {
    let stream = stream(handle)?;
    if stream.device() != current()? {
        return Err(CuError::INVALID_HANDLE);
    }
    let fault = fault::take_of_work();
    stream.enqueue(Box::new(move || match fault {
        Some(Fault::Code(code)) => code,
        Some(Fault::Hang) => {
            fault::hang(0);
            CuError::NOT_READY.0
        }
        None => work(),
    }));
    Ok(())
}

fn event(handle: usize) -> Result<Arc<Event>, CuError> {
    current()?;
    EVENTS.get(handle).ok_or(CuError::INVALID_HANDLE)
}

fn create(handle: Out<usize>, flags: u32) -> Result<(), CuError> {
    let device = current()?;
    if flags > 1 || handle.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // CU_STREAM_NON_BLOCKING is 1.
    put(handle, STREAMS.insert_with(|_| Stream::start(device, flags == 0)).0)
}

/// A stream that is not being captured, to wait for.
fn waitable(handle: usize) -> Result<Arc<Stream>, CuError> {
    check_unseen()?;
    let stream = stream(handle)?;
    if stream.is_capturing() { Err(CuError::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(stream) }
}

export! {
    fn cuStreamCreate(handle: Out<usize>, flags: u32) -> CuError {
        create(handle, flags)
    }

    fn cuStreamCreateWithPriority(handle: Out<usize>, flags: u32, _priority: i32) -> CuError {
        create(handle, flags)
    }

    fn cuStreamSynchronize(handle: usize) -> CuError {
        let stream = waitable(handle)?;
        end_of_work(stream.device(), stream.synchronize(None).unwrap_or(0))
    }

    fn cuStreamQuery(handle: usize) -> CuError {
        let stream = waitable(handle)?;
        if !stream.is_idle() {
            return Err(CuError::NOT_READY);
        }
        end_of_work(stream.device(), stream.error())
    }

    // Its work goes on to its end.
    fn cuStreamDestroy_v2(handle: usize) -> CuError {
        current()?;
        STREAMS.remove(handle).ok_or(CuError::INVALID_HANDLE)?.close();
        Ok(())
    }

    fn cuStreamWaitEvent(handle: usize, event_handle: usize, _flags: u32) -> CuError {
        event(event_handle)?.hold_back(&*stream(handle)?);
        Ok(())
    }

    fn cuStreamGetCtx(handle: usize, context: Out<usize>) -> CuError {
        put(context, context_of(stream(handle)?.device()))
    }

    fn cuEventCreate(handle: Out<usize>, _flags: u32) -> CuError {
        current()?;
        put(handle, EVENTS.insert(Event::default()))
    }

    fn cuEventRecord(event_handle: usize, handle: usize) -> CuError {
        event(event_handle)?.record(&stream(handle)?);
        Ok(())
    }

    fn cuEventQuery(event_handle: usize) -> CuError {
        check_unseen()?;
        if event(event_handle)?.is_done() { Ok(()) } else { Err(CuError::NOT_READY) }
    }

    fn cuEventSynchronize(event_handle: usize) -> CuError {
        check_unseen()?;
        let code = event(event_handle)?.synchronize();
        end_of_work(current()?, code)
    }

    fn cuEventElapsedTime(milliseconds: Out<f32>, start: usize, end: usize) -> CuError {
        let (start, end) = (event(start)?, event(end)?);
        if !start.is_done() || !end.is_done() {
            return Err(CuError::NOT_READY);
        }
        put(milliseconds, end.elapsed_ms(&start).ok_or(CuError::INVALID_HANDLE)?)
    }

    fn cuEventDestroy_v2(event_handle: usize) -> CuError {
        EVENTS.remove(event_handle).map(drop).ok_or(CuError::INVALID_HANDLE)
    }
}
