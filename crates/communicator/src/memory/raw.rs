//! Contiguous host memory of an asynchronous call: a vector that moved in, or foreign memory and its keeper.

#![expect(unsafe_code, reason = "memory of a caller, by its address")]

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::elements::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::log::{Severity, log};
use crate::memory::allocation::zeroed;
use crate::memory::segments::Segment;

/// Keeps memory alive that a call uses but does not own. The call drops the keeper at its end. A panic in that drop is
/// logged and goes no further.
pub struct Keeper(Option<Box<dyn Any + Send>>);

impl Keeper {
    /// Keeps `owner` until it is dropped itself.
    pub fn new(owner: impl Any + Send) -> Keeper {
        Keeper(Some(Box::new(owner)))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let kept = self.0.take();
        if catch_unwind(AssertUnwindSafe(|| drop(kept))).is_err() {
            log(
                Severity::Warn,
                None,
                format_args!("the keeper of a call's memory has panicked when it was dropped"),
            );
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeper")
    }
}

/// Bytes at an address. The maker of the buffer has promised that they are valid as long as the keeper lives, or until
/// the call has ended.
struct RawMemory {
    start: NonNull<u8>,
    bytes: usize,
    /// `None` for memory that its owner keeps.
    keeper: Option<Keeper>,
}

// SAFETY: the maker of the buffer has promised that nothing else touches the bytes. This holds on any thread.
unsafe impl Send for RawMemory {}

// SAFETY: through a shared reference the bytes are only read, and the keeper is out of reach.
unsafe impl Sync for RawMemory {}

impl RawMemory {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the maker of the buffer has promised that the bytes are valid and that nobody writes them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the maker of the buffer has promised that the bytes are valid and that nobody else uses them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

trait ElementVec: Send + Sync {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Replaces the elements by zeros, which have at least `bytes` bytes.
    fn make_room(&mut self, bytes: usize) -> Result<()>;
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

impl<T: Element> ElementVec for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(self)
    }

