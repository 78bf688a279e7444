//! Lines of programs in other languages.

use unisono_schedule::intern;

use crate::call::site::Site;
use crate::error::{Error, Result};

impl Site {
    /// A line of another language's source file. The process keeps the file's name for ever.
    ///
    /// Cost: a comparison of names, if this thread has used the file lately; else a lock and a search.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a name of more than [`unisono_schedule::INTERNED_BYTES_MAX`] bytes, and when the
    /// process already keeps [`unisono_schedule::INTERNED_MAX`] names.
    pub fn interned(file: &str, line: u32) -> Result<Site> {
        let kept = intern(file).map_err(|problem| Error::invalid("site", problem.to_string()))?;
        Ok(Site { file: kept, line })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;
    use crate::call::descriptor::Descriptor;
    use crate::call::info::{CallInfo, SiteText};
    use crate::elements::dtype::DType;
    use crate::memory::Buffers;
    use unisono_schedule::Collective;

    #[test]
    fn a_file_whose_name_is_too_long_is_refused() {
        let error = Site::interned(&"x".repeat(257), 1).unwrap_err();
        assert_eq!(error.to_string(), "invalid site: 257 bytes, at most 256 are kept");
    }

    #[test]
    fn an_unknown_line_is_not_shown() {
        let descriptor = Descriptor::new(Collective::Barrier, DType::U8, 0);
        let call = Call { site: Site::UNKNOWN, ..Call::new(descriptor, Buffers::none()) };
        assert_eq!(call.to_string(), descriptor.to_string());
        let info = CallInfo { site: call.site.text(), ..CallInfo::new(3, descriptor) };
        assert_eq!(info.to_string(), format!("call 3 {descriptor}"));
    }

    #[test]
    fn equal_lines_are_equal_however_they_were_given() {
        let site = Site::caller();
        assert_eq!(Site::interned(site.file(), site.line()).unwrap(), site);
        assert_eq!(SiteText::from(site).to_string(), site.to_string());
    }
}
