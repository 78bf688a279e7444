//! Typed calls, lists, handles and late errors on memory of the double's devices. Ranks are threads.

#![allow(unsafe_code)]

use std::sync::{Arc, Barrier};
use std::time::Duration;

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallOptions, Collective, Collectives, CollectivesOnDevice, Counts,
    DType, Descriptor, DeviceBuffer, DeviceBufferMut, DeviceSlice, DeviceSliceMut, DeviceStream, Division,
    Error, OnStream, Outcome, Place, ReduceOp, Result,
};
use unisono_cuda::{Context, Driver, KernelCode, Memory, Stream};
use unisono_offload::{HostMemory, OffloadOptions};
use unisono_offload_nccl::{Nccl, NcclCommunicator, NcclOptions};
use unisono_tests::cuda::double_kernels;
use unisono_tests::{companions, doubles, watchdog};

pub(crate) const SECONDS_MAX: u64 = 120;

/// A rank with a device of its own and a stream on it.
pub(crate) struct Rank {
    pub(crate) comm: Arc<NcclCommunicator>,
    pub(crate) context: Context,
    pub(crate) stream: Stream,
    pub(crate) rank: u32,
}

/// Elements on a device of the double.
pub(crate) struct Array {
    memory: Memory,
    elements: usize,
}

impl Rank {
    /// On `ranks` threads.
    pub(crate) fn run<R: Send>(
        ranks: u32,
        host_memory: HostMemory,
        body: impl Fn(&Rank) -> R + Send + Sync,
    ) -> Vec<R> {
        let options = OffloadOptions::new(Duration::from_secs(60), false);
        let kernels = |_| double_kernels(&[90]);
        Rank::run_with(ranks, &OffloadOptions { host_memory, ..options }, kernels, body)
    }

    /// The same with these options, and these kernels on each rank.
    pub(crate) fn run_with<R: Send>(
        ranks: u32,
        options: &OffloadOptions,
        kernels: impl Fn(u32) -> KernelCode + Sync,
        body: impl Fn(&Rank) -> R + Send + Sync,
    ) -> Vec<R> {
        companions(ranks, |companion| {
            let rank = companion.group().rank();
            let double = Some(doubles::nccl());
            let of_nccl = NcclOptions {
                library: double.clone(),
                driver: double.clone(),
                device: rank,
                kernels: kernels(rank),
                blocking: false,
            };
            let library = Nccl::open(&of_nccl).map(Arc::new);
            let comm = NcclCommunicator::open(companion, library, options).unwrap();
            let context = Driver::open(double.as_deref()).unwrap().context(rank).unwrap();
            let stream = context.stream().unwrap();
            body(&Rank { comm, context, stream, rank })
        })
    }

    pub(crate) fn own(&self) -> f32 {
        self.rank as f32 + 1.0
    }

    pub(crate) fn array(&self, elements: &[f32]) -> Array {
        let mut memory = self.context.allocate(size_of_val(elements)).unwrap();
        memory.write(0, bytemuck::cast_slice(elements), &self.stream).unwrap();
        Array { memory, elements: elements.len() }
    }

    /// What is there when the work that is on the stream now is done.
    pub(crate) fn copied(&self, array: &Array) -> Vec<f32> {
        let mut elements = vec![0.0; array.elements];
        array.memory.read(0, bytemuck::cast_slice_mut(&mut elements), &self.stream).unwrap();
        elements
    }

    pub(crate) fn device_stream(&self) -> DeviceStream {
        // SAFETY: the stream is of this rank's device, and lives as long as the rank.
        unsafe { DeviceStream::from_raw(self.stream.raw(), self.rank) }
    }

