//! A running digest of what the calls of a communicator had in common on all ranks. Ranks compare it in every call and
//! when they close, so that calls which share no message (two broadcasts from different roots) are found out.

/// The digest of `words`, in order. Every call computes it, so it takes one multiplication per word.
const DIGEST_START: u64 = 0xcbf2_9ce4_8422_2325;

/// The digest of `words`, in order. One multiplication for a word: this is in the path of every call.
#[inline]
pub fn mix_digest(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(DIGEST_START, |digest, word| {
        let mixed = (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 32
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
