//! The handle of an asynchronous compressed call.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use unisono_communicator::{Error, Result};

use crate::state::CompressionState;

/// The outcome: the result, the buffer, the state.
type Finished<T> = (Result<()>, Vec<T>, CompressionState);

/// The handle of [`crate::CompressedCollectives::compressed_all_reduce_async`]. Dropping it detaches the call: it goes
/// on, and its buffer and state are freed at its end.
#[derive(Debug)]
#[must_use = "the call goes on without its handle, but its result and its errors come from `wait`"]
pub struct CompressedWork<T>(Progress<T>);

#[derive(Debug)]
enum Progress<T> {
    Finished(Box<Finished<T>>),
    Running(JoinHandle<Finished<T>>),
}

impl<T: Send + 'static> CompressedWork<T> {
    pub(crate) fn finished(result: Result<()>, buffer: Vec<T>, state: CompressionState) -> CompressedWork<T> {
        CompressedWork(Progress::Finished(Box::new((result, buffer, state))))
    }

    /// Runs `call` on a thread of its own.
    pub(crate) fn start(
        buffer: Vec<T>,
        state: CompressionState,
        call: impl FnOnce(&mut [T], &mut CompressionState) -> Result<()> + Send + 'static,
    ) -> CompressedWork<T> {
        // A value that moves into a thread that cannot start is lost; from here it is taken back.
        let memory = Arc::new(Mutex::new(Some((buffer, state))));
        let take = |memory: &Mutex<Option<(Vec<T>, CompressionState)>>| {
            memory.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        let theirs = memory.clone();
        let run = move || {
            #[expect(clippy::expect_used, reason = "its starter takes it only where this thread is missing")]
            let (mut buffer, mut state) = take(&theirs).expect("the buffer is there");
            (call(&mut buffer, &mut state), buffer, state)
        };
        match Builder::new().name("unisono-compress".to_owned()).spawn(run) {
            Ok(thread) => CompressedWork(Progress::Running(thread)),
            Err(error) => {
                let error = Error::system("cannot start the thread of a compressed call", &error);
                #[expect(clippy::expect_used, reason = "there is no thread that could have taken it")]
                let (buffer, state) = take(&memory).expect("the buffer is there");
                CompressedWork::finished(Err(error), buffer, state)
            }
        }
    }

    /// Whether the call has ended. Does not block.
    pub fn is_done(&self) -> bool {
        match &self.0 {
            Progress::Finished(_) => true,
            Progress::Running(thread) => thread.is_finished(),
        }
    }

    /// Blocks until the call has ended: its result, the buffer with the result, and the state.
    ///
    /// # Panics
    /// When the call's thread has panicked, with the same panic.
    pub fn wait(self) -> (Result<()>, Vec<T>, CompressionState) {
        match self.0 {
            Progress::Finished(finished) => *finished,
            Progress::Running(thread) => {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
        }
    }
}
