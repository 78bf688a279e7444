//! Types of elements, and reductions over ranks.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

use crate::number::Number;

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "their names say all")]
pub enum Element {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    BF16,
    F32,
    F64,
    F8E4M3,
    F8E5M2,
}

/// How the elements of all ranks become one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Integers wrap around.
    Sum,
    /// Integers wrap around.
    Prod,
    /// With a NaN, NaN.
    Max,
    /// With a NaN, NaN.
    Min,
    /// For floats each rank's is multiplied by one over the number of ranks, which is rounded, and then they are
    /// added, as NCCL does; for integers the sum is divided, towards zero.
    Avg,
    /// Each rank's is multiplied by that rank's factor, an element, before they are added. Here stands the own
    /// rank's; what comes from a rank is multiplied already.
    PreMulSum,
}

impl Element {
    /// Bytes of one.
    pub const fn bytes(self) -> usize {
        match self {
            Element::I8 | Element::U8 | Element::F8E4M3 | Element::F8E5M2 => 1,
            Element::I16 | Element::U16 | Element::F16 | Element::BF16 => 2,
            Element::I32 | Element::U32 | Element::F32 => 4,
            Element::I64 | Element::U64 | Element::F64 => 8,
        }
    }

    /// Whether it is a float.
    pub const fn is_float(self) -> bool {
        match self {
            Element::F16 | Element::BF16 | Element::F32 | Element::F64 => true,
            Element::F8E4M3 | Element::F8E5M2 => true,
            Element::I8 | Element::U8 | Element::I16 | Element::U16 => false,
            Element::I32 | Element::U32 | Element::I64 | Element::U64 => false,
        }
    }
}

/// Calls a function that is generic over the type.
macro_rules! for_element {
    ($element:expr, $function:ident $arguments:tt) => {
        match $element {
            Element::I8 => $function::<i8> $arguments,
            Element::U8 => $function::<u8> $arguments,
            Element::I16 => $function::<i16> $arguments,
            Element::U16 => $function::<u16> $arguments,
            Element::I32 => $function::<i32> $arguments,
            Element::U32 => $function::<u32> $arguments,
            Element::I64 => $function::<i64> $arguments,
            Element::U64 => $function::<u64> $arguments,
            Element::F16 => $function::<f16> $arguments,
            Element::BF16 => $function::<bf16> $arguments,
            Element::F32 => $function::<f32> $arguments,
            Element::F64 => $function::<f64> $arguments,
            Element::F8E4M3 => $function::<F8E4M3> $arguments,
            Element::F8E5M2 => $function::<F8E5M2> $arguments,
        }
    };
}

/// Multiplies each element by a factor, an element.
pub fn scale(element: Element, bytes: &mut [u8], factor: &[u8]) {
    for_element!(element, scale_as(bytes, factor));
}

fn scale_as<N: Number>(bytes: &mut [u8], factor: &[u8]) {
    let factor = N::read(factor);
    bytes.chunks_exact_mut(N::BYTES).for_each(|one| N::read(one).multiply(factor).write(one));
}

impl Element {
    /// The elements as numbers.
    pub fn to_numbers(self, bytes: &[u8]) -> Vec<f64> {
        for_element!(self, to_numbers_as(bytes))
    }

    /// The elements that are nearest to the numbers.
    pub fn from_numbers(self, numbers: &[f64]) -> Vec<u8> {
        for_element!(self, from_numbers_as(numbers))
    }
}

fn to_numbers_as<N: Number>(bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(N::BYTES).map(|one| N::read(one).to_f64()).collect()
}

fn from_numbers_as<N: Number>(numbers: &[f64]) -> Vec<u8> {
    let mut bytes = vec![0; numbers.len() * N::BYTES];
    bytes.chunks_exact_mut(N::BYTES).zip(numbers).for_each(|(one, value)| N::from_f64(*value).write(one));
    bytes
}

/// Reduces the ranks' bytes, which are of one size, in the order of ranks.
pub fn reduce(element: Element, reduction: &Reduction, inputs: &[Vec<u8>]) -> Vec<u8> {
    for_element!(element, reduce_as(reduction, inputs))
}

fn reduce_as<N: Number>(reduction: &Reduction, inputs: &[Vec<u8>]) -> Vec<u8> {
    let combine = match reduction {
        Reduction::Sum | Reduction::Avg | Reduction::PreMulSum => N::add,
        Reduction::Prod => N::multiply,
        Reduction::Max => N::maximum,
        Reduction::Min => N::minimum,
    };
    let is_average = *reduction == Reduction::Avg;
    let share = N::share(inputs.len()).filter(|_| is_average);
    let load = |bytes: &[u8]| share.map_or(N::read(bytes), |share| N::read(bytes).multiply(share));
    let Some((first, rest)) = inputs.split_first() else { return Vec::new() };
    let mut result = first.clone();
    for (at, one) in result.chunks_exact_mut(N::BYTES).enumerate() {
        let value = rest.iter().fold(load(one), |sum, other| combine(sum, load(&other[at * N::BYTES..])));
        let value = if is_average && share.is_none() { value.divide(inputs.len()) } else { value };
        value.write(one);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn reductions_go_in_the_order_of_ranks() {
        let inputs = [floats(&[1e8, 1.0]), floats(&[1.0, f32::NAN]), floats(&[-1e8, 3.0])];
        let result = reduce(Element::F32, &Reduction::Sum, &inputs);
        assert_eq!(result[..4], (1e8f32 + 1.0 - 1e8).to_le_bytes());
        for reduction in [Reduction::Max, Reduction::Min] {
            let result = reduce(Element::F32, &reduction, &inputs);
            assert!(f32::read(&result[4..]).is_nan());
        }
        assert_eq!(f32::read(&reduce(Element::F32, &Reduction::Max, &inputs)), 1e8);
    }

    #[test]
    fn integers_wrap_and_averages_go_towards_zero() {
        let inputs = [vec![200, 255], vec![100, 255], vec![0, 254]];
        assert_eq!(reduce(Element::U8, &Reduction::Sum, &inputs), [44, 252]);
        assert_eq!(reduce(Element::I8, &Reduction::Avg, &inputs), [14, 255], "44 / 3 and -4 / 3");
        let mut bytes = floats(&[1.5, 2.0]);
        scale(Element::F32, &mut bytes, &2f32.to_le_bytes());
        assert_eq!(bytes, floats(&[3.0, 4.0]));
    }

    #[test]
    fn short_floats_round_once_for_each_step() {
        let value = |value: f32| bf16::from_f32(value).to_le_bytes().to_vec();
        let result = reduce(Element::BF16, &Reduction::Sum, &[value(256.0), value(1.0), value(1.0)]);
        assert_eq!(result, value(256.0));
    }
}