    fn make_room(&mut self, bytes: usize) -> Result<()> {
        *self = zeroed(bytes.div_ceil(size_of::<T>().max(1)))?;
        Ok(())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

/// One contiguous buffer of an asynchronous call: a vector that moved in, or memory that stays where it is
/// ([`OwnedBuffer::from_raw`], [`OwnedBuffer::lent`]).
pub struct OwnedBuffer {
    dtype: DType,
    elements: OwnedElements,
    /// The most bytes of the message for which it makes room; `None` if its size stays.
    room_bytes_max: Option<u64>,
}

enum OwnedElements {
    Vector(Box<dyn ElementVec>),
    Raw(RawMemory),
    /// Raw memory whose call has ended.
    Released,
}

impl OwnedBuffer {
    /// Takes the vector; no copy.
    pub fn new<T: Element>(elements: Vec<T>) -> OwnedBuffer {
        let elements = OwnedElements::Vector(Box::new(elements));
        OwnedBuffer { dtype: T::DTYPE, elements, room_bytes_max: None }
    }

    /// An empty vector for a message of unknown length: a receive makes room for the message when it has matched it.
    /// The receive's count is 0. A message of more than `bytes_max` bytes is [`Error::Truncated`].
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{
    ///     Collectives, CollectivesAsync, DType, Descriptor, Operation, OwnedBuffer, OwnedBuffers, OwnedCall,
    ///     OwnedMemory, Peer, Solo, Tag,
    /// };
    /// let comm = Solo::new();
    /// comm.send(&[1u16, 2, 3], 0, 7)?;
    /// let descriptor =
    ///     Descriptor { peer: Some(Peer::Any), tag: Tag::Is(7), ..Descriptor::new(Operation::Recv, DType::U16, 0) };
    /// let output = OwnedMemory::One(OwnedBuffer::for_message::<u16>(1000));
    /// let buffers = OwnedBuffers::Separate { input: OwnedMemory::of(Vec::<u16>::new()), output };
    /// assert_eq!(comm.start(OwnedCall::new(descriptor, buffers)).wait()?.bytes, 6);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn for_message<T: Element>(bytes_max: u64) -> OwnedBuffer {
        OwnedBuffer { room_bytes_max: Some(bytes_max), ..OwnedBuffer::new(Vec::<T>::new()) }
    }

    /// The most bytes of a message for which [`OwnedBuffer::make_room`] makes room. `None` for memory whose size stays.
    pub fn room_bytes_max(&self) -> Option<u64> {
        self.room_bytes_max
    }

    /// Makes room for a message of `bytes` bytes; for backends. Memory whose size stays is left as it is.
    ///
    /// # Errors
    /// [`Error::System`] when there is not enough memory.
    pub fn make_room(&mut self, bytes: usize) -> Result<()> {
        match &mut self.elements {
            OwnedElements::Vector(elements) if self.room_bytes_max.is_some() => elements.make_room(bytes),
            OwnedElements::Vector(_) | OwnedElements::Raw(_) | OwnedElements::Released => Ok(()),
        }
    }

    /// Memory that stays where it is: `bytes` bytes of `dtype` elements at `start`, which may be null if `bytes` is 0.
    /// `keeper` owns the memory or keeps its owner alive, such as a reference to a tensor. The call drops `keeper` when
    /// it ends, fails or is refused, even if its handle is dropped earlier, on a thread that holds no lock of the
    /// communicator. A keeper whose drop blocks delays later keepers and functions of [`crate::Work::on_done`], but no
    /// call. The handle gives an empty buffer back.
    ///
    /// # Safety
    /// Until `keeper` is dropped, the bytes must be valid and initialized, and nothing but the call may write them. If
    /// the call writes them, nothing else may read them. A call only reads its input.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when `bytes` is no whole number of elements or exceeds the address space, or when
    /// `start` is null with `bytes` above 0.
    ///
    /// ```
    /// use std::sync::Arc;
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*};
    /// # pub mod call { pub use unisono_communicator::*; } }
    /// use unisono::{Collective, CollectivesAsync, DType, ReduceOp, Solo};
    /// use unisono::call::{Descriptor, OwnedBuffer, OwnedBuffers, OwnedCall, Place};
    /// let mut memory = vec![1.0f32, 2.0];
    /// let (start, bytes) = (memory.as_mut_ptr().cast(), size_of_val(&memory[..]));
    /// let descriptor = Descriptor {
    ///     op: Some(ReduceOp::Sum),
    ///     place: Place::InPlace,
    ///     ..Descriptor::new(Collective::AllReduce, DType::F32, 2)
    /// };
    /// let owner = Arc::new(memory);
    /// // SAFETY: the vector lives as long as the keeper, and nobody looks at it before the call has ended.
    /// let buffer = unsafe { OwnedBuffer::from_raw(start, bytes, DType::F32, Box::new(owner.clone())) }?;
    /// let call = OwnedCall::new(descriptor, OwnedBuffers::InOut(buffer.into()));
    /// let work = Solo::new().start(call);
    /// work.wait()?;
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    pub unsafe fn from_raw(
        start: *mut u8,
        bytes: usize,
        dtype: DType,
        keeper: Box<dyn Any + Send>,
    ) -> Result<OwnedBuffer> {
        OwnedBuffer::raw(start, bytes, dtype, Some(Keeper(Some(keeper))))
    }

    /// Memory that stays where it is and that its owner keeps: `bytes` bytes of `dtype` elements at `start`, which may
    /// be null if `bytes` is 0. It costs less than [`OwnedBuffer::from_raw`]: no thread has to drop a keeper. The
    /// handle gives an empty buffer back.
    ///
    /// # Safety
    /// Until the call has ended, the bytes must be valid and initialized, and nothing but the call may write them. If
    /// the call writes them, nothing else may read them. A call has ended when [`crate::Work::is_done`] is true, when a
    /// wait has returned its result, or when it was refused. A drop of the handle does not end it.
    ///
    /// # Errors
    /// As [`OwnedBuffer::from_raw`].
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*};
    /// # pub mod call { pub use unisono_communicator::*; } }
    /// use unisono::{Collective, CollectivesAsync, DType, Solo};
    /// use unisono::call::{Descriptor, OwnedBuffer, OwnedBuffers, OwnedCall, Place};
    /// let mut memory = [1.0f32, 2.0];
    /// let (start, bytes) = (memory.as_mut_ptr().cast(), size_of_val(&memory));
    /// // SAFETY: the array outlives the wait below, and nobody looks at it before.
    /// let buffer = unsafe { OwnedBuffer::lent(start, bytes, DType::F32) }?;
    /// let broadcast = Descriptor {
    ///     root: Some(0),
    ///     place: Place::InPlace,
    ///     ..Descriptor::new(Collective::Broadcast, DType::F32, 2)
    /// };
    /// let work = Solo::new().start(OwnedCall::new(broadcast, OwnedBuffers::InOut(buffer.into())));
    /// work.wait()?;
    /// assert_eq!(memory, [1.0, 2.0]);
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    pub unsafe fn lent(start: *mut u8, bytes: usize, dtype: DType) -> Result<OwnedBuffer> {
        OwnedBuffer::raw(start, bytes, dtype, None)
    }

