//! The ends of the processes of other ranks on this host, as the kernel reports them (a pidfd).
//!
//! A process that has forked without exec has left its sockets to its child too: they stay open when it is killed, so
//! no connection shows its end.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use unisono_communicator::JobRank;
use unisono_control::hosts::Hosts;

use crate::descriptors::share;
use crate::rendezvous::{ProcessBirth, RankProcess, process_start_ticks};

/// The most processes that one rank watches, since each takes a descriptor. They are the processes of the next ranks on
/// its host, so each process is watched by as many ranks, among them the neighbours to which it has control
/// connections. A process with few descriptors watches fewer.
const WATCHED_MAX: usize = 16;

/// A process of this host, which anybody may watch.
#[derive(Clone)]
pub(super) struct ProcessWatch {
    pid: u32,
    ended: Arc<AsyncFd<OwnedFd>>,
}

impl ProcessWatch {
    /// Watches the process of a rank, from within the runtime. `None` where the kernel does not allow that, where the
    /// process has its pid in another namespace than ours, and where another process has that pid by now. Then only the
    /// end of its connections shows its end.
    fn open(own: &RankProcess, other: &RankProcess) -> Option<ProcessWatch> {
        let (ours, theirs): (ProcessBirth, ProcessBirth) = (own.birth?, other.birth?);
        let pid = other.process.pid;
        if ours.pid_namespace != theirs.pid_namespace || pid == own.process.pid {
            return None;
        }
        let descriptor = open_process(Pid::from_raw(pid.try_into().ok()?)?)?;
        // Compared after opening: the descriptor stays with the process that had the pid at that moment.
        if process_start_ticks(pid) != Some(theirs.start_ticks) {
            return None;
        }
        #[expect(
            deprecated,
            reason = "what replaces it is unsafe, for descriptors that others may close: not this one"
        )]
        let ended = AsyncFd::with_interest(descriptor, Interest::READABLE).ok()?;
        Some(ProcessWatch { pid, ended: Arc::new(ended) })
    }

    /// Watches the next ranks on the host of `rank`, as far as possible. `processes` is empty when nobody knows.
    pub(super) fn open_all(
        rank: JobRank,
        hosts: &Hosts,
        processes: &[RankProcess],
    ) -> Vec<(JobRank, ProcessWatch)> {
        let ranks = hosts.ranks();
        let neighbours = (1..ranks).map(|distance| JobRank::new((rank.get() + distance) % ranks));
        let neighbours = neighbours.filter(|&other| hosts.are_same(rank, other)).take(share(WATCHED_MAX));
        let process = |rank: JobRank| processes.get(rank.index());
        let open = |other| Some((other, ProcessWatch::open(process(rank)?, process(other)?)?));
        neighbours.filter_map(open).collect()
    }

    /// Returns when the process has ended, with a sentence about that.
    pub(super) async fn ended(&self) -> String {
        // It can only fail with the runtime itself.
        if self.ended.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
        format!("its process has ended, pid {}", self.pid)
    }
}

