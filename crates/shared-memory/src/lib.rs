//! Byte streams between two processes of one host, through memory.
//!
//! Each side makes a [`Segment`] and passes its file to the other. A segment holds a ring of bytes, its indices, and
//! places for short messages, and only its maker can write it. A [`Stream`] runs in the [`Segments`] of both sides. It
//! never blocks, and it trusts nothing that the other side writes: a process that follows no rule ends the stream, and
//! does nothing else here.
//!
//! | file | contents |
//! | --- | --- |
//! | `indices` | how far each side is, when a side sleeps, and when it must be woken; checked under loom |
//! | `loans` | bytes that the other side copies out of this process |
//! | `memory` | all `unsafe`: the memory, copies into it and out of it, and out of another process |
//! | `short` | short messages, which move two cache lines between the cores |
//! | `stream` | a stream of bytes in both directions |
//!
//! ```
//! # #[cfg(target_os = "linux")] {
//! use std::io::{IoSlice, IoSliceMut};
//! use std::sync::Arc;
//! use unisono_shared_memory::{Bell, Segment, Segments, Stream};
//!
//! struct Silent;
//! impl Bell for Silent {
//!     fn ring(&self) {}
//! }
//!
//! let [(ours, our_file), (theirs, their_file)] = [Segment::create(64 << 10)?, Segment::create(64 << 10)?];
//! // After the two sides have passed each other their files, over a Unix socket.
//! let mut here = Stream::new(Arc::new(Segments::new(ours, &their_file)?), Silent);
//! let mut there = Stream::new(Arc::new(Segments::new(theirs, &our_file)?), Silent);
//! assert_eq!(here.try_write(&[IoSlice::new(b"four")], usize::MAX)?, 4);
//! let mut bytes = [0; 9];
//! assert_eq!(there.try_read(&mut [IoSliceMut::new(&mut bytes)])?, 4);
//! assert_eq!(&bytes[..4], b"four");
//! # }
//! # Ok::<(), std::io::Error>(())
//! ```

#![cfg(target_os = "linux")]

mod budget;
mod indices;
mod loans;
#[cfg(not(loom))]
mod memory;
mod short;
#[cfg(not(loom))]
mod stream;

pub use budget::{Budget, MemoryLimit, cgroup_path, with_parents};
pub use indices::{FOR_BYTES, FOR_RETURN, FOR_ROOM, look_again};
#[cfg(not(loom))]
pub use memory::{Nonce, OtherProcess, Segment, let_others_read};
pub use short::{HEADER_BYTES, Key};
#[cfg(not(loom))]
pub use stream::{Bell, Segments, Stream, WHOLE_BYTES_MAX};
