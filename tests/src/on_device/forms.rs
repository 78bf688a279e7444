//! The other forms of typed calls on memory of the double's devices: uneven counts, lists, and handles.

use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use unisono_communicator::{ReduceOp, Work};
use unisono_offload::HostMemory;

use super::{DeviceRank, SECONDS_MAX, VendorDouble};
use crate::watchdog;

/// The shares of three ranks.
const COUNTS: [usize; 3] = [2, 0, 1];

/// Calls with counts that differ by rank, and on lists of buffers.
///
/// # Panics
/// When the backend is wrong.
pub fn uneven_calls_and_lists<D: VendorDouble>() {
    watchdog(SECONDS_MAX, "uneven", || {
        DeviceRank::<D>::run(3, HostMemory::Refused, |rank| {
            uneven(rank);
            lists(rank);
        })
    });
}

fn uneven<D: VendorDouble>(rank: &DeviceRank<D>) {
    let (on, own, share) = (rank.on_stream(), rank.own(), COUNTS[rank.rank as usize]);
    let is_root = rank.rank == 2;
    // No array is empty, so one element more than the share is there, which no call touches.
    let mut shares = rank.array(&vec![own; share + 1]);
    let mut all = rank.array(&[0.0; 3]);
    on.all_gather_v(&shares.read_part(rank, share), &mut all.write(rank), &COUNTS).unwrap();
    assert_eq!(rank.copied(&all), [1.0, 1.0, 3.0]);
    on.reduce_scatter_v(&all.read(rank), &mut shares.write_part(rank, share), &COUNTS, ReduceOp::Sum)
        .unwrap();
    let sums: &[f32] = [&[3.0, 3.0][..], &[], &[9.0]][rank.rank as usize];
    assert_eq!(rank.copied(&shares), [sums, &[own]].concat());
    let mut root = rank.array(&[0.0; 3]);
    on.gather_v(&shares.read_part(rank, share), is_root.then(|| root.write(rank)), &COUNTS, 2).unwrap();
    assert_eq!(rank.copied(&root), if is_root { [3.0, 3.0, 9.0] } else { [0.0; 3] });
    on.scatter_v(is_root.then(|| root.read(rank)), &mut shares.write_part(rank, share), &COUNTS, 2).unwrap();
    assert_eq!(rank.copied(&shares), [sums, &[own]].concat());
    // Rank r gets as many elements from each as the share of r has.
    let (input, mut output) =
        (rank.array(&[own, 10.0 * own, 100.0 * own]), rank.array(&vec![0.0; 3 * share + 1]));
    let received = [share; 3];
    let mut to = output.write_part(rank, 3 * share);
    on.all_to_all_v(&input.read(rank), &COUNTS, &mut to, &received).unwrap();
    let of = |from: f32| [&[from, 10.0 * from][..], &[], &[100.0 * from]][rank.rank as usize].to_vec();
    assert_eq!(rank.copied(&output), [of(1.0), of(2.0), of(3.0), vec![0.0]].concat());
}

fn lists<D: VendorDouble>(rank: &DeviceRank<D>) {
    let (on, own) = (rank.on_stream(), rank.own());
    let mut parts = [rank.array(&[own; 2]), rank.array(&[10.0 * own; 3])];
    on.all_reduce_coalesced(parts.each_mut().map(|part| part.write(rank)), ReduceOp::Sum).unwrap();
    assert_eq!((rank.copied(&parts[0]), rank.copied(&parts[1])), (vec![6.0; 2], vec![60.0; 3]));
    let (input, mut each) = (rank.array(&[own; 2]), [0, 1, 2].map(|_| rank.array(&[0.0; 2])));
    on.all_gather_list(&input.read(rank), each.each_mut().map(|part| part.write(rank))).unwrap();
    assert_eq!(each.each_ref().map(|part| rank.copied(part)), [1.0, 2.0, 3.0].map(|of| vec![of; 2]));
    let mut sum = rank.array(&[0.0; 2]);
    on.reduce_scatter_list(each.each_ref().map(|part| part.read(rank)), &mut sum.write(rank), ReduceOp::Sum)
        .unwrap();
    assert_eq!(rank.copied(&sum), [3.0 * own; 2]);
    // Rank r sends r + 1 elements to each.
    let sent = [0.0, 1.0, 2.0].map(|to| rank.array(&vec![10.0 * own + to; rank.rank as usize + 1]));
    let mut received = [1, 2, 3].map(|elements| rank.array(&vec![0.0; elements]));
    let outputs = received.each_mut().map(|part| part.write(rank));
    on.all_to_all_list(sent.each_ref().map(|part| part.read(rank)), outputs).unwrap();
    for (from, part) in received.iter().enumerate() {
        assert_eq!(rank.copied(part), vec![10.0 * (from as f32 + 1.0) + rank.rank as f32; from + 1]);
    }
}

