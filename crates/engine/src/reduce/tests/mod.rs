//! Tests of the reduction kernels: every dtype and op, on every instruction set of this machine.

mod arithmetic;
mod reference;
mod shapes;
mod throughput;
mod user;

use bytemuck::Pod;
use unisono_communicator::{DType, ReduceOp};

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

/// SplitMix64: the same bytes on every machine for a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.next() >> 56) as u8).collect()
    }
}
