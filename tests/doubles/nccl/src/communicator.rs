//! A communicator, and work on it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;

use unisono_double_common::callers;
use unisono_double_common::fault::{self, Fault};
use unisono_double_common::memory::Part;
use unisono_double_common::mesh::{Broken, Mesh};
use unisono_double_common::movement::Factor;
use unisono_double_common::root::Stop;
use unisono_double_common::stream::{Stream, await_release};
use unisono_double_common::work::Launched;
use unisono_double_common::{Element, Handles, handles, lock, settings, start_thread};

use crate::codes::{IN_PROGRESS, NcclError, REMOTE_ERROR};
use crate::context::CuError;

pub(crate) static COMMUNICATORS: Handles<Communicator> = Handles::new("communicator");

/// A communicator of one rank.
pub(crate) struct Communicator {
    pub(crate) handle: usize,
    pub(crate) device: u32,
    pub(crate) is_blocking: bool,
    /// There when it is made.
    pub(crate) mesh: OnceLock<Mesh>,
    pub(crate) stop: Arc<Stop>,
    /// What `ncclCommGetAsyncError` gives: 0, 7 while an operation is made, or the first error.
    state: Mutex<i32>,
    pub(crate) is_finalized: AtomicBool,
    /// How much work and how many operations are under way, outside of the calls.
    under_way: Mutex<u32>,
    changed: Condvar,
    pub(crate) launched: Launched,
    /// Those of `ncclRedOpCreatePreMulSum`, by their numbers.
    pub(crate) operators: Mutex<BTreeMap<i32, (Element, Factor)>>,
}

/// What is done on the stream's thread.
pub(crate) type Run = Box<dyn FnOnce(&Mesh) -> Result<(), Broken> + Send>;

/// Work of a communicator for a stream.
pub(crate) struct StreamWork {
    pub(crate) fault: Option<Fault>,
    pub(crate) inputs: Vec<Part>,
    pub(crate) outputs: Vec<Part>,
    pub(crate) run: Run,
}

/// Something is under way, as long as it lives.
struct UnderWay(Arc<Communicator>);

impl UnderWay {
    fn new(communicator: &Arc<Communicator>) -> UnderWay {
        *lock(&communicator.under_way) += 1;
        UnderWay(communicator.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        *lock(&self.0.under_way) -= 1;
        self.0.changed.notify_all();
    }
}

impl Communicator {
    /// One that is to be made.
    pub(crate) fn new(device: u32, is_blocking: bool) -> Arc<Communicator> {
        let make = |handle| {
            Arc::new(Communicator {
                handle,
                device,
                is_blocking,
                mesh: OnceLock::new(),
                stop: Arc::default(),
                state: Mutex::new(0),
                is_finalized: AtomicBool::new(false),
                under_way: Mutex::new(0),
                changed: Condvar::new(),
                launched: Launched::default(),
                operators: Mutex::default(),
            })
        };
        COMMUNICATORS.insert_with(make).1
    }

    /// The communicator of a handle.
    pub(crate) fn of(handle: usize, call: &str) -> Result<Arc<Communicator>, NcclError> {
        if handle == 0 {
            return Err(NcclError::null(call, "comm"));
        }
        let text = || NcclError::argument(format!("{call} : comm {handle:#x} is corrupted or was destroyed"));
        COMMUNICATORS.get(handle).ok_or_else(text)
    }

    /// The communicator of a handle, when it can take a call, and its connections.
    pub(crate) fn ready(handle: usize, call: &str) -> Result<Arc<Communicator>, NcclError> {
        let communicator = Communicator::of(handle, call)?;
        match communicator.state() {
            0 => {}
            IN_PROGRESS => {
                let text = "Attempt to use communicator before the previous operation returned ncclSuccess";
                return Err(NcclError::argument(text));
            }
            code => return Err(NcclError::new(code, format!("{call} : comm has failed before"))),
        }
        if communicator.is_finalized.load(Ordering::SeqCst) {
            return Err(NcclError::argument(format!("{call} : comm is finalized")));
        }
        Ok(communicator)
    }

