//! Simulated jobs of three ranks that exchange lent bytes, in which one rank fails at any point and uses its memory
//! again at once, and the others do so when they learn of it. No call ends well with bytes from after a failure.

use unisono_schedule::SplitMix;

use super::tests::{Side, pair};
use super::*;

const RANKS: usize = 3;

/// The number of jobs. 100,000 took a minute and a half.
const JOBS: u64 = 1000;

/// The calls of a job.
const CALLS: usize = 3;

/// Steps after which a job in which nobody fails has ended, many times over.
const STEPS_MAX: usize = 100_000;

/// The steps before the failure, at most: a whole job takes about as many.
const FAILS_AFTER_MAX: usize = 100;

/// The control plane tells a rank of a failure in one of so many steps, should its streams not tell it.
const TOLD_ONE_IN: usize = 30;

/// The bytes of a rank after its call has ended, in any way.
const SPOILED: u8 = 0xff;

/// A message of a call.
struct Transfer {
    bytes: Vec<u8>,
    /// The bytes that have been written, or read.
    moved: usize,
}

impl Transfer {
    fn new(bytes: Vec<u8>) -> Transfer {
        Transfer { bytes, moved: 0 }
    }

    fn is_moved(&self) -> bool {
        self.moved == self.bytes.len()
    }
}

/// A rank in its call, an exchange of everyone with everyone. It has nothing for itself.
struct Rank {
    number: usize,
    streams: [Option<Side>; RANKS],
    sent: [Transfer; RANKS],
    received: [Transfer; RANKS],
    /// The number of calls that have ended well; `None` after an error.
    done: Option<usize>,
}

/// The length of the message from one rank to another in a call, and the byte that it consists of.
fn message(seed: u64, call: usize, from: usize, to: usize) -> (usize, u8) {
    if from == to {
        return (0, 0);
    }
    let number = ((call * RANKS + from) * RANKS + to) as u64;
    let mut random = SplitMix(seed << 8 | number);
    // Some are lent, and some are copied.
    (random.below(4 * LOAN_BYTES_MIN), 1 + number as u8)
}

impl Rank {
    fn new(number: usize, streams: [Option<Side>; RANKS]) -> Rank {
        let none = || [(); RANKS].map(|()| Transfer::new(Vec::new()));
        Rank { number, streams, sent: none(), received: none(), done: Some(0) }
    }

    fn begin(&mut self, seed: u64, call: usize) {
        for peer in 0..RANKS {
            let (length, byte) = message(seed, call, self.number, peer);
            self.sent[peer] = Transfer::new(vec![byte; length]);
            let (length, _) = message(seed, call, peer, self.number);
            self.received[peer] = Transfer::new(vec![0; length]);
        }
    }

    /// Moves some bytes to or from this peer.
    fn step(&mut self, peer: usize, most: usize, writes: bool) -> io::Result<()> {
        let Some(stream) = &mut self.streams[peer] else { return Ok(()) };
        let message = if writes { &mut self.sent[peer] } else { &mut self.received[peer] };
        if message.is_moved() {
            return Ok(());
        }
        let moved = match writes {
            true => stream.try_write(&[IoSlice::new(&message.bytes[message.moved..])], 0),
            false => {
                let end = message.bytes.len().min(message.moved + most);
                stream.try_read(&mut [IoSliceMut::new(&mut message.bytes[message.moved..end])])
            }
        };
        match moved {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(moved) => message.moved += moved,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether the call has ended well: all its bytes have come, and nobody reads its memory any more.
    fn has_ended(&mut self) -> io::Result<bool> {
        for stream in self.streams.iter_mut().flatten() {
            if stream.unreleased_bytes()? > 0 {
                return Ok(false);
            }
        }
        Ok(self.sent.iter().chain(&self.received).all(Transfer::is_moved))
    }

    fn check(&self, seed: u64, call: usize) {
        for peer in 0..RANKS {
            let (_, byte) = message(seed, call, peer, self.number);
            let is_right = self.received[peer].bytes.iter().all(|found| *found == byte);
            assert!(is_right, "seed {seed}: call {call} of rank {} has ended well", self.number);
        }
    }

    /// As a communicator does before it gives an error: all loans are taken back.
    fn fail(&mut self) {
        self.streams.iter().flatten().for_each(|stream| stream.segments.end());
        self.done = None;
    }

    /// The caller uses its memory for something else.
    fn spoil(&mut self) {
        self.sent.iter_mut().for_each(|message| message.bytes.fill(SPOILED));
    }
}

/// The ranks, connected.
fn ranks() -> [Rank; RANKS] {
    let mut streams: [[Option<Side>; RANKS]; RANKS] = Default::default();
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let [(here, _), (there, _)] = pair();
        (streams[one][other], streams[other][one]) = (Some(here), Some(there));
    }
    let mut number = 0;
    streams.map(|streams| {
        number += 1;
        Rank::new(number - 1, streams)
    })
}

/// The number of calls that have ended well after the failure, and of ranks that have failed.
fn job(seed: u64) -> [usize; 2] {
    let (mut ranks, mut random) = (ranks(), SplitMix(seed));
    ranks.iter_mut().for_each(|rank| rank.begin(seed, 0));
    let fails_after = random.below(FAILS_AFTER_MAX);
    let mut ended_late = 0;
    for step in 0..STEPS_MAX {
        if step == fails_after {
            ranks[RANKS - 1].fail();
            ranks[RANKS - 1].spoil();
        }
        if ranks.iter().all(|rank| rank.done.is_none_or(|done| done == CALLS)) {
            let failed = ranks.iter().filter(|rank| rank.done.is_none()).count();
            return [ended_late, failed];
        }
        let is_told = ranks.iter().any(|rank| rank.done.is_none()) && random.below(TOLD_ONE_IN) == 0;
        let rank = &mut ranks[random.below(RANKS)];
        let Some(call) = rank.done.filter(|done| *done < CALLS) else { continue };
        let (peer, most) = (random.below(RANKS), 1 + random.below(2 * LOAN_BYTES_MIN));
        let moved = rank.step(peer, most, random.below(2) == 0);
        match moved.and_then(|()| rank.has_ended()) {
            Ok(false) if !is_told => {}
            Ok(true) => {
                rank.check(seed, call);
                rank.spoil();
                ended_late += usize::from(step > fails_after);
                rank.done = Some(call + 1);
                rank.begin(seed, call + 1);
            }
            Ok(false) | Err(_) => {
                rank.fail();
                rank.spoil();
            }
        }
    }
    panic!("seed {seed}: a rank waits for ever");
}

#[test]
fn no_call_ends_well_with_bytes_from_after_a_failure() {
    let told = (0..JOBS).map(job).reduce(|all, one| [all[0] + one[0], all[1] + one[1]]);
    let [ended_late, failed] = told.unwrap();
    assert!(ended_late > JOBS as usize / 10 && failed > JOBS as usize, "{ended_late} {failed}");
}
