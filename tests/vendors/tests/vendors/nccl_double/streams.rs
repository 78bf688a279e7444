//! Streams that are captured into graphs, by other threads and by the caller's, and streams that are none of the
//! caller's on a thread of NCCL's. In processes of their own: a capture concerns every thread.

#![expect(unsafe_code, reason = "streams of a device, by their handles")]

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;

use unisono_collectives::CollectivesOnDevice;
use unisono_communicator::{Communicator, DeviceStream, Error, ReduceOp};
use unisono_cuda::{Context, Driver, Stream};
use unisono_offload::HostMemory;
use unisono_tests::doubles::{self, Control, NcclDouble};
use unisono_tests::on_device::VendorDouble;
use unisono_tests::{alone, test_name};

use super::on_device::Rank;

/// CU_STREAM_CAPTURE_MODE_GLOBAL.
const GLOBAL: i32 = 0;

/// A stream of the program's that is being captured.
struct Capture {
    control: Control,
    context: Context,
    stream: Stream,
}

impl Capture {
    /// Begins it, in global mode, on this thread.
    fn begin(device: u32) -> Capture {
        let context = Driver::open(Some(&doubles::nccl())).unwrap().context(device).unwrap();
        let (control, stream) = (NcclDouble::control(), context.stream().unwrap());
        let begun = context.with_current(|| Ok(control.begin_capture(stream.raw(), GLOBAL)));
        assert_eq!(begun.unwrap(), 0);
        Capture { control, context, stream }
    }

    /// Ends it, and that it is not void.
    fn end(self) {
        let ended = self.context.with_current(|| Ok(self.control.end_capture(self.stream.raw())));
        assert_eq!(ended.unwrap(), 0, "the capture is void");
    }
}

fn sums(rank: &Rank) {
    let (mut array, on) = (rank.array(&[rank.own(); 5]), rank.on_stream());
    for round in 0..3 {
        on.wait(on.all_reduce(&mut array.write(rank), ReduceOp::Sum).unwrap()).unwrap();
        assert_eq!(rank.copied(&array), [3.0 * 2f32.powi(round); 5]);
    }
    let other = rank.comm.duplicate().unwrap();
    let on = other.on(rank.device_stream());
    other.resolve(on.all_reduce(&mut array.write(rank), ReduceOp::Max).unwrap().ticket().unwrap()).unwrap();
}

/// Another thread of the program captures while calls are made, waited for and looked after.
#[test]
fn a_capture_on_another_thread_goes_on() {
    let test = test_name(module_path!(), "a_capture_on_another_thread_goes_on");
    alone(test, &[], || {
        let both = Barrier::new(2);
        Rank::run(2, HostMemory::Refused, |rank| {
            let (begun, has_begun) = channel();
            let (end, ends) = channel::<()>();
            thread::scope(|scope| {
                if rank.rank == 0 {
                    scope.spawn(move || {
                        let capture = Capture::begin(0);
                        begun.send(()).unwrap();
                        // When the calls have been made, or have failed.
                        let _ = ends.recv();
                        capture.end();
                    });
                    has_begun.recv().unwrap();
                }
                both.wait();
                sums(rank);
                both.wait();
                drop(end);
            });
        });
    });
}

/// The caller's own thread captures another stream, and makes calls on one that is not captured meanwhile.
#[test]
fn a_capture_on_the_callers_thread_goes_on() {
    let test = test_name(module_path!(), "a_capture_on_the_callers_thread_goes_on");
    alone(test, &[], || {
        let both = Barrier::new(2);
        Rank::run(2, HostMemory::Refused, |rank| {
            let capture = Capture::begin(rank.rank);
            both.wait();
            sums(rank);
            both.wait();
            capture.end();
        });
    });
}

/// The driver's answer that a capture forbids the question says nothing of the call.
#[test]
fn a_question_that_is_not_allowed_is_asked_again() {
    let test = test_name(module_path!(), "a_question_that_is_not_allowed_is_asked_again");
    alone(test, &[], || {
        let control = NcclDouble::control();
        Rank::run(2, HostMemory::Refused, |rank| {
            let mut array = rank.array(&[rank.own(); 5]);
            control.inject("cuEventQuery", 1, 900);
            let on = rank.on_stream();
            on.wait(on.all_reduce(&mut array.write(rank), ReduceOp::Sum).unwrap()).unwrap();
            assert_eq!(rank.copied(&array), [3.0; 5]);
        });
    });
}

/// CU_STREAM_PER_THREAD is another stream on a thread of NCCL's: nobody would know when the work is done.
#[test]
fn the_default_stream_of_a_thread_is_refused() {
    let test = test_name(module_path!(), "the_default_stream_of_a_thread_is_refused");
    alone(test, &[], || {
        Rank::run(2, HostMemory::Refused, |rank| {
            let mut array = rank.array(&[rank.own(); 5]);
            // SAFETY: the handle is that of a stream of every thread.
            let stream = unsafe { DeviceStream::from_raw(2, rank.rank) };
            let refused = rank.comm.on(stream).all_reduce(&mut array.write(rank), ReduceOp::Sum);
            let Err(Error::Unsupported { what, instead: Some(instead), .. }) = &refused else {
                panic!("{refused:?}");
            };
            assert!(what.contains("CU_STREAM_PER_THREAD"), "{what}");
            assert!(instead.contains("cuStreamCreate"), "{instead}");
            // It had no number: the next call is the first.
            let on = rank.on_stream();
            on.wait(on.all_reduce(&mut array.write(rank), ReduceOp::Sum).unwrap()).unwrap();
            assert_eq!(rank.copied(&array), [3.0; 5]);
        });
    });
}
