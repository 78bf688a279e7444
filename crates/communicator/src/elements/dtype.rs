//! The only list of element types: name, size, wire code, kind and Rust type of each.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use bytemuck::{Pod, Zeroable};
pub use half::{bf16, f16};
pub use num_complex::Complex;

pub use crate::elements::float8::{f8e4m3, f8e5m2};

/// A boolean element. One byte: 0 is false, anything else is true.
///
/// A Rust `bool` from a peer's bytes would be undefined behaviour for any value but 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bool(pub u8);

/// A Rust type that can be an element of a collective's buffer.
///
/// One line makes a program's own plain type an element. A function of the program then reduces it:
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
/// use bytemuck::{Pod, Zeroable};
/// use unisono::{Collectives, DType, Element, Solo, UserOp};
///
/// /// The largest value and where it was found.
/// #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
/// #[repr(C)]
/// struct Peak { value: f32, rank: u32, index: u64 }
///
/// impl Element for Peak { const DTYPE: DType = DType::opaque_of::<Peak>(); }
///
/// let comm = Solo::new();
/// let mut peaks = [Peak { value: 0.5, rank: comm.group().rank(), index: 7 }];
/// let op = UserOp::ordered("highest_peak");
/// comm.all_reduce_user(&mut peaks, op, |left: &[Peak], right: &[Peak], out: &mut [Peak]| {
///     for (out, (left, right)) in out.iter_mut().zip(left.iter().zip(right)) {
///         *out = if right.value > left.value { *right } else { *left };
///     }
/// })?;
/// comm.broadcast(&mut peaks, 0)?;
/// # use unisono::Communicator;
/// # Ok::<(), unisono::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no element of a collective",
    label = "not an element type",
    note = "a type of your own becomes one by `#[derive(Pod, Zeroable)]` of bytemuck and \
            `impl Element for {Self} {{ const DTYPE: DType = DType::opaque_of::<{Self}>(); }}`",
    note = "in place of a tuple take a `#[repr(C)]` struct, in place of a `String` its bytes, in place of a list of \
            vectors the coalesced calls"
)]
pub trait Element: Pod + Send + Sync + PartialEq + fmt::Debug {
    /// The element type in descriptors and headers. Its size must equal the size of `Self`, else calls are refused.
    const DTYPE: DType;
}

/// The meaning of an element's bytes. It decides which reduce operators are defined.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A floating-point number.
    Float(FloatFormat),
    /// A complex number: real and imaginary part, each a float of this format.
    Complex(FloatFormat),
    /// An integer in two's complement.
    Signed,
    /// An integer without a sign.
    Unsigned,
    /// A truth value.
    Bool,
    /// Bytes that only the caller can interpret.
    Opaque,
}

/// A binary floating-point format, and the conversions between its bytes and f64.
#[derive(Clone, Copy, Debug)]
pub struct FloatFormat {
    /// Size in bytes.
    pub bytes: usize,
    /// Significant binary digits, including the leading one, which is not stored. Every integer up to 2^digits is
    /// exact.
    pub digits: u32,
    read: fn(&[u8]) -> f64,
    write: fn(f64, &mut [u8]),
}

impl FloatFormat {
    /// The number in `float`, whose length is [`FloatFormat::bytes`].
    ///
    /// # Panics
    /// On any other length.
    pub fn read(&self, float: &[u8]) -> f64 {
        (self.read)(float)
    }

    /// Writes `value` to `float`, rounded to nearest, ties to even. A format narrower than f32 is rounded to f32 first,
    /// like the result of a reduction step.
    ///
    /// # Panics
    /// When the length of `float` is not [`FloatFormat::bytes`].
    pub fn write(&self, value: f64, float: &mut [u8]) {
        (self.write)(value, float);
    }
}

/// The [`FloatFormat`] of a Rust type.
macro_rules! float {
    (f64) => {
        float!(f64, |value| value)
    };
    (f32) => {
        float!(f32, |value| value as f32)
    };
    ($narrow:ident) => {
        float!($narrow, |value| $narrow::from_f32(value as f32))
    };
    ($float:ident, |$value:ident| $rounded:expr) => {
        FloatFormat {
            bytes: size_of::<$float>(),
            digits: $float::MANTISSA_DIGITS,
            read: |bytes| f64::from(bytemuck::pod_read_unaligned::<$float>(bytes)),
            write: |$value, bytes| bytes.copy_from_slice(bytemuck::bytes_of(&$rounded)),
        }
    };
}

