//! Element types: from formats of buffers and from names, and back.

use std::ffi::{CStr, c_long};

use unisono::DType;

/// The element type of a buffer's format, whose elements have `bytes` bytes.
///
/// # Errors
/// The reason why a call cannot take such elements, and a remedy.
pub(crate) fn of_format(format: &CStr, bytes: usize) -> Result<DType, String> {
    let (order, letters) = match format.to_bytes() {
        [order @ (b'@' | b'=' | b'<' | b'>' | b'!'), letters @ ..] => (*order, letters),
        letters => (b'@', letters),
    };
    let is_foreign =
        if cfg!(target_endian = "little") { matches!(order, b'>' | b'!') } else { order == b'<' };
    if is_foreign && bytes > 1 {
        return Err(format!(
            "format {format:?} has the byte order of another kind of machine; in numpy \
             array.astype(array.dtype.newbyteorder(\"=\")) gives a copy in this one's"
        ));
    }
    let dtype = match (letters, bytes) {
        (b"f", 4) => Some(DType::F32),
        (b"d", 8) => Some(DType::F64),
        (b"e", 2) => Some(DType::F16),
        (b"Zf", 8) => Some(DType::Complex64),
        (b"Zd", 16) => Some(DType::Complex128),
        (b"?", 1) => Some(DType::Bool),
        (b"c", 1) => Some(DType::U8),
        (b"b" | b"h" | b"i" | b"l" | b"q" | b"n", _) => signed(bytes),
        (b"B" | b"H" | b"I" | b"L" | b"Q" | b"N", _) => unsigned(bytes),
        _ => None,
    };
    dtype.ok_or_else(|| match letters {
        b"O" => {
            "its elements are Python objects; the calls on objects, such as broadcast_object, take these".to_owned()
        }
        _ => format!(
            "format {format:?} with elements of {bytes} bytes is of no element type; dtype=\"opaque:{bytes}\" moves \
             them as they are"
        ),
    })
}

fn signed(bytes: usize) -> Option<DType> {
    match bytes {
        1 => Some(DType::I8),
        2 => Some(DType::I16),
        4 => Some(DType::I32),
        8 => Some(DType::I64),
        _ => None,
    }
}

fn unsigned(bytes: usize) -> Option<DType> {
    match bytes {
        1 => Some(DType::U8),
        2 => Some(DType::U16),
        4 => Some(DType::U32),
        8 => Some(DType::U64),
        _ => None,
    }
}

/// The element type of numpy's number of it, `NPY_TYPES` of ndarraytypes.h.
pub(crate) fn of_numpy(number: i32) -> Option<DType> {
    match number {
        0 => Some(DType::Bool),
        1 => Some(DType::I8),
        2 => Some(DType::U8),
        3 => Some(DType::I16),
        4 => Some(DType::U16),
        5 => Some(DType::I32),
        6 => Some(DType::U32),
        // `long`, then `long long`.
        7 => signed(size_of::<c_long>()),
        8 => unsigned(size_of::<c_long>()),
        9 => Some(DType::I64),
        10 => Some(DType::U64),
        11 => Some(DType::F32),
        12 => Some(DType::F64),
        14 => Some(DType::Complex64),
        15 => Some(DType::Complex128),
        23 => Some(DType::F16),
        _ => None,
    }
}

/// The element type of a name: as the program writes it, such as `f32`, or as numpy and torch do, such as `float32`.
/// `opaque:N` has N bytes.
///
/// # Errors
/// The names that there are.
pub(crate) fn of_name(name: &str) -> Result<DType, String> {
    let short = name.rsplit('.').next().unwrap_or(name);
    if let Some(bytes) = short.strip_prefix("opaque:") {
        let dtype = bytes.parse().ok().and_then(DType::opaque);
        return dtype.ok_or_else(|| format!("{name:?}, but an opaque element has 1 to 65,535 bytes"));
    }
    let known = DType::ALL.iter().copied().find(|dtype| numpy_name(*dtype) == Some(short));
    let other = match short {
        "bfloat16" => Some(DType::BF16),
        "float8_e4m3fn" => Some(DType::F8E4M3),
        "float8_e5m2" => Some(DType::F8E5M2),
        _ => None,
    };
    known.or(other).or_else(|| short.parse().ok()).ok_or_else(|| {
        let names: Vec<&str> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
        format!("{name:?} is not one of {}, opaque:N", names.join(", "))
    })
}

/// numpy's name of an element type, if numpy has it.
pub(crate) fn numpy_name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F64 => "float64",
        DType::F32 => "float32",
        DType::F16 => "float16",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::Bool => "bool",
        DType::Complex64 => "complex64",
        DType::Complex128 => "complex128",
        DType::BF16 | DType::F8E4M3 | DType::F8E5M2 | DType::Opaque { .. } => return None,
    })
}
