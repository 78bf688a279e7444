//! Compressed collectives: an all-reduce that sends 1, 4, 8 or 16 bits for each f32, over any communicator.
//!
//! A [`Codec`] turns elements into fewer bits; a [`CompressionState`] keeps, on each rank, the compression error so
//! far, so that nothing is lost over many calls (error feedback); [`CompressedCollectives`] are the calls.
//!
//! ```
//! # mod unisono {
//! #     pub use {unisono_communicator::*, unisono_compression as compression, unisono_engine::in_process};
//! # }
//! use unisono::ReduceOp;
//! use unisono::compression::{CompressedCollectives, CompressionState, SignL1};
//!
//! let outputs = unisono::in_process::run(2, |comm| {
//!     let mut state = CompressionState::new::<f32>(&comm, SignL1::default(), 2).unwrap();
//!     let mut sums = [0.0f32; 2];
//!     for _ in 0..100 {
//!         let mut gradients = if comm.rank() == 0 { [0.1f32, -0.9] } else { [0.3, 0.5] };
//!         comm.compressed_all_reduce(&mut gradients, ReduceOp::Avg, &mut state).unwrap();
//!         sums.iter_mut().zip(gradients).for_each(|(sum, mean)| *sum += mean);
//!     }
//!     sums
//! });
//! // One bit and a scale in each call; over 100 calls, the means 0.2 and -0.2.
//! assert_eq!(outputs[0], outputs[1]);
//! assert!((outputs[0][0] - 20.0).abs() < 2.0 && (outputs[0][1] + 20.0).abs() < 2.0, "{:?}", outputs[0]);
//! ```
//!
//! Where links are fast, exact calls may be faster: a state with [`CompressionState::or_exact`] measures both at its
//! first call, and keeps the faster way.
//!
//! The layout of bytes: [`Codec`] implementations define a part, `message.rs` the words around it.

#![forbid(unsafe_code)]

mod auto;
mod checkpoint;
mod choices;
mod codec;
mod codecs;
mod collectives;
mod data;
mod device;
mod device_pool;
mod elements;
mod exchange;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod host;
mod inspect;
mod kernels;
mod layout;
mod message;
mod message_memory;
pub mod one_bit_adam;
mod pool;
mod rank;
mod rebind;
mod residuals;
mod route;
mod secondary_copy;
mod size;
mod state;
mod summed;
mod turn;
mod wire;
mod work;

pub use codec::{CODECS, Codec, EncodeContext, Summable, TAG_BYTES_MAX, codec_by_name};
pub use codecs::{
    Bf16, BitOrder, INT_BLOCK_DEFAULT, INT_BLOCK_MAX, Int4, Int8, IntOptions, SIGN_BLOCK_DEFAULT,
    SIGN_BLOCK_MAX, SignL1, SignRms,
};
pub use collectives::CompressedCollectives;
pub use device::{DeviceMemory, KernelDevice, View, ViewMut};
pub use device_pool::DevicePool;
pub use host::HostKernels;
pub use kernels::{CodecKernels, Feedback, Shared, worst_element};
pub use rebind::Rebound;
pub use residuals::LoCo;
pub use route::Route;
pub use secondary_copy::SecondaryCopy;
pub use size::{NetworkBytes, network_bytes, residual_bytes, wire_bytes};
pub use state::CompressionState;
pub use summed::code_size;
pub use work::CompressedWork;
