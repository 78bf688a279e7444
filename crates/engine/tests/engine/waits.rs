//! A call that waits asks, warns, and ends at its deadline. Traffic of other calls does not change this. The clock
//! belongs to the test.

use std::fmt::{self, Debug};
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, mpsc};
use std::time::{Duration, Instant};

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{CallOptions, Error, Executor, Peer, ReduceOp, Work, flush_log};
use unisono_engine::{Edge, EngineCommunicator, EngineOptions, Flow, Lane, Tap, Tapped, in_process};

use crate::clocked::{Clock, Clocked};
use crate::support::watched;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A clock that advances by a millisecond at every look at messages, and jumps to the end of every sleep.
#[derive(Clone)]
struct TestClock {
    start: Instant,
    passed_us: Arc<AtomicU64>,
}

impl TestClock {
    fn new() -> TestClock {
        TestClock { start: Instant::now(), passed_us: Arc::default() }
    }

    fn time(&self) -> Instant {
        self.start + Duration::from_micros(self.passed_us.load(Ordering::SeqCst))
    }

    fn go_on(&self, time: Duration) {
        self.passed_us.fetch_add(time.as_micros() as u64, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Instant {
        self.time()
    }

    fn skip_to(&mut self, until: Instant) -> bool {
        self.go_on(until.saturating_duration_since(self.time()) + Duration::from_micros(1));
        true
    }
}

/// Gives a rank its messages a few bytes at every second look. A look takes a millisecond.
struct Trickle {
    clock: TestClock,
    is_dry: bool,
}

impl Tap for Trickle {
    fn before(&mut self, edge: Edge, flow: Flow, bytes: usize) -> io::Result<usize> {
        if (edge.lane, flow) != (Lane::PointToPoint, Flow::In) {
            return Ok(bytes);
        }
        self.clock.go_on(Duration::from_millis(1));
        self.is_dry = !self.is_dry;
        if self.is_dry { Err(ErrorKind::WouldBlock.into()) } else { Ok(bytes.min(4)) }
    }

    fn after(&mut self, _edge: Edge, _flow: Flow, _bytes: usize) {}

    fn forbids_sleep(&mut self) -> bool {
        true
    }
}

type TimedWorld =
    Vec<Arc<EngineCommunicator<Clocked<Tapped<in_process::InProcessLinks, Trickle>, TestClock>>>>;

/// A call of rank 0 that waits for rank 1 until its deadline.
type Blocked = fn(&TimedWorld) -> Error;

/// Two ranks, and the clock of rank 0.
fn world() -> (TimedWorld, TestClock) {
    let options = EngineOptions { spin: Duration::ZERO, ..EngineOptions::default() };
    let clocks = [TestClock::new(), TestClock::new()];
    let world = in_process::world_of(2, &options, |rank, links| {
        let clock = clocks[rank as usize].clone();
        let links = Tapped::with_tap(links, Trickle { clock: clock.clone(), is_dry: false });
        Clocked { links, clock }
    });
    let [clock, _] = clocks;
    (world, clock)
}

/// The number of messages with tag 1 that arrive at rank 0. Each has 8 bytes, 40 with its header, and 4 bytes arrive in
/// 2 ms.
const TRICKLING: u64 = 4000;

/// Far less time than all the messages take, and far more than the deadline.
const SOON: Duration = Duration::from_secs(30);

fn deadline() -> CallOptions {
    CallOptions::new().timeout(Duration::from_secs(2))
}

/// Checks that a call that began at `began` has ended by its deadline, and not by the end of the messages.
fn check(error: &Error, clock: &TestClock, began: Instant) {
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let took = clock.time() - began;
    assert!(took >= Duration::from_secs(2) && took < SOON, "{took:?}: {error}");
}

#[test]
fn messages_that_arrive_do_not_postpone_the_deadline_of_a_collective() {
    watched(|| {
        let (world, clock) = world();
        (0..TRICKLING).for_each(|number| world[1].send(&[number], 0, 1).unwrap());
        let _receives: Vec<Work> =
            (0..TRICKLING).map(|_| world[0].recv_async(vec![0u64], Peer::Rank(1), 1).into_work()).collect();
        let began = clock.time();
        let error = world[0].with(deadline()).barrier().unwrap_err();
        check(&error, &clock, began);
        assert!(error.to_string().contains("has not called"), "it has been asked: {error}");
    });
}

#[test]
fn messages_that_arrive_do_not_postpone_the_deadline_of_another_receive() {
    watched(|| {
        let (world, clock) = world();
        (0..TRICKLING).for_each(|number| world[1].send(&[number], 0, 1).unwrap());
        let began = clock.time();
        let error = world[0].with(deadline()).recv(&mut [0u64], Peer::Rank(1), 2).unwrap_err();
        check(&error, &clock, began);
    });
}

/// Keeps the warnings of its thread.
#[derive(Clone, Default)]
struct Warnings {
    lines: Arc<Mutex<Vec<String>>>,
}

/// The text of one event.
#[derive(Default)]
struct EventText(String);

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = fmt::write(&mut self.0, format_args!("{value:?}"));
        }
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = EventText::default();
        event.record(&mut text);
        self.lines.lock().unwrap().push(text.0);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// Makes `call` with a subscriber that belongs to this thread alone.
///
/// While a thread's subscriber is the only one of the process, tracing-core (0.1.36, `Rebuilder::JustOne`) asks the
/// thread that first comes to an event whether the event is wanted, and keeps that answer for all threads. Another
/// test, which has no subscriber, would silence the event for this one. A subscriber of the whole process makes two.
fn with_subscriber<T>(subscriber: impl Subscriber + Send + Sync + 'static, call: impl FnOnce() -> T) -> T {
    let _ = of_all_threads();
    tracing::subscriber::with_default(subscriber, call)
}

/// The warnings of all threads without a subscriber of their own, of any test.
fn of_all_threads() -> &'static Warnings {
    static OF_ALL: LazyLock<Warnings> = LazyLock::new(|| {
        let warnings = Warnings::default();
        tracing::subscriber::set_global_default(warnings.clone()).unwrap();
        warnings
    });
    &OF_ALL
}

