//! A communicator, and work on it.

use std::sync::{Arc, Mutex};

use unisono_double_common::fault::{self, Fault};
use unisono_double_common::memory::Part;
use unisono_double_common::mesh::{Broken, Mesh};
use unisono_double_common::stream::Stream;
use unisono_double_common::work::Launched;
use unisono_double_common::{Handles, lock};

use crate::codes::{AclError, HcclError};

pub(crate) static COMMUNICATORS: Handles<Communicator> = Handles::new("communicator");

/// A communicator of one rank.
pub(crate) struct Communicator {
    pub(crate) handle: usize,
    pub(crate) device: u32,
    pub(crate) mesh: Mesh,
    /// What `HcclGetCommAsyncError` gives.
    error: Mutex<i32>,
    pub(crate) launched: Launched,
}

impl Communicator {
    /// Keeps a communicator, and gives its handle.
    pub(crate) fn keep(device: u32, mesh: Mesh) -> usize {
        let make = |handle| {
            Arc::new(Communicator {
                handle,
                device,
                mesh,
                error: Mutex::new(0),
                launched: Launched::default(),
            })
        };
        COMMUNICATORS.insert_with(make).0
    }

    /// The communicator of a handle.
    pub(crate) fn of(handle: usize) -> Result<Arc<Communicator>, HcclError> {
        if handle == 0 {
            return Err(HcclError::PTR);
        }
        COMMUNICATORS.get(handle).ok_or(HcclError::PARA)
    }

    /// The same, unless work on it has failed.
    pub(crate) fn ready(handle: usize) -> Result<Arc<Communicator>, HcclError> {
        let communicator = Communicator::of(handle)?;
        match communicator.error() {
            0 => Ok(communicator),
            code => Err(HcclError(code)),
        }
    }

    pub(crate) fn error(&self) -> i32 {
        *lock(&self.error)
    }

    fn fail(&self, code: i32) {
        let mut error = lock(&self.error);
        if *error == 0 {
            *error = code;
        }
    }

    /// Gives work to a stream.
    pub(crate) fn enqueue(
        self: &Arc<Communicator>,
        stream: &Arc<Stream>,
        parts: [Vec<Part>; 2],
        run: impl FnOnce(&Mesh) -> Result<(), Broken> + Send + 'static,
    ) {
        let own = self.clone();
        let (fault, resets) = (fault::take_of_work(), fault::resets());
        self.launched.enqueue(stream, parts, move || own.work((fault, resets), run));
    }

    /// Does work on the stream's thread.
    fn work(
        &self,
        (fault, resets): (Option<Fault>, u64),
        run: impl FnOnce(&Mesh) -> Result<(), Broken>,
    ) -> i32 {
        let code = match fault {
            Some(Fault::Code(code)) => code,
            Some(Fault::Hang) => self.hang(resets),
            None => match run(&self.mesh) {
                Ok(()) => return 0,
                Err(Broken::Mismatch(_)) => {
                    fault::note_misuse();
                    self.hang(resets)
                }
                Err(broken) => HcclError::from(broken).0,
            },
        };
        self.fail(code);
        AclError::RUNTIME_INTERNAL.0
    }

    /// The code of work whose hang was ended.
    fn hang(&self, resets: u64) -> i32 {
        fault::hang_since(self.handle, resets);
        HcclError::INTERNAL.0
    }
}