/// Calls that own their memory, which comes back.
///
/// # Panics
/// When the backend is wrong.
pub fn every_form_with_a_handle<D: VendorDouble>() {
    watchdog(SECONDS_MAX, "handles", || drop(DeviceRank::<D>::run(3, HostMemory::Refused, handles)));
}

fn end(work: Work) {
    let finished = work.finish();
    assert!(finished.result.is_ok(), "{:?}", finished.result);
    assert!(finished.buffers.is_some());
}

fn handles<D: VendorDouble>(rank: &DeviceRank<D>) {
    let (on, own, is_root) = (rank.on_stream(), rank.own(), rank.rank == 1);
    let even = [1; 3];
    let mut input = rank.array(&[own, 10.0 * own, 100.0 * own]);
    let (mut three, mut one) = (rank.array(&[0.0; 3]), rank.array(&[own]));
    end(on.all_to_all_async(input.write(rank), three.write(rank)));
    let scale = 10f32.powi(rank.rank as i32);
    assert_eq!(rank.copied(&three), [scale, 2.0 * scale, 3.0 * scale]);
    end(on.all_to_all_v_async(input.write(rank), &even, three.write(rank), &even));
    assert_eq!(rank.copied(&three), [scale, 2.0 * scale, 3.0 * scale]);
    end(on.reduce_async(input.write(rank), is_root.then(|| three.write(rank)), ReduceOp::Sum, 1));
    assert!(!is_root || rank.copied(&three) == [6.0, 60.0, 600.0]);
    end(on.gather_async(one.write(rank), is_root.then(|| three.write(rank)), 1));
    assert!(!is_root || rank.copied(&three) == [1.0, 2.0, 3.0]);
    end(on.scatter_async(is_root.then(|| three.write(rank)), one.write(rank), 1));
    end(on.gather_v_async(one.write(rank), is_root.then(|| three.write(rank)), &even, 1));
    end(on.scatter_v_async(is_root.then(|| three.write(rank)), one.write(rank), &even, 1));
    assert_eq!(rank.copied(&one), [own]);
    end(on.all_gather_v_async(one.write(rank), three.write(rank), &even));
    assert_eq!(rank.copied(&three), [1.0, 2.0, 3.0]);
    end(on.reduce_scatter_v_async(three.write(rank), one.write(rank), &even, ReduceOp::Sum));
    assert_eq!(rank.copied(&one), [3.0 * own]);
    let barrier = on.barrier_async().finish();
    assert!(barrier.result.is_ok(), "{:?}", barrier.result);
    // A call whose input does not divide among the ranks gives both buffers back.
    let refused = on.all_to_all_async(one.write(rank), three.write(rank)).finish();
    assert!(refused.result.is_err() && refused.buffers.is_some());
}

/// A function of a call on a stream that blocks until the function of a later call has run.
///
/// # Panics
/// When the backend is wrong.
pub fn functions_may_wait_for_later_ones<D: VendorDouble>() {
    let together = Arc::new(Barrier::new(2));
    watchdog(SECONDS_MAX, "functions", move || {
        DeviceRank::<D>::run(2, HostMemory::Refused, |rank| {
            let on = rank.on_stream();
            if rank.rank == 1 {
                // Before that, the calls of the other rank cannot have ended.
                together.wait();
                on.barrier_async().wait().unwrap();
                return on.barrier_async().wait().map(drop).unwrap();
            }
            let (go, gone) = mpsc::channel::<()>();
            let (sender, called) = mpsc::channel();
            let (first, second) = (on.barrier_async(), on.barrier_async());
            let longest = Duration::from_secs(SECONDS_MAX / 2);
            first.on_done(move |_| sender.send(gone.recv_timeout(longest).is_ok()).unwrap());
            second.on_done(move |_| go.send(()).unwrap());
            together.wait();
            assert!(called.recv().unwrap(), "the function of the later call was not called");
        })
    });
}

/// Every test of this file for one double: `forms_on_device!(NcclDouble)`.
#[macro_export]
macro_rules! forms_on_device {
    ($double:ty) => {
        #[test]
        fn uneven_calls_and_lists() {
            $crate::on_device::forms::uneven_calls_and_lists::<$double>();
        }

        #[test]
        fn every_form_with_a_handle() {
            $crate::on_device::forms::every_form_with_a_handle::<$double>();
        }

        #[test]
        fn functions_may_wait_for_later_ones() {
            $crate::on_device::forms::functions_may_wait_for_later_ones::<$double>();
        }
    };
}
