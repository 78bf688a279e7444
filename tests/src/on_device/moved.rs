//! A communicator that makes every call on memory of the host by way of memory of a device: what tests write for the
//! host is so a test of calls that are enqueued, with their tickets.

#![expect(unsafe_code, reason = "memory and streams of a device, by their addresses")]

use std::ffi::c_void;
use std::sync::Arc;

use unisono_collectives::Collectives;
use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallOptions, Communicator, Descriptor, DeviceBuffer, DeviceBufferMut,
    DeviceStream, Error, Executor, Group, Life, MemoryKind, Outcome, OwnedCall, Result, Segments,
    SegmentsMut, Work,
};
use unisono_offload::{Device, Offloaded, RawStream, Vendor};

/// DeviceBytes on a device, which are copied on one stream.
pub struct DeviceBytes<'a> {
    device: &'a dyn Device,
    stream: RawStream,
    pointer: *mut c_void,
    length: usize,
}

impl<'a> DeviceBytes<'a> {
    /// A copy of these. The memory has some bytes also when they are none.
    ///
    /// # Errors
    /// Those of the device.
    pub fn new(device: &'a dyn Device, stream: RawStream, content: &[u8]) -> Result<DeviceBytes<'a>> {
        let pointer = device.allocate(content.len().max(1))?;
        let bytes = DeviceBytes { device, stream, pointer, length: content.len() };
        if !content.is_empty() {
            // SAFETY: the memory is as long, and nobody else's.
            unsafe { device.upload(pointer, content, stream) }?;
        }
        Ok(bytes)
    }

    /// Where they are.
    pub fn pointer(&self) -> *mut c_void {
        self.pointer
    }

    /// What is there behind the work that is on the stream now.
    ///
    /// # Errors
    /// Those of the device, and of that work.
    pub fn read(&self) -> Result<Vec<u8>> {
        let mut content = vec![0; self.length];
        if !content.is_empty() {
            // SAFETY: the memory is as long.
            unsafe { self.device.download(&mut content, self.pointer, self.stream) }?;
        }
        Ok(content)
    }

    fn lent(&self) -> Result<DeviceBuffer> {
        // SAFETY: the call that it is lent to has ended, or its memory is left to it.
        unsafe {
            DeviceBuffer::from_raw(self.pointer.expose_provenance(), self.length, self.device.ordinal())
        }
    }

    fn lent_mut(&mut self) -> Result<DeviceBufferMut> {
        // SAFETY: as above.
        unsafe {
            DeviceBufferMut::from_raw(self.pointer.expose_provenance(), self.length, self.device.ordinal())
        }
    }
}

impl Drop for DeviceBytes<'_> {
    fn drop(&mut self) {
        // SAFETY: it is this value's, and the work that uses it is done.
        unsafe { self.device.free(self.pointer) };
    }
}

/// A vendor's communicator, on memory of the device with which its library was opened.
pub struct OnDevice<V: Vendor> {
    comm: Arc<Offloaded<V>>,
    vendor: Arc<V>,
    stream: RawStream,
}

impl<V: Vendor> OnDevice<V> {
    /// With a stream of its own, which stays until the end of the process.
    ///
    /// # Errors
    /// Those of the device.
    ///
    /// # Panics
    /// When the vendor has none.
    pub fn new(comm: Arc<Offloaded<V>>, vendor: Arc<V>) -> Result<OnDevice<V>> {
        let stream = super::device(&*vendor).create_stream()?;
        Ok(OnDevice { comm, vendor, stream })
    }

    /// The stream.
    pub fn stream(&self) -> RawStream {
        self.stream
    }

    /// It, for typed calls.
    pub fn device_stream(&self) -> DeviceStream {
        // SAFETY: it is of this device, and lives to the end of the process.
        unsafe { DeviceStream::from_raw(self.stream.0, self.device().ordinal()) }
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        super::device(&*self.vendor)
    }

    fn copied(&self, content: &[u8]) -> Result<DeviceBytes<'_>> {
        DeviceBytes::new(self.device(), self.stream, content)
    }

    /// Enqueues a call, and waits for it.
    fn made(&self, call: Call<'_>) -> Result<Outcome> {
        let outcome = self.comm.issue(Call { stream: Some(self.device_stream()), ..call })?;
        let Some(ticket) = outcome.ticket() else {
            return Err(unsupported("a call on memory of a device without a ticket"));
        };
        self.comm.resolve(ticket)
    }
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported { what: what.to_owned(), backend: "on a device", instead: None }
}

fn read_from<'a>(buffer: &Buffer<'a>) -> Result<&'a [u8]> {
    match buffer {
        Buffer::Host(Segments::One(bytes)) => Ok(*bytes),
        _ => Err(unsupported("a list of buffers")),
    }
}

fn written_to<'a, 'b>(buffer: &'b mut BufferMut<'a>) -> Result<&'b mut [u8]> {
    match buffer {
        BufferMut::Host(SegmentsMut::One(bytes)) => Ok(*bytes),
        _ => Err(unsupported("a list of buffers")),
    }
}

impl<V: Vendor> Executor for OnDevice<V> {
    fn group(&self) -> &Group {
        self.comm.group()
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        let &mut Call { descriptor, options, scope, site, .. } = call;
        let (counts, user_function) = (std::mem::take(&mut call.counts), call.user_function.take());
        let on_device =
            |buffers| Call { counts, options, user_function, scope, site, ..Call::new(descriptor, buffers) };
        let (outcome, written) = match &mut call.buffers {
            Buffers::InOut(buffer) => {
                let content = written_to(buffer)?;
                let mut both = self.copied(content)?;
                let mut lent = both.lent_mut()?;
                let outcome = self.made(on_device(Buffers::InOut(BufferMut::Device(&mut lent))));
                (outcome, [Some(both), None])
            }
            Buffers::Separate { input, output } => {
                let (from, mut to) = (self.copied(read_from(input)?)?, self.copied(written_to(output)?)?);
                let (read, mut written) = (from.lent()?, to.lent_mut()?);
                let buffers = Buffers::Separate {
                    input: Buffer::Device(&read),
                    output: BufferMut::Device(&mut written),
                };
                (self.made(on_device(buffers)), [Some(to), Some(from)])
            }
        };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                // What has failed may still be on the device, but for a call that was refused.
                if !error.is_before_start() {
                    std::mem::forget(written);
                }
                return Err(error);
            }
        };
        if let (Some(result), Buffers::InOut(buffer) | Buffers::Separate { output: buffer, .. }) =
            (&written[0], &mut call.buffers)
        {
            written_to(buffer)?.copy_from_slice(&result.read()?);
        }
        Ok(outcome)
    }

    fn submit(&self, call: OwnedCall) -> Work {
        self.comm.submit(call)
    }

    fn life(&self) -> &dyn Life {
        self
    }
}

impl<V: Vendor> Life for OnDevice<V> {
    fn backend(&self) -> &'static str {
        self.comm.backend()
    }

    fn companion(&self) -> Option<Arc<dyn Communicator>> {
        self.comm.companion()
    }

    fn supports(
        &self,
        _: &Group,
        descriptor: &Descriptor,
        options: &CallOptions,
        _memory: MemoryKind,
    ) -> Result<()> {
        self.comm.supports(descriptor, options, MemoryKind::Device)
    }

    fn close(&self) -> Result<()> {
        self.comm.close()
    }
}
