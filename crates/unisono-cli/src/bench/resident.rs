//! The most memory of this process that was resident during a call, as Linux counts it.

use std::fs;

/// Measures the most resident bytes from its start on.
pub(crate) struct Watch {
    is_reset: bool,
}

impl Watch {
    /// Starts at the memory that is resident now.
    pub(crate) fn start() -> Watch {
        // "5" sets the high-water mark back to the resident memory (proc(5)).
        Watch { is_reset: fs::write("/proc/self/clear_refs", "5").is_ok() }
    }

    /// The most bytes that were resident since the start. `None` where the system cannot reset its mark, since the mark
    /// then counts from the start of the process.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        let status = fs::read_to_string("/proc/self/status").ok().filter(|_| self.is_reset)?;
        high_water_bytes(&status)
    }
}

fn high_water_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_read_from_its_line() {
        assert_eq!(
            high_water_bytes("VmPeak:\t 9 kB\nVmHWM:\t    1784 kB\nVmRSS:\t 3 kB\n"),
            Some(1784 * 1024)
        );
        assert_eq!(high_water_bytes("VmRSS:\t 3 kB\n"), None);
        assert_eq!(high_water_bytes("VmHWM:\t many kB\n"), None);
    }
}
