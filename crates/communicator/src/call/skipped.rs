//! Operations that are switched off for a whole job, to measure their cost (an ablation).

use std::fmt;
use std::str::FromStr;

use crate::call::operation::Operation;

/// A set of operations that do nothing; `UNISONO_SKIP` gives the set of a job.
///
/// A call of such an operation checks its arguments, warns once in the process, and ends at once: nothing is sent, no
/// buffer changes, no number is taken, no failure is noticed, and the outcome is [`crate::Completion::Skipped`]. A
/// skipped receive has no elements. A call that consists of others is skipped with the operation that it stands in for,
/// such as a compressed all-reduce with `all_reduce`, and its parts are never skipped alone: so objects, `split` and
/// the calls of a [`crate::Scope`] work in any case. An object that is sent is then received as an object only: a
/// `Collectives::recv` of its bytes does nothing.
///
/// ```
/// use unisono_communicator::{Collective, SkippedOperations};
/// let skipped: SkippedOperations = "all_reduce, barrier".parse().unwrap();
/// assert!(skipped.contains(Collective::AllReduce.into()) && !skipped.contains(Collective::Reduce.into()));
/// assert!("all_reduse".parse::<SkippedOperations>().unwrap_err().contains("all_reduce"));
/// assert!("send".parse::<SkippedOperations>().unwrap_err().contains("recv"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkippedOperations {
    /// Bit n stands for the operation of code n.
    bits: u16,
}

impl SkippedOperations {
    /// Whether calls of `operation` do nothing.
    #[inline]
    pub fn contains(self, operation: Operation) -> bool {
        self.bits & bit(operation) != 0
    }

    /// Whether every operation works.
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// A number for the wire.
    pub fn to_bits(self) -> u16 {
        self.bits
    }

    /// The set of a number from [`SkippedOperations::to_bits`]; `None` for any other number.
    pub fn from_bits(bits: u16) -> Option<SkippedOperations> {
        let known = Operation::all().fold(0, |bits, operation| bits | bit(operation));
        let skipped = SkippedOperations { bits };
        (bits & !known == 0 && skipped.has_both_sides_of_a_message_or_none()).then_some(skipped)
    }

    /// A receive whose message is never sent would wait for it.
    fn has_both_sides_of_a_message_or_none(self) -> bool {
        self.contains(Operation::Send) == self.contains(Operation::Recv)
    }
}

#[inline]
fn bit(operation: Operation) -> u16 {
    1 << operation.code()
}

impl FromStr for SkippedOperations {
    type Err = String;

    /// Names with commas between.
    fn from_str(text: &str) -> Result<SkippedOperations, String> {
        let mut skipped = SkippedOperations::default();
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            skipped.bits |= bit(name.parse()?);
        }
        if skipped.has_both_sides_of_a_message_or_none() {
            Ok(skipped)
        } else {
            Err("send and recv go together: one side of a message would wait for the other".to_owned())
        }
    }
}

impl fmt::Display for SkippedOperations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Operation::all().filter(|operation| self.contains(*operation)).map(Operation::name);
        f.write_str(&names.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a16_sets_survive_text_and_wire() {
        for text in ["", "barrier", "all_reduce,broadcast,send,recv", "scan,exscan"] {
            let skipped: SkippedOperations = text.parse().unwrap();
            assert_eq!(skipped.to_string(), text);
            assert_eq!(SkippedOperations::from_bits(skipped.to_bits()), Some(skipped));
            assert_eq!(skipped.is_empty(), text.is_empty());
        }
        for bits in [1, 1 << 14, 1 << 10, 1 << 11] {
            assert_eq!(SkippedOperations::from_bits(bits), None, "{bits:b}");
        }
    }
}
