//! Functions given to `on_done`: their order, functions that wait for later ones or make calls, and the threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use unisono_collectives::CollectivesAsync;
use unisono_communicator::{Communicator, ReduceOp};
use unisono_engine::{EngineOptions, ProgressThreads, in_process};

use crate::support::watched;

/// More functions than threads that may run such functions.
const FUNCTIONS: usize = 80;

fn options() -> (EngineOptions, ProgressThreads) {
    let options = EngineOptions::default();
    let threads = options.progress.clone();
    (options, threads)
}

#[test]
fn functions_run_in_the_order_in_which_calls_end() {
    watched(|| {
        let (options, threads) = options();
        let world = in_process::world_of(2, &options, |_, links| links);
        let (sender, ended) = mpsc::channel();
        for comm in &world {
            for number in 0..FUNCTIONS {
                let (sender, rank) = (sender.clone(), comm.group().rank());
                let work = comm.all_reduce_async(vec![1u32], ReduceOp::Sum);
                work.as_work().on_done(move |result| sender.send((rank, number, result.is_ok())).unwrap());
            }
        }
        drop(sender);
        let ended: Vec<_> = ended.iter().collect();
        for rank in [0, 1] {
            let numbers = ended.iter().filter(|(of, ..)| *of == rank).map(|(_, number, _)| *number);
            assert!(numbers.eq(0..FUNCTIONS), "{ended:?}");
        }
        assert!(ended.iter().all(|(.., is_ok)| *is_ok));
        // Short functions need no thread each.
        assert!(threads.count() <= 4, "{threads:?}");
    });
}

/// Each function but the last one waits for the next one.
#[test]
fn a_function_may_wait_for_a_later_one() {
    watched(|| {
        const CHAIN: usize = 40;
        let (options, _) = options();
        let world = in_process::world_of(2, &options, |_, links| links);
        let last = Arc::new((Mutex::new(usize::MAX), Condvar::new()));
        for number in 0..CHAIN {
            for comm in &world {
                let (last, is_waiting) = (last.clone(), comm.group().rank() == 0);
                let work = comm.all_reduce_async(vec![1u32], ReduceOp::Sum);
                work.as_work().on_done(move |_| {
                    let (ended, changed) = &*last;
                    let mut ended = ended.lock().unwrap();
                    while is_waiting && number + 1 < CHAIN && *ended != number + 1 {
                        ended = changed.wait(ended).unwrap();
                    }
                    if is_waiting {
                        *ended = number;
                        changed.notify_all();
                    }
                });
            }
        }
        let (ended, changed) = &*last;
        drop(changed.wait_while(ended.lock().unwrap(), |ended| *ended != 0).unwrap());
    });
}

/// More functions block than there are threads for them: the others wait, and run when the first ones end.
#[test]
fn functions_beyond_the_number_of_threads_wait() {
    watched(|| {
        let (options, threads) = options();
        let world = in_process::world_of(2, &options, |_, links| links);
        let start = |rank: usize| world[rank].all_reduce_async(vec![1u32], ReduceOp::Sum);
        let (release, entered) =
            (Arc::new((Mutex::new(false), Condvar::new())), Arc::new(AtomicUsize::new(0)));
        let (sender, ended) = mpsc::channel();
        for _ in 0..FUNCTIONS {
            let (release, entered, sender) = (release.clone(), entered.clone(), sender.clone());
            start(0).as_work().on_done(move |_| {
                entered.fetch_add(1, Ordering::SeqCst);
                let (is_over, changed) = &*release;
                drop(changed.wait_while(is_over.lock().unwrap(), |is_over| !*is_over).unwrap());
                sender.send(()).unwrap();
            });
        }
        drop(sender);
        // No call has ended before: its function would have run on this thread.
        let others: Vec<_> = (0..FUNCTIONS).map(|_| start(1)).collect();
        while entered.load(Ordering::SeqCst) < 64 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Calls go on meanwhile.
        assert!(others.into_iter().all(|other| other.wait().unwrap() == [2]));
        let (work, other) = (start(0), start(1));
        assert_eq!((work.wait().unwrap(), other.wait().unwrap()), (vec![2], vec![2]));
        assert!(threads.count() <= 64 + 8, "{threads:?}");
        *release.0.lock().unwrap() = true;
        release.1.notify_all();
        assert_eq!(ended.iter().count(), FUNCTIONS);
        // Threads that nobody needs end.
        let began = Instant::now();
        while threads.count() > 8 {
            assert!(began.elapsed() < Duration::from_secs(60), "{threads:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// A function makes blocking and asynchronous calls, and waits for a function of its own.
#[test]
fn a_function_may_make_calls_and_wait_for_their_functions() {
    watched(|| {
        const ROUNDS: usize = 100;
        let (options, _) = options();
        let world: Vec<Arc<_>> =
            in_process::world_of(2, &options, |_, links| links).into_iter().map(Arc::new).collect();
        let (sender, ended) = mpsc::channel();
        for _ in 0..ROUNDS {
            for comm in &world {
                let (inner, sender) = (comm.clone(), sender.clone());
                let work = comm.all_reduce_async(vec![1u32], ReduceOp::Sum);
                work.as_work().on_done(move |_| {
                    let (nested, value) = mpsc::channel();
                    let work = inner.all_reduce_async(vec![2u32], ReduceOp::Sum);
                    work.as_work().on_done(move |result| nested.send(result.is_ok()).unwrap());
                    let sum = inner.all_reduce_async(vec![3u32], ReduceOp::Sum).wait().unwrap();
                    sender.send((value.recv().unwrap(), sum)).unwrap();
                });
            }
            (0..2).for_each(|_| assert_eq!(ended.recv(), Ok((true, vec![6]))));
        }
    });
}

/// All threads wait in communicators in which nothing moves, and a thread of the program ends the call.
#[test]
fn a_function_runs_while_every_thread_waits_for_other_ranks() {
    watched(|| {
        let (options, _) = options();
        let world = in_process::world_of(2, &options, |_, links| links);
        std::thread::scope(|ranks| {
            let (told, asked) = mpsc::channel();
            let others = ranks.spawn({
                let comm = &world[1];
                move || {
                    let groups: Vec<_> = (0..12).map(|_| comm.duplicate().unwrap()).collect();
                    comm.all_reduce_async(vec![1u32], ReduceOp::Sum).wait().unwrap();
                    asked.recv().unwrap();
                    for group in &groups {
                        assert_eq!(group.all_reduce_async(vec![1u32], ReduceOp::Sum).wait().unwrap(), [2]);
                    }
                }
            });
            let groups: Vec<_> = (0..12).map(|_| world[0].duplicate().unwrap()).collect();
            let works: Vec<_> =
                groups.iter().map(|group| group.all_reduce_async(vec![1u32], ReduceOp::Sum)).collect();
            // By then they sleep.
            std::thread::sleep(Duration::from_millis(50));
            let work = world[0].all_reduce_async(vec![1u32], ReduceOp::Sum);
            work.as_work().on_done(move |_| told.send(()).unwrap());
            assert_eq!(work.wait().unwrap(), [2]);
            others.join().unwrap();
            works.into_iter().for_each(|work| assert_eq!(work.wait().unwrap(), [2]));
        });
    });
}
