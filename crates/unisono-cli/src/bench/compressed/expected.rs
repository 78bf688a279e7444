//! The result of a compressed call, by its definition: one rank does alone the work of all ranks.

use std::ops::Range;

use unisono::call::{Buffer, BufferMut};
use unisono::compression::{Codec, CompressionState, Route};
use unisono::extend::codecs::{CodecKernels, EncodeContext, HostKernels, Shared, Summable, code_size};
use unisono::{Communicator, Result};

use crate::bench::values::Values;

/// The residual of each element of a range in this rank's encoder; 0 for elements that it does not encode.
pub(super) fn own_debts(state: &CompressionState, range: Range<usize>) -> Vec<f32> {
    let mut owed = vec![0.0; range.len()];
    let residual = state.residual();
    let mut at = 0;
    for encoded in state.encoded() {
        let common = encoded.start.max(range.start)..encoded.end.min(range.end);
        if common.start < common.end {
            let from = at + common.start - encoded.start;
            let to = common.start - range.start..common.end - range.start;
            owed[to].copy_from_slice(&residual[from..from + common.len()]);
        }
        at += encoded.len();
    }
    owed
}

/// The way in which the elements of a share come together.
pub(super) enum Sum {
    /// As the codes of their senders, in the order in which the owner sums them.
    Parts(Vec<Vec<u32>>),
    /// Added on the way.
    Decoded(Vec<f32>),
}

/// The vectors of all ranks, and the way of a call without residuals.
pub(super) struct Definition<'a> {
    pub(super) kernels: HostKernels,
    codec: &'a dyn Codec,
    values: Values,
    route: Route,
    /// The ranks whose vectors are summed before they are encoded, in the order of this rank's sum.
    teams: Vec<Vec<u32>>,
}

impl<'a> Definition<'a> {
    pub(super) fn new(
        comm: &dyn Communicator,
        values: Values,
        state: &'a CompressionState,
    ) -> Definition<'a> {
        let (hosts, own, ranks) = (comm.group().hosts(), comm.rank(), comm.size());
        let of_host =
            |host: u32| (0..ranks).filter(|rank| hosts[*rank as usize] == host).collect::<Vec<u32>>();
        let place = of_host(hosts[own as usize]).iter().position(|rank| *rank == own).unwrap_or(0);
        let mut teams: Vec<Vec<u32>> = match state.route() {
            Route::Direct | Route::SummedCodes => (0..ranks).map(|rank| vec![rank]).collect(),
            Route::TwoLevels => {
                let mut hosts = hosts.to_vec();
                hosts.sort_unstable();
                hosts.dedup();
                hosts.into_iter().map(of_host).collect()
            }
        };
        // Owners sum in the order of the ranks that send.
        teams.sort_by_key(|team| team[place % team.len()]);
        let kernels = HostKernels::of_call(comm.group(), 1);
        Definition { kernels, codec: state.codec(), values, route: state.route(), teams }
    }

    fn input(&self, rank: u32, own: &Range<usize>) -> Vec<f32> {
        own.clone().map(|index| self.values.normal(rank, index as u64)).collect()
    }

    /// The sum that this rank gets for its elements `own`, which begin at a block.
    pub(super) fn sum(&self, own: Range<usize>) -> Result<Sum> {
        if let (Route::SummedCodes, Some(summable)) = (self.route, self.codec.summable()) {
            return self.summed(summable, own).map(Sum::Decoded);
        }
        let context = EncodeContext { key: 0, first: own.start, scale: 0.0 };
        let mut parts = Vec::new();
        for team in &self.teams {
            let inputs: Vec<Vec<f32>> = team.iter().map(|rank| self.input(*rank, &own)).collect();
            let mut sum = vec![0.0f32; own.len()];
            let buffers: Vec<Buffer<'_>> = inputs.iter().map(|input| Buffer::of(input)).collect();
            self.kernels.sum(&buffers, BufferMut::of(&mut sum))?;
            let mut part = vec![0u32; self.codec.encoded_words(own.len())];
            self.codec.encode(&self.kernels, Buffer::of(&sum), None, context, BufferMut::of(&mut part))?;
            parts.push(part);
        }
        Ok(Sum::Parts(parts))
    }

    /// One rank after the other is encoded by the largest magnitudes of all; integers are added.
    fn summed(&self, summable: Summable, own: Range<usize>) -> Result<Vec<f32>> {
        let (block, ranks) = (summable.format.block, self.values.ranks);
        let size = code_size(summable, ranks as usize)?;
        let mut largest = vec![0u32; own.len().div_ceil(block)];
        for rank in 0..ranks {
            let mut magnitudes = vec![0u32; largest.len()];
            let input = self.input(rank, &own);
            self.kernels.int_magnitudes(Buffer::of(&input), None, block, BufferMut::of(&mut magnitudes))?;
            largest.iter_mut().zip(magnitudes).for_each(|(largest, one)| *largest = (*largest).max(one));
        }
        let shared = || Shared { format: summable.format, size, magnitudes: Buffer::of(&largest) };
        let rounding = EncodeContext { key: 0, first: own.start, scale: 0.0 }.rounding(summable.stochastic);
        let mut sums = vec![0.0f32; own.len()];
        for rank in 0..ranks {
            let input = self.input(rank, &own);
            let mut codes = vec![0u32; (own.len() * size.bytes()).div_ceil(size_of::<u32>())];
            let out = BufferMut::of(&mut codes);
            self.kernels.int_encode_shared(Buffer::of(&input), None, rounding, shared(), out)?;
            let codes: &[u8] = bytemuck::cast_slice(&codes);
            let code = |index: usize| match size.bytes() {
                1 => f32::from(codes[index] as i8),
                2 => f32::from(i16::from_le_bytes([codes[2 * index], codes[2 * index + 1]])),
                _ => {
                    let bytes = [0, 1, 2, 3].map(|byte| codes[4 * index + byte]);
                    i32::from_le_bytes(bytes) as f32
                }
            };
            // Sums of integers below 2^24 are exact.
            sums.iter_mut().enumerate().for_each(|(index, sum)| *sum += code(index));
        }
        let scale =
            |index: usize| summable.format.scale(f32::from_bits(largest[index / block])).unwrap_or(0.0);
        Ok(sums.iter().enumerate().map(|(index, sum)| sum * scale(index)).collect())
    }
}
