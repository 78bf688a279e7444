//! Sizes on the command line: a number of bytes, with K, M or G (Ki, Mi or Gi, KiB, MiB or GiB) for powers of 1,024.

/// The largest size. No memory is so large, so a larger size is a typing error; products with this one do not overflow.
const SIZE_BYTES_MAX: u64 = 1 << 40;

/// Bytes from text.
///
/// # Errors
/// A line with the allowed words.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let units = [('K', 10), ('M', 20), ('G', 30)];
    // Ki and KiB are the unit's full names; a B alone is none, because KB is 1,000 bytes to many.
    let short = text.strip_suffix("iB").or_else(|| text.strip_suffix('i')).unwrap_or(text);
    let (digits, shift) = units
        .iter()
        .find_map(|&(unit, shift)| {
            short.strip_suffix([unit, unit.to_ascii_lowercase()]).map(|digits| (digits, shift))
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
            ("1Ki", 1 << 10),
            ("1ki", 1 << 10),
            ("2Mi", 2 << 20),
            ("3GiB", 3 << 30),
            ("2G", 2 << 30),
            ("1024G", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let wrong = [
            "",
            "K",
            "i",
            "iB",
            "KiB",
            "1i",
            "1iB",
            "1Kii",
            "1.5K",
            "-1",
            "+1",
            "1T",
            "1KB",
            "one",
            "1025G",
            "1025Gi",
            "99999999999999999999",
            "1 K",
        ];
        for text in wrong {
            let answer = parse_size(text).unwrap_err();
            assert!(answer.contains("K, M or G") && answer.contains(text), "{answer}");
        }
    }
}