    /// Sends 1 of 4 elements to rank 0 and 3 to rank 1, of two, which are sends and receives of the library.
    pub(crate) fn all_to_all_v(
        &self,
        input: &Array,
        output: &mut Array,
        timeout: Duration,
    ) -> Result<Outcome> {
        let received = if self.rank == 0 { [1; 2] } else { [3; 2] };
        let descriptor = Descriptor { uneven: true, ..Descriptor::new(Collective::AllToAll, DType::F32, 4) };
        let [from, to] = [&input.memory, &output.memory].map(|memory| memory.address() as usize);
        // SAFETY: tests keep both until their calls are done.
        let (from, mut to) = unsafe {
            let bytes = 4 * received.iter().sum::<u64>() as usize;
            (DeviceBuffer::from_raw(from, 16, self.rank)?, DeviceBufferMut::from_raw(to, bytes, self.rank)?)
        };
        let buffers = Buffers::Separate { input: Buffer::Device(&from), output: BufferMut::Device(&mut to) };
        self.comm.issue(Call {
            stream: Some(self.device_stream()),
            counts: Counts::PerPair { send: vec![1, 3], receive: received.into() },
            options: CallOptions::new().timeout(timeout),
            ..Call::new(descriptor, buffers)
        })
    }

    pub(crate) fn on_stream(&self) -> OnStream<'_, NcclCommunicator> {
        self.comm.on(self.device_stream())
    }
}

impl Array {
    pub(crate) fn read(&self, rank: &Rank) -> DeviceSlice<'_, f32> {
        let address = self.memory.address() as usize;
        // SAFETY: tests keep it until its calls are done.
        unsafe { DeviceSlice::from_raw(address, self.elements, rank.rank) }.unwrap()
    }

    pub(crate) fn write(&mut self, rank: &Rank) -> DeviceSliceMut<'static, f32> {
        let address = self.memory.address() as usize;
        // SAFETY: tests keep it until its calls are done, and do not use it otherwise.
        unsafe { DeviceSliceMut::from_raw(address, self.elements, rank.rank) }.unwrap()
    }
}

#[test]
fn typed_calls_are_enqueued_and_end_by_their_tickets() {
    watchdog(SECONDS_MAX, "typed", || drop(Rank::run(3, HostMemory::Refused, typed_calls)));
}

fn typed_calls(rank: &Rank) {
    let (on, own, ranks) = (rank.on_stream(), rank.own(), 3);
    let input = rank.array(&[own, 10.0 * own, 100.0 * own]);
    let mut sums = rank.array(&[0.0; 3]);
    let enqueued = on.all_reduce_into(&input.read(rank), &mut sums.write(rank), ReduceOp::Sum).unwrap();
    assert!(enqueued.ticket().is_some());
    let outcome = on.wait(enqueued).unwrap();
    assert_eq!((outcome.bytes, outcome.algorithm, outcome.ticket()), (12, "nccl", None));
    assert_eq!(rank.copied(&sums), [6.0, 60.0, 600.0]);

    // Nobody waits here: the stream orders them.
    let (mut shared, mut all, mut turned) =
        (rank.array(&[0.0]), rank.array(&[0.0; 9]), rank.array(&[0.0; 3]));
    let mut mean = rank.array(&[own]);
    on.reduce_scatter(&input.read(rank), &mut shared.write(rank), ReduceOp::Max).unwrap();
    on.all_gather(&input.read(rank), &mut all.write(rank)).unwrap();
    on.all_to_all(&input.read(rank), &mut turned.write(rank)).unwrap();
    on.all_reduce(&mut mean.write(rank), ReduceOp::Avg).unwrap();
    on.all_reduce(&mut mean.write(rank), ReduceOp::PreMulSum(0.5)).unwrap();
    let scale = 10f32.powi(rank.rank as i32);
    assert_eq!(rank.copied(&shared), [3.0 * scale]);
    assert_eq!(rank.copied(&all), [1.0, 10.0, 100.0, 2.0, 20.0, 200.0, 3.0, 30.0, 300.0]);
    assert_eq!(rank.copied(&turned), [scale, 2.0 * scale, 3.0 * scale]);
    assert_eq!(rank.copied(&mean), [3.0]);

    let mut sent = rank.array(&[own; 4]);
    let (mut summed, mut gathered, mut share) =
        (rank.array(&[0.0; 3]), rank.array(&[0.0; 9]), rank.array(&[0.0; 3]));
    let is_root = rank.rank == 1;
    on.broadcast(&mut sent.write(rank), 2).unwrap();
    on.reduce(&input.read(rank), is_root.then(|| summed.write(rank)), ReduceOp::Sum, 1).unwrap();
    on.gather(&input.read(rank), is_root.then(|| gathered.write(rank)), 1).unwrap();
    on.scatter(is_root.then(|| gathered.read(rank)), &mut share.write(rank), 1).unwrap();
    on.wait(on.barrier().unwrap()).unwrap();
    assert_eq!(rank.copied(&sent), [ranks as f32; 4]);
    assert_eq!(rank.copied(&share), [own, 10.0 * own, 100.0 * own]);
    assert_eq!(rank.copied(&summed), if is_root { [6.0, 60.0, 600.0] } else { [0.0; 3] });
}

