//! The memory of `unisono bench kernels`, and the calls.

use bytemuck::{Pod, Zeroable};
use unisono_kernels::{
    CodeSize, Counter, IntFormat, IntPart, IntPartMut, IntWidth, Kernels, Residual, Rounding, SignPart,
    SignPartMut, sign_words,
};

use super::{INT_BLOCK, Measured, RANKS, SIGN_BLOCK};

const COUNTER: Counter = Counter { key: 1, first: 0 };

/// A line of the cache: streaming stores write whole ones.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// f32 that begin with a line of the cache.
#[derive(Clone, Debug, PartialEq)]
struct Floats(Vec<Line>);

impl Floats {
    /// A multiple of 16.
    fn new(count: usize) -> Floats {
        Floats(vec![Line::zeroed(); count / 16])
    }

    fn slice(&self) -> &[f32] {
        bytemuck::cast_slice(&self.0)
    }

    fn slice_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.0)
    }

    fn fill(&mut self, seed: u32, size: f32) {
        let mut word = seed;
        for value in self.slice_mut() {
            word ^= word << 13;
            word ^= word >> 17;
            word ^= word << 5;
            *value = (word as i32 >> 8) as f32 * size;
        }
    }
}

/// The outputs of the kernels.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outputs {
    /// The newer residual, then the older one.
    residuals: [Floats; 2],
    floats: Floats,
    scales: Vec<f32>,
    bits: Vec<u32>,
    /// Integers of up to two bytes.
    codes: Vec<u8>,
    narrow: Vec<u16>,
}

/// The message of one rank.
#[derive(Clone, Debug)]
struct Sent {
    sign_scales: Vec<f32>,
    bits: Vec<u32>,
    int_scales: Vec<f32>,
    /// Integers of up to two bytes: for codes of eight bits half of these, for codes of four a quarter.
    codes: Vec<u8>,
    narrow: Vec<u16>,
}

pub(super) struct Buffers {
    input: Floats,
    /// Of the input, in blocks of integers.
    magnitudes: Vec<u32>,
    outputs: Outputs,
    sent: [Sent; RANKS],
}

/// The least that holds sums of a few ranks.
fn code_size(width: IntWidth) -> CodeSize {
    match width {
        IntWidth::Eight => CodeSize::Two,
        IntWidth::Four => CodeSize::One,
    }
}

fn format(width: IntWidth) -> IntFormat {
    IntFormat { width, block: INT_BLOCK, symmetric: true }
}

impl Sent {
    /// Any codes and scales will do.
    fn new(elements: usize, seed: u32) -> Sent {
        let mut values = Floats::new(elements);
        values.fill(seed, 1e-9);
        let words: Vec<u32> =
            values.slice()[..sign_words(elements)].iter().map(|value| value.to_bits()).collect();
        let bits = words.iter().map(|word| word.wrapping_mul(0x9e37_79b1)).collect();
        let bytes: &[u8] = bytemuck::cast_slice(values.slice());
        Sent {
            sign_scales: (0..elements / SIGN_BLOCK).map(|block| 0.5 + block as f32 * 1e-5).collect(),
            bits,
            int_scales: (0..elements / INT_BLOCK)
                .map(|block| f32::from_bits((127 << 23) + ((block as u32 % 99) << 8)))
                .collect(),
            codes: bytes[..2 * elements].to_vec(),
            narrow: values.slice().iter().map(|value| (value.to_bits() >> 16) as u16).collect(),
        }
    }

    fn signs(&self) -> SignPart<'_> {
        SignPart { scales: &self.sign_scales, bits: &self.bits }
    }

    fn ints(&self, width: IntWidth) -> IntPart<'_> {
        let bytes = width.code_bytes(self.narrow.len());
        IntPart { scales: &self.int_scales, codes: &self.codes[..bytes] }
    }
}

impl Buffers {
    pub(super) fn new(elements: usize) -> Buffers {
        let floats = || Floats::new(elements);
        let mut input = floats();
        input.fill(1, 1e-7);
        let outputs = Outputs {
            residuals: [floats(), floats()],
            floats: floats(),
            scales: vec![0.0; elements / INT_BLOCK],
            bits: vec![0; sign_words(elements)],
            codes: vec![0; 2 * elements],
            narrow: vec![0; elements],
        };
        let mut magnitudes = vec![0; elements / INT_BLOCK];
        Kernels::best().int_magnitudes(input.slice(), None, INT_BLOCK, &mut magnitudes);
        Buffers { input, magnitudes, outputs, sent: [Sent::new(elements, 2), Sent::new(elements, 3)] }
    }

    pub(super) fn elements(&self) -> usize {
        self.input.slice().len()
    }

