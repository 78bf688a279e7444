//! In what backends may differ. What a backend refuses is asked of its communicators; this is the rest, which the suite
//! measures and compares with what the backend says of itself.

use unisono_communicator::DType;

/// What the calls of a backend run by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithms {
    /// Algorithms of ours, which can be forced, and of the tests, which can be registered.
    Open,
    /// Algorithms of ours alone: those of the tests cannot travel to the ranks.
    BuiltIn,
    /// Those of a vendor's library: none can be forced or registered.
    None,
}

/// What Min and Max make of a NaN on one rank and numbers on the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NanInMinMax {
    /// A NaN.
    Propagates,
    /// The least or greatest number.
    Ignored,
    /// A NaN or any of the numbers, whichever comes of the order.
    AnyOperand,
}

/// Where reductions of floats may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// A NaN among numbers.
    pub nan_in_min_max: NanInMinMax,
    /// Whether -0.0 is less than 0.0; else the result may be either.
    pub orders_zeros: bool,
    /// The types whose sums are cut off where others are rounded to nearest, ties to even.
    pub truncates: &'static [DType],
    /// Whether all ranks get the same bits of a sum that rounds.
    pub equal_bits: bool,
}

impl Arithmetic {
    /// What the engine does.
    pub const ENGINE: Arithmetic = Arithmetic {
        nan_in_min_max: NanInMinMax::Propagates,
        orders_zeros: true,
        truncates: &[],
        equal_bits: true,
    };
}
