//! The memory of a call: pointers and lists of C, as buffers that are borrowed or lent. Aliasing is refused here,
//! because Rust's buffers never alias.

#![expect(unsafe_code, reason = "memory of a caller, by its address")]

use std::any::Any;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use unisono::call::{Buffer, BufferMut, Buffers, Division, OwnedBuffer, OwnedBuffers, OwnedMemory};
use unisono::extend::calls::{Kind, SegmentList, Segments, SegmentsMut};
use unisono::{DType, Element, Error, Result, bytemuck};

use crate::user_op::Context;

/// A piece of memory in a list.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Piece {
    /// Its start; null if it has no elements. The library does not write a piece of an input.
    pub data: *mut c_void,
    /// The number of its elements.
    pub count: u64,
}

/// A function that is told once that the library no longer uses a call's memory.
pub type ReleaseFunction = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// One argument's memory, whose addresses and lengths are checked.
#[derive(Clone)]
pub(crate) struct Memory {
    pieces: Vec<(*mut u8, usize)>,
    /// `None` for one piece.
    division: Option<Division>,
}

impl Memory {
    /// `elements` elements at `start`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an address at which they cannot be.
    pub(crate) fn one(
        argument: &'static str,
        start: *mut c_void,
        elements: u64,
        dtype: DType,
    ) -> Result<Memory> {
        let piece = Piece { data: start, count: elements };
        Ok(Memory { pieces: vec![checked(argument, piece, dtype)?], division: None })
    }

    /// The pieces of a list.
    ///
    /// # Errors
    /// As [`Memory::one`].
    pub(crate) fn list(
        argument: &'static str,
        pieces: &[Piece],
        division: Division,
        dtype: DType,
    ) -> Result<Memory> {
        let pieces = pieces.iter().map(|piece| checked(argument, *piece, dtype)).collect::<Result<_>>()?;
        Ok(Memory { pieces, division: Some(division) })
    }

    /// The pieces as elements.
    ///
    /// # Safety
    /// The pieces hold elements of `T`, and nobody writes them while the result is used.
    pub(crate) unsafe fn slices<'a, T: Element>(&self) -> Vec<&'a [T]> {
        // SAFETY: as the caller promises.
        self.pieces.iter().map(|piece| bytemuck::cast_slice(unsafe { slice(*piece) })).collect()
    }

    /// The pieces as elements, to write.
    ///
    /// # Safety
    /// The pieces hold elements of `T`, and nobody else uses them while the result is used.
    pub(crate) unsafe fn slices_mut<'a, T: Element>(&self) -> Vec<&'a mut [T]> {
        // SAFETY: as the caller promises.
        self.pieces.iter().map(|piece| bytemuck::cast_slice_mut(unsafe { slice_mut(*piece) })).collect()
    }

    /// The bytes of all pieces.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().fold(0, |sum: u64, piece| sum.saturating_add(piece.1 as u64))
    }

    fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let used = self.pieces.iter().filter(|(_, bytes)| *bytes > 0);
        used.map(|(start, bytes)| start.addr()..start.addr() + bytes)
    }

    /// # Safety
    /// The pieces are readable, and nobody writes them while the result is used.
    unsafe fn borrowed<'a>(&self) -> Buffer<'a> {
        // SAFETY: as the caller promises.
        let mut slices = self.pieces.iter().map(|piece| unsafe { slice(*piece) });
        match self.division {
            None => Buffer::Host(Segments::One(slices.next().unwrap_or_default())),
            Some(division) => {
                let list: SegmentList<&[u8]> = slices.collect::<Vec<_>>().into();
                Buffer::Host(Segments::Many(list.divided(division)))
            }
        }
    }

    /// # Safety
    /// The pieces are writable, and nobody else uses them while the result is used.
    unsafe fn borrowed_mut<'a>(&self) -> BufferMut<'a> {
        // SAFETY: as the caller promises.
        let mut slices = self.pieces.iter().map(|piece| unsafe { slice_mut(*piece) });
        match self.division {
            None => BufferMut::Host(SegmentsMut::One(slices.next().unwrap_or_default())),
            Some(division) => {
                let list: SegmentList<&mut [u8]> = slices.collect::<Vec<_>>().into();
                BufferMut::Host(SegmentsMut::Many(list.divided(division)))
            }
        }
    }

    /// # Safety
    /// As [`Memory::borrowed_mut`], until the call has ended, or the keeper is dropped if there is one.
    unsafe fn owned(&self, dtype: DType, keeper: Option<&Arc<Release>>) -> Result<OwnedMemory> {
        // SAFETY: as the caller promises.
        let owned = |(start, bytes): &(*mut u8, usize)| unsafe {
            match keeper {
                Some(keeper) => {
                    let keeper: Box<dyn Any + Send> = Box::new(keeper.clone());
                    OwnedBuffer::from_raw(*start, *bytes, dtype, keeper)
                }
                None => OwnedBuffer::lent(*start, *bytes, dtype),
            }
        };
        let mut buffers = self.pieces.iter().map(owned).collect::<Result<Vec<_>>>()?;
        match (self.division, buffers.pop()) {
            (None, Some(only)) => Ok(OwnedMemory::One(only)),
            (None, None) => Ok(OwnedMemory::of(Vec::<u8>::new())),
            (Some(division), last) => {
                buffers.extend(last);
                Ok(OwnedMemory::Many(SegmentList::from(buffers).divided(division)))
            }
        }
    }
}

