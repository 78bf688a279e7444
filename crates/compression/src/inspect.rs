//! A rank's encoded vector, to look at.

use unisono_communicator::{Buffer, BufferMut, Element, Error, Result, zeroed};
use unisono_kernels::Kernels;

use crate::codec::EncodeContext;
use crate::elements::{Elements, FloatType};
use crate::host::HostKernels;
use crate::kernels::Feedback;
use crate::rank::random_key;
use crate::route::Route;
use crate::state::CompressionState;

impl CompressionState {
    /// `vector` as the next call would encode it on this rank, with the residual, as one part ([`crate::Codec`]).
    /// Changes nothing. A call sends the same numbers in pieces: the scales and codes of each piece of each share.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*, unisono_compression as compression}; }
    /// use unisono::Solo;
    /// use unisono::compression::{CompressionState, SignL1};
    /// let state = CompressionState::new::<f32>(&Solo::new(), SignL1::default(), 4)?;
    /// let words = state.encode(&[1.0f32, -3.0, 2.0, -2.0])?;
    /// assert_eq!((f32::from_bits(words[0]), words[1]), (2.0, 0b0101));
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a vector of another length or element type, and for one with an element that is
    /// not finite; [`Error::Unsupported`] in two levels; [`Error::System`] when there is no memory.
    pub fn encode<T: Element>(&self, vector: &[T]) -> Result<Vec<u32>> {
        if (self.dtype, self.layout.elements) != (T::DTYPE, vector.len()) {
            let own = format!("the state is for {} of {}", self.layout.elements, self.dtype);
            return Err(Error::invalid(
                "vector",
                format!("has {} elements of {}; {own}", vector.len(), T::DTYPE),
            ));
        }
        if self.route == Route::TwoLevels {
            return Err(Error::Unsupported {
                what: "a look at one vector in two levels, where ranks encode the sum of a host".to_owned(),
                backend: "compression",
                instead: Some("a state by Route::Direct".to_owned()),
            });
        }
        let (codec, length) = (&*self.codec, self.layout.padded);
        let kernels = HostKernels(Kernels::best());
        let mut elements = Elements::new(FloatType::of(T::DTYPE)?, [bytemuck::cast_slice::<T, u8>(vector)]);
        let input = elements.read(0..length);
        let mut owed = zeroed::<f32>(if codec.has_feedback() { length } else { 0 })?;
        let residual = self.residual();
        let mut scale = 0.0;
        if codec.measures() {
            let feedback = Feedback { old: Buffer::of(&residual), new: BufferMut::of(&mut owed) };
            scale = codec.scale(codec.measure(&kernels, Buffer::of(input), feedback)?, length);
        }
        let context = EncodeContext { key: random_key(self.members.own as u64, self.calls), first: 0, scale };
        let new = BufferMut::of(&mut owed);
        let feedback = codec.has_feedback().then(|| Feedback { old: Buffer::of(&residual), new });
        let mut part = zeroed::<u32>(codec.encoded_words(length))?;
        let bad = codec.encode(&kernels, Buffer::of(input), feedback, context, BufferMut::of(&mut part))?;
        match bad {
            None => {
                codec.seal(&mut part);
                Ok(part)
            }
            Some(block) => {
                Err(Error::invalid("vector", format!("has a NaN or an infinity in block {block}")))
            }
        }
    }
}
