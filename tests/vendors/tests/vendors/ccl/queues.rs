//! Real oneCCL on a program's queues. Its plugin for processors takes any pointer for a `sycl::queue`, so a test double
//! of SYCL stands behind the functions that a program lends: memory of the host, and copies that are done at once.

#![expect(unsafe_code, reason = "memory of a call, by its address")]

use std::ffi::{c_int, c_void};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesOnDevice};
use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallOptions, Collective, Communicator, DType, Descriptor, DeviceBuffer,
    DeviceBufferMut, DeviceSlice, DeviceSliceMut, DeviceStream, Division, Error, Executor, Outcome, Place,
    ReduceOp, Result,
};
use unisono_job::Job;
use unisono_job::config::Config;
use unisono_offload::OffloadOptions;
use unisono_offload_ccl::{Ccl, CclCommunicator, CclOptions, CclVendor, SyclFunctions};
use unisono_tests::{ccl, watchdog};
use unisono_transport_tcp::Tcp;

const SECONDS_MAX: u64 = 120;
const RANKS: usize = 2;
/// Tells a process of this test that it is a rank.
const IS_RANK: &str = "TEST_IS_RANK";
/// A size of allocations that the double does not have.
const TOO_MUCH: usize = 1 << 20;

static WAITS: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
/// What the next wait returns.
static NEXT_WAIT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn wait(queue: *mut c_void) -> c_int {
    assert!(!queue.is_null());
    WAITS.fetch_add(1, Ordering::SeqCst);
    NEXT_WAIT.swap(0, Ordering::SeqCst) as c_int
}

// SAFETY: as `SyclFunctions` has it.
unsafe extern "C" fn copy(queue: *mut c_void, to: *mut c_void, from: *const c_void, bytes: usize) -> c_int {
    assert!(!queue.is_null());
    // SAFETY: the caller's.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), bytes) };
    0
}

extern "C" fn allocate(bytes: usize) -> *mut c_void {
    if bytes >= TOO_MUCH {
        return std::ptr::null_mut();
    }
    ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: there are some bytes, and 16 before them keep how many.
    unsafe {
        let start = std::alloc::alloc(layout(bytes)).cast::<usize>();
        start.write(bytes);
        start.cast::<u8>().add(64).cast()
    }
}

// SAFETY: as `SyclFunctions` has it.
unsafe extern "C" fn free(memory: *mut c_void) {
    ALLOCATIONS.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: it is of `allocate`, which has left the size before it.
    unsafe {
        let start = memory.cast::<u8>().sub(64);
        let bytes = start.cast::<usize>().read();
        std::alloc::dealloc(start, layout(bytes));
    }
}

fn layout(bytes: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(bytes + 64, 64).unwrap()
}

const SYCL: SyclFunctions = SyclFunctions { wait, copy, allocate, free };

/// A rank with a queue, which is the address of anything here.
struct QueueRank {
    comm: Arc<CclCommunicator>,
    queue: DeviceStream,
    rank: u32,
}

fn read(memory: &[f32]) -> DeviceBuffer {
    // SAFETY: the vector lives, and is not written, until the call has returned, when its work is done.
    unsafe { DeviceBuffer::from_raw(memory.as_ptr().expose_provenance(), size_of_val(memory), 0) }.unwrap()
}

fn write(memory: &mut [f32]) -> DeviceBufferMut {
    let start = memory.as_mut_ptr().expose_provenance();
    // SAFETY: as above, and nobody else uses it.
    unsafe { DeviceBufferMut::from_raw(start, size_of_val(memory), 0) }.unwrap()
}

fn lent(memory: &[f32]) -> DeviceSlice<'_, f32> {
    // SAFETY: the call has returned, and its work is done, before the borrow ends.
    unsafe { DeviceSlice::from_raw(memory.as_ptr().expose_provenance(), memory.len(), 0) }.unwrap()
}

fn lent_mut(memory: &mut [f32]) -> DeviceSliceMut<'_, f32> {
    let start = memory.as_mut_ptr().expose_provenance();
    // SAFETY: as above, and nobody else uses it.
    unsafe { DeviceSliceMut::from_raw(start, memory.len(), 0) }.unwrap()
}

fn sum(count: usize) -> Descriptor {
    Descriptor { op: Some(ReduceOp::Sum), ..Descriptor::new(Collective::AllReduce, DType::F32, count as u64) }
}

