//! A proxy between ranks that can harm what passes: it waits, writes a few bytes at a time, ends streams, and changes
//! bits. One stands before every rank of a job.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use unisono_control::handshake::{HELLO_BYTES, Purpose};

use super::plan::{Harm, Pair, Random};
use crate::Problem;

/// Where a hello says what its connection is for, and between whom.
const PURPOSE_BYTE: usize = 11;
const EPOCH_BYTE: usize = 16;
const FROM_BYTE: usize = 24;
const TO_BYTE: usize = 28;

/// No handshake, verdict or acknowledgement is as long: what comes later is data with a checksum.
const DATA_FROM: u64 = 1000;

/// For how long a stream stays slow.
const SLOW_FOR: Duration = Duration::from_millis(200);

/// The most bytes of a write that dribbles.
const DRIBBLE_BYTES: u64 = 7;

/// Writes between two pauses of a stream that dribbles: the others want the processor too.
const DRIBBLES_AT_ONCE: usize = 64;

/// One connection, once its two sides have begun to talk.
struct Wire {
    pair: Pair,
    dialled: TcpStream,
    accepted: TcpStream,
}

/// Whose data is to change.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    /// That of this pair.
    Pair(Pair),
    /// That of any pair in this epoch: what is on its way in an older one nobody reads.
    Epoch(u32),
}

/// What is known of a stream.
#[derive(Clone, Copy)]
struct Stream {
    pair: Pair,
    epoch: u32,
}

/// A bit that is to change.
#[derive(Clone, Copy)]
struct Flip {
    wanted: Wanted,
    /// Not before so many bytes of a stream.
    from: u64,
    bit: u8,
}

/// What all threads of the proxies of one job share.
#[derive(Default)]
pub(crate) struct Wires {
    wires: Mutex<Vec<Wire>>,
    slow: Mutex<Option<(Pair, Harm, Instant)>>,
    flip: Mutex<Option<Flip>>,
    flips: AtomicU64,
    is_over: AtomicBool,
}