fn sum(count: usize) -> Descriptor {
    Descriptor {
        op: Some(ReduceOp::Sum),
        place: Place::InPlace,
        ..Descriptor::new(Collective::AllReduce, DType::F32, count as u64)
    }
}

#[test]
fn lists_and_handles() {
    watchdog(SECONDS_MAX, "lists", || {
        Rank::run(2, HostMemory::Refused, |rank| {
            let mut parts = [3, 64, 33].map(|elements| rank.array(&vec![rank.own(); elements]));
            for round in 0..3 {
                let spans = parts.each_mut().map(|part| {
                    let address = part.memory.address() as usize;
                    // SAFETY: the arrays live until their calls are done.
                    unsafe { DeviceBufferMut::from_raw(address, 4 * part.elements, rank.rank) }.unwrap()
                });
                let mut list = DeviceBufferMut::list(spans, Division::Coalesced);
                let call = Call::new(sum(100), Buffers::InOut(BufferMut::Device(&mut list)));
                rank.comm.issue(Call { stream: Some(rank.device_stream()), ..call }).unwrap();
                let expected = 3.0 * 2f32.powi(round);
                parts.iter().for_each(|part| assert_eq!(rank.copied(part), vec![expected; part.elements]));
            }
            let mut array = rank.array(&[rank.own(); 5]);
            let finished = rank.on_stream().all_reduce_async(array.write(rank), ReduceOp::Sum).finish();
            assert!(finished.result.is_ok() && finished.buffers.is_some());
            assert_eq!(rank.copied(&array), [3.0; 5]);
        })
    });
}