    /// The caller has made the promise of one of the two functions above.
    fn raw(start: *mut u8, bytes: usize, dtype: DType, keeper: Option<Keeper>) -> Result<OwnedBuffer> {
        if !bytes.is_multiple_of(dtype.bytes()) {
            let problem = format!("{bytes}, but elements of {dtype} have {}", dtype.bytes());
            return Err(Error::invalid("bytes", problem));
        }
        if isize::try_from(bytes).is_err() {
            return Err(Error::invalid("bytes", format!("{bytes}, which exceeds the address space")));
        }
        let start = match NonNull::new(start) {
            Some(start) => start,
            None if bytes == 0 => NonNull::dangling(),
            None => return Err(Error::invalid("start", format!("null, but there are {bytes} bytes"))),
        };
        let memory = RawMemory { start, bytes, keeper };
        Ok(OwnedBuffer { dtype, elements: OwnedElements::Raw(memory), room_bytes_max: None })
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.elements {
            OwnedElements::Vector(elements) => elements.bytes(),
            OwnedElements::Raw(memory) => memory.bytes(),
            OwnedElements::Released => &[],
        }
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.elements {
            OwnedElements::Vector(elements) => elements.bytes_mut(),
            OwnedElements::Raw(memory) => memory.bytes_mut(),
            OwnedElements::Released => &mut [],
        }
    }

    /// The same memory as elements of another type, for a call. It comes back with its own type.
    ///
    /// ```
    /// # mod unisono { pub use unisono_communicator::*; pub mod call { pub use unisono_communicator::*; } }
    /// use unisono::DType;
    /// use unisono::call::OwnedBuffer;
    /// let codes = OwnedBuffer::new(vec![0x0403_0201u32]).as_elements(DType::I8)?;
    /// assert_eq!((codes.dtype(), codes.bytes().len()), (DType::I8, 4));
    /// assert_eq!(codes.into_vec::<u32>(), Some(vec![0x0403_0201]));
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an element type that is larger than the memory's own.
    pub fn as_elements(self, dtype: DType) -> Result<OwnedBuffer> {
        if dtype.bytes() > self.dtype.bytes() {
            return Err(Error::invalid("dtype", format!("{dtype}, which is longer than {}", self.dtype)));
        }
        Ok(OwnedBuffer { dtype, ..self })
    }

    /// Gives the vector back; no copy. `None` when `T` is another type, or when the memory was no vector.
    pub fn into_vec<T: Element>(self) -> Option<Vec<T>> {
        match self.elements {
            OwnedElements::Vector(elements) => elements.into_any().downcast().ok().map(|vec| *vec),
            OwnedElements::Raw(_) | OwnedElements::Released => None,
        }
    }

    pub(super) fn has_keeper(&self) -> bool {
        matches!(&self.elements, OwnedElements::Raw(memory) if memory.keeper.is_some())
    }

    pub(super) fn release(&mut self, keepers: &mut Vec<Keeper>) {
        if let OwnedElements::Raw(memory) = &mut self.elements {
            keepers.extend(memory.keeper.take());
            self.elements = OwnedElements::Released;
        }
    }
}

impl fmt::Debug for OwnedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedBuffer({} bytes of {})", self.bytes().len(), self.dtype)
    }
}

impl Segment for OwnedBuffer {
    fn length(&self) -> usize {
        self.bytes().len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_length_that_does_not_fit_is_refused_and_the_keeper_dropped() {
        let mut memory = [0u8; 8];
        let keeper = Arc::new(());
        for (start, bytes) in
            [(memory.as_mut_ptr(), 7), (memory.as_mut_ptr(), usize::MAX - 3), (std::ptr::null_mut(), 8)]
        {
            // SAFETY: the arguments are refused before they are used.
            let refused =
                unsafe { OwnedBuffer::from_raw(start, bytes, DType::F32, Box::new(keeper.clone())) };
            assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{bytes} bytes at {start:?}");
        }
        assert_eq!(Arc::strong_count(&keeper), 1);
        // SAFETY: nothing is ever read or written.
        let empty = unsafe { OwnedBuffer::from_raw(std::ptr::null_mut(), 0, DType::F32, Box::new(())) };
        assert!(empty.is_ok_and(|empty| empty.bytes().is_empty()));
    }

    #[test]
    fn a_keeper_may_panic() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("in a test");
            }
        }
        drop(Keeper(Some(Box::new(Panics))));
    }
}