/// A piece whose address and size can be.
fn checked(argument: &'static str, piece: Piece, dtype: DType) -> Result<(*mut u8, usize)> {
    let start: *mut u8 = piece.data.cast();
    let too_long = || Error::invalid("count", "the buffer would exceed the address space");
    let bytes = usize::try_from(piece.count).ok().and_then(|count| count.checked_mul(dtype.bytes()));
    let bytes = bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or_else(too_long)?;
    if bytes == 0 {
        return Ok((std::ptr::null_mut(), 0));
    }
    if start.is_null() {
        let problem = format!("null, but there are {} elements of {dtype}", piece.count);
        return Err(Error::invalid(argument, problem));
    }
    if !start.addr().is_multiple_of(alignment(dtype)) {
        let problem = format!("{start:?}, which is no multiple of {}, as {dtype} needs", alignment(dtype));
        return Err(Error::invalid(argument, problem));
    }
    if start.addr().checked_add(bytes).is_none() {
        return Err(too_long());
    }
    Ok((start, bytes))
}

/// The alignment that an element of this type has in C.
fn alignment(dtype: DType) -> usize {
    match dtype.kind() {
        Kind::Opaque => 1,
        Kind::Complex(float) => float.bytes,
        Kind::Float(_) | Kind::Signed | Kind::Unsigned | Kind::Bool => dtype.bytes(),
    }
}

/// # Safety
/// The piece is readable, and nobody writes it while the result is used.
unsafe fn slice<'a>((start, bytes): (*mut u8, usize)) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: the address is checked, and the caller promises the rest.
    unsafe { std::slice::from_raw_parts(start, bytes) }
}

/// # Safety
/// The piece is writable, and nobody else uses it while the result is used.
unsafe fn slice_mut<'a>((start, bytes): (*mut u8, usize)) -> &'a mut [u8] {
    if bytes == 0 {
        return &mut [];
    }
    // SAFETY: the address is checked, and the caller promises the rest.
    unsafe { std::slice::from_raw_parts_mut(start, bytes) }
}

/// Both sides of a call: no two pieces overlap, but inputs among each other.
pub(crate) struct Sides {
    /// `None` in place.
    input: Option<Memory>,
    output: Memory,
}

impl Sides {
    /// The memory of a call; `None` for the input of a call in place.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when a part of the output overlaps another part.
    pub(crate) fn new(input: Option<Memory>, output: Memory) -> Result<Sides> {
        let mut outputs: Vec<Range<usize>> = output.ranges().collect();
        outputs.sort_unstable_by_key(|range| range.start);
        if outputs.windows(2).any(|pair| pair[1].start < pair[0].end) {
            return Err(Error::invalid("output", "two pieces of it overlap"));
        }
        let overlaps = |range: Range<usize>| {
            let behind = outputs.partition_point(|output| output.end <= range.start);
            outputs.get(behind).is_some_and(|output| output.start < range.end)
        };
        if input.iter().flat_map(Memory::ranges).any(overlaps) {
            let problem =
                "overlaps the output; a call on one buffer has the flag UNISONO_IN_PLACE and no input";
            return Err(Error::invalid("input", problem));
        }
        Ok(Sides { input, output })
    }

