//! The key-value store of PMI-1, in which the launchers of MPICH and of Intel MPI let ranks on several hosts find
//! rank 0.
//!
//! A request is a line of words `name=value` that begins with `cmd=`, and so is its answer (MPICH's
//! `src/pmi/src/pmi_v1.c`). They pass through the descriptor of `PMI_FD`, which an MPI library of the same process uses
//! too: nothing is read beyond the line that answers, and neither `init` nor an early `finalize` is sent. Launchers
//! answer without `init`, and an MPI library cannot begin behind a `finalize`. But a process that has asked for
//! anything and ends without `finalize` counts as failed, and the others are killed; so it is sent at the exit.
//!
//! Values are seen behind a fence of all ranks (`barrier_in`). No secret passes here: between hosts the launcher sends
//! all of it as plain text.

#![expect(unsafe_code, reason = "borrows an inherited descriptor by its number")]

use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use crate::meeting_store::MeetingStore;

/// No descriptor of a standard stream.
const FIRST_OTHER: i32 = 3;

/// The time for which a launcher is waited for that answers by itself. Only a fence waits for ranks.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// The same at the exit of the process.
const EXIT_WAIT: Duration = Duration::from_secs(1);

/// The longest answer: MPICH allows values of 1024 bytes, Intel MPI 4096.
const LINE_BYTES_MAX: usize = 8 << 10;

/// The store of one meeting. Meetings of a process have keys of their own, for a key is put once.
#[derive(Debug)]
pub(crate) struct PmiStore {
    descriptor: i32,
    /// Its number in this process; `None` before its fence.
    meeting: Mutex<Option<u32>>,
}

/// The descriptor, and the state of the talk.
struct Channel {
    socket: File,
    kvs: String,
    /// The beginning of a line.
    held: Vec<u8>,
    /// Whether a fence has begun and has not ended.
    is_fencing: bool,
    meetings: u32,
}

/// The channel of this process, once it has asked for anything; an error after the launcher has broken it.
static CHANNEL: Mutex<Option<Result<Channel, String>>> = Mutex::new(None);

type Answered<T> = Result<T, Box<dyn Error + Send + Sync>>;

impl PmiStore {
    pub(crate) fn new(descriptor: i32) -> PmiStore {
        PmiStore { descriptor, meeting: Mutex::new(None) }
    }

    /// Does `work` at the channel, and the first time begins this meeting there.
    fn at_channel<T>(&self, work: impl FnOnce(&mut Channel, u32) -> Result<T, String>) -> Answered<T> {
        let mut channel = channel();
        let channel = channel.get_or_insert_with(|| Channel::open(self.descriptor));
        let open = channel.as_mut().map_err(|broken| broken.clone())?;
        let meeting = *self.meeting().get_or_insert_with(|| {
            open.meetings += 1;
            open.meetings
        });
        let done = work(open, meeting);
        if let Err(problem) = &done {
            *channel = Err(problem.clone());
        }
        Ok(done?)
    }

    fn meeting(&self) -> MutexGuard<'_, Option<u32>> {
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MeetingStore for PmiStore {
    /// Begins a fence, whose end is awaited later: the other ranks come at any time.
    fn set(&self, key: &str, value: &[u8]) -> Answered<()> {
        self.at_channel(|channel, meeting| {
            channel.finish_fence(Instant::now() + ANSWER_WAIT)?;
            let value: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            let put = format!("put kvsname={} key={key}-{meeting} value={value}", channel.kvs);
            channel.ask(&put, "put_result")?;
            channel.begin_fence()
        })
    }

    fn get(&self, key: &str, deadline: Instant) -> Answered<Option<Vec<u8>>> {
        let is_first = self.meeting().is_none();
        self.at_channel(|channel, meeting| {
            if is_first {
                channel.finish_fence(Instant::now() + ANSWER_WAIT)?;
                channel.begin_fence()?;
            }
            if channel.is_fencing && !channel.fence(deadline)? {
                return Ok(None);
            }
            let get = format!("get kvsname={} key={key}-{meeting}", channel.kvs);
            let answer = channel.ask(&get, "get_result")?;
            let value =
                word(&answer, "value").and_then(bytes).ok_or_else(|| format!("{answer:?} has no value"))?;
            Ok(Some(value))
        })
    }
}

/// The end of a fence of this meeting is taken out of the descriptor, in which an MPI library looks for other answers.
impl Drop for PmiStore {
    fn drop(&mut self) {
        if self.meeting().is_some()
            && let Some(Ok(channel)) = &mut *channel()
        {
            let _ = channel.finish_fence(Instant::now() + ANSWER_WAIT);
        }
    }
}

fn channel() -> MutexGuard<'static, Option<Result<Channel, String>>> {
    CHANNEL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says goodbye, so that the launcher does not take the end of this process for a failure.
pub(crate) fn leave() {
    // A thread that still joins holds it, and needs no goodbye.
    let Ok(mut channel) = CHANNEL.try_lock() else { return };
    if let Some(Ok(channel)) = &mut *channel {
        let until = Instant::now() + EXIT_WAIT;
        let _ = channel.finish_fence(until);
        // It may be gone, or an MPI library has said it.
        let _ = channel.send("finalize").and_then(|()| channel.line(until));
    }
}

impl Channel {
    fn open(descriptor: i32) -> Result<Channel, String> {
        let refused = |error: Errno| format!("PMI_FD={descriptor}: {error}");
        if descriptor < FIRST_OTHER {
            return Err(refused(Errno::BADF));
        }
        // SAFETY: the descriptor is only duplicated within this function. If its number belongs to nothing, that fails.
        let inherited = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let socket = fcntl_dupfd_cloexec(inherited, FIRST_OTHER).map_err(refused)?;
        let mut channel = Channel {
            socket: socket.into(),
            kvs: String::new(),
            held: Vec::new(),
            is_fencing: false,
            meetings: 0,
        };
        let answer = channel.ask("get_my_kvsname", "my_kvsname")?;
        channel.kvs =
            word(&answer, "kvsname").ok_or_else(|| format!("{answer:?} has no kvsname"))?.to_owned();
        Ok(channel)
    }

