//! Tensors, scalars and lists as operators take them.

use std::sync::Arc;

use unisono_double_common::memory::{self, Part};
use unisono_double_common::{Element, Handles, In, export};

use crate::codes::OperatorError;

/// ACL_FORMAT_ND: the only one of tensors without channels.
const FORMAT_ND: i32 = 2;

/// A tensor, whose elements lie one behind the other.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) element: Element,
    pub(crate) shape: Vec<i64>,
    pub(crate) part: Part,
}

/// A number, and the type in which it was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar {
    pub(crate) value: f64,
    pub(crate) element: Element,
}

static TENSORS: Handles<Tensor> = Handles::new("tensor");
static SCALARS: Handles<Scalar> = Handles::new("scalar");
static LISTS: Handles<Vec<i64>> = Handles::new("list");

/// The type of a number of `aclDataType`.
pub(crate) fn element(dtype: i32) -> Option<Element> {
    Some(match dtype {
        0 => Element::F32,
        1 => Element::F16,
        2 => Element::I8,
        3 => Element::I32,
        4 => Element::U8,
        6 => Element::I16,
        7 => Element::U16,
        8 => Element::U32,
        9 => Element::I64,
        10 => Element::U64,
        11 => Element::F64,
        27 => Element::BF16,
        _ => return None,
    })
}

fn get<T>(handles: &Handles<T>, handle: usize) -> Result<Arc<T>, OperatorError> {
    if handle == 0 {
        return Err(OperatorError::NULL);
    }
    handles.get(handle).ok_or(OperatorError::INVALID)
}

pub(crate) fn tensor(handle: usize) -> Result<Arc<Tensor>, OperatorError> {
    let tensor = get(&TENSORS, handle)?;
    if tensor.part.bytes > 0 && memory::find(tensor.part).is_none() {
        return Err(OperatorError::INVALID);
    }
    Ok(tensor)
}

pub(crate) fn scalar(handle: usize) -> Result<f64, OperatorError> {
    get(&SCALARS, handle).map(|scalar| scalar.value)
}

/// A number that becomes one of this type: a float becomes no integer.
pub(crate) fn scalar_as(handle: usize, element: Element) -> Result<f64, OperatorError> {
    let scalar = get(&SCALARS, handle)?;
    let is_taken = element.is_float() || !scalar.element.is_float();
    if is_taken { Ok(scalar.value) } else { Err(OperatorError::INVALID) }
}

/// A list; null is empty.
pub(crate) fn list(handle: usize) -> Result<Vec<i64>, OperatorError> {
    if handle == 0 { Ok(Vec::new()) } else { get(&LISTS, handle).map(|list| (*list).clone()) }
}

impl Tensor {
    pub(crate) fn count(&self) -> usize {
        self.part.bytes / self.element.bytes()
    }
}

/// The tensor of these arguments, if the double can use it. `storage` must hold what `shape`, `strides` and `offset`
/// reach.
fn make(
    shape: Vec<i64>,
    element: Element,
    strides: &[i64],
    offset: i64,
    storage: &[i64],
    address: usize,
) -> Option<Tensor> {
    let product = |dims: &[i64]| {
        dims.iter().try_fold(1usize, |product, dim| product.checked_mul(usize::try_from(*dim).ok()?))
    };
    let count = product(&shape)?;
    let mut dense = 1;
    for (dim, stride) in shape.iter().zip(strides).rev() {
        if *stride != dense && *dim > 1 {
            return None;
        }
        dense *= dim;
    }
    let offset = usize::try_from(offset).ok()?;
    if offset + count > product(storage)? {
        return None;
    }
    let part = Part::new(address + offset * element.bytes(), count * element.bytes());
    Some(Tensor { element, shape, part })
}

export! {
    plain fn aclCreateTensor(
        shape: In<i64>, dims: u64, dtype: i32, strides: In<i64>, offset: i64, format: i32, storage: In<i64>,
        storage_dims: u64, data: usize,
    ) -> usize {
        let make = || {
            let shape = shape.list(dims as usize)?;
            let strides = strides.list(dims as usize)?;
            let storage = storage.list(storage_dims as usize)?;
            let element = element(dtype).filter(|_| format == FORMAT_ND)?;
            make(shape, element, &strides, offset, &storage, data)
        };
        make().map_or(0, |tensor| TENSORS.insert(tensor))
    }

    fn aclDestroyTensor(handle: usize) -> OperatorError {
        TENSORS.remove(handle).map(drop).ok_or(OperatorError::INVALID)
    }

    plain fn aclCreateScalar(value: usize, dtype: i32) -> usize {
        let read = || {
            let element = element(dtype)?;
            let bytes = memory::read_any(Part::new(value, element.bytes()))?;
            element.to_numbers(&bytes).first().map(|value| Scalar { value: *value, element })
        };
        read().map_or(0, |scalar| SCALARS.insert(scalar))
    }

    fn aclDestroyScalar(handle: usize) -> OperatorError {
        SCALARS.remove(handle).map(drop).ok_or(OperatorError::INVALID)
    }

    plain fn aclCreateIntArray(values: In<i64>, count: u64) -> usize {
        values.list(count as usize).map_or(0, |list| LISTS.insert(list))
    }

    fn aclDestroyIntArray(handle: usize) -> OperatorError {
        LISTS.remove(handle).map(drop).ok_or(OperatorError::INVALID)
    }
}
