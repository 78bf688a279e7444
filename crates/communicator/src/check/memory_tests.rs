//! Tests of the check of a call's memory: the refused places, and the names in the message.

#![expect(unsafe_code, reason = "made-up memory and streams of a device")]

use unisono_schedule::Collective;

use crate::call::Call;
use crate::call::descriptor::{Descriptor, Place};
use crate::check::check;
use crate::elements::dtype::DType;
use crate::elements::reduce_op::ReduceOp;
use crate::group::Group;
use crate::memory::device::{DeviceBuffer, DeviceBufferMut, DeviceStream};
use crate::memory::segments::Division;
use crate::memory::{Buffer, BufferMut, Buffers};

fn read(bytes: usize, device: u32) -> DeviceBuffer {
    // SAFETY: the address is never used.
    unsafe { DeviceBuffer::from_raw(64, bytes, device) }.unwrap()
}

fn write(bytes: usize, device: u32) -> DeviceBufferMut {
    // SAFETY: the address is never used.
    unsafe { DeviceBufferMut::from_raw(640, bytes, device) }.unwrap()
}

fn stream(device: u32) -> Option<DeviceStream> {
    // SAFETY: the stream is never used.
    Some(unsafe { DeviceStream::from_raw(0, device) })
}

/// An all-reduce of three u32, or of none.
fn descriptor(place: Place, count: u64) -> Descriptor {
    Descriptor { op: Some(ReduceOp::Sum), place, ..Descriptor::new(Collective::AllReduce, DType::U32, count) }
}

/// The check of a call on rank 0 of two.
fn checked(descriptor: Descriptor, buffers: Buffers<'_>, stream: Option<DeviceStream>) -> Result<(), String> {
    let call = Call { stream, ..Call::new(descriptor, buffers) };
    check(&call, &Group::world(0, 2)).map_err(|error| error.to_string())
}

fn in_place(mut buffer: DeviceBufferMut, stream: Option<DeviceStream>) -> Result<(), String> {
    checked(descriptor(Place::InPlace, 3), Buffers::InOut(BufferMut::Device(&mut buffer)), stream)
}

fn separate(input: Buffer<'_>, output: BufferMut<'_>, stream: Option<DeviceStream>) -> Result<(), String> {
    checked(descriptor(Place::Separate, 3), Buffers::Separate { input, output }, stream)
}

fn error(text: &str) -> Result<(), String> {
    Err(format!("invalid {text}"))
}

#[test]
fn device_memory_has_a_stream_of_its_device() {
    assert_eq!(in_place(write(12, 1), stream(1)), Ok(()));
    let missing = "stream: missing; a call on device memory runs in the order of a stream of that device";
    assert_eq!(in_place(write(12, 1), None), error(missing));
    let other = "buffer: span 0 is on device 1, but the stream is of device 0";
    assert_eq!(in_place(write(12, 1), stream(0)), error(other));
    let list = DeviceBufferMut::list([write(8, 0), write(4, 2)], Division::Anywhere);
    assert_eq!(
        in_place(list, stream(0)),
        error("buffer: span 1 is on device 2, but the stream is of device 0")
    );
    let two = separate(Buffer::Device(&read(12, 0)), BufferMut::Device(&mut write(12, 1)), stream(0));
    assert_eq!(two, error("output: span 0 is on device 1, but the stream is of device 0"));
}

#[test]
fn host_memory_has_no_stream_and_is_not_mixed() {
    let text = "stream: given, but the input is on the host, where calls have none";
    assert_eq!(separate(Buffer::of(&[0u32; 3]), BufferMut::of(&mut [0u32; 3]), stream(0)), error(text));
    for stream in [None, stream(0)] {
        let mixed = separate(Buffer::of(&[0u32; 3]), BufferMut::Device(&mut write(12, 0)), stream);
        assert_eq!(
            mixed,
            error("input: on the host, but the output is on a device; both must be on one side")
        );
        let mixed = separate(Buffer::Device(&read(12, 0)), BufferMut::of(&mut [0u32; 3]), stream);
        assert_eq!(
            mixed,
            error("output: on the host, but the input is on a device; both must be on one side")
        );
    }
}

#[test]
fn a_rank_without_memory_takes_part_on_either_side() {
    let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
    assert_eq!(checked(barrier, Buffers::none(), stream(0)), Ok(()));
    assert_eq!(checked(barrier, Buffers::none(), None), Ok(()));
    let nothing = Buffers::Separate { input: Buffer::empty(), output: BufferMut::Device(&mut write(0, 0)) };
    assert_eq!(checked(descriptor(Place::Separate, 0), nothing, stream(0)), Ok(()));
    let reduce = Descriptor {
        op: Some(ReduceOp::Sum),
        root: Some(1),
        ..Descriptor::new(Collective::Reduce, DType::U32, 3)
    };
    let input = read(12, 0);
    let buffers = Buffers::Separate { input: Buffer::Device(&input), output: BufferMut::empty() };
    assert_eq!(checked(reduce, buffers, stream(0)), Ok(()));
}

#[test]
fn lengths_and_divisions_are_those_of_the_call() {
    let text = in_place(write(11, 0), stream(0)).unwrap_err();
    assert_eq!(text, "invalid buffer: 11 bytes, but all_reduce of u32 has elements of 4");
    let text = in_place(write(16, 0), stream(0)).unwrap_err();
    assert!(text.starts_with("invalid buffer: 4 elements, but "), "{text}");
    let list = |division, parts: [usize; 2]| {
        in_place(DeviceBufferMut::list(parts.map(|bytes| write(bytes, 0)), division), stream(0))
    };
    assert_eq!(list(Division::Coalesced, [8, 4]), Ok(()));
    let text = list(Division::Anywhere, [6, 6]).unwrap_err();
    assert_eq!(text, "invalid buffer: segment 0 has 6 bytes, but elements have 4");
    let text = list(Division::Shares, [8, 4]).unwrap_err();
    assert!(text.contains("a list of shares, but there "), "{text}");
    let gather = |parts: &[usize]| {
        let mut output = DeviceBufferMut::list(parts.iter().map(|&bytes| write(bytes, 0)), Division::Shares);
        let input = read(4, 0);
        let buffers =
            Buffers::Separate { input: Buffer::Device(&input), output: BufferMut::Device(&mut output) };
        checked(Descriptor::new(Collective::AllGather, DType::U32, 1), buffers, stream(0))
    };
    assert_eq!(gather(&[4, 4]), Ok(()));
    assert!(gather(&[8, 0]).unwrap_err().starts_with("invalid output: segment 0 has 2 elements"));
}
