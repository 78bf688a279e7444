//! One turn on this rank: fill, call once, check every element; then warm up, calibrate, and run blocks of calls.

use std::path::Path;
use std::thread;
use std::time::Duration;

use unisono::{Collective, Communicator};
use unisono_compare::{Command, ComparedOperation, Measured};

use crate::RankResult;
use crate::calls;
use crate::line_up::Ranks;

/// Below this time a single call says too little about the next ones.
const SHORT_CALL_S: f64 = 2e-3;
const CALIBRATION_CALLS: u64 = 8;
const CALLS_MAX: f64 = 20_000.0;
const BLOCKS_MIN: f64 = 3.0;
const BLOCKS_MAX: f64 = 40.0;
const PAGE_BYTES: usize = 4096;
/// By how much one rank is late at the barrier that is checked.
const LATE: Duration = Duration::from_millis(2);

/// A rank between its turns.
pub(crate) struct Turns<'a> {
    comm: &'a dyn Communicator,
    ranks: Ranks,
    a: Buffer,
    b: Buffer,
    /// Calls made so far: roots rotate over them.
    calls: u64,
}

impl<'a> Turns<'a> {
    pub(crate) fn new(comm: &'a dyn Communicator, shared: &Path) -> RankResult<Turns<'a>> {
        let ranks = Ranks::open(shared, comm.group().rank(), comm.group().size())?;
        Ok(Turns { comm, ranks, a: Buffer::default(), b: Buffer::default(), calls: 0 })
    }

    pub(crate) fn line_up(&mut self) -> RankResult<()> {
        Ok(self.ranks.line_up()?)
    }

    pub(crate) fn take(&mut self, command: Command) -> RankResult<Measured> {
        let Command { operation, bytes, block_us, budget_us, .. } = command;
        let elements = bytes as usize / size_of::<f32>();
        let ok = self.check(operation, elements)?;
        self.block(operation, elements, 1)?;
        let mut call_s = self.block(operation, elements, 1)?;
        if call_s < SHORT_CALL_S {
            call_s = self.block(operation, elements, CALIBRATION_CALLS)?;
        }
        // Only rank 0's figures count, so that all agree.
        let calls = (block_us as f64 * 1e-6 / call_s).clamp(1.0, CALLS_MAX).floor();
        let calls = self.ranks.gather(calls)?[0];
        let blocks = (budget_us as f64 * 1e-6 / (calls * call_s)).clamp(BLOCKS_MIN, BLOCKS_MAX).floor();
        let blocks = self.ranks.gather(blocks)?[0];
        let (calls, blocks) = (calls as u64, blocks as u64);
        let times = (0..blocks).map(|_| self.block(operation, elements, calls));
        let mut times_s = times.collect::<RankResult<Vec<f64>>>()?;
        times_s.sort_by(f64::total_cmp);
        let median_s = f64::midpoint(times_s[times_s.len() / 2], times_s[(times_s.len() - 1) / 2]);
        // A message's time is half of its round trip.
        let share = if operation == ComparedOperation::SendRecv { 0.5e6 } else { 1e6 };
        Ok(Measured { median_us: median_s * share, min_us: times_s[0] * share, blocks, calls, ok })
    }

    /// Whether one call was right on all ranks. Leaves zeros, which stay zeros however often they are summed up.
    fn check(&mut self, operation: ComparedOperation, elements: usize) -> RankResult<bool> {
        let (rank, ranks) = (self.ranks.rank(), self.ranks.size());
        let (a, b) = (self.a.of(elements), self.b.of(elements));
        calls::fill(a, rank);
        b.fill(0.0);
        self.ranks.line_up()?;
        if operation == Collective::Barrier.into() && rank + 1 == ranks {
            thread::sleep(LATE);
        }
        let entered = seconds();
        calls::call(operation, self.comm, 0, a, b)?;
        let left = seconds();
        let mut right = calls::is_right(operation, rank, ranks, a, b);
        a.fill(0.0);
        b.fill(0.0);
        if operation == Collective::Barrier.into() {
            // It must let nobody out before all have come in.
            right = self.ranks.gather(entered)?.into_iter().all(|other| other <= left);
        }
        Ok(self.ranks.gather(f64::from(u8::from(right)))?.into_iter().all(|right| right == 1.0))
    }

    /// Seconds per call: from the first rank's start to the last rank's end.
    fn block(&mut self, operation: ComparedOperation, elements: usize, calls: u64) -> RankResult<f64> {
        let (a, b) = (self.a.of(elements), self.b.of(elements));
        let ranks = u64::from(self.ranks.size());
        self.ranks.line_up()?;
        let start = seconds();
        for index in self.calls..self.calls + calls {
            calls::call(operation, self.comm, (index % ranks) as u32, a, b)?;
        }
        let end = seconds();
        self.calls += calls;
        let start = self.ranks.gather(start)?.into_iter().fold(f64::INFINITY, f64::min);
        let end = self.ranks.gather(end)?.into_iter().fold(0.0, f64::max);
        Ok((end - start) / calls as f64)
    }
}

/// The machine's monotonic clock, which is one for all its processes.
fn seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

/// Page-aligned memory that is touched once and kept for later turns, as the peers have it.
#[derive(Debug, Default)]
struct Buffer {
    elements: Vec<f32>,
    first: usize,
}

impl Buffer {
    fn of(&mut self, elements: usize) -> &mut [f32] {
        let page = PAGE_BYTES / size_of::<f32>();
        if self.elements.len() < elements + page {
            // Freed first: two generations of the largest size need not fit.
            self.elements = Vec::new();
            self.elements = vec![1.0; elements + page];
            self.first = self.elements.as_ptr().align_offset(PAGE_BYTES);
        }
        &mut self.elements[self.first..][..elements]
    }
}
