//! A call as errors, logs and other ranks see it: its number, arguments, line and algorithm.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use unisono_schedule::{Collective, INTERNED_BYTES_MAX};

use crate::call::counts::Sizes;
use crate::call::descriptor::Descriptor;
use crate::call::parent::ParentCall;
use crate::call::site::Site;
use crate::elements::dtype::DType;

/// One call of one rank, as errors name it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallInfo {
    /// The number of this collective on its communicator, from 0.
    pub number: u64,
    /// The operation and its arguments.
    pub descriptor: Descriptor,
    /// The algorithm, if one was chosen already.
    pub algorithm: Option<CallAlgorithm>,
    /// The line that made the call; `None` when only the call's header is known.
    pub site: Option<SiteText>,
    /// Lengths besides the descriptor's count; `None` when there are none, or when they are not known.
    pub sizes: Option<Arc<Sizes>>,
    /// The parent call, for a call within a scope.
    pub parent: Option<Arc<ParentCall>>,
}

impl CallInfo {
    /// A call of which only these two fields are known.
    pub fn new(number: u64, descriptor: Descriptor) -> CallInfo {
        CallInfo { number, descriptor, algorithm: None, site: None, sizes: None, parent: None }
    }

    /// A call without data that has a number, such as `close`. Errors show it as a barrier by this name.
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
    /// The hash of the schedules of an algorithm from outside. 0 for an algorithm of the library, whose name is enough.
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

/// A [`crate::Site`] as errors hold it: the site of another rank arrives as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteText {
    /// Source file.
    pub file: Cow<'static, str>,
    /// Line, from 1.
    pub line: u32,
}

impl From<Site> for SiteText {
    fn from(site: Site) -> SiteText {
        SiteText { file: Cow::Borrowed(site.file()), line: site.line() }
    }
}

impl fmt::Display for SiteText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}
