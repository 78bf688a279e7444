//! Byte equality of devices: every kernel of a [`KernelDevice`] gives the words of the definition, for all lengths,
//! numbers of all kinds and parts at any word of larger memory, and touches no word beside its outputs.
//!
//! A device's crate has one test for each kernel, or one for all:
//!
//! ```
//! use unisono_compression::HostKernels;
//! use unisono_kernels::Kernels;
//! use unisono_tests::kernels_suite::{self, Density};
//!
//! kernels_suite::check(&HostKernels(Kernels::best()), Density::QUICK, 1);
//! ```

mod call;
mod cases;
mod compare;

use std::ops::Range;

use unisono_compression::{DeviceMemory, KernelDevice};
use unisono_kernels::testing::{MIXES, Random};

pub use self::call::Kernel;
use self::cases::KernelCase;

/// How many calls of a kernel are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Density {
    /// Calls for each length from 0 to 200, and for each longer one; every one with another format, rounding, residual
    /// and mix of numbers.
    pub calls: usize,
    /// Random lengths from 200 to 12,200, beside some around the ends of blocks.
    pub long_lengths: usize,
}

impl Density {
    /// About 200 calls of each kernel: for software adapters.
    pub const QUICK: Density = Density { calls: 1, long_lengths: 4 };
    /// About 2,000 calls of each kernel: for what is fast.
    pub const FULL: Density = Density { calls: 10, long_lengths: 12 };

    fn lengths(self, random: &mut Random) -> Vec<usize> {
        let mut lengths: Vec<usize> = (0..=200).collect();
        lengths.extend([255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097, 4159]);
        lengths.extend((0..self.long_lengths).map(|_| 200 + random.below(12_000)));
        lengths
    }
}

/// Compares every kernel, and how memory is copied.
///
/// # Panics
/// At the first difference, and at an error of the device.
pub fn check<D: KernelDevice>(device: &D, density: Density, seed: u64) {
    check_memory(device, seed);
    for kernel in Kernel::ALL {
        if let Err(difference) = check_kernel(device, kernel, density, seed) {
            panic!("{difference}");
        }
    }
}

/// Compares one kernel: how many calls were made.
///
/// # Errors
/// The first difference, or an error of the device, and the call.
pub fn check_kernel<D: KernelDevice>(
    device: &D,
    kernel: Kernel,
    density: Density,
    seed: u64,
) -> Result<usize, String> {
    let mut random = Random::new(seed ^ (kernel as u64) << 32);
    let mut calls = 0;
    for (number, count) in density.lengths(&mut random).into_iter().enumerate() {
        for call in 0..density.calls {
            let mix = MIXES[(number + call) % MIXES.len()];
            let Some(case) = KernelCase::new(&mut random, kernel, mix, count) else { continue };
            calls += 1;
            let about = || format!("seed {seed}: {count} elements, {mix:?}, {:?}", case.call);
            case.compare(device, &mut random).map_err(|difference| format!("{}: {difference}", about()))?;
        }
    }
    Ok(calls)
}

/// What is written is read, at any word of memory, and messages keep their content and their length.
///
/// # Panics
/// If not.
pub fn check_memory<D: KernelDevice>(device: &D, seed: u64) {
    let mut random = Random::new(seed);
    for words in [0, 1, 2, 63, 64, 1000] {
        let content: Vec<u32> = (0..words).map(|_| random.bits() as u32).collect();
        let mut memory = device.allocate(words).unwrap();
        assert_eq!((memory.words(), all_of(device, &memory)), (words, vec![0; words]));
        device.write(&content, &mut memory, 0).unwrap();
        assert_eq!(all_of(device, &memory), content);
        let Range { start, end } = some_of(&mut random, words);
        device.write(&vec![7; end - start], &mut memory, start).unwrap();
        let expected = [&content[..start], &vec![7; end - start], &content[end..]].concat();
        assert_eq!(all_of(device, &memory), expected, "words {start} to {end} were written");
        let mut part = vec![0; end - start];
        device.read(&memory, start, &mut part).unwrap();
        assert_eq!(part, vec![7; end - start], "words {start} to {end} were read");

        let read = device.to_read(content.clone()).unwrap();
        assert_eq!((read.words(), all_of(device, &read)), (words, content.clone()));
        let at = random.below(words - (end - start) + 1);
        device.copy(&read, at, &mut memory, start..end).unwrap();
        let expected = [&content[..start], &content[at..][..end - start], &content[end..]].concat();
        assert_eq!(all_of(device, &memory), expected, "word {at} and others became {start} to {end}");
        assert_eq!(device.was_read(read).len(), words);

        let mut message = device.to_write(vec![7; words]).unwrap();
        device.write(&content, &mut message, 0).unwrap();
        assert_eq!((message.words(), device.written(message).unwrap()), (words, content));
    }
}

fn all_of<D: KernelDevice>(device: &D, memory: &D::Memory) -> Vec<u32> {
    let mut words = vec![7; memory.words()];
    device.read(memory, 0, &mut words).unwrap();
    words
}

fn some_of(random: &mut Random, words: usize) -> Range<usize> {
    let start = random.below(words + 1);
    start..start + random.below(words - start + 1)
}
