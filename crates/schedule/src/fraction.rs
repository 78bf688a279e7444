//! Exact fractions of a vector.

use std::fmt;
use std::ops::Add;

/// `numerator / denominator`, in lowest terms, of the full vector of a call.
///
/// ```
/// # mod unisono { pub use unisono_schedule as schedule; }
/// use unisono::schedule::Fraction;
/// let moved = Fraction::new(2, 4) + Fraction::new(1, 4);
/// assert_eq!((moved, moved.of(1 << 20)), (Fraction::new(3, 4), 3 << 18));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fraction {
    numerator: u64,
    denominator: u64,
}

impl Fraction {
    /// Zero.
    pub const ZERO: Self = Self { numerator: 0, denominator: 1 };
    /// The whole vector once.
    pub const ONE: Self = Self { numerator: 1, denominator: 1 };

    /// `numerator / denominator`.
    ///
    /// # Panics
    /// If the denominator is 0.
    pub const fn new(numerator: u64, denominator: u64) -> Self {
        assert!(denominator != 0, "a fraction has a denominator");
        let (mut divisor, mut rest) = (denominator, numerator % denominator);
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        Self { numerator: numerator / divisor, denominator: denominator / divisor }
    }

    /// The numerator, in lowest terms.
    pub const fn numerator(self) -> u64 {
        self.numerator
    }

    /// The denominator, in lowest terms.
    pub const fn denominator(self) -> u64 {
        self.denominator
    }

    /// This fraction minus `other`; zero if `other` is larger.
    pub(crate) const fn less(self, other: Self) -> Self {
        let (more, less) = (self.numerator * other.denominator, other.numerator * self.denominator);
        Self::new(more.saturating_sub(less), self.denominator * other.denominator)
    }

    /// This fraction of `bytes`, rounded up, at most [`u64::MAX`].
    pub const fn of(self, bytes: u64) -> u64 {
        let exact = (bytes as u128 * self.numerator as u128).div_ceil(self.denominator as u128);
        if exact > u64::MAX as u128 { u64::MAX } else { exact as u64 }
    }
}

impl Add for Fraction {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let numerator = self.numerator * other.denominator + other.numerator * self.denominator;
        Self::new(numerator, self.denominator * other.denominator)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denominator {
            1 => write!(formatter, "{}", self.numerator),
            _ => write!(formatter, "{}/{}", self.numerator, self.denominator),
        }
    }
}
