//! A state as bytes, for a checkpoint of each rank.
//!
//! Little-endian: the magic `UNIRESID`, version `u32`, tag of the codec (10 bytes, filled up with zeros), code of the
//! dtype (3 bytes), elements `u64`, ranks `u32`, rank `u32`, calls `u64`, route `u32` (0 direct, 1 two levels, 2 summed
//! codes), the form of the residuals `u32` (0 f32, 1 + shift for LoCo) and the calls from reset to reset `u64`, the
//! finding of `or_exact` `u32` (0 no such policy, 1 nothing yet, 2 to compress, 3 to decline), words of the rank's
//! residual `u64` and of the owner's `u64`, then both, as f32 or as parts of int8.

use std::sync::Arc;

use unisono_communicator::{Communicator, DTYPE_CODE_BYTES, Element, Error, Result};

use crate::auto::Auto;
use crate::codec::{Codec, TAG_BYTES_MAX};
use crate::residuals::{Kept, LoCo};
use crate::route::Route;
use crate::state::{CompressionState, Shape};

const MAGIC: &[u8; 8] = b"UNIRESID";
const VERSION: u32 = 3;

/// The possible findings of `or_exact`, each at its number in the bytes.
const CHOICES: [Option<Auto>; 4] = [None, Some(Auto::Undecided), Some(Auto::Compress), Some(Auto::Decline)];

impl CompressionState {
    /// Everything that a later run needs to go on as if there had been no pause, also the finding of
    /// [`CompressionState::or_exact`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the state of a reduce-scatter or an all-gather, which [`CompressionState::import`]
    /// does not read.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*, unisono_compression as compression}; }
    /// use unisono::{ReduceOp, Solo};
    /// use unisono::compression::{CompressedCollectives, CompressionState, SignL1};
    /// let comm = Solo::new();
    /// let mut state = CompressionState::new::<f32>(&comm, SignL1::default(), 2)?;
    /// comm.compressed_all_reduce(&mut [1.0f32, 3.0], ReduceOp::Sum, &mut state)?;
    /// let later = CompressionState::import::<f32>(&comm, SignL1::default(), &state.export()?)?;
    /// assert_eq!(later.residual(), state.residual());
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    pub fn export(&self) -> Result<Vec<u8>> {
        match self.shape {
            Shape::Whole(_) => Ok(self.bytes_of_all_reduce()),
            Shape::Vectors(_) | Shape::Shares(_) => Err(Error::Unsupported {
                what: format!("export of the state of {}", self.shape.collective()),
                backend: "compression",
                instead: Some("a new state in the later run, which owes nothing".to_owned()),
            }),
        }
    }

    /// The bytes of [`CompressionState::export`] for an all-reduce.
    pub(crate) fn bytes_of_all_reduce(&self) -> Vec<u8> {
        let mut bytes = self.header();
        for residual in [&self.worker, &self.owner] {
            bytes.extend(residual.current().iter().flat_map(|word| word.to_le_bytes()));
        }
        bytes
    }

    /// The state that [`CompressionState::export`] wrote on the same rank of as many ranks, with an equal codec.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the bytes are no such state, or belong to another rank, codec or element type;
    /// the errors of [`CompressionState::new`].
    pub fn import<T: Element>(
        comm: &(impl Communicator + ?Sized),
        codec: impl Codec + 'static,
        bytes: &[u8],
    ) -> Result<CompressionState> {
        CompressionState::import_with_codec::<T>(comm, Arc::new(codec), bytes)
    }