#[test]
fn blocked_calls_of_every_kind_warn_once_and_say_what_the_awaited_rank_does() {
    watched(|| {
        let calls: [(&str, Blocked); 3] = [
            ("barrier", |world| world[0].barrier().unwrap_err()),
            ("recv", |world| world[0].recv(&mut [0u8], Peer::Rank(1), 3).unwrap_err()),
            ("send", |world| world[0].send(&vec![0u8; 1 << 20], 1, 3).unwrap_err()),
        ];
        for (name, call) in calls {
            let (warnings, (world, _)) = (Warnings::default(), world());
            let error = with_subscriber(warnings.clone(), || call(&world));
            assert!(matches!(error, Error::Timeout { .. }), "{name}: {error}");
            // A thread that holds links hands its lines to another thread.
            flush_log(Duration::from_secs(60));
            let lines = warnings.lines.lock().unwrap().clone();
            assert_eq!(lines.len(), 1, "{name}: {lines:?}");
            let expected = "has not moved for 30.0s: rank 1 has not called anything yet; its deadline is ";
            assert!(lines[0].contains(name) && lines[0].contains(expected), "{name}: {lines:?}");
        }
    });
}

/// The receives are posted one after the other, so each would be due for a warning at a time of its own.
#[test]
fn many_receives_that_wait_are_one_line_in_the_log() {
    // No other test has such tags.
    const TAG: u32 = 7_700_000;
    watched(|| {
        let (warnings, (world, clock)) = (of_all_threads(), world());
        let post = |number| {
            clock.go_on(Duration::from_millis(5));
            world[0].recv_async(vec![0u8], Peer::Rank(1), TAG + number).into_work()
        };
        let works: Vec<_> = (0..3000).map(post).collect();
        assert!(matches!(works[2999].wait().unwrap_err(), Error::Timeout { .. }));
        flush_log(Duration::from_secs(60));
        let mut lines = warnings.lines.lock().unwrap().clone();
        lines.retain(|line| line.contains("tag 77"));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(" more sends and receives) has not moved for "), "{lines:?}");
    });
}

