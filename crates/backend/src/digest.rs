//! A running digest of a communicator's calls, over the fields that must be equal on all ranks. Ranks compare it in
//! every call and at close. So it shows different calls that share no message, such as two broadcasts from different
//! roots.

/// Odd numbers with well-mixed bits: the fractions of the golden ratio and of pi.
const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0x243f_6a88_85a3_08d3];

/// The digest of `words`, in order. Cheap, since every call computes it: one multiplication a word, which waits for no
/// other.
#[inline]
pub fn mix_digest(words: impl IntoIterator<Item = u64>) -> u64 {
    let mut place = 0u64;
    words.into_iter().fold(0, |digest: u64, word| {
        // Each position has its own key, so that exchanged words change the digest.
        place = place.wrapping_add(FACTORS[0]);
        let product = u128::from(word ^ place) * u128::from(FACTORS[1]);
        digest.wrapping_add(product as u64 ^ (product >> 64) as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_and_its_place_counts() {
        assert_eq!(mix_digest([1, 2]), mix_digest([1, 2]));
        assert_ne!(mix_digest([1, 2]), mix_digest([2, 1]));
        assert_ne!(mix_digest([1, 2]), mix_digest([1, 2, 0]));
    }
}
