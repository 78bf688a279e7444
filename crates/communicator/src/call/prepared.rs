//! A call that a backend has prepared: its arguments are checked, and its plan is made and kept.

use std::any::Any;
use std::fmt;

use crate::call::descriptor::Descriptor;
use crate::call::options::CallOptions;

/// The number of a prepared call, within this process. A [`crate::Call`] with it runs the kept plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PreparedNumber(pub u64);

/// A prepared call; see [`crate::Life::prepare`]. Its plan is kept until it is dropped.
pub struct PreparedCall {
    /// The checked arguments.
    pub descriptor: Descriptor,
    /// The options of its calls.
    pub options: CallOptions,
    /// The number for its calls; `None` from a backend that has nothing to keep.
    pub number: Option<PreparedNumber>,
    kept: Option<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for PreparedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PreparedCall({})", self.descriptor)
    }
}

impl PreparedCall {
    /// A call whose backend has checked the arguments, and keeps nothing.
    pub fn checked(descriptor: Descriptor, options: CallOptions) -> PreparedCall {
        PreparedCall { descriptor, options, number: None, kept: None }
    }

    /// A call whose plan has this number until `kept` is dropped.
    pub fn planned(self, number: PreparedNumber, kept: impl Any + Send + Sync) -> PreparedCall {
        PreparedCall { number: Some(number), kept: Some(Box::new(kept)), ..self }
    }

    /// Whether its backend keeps a plan.
    pub fn is_planned(&self) -> bool {
        self.kept.is_some()
    }
}
