//! The reduce operators, and which element types each accepts.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::elements::dtype::{DType, Kind};
use crate::short_text::ShortText;

/// The operator that combines the contributions of the ranks.
///
/// | op | floats of 64 to 8 bits | complex | integers | bool | opaque |
/// | --- | --- | --- | --- | --- | --- |
/// | Sum | yes | each part | wraps | refused: use BitOr | refused |
/// | Prod | yes | (ac - bd) + (ad + bc)i | wraps | refused: use BitAnd | refused |
/// | Min, Max | NaN propagates | refused: no order | yes | and, or | refused |
/// | Avg | sum, then divided by the number of ranks | each part | wrapping sum, truncated to zero | refused | refused |
/// | PreMulSum | each rank's input times its factor, then sum | each part | refused | refused | refused |
/// | BitAnd, BitOr, BitXor | refused | refused | yes | yes (as logical operators) | refused |
/// | User | yes | yes | yes | yes | yes |
///
/// Floats narrower than f32 (f16, bf16, f8e4m3, f8e5m2) are computed in f32 and rounded to nearest, ties to even, in
/// each step. The division of an average is rounded together with the last sum. An overflow is an infinity, or NaN in
/// f8e4m3, which has no infinity. No operation is fused with another. Complex products treat infinities like other
/// numbers.
#[derive(Clone, Copy, Debug)]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The smallest; a NaN anywhere gives NaN.
    Min,
    /// The largest; a NaN anywhere gives NaN.
    Max,
    /// The sum divided by the number of ranks. A sum that is too large for the type spoils the mean: three times 40,000
    /// in f16 gives infinity, two times 100 in i8 gives -28. [`ReduceOp::PreMulSum`] with `1 / ranks` scales first.
    Avg,
    /// Bitwise and.
    BitAnd,
    /// Bitwise or.
    BitOr,
    /// Bitwise exclusive or.
    BitXor,
    /// The sum of the ranks' inputs, each multiplied by its rank's own factor. Factors may differ between ranks.
    PreMulSum(f64),
    /// A function of the caller's. Ranks compare its name only; the function is in the call.
    User(UserOp),
}

/// A caller's own reduce operator, which must be associative: its name, and whether it is commutative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserOp {
    /// The name; ranks compare it.
    pub name: ShortText,
    /// Whether `f(a, b) == f(b, a)`. If not, only algorithms that keep the order of ranks run.
    pub commutative: bool,
}

impl UserOp {
    /// An operator whose operands may be exchanged. A call refuses a name that is too long for a [`ShortText`].
    pub const fn commutative(name: &str) -> UserOp {
        UserOp { name: ShortText::new(name), commutative: true }
    }

    /// An operator whose operands must keep the order of the ranks.
    pub const fn ordered(name: &str) -> UserOp {
        UserOp { name: ShortText::new(name), commutative: false }
    }
}

/// The function behind [`ReduceOp::User`]: it computes `out = f(left, right)`.
///
/// Called with `(left, right, out)`, three slices of the same length that hold whole elements. A buffer may be passed
/// in parts, in any order. A panic in it fails the call and revokes the communicator.
pub type UserFunction = Arc<dyn Fn(&[u8], &[u8], &mut [u8]) + Send + Sync>;

/// Factors are compared by their bits: 0.0 and -0.0 differ, and NaN equals itself.
impl PartialEq for ReduceOp {
    fn eq(&self, other: &ReduceOp) -> bool {
        match (self, other) {
            (ReduceOp::PreMulSum(ours), ReduceOp::PreMulSum(theirs)) => ours.to_bits() == theirs.to_bits(),
            (ReduceOp::User(ours), ReduceOp::User(theirs)) => ours == theirs,
            (ours, theirs) => ours.code() == theirs.code(),
        }
    }
}

impl Eq for ReduceOp {}

impl ReduceOp {
    /// The built-in operators that need no parameter.
    pub const PLAIN: &'static [ReduceOp] = &[
        ReduceOp::Sum,
        ReduceOp::Prod,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Avg,
        ReduceOp::BitAnd,
        ReduceOp::BitOr,
        ReduceOp::BitXor,
    ];

    /// The name used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Avg => "avg",
            ReduceOp::BitAnd => "bit_and",
            ReduceOp::BitOr => "bit_or",
            ReduceOp::BitXor => "bit_xor",
            ReduceOp::PreMulSum(_) => "pre_mul_sum",
            ReduceOp::User(_) => "user",
        }
    }

    /// The number that stands for this operator on the wire.
    pub const fn code(self) -> u8 {
        match self {
            ReduceOp::Sum => 1,
            ReduceOp::Prod => 2,
            ReduceOp::Min => 3,
            ReduceOp::Max => 4,
            ReduceOp::Avg => 5,
            ReduceOp::BitAnd => 6,
            ReduceOp::BitOr => 7,
            ReduceOp::BitXor => 8,
            ReduceOp::PreMulSum(_) => 9,
            ReduceOp::User(_) => 10,
        }
    }

    /// Whether the operands may be exchanged.
    pub const fn is_commutative(self) -> bool {
        match self {
            ReduceOp::User(user) => user.commutative,
            _ => true,
        }
    }

    /// Whether this operator is defined on elements of `dtype` (the table above).
    pub const fn accepts(self, dtype: DType) -> bool {
        self.refusal(dtype).is_none()
    }

    /// Why this operator is not defined on elements of `dtype`; `None` when it is.
    ///
    /// ```
    /// # use unisono_communicator as unisono;
    /// use unisono::{DType, ReduceOp};
    /// assert_eq!(ReduceOp::Max.refusal(DType::Complex64), Some("complex numbers have no order"));
    /// assert_eq!(ReduceOp::Max.refusal(DType::F8E4M3), None);
    /// ```
    pub const fn refusal(self, dtype: DType) -> Option<&'static str> {
        let kind = dtype.kind();
        match self {
            ReduceOp::User(_) => None,
            _ if matches!(kind, Kind::Opaque) => Some("only a user function can read opaque elements"),
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Avg => match kind {
                Kind::Bool => Some("truth values are not numbers; bit_or and bit_and combine them"),
                Kind::Float(_) | Kind::Complex(_) | Kind::Signed | Kind::Unsigned | Kind::Opaque => None,
            },
            ReduceOp::Min | ReduceOp::Max => match kind {
                Kind::Complex(_) => Some("complex numbers have no order"),
                Kind::Float(_) | Kind::Signed | Kind::Unsigned | Kind::Bool | Kind::Opaque => None,
            },
            ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => match kind {
                Kind::Float(_) | Kind::Complex(_) => Some("bits are combined in integers and bool only"),
                Kind::Signed | Kind::Unsigned | Kind::Bool | Kind::Opaque => None,
            },
            ReduceOp::PreMulSum(_) => match kind {
                Kind::Signed | Kind::Unsigned | Kind::Bool => {
                    Some("the factor is a float, the elements are not")
                }
                Kind::Float(_) | Kind::Complex(_) | Kind::Opaque => None,
            },
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReduceOp::PreMulSum(factor) => write!(f, "pre_mul_sum({factor})"),
            ReduceOp::User(user) => write!(f, "user({})", user.name),
            plain => f.write_str(plain.name()),
        }
    }
}

impl FromStr for ReduceOp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ReduceOp::PLAIN.iter().copied().find(|op| op.name() == text).ok_or_else(|| {
            let names: Vec<_> = ReduceOp::PLAIN.iter().map(|op| op.name()).collect();
            format!("unknown reduce op {text:?}, one of: {}", names.join(", "))
        })
    }
}
