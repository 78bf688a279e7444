//! What errors, logs and other ranks know of a call: its number, its descriptor, who made it where, what it ran.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use unisono_schedule::{Collective, INTERNED_BYTES_MAX};

use crate::call::counts::Sizes;
use crate::call::descriptor::Descriptor;
use crate::call::parent::ParentCall;
use crate::elements::dtype::DType;

/// One call of one rank, as errors name it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallInfo {
    /// Which collective of its communicator this is, counted from 0.
    pub number: u64,
    /// The operation and its arguments.
    pub descriptor: Descriptor,
    /// The algorithm it ran, if one was chosen already.
    pub algorithm: Option<CallAlgorithm>,
    /// The line that called; `None` when only a header of the call is known.
    pub site: Option<SiteText>,
    /// The lengths that the descriptor leaves out; `None` when there are none, or they are not known.
    pub sizes: Option<Arc<Sizes>>,
    /// The call that this one is a part of, for a call within a scope.
    pub parent: Option<Arc<ParentCall>>,
}

impl CallInfo {
    /// A call of which nothing else is known.
    pub fn new(number: u64, descriptor: Descriptor) -> CallInfo {
        CallInfo { number, descriptor, algorithm: None, site: None, sizes: None, parent: None }
    }

    /// A call such as `close`, which is no collective but has a place among them. Errors show it as a barrier by this
    /// name.
    pub fn without_data(number: u64, name: &'static str) -> CallInfo {
        let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
        CallInfo { algorithm: Some(name.into()), ..CallInfo::new(number, barrier) }
    }
}

impl fmt::Display for CallInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} {}", self.number, self.descriptor)?;
        if let Some(parent) = &self.parent {
            write!(f, " of {parent}")?;
        }
        if let Some(algorithm) = &self.algorithm {
            write!(f, " by {algorithm}")?;
        }
        match &self.site {
            Some(site) => write!(f, " at {site}"),
            None => Ok(()),
        }
    }
}

/// The algorithm that a call runs, as ranks compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAlgorithm {
    /// Its name.
    pub name: Cow<'static, str>,
    /// A hash of the schedules of an algorithm from outside; 0 for the library's own algorithms, whose name says as
    /// much.
    pub schedules: u32,
}

impl CallAlgorithm {
    /// The most bytes of a name.
    pub const NAME_BYTES_MAX: usize = INTERNED_BYTES_MAX;
}

impl From<&'static str> for CallAlgorithm {
    fn from(name: &'static str) -> CallAlgorithm {
        CallAlgorithm { name: Cow::Borrowed(name), schedules: 0 }
    }
}

impl fmt::Display for CallAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A [`crate::Site`] as errors hold it. The site of another rank arrives as text. Only the error keeps this text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteText {
    /// Source file.
    pub file: Cow<'static, str>,
    /// Line, from 1.
    pub line: u32,
}

impl fmt::Display for SiteText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}
