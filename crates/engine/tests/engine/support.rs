//! A watchdog for tests: none of them may hang.

use std::sync::mpsc;
use std::time::Duration;

/// Longer than any test takes on a busy machine.
const TEST_TIME_MAX: Duration = Duration::from_secs(120);

/// Runs `body`, and fails when it does not return.
pub(crate) fn watched(body: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match finished.recv_timeout(TEST_TIME_MAX) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("hangs"),
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => thread.join().expect("the body"),
    }
}