    /// The same with a codec that is chosen at run time.
    ///
    /// # Errors
    /// As [`CompressionState::import`].
    pub fn import_with_codec<T: Element>(
        comm: &(impl Communicator + ?Sized),
        codec: Arc<dyn Codec>,
        bytes: &[u8],
    ) -> Result<CompressionState> {
        let wrong = |problem: &str| Error::invalid("checkpoint", problem);
        let mut rest = bytes;
        if rest.split_off(..MAGIC.len()) != Some(&MAGIC[..]) {
            return Err(wrong("is not the state of a compressed collective"));
        }
        let short = || wrong("ends too early");
        let version = u32::from_le_bytes(take(&mut rest).ok_or_else(short)?);
        if version != VERSION {
            return Err(wrong(&format!("has version {version}, this library reads {VERSION}")));
        }
        let _: [u8; TAG_BYTES_MAX + DTYPE_CODE_BYTES] = take(&mut rest).ok_or_else(short)?;
        let elements = u64::from_le_bytes(take(&mut rest).ok_or_else(short)?);
        let _: [u8; 8] = take(&mut rest).ok_or_else(short)?;
        let calls = u64::from_le_bytes(take(&mut rest).ok_or_else(short)?);
        let route = match u32::from_le_bytes(take(&mut rest).ok_or_else(short)?) {
            0 => Route::Direct,
            1 => Route::TwoLevels,
            2 => Route::SummedCodes,
            _ => return Err(wrong("has a route that is none")),
        };
        let kept = u32::from_le_bytes(take(&mut rest).ok_or_else(short)?);
        let reset_calls = u64::from_le_bytes(take(&mut rest).ok_or_else(short)?);
        let choice = u32::from_le_bytes(take(&mut rest).ok_or_else(short)?);
        let auto = CHOICES.get(choice as usize).ok_or_else(|| wrong("has a choice that is none"))?;
        // A part of int8 has more bytes than a quarter of the elements has words; in two levels ranks share a vector.
        let room = bytes.len().saturating_mul(comm.size() as usize);
        let is_possible = |elements: &usize| *elements <= room || !codec.has_feedback();
        let elements = usize::try_from(elements).ok().filter(is_possible);
        let elements = elements.ok_or_else(|| wrong("has fewer residuals than elements"))?;
        let mut state = CompressionState::with_codec(comm, codec, T::DTYPE, elements)?.by(route, comm)?;
        if let Some(average_shift) = kept.checked_sub(1) {
            state = state.with_loco(LoCo { average_shift, reset_calls })?;
        }
        (state.calls, state.auto) = (calls, *auto);
        let header = state.header();
        if bytes[..header.len().min(bytes.len())] != header {
            let is_for = format!(
                "is not of rank {} of {} with {} for elements of {}",
                state.members.own,
                state.members.ranks.len(),
                state.codec.tag(),
                T::DTYPE
            );
            return Err(wrong(&is_for));
        }
        let mut words = bytes[header.len()..].chunks_exact(size_of::<u32>()).map(|word| {
            #[expect(clippy::expect_used, reason = "a chunk has four bytes")]
            u32::from_le_bytes(word.try_into().expect("four bytes"))
        });
        if bytes.len() - header.len() != (state.worker.words() + state.owner.words()) * size_of::<u32>() {
            return Err(wrong("has another length than its header says"));
        }
        for residual in [&mut state.worker, &mut state.owner] {
            let mut owed: Vec<u32> = words.by_ref().take(residual.words()).collect();
            residual.check(&mut owed).map_err(wrong)?;
            *residual.current_mut() = owed;
        }
        Ok(state)
    }

    fn header(&self) -> Vec<u8> {
        let mut tag = self.codec.tag().into_bytes();
        tag.resize(TAG_BYTES_MAX, 0);
        let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &tag, &self.dtype.code()].concat();
        bytes.extend((self.layout.elements as u64).to_le_bytes());
        bytes.extend((self.members.ranks.len() as u32).to_le_bytes());
        bytes.extend((self.members.own as u32).to_le_bytes());
        bytes.extend(self.calls.to_le_bytes());
        let route = match self.route {
            Route::Direct => 0u32,
            Route::TwoLevels => 1,
            Route::SummedCodes => 2,
        };
        let (kept, reset_calls) = match self.worker.kept {
            Kept::Exactly => (0, 0),
            Kept::Averaged(LoCo { average_shift, reset_calls }) => (1 + average_shift, reset_calls),
        };
        bytes.extend(route.to_le_bytes());
        bytes.extend(kept.to_le_bytes());
        bytes.extend(reset_calls.to_le_bytes());
        let choice: u32 = match self.auto {
            None => 0,
            Some(Auto::Undecided) => 1,
            Some(Auto::Compress) => 2,
            Some(Auto::Decline) => 3,
        };
        bytes.extend(choice.to_le_bytes());
        bytes.extend((self.worker.words() as u64).to_le_bytes());
        bytes.extend((self.owner.words() as u64).to_le_bytes());
        bytes
    }
}

fn take<const BYTES: usize>(rest: &mut &[u8]) -> Option<[u8; BYTES]> {
    rest.split_off(..BYTES)?.try_into().ok()
}
