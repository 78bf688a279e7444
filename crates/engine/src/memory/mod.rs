//! A call's bytes as three flat regions, over any segments: input, output, scratch.
//!
//! An access yields a prefix: the longest contiguous run from an offset. Segments hold whole elements, so a run that
//! starts at an element also ends at one.

mod stream;

use unisono_communicator::{Buffer, BufferMut, Buffers, Segments, SegmentsMut};

use crate::reduce::{Panicked, PeerBytes, Reducer, WHOLE_BYTES};

/// The memory that a step touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Region {
    /// The caller's input, which is never written. A call in place has none: everything is in the output.
    Input,
    /// The caller's output.
    Output,
    /// The engine's own windows.
    Scratch,
}

/// A run of bytes in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) region: Region,
    pub(crate) offset: usize,
}

/// The order of the operands of a reducing step, and the completeness of its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReduceOrder {
    /// Whether the local operand is left of the arriving one.
    pub(crate) operand_is_left: bool,
    /// Whether the result has the contributions of all ranks.
    pub(crate) completes: bool,
}

/// Whether stores go through the caches or past them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// Through the caches: the bytes are read again soon.
    Cached,
    /// Past the caches: the bytes are not read again soon.
    Streamed,
}

/// The most bytes that a streamed reduction computes, or that a copy within a region moves, at a time. They fit into
/// the first-level cache.
const BLOCK_BYTES: usize = 4096;
const _: () = assert!(BLOCK_BYTES.is_multiple_of(WHOLE_BYTES));

/// The memory of one poll of the engine.
pub(crate) struct Memory<'a, 'b> {
    input: &'a Segments<'a>,
    output: &'a mut SegmentsMut<'b>,
    scratch: &'a mut [u8],
}

/// A barrier's input: one byte that says "I am here".
pub(crate) static TOKEN: Segments<'static> = Segments::One(&[0]);

/// The input of a call in place, whose bytes are all in the output.
static NOTHING: Segments<'static> = Segments::One(&[]);

impl<'a, 'b> Memory<'a, 'b> {
    /// The memory of a call's host buffers and the engine's scratch; `None` for device buffers. `substitute`, if any,
    /// is read instead of a separate input.
    #[inline]
    pub(crate) fn new(
        buffers: &'a mut Buffers<'b>,
        substitute: Option<&'a Segments<'a>>,
        scratch: &'a mut [u8],
    ) -> Option<Memory<'a, 'b>> {
        match buffers {
            Buffers::InOut(BufferMut::Host(output)) => Some(Memory { input: &NOTHING, output, scratch }),
            Buffers::Separate { input: Buffer::Host(input), output: BufferMut::Host(output) } => {
                Some(Memory { input: substitute.unwrap_or(input), output, scratch })
            }
            Buffers::InOut(BufferMut::Device(_)) | Buffers::Separate { .. } => None,
        }
    }

    /// The longest contiguous run from `span` on, at most `length` bytes.
    #[inline]
    pub(crate) fn read(&self, span: Span, length: usize) -> &[u8] {
        match span.region {
            Region::Input => prefix(self.input, span.offset, length),
            Region::Output => prefix_of_mut(self.output, span.offset, length),
            Region::Scratch => clip(self.scratch, span.offset, length),
        }
    }

    /// As [`Memory::read`], to write.
    ///
    /// # Panics
    /// On the input. The verifier proves that no schedule writes it.
    #[inline]
    pub(crate) fn write(&mut self, span: Span, length: usize) -> &mut [u8] {
        match span.region {
            Region::Input => unreachable!("a schedule writes its input"),
            Region::Output => prefix_mut(self.output, span.offset, length),
            Region::Scratch => clip_mut(self.scratch, span.offset, length),
        }
    }

    /// Writes `bytes` from `span` on, across segments.
    #[inline]
    pub(crate) fn store(&mut self, mut span: Span, mut bytes: PeerBytes<'_>) {
        while !bytes.is_empty() {
            let run = self.write(span, bytes.len());
            let (now, later) = bytes.split_at(run.len());
            now.copy_to(run);
            span.offset += now.len();
            bytes = later;
        }
    }

