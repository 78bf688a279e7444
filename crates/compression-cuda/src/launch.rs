//! Launches of kernels: arguments in their order, warps in blocks.

#![expect(unsafe_code, reason = "launches kernels")]

use unisono_communicator::{Error, Result};
use unisono_cuda::{Argument, Grid};
use unisono_kernels::{IntFormat, IntWidth, Rounding};

use crate::card::{Card, Scratch};
use crate::code::KERNELS;
use crate::spans::Span;

/// Threads of a block: `THREADS` in `kernels/cuda/warp.cuh`.
const THREADS: u32 = 128;
const WARPS: usize = THREADS as usize / 32;
/// A number that no block of elements has.
const NO_BLOCK: u32 = u32::MAX;

/// A kernel's launch in the making: arguments in the order of its signature in `kernels/cuda`.
#[derive(Debug)]
pub(crate) struct Launch {
    kernel: &'static str,
    arguments: Vec<Argument>,
}

impl Launch {
    pub(crate) fn new(kernel: &'static str) -> Launch {
        Launch { kernel, arguments: Vec::with_capacity(16) }
    }

    fn with(mut self, argument: Argument) -> Launch {
        self.arguments.push(argument);
        self
    }

    /// A pointer; null for [`Span::NONE`].
    pub(crate) fn span(self, span: Span) -> Launch {
        self.with(Argument::Address(span.address))
    }

    pub(crate) fn word(self, word: u32) -> Launch {
        self.with(Argument::Word(word))
    }

    pub(crate) fn long(self, long: usize) -> Launch {
        self.with(Argument::Long(long as u64))
    }

    pub(crate) fn float(self, float: f32) -> Launch {
        self.with(Argument::Float(float))
    }

    /// Elements of a block, or something else that a kernel counts in words.
    pub(crate) fn count(self, argument: &'static str, count: usize) -> Result<Launch> {
        let word =
            u32::try_from(count).map_err(|_| Error::invalid(argument, format!("{count}, above 2^32")))?;
        Ok(self.word(word))
    }

    /// Elements of a block, and how many scales a part has.
    pub(crate) fn blocks(self, block: usize, scales: usize) -> Result<Launch> {
        self.count("block", block)?.count("elements", scales)
    }

    /// `width` and `symmetric`.
    pub(crate) fn format(self, format: IntFormat) -> Launch {
        self.width(format.width).word(format.symmetric.into())
    }

    pub(crate) fn width(self, width: IntWidth) -> Launch {
        self.word(match width {
            IntWidth::Eight => 8,
            IntWidth::Four => 4,
        })
    }

    /// `stochastic`, `key` and `first`.
    pub(crate) fn rounding(self, rounding: Rounding) -> Launch {
        let (stochastic, key, first) = match rounding {
            Rounding::Nearest => (0, 0, 0),
            Rounding::Stochastic(counter) => (1, counter.key, counter.first),
        };
        self.word(stochastic).with(Argument::Long(key)).with(Argument::Long(first))
    }

    /// `parts` and `ranks`: the table of addresses goes to the card first.
    pub(crate) fn parts(self, card: &Card, scratch: &mut Scratch, parts: &[Span]) -> Result<Launch> {
        let addresses: Vec<u64> = parts.iter().map(|part| part.address).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&addresses);
        let table = Scratch::grown(&card.context, &mut scratch.parts, bytes.len())?;
        table.write(0, bytes, &card.stream)?;
        let launch = self.with(Argument::Address(table.address()));
        launch.count("parts", parts.len())
    }

    /// Starts it with so many warps, none if there are none.
    pub(crate) fn run(self, card: &Card, warps: usize) -> Result<()> {
        if warps == 0 {
            return Ok(());
        }
        let blocks = i32::try_from(warps.div_ceil(WARPS)).map_err(|_| {
            Error::invalid("elements", format!("need {warps} warps, above 2^31 blocks of {WARPS}"))
        })?;
        let grid = Grid { blocks: blocks.unsigned_abs(), threads: THREADS };
        #[expect(clippy::expect_used, reason = "every caller names one of them")]
        let index = KERNELS.binary_search(&self.kernel).expect("a kernel of the list");
        // SAFETY: callers give the arguments of the kernel's signature, and tests run every kernel on a driver that
        // takes them by that signature; every span was checked to be as long as the kernel reads or writes, and is
        // borrowed or, when it is freed, freed in the order of the stream.
        card.noting_time(|| unsafe { card.stream.launch(&card.functions[index], grid, &self.arguments) })
    }

    /// Starts an encoder, whose last argument is where it notes blocks, and waits for it: the first block that cannot
    /// be encoded.
    pub(crate) fn encode(self, card: &Card, scratch: &mut Scratch, warps: usize) -> Result<Option<usize>> {
        if warps == 0 {
            return Ok(None);
        }
        let first_bad = &mut scratch.first_bad;
        first_bad.fill(0, NO_BLOCK, 1, &card.stream)?;
        self.with(Argument::Address(first_bad.address())).run(card, warps)?;
        let mut word = [0u32];
        first_bad.read(0, bytemuck::cast_slice_mut(&mut word), &card.stream)?;
        Ok((word[0] != NO_BLOCK).then_some(word[0] as usize))
    }

    /// Starts it and waits for it.
    pub(crate) fn finish(self, card: &Card, warps: usize) -> Result<()> {
        self.run(card, warps)?;
        card.stream.synchronize()
    }
}
