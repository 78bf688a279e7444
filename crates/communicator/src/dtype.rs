//! The one list of element types: name, size, wire code and Rust type of each.

use std::fmt;
use std::str::FromStr;

use bytemuck::{Pod, Zeroable};
pub use half::{bf16, f16};

/// A boolean element. One byte: 0 is false, anything else is true.
///
/// Bytes that arrive from a peer are never turned into a Rust `bool`, for which any value but 0 and 1 would be
/// undefined behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bool(pub u8);

/// A Rust type that can be an element of a collective's buffer.
pub trait Element: Pod + Send + Sync + PartialEq + fmt::Debug {
    /// The element type as it is named in descriptors and headers.
    const DTYPE: DType;
}

macro_rules! dtypes {
    ($($variant:ident, $rust:ty, $name:literal, $code:literal, $doc:literal;)*) => {
        /// The type of one element.
        ///
        /// ```
        /// use unisono_communicator::DType;
        /// assert_eq!(DType::F32.bytes(), 4);
        /// assert_eq!("bf16".parse::<DType>().unwrap(), DType::BF16);
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DType { $(#[doc = $doc] $variant,)* }

        impl DType {
            /// Every element type.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// Size of one element in bytes.
            pub const fn bytes(self) -> usize {
                match self { $(DType::$variant => size_of::<$rust>(),)* }
            }

            /// The name used on the command line and in reports.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// The number that stands for this type on the wire.
            pub const fn code(self) -> u8 {
                match self { $(DType::$variant => $code,)* }
            }

            /// The type of a wire code, if there is one.
            pub const fn from_code(code: u8) -> Option<DType> {
                match code { $($code => Some(DType::$variant),)* _ => None }
            }
        }

        $(impl Element for $rust { const DTYPE: DType = DType::$variant; })*
    };
}

dtypes! {
    F64, f64, "f64", 1, "IEEE 754 binary64.";
    F32, f32, "f32", 2, "IEEE 754 binary32.";
    F16, f16, "f16", 3, "IEEE 754 binary16; each reduction step computes in f32 and rounds.";
    BF16, bf16, "bf16", 4, "The upper half of an f32; each reduction step computes in f32 and rounds.";
    I8, i8, "i8", 5, "Signed, 8 bits; arithmetic wraps.";
    I16, i16, "i16", 6, "Signed, 16 bits; arithmetic wraps.";
    I32, i32, "i32", 7, "Signed, 32 bits; arithmetic wraps.";
    I64, i64, "i64", 8, "Signed, 64 bits; arithmetic wraps.";
    U8, u8, "u8", 9, "Unsigned, 8 bits; arithmetic wraps.";
    U16, u16, "u16", 10, "Unsigned, 16 bits; arithmetic wraps.";
    U32, u32, "u32", 11, "Unsigned, 32 bits; arithmetic wraps.";
    U64, u64, "u64", 12, "Unsigned, 64 bits; arithmetic wraps.";
    Bool, Bool, "bool", 13, "One byte, 0 is false.";
}

impl DType {
    /// Whether this is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        DType::ALL.iter().copied().find(|dtype| dtype.name() == text).ok_or_else(|| {
            let names: Vec<_> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
            format!("unknown dtype {text:?}, one of: {}", names.join(", "))
        })
    }
}