/// A subscriber that makes a call.
struct CallingSubscriber {
    comm: Arc<in_process::InProcessCommunicator>,
    ended: Mutex<mpsc::Sender<unisono_communicator::Result<()>>>,
}

impl Subscriber for CallingSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &Event<'_>) {
        let own = self.comm.group().rank();
        let _ = self.ended.lock().unwrap().send(self.comm.send(&[1u8], own, 3));
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

#[test]
fn a_subscriber_may_make_a_call() {
    watched(|| {
        let options = EngineOptions { warn_after: Duration::from_millis(10), ..EngineOptions::default() };
        let world = in_process::world_of(2, &options, |_, links| links);
        let (ended, calls) = mpsc::channel();
        let calling = CallingSubscriber { comm: world[0].clone(), ended: Mutex::new(ended) };
        std::thread::scope(|scope| {
            scope.spawn(|| with_subscriber(calling, || world[0].barrier().unwrap()));
            calls.recv().unwrap().unwrap();
            world[1].barrier().unwrap();
        });
    });
}

#[test]
fn the_rank_that_an_asynchronous_receive_waits_for_is_asked_too() {
    watched(|| {
        let (world, _) = world();
        let error = world[0].recv_async(vec![0u8], Peer::Rank(1), 3).into_work().wait().unwrap_err();
        let Error::Timeout { not_arrived, .. } = &error else { panic!("{error}") };
        assert_eq!(not_arrived[0].status, "has not sent and has not called anything yet");
    });
}

/// A call that never waits does not read the clock.
#[test]
fn a_call_that_never_waits_reads_no_clock() {
    struct Watched(Arc<AtomicBool>);
    impl Clock for Watched {
        fn now(&self) -> Instant {
            self.0.store(true, Ordering::SeqCst);
            Instant::now()
        }
    }
    watched(|| {
        let is_read = Arc::new(AtomicBool::new(false));
        let world = in_process::world_of(2, &EngineOptions::default(), |_, links| {
            let clock = Watched(is_read.clone());
            Clocked { links, clock }
        });
        for number in 0..100u64 {
            let mut value = [0];
            world[0].send(&[number], 1, 1).unwrap();
            world[1].recv(&mut value, Peer::Rank(0), 1).unwrap();
            assert_eq!(value, [number]);
        }
        assert!(!is_read.load(Ordering::SeqCst));
    });
}

/// The ranks of a world whose calls have this deadline.
fn hurried(ranks: u32, timeout_ms: u64) -> Vec<Arc<in_process::InProcessCommunicator>> {
    let options = EngineOptions {
        timeout: Duration::from_millis(timeout_ms),
        probe_after: Duration::from_millis(10),
        ..EngineOptions::default()
    };
    in_process::world_of(ranks, &options, |_, links| links)
}