    /// The outputs of one call, which begins with the same residual every time.
    pub(super) fn after(&mut self, measured: Measured, kernels: Kernels) -> Outputs {
        // Memory that the kernel does not write is the same each time too.
        let Outputs { residuals: [old, new], floats, scales, bits, codes, narrow } = &mut self.outputs;
        old.fill(4, 1e-8);
        new.slice_mut().fill(0.0);
        floats.slice_mut().fill(0.0);
        scales.fill(0.0);
        bits.fill(0);
        codes.fill(0);
        narrow.fill(0);
        self.run(measured, kernels);
        self.outputs.clone()
    }

    pub(super) fn copy(&mut self) {
        self.outputs.floats.slice_mut().copy_from_slice(self.input.slice());
        std::hint::black_box(&mut self.outputs.floats);
    }

    /// One call; residuals change places after it.
    pub(super) fn run(&mut self, measured: Measured, kernels: Kernels) {
        let Buffers { input, magnitudes, outputs, sent } = self;
        let (input, elements) = (input.slice(), input.slice().len());
        let Outputs { residuals, floats, scales, bits, codes, narrow } = outputs;
        let floats = floats.slice_mut();
        let [old, new] = residuals;
        let residual = Residual { old: old.slice(), new: new.slice_mut() };
        match measured {
            Measured::SignEncode => {
                let output = SignPartMut { scales: &mut scales[..elements / SIGN_BLOCK], bits };
                kernels.sign_encode(input, Some(residual), SIGN_BLOCK, output);
            }
            Measured::SignEncodeGlobal => {
                kernels.sign_encode_global(input, residual, bits);
            }
            Measured::SignReduceEncode => {
                let parts = sent.each_ref().map(Sent::signs);
                let output = SignPartMut { scales: &mut scales[..elements / SIGN_BLOCK], bits };
                kernels.sign_reduce_encode(&parts, elements, Some(residual), SIGN_BLOCK, output);
            }
            Measured::SignDecodeSum => {
                kernels.sign_decode_sum(&sent.each_ref().map(Sent::signs), SIGN_BLOCK, 0.5, floats);
            }
            Measured::SignExpand => kernels.sign_expand(sent[0].signs(), SIGN_BLOCK, 0.5, floats),
            Measured::IntEncode(width)
            | Measured::IntEncodeStochastic(width)
            | Measured::IntEncodeResidual(width) => {
                let is_stochastic = matches!(measured, Measured::IntEncodeStochastic(_));
                let rounding = if is_stochastic { Rounding::Stochastic(COUNTER) } else { Rounding::Nearest };
                let residual = matches!(measured, Measured::IntEncodeResidual(_)).then_some(residual);
                let output = IntPartMut { scales, codes: &mut codes[..width.code_bytes(elements)] };
                kernels.int_encode(input, residual, format(width), rounding, output);
            }
            Measured::IntDecodeSum(width) => {
                let parts = sent.each_ref().map(|sent| sent.ints(width));
                kernels.int_decode_sum(&parts, format(width), 1.0, floats);
            }
            Measured::IntRequantise(width) => {
                let parts = sent.each_ref().map(|sent| sent.ints(width));
                let output = IntPartMut { scales, codes: &mut codes[..width.code_bytes(elements)] };
                kernels.int_reduce_encode(&parts, elements, None, format(width), Rounding::Nearest, output);
            }
            Measured::IntExpand(width) => kernels.int_expand(sent[0].ints(width), format(width), 0.5, floats),
            Measured::IntMagnitudes => {
                kernels.int_magnitudes(input, None, INT_BLOCK, &mut bits[..elements / INT_BLOCK]);
            }
            Measured::IntEncodeShared(width) => {
                let (format, size) = (format(width), code_size(width));
                let codes = &mut codes[..elements * size.bytes()];
                kernels.int_encode_shared(input, None, format, Rounding::Nearest, magnitudes, size, codes);
            }
            Measured::IntExpandShared(width) => {
                let size = code_size(width);
                let codes = &sent[0].codes[..elements * size.bytes()];
                kernels.int_expand_shared(codes, size, format(width), magnitudes, 0.5, floats);
            }
            Measured::Bf16Encode => {
                kernels.bf16_encode(input, narrow);
            }
            Measured::Bf16DecodeSum => {
                kernels.bf16_decode_sum(&sent.each_ref().map(|sent| &sent.narrow[..]), 1.0, floats)
            }
            Measured::Bf16Expand => kernels.bf16_expand(&sent[0].narrow, 0.5, floats),
            Measured::Sum => kernels.sum(&[input, old.slice()], floats),
            Measured::Average => kernels.average(input, 3, floats),
        }
        self.outputs.residuals.swap(0, 1);
        std::hint::black_box(&mut self.outputs);
    }
}
