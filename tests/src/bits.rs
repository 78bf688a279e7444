//! The arithmetic of schedules on a device, against the bits of the engine: every type with every operator, on numbers
//! of all kinds.

#![expect(unsafe_code, reason = "memory and streams of a device, by their addresses")]

use unisono_collectives::Collectives;
use unisono_communicator::{
    BufferMut, Buffers, Call, CallOptions, Collective, Communicator, DType, Descriptor, Kind, Place,
    ReduceOp, Result,
};
use unisono_engine::in_process;
use unisono_offload::{Combination, Device, Scale};

use crate::on_device::moved::DeviceBytes;

/// The types that a device combines.
const DTYPES: [DType; 12] = [
    DType::I8,
    DType::U8,
    DType::I16,
    DType::U16,
    DType::I32,
    DType::U32,
    DType::I64,
    DType::U64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

/// Not a multiple of what a thread takes.
pub const ELEMENTS: usize = 3001;

/// Every type that a device combines, with every operator that it accepts.
pub fn pairs() -> impl Iterator<Item = (DType, ReduceOp)> {
    let ops = || ReduceOp::PLAIN.iter().copied().chain([ReduceOp::PreMulSum(-1.3)]);
    let all = DTYPES.into_iter().flat_map(move |dtype| ops().map(move |op| (dtype, op)));
    all.filter(|(dtype, op)| op.accepts(*dtype))
}

/// Bits that are often those of a NaN, an infinity, a zero or a subnormal number.
fn operand(rank: u32, dtype: DType, elements: usize) -> Vec<u8> {
    let width = dtype.bytes();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(rank + 1) << 40;
    let mut bits = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 7 ^ state << 31
    };
    let special = |number: u64| match number % 16 {
        0 => 0,
        1 => 1 << (8 * width - 1),
        2 => !0 >> (65 - 8 * width),
        3 => infinity(dtype),
        4 => number >> 8 & 0xff,
        _ => number.rotate_left(17),
    };
    (0..elements).flat_map(|_| special(bits()).to_le_bytes()[..width].to_vec()).collect()
}

fn infinity(dtype: DType) -> u64 {
    match dtype {
        DType::F16 => 0x7c00,
        DType::BF16 => 0x7f80,
        DType::F32 => 0x7f80_0000,
        DType::F64 => 0x7ff0_0000_0000_0000,
        _ => 7,
    }
}

fn is_nan(dtype: DType, element: &[u8]) -> bool {
    let mut bytes = [0; 8];
    bytes[..element.len()].copy_from_slice(element);
    let magnitude = u64::from_le_bytes(bytes) & !(1 << (8 * element.len() - 1));
    matches!(dtype.kind(), Kind::Float(_)) && magnitude > infinity(dtype)
}

/// What an all-reduce of two ranks' operands by recursive doubling leaves on this one.
///
/// # Errors
/// Those of the call.
pub fn all_reduced(comm: &dyn Communicator, dtype: DType, op: ReduceOp, elements: usize) -> Result<Vec<u8>> {
    let mut bytes = operand(comm.group().rank(), dtype, elements);
    let descriptor = Descriptor {
        op: Some(op),
        place: Place::InPlace,
        ..Descriptor::new(Collective::AllReduce, dtype, elements as u64)
    };
    let call = Call::new(descriptor, Buffers::InOut(BufferMut::of(&mut bytes)));
    comm.with(CallOptions::new().algorithm("recursive_doubling")).issue(call)?;
    Ok(bytes)
}

/// The first element that differs, if one does: a NaN is as good as another.
pub fn difference(dtype: DType, found: &[u8], expected: &[u8]) -> Option<String> {
    let width = dtype.bytes();
    let pairs = expected.chunks(width).zip(found.chunks(width));
    let differs = |(_, (expected, found)): &(usize, (&[u8], &[u8]))| {
        expected != found && !(is_nan(dtype, expected) && is_nan(dtype, found))
    };
    let (at, (expected, found)) = pairs.enumerate().find(differs)?;
    Some(format!("element {at} of {dtype} is {found:02x?} instead of {expected:02x?}"))
}

/// Combines the operands of two ranks on the device, as a schedule of two ranks does, and compares all bits with those
/// of the engine.
///
/// # Errors
/// The first difference, or what the device says.
///
/// # Panics
/// When the engine fails.
pub fn check(device: &dyn Device, dtype: DType, op: ReduceOp) -> std::result::Result<(), String> {
    let expected = in_process::run(2, |comm| all_reduced(&*comm, dtype, op, ELEMENTS).unwrap());
    let found = combined(device, dtype, op).map_err(|error| format!("{op} of {dtype}: {error}"))?;
    difference(dtype, &found, &expected[0]).map_or(Ok(()), |text| Err(format!("{op}: {text}")))
}

fn combined(device: &dyn Device, dtype: DType, op: ReduceOp) -> Result<Vec<u8>> {
    let stream = device.create_stream()?;
    let operand = |rank| DeviceBytes::new(device, stream, &operand(rank, dtype, ELEMENTS));
    let (left, right) = (operand(0)?, operand(1)?);
    let by = match op {
        ReduceOp::Prod => Combination::Prod,
        ReduceOp::Min => Combination::Min,
        ReduceOp::Max => Combination::Max,
        ReduceOp::Avg => Combination::Mean { ranks: 2 },
        ReduceOp::BitAnd => Combination::BitAnd,
        ReduceOp::BitOr => Combination::BitOr,
        ReduceOp::BitXor => Combination::BitXor,
        ReduceOp::Sum | ReduceOp::PreMulSum(_) | ReduceOp::User(_) => Combination::Sum,
    };
    // SAFETY: the memory has as many elements, is only of this function, and is read behind the work on the stream.
    unsafe {
        if let ReduceOp::PreMulSum(factor) = op {
            for operand in [&left, &right] {
                device.scale(operand.pointer(), ELEMENTS, dtype, Scale::Multiply(factor), stream)?;
            }
        }
        let operands = [left.pointer().cast_const(), right.pointer().cast_const()];
        device.combine(left.pointer(), operands, ELEMENTS, dtype, by, stream)?;
    }
    let bytes = left.read()?;
    drop((left, right));
    // SAFETY: its work is done.
    unsafe { device.destroy_stream(stream) };
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_there() {
        assert_eq!(pairs().count(), 88);
    }

    #[test]
    fn one_bit_is_a_difference_and_another_nan_is_none() {
        let [one, nan, other] = [1.0f32.to_bits(), 0x7fc0_0000, 0xffc0_0001];
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        assert_eq!(difference(DType::F32, &bytes(&[one, nan]), &bytes(&[one, other])), None);
        let found = difference(DType::F32, &bytes(&[one, one ^ 1]), &bytes(&[one, one]));
        assert!(found.is_some_and(|text| text.starts_with("element 1 of f32 is")));
        assert!(difference(DType::U32, &bytes(&[nan]), &bytes(&[other])).is_some());
    }
}
