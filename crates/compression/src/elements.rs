//! The caller's elements: one vector or several, as if they followed each other, read and written as f32.

use std::ops::{Deref, DerefMut, Range};

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use unisono_communicator::{BufferMut, DType, Division, Error, Result, SegmentList, SegmentsMut};

/// Elements that are looked at together: few enough to stay in the cache.
const LOOKED_AT_ELEMENTS: usize = 16 * 1024;

/// The type of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatType {
    F32,
    F16,
    BF16,
}

impl FloatType {
    /// # Errors
    /// [`Error::Unsupported`] for other types.
    pub(crate) fn of(dtype: DType) -> Result<FloatType> {
        match dtype {
            DType::F32 => Ok(FloatType::F32),
            DType::F16 => Ok(FloatType::F16),
            DType::BF16 => Ok(FloatType::BF16),
            other => Err(Error::Unsupported {
                what: format!("elements of {other}"),
                backend: "compressed_all_reduce",
                instead: Some("f32, f16 or bf16".to_owned()),
            }),
        }
    }

    fn bytes(self) -> usize {
        match self {
            FloatType::F32 => 4,
            FloatType::F16 | FloatType::BF16 => 2,
        }
    }

    fn widen(self, narrow: &[u8], wide: &mut [f32]) {
        match self {
            FloatType::F32 => wide.copy_from_slice(bytemuck::cast_slice(narrow)),
            FloatType::F16 => bytemuck::cast_slice::<u8, f16>(narrow).convert_to_f32_slice(wide),
            FloatType::BF16 => bytemuck::cast_slice::<u8, bf16>(narrow).convert_to_f32_slice(wide),
        }
    }

    fn narrow(self, wide: &[f32], narrow: &mut [u8]) {
        use half::slice::HalfFloatSliceExt as _;
        match self {
            FloatType::F32 => bytemuck::cast_slice_mut(narrow).copy_from_slice(wide),
            FloatType::F16 => bytemuck::cast_slice_mut::<u8, f16>(narrow).convert_from_f32_slice(wide),
            FloatType::BF16 => bytemuck::cast_slice_mut::<u8, bf16>(narrow).convert_from_f32_slice(wide),
        }
    }
}

/// The vectors of a call, whose bytes are borrowed as `B`. Behind their last element there are zeros; a write to them
/// is dropped.
pub(crate) struct Elements<B> {
    float: FloatType,
    /// The bytes of each vector, and the number of its first element.
    vectors: Vec<(usize, B)>,
    count: usize,
    /// Elements that cannot be read or written where they lie.
    scratch: Vec<f32>,
}

impl<B: Deref<Target = [u8]>> Elements<B> {
    pub(crate) fn new(float: FloatType, vectors: impl IntoIterator<Item = B>) -> Elements<B> {
        let mut count = 0;
        let vectors = vectors.into_iter().map(|bytes| {
            let first = count;
            count += bytes.len() / float.bytes();
            (first, bytes)
        });
        let vectors = vectors.collect();
        Elements { float, vectors, count, scratch: Vec::new() }
    }

    /// The number of elements of all vectors together.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    fn end(&self, vector: usize) -> usize {
        self.vectors.get(vector + 1).map_or(self.count, |(first, _)| *first)
    }

    /// The only vector with elements of `range`, if there is one, and it is of f32.
    fn direct(&self, range: &Range<usize>) -> Option<usize> {
        let vector = self.vectors.partition_point(|(first, _)| *first <= range.start).checked_sub(1)?;
        (self.float == FloatType::F32 && range.end <= self.end(vector)).then_some(vector)
    }

    /// The elements of `range` in vector `index`: the parts of vector and range in which they are.
    fn part(&self, index: usize, range: &Range<usize>) -> Option<(Range<usize>, Range<usize>)> {
        let (first, end) = (self.vectors[index].0, self.end(index));
        let (from, to) = (range.start.max(first), range.end.min(end));
        (from < to).then(|| (from - first..to - first, from - range.start..to - range.start))
    }

    /// Copies the elements of `range`.
    pub(crate) fn copy(&self, range: Range<usize>, to: &mut [f32]) {
        to.fill(0.0);
        let size = self.float.bytes();
        for index in 0..self.vectors.len() {
            if let Some((from, part)) = self.part(index, &range) {
                let bytes = &self.vectors[index].1[from.start * size..from.end * size];
                self.float.widen(bytes, &mut to[part]);
            }
        }
    }

    /// The elements of `range`, in a copy unless they can be read where they lie.
    pub(crate) fn read(&mut self, range: Range<usize>) -> &[f32] {
        if let Some(vector) = self.direct(&range) {
            let (first, bytes) = &self.vectors[vector];
            return &bytemuck::cast_slice(bytes)[range.start - first..range.end - first];
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(range.len(), 0.0);
        self.copy(range, &mut scratch);
        self.scratch = scratch;
        &self.scratch
    }

    /// The first element that is a NaN or an infinity.
    pub(crate) fn first_not_finite(&mut self) -> Option<usize> {
        (0..self.count).step_by(LOOKED_AT_ELEMENTS).find_map(|from| {
            let values = self.read(from..self.count.min(from + LOOKED_AT_ELEMENTS));
            // No branch for each element: it would cost more than the memory does.
            let are_finite = values.iter().fold(true, |all, value| all & value.is_finite());
            if are_finite {
                return None;
            }
            values.iter().position(|value| !value.is_finite()).map(|at| from + at)
        })
    }
}