    /// Copies `length` bytes from one span to another.
    pub(crate) fn copy(&mut self, mut from: Span, mut to: Span, mut length: usize, store: Store) {
        while length > 0 {
            let run = match self.split(from, to, length) {
                Some((source, target)) => {
                    match store {
                        Store::Cached => target.copy_from_slice(source),
                        Store::Streamed => stream::copy(target, source),
                    }
                    target.len()
                }
                None => {
                    let source = self.read(from, length.min(BLOCK_BYTES));
                    let block = &mut [0; BLOCK_BYTES][..source.len()];
                    block.copy_from_slice(source);
                    let target = self.write(to, block.len());
                    target.copy_from_slice(&block[..target.len()]);
                    target.len()
                }
            };
            from.offset += run;
            to.offset += run;
            length -= run;
        }
    }

    /// `destination = op(operand, incoming)`, whole elements.
    ///
    /// # Errors
    /// When a user function panicked.
    #[inline]
    pub(crate) fn reduce(
        &mut self,
        reducer: &Reducer,
        mut operand: Span,
        mut destination: Span,
        mut incoming: PeerBytes<'_>,
        order: ReduceOrder,
        store: Store,
    ) -> Result<(), Panicked> {
        let ReduceOrder { operand_is_left, completes } = order;
        while !incoming.is_empty() {
            let run = if let Some((source, target)) = self.split(operand, destination, incoming.len()) {
                let (now, _) = incoming.split_at(target.len());
                match store {
                    Store::Streamed if reducer.takes_blocks() => {
                        reduce_streamed(reducer, target, source, now, order)?;
                    }
                    Store::Cached | Store::Streamed => {
                        reducer.reduce(target, Some(source), now, operand_is_left, completes)?;
                    }
                }
                target.len()
            } else {
                if operand != destination {
                    let run = self.write(destination, incoming.len()).len();
                    self.copy(operand, destination, run, Store::Cached);
                }
                let target = self.write(destination, incoming.len());
                let (now, _) = incoming.split_at(target.len());
                reducer.reduce(target, None, now, operand_is_left, completes)?;
                target.len()
            };
            operand.offset += run;
            destination.offset += run;
            incoming = incoming.split_at(run).1;
        }
        Ok(())
    }

    /// The first bytes, of `length`, that are contiguous on both sides; `None` if these lie in the same region.
    #[inline]
    fn split(&mut self, from: Span, to: Span, length: usize) -> Option<(&[u8], &mut [u8])> {
        let (source, target) = match (from.region, to.region) {
            (Region::Input, Region::Output) => {
                (prefix(self.input, from.offset, length), prefix_mut(self.output, to.offset, length))
            }
            (Region::Input, Region::Scratch) => {
                (prefix(self.input, from.offset, length), clip_mut(self.scratch, to.offset, length))
            }
            (Region::Output, Region::Scratch) => {
                (prefix_of_mut(self.output, from.offset, length), clip_mut(self.scratch, to.offset, length))
            }
            (Region::Scratch, Region::Output) => {
                (clip(self.scratch, from.offset, length), prefix_mut(self.output, to.offset, length))
            }
            (Region::Output, Region::Output) | (Region::Scratch, Region::Scratch) | (_, Region::Input) => {
                return None;
            }
        };
        let run = source.len().min(target.len());
        Some((&source[..run], &mut target[..run]))
    }
}

/// `target = op(operand, incoming)`, past the caches.
fn reduce_streamed(
    reducer: &Reducer,
    target: &mut [u8],
    operand: &[u8],
    mut incoming: PeerBytes<'_>,
    order: ReduceOrder,
) -> Result<(), Panicked> {
    let mut block = [0; BLOCK_BYTES];
    for (target, operand) in target.chunks_mut(BLOCK_BYTES).zip(operand.chunks(BLOCK_BYTES)) {
        let block = &mut block[..target.len()];
        let (now, later) = incoming.split_at(block.len());
        let ReduceOrder { operand_is_left, completes } = order;
        reducer.reduce(block, Some(operand), now, operand_is_left, completes)?;
        incoming = later;
        stream::copy(target, block);
    }
    Ok(())
}

