//! Bits that change on the way between ranks: every rank gets the same error, which names the link, and nobody a wrong
//! result.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use unisono_communicator::{Collectives, Communicator, Error, ReduceOp};
use unisono_transport_tcp::World;
use unisono_transport_tcp::handshake::HELLO_BYTES;
use unisono_transport_tcp::rendezvous::Membership;

const RANKS: u32 = 3;

/// Jobs, in each of which one bit changes.
const JOBS: u64 = 60;

/// Where a hello says what its connection is for, and what a data connection says there.
const PURPOSE_BYTE: usize = 11;
const PURPOSE_DATA: u8 = 1;

/// No handshake, verdict or acknowledgement is as long.
const DATA_FROM: u64 = 1000;

/// Calls after which every stream that carries data has carried more than the last byte a flip may hit.
const ROUNDS_MAX: u64 = 100;

/// One bit of the first stream between two ranks, in either direction, that carries so many bytes: who dialled a
/// connection, and so which way its data goes, is not the same in every run.
#[derive(Clone)]
struct Flip {
    byte: u64,
    bit: u8,
    /// Once in a job.
    is_done: Arc<AtomicBool>,
}

impl Flip {
    fn apply(&self, offset: u64, bytes: &mut [u8]) {
        let place = self.byte.checked_sub(offset).filter(|place| *place < bytes.len() as u64);
        if let Some(place) = place
            && !self.is_done.swap(true, Ordering::SeqCst)
        {
            bytes[place as usize] ^= 1 << self.bit;
        }
    }
}

/// Stands before a rank: what connects here is connected to `target`. Ends with the test's process.
fn proxy(target: SocketAddr, flip: Flip) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for dialled in listener.incoming().map_while(Result::ok) {
            // A rank that has gone takes its connections along.
            let Ok(accepted) = TcpStream::connect(target) else { continue };
            let flip = flip.clone();
            thread::spawn(move || pass(dialled, accepted, &flip));
        }
    });
    address
}

fn pass(mut dialled: TcpStream, mut accepted: TcpStream, flip: &Flip) {
    let mut hello = [0; HELLO_BYTES];
    if dialled.read_exact(&mut hello).is_err() || accepted.write_all(&hello).is_err() {
        return;
    }
    let is_data = hello[PURPOSE_BYTE] == PURPOSE_DATA;
    let (back_from, back_to) = (accepted.try_clone().unwrap(), dialled.try_clone().unwrap());
    let flip = is_data.then(|| flip.clone());
    let back_flip = flip.clone();
    let back = thread::spawn(move || forward(back_from, back_to, 0, back_flip));
    forward(dialled, accepted, HELLO_BYTES as u64, flip);
    back.join().unwrap();
}

fn forward(mut from: TcpStream, mut to: TcpStream, mut offset: u64, flip: Option<Flip>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        if let Some(flip) = &flip {
            flip.apply(offset, &mut buffer[..bytes]);
        }
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
        offset += bytes as u64;
    }
    // The other side may have closed before.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

/// Calls until one fails. Every result before is right.
fn until_failure(communicator: &dyn Communicator) -> Error {
    for round in 0..ROUNDS_MAX {
        let mut values: Vec<u64> = (0..1 + round * 3000).map(|index| index ^ round).collect();
        if let Err(error) = communicator.all_reduce(&mut values, ReduceOp::Sum) {
            return error;
        }
        let expected = (0..).map(|index| u64::from(RANKS) * (index ^ round));
        assert!(values.iter().copied().eq(expected.take(values.len())), "a wrong result in round {round}");
    }
    panic!("no bit has changed, or nobody saw it")
}

#[test]
fn a_changed_bit_fails_the_call_on_every_rank_and_names_the_link() {
    let config = support::config(&[("UNISONO_CHECKSUM", "on")]);
    let mut random = 1u64;
    for job in 0..JOBS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let flip = Flip {
            byte: DATA_FROM + (random >> 30) % 500_000,
            bit: (random >> 20) as u8 % 8,
            is_done: Arc::default(),
        };
        let (listeners, mut members) = support::listeners(RANKS, &config);
        members.addresses.iter_mut().for_each(|address| *address = proxy(*address, flip.clone()));
        let start = |(rank, listener)| {
            World::start(Membership { rank, ..members.clone() }, listener, &config).unwrap()
        };
        let worlds: Vec<World> = (0..).zip(listeners).map(start).collect();
        let links = support::on_each(worlds, move |_world, communicator| {
            let error = until_failure(&*communicator);
            match error.root_cause() {
                Error::Corrupted { from, to, .. } => (*from, *to),
                other => panic!("job {job}: {other}"),
            }
        });
        assert!(flip.is_done.load(Ordering::SeqCst));
        assert!(links.iter().all(|link| *link == links[0] && link.0 != link.1), "job {job}: {links:?}");
    }
}
