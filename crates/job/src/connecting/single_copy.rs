//! Two ranks of one host agree whether each may read the other's memory, so that long messages are copied once: each
//! shows the other a nonce of its own, tries to read the other's, and says whether it could. Nobody asks the kernel for
//! more than it allows as it is, unless the setting says so.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use unisono_communicator::{Severity, log};
use unisono_shared_memory::{Nonce, OtherProcess, Segments, let_others_read};

/// Whether a rank reads the memory of other ranks of its host, and lets them read its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SingleCopy {
    /// Where the kernel allows it.
    Auto,
    /// The same, and this process lets all processes of its user read its memory.
    On,
    /// Never.
    Off,
}

impl SingleCopy {
    /// The nonce for the other side; `None` if it is not to read this process.
    fn nonce(self) -> Option<Nonce> {
        match self {
            SingleCopy::Off => return None,
            SingleCopy::Auto => {}
            SingleCopy::On => {
                if let Err(error) = let_others_read() {
                    log(Severity::Warn, None, format_args!("UNISONO_SINGLE_COPY=on has no effect: {error}"));
                }
            }
        }
        Nonce::of_this_process().ok()
    }

    /// The other side's process, if this one can read its memory.
    fn process(self, number: Option<i32>, nonce: Option<Nonce>) -> Option<OtherProcess> {
        let reached = match (self, number) {
            (SingleCopy::Off, _) => return None,
            (SingleCopy::Auto | SingleCopy::On, Some(number)) => OtherProcess::new(number, nonce?),
            (SingleCopy::Auto | SingleCopy::On, None) => Err(io::ErrorKind::NotFound.into()),
        };
        let reason = match reached {
            Ok(process) => return Some(process),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                "it is in another PID namespace".to_owned()
            }
            Err(error) => error.to_string(),
        };
        let severity = if self == SingleCopy::On { Severity::Warn } else { Severity::Debug };
        log(severity, None, format_args!("cannot read the memory of a rank of this host: {reason}"));
        None
    }
}

/// Agrees with the other side, which does the same.
///
/// # Errors
/// When the other side has gone.
pub(super) async fn agree(
    stream: &mut UnixStream,
    setting: SingleCopy,
    segments: Segments,
) -> io::Result<Segments> {
    // A process has nothing at the address 0.
    let own = setting.nonce().map_or([0; Nonce::BYTES], Nonce::to_bytes);
    stream.write_all(&own).await?;
    let mut theirs = [0; Nonce::BYTES];
    stream.read_exact(&mut theirs).await?;
    let nonce = (theirs != [0; Nonce::BYTES]).then(|| Nonce::from_bytes(&theirs));
    let process = setting.process(stream.peer_cred()?.pid(), nonce);
    stream.write_u8(process.is_some().into()).await?;
    let may_lend = stream.read_u8().await? != 0;
    Ok(segments.with_loans(may_lend, process))
}
