//! The common parts of the tests of compressed calls: inputs, codecs, and the residuals after calls.

#![allow(dead_code, reason = "no test needs all of it")]

pub(crate) mod links;

use std::sync::Arc;

use unisono_communicator::{Communicator, DType, ReduceOp, mix64};
use unisono_compression::{
    Bf16, BitOrder, Codec, CompressedCollectives, CompressionState, Int4, Int8, IntOptions, Route, SignL1,
    SignRms,
};
use unisono_engine::in_process::{self, EngineOptions};

/// A number that looks random, in (-1, 1).
pub(crate) fn noise(seed: u64, index: usize) -> f32 {
    let number = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(index as u64 + 1);
    (mix64(number) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// So many of them.
pub(crate) fn noises(seed: u64, elements: usize) -> Vec<f32> {
    (0..elements).map(|index| noise(seed, index)).collect()
}

/// The input of rank `rank` for call `call`.
pub(crate) fn input(rank: u32, call: u64, elements: usize) -> Vec<f32> {
    (0..elements).map(|index| input_at(rank, call, index)).collect()
}

/// One element of that.
pub(crate) fn input_at(rank: u32, call: u64, index: usize) -> f32 {
    noise(1_000_000 * (u64::from(rank) + 1) + call, index)
}

/// The bits, which tell -0.0 from 0.0 and NaN from NaN.
pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// One of every kind.
pub(crate) fn codecs() -> Vec<Arc<dyn Codec>> {
    let mut codecs = feedback_codecs();
    codecs.push(Arc::new(SignL1::default().without_feedback()));
    codecs.push(Arc::new(Int8::default()));
    codecs.push(Arc::new(Int8::new(IntOptions { stochastic: Some(3), ..IntOptions::default() }).unwrap()));
    codecs.push(Arc::new(
        Int4::new(IntOptions { symmetric: false, block: 64, ..IntOptions::default() }).unwrap(),
    ));
    codecs.push(Arc::new(Bf16));
    codecs
}

/// The codecs with error feedback.
pub(crate) fn feedback_codecs() -> Vec<Arc<dyn Codec>> {
    let options = IntOptions { feedback: true, ..IntOptions::default() };
    vec![
        Arc::new(SignL1::default()),
        Arc::new(SignL1::with_block(64).unwrap()),
        Arc::new(SignRms::default()),
        Arc::new(SignRms::default().with_bits(BitOrder::MsbFirst)),
        Arc::new(SignRms::deepspeed()),
        Arc::new(Int8::new(IntOptions { symmetric: false, ..options }).unwrap()),
        Arc::new(Int4::new(options).unwrap()),
        Arc::new(Int4::new(IntOptions { stochastic: Some(7), block: 512, ..options }).unwrap()),
    ]
}

/// A state for f32.
pub(crate) fn state(comm: &dyn Communicator, codec: &Arc<dyn Codec>, elements: usize) -> CompressionState {
    CompressionState::with_codec(comm, codec.clone(), DType::F32, elements).unwrap()
}

/// The residuals of a rank after some calls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Owed {
    /// [`CompressionState::residual`], at the elements of the vector; 0 for elements that the rank does not encode.
    pub(crate) worker: Vec<f32>,
    /// [`CompressionState::owned`].
    pub(crate) owned: std::ops::Range<usize>,
    /// [`CompressionState::owner_residual`].
    pub(crate) owner: Vec<f32>,
}

/// The residuals of `state`.
pub(crate) fn owed(state: &CompressionState) -> Owed {
    let residual = state.residual();
    let end = state.encoded().last().map_or(0, |range| range.end);
    let mut worker = vec![0.0; if residual.is_empty() { 0 } else { end }];
    let mut rest = &residual[..];
    for range in state.encoded() {
        if let Some(part) = rest.split_off(..range.len()) {
            worker[range].copy_from_slice(part);
        }
    }
    Owed { worker, owned: state.owned(), owner: state.owner_residual().to_vec() }
}

/// The sum of the residuals of all ranks for each of `elements` elements.
pub(crate) fn total_owed(all: &[Owed], elements: usize) -> Vec<f64> {
    let mut total = vec![0.0; elements];
    for owed in all {
        for (index, total) in total.iter_mut().enumerate() {
            *total += owed.worker.get(index).map_or(0.0, |value| f64::from(*value));
            if owed.owned.contains(&index) && !owed.owner.is_empty() {
                *total += f64::from(owed.owner[index - owed.owned.start]);
            }
        }
    }
    total
}

/// The residuals of all ranks after each of `calls` calls without a fault, of [`input`], beginning with none.
pub(crate) fn clean(
    ranks: u32,
    codec: &Arc<dyn Codec>,
    elements: usize,
    calls: u64,
) -> Vec<Vec<(Owed, Vec<f32>)>> {
    clean_by(Route::Direct, &vec![0; ranks as usize], codec, elements, calls)
}

/// The same by a route, with ranks on hosts.
pub(crate) fn clean_by(
    route: Route,
    hosts: &[u32],
    codec: &Arc<dyn Codec>,
    elements: usize,
    calls: u64,
) -> Vec<Vec<(Owed, Vec<f32>)>> {
    let all = in_process::run_on_hosts(
        hosts,
        &EngineOptions::default(),
        |_, links| links,
        |comm| {
            let mut state = state(&*comm, codec, elements).by(route, &*comm).unwrap();
            let mut after = vec![(owed(&state), Vec::new())];
            for call in 0..calls {
                let mut vector = input(comm.group().rank(), call, elements);
                comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state).unwrap();
                after.push((owed(&state), vector));
            }
            after
        },
    );
    (0..=calls as usize).map(|call| all.iter().map(|rank| rank[call].clone()).collect()).collect()
}
