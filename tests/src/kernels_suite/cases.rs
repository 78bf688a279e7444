//! Calls with what they read.

use unisono_kernels::testing::{
    BLOCKS, Mix, PARTS_MAX, Random, SentInts, SentSigns, WEIGHTS, formats, magnitudes, narrow, residual,
    roundings, values,
};
use unisono_kernels::{CodeSize, IntFormat, SHIFT_MAX, sign_words};

use super::call::{Call, Kernel};

/// A call, and its memory as words of the host.
#[derive(Clone, Debug)]
pub(super) struct KernelCase {
    pub(super) call: Call,
    pub(super) inputs: Vec<Vec<u32>>,
    pub(super) old: Option<Vec<u32>>,
    pub(super) outputs: Vec<Output>,
}

/// What is written.
#[derive(Clone, Debug)]
pub(super) struct Output {
    /// What it holds before.
    pub(super) words: Vec<u32>,
    /// Results that may be NaN, and which one it is is not defined.
    pub(super) is_vector: bool,
}

/// What outputs hold before a call.
const STALE: u32 = 7;

impl Output {
    fn encoded(words: usize) -> Output {
        Output { words: vec![STALE; words], is_vector: false }
    }

    fn vector(elements: usize) -> Output {
        Output { words: vec![STALE; elements], is_vector: true }
    }
}

/// What cases of a kernel are made of.
struct Maker<'a> {
    random: &'a mut Random,
    mix: Mix,
    count: usize,
}

impl KernelCase {
    /// Any call of a kernel over `count` elements. `None` if there is none for the drawn numbers, which is rare.
    pub(super) fn new(random: &mut Random, kernel: Kernel, mix: Mix, count: usize) -> Option<KernelCase> {
        let mut maker = Maker { random, mix, count };
        let block = maker.random.one_of(&BLOCKS);
        match kernel {
            Kernel::SignEncode => Some(maker.sign_encode(block)),
            Kernel::SignReduceEncode => Some(maker.sign_reduce_encode(block)),
            Kernel::SignDecodeSum => {
                let (parts, weight) = (maker.parts(|maker| maker.signs(block)), maker.weight());
                Some(maker.decoder(Call::SignDecodeSum { block, weight }, parts))
            }
            Kernel::SignExpand => {
                let (part, weight) = (maker.signs(block), maker.weight());
                Some(maker.decoder(Call::SignExpand { block, weight }, vec![part]))
            }
            Kernel::Compensate => {
                let input = vec![maker.values()];
                Some(maker.global(Call::Compensate, input))
            }
            Kernel::SignReduceGlobal => {
                let parts = maker.parts(Maker::global_signs);
                Some(maker.global(Call::SignReduceGlobal, parts))
            }
            Kernel::SignPack => Some(maker.sign_pack()),
            Kernel::IntEncode => Some(maker.int_encode(block)),
            Kernel::IntReduceEncode => Some(maker.int_reduce_encode(block)),
            Kernel::IntDecodeSum => {
                let format = maker.format(block);
                let (parts, weight) = (maker.parts(|maker| maker.ints(format)), maker.weight());
                Some(maker.decoder(Call::IntDecodeSum { format, weight }, parts))
            }
            Kernel::IntExpand => {
                let format = maker.format(block);
                let (part, weight) = (maker.ints(format), maker.weight());
                Some(maker.decoder(Call::IntExpand { format, weight }, vec![part]))
            }
            Kernel::Bf16Encode => {
                let input = maker.values();
                Some(maker.encoder(Call::Bf16Encode, vec![input], count.div_ceil(2), false))
            }
            Kernel::Bf16ReduceEncode => {
                let (call, parts) = (Call::Bf16ReduceEncode { elements: count }, maker.parts(Maker::narrow));
                Some(maker.encoder(call, parts, count.div_ceil(2), false))
            }
            Kernel::Bf16DecodeSum => {
                let (parts, weight) = (maker.parts(Maker::narrow), maker.weight());
                Some(maker.decoder(Call::Bf16DecodeSum { weight }, parts))
            }
            Kernel::Bf16Expand => {
                let (part, weight) = (maker.narrow(), maker.weight());
                Some(maker.decoder(Call::Bf16Expand { weight }, vec![part]))
            }
            Kernel::WorstElement => {
                let words = maker.values();
                let outputs = vec![Output { words, is_vector: false }];
                Some(KernelCase { call: Call::WorstElement, inputs: Vec::new(), old: None, outputs })
            }
            Kernel::Sum => {
                let parts = maker.parts(Maker::values);
                Some(maker.decoder(Call::Sum, parts))
            }
            Kernel::Average => Some(maker.average()),
            Kernel::IntMagnitudes => Some(maker.int_magnitudes(block)),
            Kernel::IntEncodeShared => maker.int_encode_shared(block),
            Kernel::IntExpandShared => maker.int_expand_shared(block),
        }
    }
}