#[inline]
fn clip(slice: &[u8], offset: usize, length: usize) -> &[u8] {
    &slice[offset..slice.len().min(offset + length)]
}

#[inline]
fn clip_mut(slice: &mut [u8], offset: usize, length: usize) -> &mut [u8] {
    let end = slice.len().min(offset + length);
    &mut slice[offset..end]
}

#[inline]
fn prefix<'s>(segments: &'s Segments<'_>, offset: usize, length: usize) -> &'s [u8] {
    match segments {
        Segments::One(slice) => clip(slice, offset, length),
        Segments::Many(list) => match list.locate(offset) {
            Some((index, within)) => clip(list.slices()[index], within, length),
            None => &[],
        },
        Segments::Owned(list) => match list.locate(offset) {
            Some((index, within)) => clip(list.slices()[index].bytes(), within, length),
            None => &[],
        },
    }
}

#[inline]
fn prefix_of_mut<'s>(segments: &'s SegmentsMut<'_>, offset: usize, length: usize) -> &'s [u8] {
    match segments {
        SegmentsMut::One(slice) => clip(slice, offset, length),
        SegmentsMut::Many(list) => match list.locate(offset) {
            Some((index, within)) => clip(list.slices()[index], within, length),
            None => &[],
        },
        SegmentsMut::Owned(list) => match list.locate(offset) {
            Some((index, within)) => clip(list.slices()[index].bytes(), within, length),
            None => &[],
        },
    }
}

#[inline]
fn prefix_mut<'s>(segments: &'s mut SegmentsMut<'_>, offset: usize, length: usize) -> &'s mut [u8] {
    match segments {
        SegmentsMut::One(slice) => clip_mut(slice, offset, length),
        SegmentsMut::Many(list) => match list.locate(offset) {
            Some((index, within)) => clip_mut(list.slices_mut()[index], within, length),
            None => &mut [],
        },
        SegmentsMut::Owned(list) => match list.locate(offset) {
            Some((index, within)) => clip_mut(list.slices_mut()[index].bytes_mut(), within, length),
            None => &mut [],
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use unisono_communicator::{DType, ReduceOp, SegmentList, UserOp};

    use super::*;

    const ORDER: ReduceOrder = ReduceOrder { operand_is_left: true, completes: true };

    fn reduced(reducer: &Reducer, store: Store) -> Vec<u8> {
        let bytes = |seed: usize| -> Vec<u8> { (0..36_036).map(|at| (at * seed % 251) as u8).collect() };
        let (input, incoming) = (bytes(7), bytes(11));
        let mut parts = [vec![0u8; 12], vec![0u8; 24_000], vec![0u8; 12_024]];
        let list: Vec<&mut [u8]> = parts.iter_mut().map(|part| &mut part[..]).collect();
        let mut output = SegmentsMut::Many(SegmentList::from(list));
        let segments = Segments::One(&input);
        let mut memory = Memory { input: &segments, output: &mut output, scratch: &mut [] };
        let span = |region| Span { region, offset: 0 };
        memory
            .reduce(
                reducer,
                span(Region::Input),
                span(Region::Output),
                PeerBytes::Own(&incoming),
                ORDER,
                store,
            )
            .expect("no panic");
        parts.concat()
    }

    #[test]
    fn a_streamed_reduction_is_the_same() {
        for op in [ReduceOp::Sum, ReduceOp::Avg] {
            let reducer = Reducer::new(DType::U32, op, 2, None);
            assert_eq!(reduced(&reducer, Store::Streamed), reduced(&reducer, Store::Cached), "{op}");
        }
    }

    #[test]
    fn a_user_function_gets_whole_elements_also_when_the_output_is_large() {
        let dtype = DType::opaque(12).expect("a size");
        let op = ReduceOp::User(UserOp::ordered("concatenate"));
        let function = Arc::new(|left: &[u8], right: &[u8], out: &mut [u8]| {
            assert!(out.len().is_multiple_of(12));
            out.iter_mut().zip(left.iter().zip(right)).for_each(|(out, (left, right))| *out = left ^ right);
        });
        let reducer = Reducer::new(dtype, op, 2, Some(function));
        assert_eq!(reduced(&reducer, Store::Streamed), reduced(&reducer, Store::Cached));
    }
}