    /// The output.
    pub(crate) fn output(&self) -> &Memory {
        &self.output
    }

    /// The input; `None` in place.
    pub(crate) fn input(&self) -> Option<&Memory> {
        self.input.as_ref()
    }

    /// The buffers of a blocking call.
    ///
    /// # Safety
    /// While the result is used, nobody writes the input, and nobody else uses the output.
    pub(crate) unsafe fn borrowed<'a>(&self) -> Buffers<'a> {
        // SAFETY: as the caller promises; the sides do not overlap.
        unsafe {
            match &self.input {
                None => Buffers::InOut(self.output.borrowed_mut()),
                Some(input) => {
                    Buffers::Separate { input: input.borrowed(), output: self.output.borrowed_mut() }
                }
            }
        }
    }

    /// The buffers of an asynchronous call.
    ///
    /// # Safety
    /// As [`Sides::borrowed`], until the call has ended, or the keeper is dropped if there is one.
    pub(crate) unsafe fn owned(&self, dtype: DType, keeper: Option<&Arc<Release>>) -> Result<OwnedBuffers> {
        // SAFETY: as the caller promises; the sides do not overlap.
        unsafe {
            Ok(match &self.input {
                None => OwnedBuffers::InOut(self.output.owned(dtype, keeper)?),
                Some(input) => OwnedBuffers::Separate {
                    input: input.owned(dtype, keeper)?,
                    output: self.output.owned(dtype, keeper)?,
                },
            })
        }
    }
}

/// Tells the caller, when it is dropped, that the memory is no longer used.
pub(crate) struct Release {
    function: unsafe extern "C" fn(context: *mut c_void),
    context: Context,
}

impl Release {
    /// The function that the caller has given, if any.
    pub(crate) fn new(function: ReleaseFunction, context: *mut c_void) -> Option<Arc<Release>> {
        function.map(|function| Arc::new(Release { function, context: Context(context) }))
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        // SAFETY: the caller has given the function for this call, with its context.
        unsafe { (self.function)(self.context.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(values: &mut [u32], from: usize, to: usize) -> Memory {
        let start = values[from..].as_mut_ptr().cast();
        Memory::one("memory", start, (to - from) as u64, DType::U32).unwrap()
    }

    #[test]
    fn memory_that_overlaps_is_refused() {
        let mut values = [0u32; 8];
        let parts: Vec<Memory> =
            [(0, 4), (4, 8), (3, 5)].map(|(from, to)| memory(&mut values, from, to)).into();
        assert!(Sides::new(Some(parts[0].clone()), parts[1].clone()).is_ok());
        let refused = Sides::new(Some(parts[2].clone()), parts[0].clone());
        assert!(refused.is_err_and(|error| error.to_string().contains("UNISONO_IN_PLACE")));
        let piece = |memory: &Memory| Piece { data: memory.pieces[0].0.cast(), count: 2 };
        let list = [piece(&parts[0]), piece(&parts[2]), piece(&parts[1])];
        let list = Memory::list("output", &list, Division::Anywhere, DType::U32).unwrap();
        assert!(Sides::new(None, list).is_err_and(|error| error.to_string().contains("two pieces")));
    }

    #[test]
    fn addresses_and_lengths_are_checked() {
        let mut values = [0u64; 2];
        let odd = values.as_mut_ptr().cast::<u8>().wrapping_add(4);
        assert!(Memory::one("input", odd.cast(), 1, DType::F64).is_err());
        assert!(Memory::one("input", odd.cast(), 1, DType::Complex64).is_ok());
        assert!(Memory::one("input", odd.cast(), u64::MAX, DType::F32).is_err());
        assert!(Memory::one("input", std::ptr::null_mut(), 1, DType::F32).is_err());
        assert!(Memory::one("input", std::ptr::null_mut(), 0, DType::F32).is_ok());
    }
}
