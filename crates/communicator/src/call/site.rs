//! The line of a program that issued a call.

use std::fmt;
use std::panic::Location;

use crate::call::info::SiteText;

/// The line of the user's program that issued a call.
///
/// The typed calls find their caller's line. A binding gives the line of its own language.
///
/// ```
/// use unisono_communicator::Site;
/// let line = Site::interned("train.py", 40)?;
/// assert_eq!(line.to_string(), "train.py:40");
/// assert!(Site::caller().file().ends_with(".rs"));
/// # Ok::<(), unisono_communicator::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    pub(super) file: &'static str,
    pub(super) line: u32,
}

impl Site {
    /// An unknown line, for a caller of another language that gives none. Errors do not show it.
    pub const UNKNOWN: Site = Site { file: "", line: 0 };

    /// The line of the caller.
    #[track_caller]
    pub const fn caller() -> Site {
        let location = Location::caller();
        Site { file: location.file(), line: location.line() }
    }

    /// Source file.
    pub fn file(self) -> &'static str {
        self.file
    }

    /// Line, from 1.
    pub fn line(self) -> u32 {
        self.line
    }

    /// As errors hold it; `None` for [`Site::UNKNOWN`].
    pub fn text(self) -> Option<SiteText> {
        (self != Site::UNKNOWN).then(|| self.into())
    }

    /// The end of a call's text: ` at train.py:40`, or nothing for [`Site::UNKNOWN`].
    pub fn at(self) -> impl fmt::Display {
        At(self)
    }
}

struct At(Site);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Site::UNKNOWN => Ok(()),
            site => write!(f, " at {site}"),
        }
    }
}

impl From<&'static Location<'static>> for Site {
    fn from(location: &'static Location<'static>) -> Site {
        Site { file: location.file(), line: location.line() }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Site::UNKNOWN => f.write_str("an unknown line"),
            Site { file, line } => write!(f, "{file}:{line}"),
        }
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
