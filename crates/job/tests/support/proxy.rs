//! A proxy before every rank of a job, through which all connections go, and a test's hand in the bytes that pass.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use unisono_control::handshake::HELLO_BYTES;
use unisono_job::Job;
use unisono_job::config::Config;
use unisono_job::rendezvous::Membership;

use crate::TRANSPORT;

use crate::support;

/// The byte of a hello with the purpose of its connection, and its value for a data connection.
const PURPOSE_BYTE: usize = 11;
const PURPOSE_DATA: u8 = 1;

/// The act of a test on the connections between ranks.
pub(crate) trait Meddler: Clone + Send + 'static {
    /// Two sides have begun to talk, over these two sockets.
    fn on_stream(&self, _is_data: bool, _sides: [&TcpStream; 2]) {}

    /// Bytes pass in one direction of a stream, of which so many have passed before.
    fn on_bytes(&self, _is_data: bool, _offset: u64, _bytes: &mut [u8]) {}

    /// Whether the end of one side is kept from the other, which then talks to nobody.
    fn hides_ends(&self, _is_data: bool) -> bool {
        false
    }
}

/// As [`support::worlds`], but the ranks know only their proxies, which end with the test's process.
pub(crate) fn worlds(ranks: u32, config: &Config, meddler: &impl Meddler) -> Vec<Job> {
    let (listeners, mut members) = support::listeners(ranks, config);
    members.addresses.iter_mut().for_each(|address| *address = proxy(*address, meddler.clone()));
    let start = |(rank, listener)| {
        Job::start(Membership { rank, ..members.clone() }, listener, config, &TRANSPORT).unwrap()
    };
    (0..).zip(listeners).map(start).collect()
}

/// Stands before a rank: a connection here is connected to `target`.
fn proxy(target: SocketAddr, meddler: impl Meddler) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for dialled in listener.incoming().map_while(Result::ok) {
            // A rank that has gone takes its connections along.
            let Ok(accepted) = TcpStream::connect(target) else { continue };
            let meddler = meddler.clone();
            thread::spawn(move || pass(dialled, accepted, &meddler));
        }
    });
    address
}

fn pass(mut dialled: TcpStream, mut accepted: TcpStream, meddler: &impl Meddler) {
    let mut hello = [0; HELLO_BYTES];
    if dialled.read_exact(&mut hello).is_err() || accepted.write_all(&hello).is_err() {
        return;
    }
    let is_data = hello[PURPOSE_BYTE] == PURPOSE_DATA;
    meddler.on_stream(is_data, [&dialled, &accepted]);
    let (back_from, back_to) = (accepted.try_clone().unwrap(), dialled.try_clone().unwrap());
    let back_meddler = meddler.clone();
    let back = thread::spawn(move || forward(back_from, back_to, (is_data, 0), &back_meddler));
    forward(dialled, accepted, (is_data, HELLO_BYTES as u64), meddler);
    back.join().unwrap();
}

fn forward(
    mut from: TcpStream,
    mut to: TcpStream,
    (is_data, mut offset): (bool, u64),
    meddler: &impl Meddler,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        meddler.on_bytes(is_data, offset, &mut buffer[..bytes]);
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
        offset += bytes as u64;
    }
    if meddler.hides_ends(is_data) {
        // Open for as long as the test runs.
        std::mem::forget((from, to));
        return;
    }
    // The other side may have closed before.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
