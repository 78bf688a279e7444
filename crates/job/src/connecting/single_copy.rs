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
    /// If the kernel allows it.
    Auto,
    /// The same, and this process lets all processes of its user read its memory.
    On,
    /// Never.
    Off,
}

impl SingleCopy {
    /// The nonce for the other side; `None` if it is not to read this process, and when no memory is left.
    pub fn nonce(self) -> Option<Nonce> {
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
            // The kernel has no number for it here.
            (SingleCopy::Auto | SingleCopy::On, None | Some(0)) => Err(io::ErrorKind::NotFound.into()),
            (SingleCopy::Auto | SingleCopy::On, Some(number)) => OtherProcess::new(number, nonce?),
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

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use unisono_shared_memory::Segment;

    use super::*;
    use crate::task_thread::TaskThread;

    fn segments() -> [Segments; 2] {
        let made: [(Segment, OwnedFd); 2] = [(); 2].map(|()| Segment::create(64 << 10).unwrap());
        let [(ours, our_file), (theirs, their_file)] = made;
        [Segments::new(ours, &their_file).unwrap(), Segments::new(theirs, &our_file).unwrap()]
    }

    /// Whether each of two sides with these settings may lend, and whether it can read.
    fn loans(settings: [SingleCopy; 2]) -> [(bool, bool); 2] {
        let agreed = TaskThread::start("test").unwrap().wait_for(async move {
            let (mut one, mut other) = UnixStream::pair().unwrap();
            let [ours, theirs] = segments();
            tokio::join!(agree(&mut one, settings[0], ours), agree(&mut other, settings[1], theirs))
        });
        [agreed.0.unwrap().loans(), agreed.1.unwrap().loans()]
    }

    #[test]
    fn a_side_lends_if_the_other_one_can_read_it() {
        let (auto, off) = (SingleCopy::Auto, SingleCopy::Off);
        assert_eq!(loans([auto, auto]), [(true, true); 2], "both are this process");
        assert_eq!(loans([auto, SingleCopy::On]), [(true, true); 2]);
        assert_eq!(loans([auto, off]), [(false, false); 2]);
        assert_eq!(loans([off, off]), [(false, false); 2]);
    }

    /// Rows: D9
    #[test]
    fn a_nonce_that_is_wrong_is_read_by_nobody() {
        let [ours, _] = segments();
        let (loans, theirs) = TaskThread::start("test").unwrap().wait_for(async move {
            let (mut one, mut other) = UnixStream::pair().unwrap();
            let other_side = async {
                let mut nonce = Nonce::of_this_process().unwrap().to_bytes();
                nonce[Nonce::BYTES - 1] ^= 1;
                other.write_all(&nonce).await.unwrap();
                other.read_exact(&mut nonce).await.unwrap();
                other.write_u8(1).await.unwrap();
                other.read_u8().await.unwrap()
            };
            tokio::join!(async { agree(&mut one, SingleCopy::Auto, ours).await.unwrap().loans() }, other_side)
        });
        assert_eq!((loans, theirs), ((true, false), 0));
    }
}