    /// A request that the launcher answers by itself.
    fn ask(&mut self, request: &str, answer: &str) -> Result<String, String> {
        self.send(request)?;
        let line = self.line(Instant::now() + ANSWER_WAIT)?.ok_or("it does not answer")?;
        checked(line, answer)
    }

    fn begin_fence(&mut self) -> Result<(), String> {
        self.is_fencing = true;
        self.send("barrier_in")
    }

    /// Whether the fence has ended by `deadline`.
    fn fence(&mut self, deadline: Instant) -> Result<bool, String> {
        let Some(line) = self.line(deadline)? else { return Ok(false) };
        self.is_fencing = false;
        checked(line, "barrier_out").map(|_| true)
    }

    fn finish_fence(&mut self, deadline: Instant) -> Result<(), String> {
        match self.is_fencing && !self.fence(deadline)? {
            true => Err("a fence has not ended: not all ranks have come to it".to_owned()),
            false => Ok(()),
        }
    }

    fn send(&mut self, request: &str) -> Result<(), String> {
        self.socket.write_all(format!("cmd={request}\n").as_bytes()).map_err(|error| lost(&error))
    }

    /// The next line, if it comes by `deadline`. Byte for byte: the line behind it may be for an MPI library.
    fn line(&mut self, deadline: Instant) -> Result<Option<String>, String> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.socket.as_fd(), PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(lost(&error.into())),
            }
            let mut byte = [0];
            match self.socket.read(&mut byte) {
                Ok(0) => return Err(lost(&io::ErrorKind::UnexpectedEof.into())),
                Ok(_) if byte == *b"\n" => {
                    let line = std::mem::take(&mut self.held);
                    return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
                }
                Ok(_) if self.held.len() >= LINE_BYTES_MAX => return Err("its answer has no end".to_owned()),
                Ok(_) => self.held.push(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(&error)),
            }
        }
    }
}

fn lost(error: &io::Error) -> String {
    format!(
        "the launcher has closed it ({error}), as it does behind MPI_Finalize: call init before, or set MASTER_ADDR"
    )
}

/// The value of a word `name=value`.
fn word<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// An answer of this kind, if the launcher has obeyed.
fn checked(line: String, kind: &str) -> Result<String, String> {
    let is_done = word(&line, "cmd") == Some(kind) && word(&line, "rc").is_none_or(|code| code == "0");
    if is_done { Ok(line) } else { Err(format!("{line:?} came, and {kind} is needed")) }
}

