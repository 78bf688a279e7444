//! Every kernel, on the test double of the driver, gives the bytes of the definition.

use unisono_compression::{DeviceMemory, Feedback, HostKernels, KernelDevice};
use unisono_kernels::testing::{Mix, Random, definition, formats, residual, values};
use unisono_kernels::{IntFormat, Rounding, sign_words};
use unisono_tests::kernels_suite::{self, Density};

/// Rows: E4, G13
#[test]
fn every_kernel_is_the_same() {
    if let Some(device) = crate::common::open() {
        kernels_suite::check(&device, Density::FULL, 1);
    }
}

/// Threads take blocks together, as many as a block needs: blocks of all lengths, not only of the usual ones.
#[test]
fn blocks_may_be_any_multiple_of_64() {
    let Some(device) = crate::common::open() else { return };
    let host = HostKernels(definition());
    let mut random = Random::new(1);
    for block in (64..=1280).step_by(64) {
        let count = 1 + random.below(3 * block);
        let (input, old) =
            (values(&mut random, Mix::Finite, count), residual(&mut random, Mix::Finite, count));
        let [symmetric, _, _, asymmetric] = formats(block);
        for format in [None, Some(symmetric), Some(asymmetric)] {
            let expected = encoded(&host, &input, &old, block, format);
            let found = encoded(&device, &input, &old, block, format);
            assert!(found == expected, "{count} elements in blocks of {block}, {format:?}");
        }
    }
}

/// The words of a part, of signs or of integers, and the residuals.
fn encoded<D: KernelDevice>(
    device: &D,
    input: &[f32],
    old: &[f32],
    block: usize,
    format: Option<IntFormat>,
) -> [Vec<u32>; 2] {
    let count = input.len();
    let words = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
    let (input, old) = (device.to_read(words(input)).unwrap(), device.to_read(words(old)).unwrap());
    let part_words = match format {
        None => count.div_ceil(block) + sign_words(count),
        Some(format) => format.scales(count) + format.width.code_bytes(count).div_ceil(4),
    };
    let (mut new, mut part) = (device.allocate(count).unwrap(), device.allocate(part_words).unwrap());
    {
        let (input, old, mut new) = (input.view(0..count), old.view(0..count), new.view_mut(0..count));
        let feedback = Some(Feedback { old: old.buffer(), new: new.buffer() });
        let mut part = part.view_mut(0..part_words);
        let (input, out) = (input.buffer(), part.buffer());
        let bad = match format {
            None => device.sign_encode(input, feedback, block, out),
            Some(format) => device.int_encode(input, feedback, format, Rounding::Nearest, out),
        };
        assert_eq!(bad.unwrap(), None);
    }
    [&part, &new].map(|memory| {
        let mut words = vec![0; memory.words()];
        device.read(memory, 0, &mut words).unwrap();
        words
    })
}
