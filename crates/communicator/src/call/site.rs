//! The line of a program that issued a call.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;

use unisono_schedule::intern;

use crate::call::info::SiteText;
use crate::error::{Error, Result};

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
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Site {
    file: &'static str,
    line: u32,
}

impl Site {
    /// The line of the caller.
    #[track_caller]
    pub const fn caller() -> Site {
        let location = Location::caller();
        Site { file: location.file(), line: location.line() }
    }

    /// A line of another language's source file. The process keeps the file's name for ever.
    ///
    /// Cost: a lock and a search. A binding that calls often keeps the result.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a name of more than [`unisono_schedule::INTERNED_BYTES_MAX`] bytes, and when the
    /// process already keeps [`unisono_schedule::INTERNED_MAX`] names.
    pub fn interned(file: &str, line: u32) -> Result<Site> {
        let kept = intern(file).map_err(|problem| Error::invalid("site", problem.to_string()))?;
        Ok(Site { file: kept, line })
    }

    /// Source file.
    pub fn file(self) -> &'static str {
        self.file
    }

    /// Line, from 1.
    pub fn line(self) -> u32 {
        self.line
    }
}

impl From<&'static Location<'static>> for Site {
    fn from(location: &'static Location<'static>) -> Site {
        Site { file: location.file(), line: location.line() }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Site> for SiteText {
    fn from(site: Site) -> SiteText {
        SiteText { file: Cow::Borrowed(site.file), line: site.line }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_name_is_too_long_is_refused() {
        let error = Site::interned(&"x".repeat(257), 1).unwrap_err();
        assert_eq!(error.to_string(), "invalid site: 257 bytes, at most 256 are kept");
    }

    #[test]
    fn equal_lines_are_equal_however_they_were_given() {
        let site = Site::caller();
        assert_eq!(Site::interned(site.file(), site.line()).unwrap(), site);
        assert_eq!(SiteText::from(site).to_string(), site.to_string());
    }
}
