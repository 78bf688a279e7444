//! The arithmetic of a call: `destination = op(operand, incoming)` on bytes, for every dtype and reduce op.
//!
//! A kernel is a plain loop, compiled once per instruction set and chosen from a table (`dispatch.rs`). All kernels
//! give the same bits, except for NaN payloads: elements are computed separately, with the same operations, and no
//! operation is fused.

mod dispatch;
mod element;
mod kernel;
mod narrow;
mod peer_bytes;
#[cfg(test)]
mod tests;
mod user;

use unisono_communicator::{DType, ReduceOp, UserFunction};

use dispatch::{Isa, Kernel, ScaleKernel};
pub(crate) use peer_bytes::PeerBytes;

/// A multiple of the element size of every dtype that has built-in operators.
pub(crate) const WHOLE_BYTES: usize = 16;

/// The reduction of one call. Making it allocates nothing.
pub(crate) struct Reducer {
    way: Way,
}

enum Way {
    Nothing,
    BuiltIn { step: Kernel, completing: Kernel, ranks: u32, prescale: Option<(ScaleKernel, f64)> },
    User { function: UserFunction, element_bytes: usize },
}

/// A user function has panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Panicked {
    /// The panic's message.
    pub(crate) text: String,
}

impl Reducer {
    /// The reducer of a call that only moves bytes.
    pub(crate) fn nothing() -> Reducer {
        Reducer { way: Way::Nothing }
    }

    /// The reduction with `op` of `ranks` contributions of `dtype`. The arguments are already checked: `op` accepts
    /// `dtype`, and a `User` op has its function.
    pub(crate) fn new(dtype: DType, op: ReduceOp, ranks: u32, user: Option<UserFunction>) -> Reducer {
        Reducer::with_isa(Isa::best(), dtype, op, ranks, user)
    }

    fn with_isa(isa: Isa, dtype: DType, op: ReduceOp, ranks: u32, user: Option<UserFunction>) -> Reducer {
        let way = match op {
            ReduceOp::User(_) => {
                #[expect(clippy::expect_used, reason = "a user op without a function has been refused")]
                let function = user.expect("a user op comes with its function");
                Way::User { function, element_bytes: dtype.bytes() }
            }
            _ => Way::BuiltIn {
                step: Kernel::new(isa, dtype, op, false),
                // The mean of one contribution is its sum.
                completing: Kernel::new(isa, dtype, op, ranks > 1),
                ranks,
                prescale: match op {
                    ReduceOp::PreMulSum(factor) => Some((ScaleKernel::new(isa, dtype), factor)),
                    _ => None,
                },
            },
        };
        Reducer { way }
    }

    /// `destination = op(operand, incoming)`. Without `operand`, the destination is the operand.
    ///
    /// The slices hold whole elements at any address, and have one length. Only user functions look at
    /// `operand_is_left`. `completes` says that this step adds the last contribution: an average is divided now, and
    /// rounded to a narrow float once, after the division.
    #[inline]
    pub(crate) fn reduce(
        &self,
        destination: &mut [u8],
        operand: Option<&[u8]>,
        incoming: PeerBytes<'_>,
        operand_is_left: bool,
        completes: bool,
    ) -> Result<(), Panicked> {
        // A step's operand, incoming bytes and destination have the same extent.
        assert!(
            incoming.len() == destination.len() && operand.is_none_or(|left| left.len() == incoming.len())
        );
        match &self.way {
            Way::BuiltIn { step, completing, ranks, .. } => {
                let kernel = if completes { completing } else { step };
                kernel.run(destination, operand, incoming, *ranks);
                Ok(())
            }
            Way::User { function, element_bytes } => {
                let incoming = incoming.own();
                user::reduce(function, *element_bytes, destination, operand, &incoming, operand_is_left)
            }
            // The schedules of the collectives without an operator have no such step.
            Way::Nothing => unreachable!("a call without an operator reduces"),
        }
    }

    /// Whether it accepts blocks of any multiple of [`WHOLE_BYTES`]. A user function does not: its elements have any
    /// size, and few calls are cheaper.
    #[inline]
    pub(crate) fn takes_blocks(&self) -> bool {
        matches!(self.way, Way::BuiltIn { .. })
    }

    /// Whether every rank's input must go through [`Reducer::prescale`] first.
    #[inline]
    pub(crate) fn needs_prescale(&self) -> bool {
        matches!(self.way, Way::BuiltIn { prescale: Some(_), .. })
    }

    /// Multiplies the elements of `buffer` by this rank's factor, f64 in f64 and other floats in f32. Does nothing for
    /// other operators.
    pub(crate) fn prescale(&self, buffer: &mut [u8]) {
        if let Way::BuiltIn { prescale: Some((kernel, factor)), .. } = self.way {
            kernel.run(buffer, factor);
        }
    }
}
