//! In what backends may differ. What a backend refuses is asked of its communicators; this is the rest, which the suite
//! measures and compares with what the backend says of itself.

use unisono_communicator::DType;
pub use unisono_offload::{Arithmetic, NanInMinMax};

/// The element types that most backends reduce by every operator of the commonest: sum, prod, min and max.
pub const COMMON_TYPES: &[DType] = &[DType::F32, DType::F64, DType::I32, DType::I64];

/// What the calls of a backend run by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithms {
    /// Algorithms of ours, which can be forced, and of the tests, which can be registered.
    Open,
    /// Algorithms of ours alone: those of the tests cannot travel to the ranks.
    BuiltIn,
    /// Those of a vendor's library; algorithms of ours where they are asked for by name.
    Named,
    /// Those of a vendor's library: none can be forced or registered.
    None,
}

impl Algorithms {
    /// Whether a call that asks for none runs by one of ours.
    pub fn are_ours(self) -> bool {
        match self {
            Algorithms::Open | Algorithms::BuiltIn => true,
            Algorithms::Named | Algorithms::None => false,
        }
    }
}