#[cfg(target_os = "linux")]
fn open_process(pid: Pid) -> Option<OwnedFd> {
    use rustix::process::{PidfdFlags, pidfd_open};

    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Other systems have no such descriptors.
#[cfg(not(target_os = "linux"))]
fn open_process(_pid: Pid) -> Option<OwnedFd> {
    None
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::mpsc::channel;
    use unisono_control::wire::{Message, News, Topic, encode};
    use unisono_control::{ConnectionNumber, End};

    use super::super::driver::EVENTS_MAX;
    use super::super::tasks::{TaskResult, read_messages};
    use super::*;
    use crate::rendezvous::own_process;
    use crate::skip::skip;

    /// A process that ends with its input.
    fn child() -> (Child, RankProcess) {
        let mut command = Command::new("cat");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let (pid, start_ticks) = (child.id(), process_start_ticks(child.id()).unwrap());
        let mut process = own_process();
        process.process.pid = pid;
        process.birth = Some(ProcessBirth { start_ticks, ..process.birth.unwrap() });
        (child, process)
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn the_end_of_a_process_is_seen_by_all_who_wait_and_by_those_who_come_later() {
        let (mut child, process) = child();
        runtime().block_on(async {
            let Some(watch) = ProcessWatch::open(&own_process(), &process) else {
                return skip("pidfd", "the kernel allows none");
            };
            let waiting: Vec<_> = (0..3)
                .map(|_| {
                    let watch = watch.clone();
                    tokio::spawn(async move { watch.ended().await })
                })
                .collect();
            let early = tokio::time::timeout(Duration::from_millis(50), watch.ended()).await;
            assert!(early.is_err(), "it lives");
            child.kill().unwrap();
            let limit = Duration::from_secs(60);
            for one in waiting {
                let reason = tokio::time::timeout(limit, one).await.unwrap().unwrap();
                assert_eq!(reason, format!("its process has ended, pid {}", process.process.pid));
            }
            tokio::time::timeout(limit, watch.ended()).await.unwrap();
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Another process, here this test, holds the connection of the ended process: a goodbye comes, but no end of
    /// stream.
    #[test]
    fn what_a_process_has_sent_is_read_before_its_end_counts() {
        let peer = JobRank::new(1);
        let news = News { origin: peer, sequence: 1, topic: Topic::Goodbye };
        let mut sent = Vec::new();
        encode(&Message::News(news.into()), &mut sent);
        // The next message has begun, and the rest of it will not come.
        sent.extend_from_slice(&[9, 0, 0, 0, 4]);
        for round in 0..20 {
            let (mut child, process) = child();
            runtime().block_on(async {
                let Some(watch) = ProcessWatch::open(&own_process(), &process) else {
                    return skip("pidfd", "the kernel allows none");
                };
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let held = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                let (reader, _writer) = listener.accept().await.unwrap().0.into_split();
                let (events, mut received) = channel(EVENTS_MAX);
                let process = Some(watch.clone());
                let mut reading = Some(read_messages((peer, ConnectionNumber::default()), reader, process, events));
                // In every second round a reader is already waiting.
                reading.take_if(|_| round % 2 == 0).map(tokio::spawn);
                tokio::task::yield_now().await;
                held.writable().await.unwrap();
                assert_eq!(held.try_write(&sent).unwrap(), sent.len());
                child.kill().unwrap();
                if let Some(reading) = reading {
                    watch.ended().await;
                    tokio::spawn(reading);
                }
                let limit = Duration::from_secs(60);
                let first = tokio::time::timeout(limit, received.recv()).await.unwrap();
                let is_goodbye = |message: &Message| {
                    matches!(message, Message::News(news) if matches!(news.topic, Topic::Goodbye))
                };
                assert!(
                    matches!(first, Some(TaskResult::Message { message, .. }) if is_goodbye(&message))
                );
                let second = tokio::time::timeout(limit, received.recv()).await.unwrap();
                let is_end = |end: &End| matches!(end, End::ProcessEnded(_));
                assert!(
                    matches!(second, Some(TaskResult::Ended { end, .. }) if is_end(&end))
                );
            });
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn no_other_process_is_watched() {
        let (mut child, process) = child();
        let birth = process.birth.unwrap();
        runtime().block_on(async {
            let opens = |birth: Option<ProcessBirth>| {
                ProcessWatch::open(&own_process(), &RankProcess { birth, ..process.clone() }).is_some()
            };
            let recycled = ProcessBirth { start_ticks: birth.start_ticks + 1, ..birth };
            assert!(!opens(Some(recycled)), "the pid of another process");
            let elsewhere = ProcessBirth { pid_namespace: birth.pid_namespace + 1, ..birth };
            assert!(!opens(Some(elsewhere)), "a pid of another namespace");
            assert!(!opens(None), "nothing is known");
            assert!(ProcessWatch::open(&own_process(), &own_process()).is_none(), "this process");
        });
        child.kill().unwrap();
        child.wait().unwrap();
        runtime().block_on(async {
            assert!(ProcessWatch::open(&own_process(), &process).is_none(), "it is gone");
        });
    }
}
