//! A device whose memory is host memory and whose streams are threads.

#![expect(unsafe_code, reason = "memory and streams of a device, by their addresses")]

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use unisono_communicator::{DeviceBuffer, DeviceBufferMut, DeviceStream, Element, Error, Result};

type Task = Box<dyn FnOnce() + Send>;

/// The tasks of one stream; its thread ends when nobody has this any more.
#[derive(Clone)]
pub(super) struct Queue(Sender<Task>);

impl Queue {
    /// Puts a task behind the others.
    pub(super) fn put(&self, task: impl FnOnce() + Send + 'static) {
        self.0.send(Box::new(task)).unwrap();
    }
}

/// One device. Its streams end when it is dropped and what was enqueued has run.
pub struct Device {
    number: u32,
    /// Stream n has the handle n + 1.
    streams: Mutex<Vec<Queue>>,
}

impl Device {
    /// A device of this number, without streams.
    pub fn new(number: u32) -> Arc<Device> {
        Arc::new(Device { number, streams: Mutex::default() })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// A new stream, with a thread that runs what is enqueued on it.
    pub fn stream(&self) -> DeviceStream {
        let (sender, tasks) = channel::<Task>();
        let thread = std::thread::Builder::new().name(format!("stream of device {}", self.number));
        let run = move || {
            for task in tasks {
                // As a fault on a device: what comes behind it still runs.
                let _ = catch_unwind(AssertUnwindSafe(task));
            }
        };
        drop(thread.spawn(run).unwrap());
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.push(Queue(sender));
        // SAFETY: the thread takes tasks as long as the device lives, and the double refuses streams of other devices.
        unsafe { DeviceStream::from_raw(streams.len(), self.number) }
    }

    /// Where a stream takes its tasks from.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a stream that is none of this device.
    pub(super) fn queue(&self, stream: DeviceStream) -> Result<Queue> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = stream.handle().checked_sub(1).and_then(|index| streams.get(index));
        queue.filter(|_| stream.device() == self.number).cloned().ok_or_else(|| {
            let (handle, device) = (stream.handle(), stream.device());
            let problem = format!("{handle} of device {device}, but no stream of device {}", self.number);
            Error::invalid("stream", problem)
        })
    }

    /// Enqueues a task.
    ///
    /// # Panics
    /// For a stream that is none of this device.
    pub fn enqueue(&self, stream: DeviceStream, task: impl FnOnce() + Send + 'static) {
        self.queue(stream).unwrap().put(task);
    }

    /// Waits until everything that is enqueued now has run.
    pub fn synchronize(&self, stream: DeviceStream) {
        let (sender, has_run) = channel();
        self.enqueue(stream, move || sender.send(()).unwrap());
        has_run.recv().unwrap();
    }
}

/// Elements in the memory of a device. It is never given back, so that a test that fails in the middle harms nothing.
#[derive(Clone, Copy)]
pub struct DeviceArray<T> {
    start: usize,
    length: usize,
    device: u32,
    elements: std::marker::PhantomData<fn() -> T>,
}

impl<T: Element> DeviceArray<T> {
    /// Elements on `device`.
    pub fn new(device: &Device, elements: Vec<T>) -> DeviceArray<T> {
        let elements = Vec::leak(elements);
        let (start, length) = (elements.as_mut_ptr().expose_provenance(), elements.len());
        DeviceArray { start, length, device: device.number, elements: std::marker::PhantomData }
    }

    /// All of it, for a call to read.
    pub fn buffer(&self) -> DeviceBuffer {
        // SAFETY: the memory lives for ever; tests use each array on one stream only, besides where they say why not.
        unsafe { DeviceBuffer::from_raw(self.start, self.length * size_of::<T>(), self.device) }.unwrap()
    }

    /// All of it, for a call to write.
    pub fn buffer_mut(&self) -> DeviceBufferMut {
        self.part_mut(0..self.length)
    }

    /// Some of its elements, for a call to write.
    pub fn part_mut(&self, range: Range<usize>) -> DeviceBufferMut {
        assert!(range.start <= range.end && range.end <= self.length);
        let (offset, bytes) = (range.start * size_of::<T>(), range.len() * size_of::<T>());
        // SAFETY: as in `buffer`.
        unsafe { DeviceBufferMut::from_raw(self.start + offset, bytes, self.device) }.unwrap()
    }

    /// A kernel: changes the elements in the order of the stream.
    pub fn change(
        self,
        device: &Device,
        stream: DeviceStream,
        change: impl FnOnce(&mut [T]) + Send + 'static,
    ) {
        let task = move || {
            let start = std::ptr::with_exposed_provenance_mut::<T>(self.start);
            // SAFETY: the elements live for ever, and only the tasks of one stream use them, one after the other.
            change(unsafe { std::slice::from_raw_parts_mut(start, self.length) });
        };
        device.enqueue(stream, task);
    }

    /// A copy of the elements, made in the order of the stream.
    pub fn copied(self, device: &Device, stream: DeviceStream) -> Vec<T> {
        let (sender, copy) = channel();
        self.change(device, stream, move |elements| sender.send(elements.to_vec()).unwrap());
        copy.recv().unwrap()
    }
}