/// The proxies of one job. Their threads end when the job has ended and this is dropped.
pub(crate) struct Proxies {
    wires: Arc<Wires>,
    addresses: Vec<SocketAddr>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxies {
    /// One before every address.
    pub(crate) fn start(targets: &[SocketAddr]) -> Result<Proxies, Problem> {
        let wires = Arc::new(Wires::default());
        let mut proxies = Proxies { wires, addresses: Vec::new() };
        for &target in targets {
            let listener = TcpListener::bind(("127.0.0.1", 0))?;
            proxies.addresses.push(listener.local_addr()?);
            let wires = proxies.wires.clone();
            thread::spawn(move || accept(&listener, target, &wires));
        }
        Ok(proxies)
    }

    /// Where they listen, in the order of the targets.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Does harm to the streams of a pair. False when there are none, so that nothing happens.
    pub(crate) fn harm(&self, pair: Pair, harm: Harm, random: &mut Random) -> bool {
        match harm {
            Harm::Delay(_) | Harm::Dribble => {
                *lock(&self.wires.slow) = Some((pair, harm, Instant::now() + SLOW_FOR));
                true
            }
            Harm::Flip => {
                self.flip(Wanted::Pair(pair), 0, random);
                true
            }
            Harm::Cut | Harm::HalfClose => self.end(pair, harm == Harm::Cut, random.percent(50)),
        }
    }

    /// Changes one bit of a stream, not before so many bytes of its data.
    pub(crate) fn flip(&self, wanted: Wanted, after: u64, random: &mut Random) {
        let flip = Flip { wanted, from: DATA_FROM + after, bit: random.below(8) as u8 };
        *lock(&self.wires.flip) = Some(flip);
    }

    /// How many bits have been changed.
    pub(crate) fn flips(&self) -> u64 {
        self.wires.flips.load(Ordering::SeqCst)
    }

    fn end(&self, pair: Pair, both: bool, towards_dialler: bool) -> bool {
        let mut has_ended = false;
        for wire in lock(&self.wires.wires).iter().filter(|wire| wire.pair == pair) {
            // One that has ended before is of an older communicator.
            let side = if towards_dialler { &wire.dialled } else { &wire.accepted };
            has_ended |= side.shutdown(Shutdown::Write).is_ok();
            if both {
                let _ = wire.dialled.shutdown(Shutdown::Both);
                let _ = wire.accepted.shutdown(Shutdown::Both);
            }
        }
        has_ended
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        self.wires.is_over.store(true, Ordering::SeqCst);
        // Wakes those that accept.
        self.addresses.iter().for_each(|address| drop(TcpStream::connect(address)));
    }
}

fn accept(listener: &TcpListener, target: SocketAddr, wires: &Arc<Wires>) {
    for dialled in listener.incoming().map_while(Result::ok) {
        if wires.is_over.load(Ordering::SeqCst) {
            return;
        }
        // One that is stopped still has a place in its queue. Who has gone is not to be reached here either.
        let Ok(accepted) = TcpStream::connect(target) else { return };
        let wires = wires.clone();
        thread::spawn(move || {
            // Its end is no news: both sides have noticed.
            let _ = pass(dialled, accepted, &wires);
        });
    }
}

fn pass(mut dialled: TcpStream, mut accepted: TcpStream, wires: &Arc<Wires>) -> std::io::Result<()> {
    dialled.set_nodelay(true)?;
    accepted.set_nodelay(true)?;
    let mut hello = [0; HELLO_BYTES];
    dialled.read_exact(&mut hello)?;
    let number = |at: usize| u32::from_le_bytes([hello[at], hello[at + 1], hello[at + 2], hello[at + 3]]);
    let (from, to) = (number(FROM_BYTE), number(TO_BYTE));
    let is_control = hello[PURPOSE_BYTE] == Purpose::Control as u8;
    let pair = Pair { low: from.min(to), high: from.max(to), is_control };
    let stream = Stream { pair, epoch: number(EPOCH_BYTE) };
    accepted.write_all(&hello)?;
    let wire = Wire { pair, dialled: dialled.try_clone()?, accepted: accepted.try_clone()? };
    let mut all = lock(&wires.wires);
    all.retain(|wire| wire.dialled.peer_addr().is_ok() && wire.accepted.peer_addr().is_ok());
    all.push(wire);
    drop(all);
    let (back_from, back_to, back_wires) = (accepted.try_clone()?, dialled.try_clone()?, wires.clone());
    let back = thread::spawn(move || forward(back_from, back_to, stream, &back_wires));
    forward(dialled, accepted, stream, wires);
    // It says nothing.
    let _ = back.join();
    Ok(())
}

fn forward(mut from: TcpStream, mut to: TcpStream, stream: Stream, wires: &Wires) {
    let mut buffer = vec![0; 64 * 1024];
    let mut offset = 0;
    loop {
        let bytes = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        wires.change(stream, offset, &mut buffer[..bytes]);
        if wires.write(stream.pair, &mut to, &buffer[..bytes]).is_err() {
            break;
        }
        offset += bytes as u64;
    }
    // The other side may have closed before.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

impl Wires {
    fn change(&self, stream: Stream, offset: u64, bytes: &mut [u8]) {
        let end = offset + bytes.len() as u64;
        let is_here = |flip: &mut Flip| {
            let is_wanted = match flip.wanted {
                Wanted::Pair(pair) => pair == stream.pair,
                Wanted::Epoch(epoch) => epoch == stream.epoch && !stream.pair.is_control,
            };
            is_wanted && end > flip.from
        };
        if let Some(flip) = lock(&self.flip).take_if(is_here) {
            let place = flip.from.saturating_sub(offset) as usize;
            bytes[place] ^= 1 << flip.bit;
            self.flips.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn write(&self, pair: Pair, to: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
        let slow = lock(&self.slow).filter(|slow| slow.0 == pair && Instant::now() < slow.2);
        match slow {
            Some((_, Harm::Delay(time), _)) => thread::sleep(time),
            Some((_, Harm::Dribble, until)) => return dribble(to, bytes, until),
            Some((_, Harm::Cut | Harm::HalfClose | Harm::Flip, _)) | None => {}
        }
        to.write_all(bytes)
    }
}

/// A few bytes at a time, until the time is over.
fn dribble(to: &mut TcpStream, mut bytes: &[u8], until: Instant) -> std::io::Result<()> {
    let mut random = Random::new(bytes.len() as u64);
    for turn in 1.. {
        let some = (1 + random.below(DRIBBLE_BYTES) as usize).min(bytes.len());
        if some == 0 || Instant::now() > until {
            break;
        }
        to.write_all(&bytes[..some])?;
        bytes = &bytes[some..];
        if turn % DRIBBLES_AT_ONCE == 0 {
            thread::sleep(Duration::from_micros(100));
        }
    }
    to.write_all(bytes)
}
