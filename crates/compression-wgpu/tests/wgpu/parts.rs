//! Sums of many ranks' parts, wherever these lie: side by side, farther apart than a binding reaches, or in allocations
//! of their own.

use unisono_communicator::{Buffer, BufferMut, Result};
use unisono_compression::{CodecKernels, DeviceMemory, HostKernels, KernelDevice, View};
use unisono_compression_wgpu::{WgpuKernels, WgpuMemory};
use unisono_kernels::testing::{Mix, Random, SentSigns, definition, values};
use unisono_tests::compressed::bits;

const RANKS: usize = 64;
const ELEMENTS: usize = 5000;
const BLOCK: usize = 64;

/// A kernel that sums parts.
type Kernel = fn(&dyn CodecKernels, &[Buffer<'_>], BufferMut<'_>) -> Result<()>;

fn sum(kernels: &dyn CodecKernels, parts: &[Buffer<'_>], out: BufferMut<'_>) -> Result<()> {
    kernels.sum(parts, out)
}

fn sign_decode_sum(kernels: &dyn CodecKernels, parts: &[Buffer<'_>], out: BufferMut<'_>) -> Result<()> {
    kernels.sign_decode_sum(parts, BLOCK, 0.125, out)
}

/// The words of each part, one behind the other with `gap` words between them, in as many allocations.
fn check(device: &WgpuKernels, kernel: Kernel, parts: &[Vec<u32>], allocations: usize, gap: usize) {
    let mut expected = vec![0u32; ELEMENTS];
    let on_host: Vec<Buffer<'_>> = parts.iter().map(|part| Buffer::of(part)).collect();
    kernel(&HostKernels(definition()), &on_host, BufferMut::of(&mut expected)).unwrap();

    let (mut memories, mut places): (Vec<WgpuMemory>, Vec<_>) = (Vec::new(), Vec::new());
    for parts in parts.chunks(parts.len().div_ceil(allocations)) {
        let mut words = Vec::new();
        for part in parts {
            words.resize(words.len() + gap, 0);
            places.push((memories.len(), words.len()..words.len() + part.len()));
            words.extend(part);
        }
        memories.push(device.to_read(words).unwrap());
    }
    assert_eq!(memories.len(), allocations);
    let views: Vec<View<'_>> =
        places.into_iter().map(|(memory, place)| memories[memory].view(place)).collect();
    let buffers: Vec<Buffer<'_>> = views.iter().map(View::buffer).collect();
    let (mut output, mut found) = (device.allocate(ELEMENTS).unwrap(), vec![0; ELEMENTS]);
    kernel(device, &buffers, output.view_mut(0..ELEMENTS).buffer()).unwrap();
    device.read(&output, 0, &mut found).unwrap();
    assert!(found == expected, "{} parts in {allocations} allocations, {gap} words between", parts.len());
}

#[test]
fn sums_of_many_parts_are_the_same_wherever_they_lie() {
    let (Some(device), Some(small)) = (crate::support::device(), crate::support::small_device()) else {
        return;
    };
    let random = &mut Random::new(9);
    let vectors: Vec<Vec<u32>> = (0..RANKS).map(|_| bits(&values(random, Mix::Finite, ELEMENTS))).collect();
    let sent = |_| {
        let SentSigns { scales, bits: signs } = SentSigns::new(random, Mix::Finite, ELEMENTS, BLOCK);
        [bits(&scales), signs].concat()
    };
    let signs: Vec<Vec<u32>> = (0..RANKS).map(sent).collect();
    for device in [device, small] {
        for (kernel, parts) in [(sum as Kernel, &vectors), (sign_decode_sum, &signs)] {
            // On the small device the parts of one allocation are never within the reach of a binding.
            for (allocations, gap) in [(1, 1), (4, 3), (RANKS, 0)] {
                check(device, kernel, parts, allocations, gap);
            }
            check(device, kernel, &parts[..9], 3, 20_000);
        }
    }
}