/// The number of bytes of a [`DType`]'s wire code.
pub const DTYPE_CODE_BYTES: usize = 3;

/// Size in bytes of the largest opaque element.
pub const OPAQUE_BYTES_MAX: usize = u16::MAX as usize;

/// The first byte of every opaque type's wire code.
const OPAQUE_CODE: u8 = 255;

macro_rules! dtypes {
    ($($variant:ident, $rust:ty, $name:literal, $code:literal, $kind:expr, $doc:literal;)*) => {
        /// The type of one element.
        ///
        /// ```
        /// # use unisono_communicator as unisono;
        /// use unisono::DType;
        /// assert_eq!(DType::F32.bytes(), 4);
        /// assert_eq!("bf16".parse::<DType>().unwrap(), DType::BF16);
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DType {
            $(#[doc = $doc] $variant,)*
            /// An element that only the caller can interpret. A function of the caller's reduces it; [`Element`] has an
            /// example. Calls that only move bytes take it like any other type.
            Opaque {
                /// Size of one element, at most [`OPAQUE_BYTES_MAX`].
                bytes: NonZeroU16,
            },
        }

        impl DType {
            /// Every element type but the opaque ones.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// Size of one element in bytes.
            pub const fn bytes(self) -> usize {
                match self {
                    $(DType::$variant => size_of::<$rust>(),)*
                    DType::Opaque { bytes } => bytes.get() as usize,
                }
            }

            /// The name used on the command line and in reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(DType::$variant => $name,)*
                    DType::Opaque { .. } => "opaque",
                }
            }

            /// The meaning of the bytes.
            pub const fn kind(self) -> Kind {
                match self {
                    $(DType::$variant => $kind,)*
                    DType::Opaque { .. } => Kind::Opaque,
                }
            }

            /// The type on the wire: a number, and the size of an opaque element (little-endian, 0 for other types).
            pub const fn code(self) -> [u8; DTYPE_CODE_BYTES] {
                match self {
                    $(DType::$variant => [$code, 0, 0],)*
                    DType::Opaque { bytes } => {
                        let [low, high] = bytes.get().to_le_bytes();
                        [OPAQUE_CODE, low, high]
                    }
                }
            }

            /// The type of a wire code, if there is one.
            pub const fn from_code(code: [u8; DTYPE_CODE_BYTES]) -> Option<DType> {
                match code {
                    $([$code, 0, 0] => Some(DType::$variant),)*
                    [OPAQUE_CODE, low, high] => DType::opaque(u16::from_le_bytes([low, high]) as usize),
                    _ => None,
                }
            }
        }

        $(impl Element for $rust { const DTYPE: DType = DType::$variant; })*
    };
}

/// Counts and indices are sent as u64.
#[cfg(target_pointer_width = "64")]
impl Element for usize {
    const DTYPE: DType = DType::U64;
}

/// Differences of counts are sent as i64.
#[cfg(target_pointer_width = "64")]
impl Element for isize {
    const DTYPE: DType = DType::I64;
}

dtypes! {
    F64, f64, "f64", 1, Kind::Float(float!(f64)), "IEEE 754 binary64.";
    F32, f32, "f32", 2, Kind::Float(float!(f32)), "IEEE 754 binary32.";
    F16, f16, "f16", 3, Kind::Float(float!(f16)),
        "IEEE 754 binary16; each reduction step computes in f32 and rounds.";
    BF16, bf16, "bf16", 4, Kind::Float(float!(bf16)),
        "The upper half of an f32; each reduction step computes in f32 and rounds.";
    I8, i8, "i8", 5, Kind::Signed, "Signed, 8 bits; arithmetic wraps.";
    I16, i16, "i16", 6, Kind::Signed, "Signed, 16 bits; arithmetic wraps.";
    I32, i32, "i32", 7, Kind::Signed, "Signed, 32 bits; arithmetic wraps.";
    I64, i64, "i64", 8, Kind::Signed, "Signed, 64 bits; arithmetic wraps.";
    U8, u8, "u8", 9, Kind::Unsigned, "Unsigned, 8 bits; arithmetic wraps.";
    U16, u16, "u16", 10, Kind::Unsigned, "Unsigned, 16 bits; arithmetic wraps.";
    U32, u32, "u32", 11, Kind::Unsigned, "Unsigned, 32 bits; arithmetic wraps.";
    U64, u64, "u64", 12, Kind::Unsigned, "Unsigned, 64 bits; arithmetic wraps.";
    Bool, Bool, "bool", 13, Kind::Bool, "One byte, 0 is false.";
    F8E4M3, f8e4m3, "f8e4m3", 14, Kind::Float(float!(f8e4m3)),
        "[`f8e4m3`]; each reduction step computes in f32 and rounds. An overflow is a NaN.";
    F8E5M2, f8e5m2, "f8e5m2", 15, Kind::Float(float!(f8e5m2)),
        "[`f8e5m2`]; each reduction step computes in f32 and rounds. An overflow is an infinity.";
    Complex64, Complex<f32>, "complex64", 16, Kind::Complex(float!(f32)), "Two f32: real and imaginary part.";
    Complex128, Complex<f64>, "complex128", 17, Kind::Complex(float!(f64)), "Two f64: real and imaginary part.";
}

