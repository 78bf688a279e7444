//! Ranks that make the calls of a vendor with a device themselves, without a communicator above: threads, each with a
//! device, a communicator of the library's and a stream.

#![expect(unsafe_code, reason = "calls a vendor's library on memory, by its address")]

use std::ffi::c_void;
use std::thread;

use unisono_communicator::Result;
use unisono_offload::{Device, NativeCall, RawStream, Vendor};

/// One of them.
pub struct VendorRank<'a, V: Vendor> {
    /// The library on the rank's device.
    pub vendor: &'a V,
    /// The communicator of all ranks.
    pub comm: &'a V::Comm,
    /// The own number.
    pub rank: u32,
    /// How many there are.
    pub ranks: u32,
    /// A stream of the device.
    pub stream: RawStream,
}

/// Runs `body` on `ranks` ranks, for which `open` opens the library on the device of their number.
///
/// # Panics
/// When something cannot be made or given back.
pub fn vendor_world<V: Vendor>(
    ranks: u32,
    open: impl Fn(u32) -> V + Sync,
    body: impl Fn(&VendorRank<'_, V>) + Sync,
) {
    let first = open(0);
    let id = first.unique_id().unwrap();
    thread::scope(|scope| {
        for rank in 0..ranks {
            let (id, open, body) = (&id, &open, &body);
            scope.spawn(move || {
                let vendor = open(rank);
                let comm = vendor.init(id, rank, ranks, &|| false, &|_| ()).unwrap();
                let stream = vendor.device().unwrap().create_stream().unwrap();
                body(&VendorRank { vendor: &vendor, comm: &comm, rank, ranks, stream });
                vendor.destroy(&comm).unwrap();
                // SAFETY: its work is done.
                unsafe { vendor.device().unwrap().destroy_stream(stream) };
            });
        }
    });
}

impl<V: Vendor> VendorRank<'_, V> {
    /// The rank's device.
    ///
    /// # Panics
    /// When the vendor has none.
    pub fn device(&self) -> &dyn Device {
        self.vendor.device().unwrap()
    }

    /// What `body` returns, and what it makes of these numbers in memory of the device: at least one.
    ///
    /// # Panics
    /// When the device fails, but for the work of `body`.
    pub fn with<T>(&self, numbers: &[f32], body: impl FnOnce(*mut c_void) -> T) -> (T, Vec<f32>) {
        let (device, bytes) = (self.device(), bytemuck::cast_slice(numbers));
        let memory = device.allocate(bytes.len()).unwrap();
        let mut after = vec![0f32; numbers.len()];
        // SAFETY: the memory has as many bytes, and is this function's; the download waits for the work.
        unsafe {
            device.upload(memory, bytes, self.stream).unwrap();
            let value = body(memory);
            let _ = device.download(bytemuck::cast_slice_mut(&mut after), memory, self.stream);
            device.free(memory);
            (value, after)
        }
    }

    /// What a call that succeeds makes of these numbers.
    ///
    /// # Panics
    /// When it fails.
    pub fn result(&self, numbers: &[f32], call: impl FnOnce(*mut c_void) -> Result<()>) -> Vec<f32> {
        let (called, after) = self.with(numbers, call);
        called.unwrap();
        after
    }

    /// Makes a call.
    ///
    /// # Safety
    /// As [`Vendor::call`].
    ///
    /// # Errors
    /// As [`Vendor::call`].
    pub unsafe fn call(&self, call: &NativeCall<'_>) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.vendor.call(self.comm, call, self.stream) }
    }
}
