//! Sizes on the command line: a number of bytes, with K, M or G for powers of 1,024.

/// The largest size. No memory is so large, so a larger size is a typing error; products with this one do not overflow.
const SIZE_BYTES_MAX: u64 = 1 << 40;

/// Bytes from text.
///
/// # Errors
/// A line that says what is allowed.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let suffixes = [('K', 10), ('M', 20), ('G', 30)];
    let (digits, shift) = suffixes
        .iter()
        .find_map(|&(suffix, shift)| {
            text.strip_suffix([suffix, suffix.to_ascii_lowercase()]).map(|digits| (digits, shift))
        })
        .unwrap_or((text, 0));
    // A sign would be accepted by the number's own parser.
    let number = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    number
        .and_then(|digits| digits.parse::<u64>().ok())
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|&bytes| bytes <= SIZE_BYTES_MAX)
        .ok_or_else(|| {
            format!("unknown size {text:?}: bytes, or with K, M or G for 2^10, 2^20 or 2^30, at most 1024G")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("64", 64),
            ("1K", 1024),
            ("3k", 3072),
            ("1M", 1 << 20),
            ("2G", 2 << 30),
            ("1024G", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "K", "1.5K", "-1", "+1", "1T", "1KB", "one", "1025G", "99999999999999999999", "1 K"]
        {
            let answer = parse_size(text).unwrap_err();
            assert!(answer.contains("K, M or G") && answer.contains(text), "{answer}");
        }
    }
}
