//! Whether compression pays: every rank measures once, the slowest one counts, and all ranks decide alike.

use std::time::{Duration, Instant};

use unisono_collectives::Collectives;
use unisono_communicator::{
    Buffers, Call, Collective, DType, Descriptor, Place, ReduceOp, Result, Scope, Severity, Site, log, zeroed,
};

use crate::elements::{Elements, FloatType};
use crate::exchange;
use crate::message::Fault;
use crate::state::{CompressionState, LastCall};
use crate::wire::Wire;

/// Elements of the vector that is measured with, at most: as many bytes as a link holds in a few milliseconds.
const SAMPLE_ELEMENTS: usize = 2 * 1024 * 1024;

/// The number of times that each way is measured, after once without a clock; the fastest time of each rank counts.
const ROUNDS: usize = 3;

/// The decision of a state with the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Auto {
    Undecided,
    Compress,
    Decline,
}

impl CompressionState {
    /// The same state, which at its first call finds out whether compression pays: all ranks measure an exact and a
    /// compressed all-reduce of up to 2 Mi elements on this communicator, and keep the faster way for all calls of this
    /// state. Where exact calls are faster, a line in the log says so, and calls are exact. A NaN or an infinity is
    /// refused by these too ([`Error::NonFinite`](unisono_communicator::Error::NonFinite)), on all ranks, and no
    /// residual changes; but the buffer then holds the sum, and no longer the rank's input. After any other error of an
    /// exact call it is undefined.
    ///
    /// Every rank's state must have this policy, or none.
    pub fn or_exact(mut self) -> CompressionState {
        self.auto = Some(Auto::Undecided);
        self
    }

    /// Whether [`CompressionState::or_exact`] has chosen exact calls; `None` before the first call, and without that
    /// policy.
    pub fn declined(&self) -> Option<bool> {
        match self.auto? {
            Auto::Undecided => None,
            Auto::Compress => Some(false),
            Auto::Decline => Some(true),
        }
    }
}

/// Whether the call is to be exact; decides it if that is not known. Collective.
fn declines(scope: &Scope, state: &mut CompressionState, site: Site) -> Result<bool> {
    if state.auto == Some(Auto::Undecided) {
        let [exact, compressed] = measure(scope, state, site)?;
        let is_slower = compressed >= exact;
        state.auto = Some(if is_slower { Auto::Decline } else { Auto::Compress });
        if is_slower && scope.group().rank() == 0 {
            let elements = state.elements().min(SAMPLE_ELEMENTS);
            let times = format_args!(
                "{} does not pay here: {elements} elements take {:.3} ms, an exact all_reduce {:.3} ms; calls with \
                 this state are exact",
                state.codec().name(),
                compressed * 1e3,
                exact * 1e3
            );
            log(Severity::Warn, Some(scope.group().own_job_rank().get()), times);
        }
    }
    Ok(state.auto == Some(Auto::Decline))
}

/// Whether the state declines the call, which is made exactly then, within its scope. Collective.
///
/// # Errors
/// As [`checked`].
pub(crate) fn is_exact(
    scope: &Scope,
    vector: &mut Elements<&mut [u8]>,
    op: ReduceOp,
    state: &mut CompressionState,
    site: Site,
) -> Result<bool> {
    let declines = declines(scope, state, site)?;
    if declines {
        checked(scope, vector, op, state, site)?;
        state.end_call(LastCall::Exact)?;
    }
    Ok(declines)
}

/// An exact all-reduce of the vector for a state that has declined. A sum that is not finite is refused on all ranks,
/// as a compressed call would be: the owner of this state relies on that, and the sum stays in the vector.
///
/// # Errors
/// [`Error::NonFinite`](unisono_communicator::Error::NonFinite), and the communicator is as usable as before; errors of
/// the collectives.
fn checked(
    scope: &Scope,
    vector: &mut Elements<&mut [u8]>,
    op: ReduceOp,
    state: &CompressionState,
    site: Site,
) -> Result<()> {
    // The call leaves nothing of the rank's own elements.
    let own = vector.first_not_finite();
    exact(scope, vector, op, state.dtype, site)?;
    // All ranks have the same bits, and find the same.
    let Some(at) = vector.first_not_finite() else { return Ok(()) };
    let (wire, codec) = (Wire { scope, site }, state.codec());
    let fault = |at, rank| Fault::NonFinite { block: (at / codec.block()) as u32, rank };
    let lowest = wire.agree(own.map(|at| fault(at, scope.group().rank())))?;
    // Where all are finite, it is the sum that was not.
    Err(wire.error(lowest.unwrap_or(fault(at, 0)), codec))
}

/// An exact all-reduce of the vector.
fn exact(
    scope: &Scope,
    vector: &mut Elements<&mut [u8]>,
    op: ReduceOp,
    dtype: DType,
    site: Site,
) -> Result<()> {
    let descriptor = Descriptor {
        op: Some(op),
        place: Place::InPlace,
        ..Descriptor::new(Collective::AllReduce, dtype, vector.count() as u64)
    };
    let call = Call::new(descriptor, Buffers::InOut(vector.buffer()));
    scope.issue(Call { site, ..call }).map(drop)
}

/// Seconds of an exact and of a compressed call: of the slowest rank.
fn measure(scope: &Scope, state: &CompressionState, site: Site) -> Result<[f64; 2]> {
    let elements = state.elements().min(SAMPLE_ELEMENTS);
    let float = FloatType::of(state.dtype)?;
    let mut bytes = zeroed::<u32>((elements * state.dtype.bytes()).div_ceil(size_of::<u32>()))?;
    let bytes: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut bytes)[..elements * state.dtype.bytes()];
    let mut vector = Elements::new(float, [bytes]);
    let sample = CompressionState::with_codec(scope, state.codec.clone(), state.dtype, elements)?;
    let mut sample = sample.by(state.route, scope)?;
    // Not f64, of which not every library has the maximum.
    let mut best = [f32::INFINITY; 2];
    for round in 0..=ROUNDS {
        let times = [
            timed(|| checked(scope, &mut vector, ReduceOp::Sum, state, site))?,
            timed(|| exchange::run(scope, &mut vector, 1.0, &mut sample, site))?,
        ];
        if round > 0 {
            best = [0, 1].map(|way| best[way].min(times[way].as_secs_f32()));
        }
    }
    scope.all_reduce(&mut best, ReduceOp::Max)?;
    Ok(best.map(f64::from))
}

fn timed(call: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    call().map(|()| start.elapsed())
}
