//! One call on a device and by the definition.

use std::ops::Range;

use unisono_communicator::{Buffer, BufferMut};
use unisono_compression::{DeviceMemory, HostKernels, KernelDevice, View, ViewMut};
use unisono_kernels::testing::{Random, definition};

use super::all_of;
use super::call::{Memory, Outcome};
use super::cases::{KernelCase, Output};

/// What no kernel may touch.
const GUARD: u32 = 0x5a5a_5a5a;

/// Words of a device, and where the words of a call are among them.
struct Placed<D: KernelDevice> {
    memory: D::Memory,
    places: Vec<Range<usize>>,
    /// All words, as they were.
    words: Vec<u32>,
}

impl<D: KernelDevice> Placed<D> {
    /// At any words, with words of others before, between and behind them.
    fn new(device: &D, random: &mut Random, parts: &[&[u32]]) -> Result<Placed<D>, String> {
        let mut words = vec![GUARD; random.below(5)];
        let mut places = Vec::new();
        for part in parts {
            places.push(words.len()..words.len() + part.len());
            words.extend(*part);
            words.resize(words.len() + 1 + random.below(4), GUARD);
        }
        let memory = device.to_read(words.clone()).map_err(|error| error.to_string())?;
        Ok(Placed { memory, places, words })
    }
}

impl KernelCase {
    /// # Errors
    /// What differs, or an error of the device.
    pub(super) fn compare<D: KernelDevice>(&self, device: &D, random: &mut Random) -> Result<(), String> {
        let (expected, written) = self.by_definition();
        let inputs: Vec<&[u32]> = self.inputs.iter().chain(&self.old).map(Vec::as_slice).collect();
        // Ranks' messages are memory of their own; pieces of one vector are not.
        let together = if random.below(2) == 0 { 1 } else { inputs.len().max(1) };
        let place = |parts: &[&[u32]], random: &mut Random| Placed::<D>::new(device, random, parts);
        let read =
            inputs.chunks(together).map(|parts| place(parts, random)).collect::<Result<Vec<_>, _>>()?;
        let outputs = self.outputs.iter().map(|output| place(&[&output.words], random));
        let mut outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        let found = self.on_device(device, &read, &mut outputs)?;
        if found != expected {
            return Err(format!("{found:?} instead of {expected:?}"));
        }
        for (number, placed) in read.iter().enumerate() {
            same_words(&all_of(device, &placed.memory), &placed.words, |_| false)
                .map_err(|difference| format!("memory {number} that is read: {difference}"))?;
        }
        for (number, (placed, output)) in outputs.iter().zip(&self.outputs).enumerate() {
            let (words, place) = (all_of(device, &placed.memory), &placed.places[0]);
            let mut expected = placed.words.clone();
            let own = if found.is_bad() { &words[place.clone()] } else { &written[number][..] };
            expected[place.clone()].copy_from_slice(own);
            same_words(&words, &expected, |word| output.is_vector && place.contains(&word))
                .map_err(|difference| format!("output {number}, which is words {place:?}: {difference}"))?;
        }
        Ok(())
    }

    fn by_definition(&self) -> (Outcome, Vec<Vec<u32>>) {
        let mut written: Vec<Vec<u32>> =
            self.outputs.iter().map(|Output { words, .. }| words.clone()).collect();
        let memory = Memory {
            inputs: self.inputs.iter().map(|words| Buffer::of(words)).collect(),
            old: self.old.as_deref().map(Buffer::of),
            outputs: written.iter_mut().map(|words| BufferMut::of(words)).collect(),
        };
        let outcome = self.call.make(&HostKernels(definition()), memory).unwrap();
        (outcome, written)
    }

    fn on_device<D: KernelDevice>(
        &self,
        device: &D,
        read: &[Placed<D>],
        outputs: &mut [Placed<D>],
    ) -> Result<Outcome, String> {
        let views: Vec<View<'_>> = read
            .iter()
            .flat_map(|placed| placed.places.iter().map(|place| placed.memory.view(place.clone())))
            .collect();
        let mut views_mut: Vec<ViewMut<'_>> =
            outputs.iter_mut().map(|placed| placed.memory.view_mut(placed.places[0].clone())).collect();
        let mut inputs: Vec<Buffer<'_>> = views.iter().map(View::buffer).collect();
        let old = self.old.as_ref().and_then(|_| inputs.pop());
        let outputs = views_mut.iter_mut().map(ViewMut::buffer).collect();
        self.call.make(device, Memory { inputs, old, outputs }).map_err(|error| error.to_string())
    }
}

/// # Errors
/// The first word that differs. Where there `may_be_nan`, it makes no difference which one.
fn same_words(found: &[u32], expected: &[u32], may_be_nan: impl Fn(usize) -> bool) -> Result<(), String> {
    let is_nan = |word: u32| f32::from_bits(word).is_nan();
    for (number, (found, expected)) in found.iter().zip(expected).enumerate() {
        if found != expected && !(may_be_nan(number) && is_nan(*found) && is_nan(*expected)) {
            return Err(format!("word {number} is {found:#010x} instead of {expected:#010x}"));
        }
    }
    Ok(())
}
