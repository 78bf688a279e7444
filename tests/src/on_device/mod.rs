//! Tests of a backend for devices over the test double of its library: ranks are threads, each with a device of its own
//! and a stream on it. Memory and streams come from the vendor's [`Device`], so that a vendor's part is a
//! [`VendorDouble`] and a table of faults.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `algorithms.rs` | algorithms by name, over the double's messages |
//! | `calls.rs` | typed calls, lists, handles, refusals, deadlines |
//! | `faults.rs` | what is injected, and the error in which it ends |
//! | `forms.rs` | uneven counts, lists, handles |
//! | `messages.rs` | messages between two ranks |
//! | `moved.rs` | calls on memory of the host, made on memory of the device |
//! | `turns.rs` | several threads and communicators of one device |

#![expect(unsafe_code, reason = "memory and streams of a device, by their addresses")]

pub mod algorithms;
pub mod calls;
pub mod faults;
pub mod forms;
pub mod messages;
pub mod moved;
pub mod turns;

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesOnDevice, OnStream};
use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallOptions, Collective, Counts, DType, Descriptor, DeviceBuffer,
    DeviceBufferMut, DeviceSlice, DeviceSliceMut, DeviceStream, Outcome, Result,
};
use unisono_double_common::control::Control;
use unisono_offload::{Device, HostMemory, OffloadOptions, Offloaded, RawStream, Vendor};

use crate::companions;

/// Of one test, on a machine that is busy with others.
pub const SECONDS_MAX: u64 = 120;

/// Held by the test that uses the devices of this process. To free memory, drivers wait for all work on its device: a
/// rank of one test would wait for a call of another's, whose other rank waits in the same way for the first.
static DEVICES: Mutex<()> = Mutex::new(());

/// The test double of a vendor's library.
pub trait VendorDouble: 'static {
    /// The library's backend.
    type Vendor: Vendor;

    /// The double on the device of this number.
    ///
    /// # Errors
    /// Those of the vendor's crate.
    fn open(device: u32) -> Result<Self::Vendor>;

    /// What the double is told.
    fn control() -> Control;

    /// Whether its devices compute here. A line has said why not.
    fn computes() -> bool {
        true
    }
}

/// A rank.
pub struct DeviceRank<D: VendorDouble> {
    /// Its communicator.
    pub comm: Arc<Offloaded<D::Vendor>>,
    /// A stream of its device.
    pub stream: TestStream<D::Vendor>,
    /// Its number, and that of its device.
    pub rank: u32,
    _double: PhantomData<fn() -> D>,
}

/// A stream of a vendor's device.
pub struct TestStream<V: Vendor> {
    vendor: Arc<V>,
    stream: RawStream,
}

/// Memory of a vendor's device.
pub struct Array<V: Vendor> {
    vendor: Arc<V>,
    address: usize,
    elements: usize,
}

/// The device of a vendor that has one.
///
/// # Panics
/// When it has none.
pub fn device<V: Vendor>(vendor: &V) -> &dyn Device {
    vendor.device().unwrap()
}

impl<V: Vendor> TestStream<V> {
    /// A new one.
    ///
    /// # Panics
    /// When there is none.
    pub fn new(vendor: &Arc<V>) -> TestStream<V> {
        let stream = device(&**vendor).create_stream().unwrap();
        TestStream { vendor: vendor.clone(), stream }
    }

    /// As the vendor has it.
    pub fn raw(&self) -> usize {
        self.stream.0
    }

    /// Waits for all work on it.
    ///
    /// # Errors
    /// Those of the device.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives.
        unsafe { device(&*self.vendor).synchronize(self.stream) }
    }
}

impl<V: Vendor> Drop for TestStream<V> {
    fn drop(&mut self) {
        // SAFETY: it is this value's; tests have waited for their work.
        unsafe { device(&*self.vendor).destroy_stream(self.stream) };
    }
}

impl<V: Vendor> Array<V> {
    /// Of these elements.
    ///
    /// # Panics
    /// When the device fails.
    pub fn new(stream: &TestStream<V>, elements: &[f32]) -> Array<V> {
        let vendor = stream.vendor.clone();
        let memory = device(&*vendor).allocate(size_of_val(elements)).unwrap();
        // SAFETY: the memory is as long.
        unsafe { device(&*vendor).upload(memory, bytemuck::cast_slice(elements), stream.stream) }.unwrap();
        Array { vendor, address: memory.expose_provenance(), elements: elements.len() }
    }

    /// Where it is.
    pub fn address(&self) -> usize {
        self.address
    }