impl Maker<'_> {
    fn values(&mut self) -> Vec<u32> {
        words(&values(self.random, self.mix, self.count))
    }

    fn residual(&mut self) -> Vec<u32> {
        words(&residual(self.random, self.mix, self.count))
    }

    fn weight(&mut self) -> f32 {
        self.random.one_of(&WEIGHTS)
    }

    fn format(&mut self, block: usize) -> IntFormat {
        self.random.one_of(&formats(block))
    }

    fn parts(&mut self, part: impl Fn(&mut Self) -> Vec<u32>) -> Vec<Vec<u32>> {
        (0..1 + self.random.below(PARTS_MAX)).map(|_| part(self)).collect()
    }

    fn signs(&mut self, block: usize) -> Vec<u32> {
        let SentSigns { scales, bits } = SentSigns::new(self.random, self.mix, self.count, block);
        [words(&scales), bits].concat()
    }

    fn global_signs(&mut self) -> Vec<u32> {
        let SentSigns { scales, bits } = SentSigns::new(self.random, self.mix, self.count.max(1), 1 << 20);
        [words(&scales), bits[..sign_words(self.count)].to_vec()].concat()
    }

    fn ints(&mut self, format: IntFormat) -> Vec<u32> {
        let SentInts { scales, mut codes } = SentInts::new(self.random, self.mix, self.count, format);
        codes.resize(codes.len().next_multiple_of(4), 0);
        let codes = codes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        words(&scales).into_iter().chain(codes).collect()
    }

    fn narrow(&mut self) -> Vec<u32> {
        let narrow = narrow(self.random, self.count.next_multiple_of(2));
        narrow.as_chunks().0.iter().map(|[low, high]| u32::from(*low) | u32::from(*high) << 16).collect()
    }

    /// What writes a vector.
    fn decoder(&mut self, call: Call, inputs: Vec<Vec<u32>>) -> KernelCase {
        KernelCase { call, inputs, old: None, outputs: vec![Output::vector(self.count)] }
    }

    /// What writes so many encoded words, and half the time a residual if it can.
    fn encoder(
        &mut self,
        call: Call,
        inputs: Vec<Vec<u32>>,
        words: usize,
        can_feed_back: bool,
    ) -> KernelCase {
        let mut case = KernelCase { call, inputs, old: None, outputs: vec![Output::encoded(words)] };
        if can_feed_back && self.random.below(2) == 1 {
            case.old = Some(self.residual());
            case.outputs.push(Output::vector(self.count));
        }
        case
    }

    fn sign_encode(&mut self, block: usize) -> KernelCase {
        let (input, words) = (self.values(), self.count.div_ceil(block) + sign_words(self.count));
        self.encoder(Call::SignEncode { block }, vec![input], words, true)
    }

    fn sign_reduce_encode(&mut self, block: usize) -> KernelCase {
        let words = self.count.div_ceil(block) + sign_words(self.count);
        let parts = self.parts(|maker| maker.signs(block));
        self.encoder(Call::SignReduceEncode { elements: self.count, block }, parts, words, true)
    }

    /// The first half of an encoder with one scale.
    fn global(&mut self, call: Call, inputs: Vec<Vec<u32>>) -> KernelCase {
        KernelCase { call, inputs, old: Some(self.residual()), outputs: vec![Output::vector(self.count)] }
    }

    fn sign_pack(&mut self) -> KernelCase {
        let scale = self.random.one_of(&[0.0, 0.75, f32::MIN_POSITIVE, 1e-30, 3e38]);
        let values = Output { words: self.residual(), is_vector: true };
        let outputs = vec![values, Output::encoded(1 + sign_words(self.count))];
        KernelCase { call: Call::SignPack { scale }, inputs: Vec::new(), old: None, outputs }
    }

    fn int_encode(&mut self, block: usize) -> KernelCase {
        let (format, input) = (self.format(block), self.values());
        let [nearest, stochastic] = roundings(self.random);
        let rounding = self.random.one_of(&[nearest, stochastic]);
        self.encoder(Call::IntEncode { format, rounding }, vec![input], int_words(format, self.count), true)
    }

    fn int_reduce_encode(&mut self, block: usize) -> KernelCase {
        let format = self.format(block);
        let [nearest, stochastic] = roundings(self.random);
        let rounding = self.random.one_of(&[nearest, stochastic]);
        let parts = self.parts(|maker| maker.ints(format));
        let call = Call::IntReduceEncode { elements: self.count, format, rounding };
        self.encoder(call, parts, int_words(format, self.count), true)
    }

    fn average(&mut self) -> KernelCase {
        let shift = self.random.below(SHIFT_MAX as usize + 1) as u32;
        let outputs = vec![Output { words: self.residual(), is_vector: true }];
        KernelCase { call: Call::Average { shift }, inputs: vec![self.residual()], old: None, outputs }
    }

    fn int_magnitudes(&mut self, block: usize) -> KernelCase {
        let (inputs, has_old) = (vec![self.values()], self.random.below(2) == 1);
        let old = has_old.then(|| self.residual());
        let outputs = vec![Output::encoded(self.count.div_ceil(block))];
        KernelCase { call: Call::IntMagnitudes { block }, inputs, old, outputs }
    }

    fn symmetric_format(&mut self, block: usize) -> IntFormat {
        IntFormat { symmetric: true, ..self.format(block) }
    }

    fn int_encode_shared(&mut self, block: usize) -> Option<KernelCase> {
        let (format, size) = (self.symmetric_format(block), self.random.one_of(&CodeSize::ALL));
        let [nearest, stochastic] = roundings(self.random);
        let rounding = self.random.one_of(&[nearest, stochastic]);
        let input = values(self.random, self.mix, self.count);
        let old = residual(self.random, self.mix, self.count);
        let old = self.random.one_of(&[None, Some(&old[..])]);
        let magnitudes = magnitudes(self.random, &input, old, format)?;
        let mut outputs = vec![Output::encoded((self.count * size.bytes()).div_ceil(4))];
        outputs.extend(old.map(|_| Output::vector(self.count)));
        let call = Call::IntEncodeShared { format, size, rounding };
        Some(KernelCase { call, inputs: vec![words(&input), magnitudes], old: old.map(words), outputs })
    }

    fn int_expand_shared(&mut self, block: usize) -> Option<KernelCase> {
        let (format, size, weight) =
            (self.symmetric_format(block), self.random.one_of(&CodeSize::ALL), self.weight());
        // Sums of magnitudes below 2^24.
        let shift = if size == CodeSize::Four { 8 } else { 0 };
        let code = |_| (self.random.bits() as i32 >> shift).cast_unsigned();
        let codes = (0..(self.count * size.bytes()).div_ceil(4)).map(code).collect();
        let input = values(self.random, self.mix, self.count);
        let magnitudes = magnitudes(self.random, &input, None, format)?;
        Some(self.decoder(Call::IntExpandShared { format, size, weight }, vec![codes, magnitudes]))
    }
}

fn int_words(format: IntFormat, count: usize) -> usize {
    format.scales(count) + format.width.code_bytes(count).div_ceil(4)
}

fn words(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
