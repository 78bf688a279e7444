//! What an all-reduce costs its caller until it is enqueued, beside NCCL's own function: in turns, on the same stream.

#![expect(unsafe_code, reason = "memory and streams of a device, by their addresses")]

use std::time::{Duration, Instant};

use unisono_collectives::{Collectives, CollectivesOnDevice};
use unisono_communicator::{Communicator, DeviceSliceMut, Error, ReduceOp, Result};
use unisono_cuda::Context;
use unisono_offload::RawStream;
use unisono_offload_nccl::{Nccl, NcclCommunicator};
use unisono_tests::on_device::moved::{DeviceBytes, OnDevice};
use unisono_tests::overhead::{burst, quartiles};

use crate::direct::Direct;
use crate::report::Overhead;

/// Where it is measured.
pub(crate) struct Setting<'a> {
    pub(crate) comm: &'a NcclCommunicator,
    pub(crate) companion: &'a dyn Communicator,
    pub(crate) direct: &'a Direct,
    pub(crate) place: &'a OnDevice<Nccl>,
    pub(crate) context: &'a Context,
}

/// Bursts before the measurement: more calls than are remembered, whose memory is not fresh afterwards.
const WARM_UP: usize = 80;

/// No round begins later than so long after the first. Two ranks that share a card take turns on it, in slices of
/// milliseconds: a call of 256 MiB takes many.
const LIMIT: Duration = Duration::from_secs(4);

impl Setting<'_> {
    /// An all-reduce of so many bytes, in so many bursts of each, and whether both give the right result.
    pub(crate) fn measure(
        &self,
        bytes: usize,
        rounds: usize,
    ) -> Result<std::result::Result<Overhead, String>> {
        let (elements, ranks) = (bytes / size_of::<f32>(), self.comm.group().size());
        let own = self.comm.group().rank() as f32 + 1.0;
        let [content, right] = [own, ranks as f32].map(|number| number.to_le_bytes().repeat(elements));
        let vectors = [(); 2].map(|()| DeviceBytes::new(self.place.device(), self.place.stream(), &content));
        let [nccl, ours] = vectors;
        let (nccl, ours) = (nccl?, ours?);
        // Once, because the next ones change nothing.
        self.context.with_current(|| self.nccl_once(&nccl, elements))?;
        self.ours_once(&ours, elements)?;
        let wrong = [("NCCL's own function", &nccl), ("unisono", &ours)].map(|(name, vector)| {
            let found = vector.read()?;
            let at = found.iter().zip(&right).position(|(found, right)| found != right);
            Ok::<_, Error>(at.map(|at| {
                let text = format!("{:#04x} instead of {:#04x}", found[at], right[at]);
                format!("all_reduce of {bytes} bytes by {name}, byte {at}: {text}")
            }))
        });
        // All ranks go on, so that none waits for one whose result was wrong.
        let (mut of_nccl, mut of_ours) = (Vec::new(), Vec::new());
        for rounds in [WARM_UP, rounds] {
            of_nccl.clear();
            of_ours.clear();
            self.rounds(rounds, || {
                self.nccl(&mut of_nccl, &nccl, elements)?;
                self.ours(&mut of_ours, &ours, elements)
            })?;
        }
        for wrong in wrong {
            if let Some(text) = wrong? {
                return Ok(Err(text));
            }
        }
        let calls = of_ours.len();
        Ok(Ok(Overhead::new(ranks, bytes, calls, quartiles(of_nccl), quartiles(of_ours))))
    }

    /// At most so many, and at least one; as many on every rank.
    fn rounds(&self, count: usize, mut one: impl FnMut() -> Result<()>) -> Result<()> {
        let started = Instant::now();
        for round in 1.. {
            self.context.with_current(&mut one)?;
            let mut is_last = [u8::from(round >= count || started.elapsed() > LIMIT)];
            self.companion.broadcast(&mut is_last, 0)?;
            if is_last != [0] {
                break;
            }
        }
        Ok(())
    }

    fn stream(&self) -> RawStream {
        self.place.stream()
    }

    /// The time until NCCL's function has returned.
    fn nccl_once(&self, vector: &DeviceBytes<'_>, elements: usize) -> Result<f64> {
        let started = Instant::now();
        // SAFETY: the vector has as many elements, and is waited for; the caller has made the context current.
        unsafe { self.direct.all_reduce(vector.pointer(), elements, self.stream()) }?;
        Ok(microseconds(started))
    }

    fn nccl(&self, times: &mut Vec<f64>, vector: &DeviceBytes<'_>, elements: usize) -> Result<()> {
        let one = || self.nccl_once(vector, elements).map(|time| (time, ()));
        // SAFETY: the stream lives.
        burst(times, one, |()| unsafe { self.place.device().synchronize(self.stream()) })
    }

    fn lent(&self, vector: &DeviceBytes<'_>, elements: usize) -> Result<DeviceSliceMut<'static, f32>> {
        let (address, device) = (vector.pointer().expose_provenance(), self.place.device().ordinal());
        // SAFETY: the vector has as many elements, and its calls are waited for.
        unsafe { DeviceSliceMut::from_raw(address, elements, device) }
    }

    fn ours_once(&self, vector: &DeviceBytes<'_>, elements: usize) -> Result<()> {
        let on = self.comm.on(self.place.device_stream());
        on.wait(on.all_reduce(&mut self.lent(vector, elements)?, ReduceOp::Max)?).map(drop)
    }

    fn ours(&self, times: &mut Vec<f64>, vector: &DeviceBytes<'_>, elements: usize) -> Result<()> {
        let on = self.comm.on(self.place.device_stream());
        let mut vector = self.lent(vector, elements)?;
        let one = || {
            let started = Instant::now();
            let enqueued = on.all_reduce(&mut vector, ReduceOp::Max)?;
            Ok((microseconds(started), enqueued))
        };
        burst(times, one, |last| on.wait(last).map(drop))
    }
}

fn microseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}