    /// How many elements it has.
    #[allow(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.elements
    }

    /// To be read by a call of `rank`.
    ///
    /// # Panics
    /// Never.
    pub fn read<D: VendorDouble>(&self, rank: &DeviceRank<D>) -> DeviceSlice<'_, f32> {
        // SAFETY: tests keep it until its calls are done.
        unsafe { DeviceSlice::from_raw(self.address, self.elements, rank.rank) }.unwrap()
    }

    /// The first elements, to be read by a call of `rank`.
    ///
    /// # Panics
    /// Never.
    pub fn read_part<D: VendorDouble>(&self, rank: &DeviceRank<D>, elements: usize) -> DeviceSlice<'_, f32> {
        assert!(elements <= self.elements);
        // SAFETY: tests keep it until their calls are done.
        unsafe { DeviceSlice::from_raw(self.address, elements, rank.rank) }.unwrap()
    }

    /// The first elements, to be written by a call of `rank`.
    ///
    /// # Panics
    /// Never.
    pub fn write_part<D: VendorDouble>(
        &mut self,
        rank: &DeviceRank<D>,
        elements: usize,
    ) -> DeviceSliceMut<'static, f32> {
        assert!(elements <= self.elements);
        // SAFETY: as for `Array::write`.
        unsafe { DeviceSliceMut::from_raw(self.address, elements, rank.rank) }.unwrap()
    }

    /// [`Array::write`] for threads that share it, each of which uses it behind the other.
    ///
    /// # Panics
    /// Never.
    fn write_again<D: VendorDouble>(&self, rank: &DeviceRank<D>) -> DeviceSliceMut<'static, f32> {
        // SAFETY: as there.
        unsafe { DeviceSliceMut::from_raw(self.address, self.elements, rank.rank) }.unwrap()
    }

    /// To be written by a call of `rank`.
    ///
    /// # Panics
    /// Never.
    pub fn write<D: VendorDouble>(&mut self, rank: &DeviceRank<D>) -> DeviceSliceMut<'static, f32> {
        // SAFETY: tests keep it until its calls are done, and do not use it otherwise.
        unsafe { DeviceSliceMut::from_raw(self.address, self.elements, rank.rank) }.unwrap()
    }
}

impl<V: Vendor> Drop for Array<V> {
    fn drop(&mut self) {
        // SAFETY: it is this value's; tests have waited for the work that uses it.
        unsafe { device(&*self.vendor).free(std::ptr::with_exposed_provenance_mut(self.address)) };
    }
}

impl<D: VendorDouble> DeviceRank<D> {
    /// Runs `body` on `ranks` threads.
    ///
    /// # Panics
    /// As [`companions`].
    pub fn run<R: Send>(
        ranks: u32,
        host_memory: HostMemory,
        body: impl Fn(&DeviceRank<D>) -> R + Send + Sync,
    ) -> Vec<R> {
        let options = OffloadOptions::new(Duration::from_secs(60), false);
        DeviceRank::run_with(ranks, &OffloadOptions { host_memory, ..options }, body)
    }

    /// [`DeviceRank::run`] with these options. One at a time in a process.
    ///
    /// # Panics
    /// As [`companions`].
    pub fn run_with<R: Send>(
        ranks: u32,
        options: &OffloadOptions,
        body: impl Fn(&DeviceRank<D>) -> R + Send + Sync,
    ) -> Vec<R> {
        let _devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        companions(ranks, |companion| {
            let rank = companion.group().rank();
            let vendor = Arc::new(D::open(rank).unwrap());
            let comm = Offloaded::open(companion, Ok(vendor.clone()), options).unwrap();
            let stream = TestStream::new(&vendor);
            let result = body(&DeviceRank { comm, stream, rank, _double: PhantomData });
            assert_eq!(D::control().races(), 0, "two threads have met in the library: see above");
            result
        })
    }

    /// A number of this rank.
    pub fn own(&self) -> f32 {
        self.rank as f32 + 1.0
    }

    /// Memory of the rank's device with these elements.
    ///
    /// # Panics
    /// As [`Array::new`].
    pub fn array(&self, elements: &[f32]) -> Array<D::Vendor> {
        Array::new(&self.stream, elements)
    }

    /// What is there when the work that is on the stream now is done.
    ///
    /// # Panics
    /// When that work has failed.
    pub fn copied(&self, array: &Array<D::Vendor>) -> Vec<f32> {
        let mut elements = vec![0.0; array.elements];
        let (bytes, from) = (bytemuck::cast_slice_mut(&mut elements), array.address);
        let from = std::ptr::with_exposed_provenance(from);
        // SAFETY: the array is as long.
        unsafe { device(&*self.stream.vendor).download(bytes, from, self.stream.stream) }.unwrap();
        elements
    }

    /// The stream, for calls.
    pub fn device_stream(&self) -> DeviceStream {
        // SAFETY: the stream is of this rank's device, and lives as long as the rank.
        unsafe { DeviceStream::from_raw(self.stream.raw(), self.rank) }
    }

    /// Calls on the stream.
    pub fn on_stream(&self) -> OnStream<'_, Offloaded<D::Vendor>> {
        (*self.comm).on(self.device_stream())
    }

    /// Sends 1 of 4 elements to rank 0 and 3 to rank 1, of two.
    ///
    /// # Errors
    /// Those of the call.
    pub fn all_to_all_v(
        &self,
        input: &Array<D::Vendor>,
        output: &mut Array<D::Vendor>,
        timeout: Duration,
    ) -> Result<Outcome> {
        let received = if self.rank == 0 { [1; 2] } else { [3; 2] };
        let descriptor = Descriptor { uneven: true, ..Descriptor::new(Collective::AllToAll, DType::F32, 4) };
        // SAFETY: tests keep both until their calls are done.
        let (from, mut to) = unsafe {
            let bytes = 4 * received.iter().sum::<u64>() as usize;
            let from = DeviceBuffer::from_raw(input.address, 16, self.rank)?;
            (from, DeviceBufferMut::from_raw(output.address, bytes, self.rank)?)
        };
        let buffers = Buffers::Separate { input: Buffer::Device(&from), output: BufferMut::Device(&mut to) };
        self.comm.issue(Call {
            stream: Some(self.device_stream()),
            counts: Counts::PerPair { send: vec![1, 3], receive: received.into() },
            options: CallOptions::new().timeout(timeout),
            ..Call::new(descriptor, buffers)
        })
    }
}
