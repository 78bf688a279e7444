//! Signs as bits, by the test double of aclnn's operators.

#![expect(unsafe_code, reason = "memory of the double's devices, by its address")]

use unisono_communicator::{DType, DeviceBuffer, DeviceBufferMut, DeviceStream, Error, Result};
use unisono_offload::{Device, Vendor};
use unisono_tests::watchdog;

use crate::vendor::Hccl;
use crate::vendor_tests::Double;

/// Not a multiple of 8.
const ELEMENTS: usize = 19;
const BYTES: usize = ELEMENTS.div_ceil(8);

fn values() -> Vec<f32> {
    let value = |index: usize| match index % 4 {
        0 => -1.5,
        1 => 0.0,
        2 => 3.25,
        _ => -1e-3,
    };
    (0..ELEMENTS).map(value).collect()
}

/// Floats and bytes on device 0, and a stream, for `body`.
fn with_memory(vendor: &Hccl, body: impl FnOnce(&dyn Device, [usize; 2], DeviceStream)) {
    let device = vendor.device().unwrap();
    let stream = device.create_stream().unwrap();
    let memory = [8 * BYTES * 4, BYTES].map(|bytes| device.allocate(bytes).unwrap());
    // SAFETY: the stream is given back below.
    let lent = unsafe { DeviceStream::from_raw(stream.0, 0) };
    body(device, memory.map(|address| address.expose_provenance()), lent);
    // SAFETY: they were just made, and the body has waited.
    unsafe {
        memory.into_iter().for_each(|address| device.free(address));
        device.destroy_stream(stream);
    }
}

/// To be read by a call, which the test waits for.
fn read(address: usize, bytes: usize) -> DeviceBuffer {
    // SAFETY: it is memory of `with_memory`.
    unsafe { DeviceBuffer::from_raw(address, bytes, 0) }.unwrap()
}

fn write(address: usize, bytes: usize) -> DeviceBufferMut {
    // SAFETY: as above.
    unsafe { DeviceBufferMut::from_raw(address, bytes, 0) }.unwrap()
}

/// Rows: F4
#[test]
fn signs_become_bits_lowest_first_and_come_back() {
    watchdog(60, "signs", || {
        let double = Double::new("signs");
        let vendor = double.open(0).unwrap();
        with_memory(&vendor, |device, [floats, bytes], stream| {
            let raw = unisono_offload::RawStream(stream.handle());
            let to = std::ptr::with_exposed_provenance_mut(floats);
            let mut packed = [0; BYTES];
            // SAFETY: the memory is longer.
            unsafe { device.upload(to, bytemuck::cast_slice(&values()), raw) }.unwrap();
            vendor
                .pack_signs(&read(floats, 4 * ELEMENTS), DType::F32, &mut write(bytes, BYTES), stream)
                .unwrap();
            // SAFETY: the memory is as long.
            unsafe { device.download(&mut packed, std::ptr::with_exposed_provenance(bytes), raw) }.unwrap();
            for (index, value) in values().iter().enumerate() {
                assert_eq!(packed[index / 8] >> (index % 8) & 1 == 1, *value >= 0.0, "{index}: {packed:x?}");
            }
            let mut out = write(floats, 4 * 8 * BYTES);
            vendor.unpack_signs(&read(bytes, BYTES), &mut out, DType::F32, stream).unwrap();
            let mut signs = vec![0u8; 4 * ELEMENTS];
            // SAFETY: the memory is longer.
            unsafe { device.download(&mut signs, std::ptr::with_exposed_provenance(floats), raw) }.unwrap();
            let signs = signs.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
            let expected = values().into_iter().map(|value| if value >= 0.0 { 1.0 } else { -1.0 });
            assert_eq!(signs.collect::<Vec<_>>(), expected.collect::<Vec<f32>>());
        });
        drop(vendor);
        assert_eq!(double.live_handles(), 0);
    });
}

#[test]
fn what_cannot_be_packed_is_refused() {
    watchdog(60, "refused signs", || {
        let double = Double::new("refused-signs");
        let vendor = double.open(0).unwrap();
        let is_argument = |result: Result<()>, argument: &str| match result {
            Err(Error::InvalidArgument { argument: found, .. }) => assert_eq!(found, argument),
            other => panic!("{other:?}"),
        };
        with_memory(&vendor, |_, [floats, bytes], stream| {
            let pack = |elements: usize, dtype, packed| {
                vendor.pack_signs(&read(floats, elements), dtype, &mut write(bytes, packed), stream)
            };
            is_argument(pack(4 * ELEMENTS, DType::F32, BYTES - 1), "signs");
            let short = vendor.unpack_signs(&read(bytes, 1), &mut write(floats, 4), DType::F32, stream);
            is_argument(short, "floats");
            assert!(matches!(pack(4 * ELEMENTS, DType::I32, BYTES), Err(Error::Unsupported { .. })));
            pack(0, DType::F32, 0).unwrap();
            // SAFETY: it is refused.
            let elsewhere = unsafe { DeviceStream::from_raw(stream.handle(), 1) };
            let input = read(floats, 4 * ELEMENTS);
            is_argument(vendor.pack_signs(&input, DType::F32, &mut write(bytes, BYTES), elsewhere), "stream");
        });
        let older = Double::new("product=910.signs");
        let vendor = older.open(0).unwrap();
        with_memory(&vendor, |_, [floats, bytes], stream| {
            let input = read(floats, 4 * ELEMENTS);
            let refused = vendor.pack_signs(&input, DType::F32, &mut write(bytes, BYTES), stream);
            assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
        });
    });
}
