//! The memory of messages: on the host, or in the memory of the device whose kernels have written them. There calls of
//! the communicator are enqueued on the stream of the kernels, and the host reads no more of a message than its status
//! and its scales.

use std::ops::Range;

use unisono_communicator::{DeviceStream, Result, Ticket};

use crate::device::{DeviceMemory, KernelDevice};
use crate::message::{self, Fault, head_words, message_words};
use crate::pool::Pool;
use crate::rank::Rank;

/// The memory of the messages of a state's calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MessageMemory {
    Host,
    /// In memory of the device, which this stream orders.
    Device(DeviceStream),
}

/// The messages of ranks to each other in one call, one behind the other.
pub(crate) enum Message<M> {
    Host(Vec<u32>),
    Device { words: M, stream: DeviceStream },
}

/// The words to send, and memory for the words that come.
pub(crate) enum SendReceive<M> {
    Host([Vec<u32>; 2]),
    Device { words: [M; 2], stream: DeviceStream },
}

/// A call on memory of a device that is under way, and its memory.
pub(crate) struct Enqueued<M> {
    pub(crate) ticket: Option<Ticket>,
    pub(crate) words: [M; 2],
    pub(crate) stream: DeviceStream,
}

impl<M> Message<M> {
    /// No message.
    pub(crate) const NONE: Message<M> = Message::Host(Vec::new());
}

impl<M: DeviceMemory> Message<M> {
    /// The same, with memory for `arriving` words where it lies.
    pub(crate) fn with_arriving<D: KernelDevice<Memory = M>>(
        self,
        arriving: usize,
        device: &D,
        pool: &mut Pool,
    ) -> Result<SendReceive<M>> {
        Ok(match self {
            Message::Host(words) => SendReceive::Host([words, pool.take(arriving)?]),
            Message::Device { words, stream } => {
                SendReceive::Device { words: [words, device.allocate_unwritten(arriving)?], stream }
            }
        })
    }
}

impl<D: KernelDevice> Rank<'_, D> {
    /// Memory of so many words for kernels to write a message in.
    pub(crate) fn memory(&mut self, words: usize) -> Result<D::Memory> {
        match self.message_memory {
            MessageMemory::Host => self.device.to_write(self.pool.take(words)?),
            MessageMemory::Device(_) => self.device.allocate_unwritten(words),
        }
    }

    /// Words that kernels have written, as a message to send.
    pub(crate) fn written(&self, memory: D::Memory) -> Result<Message<D::Memory>> {
        Ok(match self.message_memory {
            MessageMemory::Host => Message::Host(self.device.written(memory)?),
            MessageMemory::Device(stream) => Message::Device { words: memory, stream },
        })
    }

    /// A message that came, for kernels to read.
    pub(crate) fn to_read(&self, message: Message<D::Memory>) -> Result<D::Memory> {
        match message {
            Message::Host(words) => self.device.to_read(words),
            Message::Device { words, .. } => Ok(words),
        }
    }

    /// Gives up memory that kernels have read or written.
    pub(crate) fn give_up(&mut self, memory: D::Memory) {
        match self.message_memory {
            MessageMemory::Host => self.pool.put(self.device.was_read(memory)),
            MessageMemory::Device(_) => drop(memory),
        }
    }

    /// Ends the message at `at` in `messages`, whose part of `elements` kernels have written.
    pub(crate) fn close(
        &self,
        messages: &mut Message<D::Memory>,
        at: Range<usize>,
        elements: usize,
        fault: Option<Fault>,
    ) -> Result<()> {
        match messages {
            Message::Host(words) => message::close(self.codec, &mut words[at], elements, fault),
            Message::Device { words, .. } => {
                let Some(fault) = fault else {
                    return self.device.write(&[message::USABLE], words, at.start);
                };
                let mut front = vec![0; head_words(self.codec, elements)];
                message::write_fault(&mut front, fault);
                self.device.write(&front, words, at.start)?;
            }
        }
        Ok(())
    }

    /// The message of no elements.
    pub(crate) fn nothing(&mut self) -> Result<Message<D::Memory>> {
        let memory = self.memory(0)?;
        self.written(memory)
    }

    /// The message of `elements` elements that says why it has no part.
    pub(crate) fn fault(&mut self, elements: usize, fault: Fault) -> Result<Message<D::Memory>> {
        let words = message_words(self.codec, elements);
        let memory = self.memory(words)?;
        let mut message = self.written(memory)?;
        self.close(&mut message, 0..words, elements, Some(fault))?;
        Ok(message)
    }

    /// Takes the message at `at` in `messages` off the wire: one of `elements` elements from rank `from`.
    pub(crate) fn accept(
        &self,
        messages: &mut Message<D::Memory>,
        at: Range<usize>,
        elements: usize,
        from: usize,
    ) -> Result<Option<Fault>> {
        let (way, ranks) = ([from as u32, self.own as u32], self.layout.ranks as u32);
        let accept = |words: &mut [u32]| message::accept(self.codec, words, elements, way, ranks).err();
        match messages {
            Message::Host(words) => Ok(accept(&mut words[at])),
            Message::Device { words, .. } => {
                let mut head = vec![0; head_words(self.codec, elements)];
                self.device.read(words, at.start, &mut head)?;
                Ok(accept(&mut head))
            }
        }
    }
}
