//! Files where their size is limited (`ulimit -f`).
//!
//! A process that writes beyond the limit gets SIGXFSZ, which ends the process unless the program has said otherwise.
//! Where the signal is blocked the write fails with EFBIG, as it does with ENOSPC on a full disk. The program decides
//! about the signal, so it is blocked in a thread of our own: the kernel sends it to the thread that writes, and the
//! signal ends with that thread.

#![expect(unsafe_code, reason = "system calls without a safe function")]

use std::io;
use std::mem::MaybeUninit;

/// Runs a function that writes a file, so that a file that would become too large is an error and nothing else.
pub(crate) fn write_limited<R: Send>(write: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
    std::thread::scope(|scope| {
        let write = || {
            block_size_signal();
            write()
        };
        let thread = std::thread::Builder::new().name("unisono-file".into()).spawn_scoped(scope, write)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Blocks SIGXFSZ in this thread, as long as it lives.
fn block_size_signal() {
    let mut signals = MaybeUninit::uninit();
    // SAFETY: the first call makes an empty set of it, which the others use; nothing is asked of the mask before. None
    // of them can fail: the signal exists, and so does the way of changing the mask.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), std::ptr::null_mut());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::sync::Arc;

    use unisono_backend::Board;
    use unisono_communicator::{Error, Group, GroupRank, JobRank};
    use unisono_control::handshake::JobId;
    use unisono_control::secret::Secret;
    use unisono_control::wire::CommunicatorKey;

    use crate::config::Config;
    use crate::flight::Recorder;
    use crate::program::words;
    use crate::rendezvous::tests::meet;
    use crate::secret::create_secret_file;
    use crate::secret::tests::TestDirectory;

    /// Writes every kind of file, in a process that may write none.
    pub(crate) fn one_limited_process() {
        let config = Config::from_environment().unwrap();
        let folder = config.runtime_directory.clone().unwrap();
        let job = JobId::random().unwrap();
        let recorder = Recorder::start(0, job, Some(folder.clone())).unwrap();
        let group = Group::new(GroupRank::new(0), vec![JobRank::new(0)].into(), vec![0].into(), 0);
        let board = Arc::new(Board::new(GroupRank::new(0), 1));
        recorder.register(CommunicatorKey { id: 0, epoch: 0 }, group, &board);
        board.first_cause().revoke(JobRank::new(0), Arc::new(Error::closed()));
        let asked = recorder.record().write(&folder).unwrap_err().to_string();
        assert!(asked.contains("rank-0.json") && asked.contains("File too large"), "{asked}");
        let secret =
            create_secret_file(&Secret::random().unwrap(), &folder.join("secret")).unwrap_err().to_string();
        assert!(secret.contains("secret") && secret.contains("File too large"), "{secret}");
        drop(recorder);
        let meeting = meet(&config, ([127, 0, 0, 1], 1).into(), Vec::new()).unwrap_err().to_string();
        assert!(meeting.contains(".store") && meeting.contains("File too large"), "{meeting}");
        // The action of the signal has not changed, and none is pending: the next write of the program ends it.
        fs::write(folder.join("own"), "x").unwrap();
    }

    #[test]
    fn a_limit_is_an_error_and_the_process_lives() {
        let folder = TestDirectory::new();
        let done = Command::new("sh")
            .args(["-c", "ulimit -f 0; exec \"$0\" \"$@\"", "env"])
            .args(words("limited"))
            .env("XDG_RUNTIME_DIR", &folder.0)
            .envs([("UNISONO_RANK", "0"), ("UNISONO_WORLD_SIZE", "2")])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.signal(), Some(libc::SIGXFSZ), "{err}");
        assert!(!err.contains("panicked"), "{err}");
        let lines: Vec<&str> = err.lines().filter(|line| line.starts_with("unisono: ")).collect();
        assert_eq!(lines.len(), 1, "{err}");
        assert!(lines[0].contains("rank-0.json: File too large"), "{err}");
    }
}
