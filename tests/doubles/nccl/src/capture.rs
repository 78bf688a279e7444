//! The CUDA driver: captures of streams into graphs, and what threads may do meanwhile.
//!
//! The rules are those of `cuThreadExchangeStreamCaptureMode` and `cuStreamBeginCapture` in `cuda.h` (12.9). A call
//! that no capture sees, such as an allocation or a question about an event, is refused with
//! CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED and voids the captures that forbid it. A thread in global mode, the default,
//! must not make one while it captures itself, unless in relaxed mode, nor while another thread captures in global
//! mode; a thread in thread-local mode looks at its own captures only, and one in relaxed mode at none.

use std::cell::Cell;
use std::sync::Mutex;
use std::thread::{self, ThreadId};

use unisono_double_common::{Handles, Out, export, lock};

use crate::context::{CuError, put};
use crate::driver_stream::{DEFAULT_STREAMS, stream};

/// What captures have made.
static GRAPHS: Handles<()> = Handles::new("graph");

/// `CUstreamCaptureMode`.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Global = 0,
    ThreadLocal = 1,
    Relaxed = 2,
}

impl Mode {
    fn of(number: i32) -> Result<Mode, CuError> {
        let modes = [Mode::Global, Mode::ThreadLocal, Mode::Relaxed];
        modes.into_iter().find(|mode| *mode as i32 == number).ok_or(CuError::INVALID_VALUE)
    }
}

struct Capture {
    stream: usize,
    by: ThreadId,
    mode: Mode,
    is_void: bool,
}

static CAPTURES: Mutex<Vec<Capture>> = Mutex::new(Vec::new());

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Refuses what no capture sees, where one forbids it.
pub(crate) fn check_unseen() -> Result<(), CuError> {
    let (own, mode) = (thread::current().id(), MODE.get());
    let forbids = |capture: &&mut Capture| {
        let is_own = capture.by == own && capture.mode != Mode::Relaxed;
        match mode {
            Mode::Global => is_own || capture.mode == Mode::Global,
            Mode::ThreadLocal => is_own,
            Mode::Relaxed => false,
        }
    };
    let mut captures = lock(&CAPTURES);
    let voided = captures.iter_mut().filter(forbids).map(|capture| capture.is_void = true).count();
    if voided == 0 { Ok(()) } else { Err(CuError::STREAM_CAPTURE_UNSUPPORTED) }
}

export! {
    fn cuThreadExchangeStreamCaptureMode(mode: Out<i32>) -> CuError {
        let wanted = Mode::of(mode.get().ok_or(CuError::INVALID_VALUE)?)?;
        put(mode, MODE.replace(wanted) as i32)
    }

    fn cuStreamIsCapturing(handle: usize, status: Out<i32>) -> CuError {
        let is_capturing = stream(handle)?.is_capturing();
        let is_void = lock(&CAPTURES).iter().any(|capture| capture.stream == handle && capture.is_void);
        // CU_STREAM_CAPTURE_STATUS_NONE, _ACTIVE and _INVALIDATED.
        put(status, i32::from(is_capturing) + i32::from(is_void))
    }

    fn cuStreamBeginCapture_v2(handle: usize, mode: i32) -> CuError {
        let mode = Mode::of(mode)?;
        if DEFAULT_STREAMS.contains(&handle) || stream(handle)?.set_capturing(true) {
            return Err(CuError::STREAM_CAPTURE_UNSUPPORTED);
        }
        let by = thread::current().id();
        lock(&CAPTURES).push(Capture { stream: handle, by, mode, is_void: false });
        Ok(())
    }

    fn cuStreamEndCapture(handle: usize, graph: Out<usize>) -> CuError {
        if !stream(handle)?.set_capturing(false) {
            return Err(CuError::INVALID_VALUE);
        }
        let mut captures = lock(&CAPTURES);
        let is_void = captures.iter().any(|capture| capture.stream == handle && capture.is_void);
        captures.retain(|capture| capture.stream != handle);
        if is_void {
            put(graph, 0)?;
            return Err(CuError::STREAM_CAPTURE_INVALIDATED);
        }
        put(graph, GRAPHS.insert(()))
    }

    fn cuGraphDestroy(graph: usize) -> CuError {
        GRAPHS.remove(graph).map(drop).ok_or(CuError::INVALID_VALUE)
    }
}
