//! How many functions of ours a call passes, from the typed call to the link that takes its first bytes: the figures of
//! benches/lab/measurements.md.
//!
//! Functions that the compiler has inlined count, as the lines of the backtrace show them.

use std::backtrace::Backtrace;
use std::fmt::Write;
use std::io;
use std::sync::{Arc, Mutex, mpsc};

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{Communicator, Peer, ReduceOp};
use unisono_compression::{CompressedCollectives, CompressionState, Int8};
use unisono_engine::{Edge, EngineOptions, Flow, Tap, Tapped, in_process};
use unisono_tests::watchdog;

use crate::endings::EndingJob;

/// Keeps the backtrace of the first bytes that a rank sends after the place was emptied. The link that holds it stands
/// where `DataLink` does.
struct Stack {
    first: Arc<Mutex<Option<String>>>,
}

impl Tap for Stack {
    fn before(&mut self, _edge: Edge, flow: Flow, bytes: usize) -> io::Result<usize> {
        if flow == Flow::Out {
            self.first.lock().unwrap().get_or_insert_with(|| Backtrace::force_capture().to_string());
        }
        Ok(bytes)
    }

    fn after(&mut self, _edge: Edge, _flow: Flow, _bytes: usize) {}

    fn forbids_sleep(&mut self) -> bool {
        false
    }
}

/// The functions of ours between the link and the test or the standard library's start of a thread, the link first.
fn our_frames(backtrace: &str) -> Vec<String> {
    let lines: Vec<&str> = backtrace.lines().map(str::trim).collect();
    let frames = lines.windows(2).filter_map(|pair| {
        let at = pair[1].strip_prefix("at ")?;
        let is_ours = at.contains("src/") && !at.starts_with("/rustc/") && !at.contains("/registry/");
        let name = pair[0].split_once(": ")?.1.split('<').next()?;
        is_ours.then(|| format!("{name} ({})", at.rsplit("src/").next().unwrap_or(at)))
    });
    frames.collect()
}

/// The frames of rank 0's first bytes in `call`, which both ranks make.
fn frames(call: impl Fn(&Arc<dyn Communicator>) + Sync) -> Vec<String> {
    let first = Arc::new(Mutex::new(None));
    let world = in_process::world_of(2, &EngineOptions::default(), |rank, links| {
        let first = if rank == 0 { first.clone() } else { Arc::default() };
        Tapped::with_tap(links, Stack { first })
    });
    std::thread::scope(|scope| {
        for comm in &world {
            let (call, comm): (_, Arc<dyn Communicator>) = (&call, comm.clone());
            scope.spawn(move || call(&comm));
        }
    });
    let backtrace = first.lock().unwrap().take().expect("rank 0 has sent something");
    our_frames(&backtrace)
}

/// Fails when a call passes more functions than `most`, or so few that they are not all seen, and shows them.
fn check(name: &str, most: usize, frames: &[String]) {
    let mut list = format!("{name}: {} frames, at most {most}", frames.len());
    frames.iter().for_each(|frame| write!(list, "\n  {frame}").unwrap());
    assert!((3..=most).contains(&frames.len()), "{list}");
}

#[test]
fn calls_pass_few_functions() {
    watchdog(60, "calls_pass_few_functions", || {
        let blocking = frames(|comm| (**comm).all_reduce(&mut [1.0f32; 8], ReduceOp::Sum).unwrap());
        check("a blocking all_reduce", 9, &blocking);
        // An `Arc` passes a call on as a `World` does.
        let shared = frames(|comm| comm.all_reduce(&mut [1.0f32; 8], ReduceOp::Sum).unwrap());
        check("a blocking all_reduce of a world", 10, &shared);
        let message = frames(|comm| match comm.group().rank() {
            0 => (**comm).send(&[1.0f32; 8], 1, 0).unwrap(),
            _ => drop((**comm).recv(&mut [0.0f32; 8], Peer::Rank(0), 0).unwrap()),
        });
        check("a blocking send", 12, &message);
        let compressed = frames(|comm| {
            let mut state = CompressionState::new::<f32>(comm, Int8::default(), 8).unwrap();
            (**comm).compressed_all_reduce(&mut [1.0f32; 8], ReduceOp::Sum, &mut state).unwrap();
        });
        check("a compressed all_reduce", 16, &compressed);
        let moved = frames(|comm| {
            let work = (**comm).all_reduce_async(vec![1.0f32; 8], ReduceOp::Sum);
            // Nobody waits for it or asks, so the progress thread moves it.
            let (ended, end) = mpsc::channel();
            work.as_work().on_done(move |_| ended.send(()).unwrap());
            end.recv().unwrap();
        });
        let thread_loop = moved.iter().position(|frame| frame.starts_with("run (calls/progress_threads.rs"));
        let moved = &moved[..=thread_loop.expect("the progress thread has moved it")];
        check("an all_reduce by a progress thread, from its loop", 13, moved);
    });
}

/// A short all_reduce of a real world, to the system call or the store that passes its first bytes on.
#[test]
#[cfg(target_os = "linux")]
fn calls_of_a_world_pass_few_functions_to_the_kernel_or_the_memory() {
    for (medium, shared_memory, most) in [("tcp", "0", 11), ("memory", "1", 12)] {
        let variables = [("UNISONO_SHM", shared_memory)];
        let ended =
            EndingJob::start_program(env!("CARGO_BIN_EXE_first_bytes"), 2, &[medium], &variables).end();
        let frames = our_frames(&ended[0].said);
        let place = |function| frames.iter().position(|frame| frame.contains(function));
        let (Some(handler), Some(main)) = (place("show_stack "), place("main ")) else {
            panic!("{ended:#?}")
        };
        check(medium, most, &frames[handler + 1..main]);
    }
}