    /// The connections, which are there when it is ready.
    pub(crate) fn mesh(&self) -> Result<&Mesh, NcclError> {
        self.mesh.get().ok_or_else(|| NcclError::argument("comm is not initialized"))
    }

    pub(crate) fn state(&self) -> i32 {
        *lock(&self.state)
    }

    /// Notes an error of work or of an operation; the first one stays.
    pub(crate) fn fail(&self, error: &NcclError) {
        error.note();
        let mut state = lock(&self.state);
        if matches!(*state, 0 | IN_PROGRESS) {
            *state = error.code;
        }
    }

    /// From now on an operation is under way.
    pub(crate) fn set_in_progress(&self) {
        *lock(&self.state) = IN_PROGRESS;
    }

    /// Ends the operation that was under way.
    pub(crate) fn end_operation(&self, result: &Result<(), NcclError>) {
        if let Err(error) = result {
            return self.fail(error);
        }
        let mut state = lock(&self.state);
        if *state == IN_PROGRESS {
            *state = 0;
        }
    }

    /// Does an operation: in the call, or later if calls do not block.
    pub(crate) fn operate(
        self: &Arc<Communicator>,
        operation: impl FnOnce() -> Result<(), NcclError> + Send + 'static,
    ) -> Result<(), NcclError> {
        let there = callers::work_on(self.device, self.handle, "an operation");
        if self.is_blocking {
            return operation();
        }
        self.set_in_progress();
        let under_way = UnderWay::new(self);
        start_thread(move || {
            thread::sleep(settings::delay());
            await_release();
            let result = operation();
            // Whoever learns that it is over may begin another.
            drop(there);
            under_way.0.end_operation(&result);
        });
        Err(NcclError::in_progress())
    }

    /// Gives work to a stream.
    pub(crate) fn enqueue(self: &Arc<Communicator>, stream: &Arc<Stream>, work: StreamWork) -> u64 {
        let StreamWork { fault, inputs, outputs, run } = work;
        let (own, resets) = (self.clone(), fault::resets());
        self.launched.enqueue(stream, [inputs, outputs], move || own.work((fault, resets), run))
    }

    /// Does work on the stream's thread. NCCL's kernels do not end when something is wrong, but when the
    /// communicator is aborted, and then without an error of the stream.
    fn work(self: &Arc<Communicator>, (fault, resets): (Option<Fault>, u64), run: Run) -> i32 {
        let _under_way = UnderWay::new(self);
        let Some(mesh) = self.mesh.get().filter(|_| !self.stop.is_stopped()) else { return 0 };
        let result = match fault {
            Some(Fault::Hang) => Err(None),
            Some(Fault::Code(code)) => Err(Some(NcclError::new(code, "injected"))),
            None => match run(mesh) {
                Ok(()) | Err(Broken::Aborted) => Ok(()),
                Err(Broken::Memory) => return CuError::ILLEGAL_ADDRESS.0,
                Err(Broken::Lost(rank)) => {
                    Err(Some(NcclError::new(REMOTE_ERROR, format!("rank {rank} has closed its connection"))))
                }
                Err(Broken::Mismatch(rank)) => {
                    fault::note_misuse();
                    NcclError::argument(format!("rank {rank} has made another call")).note();
                    Err(None)
                }
            },
        };
        if let Err(error) = result {
            error.iter().for_each(|error| self.fail(error));
            fault::hang_since(self.handle, resets);
        }
        0
    }

    /// Ends all work and operations without an end of their own, and returns when they have ended.
    pub(crate) fn abort(&self) {
        self.stop.stop();
        if let Some(mesh) = self.mesh.get() {
            mesh.abort();
        }
        fault::end_hangs(self.handle);
        let ended = self.changed.wait_while(lock(&self.under_way), |count| *count > 0);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
        // What belongs to a communicator goes with it.
        let operators = std::mem::take(&mut *lock(&self.operators));
        handles::count("operator", -(operators.len() as i64));
    }
}
