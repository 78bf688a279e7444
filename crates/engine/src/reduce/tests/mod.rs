//! Tests of the reduction kernels: every dtype and op, on every instruction set of this machine.

mod arithmetic;
mod reference;
mod shapes;
mod throughput;
mod user;

use bytemuck::Pod;
use unisono_communicator::{DType, ReduceOp};
use unisono_schedule::SplitMix;

use super::{PeerBytes, Reducer};

/// Every built-in (dtype, op, completes) that exists.
fn built_in() -> Vec<(DType, ReduceOp, bool)> {
    let mut list = Vec::new();
    for &dtype in DType::ALL {
        for &op in ReduceOp::PLAIN.iter().filter(|op| op.accepts(dtype)) {
            list.extend([(dtype, op, false), (dtype, op, true)]);
        }
    }
    list
}

fn reduced(reducer: &Reducer, left: &[u8], right: &[u8], completes: bool) -> Vec<u8> {
    let mut out = vec![0; left.len()];
    reducer.reduce(&mut out, Some(left), PeerBytes::Own(right), true, completes).unwrap();
    out
}

fn bytes<T: Pod>(elements: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(elements).to_vec()
}

/// The same bytes on every machine for a state.
fn random_bytes(random: &mut SplitMix, count: usize) -> Vec<u8> {
    (0..count).map(|_| (random.next_u64() >> 56) as u8).collect()
}
