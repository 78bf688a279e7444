//! The sizes of the processor's caches, as Linux says them.

use std::fs;

/// The bytes of the largest cache of the first core; `None` where nobody says so.
pub(super) fn last_level_bytes() -> Option<u64> {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let size = |cache: fs::DirEntry| fs::read_to_string(cache.path().join("size")).ok();
    caches.flatten().filter_map(size).filter_map(|text| bytes(&text)).max()
}

/// A size as Linux writes it: `32768K`.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix('M').map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_linux_writes_them() {
        let cases = [("32768K\n", Some(32 << 20)), ("260M", Some(260 << 20)), ("64", Some(64)), ("", None)];
        for (text, expected) in cases.into_iter().chain([("K", None), ("18446744073709551615K", None)]) {
            assert_eq!(bytes(text), expected, "{text:?}");
        }
    }
}