impl DType {
    /// Opaque elements of `bytes` bytes; `None` for 0 and for more than [`OPAQUE_BYTES_MAX`].
    pub const fn opaque(bytes: usize) -> Option<DType> {
        if bytes > OPAQUE_BYTES_MAX {
            return None;
        }
        match NonZeroU16::new(bytes as u16) {
            Some(bytes) => Some(DType::Opaque { bytes }),
            None => None,
        }
    }

    /// Opaque elements that are a `T` each; see [`Element`].
    ///
    /// # Panics
    /// When `T` has no bytes or more than [`OPAQUE_BYTES_MAX`]; in [`Element::DTYPE`] this is an error of the compiler.
    pub const fn opaque_of<T: Pod>() -> DType {
        match DType::opaque(size_of::<T>()) {
            Some(dtype) => dtype,
            None => panic!("an opaque element has 1 to 65535 bytes"),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            DType::Opaque { bytes } => write!(f, "[{bytes}]"),
            _ => Ok(()),
        }
    }
}

/// Parses the types that have a name; opaque types have none.
impl FromStr for DType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        DType::ALL.iter().copied().find(|dtype| dtype.name() == text).ok_or_else(|| {
            let names: Vec<_> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
            let problem = if text.starts_with("opaque") {
                "opaque elements need a program that defines them and their function; here"
            } else {
                "unknown dtype,"
            };
            format!("{text:?}: {problem} one of: {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_code_of_its_own() {
        let opaque = [1, 2, 255, 256, OPAQUE_BYTES_MAX].map(|bytes| DType::opaque(bytes).unwrap());
        let all: Vec<DType> = DType::ALL.iter().copied().chain(opaque).collect();
        for (index, dtype) in all.iter().enumerate() {
            assert_eq!(DType::from_code(dtype.code()), Some(*dtype));
            assert!(all[..index].iter().all(|other| other.code() != dtype.code()), "{dtype}");
        }
        for code in [[0, 0, 0], [2, 4, 0], [OPAQUE_CODE, 0, 0], [200, 0, 0]] {
            assert_eq!(DType::from_code(code), None);
        }
        assert_eq!((DType::opaque(0), DType::opaque(OPAQUE_BYTES_MAX + 1)), (None, None));
    }

    /// Rows: A11
    #[test]
    fn names_are_read_back_and_opaque_ones_refused() {
        for dtype in DType::ALL {
            assert_eq!(dtype.to_string().parse(), Ok(*dtype));
        }
        for (text, part) in
            [("f31", "unknown dtype, one of: f64, f32"), ("opaque[8]", "their function; here one of")]
        {
            let problem = text.parse::<DType>().unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
        assert_eq!(DType::opaque(12).unwrap().to_string(), "opaque[12]");
    }

    #[test]
    fn formats_hold_their_digits() {
        for dtype in DType::ALL {
            let (Kind::Float(format) | Kind::Complex(format)) = dtype.kind() else { continue };
            let mut bytes = vec![0; format.bytes];
            let exact = (1u64 << (format.digits - 1)) as f64 + 1.0;
            format.write(exact, &mut bytes);
            assert_eq!(format.read(&bytes), exact, "{dtype}");
            // One digit more is a tie, and the even neighbour is above.
            let largest_odd = 2.0 * exact + 1.0;
            format.write(largest_odd, &mut bytes);
            assert_eq!(format.read(&bytes), largest_odd + 1.0, "{dtype}");
        }
    }
}
