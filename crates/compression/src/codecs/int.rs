//! Eight or four bits for each element, and a scale for each block.

use unisono_communicator::{Buffer, BufferMut, Error, Result};
use unisono_kernels::{IntFormat, IntWidth};

use crate::codec::{Codec, EncodeContext, Summable};
use crate::kernels::{CodecKernels, Feedback};

/// Elements of a block unless another number is chosen.
pub const INT_BLOCK_DEFAULT: usize = 256;

/// The longest block.
pub const INT_BLOCK_MAX: usize = 512;

/// The common options of [`Int8`] and [`Int4`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntOptions {
    /// Elements with a common scale: a multiple of 64 up to [`INT_BLOCK_MAX`].
    pub block: usize,
    /// Codes on both sides of zero, which is one of them. Otherwise from the smallest element of the block to its
    /// largest, with two numbers for each block.
    pub symmetric: bool,
    /// Rounds up or down at random, so that the expected value is right (QSGD, Alistarh et al., NeurIPS 2017). The
    /// seed, equal on all ranks or not; rank, call and element give the random bits. The nearest code if `None`.
    pub stochastic: Option<u64>,
    /// Keeps the rounding errors for the next call. Eight bits do not need it, four gain by it.
    pub feedback: bool,
}

impl Default for IntOptions {
    fn default() -> IntOptions {
        IntOptions { block: INT_BLOCK_DEFAULT, symmetric: true, stochastic: None, feedback: false }
    }
}

macro_rules! int_codec {
    ($(#[$doc:meta])* $codec:ident, $width:expr, $name:literal) => {
        $(#[$doc])*
        ///
        /// A part of n elements is one number (symmetric) or two numbers for each block, and the codes, filled up to
        /// whole words. Scales have 16 significant bits.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $codec(IntCodec);

        impl $codec {
            /// With these options.
            ///
            /// # Errors
            /// [`Error::InvalidArgument`] for a block that is no multiple of 64 up to [`INT_BLOCK_MAX`].
            pub fn new(options: IntOptions) -> Result<$codec> {
                IntCodec::new(options).map($codec)
            }

            fn format(&self) -> IntFormat {
                self.0.format($width)
            }
        }

        impl Codec for $codec {
            fn name(&self) -> &'static str {
                $name
            }

            fn tag(&self) -> String {
                format!(concat!($name, "{}"), self.0.suffix())
            }

            fn block(&self) -> usize {
                self.0.0.block
            }

            fn encoded_words(&self, elements: usize) -> usize {
                let format = self.format();
                format.scales(elements) + format.width.code_bytes(elements).div_ceil(size_of::<u32>())
            }

            fn has_feedback(&self) -> bool {
                self.0.0.feedback
            }

            fn summable(&self) -> Option<Summable> {
                let (format, stochastic) = (self.format(), self.0.0.stochastic);
                format.symmetric.then_some(Summable { format, stochastic })
            }

            fn encode(
                &self,
                kernels: &dyn CodecKernels,
                input: Buffer<'_>,
                feedback: Option<Feedback<'_>>,
                context: EncodeContext,
                out: BufferMut<'_>,
            ) -> Result<Option<usize>> {
                kernels.int_encode(input, feedback, self.format(), context.rounding(self.0.0.stochastic), out)
            }

            fn reduce_encode(
                &self,
                kernels: &dyn CodecKernels,
                parts: &[Buffer<'_>],
                elements: usize,
                feedback: Option<Feedback<'_>>,
                context: EncodeContext,
                out: BufferMut<'_>,
            ) -> Result<Option<usize>> {
                let rounding = context.rounding(self.0.0.stochastic);
                kernels.int_reduce_encode(parts, elements, feedback, self.format(), rounding, out)
            }

            fn decode_sum(
                &self,
                kernels: &dyn CodecKernels,
                parts: &[Buffer<'_>],
                weight: f32,
                out: BufferMut<'_>,
            ) -> Result<()> {
                kernels.int_decode_sum(parts, self.format(), weight, out)
            }

            fn decode(
                &self,
                kernels: &dyn CodecKernels,
                part: Buffer<'_>,
                weight: f32,
                out: BufferMut<'_>,
            ) -> Result<()> {
                kernels.int_expand(part, self.format(), weight, out)
            }

            fn head_words(&self, elements: usize) -> usize {
                self.format().scales(elements)
            }

            fn accept(&self, part: &mut [u32], elements: usize) -> std::result::Result<(), &'static str> {
                check_numbers(&part[..self.head_words(elements)], self.format())
            }
        }
    };
}

int_codec! {
    /// One byte for each element: -127 to 127 times the block's scale, or 0 to 255.
    Int8, IntWidth::Eight, "int8"
}

int_codec! {
    /// Half a byte for each element: -7 to 7 times the block's scale, or 0 to 15. Element 2i is in the low half of
    /// byte i.
    Int4, IntWidth::Four, "int4"
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct IntCodec(IntOptions);

impl IntCodec {
    fn new(options: IntOptions) -> Result<IntCodec> {
        let block = options.block;
        if block == 0 || !block.is_multiple_of(64) || block > INT_BLOCK_MAX {
            let problem = format!("{block} elements; it must be a multiple of 64 up to {INT_BLOCK_MAX}");
            return Err(Error::invalid("block", problem));
        }
        Ok(IntCodec(options))
    }

    fn format(self, width: IntWidth) -> IntFormat {
        IntFormat { width, block: self.0.block, symmetric: self.0.symmetric }
    }

    /// The differences from the default, as letters. The seed may differ between ranks.
    fn suffix(self) -> String {
        let IntOptions { block, symmetric, stochastic, feedback } = self.0;
        let block = if block == INT_BLOCK_DEFAULT { String::new() } else { block.to_string() };
        let letters = [(!symmetric, "a"), (stochastic.is_some(), "s"), (feedback, "e")];
        let letters: String =
            letters.iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| *letter).collect();
        format!("{block}{letters}")
    }
}

/// Scales and smallest elements are as encoders make them, and no code that encoders make stands for an infinity.
fn check_numbers(numbers: &[u32], format: IntFormat) -> std::result::Result<(), &'static str> {
    let most = format.steps() as f32;
    for numbers in numbers.chunks(format.scales_per_block()) {
        if !format.is_scale(f32::from_bits(numbers[0])) {
            return Err("a scale is none that an encoder makes");
        }
        let smallest = numbers.get(1).map_or(0.0, |bits| f32::from_bits(*bits));
        if smallest.is_subnormal() {
            return Err("the smallest element of a block is subnormal");
        }
        if !(f32::from_bits(numbers[0]) * most + smallest).is_finite() {
            return Err("the elements of a block are not finite");
        }
    }
    Ok(())
}