impl QueueRank {
    fn call(
        &self,
        descriptor: Descriptor,
        input: DeviceBuffer,
        mut output: DeviceBufferMut,
    ) -> Result<Outcome> {
        let buffers =
            Buffers::Separate { input: Buffer::Device(&input), output: BufferMut::Device(&mut output) };
        let call = Call::new(descriptor, buffers);
        let enqueued = self.comm.issue(Call { stream: Some(self.queue), ..call })?;
        self.comm.resolve(enqueued.ticket().unwrap())
    }

    fn in_place(&self, descriptor: Descriptor, mut buffer: DeviceBufferMut) -> Result<Outcome> {
        let descriptor = Descriptor { place: Place::InPlace, ..descriptor };
        let call = Call::new(descriptor, Buffers::InOut(BufferMut::Device(&mut buffer)));
        let enqueued = self.comm.issue(Call { stream: Some(self.queue), ..call })?;
        self.comm.resolve(enqueued.ticket().unwrap())
    }

    fn own(&self) -> f32 {
        self.rank as f32 + 1.0
    }

    fn calls(&self) {
        let (input, mut output) = (vec![self.own(); 700], vec![0.0; 700]);
        let on_queue = self.comm.on(self.queue);
        let enqueued =
            on_queue.all_reduce_into(&lent(&input), &mut lent_mut(&mut output), ReduceOp::Sum).unwrap();
        assert!(enqueued.ticket().is_some());
        let outcome = on_queue.wait(enqueued).unwrap();
        assert_eq!((outcome.bytes, outcome.ticket(), output), (2800, None, vec![3.0; 700]));
        self.typed_calls();
        assert!(WAITS.load(Ordering::SeqCst) > 0);

        // Lists are copied together and apart, in parts that are no multiples of anything.
        let (mut first, mut second, mut third) =
            (vec![self.own(); 3], vec![10.0 * self.own(); 64], vec![0.5; 33]);
        let parts = [write(&mut first), write(&mut second), write(&mut third)];
        self.in_place(sum(100), DeviceBufferMut::list(parts, Division::Coalesced)).unwrap();
        assert_eq!((first, second, third), (vec![3.0; 3], vec![30.0; 64], vec![1.0; 33]));

        // A call that oneCCL lacks: every rank's part goes to the root by an exchange.
        let gather = Descriptor { root: Some(1), ..Descriptor::new(Collective::Gather, DType::F32, 5) };
        let (input, mut output) = (vec![self.own(); 5], vec![0.0; 5 * RANKS]);
        let place = if self.rank == 1 { write(&mut output) } else { write(&mut []) };
        self.call(gather, read(&input), place).unwrap();
        let expected = if self.rank == 1 { [[1.0; 5], [2.0; 5]].concat() } else { vec![0.0; 10] };
        assert_eq!(output, expected);
        assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 0, "scratch memory is left");
    }

    /// Every typed call once.
    fn typed_calls(&self) {
        let (on_queue, own) = (self.comm.on(self.queue), self.own());
        let (pair, mut shared) = ([own, 10.0 * own], [0.0; 1]);
        let (mut all, mut turned) = ([0.0; 4], [0.0; 2]);
        on_queue.reduce_scatter(&lent(&pair), &mut lent_mut(&mut shared), ReduceOp::Max).unwrap();
        on_queue.all_gather(&lent(&pair), &mut lent_mut(&mut all)).unwrap();
        on_queue.all_to_all(&lent(&pair), &mut lent_mut(&mut turned)).unwrap();
        let first = self.rank == 0;
        assert_eq!(shared, if first { [2.0] } else { [20.0] });
        assert_eq!((all, turned), ([1.0, 10.0, 2.0, 20.0], if first { [1.0, 2.0] } else { [10.0, 20.0] }));
        let (mut sent, mut summed, mut gathered, mut share) = ([own; 3], [0.0; 2], [0.0; 4], [0.0; 2]);
        on_queue.broadcast(&mut lent_mut(&mut sent), 1).unwrap();
        let output = first.then(|| lent_mut(&mut summed));
        on_queue.reduce(&lent(&pair), output, ReduceOp::Sum, 0).unwrap();
        on_queue.gather(&lent(&pair), first.then(|| lent_mut(&mut gathered)), 0).unwrap();
        on_queue.scatter((!first).then(|| lent(&all)), &mut lent_mut(&mut share), 1).unwrap();
        on_queue.barrier().unwrap();
        assert_eq!((sent, share), ([2.0; 3], if first { [1.0, 10.0] } else { [2.0, 20.0] }));
        let expected = if first { ([3.0, 30.0], all) } else { ([0.0; 2], [0.0; 4]) };
        assert_eq!((summed, gathered), expected);
    }

    fn asynchronous(&self) {
        let mut memory = vec![self.own(); 9];
        let start = memory.as_mut_ptr().expose_provenance();
        // SAFETY: the vector lives until the call has ended, and nobody else uses it.
        let elements = unsafe { DeviceSliceMut::<f32>::from_raw(start, memory.len(), 0) }.unwrap();
        let finished = self.comm.on(self.queue).all_reduce_async(elements, ReduceOp::Sum).finish();
        assert!(finished.result.is_ok() && finished.buffers.is_some(), "{:?}", finished.result);
        assert_eq!(memory, [3.0; 9]);
    }

    fn refusals(&self) {
        let on_host = self.comm.all_reduce(&mut [1.0f32], ReduceOp::Sum);
        assert!(matches!(on_host, Err(Error::Unsupported { .. })), "{on_host:?}");
        let mut memory = vec![1.0; 4];
        let avg = Descriptor { op: Some(ReduceOp::Avg), ..sum(4) };
        let refused = self.in_place(avg, write(&mut memory));
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
        // SAFETY: they are refused.
        let [null, other] =
            [(0, 0), (8, 3)].map(|(queue, device)| unsafe { DeviceStream::from_raw(queue, device) });
        for stream in [null, other] {
            let call = Call::new(Descriptor::new(Collective::Barrier, DType::U8, 0), Buffers::none());
            let refused = self.comm.issue(Call { stream: Some(stream), ..call });
            assert!(matches!(refused, Err(Error::InvalidArgument { argument: "stream", .. })), "{refused:?}");
        }
        // None of them has a number.
        self.calls();
    }

    /// The last: what fails in SYCL revokes the communicator.
    fn failure(&self) {
        NEXT_WAIT.store(7, Ordering::SeqCst);
        let mut memory = vec![1.0; 4];
        let failed = self.in_place(sum(4), write(&mut memory)).unwrap_err();
        let text = failed.to_string();
        assert!(text.contains("SYCL") && text.contains('7') && text.contains("wait"), "{text}");
        assert!(self.comm.with(CallOptions::new()).barrier().is_err());
    }
}

