//! An optimizer as bytes, for a checkpoint of each rank.
//!
//! Little-endian: the magic `UNIADAM1`, version `u32`, the exchanged vector `u32` (0 the preconditioned momentum, 1 the
//! momentum), the four constants of Adam as f32 (beta1, beta2, epsilon, weight decay), freeze step `u64`, steps done
//! `u64`, parameters `u64`, momentum and variance as f32, then the residuals ([`CompressionState::export`]).

use std::sync::Arc;

use unisono_communicator::{Communicator, Error, Result};

use super::{AdamOptions, Exchanged, OneBitAdam, OneBitAdamOptions};
use crate::{Codec, CompressionState};

const MAGIC: &[u8; 8] = b"UNIADAM1";
const VERSION: u32 = 1;

impl OneBitAdam {
    /// Everything that a later run needs to go on as if there had been no pause, but the parameters.
    ///
    /// ```
    /// use std::sync::Arc;
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*, unisono_compression as compression}; }
    /// use unisono::Solo;
    /// use unisono::compression::{CompressionState, SignL1};
    /// use unisono::compression::one_bit_adam::{OneBitAdam, OneBitAdamOptions};
    ///
    /// let (comm, options) = (Solo::new(), OneBitAdamOptions::new(1));
    /// let state = CompressionState::new::<f32>(&comm, SignL1::default(), 2)?;
    /// let mut optimizer = OneBitAdam::new(state, options.clone())?;
    /// let mut parameters = [1.0, 2.0];
    /// optimizer.step(&comm, &mut parameters, &mut [0.1, 0.2], 0.01)?;
    /// let bytes = optimizer.export();
    ///
    /// let later = OneBitAdam::import(&comm, Arc::new(SignL1::default()), options, &bytes)?;
    /// assert_eq!((later.steps(), later.momentum()), (1, optimizer.momentum()));
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    pub fn export(&self) -> Vec<u8> {
        let mut bytes = header(&self.options);
        bytes.extend(self.adam.steps.to_le_bytes());
        bytes.extend((self.adam.momentum.len() as u64).to_le_bytes());
        for values in [&self.adam.momentum, &self.adam.variance] {
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        bytes.extend(self.state.bytes_of_all_reduce());
        bytes
    }

    /// The optimizer that [`OneBitAdam::export`] wrote on the same rank of as many ranks, with an equal codec and equal
    /// options. Of the options, a mask is not in the bytes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the bytes are no such optimizer, or have other options; the errors of
    /// [`CompressionState::import`] and [`OneBitAdam::new`].
    pub fn import(
        comm: &(impl Communicator + ?Sized),
        codec: Arc<dyn Codec>,
        options: OneBitAdamOptions,
        bytes: &[u8],
    ) -> Result<OneBitAdam> {
        let wrong = |problem: &str| Error::invalid("checkpoint", problem);
        let short = || wrong("ends too early");
        let expected = header(&options);
        let mut rest = bytes;
        let found = rest.split_off(..expected.len()).ok_or_else(short)?;
        if found[..MAGIC.len()] != *MAGIC {
            return Err(wrong("is not of a 1-bit Adam optimizer"));
        }
        if found != expected {
            return Err(wrong("was written with other options, or by a library with another format"));
        }
        let steps = take(&mut rest).map(u64::from_le_bytes).ok_or_else(short)?;
        let parameters = take(&mut rest).map(u64::from_le_bytes).ok_or_else(short)?;
        let length = usize::try_from(parameters).ok().and_then(|length| length.checked_mul(size_of::<f32>()));
        let mut vector = || {
            let bytes = rest.split_off(..length?)?;
            Some(bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect::<Vec<f32>>())
        };
        let (momentum, variance) = (vector().ok_or_else(short)?, vector().ok_or_else(short)?);
        let is_sound = momentum.iter().all(|value| value.is_finite())
            && variance.iter().all(|value| value.is_finite() && *value >= 0.0);
        if !is_sound {
            return Err(wrong("has a moment that is not finite, or a negative variance"));
        }
        let state = CompressionState::import_with_codec::<f32>(comm, codec, rest)?;
        if state.elements() != momentum.len() {
            return Err(wrong("has residuals for another number of parameters"));
        }
        let mut optimizer = OneBitAdam::new(state, options)?;
        optimizer.adam.steps = steps;
        optimizer.adam.momentum = momentum;
        optimizer.adam.variance = variance;
        if steps > optimizer.options.freeze_step {
            optimizer.preconditioner = optimizer.precondition()?;
            optimizer.adam.previous.variance = Vec::new();
        }
        Ok(optimizer)
    }
}

/// The values that must be equal when a training goes on.
fn header(options: &OneBitAdamOptions) -> Vec<u8> {
    let AdamOptions { beta1, beta2, epsilon, weight_decay } = options.adam;
    let exchanged: u32 = match options.exchanged {
        Exchanged::Preconditioned => 0,
        Exchanged::Momentum { .. } => 1,
    };
    let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &exchanged.to_le_bytes()].concat();
    bytes.extend([beta1, beta2, epsilon, weight_decay].iter().flat_map(|constant| constant.to_le_bytes()));
    bytes.extend(options.freeze_step.to_le_bytes());
    bytes
}

fn take(rest: &mut &[u8]) -> Option<[u8; 8]> {
    rest.split_off(..8)?.try_into().ok()
}