impl<B: DerefMut<Target = [u8]>> Elements<B> {
    /// All of them, for an exact call.
    pub(crate) fn buffer(&mut self) -> BufferMut<'_> {
        let vectors: Vec<&mut [u8]> = self.vectors.iter_mut().map(|(_, bytes)| &mut **bytes).collect();
        BufferMut::Host(SegmentsMut::Many(SegmentList::from(vectors).divided(Division::Anywhere)))
    }

    /// Lets `fill` write the elements of `range`.
    pub(crate) fn write(
        &mut self,
        range: Range<usize>,
        fill: &mut dyn FnMut(BufferMut<'_>) -> Result<()>,
    ) -> Result<()> {
        if let Some(vector) = self.direct(&range) {
            let (first, bytes) = &mut self.vectors[vector];
            let (from, to) = (range.start - *first, range.end - *first);
            return fill(BufferMut::of(&mut bytemuck::cast_slice_mut::<u8, f32>(bytes)[from..to]));
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(range.len(), 0.0);
        fill(BufferMut::of(&mut scratch))?;
        let (float, size) = (self.float, self.float.bytes());
        for index in 0..self.vectors.len() {
            if let Some((to, part)) = self.part(index, &range) {
                let bytes = &mut self.vectors[index].1[to.start * size..to.end * size];
                float.narrow(&scratch[part], bytes);
            }
        }
        self.scratch = scratch;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(out: BufferMut<'_>) -> &mut [f32] {
        match out {
            BufferMut::Host(SegmentsMut::One(bytes)) => bytemuck::cast_slice_mut(bytes),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn vectors_follow_each_other_and_zeros_follow_them() -> Result<()> {
        for float in [FloatType::F32, FloatType::F16, FloatType::BF16] {
            let lengths = [0usize, 3, 0, 1, 4];
            let mut bytes: Vec<Vec<u32>> = lengths.iter().map(|length| vec![0; *length]).collect();
            let vectors = bytes.iter_mut().zip(lengths).map(|(vector, length)| {
                &mut bytemuck::cast_slice_mut::<u32, u8>(vector)[..length * float.bytes()]
            });
            let mut elements = Elements::new(float, vectors);
            assert_eq!(elements.count(), 8);
            for at in 0..10 {
                elements.write(at..at + 1, &mut |out| {
                    floats(out)[0] = at as f32 + 1.0;
                    Ok(())
                })?;
            }
            for (from, to) in [(0, 10), (0, 0), (2, 5), (3, 4), (4, 8), (8, 10), (7, 9)] {
                let expected: Vec<f32> =
                    (from..to).map(|at| if at < 8 { at as f32 + 1.0 } else { 0.0 }).collect();
                assert_eq!(elements.read(from..to), expected, "{float:?} {from}..{to}");
            }
            elements.write(1..9, &mut |out| {
                floats(out).iter_mut().zip(20u8..).for_each(|(out, value)| *out = value.into());
                Ok(())
            })?;
            assert_eq!(elements.read(0..9), [1., 20., 21., 22., 23., 24., 25., 26., 0.]);
        }
        Ok(())
    }
}
