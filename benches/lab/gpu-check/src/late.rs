//! A call that one rank does not make: it ends by its deadline, its stream goes on, and so do all ranks, over a new
//! communicator.

use std::thread::sleep;
use std::time::{Duration, Instant};

use unisono_collectives::{Collectives, CollectivesOnDevice};
use unisono_communicator::{CallOptions, Communicator, Error, Executor, ReduceOp};
use unisono_offload_nccl::{Nccl, NcclCommunicator};
use unisono_tests::on_device::moved::OnDevice;

use crate::typed::Vector;

/// The deadline of the call.
const DEADLINE: Duration = Duration::from_secs(1);

/// When it has ended and everybody knows: NCCL is told to let go of it first.
const OVER: Duration = Duration::from_secs(5);

/// The last rank does not call.
pub(crate) fn check(comm: &NcclCommunicator, place: &OnDevice<Nccl>) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    if comm.group().rank() + 1 == comm.group().size() {
        sleep(DEADLINE + OVER);
    } else {
        let mut vector = Vector::new(place, &[1.0f32; 4]).map_err(text)?;
        let patient = comm.with(CallOptions::new().timeout(DEADLINE));
        let (on, started) = (patient.on(place.device_stream()), Instant::now());
        let enqueued = on.all_reduce(&mut vector.write().map_err(text)?, ReduceOp::Sum).map_err(text)?;
        match on.wait(enqueued) {
            Err(Error::Timeout { .. }) if started.elapsed() < DEADLINE + OVER => {}
            ended => return Err(format!("{ended:?} after {:?} in place of a timeout", started.elapsed())),
        }
        vector.await_stream().map_err(text)?;
    }
    let next = comm.shrink().map_err(text)?.communicator;
    let (own, ranks) = (next.group().rank() as f32, next.group().size() as f32);
    let mut vector = Vector::new(place, &[own; 4]).map_err(text)?;
    let on = next.on(place.device_stream());
    let enqueued = on.all_reduce(&mut vector.write().map_err(text)?, ReduceOp::Sum).map_err(text)?;
    on.wait(enqueued).map_err(text)?;
    vector.compare(&[ranks * (ranks - 1.0) / 2.0; 4], "all_reduce after shrink").map_err(text)
}