fn is_rank() -> bool {
    std::env::var_os(IS_RANK).is_some()
}

fn run_rank() {
    let world = Job::join(&Config::from_environment().unwrap(), &Tcp { memory: false }).unwrap();
    let library = Ccl::open(&CclOptions { directory: ccl::ccl_directory() }).unwrap();
    // SAFETY: the functions above do it.
    let vendor = unsafe { CclVendor::on_queues(library, SYCL, 0) };
    let options = OffloadOptions::new(Duration::from_secs(60), false);
    let comm = CclCommunicator::open(world.companion().unwrap(), Ok(Arc::new(vendor)), &options).unwrap();
    // SAFETY: the double takes any address for a queue.
    let queue = unsafe { DeviceStream::from_raw(64, 0) };
    let rank = QueueRank { rank: comm.group().rank(), comm, queue };
    rank.calls();
    rank.asynchronous();
    rank.refusals();
    rank.failure();
}

#[test]
fn calls_are_enqueued_on_a_programs_queues() {
    if is_rank() {
        return watchdog(SECONDS_MAX, "a rank on queues", run_rank);
    }
    let Some(environment) = ccl::ccl_environment() else { return };
    watchdog(SECONDS_MAX, "queues", || {
        let job = format!("queues-{}", std::process::id());
        let ranks: Vec<_> = (0..RANKS)
            .map(|rank| {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args([
                    "--exact",
                    "ccl::queues::calls_are_enqueued_on_a_programs_queues",
                    "--nocapture",
                ]);
                command.envs(environment.iter().map(|(name, value)| (name, value)));
                command.env(IS_RANK, "").env("RANK", rank.to_string()).env("WORLD_SIZE", RANKS.to_string());
                command.env("UNISONO_JOB", &job).spawn().unwrap()
            })
            .collect();
        let statuses: Vec<_> = ranks.into_iter().map(|mut rank| rank.wait().unwrap()).collect();
        assert!(statuses.iter().all(std::process::ExitStatus::success), "{statuses:?}");
    });
}