fn refused(result: Result<impl std::fmt::Debug>, argument: &str) {
    match result {
        Err(Error::InvalidArgument { argument: found, .. }) => assert_eq!(found, argument),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_not_of_the_device_is_refused_before_the_call_has_a_number() {
    watchdog(SECONDS_MAX, "refused", || {
        Rank::run(2, HostMemory::Refused, |rank| {
            let mut array = rank.array(&[rank.own(); 4]);
            let on = rank.on_stream();
            let on_host = rank.comm.all_reduce(&mut [1.0f32], ReduceOp::Sum);
            assert!(matches!(on_host, Err(Error::Unsupported { .. })), "{on_host:?}");
            // SAFETY: they are refused.
            unsafe {
                let mut host = vec![1.0f32; 4];
                let address = host.as_mut_ptr().expose_provenance();
                let mut lent = DeviceSliceMut::<f32>::from_raw(address, 4, rank.rank).unwrap();
                refused(on.all_reduce(&mut lent, ReduceOp::Sum), "buffer");
                let mut elsewhere =
                    DeviceSliceMut::<f32>::from_raw(array.memory.address() as usize, 4, 7).unwrap();
                refused(on.all_reduce(&mut elsewhere, ReduceOp::Sum), "buffer");
                let other = rank.comm.on(DeviceStream::from_raw(rank.stream.raw(), 7));
                refused(other.all_reduce(&mut elsewhere, ReduceOp::Sum), "stream");
                // The memory of the other rank's device, and a stream of another context.
                let theirs = rank.context.driver().context(1 - rank.rank).unwrap();
                let memory = theirs.allocate(16).unwrap();
                let mut lent =
                    DeviceSliceMut::<f32>::from_raw(memory.address() as usize, 4, rank.rank).unwrap();
                refused(on.all_reduce(&mut lent, ReduceOp::Sum), "buffer");
                let stream = theirs.stream().unwrap();
                let on_theirs = rank.comm.on(DeviceStream::from_raw(stream.raw(), rank.rank));
                refused(on_theirs.all_reduce(&mut array.write(rank), ReduceOp::Sum), "stream");
            }
            let bits = on.all_reduce(&mut array.write(rank), ReduceOp::BitAnd);
            assert!(bits.is_err(), "{bits:?}");
            on.wait(on.all_reduce(&mut array.write(rank), ReduceOp::Sum).unwrap()).unwrap();
            assert_eq!(rank.copied(&array), [3.0; 4]);
        })
    });
}

#[test]
fn host_memory_goes_where_the_program_has_said() {
    watchdog(SECONDS_MAX, "host", || {
        for (host_memory, by) in [(HostMemory::Staged, "nccl"), (HostMemory::Companion, "tcp")] {
            Rank::run(2, host_memory, |rank| {
                let mut values = [rank.own(); 9];
                let call =
                    Call::new(Descriptor { count: 9, ..sum(9) }, Buffers::InOut(BufferMut::of(&mut values)));
                let outcome = rank.comm.issue(call).unwrap();
                assert_eq!(outcome.algorithm == "nccl", by == "nccl", "{}", outcome.algorithm);
                assert_eq!(values, [3.0; 9]);
                let mut array = rank.array(&[rank.own(); 4]);
                rank.on_stream().all_reduce(&mut array.write(rank), ReduceOp::Sum).unwrap();
                assert_eq!(rank.copied(&array), [3.0; 4]);
            });
        }
    });
}

#[test]
fn what_the_other_ranks_do_not_call_ends_by_its_deadline() {
    let given_up = Barrier::new(2);
    watchdog(SECONDS_MAX, "late", || {
        Rank::run(2, HostMemory::Refused, |rank| {
            if rank.rank == 1 {
                given_up.wait();
                return;
            }
            let mut array = rank.array(&[1.0; 4]);
            let patient = rank.comm.with(CallOptions::new().timeout(Duration::from_millis(300)));
            let on = patient.on(rank.device_stream());
            let late = on.wait(on.all_reduce(&mut array.write(rank), ReduceOp::Sum).unwrap());
            assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
            // The library has let go of the stream.
            rank.stream.synchronize().unwrap();
            let next = rank.on_stream().all_reduce(&mut array.write(rank), ReduceOp::Sum);
            assert!(next.is_err());
            given_up.wait();
        })
    });
}

#[test]
fn calls_that_differ_are_a_mismatch_although_nobody_has_met() {
    watchdog(SECONDS_MAX, "mismatch", || {
        Rank::run(2, HostMemory::Refused, |rank| {
            let mut array = rank.array(&[1.0; 4]);
            let on = rank.on_stream();
            let enqueued = if rank.rank == 0 {
                on.all_reduce(&mut array.write(rank), ReduceOp::Sum)
            } else {
                on.broadcast(&mut array.write(rank), 0)
            };
            let ended = on.wait(enqueued.unwrap());
            assert!(matches!(ended, Err(Error::Mismatch { .. })), "{ended:?}");
        })
    });
}

#[test]
fn a_typed_call_allocates_nothing() {
    /// More than tickets are remembered.
    const BEFORE: usize = 1100;
    watchdog(SECONDS_MAX, "allocations", || {
        Rank::run(2, HostMemory::Refused, |rank| {
            let mut array = rank.array(&[rank.own(); 4]);
            let (on, mut elements) = (rank.on_stream(), array.write(rank));
            for _ in 0..BEFORE {
                on.wait(on.all_reduce(&mut elements, ReduceOp::Max).unwrap()).unwrap();
            }
            // The double is a library with an allocator of its own.
            let mut enqueued = None;
            let used = allocation_counter::measure(|| {
                enqueued = Some(on.all_reduce(&mut elements, ReduceOp::Max));
            });
            assert_eq!(used.count_total, 0, "{used:?}");
            on.wait(enqueued.unwrap().unwrap()).unwrap();
            assert_eq!(rank.copied(&array), [2.0; 4]);
        })
    });
}
