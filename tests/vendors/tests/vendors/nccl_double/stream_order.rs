//! Calls of two communicators on streams: in two orders on one stream they are a mismatch that names both, and any
//! order that is right is left alone. Ranks are processes.

#![expect(unsafe_code, reason = "memory and streams of a device, by their addresses")]

use std::time::Duration;

use unisono::World;
use unisono_collectives::CollectivesOnDevice;
use unisono_communicator::{Communicator, DeviceSliceMut, DeviceStream, Error, Outcome, ReduceOp, Result};
use unisono_cuda::{Context, Driver, Memory, Stream};
use unisono_tests::{doubles, watchdog};

use super::job::{Job, is_rank};
use super::on_device::SECONDS_MAX;

/// Several times as long as it takes until a rank that waits asks the others.
const SLOW: Duration = Duration::from_millis(600);

/// A rank with two streams.
struct Process {
    world: World,
    context: Context,
    streams: [Stream; 2],
}

/// A call of a communicator on a stream, and its memory.
struct Put<'a> {
    comm: &'a dyn Communicator,
    stream: DeviceStream,
    memory: Memory,
    outcome: Result<Outcome>,
}

impl Process {
    fn new() -> Process {
        let world = unisono::init().unwrap();
        assert_eq!(world.backend(), "nccl");
        let driver = Driver::open(Some(&doubles::nccl())).unwrap();
        let context = driver.context(world.group().rank()).unwrap();
        let streams = [(); 2].map(|()| context.stream().unwrap());
        Process { world, context, streams }
    }

    fn rank(&self) -> u32 {
        self.world.group().rank()
    }

    /// The sum of all ranks' numbers plus one, with `which` of the streams.
    fn put<'a>(&self, comm: &'a dyn Communicator, which: usize) -> Put<'a> {
        let (stream, own) = (&self.streams[which], self.rank() as f32 + 1.0);
        let mut memory = self.context.allocate(64).unwrap();
        // Not on the call's stream, which may be behind a call that never ends.
        let beside = self.context.stream().unwrap();
        memory.write(0, bytemuck::cast_slice(&[own; 16]), &beside).unwrap();
        beside.synchronize().unwrap();
        // SAFETY: the memory and the stream are of this rank's device, and live until the call has ended.
        let (mut elements, stream) = unsafe {
            let elements = DeviceSliceMut::<f32>::from_raw(memory.address() as usize, 16, self.rank());
            (elements.unwrap(), DeviceStream::from_raw(stream.raw(), self.rank()))
        };
        let outcome = comm.on(stream).all_reduce(&mut elements, ReduceOp::Sum);
        Put { comm, stream, memory, outcome }
    }

    /// The end of a call, and that its sum is right if it has gone well.
    fn end(&self, put: Put<'_>) -> Result<()> {
        put.comm.on(put.stream).wait(put.outcome?)?;
        let mut sums = [0f32; 16];
        let stream = self.context.stream().unwrap();
        put.memory.read(0, bytemuck::cast_slice_mut(&mut sums), &stream).unwrap();
        let sum: u32 = put.comm.group().job_ranks().iter().map(|rank| rank.get() + 1).sum();
        assert_eq!(sums, [sum as f32; 16]);
        Ok(())
    }
}

/// One of the two communicators has ended with the mismatch; the other too, or well.
fn are_mixed_up(ends: [Result<()>; 2]) {
    let errors: Vec<Error> = ends.into_iter().filter_map(Result::err).collect();
    assert!(!errors.is_empty(), "all is well");
    for error in errors {
        let Error::Mismatch { calls, .. } = error.root_cause() else { panic!("{error}") };
        assert!(calls[0].0 != calls[1].0, "{error}");
        let text = error.to_string();
        assert_eq!(text.matches("all_reduce(16 x f32").count(), 2, "{text}");
        assert!(text.contains("order on one stream: call 0 of communicator "), "{text}");
        assert!(text.contains(" before call 0 of communicator "), "{text}");
    }
}

fn job(test: &str, ranks: u32, body: impl FnOnce(&Process) + Send + 'static) {
    let name = format!("nccl_double::stream_order::{test}");
    if is_rank() {
        return watchdog(SECONDS_MAX, "a rank", || {
            let rank = Process::new();
            body(&rank);
            // Nobody leaves before all have what they wait for.
            rank.world.close().unwrap();
        });
    }
    watchdog(SECONDS_MAX, test, move || {
        Job::start(&name, ranks, |_| vec![("UNISONO_BACKEND", "nccl".to_owned())]).end();
    });
}

#[test]
fn two_ranks() {
    job("two_ranks", 2, |rank| {
        let (first, second) = (rank.world.duplicate().unwrap(), rank.world.duplicate().unwrap());
        let is_late = rank.rank() == 1;
        // The same order, and a rank that is slow.
        if is_late {
            std::thread::sleep(SLOW);
        }
        let puts = [rank.put(&*first, 0), rank.put(&*second, 0)];
        puts.into_iter().for_each(|put| rank.end(put).unwrap());
        // Two orders on two streams.
        let (one, other) = if is_late { (&second, &first) } else { (&first, &second) };
        let one = rank.put(&**one, 0);
        std::thread::sleep(SLOW);
        let other = rank.put(&**other, 1);
        [one, other].into_iter().for_each(|put| rank.end(put).unwrap());
        // Two orders, one stream on one rank and two on the other.
        let one = rank.put(if is_late { &*second } else { &*first }, 0);
        let other = rank.put(if is_late { &*first } else { &*second }, usize::from(is_late));
        std::thread::sleep(SLOW);
        [one, other].into_iter().for_each(|put| rank.end(put).unwrap());
        // Two orders on one stream.
        let (first, second) = (rank.world.duplicate().unwrap(), rank.world.duplicate().unwrap());
        let (one, other) = if is_late { (&second, &first) } else { (&first, &second) };
        let puts = [rank.put(&**one, 0), rank.put(&**other, 0)];
        are_mixed_up(puts.map(|put| rank.end(put)));
        // The world is another communicator, and goes on.
        rank.end(rank.put(&*rank.world, 0)).unwrap();
    });
}

#[test]
fn three_ranks() {
    job("three_ranks", 3, |rank| {
        let all = rank.world.duplicate().unwrap();
        let pair = rank.world.subgroup(&[0, 1]).unwrap();
        // Before the call of all, a call of some, one of which is slow.
        if rank.rank() == 1 {
            std::thread::sleep(SLOW);
        }
        let of_pair = pair.as_deref().map(|pair| rank.put(pair, 0));
        rank.end(rank.put(&*all, 0)).unwrap();
        if let Some(put) = of_pair {
            rank.end(put).unwrap();
        }
        // The two are in another order than the third would be, which is in one of them only.
        let (all, pair) = (rank.world.duplicate().unwrap(), rank.world.subgroup(&[0, 1]).unwrap());
        match (rank.rank(), pair) {
            (0, Some(pair)) => {
                let puts = [rank.put(&*all, 0), rank.put(&*pair, 0)];
                are_mixed_up(puts.map(|put| rank.end(put)));
            }
            (1, Some(pair)) => {
                let puts = [rank.put(&*pair, 0), rank.put(&*all, 0)];
                are_mixed_up(puts.map(|put| rank.end(put)));
            }
            // Its call goes well if the other communicator was the first that ended.
            _ => {
                if let Err(error) = rank.end(rank.put(&*all, 0)) {
                    are_mixed_up([Err(error), Ok(())]);
                }
            }
        }
        rank.end(rank.put(&*rank.world, 0)).unwrap();
    });
}
