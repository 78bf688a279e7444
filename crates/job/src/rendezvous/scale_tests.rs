//! The cost of a meeting of many ranks for its host: bytes, and processor time. `cargo xtask scale` runs this, and
//! benches/lab/measurements.md has the table.

#![allow(clippy::print_stdout, reason = "a measurement for people at a terminal")]

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use unisono_communicator::Process;
use unisono_control::handshake::{Hello, Purpose, RANK_STORE};
use unisono_control::roster::cpus::Cpus;
use unisono_control::roster::message::{ANSWER_BYTES_MAX, Answer, Arrival, TAKEN};

use super::host::{StoreConfig, StoreHost};
use super::stream::{read_message, write_message};
use super::tests::{loopback, secret};
use super::{HostClaim, JobId, ProcessBirth, RankProcess};
use crate::connecting::initiate;
use crate::descriptors::{RaisedLimit, open_descriptors};
use crate::task_thread::TaskThread;

/// The sizes of the jobs.
const SIZES: [u32; 4] = [64, 256, 1024, 4096];

/// Ranks of one host.
const RANKS_PER_HOST: u32 = 8;

/// The number of ranks that dial at once; others pause, as ranks do that find the host busy.
const DIALS_MAX: usize = 256;

/// A network of 1 Gbit/s.
const BYTES_PER_S: f64 = 125e6;

/// The longest that the largest meeting may take there.
const SECONDS_MAX: f64 = 2.0;

const LONG: Duration = Duration::from_secs(300);

/// A stream that counts its bytes.
struct Counted {
    stream: TcpStream,
    written: u64,
    read: u64,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, into);
        self.read += (into.filled().len() - before) as u64;
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = polled {
            self.written += count as u64;
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The message of a rank of a usual cluster about itself.
fn arrival(rank: u32) -> Arrival {
    let host = rank / RANKS_PER_HOST;
    let noise = rank.wrapping_mul(2_654_435_769);
    let mut id = [0; 16];
    id[..4].copy_from_slice(&host.to_le_bytes());
    let birth = ProcessBirth { pid_namespace: 4_026_531_836, start_ticks: 9_000_000 + u64::from(noise % 90) };
    let name = format!("node{host:04}.cluster.example").into();
    Arrival {
        address: SocketAddr::from((
            Ipv4Addr::from_bits(0x0a00_0100 + host),
            32_768 + (noise % 28_000) as u16,
        )),
        host: HostClaim { id, is_named: false, local_ranks: Some(RANKS_PER_HOST) },
        process: RankProcess {
            process: Process { host: name, pid: 40_000 + host * 7 + rank % 20 },
            birth: Some(birth),
        },
        run: String::new(),
        wait: 0,
        wait_ms: LONG.as_millis() as u64,
        job_settings: vec![0; 64],
        backend: "tcp".to_owned(),
        cpus: Cpus::new([rank as usize % 8], 1),
    }
}

/// One rank from its dial to its answer. Returns the numbers of bytes that it has sent and read.
async fn rank(store: SocketAddr, (rank, ranks): (u32, u32), job: JobId, dials: Arc<Semaphore>) -> (u64, u64) {
    let dial = dials.acquire().await.unwrap();
    let stream = TcpStream::connect(store).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut stream = Counted { stream, written: 0, read: 0 };
    let (communicator, epoch, lane) = (0, 0, 0);
    let (purpose, world_size, from, to) = (Purpose::Store, ranks, rank, RANK_STORE);
    let hello = Hello { purpose, job, communicator, epoch, lane, world_size, from, to };
    initiate(&mut stream, &secret(), &hello, LONG).await.unwrap();
    write_message(&mut stream, &arrival(rank).encode()).await.unwrap();
    drop(dial);
    let answer = read_message(&mut stream, ANSWER_BYTES_MAX).await.unwrap();
    stream.write_u8(TAKEN).await.unwrap();
    // Decoding is the work of the other hosts.
    if rank == 0 {
        let Ok(Answer::Welcome { addresses, .. }) = Answer::decode(&answer) else { panic!("no welcome") };
        assert_eq!(addresses.len(), ranks as usize);
    }
    (stream.written, stream.read)
}

/// The processor time of the thread that runs this.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

fn processor_time_of(thread: &TaskThread) -> Duration {
    let (told, time) = oneshot::channel();
    thread.spawn(async move {
        let _ = told.send(processor_time());
    });
    thread.wait_for(time).unwrap()
}

/// A meeting of so many ranks: the bytes to its host and from it, and the processor time of the host.
fn meeting(ranks: u32) -> (u64, u64, Duration) {
    let (hosting, dialling) = (TaskThread::start("host").unwrap(), TaskThread::start("ranks").unwrap());
    let job = JobId::from_key("tests");
    let config = StoreConfig {
        listen: loopback(0),
        world_size: ranks,
        secret: secret(),
        job,
        handshake_timeout: LONG,
    };
    let store = StoreHost::start_on(&hosting, config, None).unwrap();
    let (dials, address) = (Arc::new(Semaphore::new(DIALS_MAX)), store.address());
    let results: Vec<_> = (0..ranks)
        .map(|one| {
            let (done, result) = oneshot::channel();
            let dials = dials.clone();
            dialling.spawn(async move {
                let _ = done.send(rank(address, (one, ranks), job, dials).await);
            });
            result
        })
        .collect();
    let (mut to, mut from) = (0, 0);
    for result in results {
        let (written, read) = dialling.wait_for(result).expect("each rank is answered");
        to += written;
        from += read;
    }
    drop(store);
    (to, from, processor_time_of(&hosting))
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "a measurement: cargo xtask scale"]
fn meetings_of_many_ranks() {
    println!(
        "| ranks | bytes to the host | bytes from it | a rank and rank | processor ms of the host | s at 1 Gbit/s |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut limit = RaisedLimit::new();
    for ranks in SIZES {
        let needed = open_descriptors() + 2 * u64::from(ranks) + 100;
        if !limit.raise(2 * needed, 2 * needed) && !limit.raise(needed, needed) {
            println!("{ranks} ranks need {needed} descriptors: raise the hard limit (ulimit -n)");
            continue;
        }
        let (to, from, busy) = meeting(ranks);
        let each = from as f64 / f64::from(ranks) / f64::from(ranks);
        let seconds = (to + from) as f64 / BYTES_PER_S + busy.as_secs_f64();
        println!("| {ranks} | {to} | {from} | {each:.1} | {:.0} | {seconds:.2} |", busy.as_secs_f64() * 1e3);
        assert!(seconds <= SECONDS_MAX, "{ranks} ranks take {seconds:.2} s to meet");
    }
}
