//! The parts of a dispatch in one binding: a sum may have any number of parts, and a device few bindings.

use std::ops::Range;

use unisono_communicator::Result;

use crate::WgpuKernels;
use crate::memory::Span;
use crate::pool::Pooled;
use crate::regions::{EncodedRegions, Region};

/// The input of a kernel that reads or sums.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// A vector, or codes without numbers of blocks.
    Plain(Region),
    /// Codes with numbers of blocks.
    Encoded(EncodedRegions),
}

impl Part {
    /// The words of numbers of blocks and of codes of some elements; for a plain part both are the same.
    pub(crate) fn windows(&self, elements: &Range<usize>) -> [Span; 2] {
        match self {
            Part::Plain(region) => [region.window(elements), region.window(elements)],
            Part::Encoded(parts) => [parts.scales.window(elements), parts.codes.window(elements)],
        }
    }

    /// The number of words of some elements.
    pub(crate) fn words(&self, elements: &Range<usize>) -> usize {
        match self {
            Part::Plain(region) => region.density.range(elements).len(),
            Part::Encoded(parts) => {
                parts.scales.density.range(elements).len() + parts.codes.density.range(elements).len()
            }
        }
    }
}

/// The parts of a dispatch in one buffer.
pub(crate) struct Gathered {
    /// The words to bind.
    pub(crate) window: Span,
    /// The starts of the numbers of blocks and the codes of each part in the window.
    pub(crate) places: Vec<[usize; 2]>,
    /// The copies into the window that must come first.
    copies: Vec<(Span, usize)>,
    /// The memory of the copies.
    _scratch: Option<Pooled>,
}

impl Gathered {
    /// As the parts lie if a binding reaches from the first to the last, else as copies.
    pub(crate) fn new(on: &WgpuKernels, parts: &[Part], elements: &Range<usize>) -> Result<Gathered> {
        let windows: Vec<[Span; 2]> = parts.iter().map(|part| part.windows(elements)).collect();
        let spans = || windows.iter().flatten().filter(|span| span.words > 0);
        let Some(first) = spans().next() else {
            let window = on.unread().clone();
            return Ok(Gathered { window, places: vec![[0; 2]], copies: Vec::new(), _scratch: None });
        };
        let start = spans().fold(first.at, |start, span| start.min(span.at));
        let end = spans().fold(first.at, |end, span| end.max(span.at + span.words));
        let is_reached = (end - start) as u64 * 4 <= on.binding_bytes_max();
        if is_reached && spans().all(|span| span.buffer == first.buffer) {
            let window = Span { buffer: first.buffer.clone(), at: start, words: end - start };
            // A window of no words may be anywhere.
            let place = |span: &Span| span.at.saturating_sub(start);
            let places = windows.iter().map(|part| part.each_ref().map(place)).collect();
            return Ok(Gathered { window, places, copies: Vec::new(), _scratch: None });
        }
        Gathered::copied(on, parts, windows)
    }

    fn copied(on: &WgpuKernels, parts: &[Part], windows: Vec<[Span; 2]>) -> Result<Gathered> {
        let (mut places, mut copies, mut words) = (Vec::new(), Vec::new(), 0);
        let mut put = |from: Span| {
            let to = words;
            words += from.words;
            copies.push((from, to));
            to
        };
        for (part, [scales, codes]) in parts.iter().zip(windows) {
            places.push(match part {
                Part::Plain(_) => [put(codes); 2],
                Part::Encoded(_) => [put(scales), put(codes)],
            });
        }
        let scratch = on.memory().take(words)?;
        let window = Span { buffer: scratch.buffer().clone(), at: 0, words };
        Ok(Gathered { window, places, copies, _scratch: Some(scratch) })
    }

    /// Records the copies.
    pub(crate) fn record(&self, encoder: &mut wgpu::CommandEncoder) {
        for (from, to) in &self.copies {
            let [read, write, bytes] = [from.at, *to, from.words].map(|words| words as u64 * 4);
            encoder.copy_buffer_to_buffer(&from.buffer, read, &self.window.buffer, write, bytes);
        }
    }
}