/// The error of the first rank to give up, if all ranks make these calls.
fn first_timeout(
    world: &[Arc<in_process::InProcessCommunicator>],
    call: impl Fn(u32, &in_process::InProcessCommunicator) -> unisono_communicator::Result<()> + Sync,
) -> String {
    let errors: Vec<Error> = std::thread::scope(|scope| {
        let ranks = world.iter().zip(0..).map(|(comm, rank)| {
            scope.spawn({
                let call = &call;
                move || call(rank, comm)
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().filter_map(|rank| rank.join().unwrap().err()).collect()
    });
    let root = errors[0].root_cause();
    assert!(matches!(root, Error::Timeout { .. }), "{root}");
    root.to_string()
}

/// The length of a message that needs a request.
const LONG: usize = 1 << 20;

#[test]
fn a_rank_that_is_in_a_message_says_so() {
    watched(|| {
        let world = hurried(2, 2000);
        let text = first_timeout(&world, |rank, comm| match rank {
            0 => comm.barrier(),
            _ => comm.with(CallOptions::new().timeout(Duration::from_secs(60))).send(&vec![1u8; LONG], 0, 5),
        });
        let told = "rank 1 is in send(1048576 x u8, peer 0, tag 5) at crates/engine/tests/engine/waits.rs:";
        assert!(text.contains(told), "{text}");
        assert!(text.contains(", has called no collective yet and waits for rank 0"), "{text}");
        assert!(text.contains("; ranks 0 -> 1 -> 0 wait for each other"), "{text}");
    });
}

#[test]
fn messages_of_other_tags_that_lie_here_are_told() {
    watched(|| {
        let world = hurried(2, 1000);
        (0..3).for_each(|number| world[0].send(&[number], 1, 7 + number / 2).unwrap());
        let text = world[1].recv(&mut [0u8], Peer::Rank(0), 5).unwrap_err().to_string();
        let told = "; on rank 1 lie 2 messages of tag 7 from rank 0, 1 message of tag 8 from rank 0 without a receive";
        assert!(text.contains(told), "{text}");
        // A message that has been received is no longer reported.
        let world = hurried(2, 1000);
        (0..2u8).for_each(|number| world[0].send(&[number], 1, 7 + u32::from(number)).unwrap());
        world[1]
            .with(CallOptions::new().timeout(Duration::from_millis(300)))
            .recv(&mut [0u8], Peer::Rank(0), 7)
            .unwrap();
        let text = world[1].recv(&mut [0u8], Peer::Rank(0), 5).unwrap_err().to_string();
        assert!(text.contains("; on rank 1 lie 1 message of tag 8 from rank 0 without a receive"), "{text}");
    });
}

#[test]
fn sends_in_a_circle_are_named_as_a_circle() {
    watched(|| {
        let world = hurried(3, 2000);
        let text = first_timeout(&world, |rank, comm| comm.send(&vec![1u8; LONG], (rank + 1) % 3, 0));
        let circles = ["0 -> 1 -> 2 -> 0", "1 -> 2 -> 0 -> 1", "2 -> 0 -> 1 -> 2"];
        assert!(
            circles.iter().any(|circle| text.contains(&format!("; ranks {circle} wait for each other"))),
            "{text}"
        );
    });
}

/// Two ranks that exchange bytes in a later step wait for each other too, and not only for the rank that is late.
#[test]
fn the_rank_that_has_not_called_is_found_behind_all_others() {
    watched(|| {
        for algorithm in ["halving_doubling", "double_tree", "recursive_doubling"] {
            for late in 0..7 {
                let world = hurried(7, 400);
                let text = first_timeout(&world, |rank, comm| {
                    if rank == late {
                        return Ok(());
                    }
                    let comm = comm.with(CallOptions::new().algorithm(algorithm));
                    comm.all_reduce(&mut [rank; 26], ReduceOp::Sum)
                });
                let told = format!("rank {late} has not called anything yet");
                assert!(text.contains(&told) && !text.contains("wait for each other"), "{algorithm}: {text}");
            }
        }
    });
}

#[test]
fn the_rank_that_waits_for_nobody_is_named_first_for_a_message_too() {
    watched(|| {
        let world = hurried(3, 2000);
        let text = first_timeout(&world, |rank, comm| match rank {
            0 => comm.recv(&mut [0u8], Peer::Rank(1), 0).map(drop),
            1 => comm
                .with(CallOptions::new().timeout(Duration::from_secs(60)))
                .recv(&mut [0u8], Peer::Rank(2), 4)
                .map(drop),
            _ => Ok(()),
        });
        let (late, victim) = (
            text.find("rank 2 has not called"),
            text.find("rank 1 has not sent and is in recv(1 x u8, peer 2, tag 4)"),
        );
        assert!(late.is_some() && victim > late, "{text}");
    });
}