/// The bytes that a value has in hexadecimal digits.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    digits.chunks(2).map(|pair| Some((pair[0] * 16 + *pair.get(1)?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{BufRead, BufReader};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Answers of launchers: of MPICH 5.0.2, and of Intel MPI 2021.19.
    #[test]
    fn answers_are_understood_or_refused() {
        for (line, kind, name, value) in [
            (
                "cmd=my_kvsname rc=0 kvsname=kvs_30218_0_1338711496_vm",
                "my_kvsname",
                "kvsname",
                "kvs_30218_0_1338711496_vm",
            ),
            ("cmd=my_kvsname kvsname=kvs_31145_0", "my_kvsname", "kvsname", "kvs_31145_0"),
            ("cmd=get_result rc=0 value=00ff", "get_result", "value", "00ff"),
            ("cmd=get_result rc=0 msg=success value=00ff", "get_result", "value", "00ff"),
        ] {
            assert_eq!(word(&checked(line.to_owned(), kind).unwrap(), name), Some(value));
        }
        assert!(checked("cmd=barrier_out tag=0".to_owned(), "barrier_out").is_ok());
        for line in ["cmd=put_result rc=-1 msg=duplicate_key", "cmd=barrier_out", "", "put_result"] {
            let text = checked(line.to_owned(), "put_result").unwrap_err();
            assert!(text.contains("put_result is needed"), "{text}");
        }
        assert_eq!(bytes("00ff7F"), Some(vec![0, 255, 127]));
        assert!(bytes("0").is_none() && bytes("0g").is_none());
    }

    /// A double of a launcher with two ranks, which gives the descriptors. As hydra does (`pmip_pmi_v1.c` of MPICH), it
    /// shows values behind a fence only, refuses a second value, and closes a descriptor behind `finalize`.
    fn double() -> [UnixStream; 2] {
        let [(first, a), (second, b)] = [(); 2].map(|()| UnixStream::pair().unwrap());
        let (sender, requests) = mpsc::channel();
        for (rank, source) in [&a, &b].into_iter().enumerate() {
            let (sender, source) = (sender.clone(), BufReader::new(source.try_clone().unwrap()));
            thread::spawn(move || {
                source.lines().map_while(Result::ok).all(|line| sender.send((rank, line)).is_ok())
            });
        }
        drop(sender);
        thread::spawn(move || {
            let (mut ranks, mut fresh, mut shown) = ([a, b], BTreeMap::new(), BTreeMap::new());
            let mut fenced = 0;
            for (rank, line) in requests {
                let key = word(&line, "key").unwrap_or_default().to_owned();
                let answer = match word(&line, "cmd") {
                    Some("get_my_kvsname") => "cmd=my_kvsname rc=0 kvsname=kvs_1".to_owned(),
                    Some("put") if shown.contains_key(&key) => {
                        "cmd=put_result rc=-1 msg=duplicate".to_owned()
                    }
                    Some("put") => {
                        fresh.insert(key, word(&line, "value").unwrap().to_owned());
                        "cmd=put_result rc=0".to_owned()
                    }
                    Some("get") => match shown.get(&key) {
                        Some(value) => format!("cmd=get_result rc=0 value={value}"),
                        None => "cmd=get_result rc=-1 msg=not_found".to_owned(),
                    },
                    Some("barrier_in") if fenced == 0 => {
                        fenced = 1;
                        continue;
                    }
                    Some("barrier_in") => {
                        fenced = 0;
                        shown.append(&mut fresh);
                        ranks[1 - rank].write_all(b"cmd=barrier_out tag=0\n").unwrap();
                        "cmd=barrier_out tag=0".to_owned()
                    }
                    Some("finalize") => {
                        let _ = ranks[rank].write_all(b"cmd=finalize_ack rc=0\n");
                        ranks[rank].shutdown(std::net::Shutdown::Both).unwrap();
                        continue;
                    }
                    other => panic!("{other:?} is no request"),
                };
                ranks[rank].write_all(format!("{answer}\n").as_bytes()).unwrap();
            }
        });
        [first, second]
    }

    const KEY: &str = "unisono/meeting";

    /// The second rank is this process's store, and the first one another channel.
    #[test]
    fn a_value_is_seen_behind_the_fence_and_meetings_have_keys_of_their_own() {
        let ranks = double();
        let mut first = Channel::open(ranks[0].as_raw_fd()).unwrap();
        for meeting in [1, 2] {
            let store = PmiStore::new(ranks[1].as_raw_fd());
            assert!(store.get(KEY, Instant::now()).unwrap().is_none(), "no fence has ended");
            let put = format!("put kvsname={} key={KEY}-{meeting} value=0{meeting}", first.kvs);
            first.ask(&put, "put_result").unwrap();
            first.begin_fence().unwrap();
            let until = Instant::now() + ANSWER_WAIT;
            first.finish_fence(until).unwrap();
            assert_eq!(store.get(KEY, until).unwrap(), Some(vec![meeting]));
            assert_eq!(store.get(KEY, until).unwrap(), Some(vec![meeting]), "again without a fence");
        }
        // As an MPI library of this process does.
        let mut library = ranks[1].try_clone().unwrap();
        library.write_all(b"cmd=finalize\n").unwrap();
        let text = PmiStore::new(ranks[1].as_raw_fd()).set(KEY, &[1]).unwrap_err().to_string();
        assert!(text.contains("MPI_Finalize") || text.contains("finalize_ack"), "{text}");
    }

    #[test]
    fn a_descriptor_that_belongs_to_nothing_is_refused() {
        for descriptor in [-1, 0, 4_000_000] {
            let text = Channel::open(descriptor).err().unwrap();
            assert!(text.starts_with(&format!("PMI_FD={descriptor}: ")), "{text}");
        }
    }
}
