//! A double of a link: a pipe in memory from every rank of a test to every other.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex};

use crate::links::Link;
use crate::links::faulty::SplitMix;
use crate::lock;

/// The bytes that are on their way, by sender and receiver.
struct Pipes {
    bytes: Vec<VecDeque<u8>>,
    /// How many bytes a pipe holds.
    capacity: usize,
    /// With a generator, about half of the calls move a random number of bytes. All other calls move all they can.
    random: Option<SplitMix>,
}

impl Pipes {
    /// How many bytes one call moves, if it could move `bytes`, which is not 0.
    fn moved(&mut self, bytes: usize) -> usize {
        let Some(random) = &mut self.random else { return bytes };
        if random.below(2) == 0 { bytes } else { 1 + random.below(bytes) }
    }
}

/// One rank's end of the two pipes between it and a peer.
pub(super) struct PipeDouble {
    pipes: Arc<Mutex<Pipes>>,
    out: usize,
    back: usize,
}

impl PipeDouble {
    /// The links of every rank, by rank and peer.
    pub(super) fn all(ranks: usize, capacity: usize, random: Option<SplitMix>) -> Vec<Vec<PipeDouble>> {
        let bytes = vec![VecDeque::new(); ranks * ranks];
        let pipes = Arc::new(Mutex::new(Pipes { bytes, capacity, random }));
        let link = |rank, peer| PipeDouble {
            pipes: pipes.clone(),
            out: rank * ranks + peer,
            back: peer * ranks + rank,
        };
        (0..ranks).map(|rank| (0..ranks).map(|peer| link(rank, peer)).collect()).collect()
    }
}

impl Link for PipeDouble {
    fn try_send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let pipes = &mut *lock(&self.pipes);
        let before = pipes.bytes[self.out].len();
        if before == pipes.capacity {
            return Err(ErrorKind::WouldBlock.into());
        }
        let most = pipes.moved(pipes.capacity - before);
        let offered = slices.iter().flat_map(|slice| slice.iter().copied());
        let pipe = &mut pipes.bytes[self.out];
        pipe.extend(offered.take(most));
        Ok(pipe.len() - before)
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let pipes = &mut *lock(&self.pipes);
        let arrived = pipes.bytes[self.back].len();
        if arrived == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let most = pipes.moved(arrived);
        let places = into.iter_mut().flat_map(|slice| slice.iter_mut()).take(most);
        let bytes = std::iter::from_fn(|| pipes.bytes[self.back].pop_front());
        Ok(places.zip(bytes).map(|(place, byte)| *place = byte).count())
    }

    fn is_delivered(&mut self) -> bool {
        true
    }
}
