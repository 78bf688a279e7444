//! Calls made by hand: lists of buffers, memory of others, device memory, and calls that are values before they are
//! issued. The typed calls of [`Collectives`](crate::Collectives) make the same [`Call`] from slices, and
//! [`CollectivesOnDevice`] has typed calls on elements of a device.
//!
//! ```
//! use unisono::call::{Buffer, BufferMut, Buffers, Call, Descriptor, Division};
//! use unisono::{Collective, Collectives, DType, in_process};
//!
//! // The input of each rank lies in two pieces.
//! in_process::run(2, |comm| {
//!     let first = [comm.rank() as u16];
//!     let mut all = [0u16; 6];
//!     let input = Buffer::of_list(&[&first[..], &[10, 20]], Division::Anywhere);
//!     let buffers = Buffers::Separate { input, output: BufferMut::of(&mut all) };
//!     let descriptor = Descriptor::new(Collective::AllGather, DType::U16, 3);
//!     comm.issue(Call::new(descriptor, buffers)).unwrap();
//!     assert_eq!(all, [0, 10, 20, 1, 10, 20]);
//! });
//! ```

pub use unisono_collectives::{CollectivesOnDevice, DeviceBatch, OnStream};
pub use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, Counts, Descriptor, DeviceBuffer, DeviceBufferMut, DeviceSlice,
    DeviceSliceMut, DeviceStream, Division, Finished, Keeper, MemoryKind, OwnedBuffer, OwnedBuffers,
    OwnedCall, OwnedMemory, Place, Ticket,
};
