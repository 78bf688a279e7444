//! Decides whether an idle thread looks at its links for a moment before it gives its core away.
//!
//! A thread that looks sees bytes tens of nanoseconds after they were written; a thread that calls `sched_yield`
//! between two polls sees them hundreds of nanoseconds later. But where two ranks share a core, the other one can write
//! only after this one has given way, and looking doubles the time of a short call. So after a vain look a thread does
//! without for some polls, and for twice as many after the next one in succession.

/// How often a thread looks in succession: for a microsecond or a few, in which a rank on another core answers.
pub(super) const LOOKS: u32 = 150;

/// Polls without a look after the first vain one.
const SKIPPED_MIN: u32 = 1;

/// The most such polls.
const SKIPPED_MAX: u32 = 512;

/// What the last looks have brought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looking {
    /// The polls that go by before the next look.
    skips: u32,
    /// How many went by after the last look; 0 if it was not vain.
    skipped: u32,
}

impl Looking {
    /// Whether to look at this poll.
    pub(super) fn is_due(&mut self) -> bool {
        // Not `skips -= u32::from(!is_due)`: the compiler may lose that store (rust-lang/rust#158206).
        match self.skips.checked_sub(1) {
            Some(left) => {
                self.skips = left;
                false
            }
            None => true,
        }
    }

    /// Notes what a look has brought.
    pub(super) fn note(&mut self, has_found: bool) {
        self.skipped = if has_found { 0 } else { (self.skipped * 2).clamp(SKIPPED_MIN, SKIPPED_MAX) };
        self.skips = self.skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these polls look, if each look brings this.
    fn looks(looking: &mut Looking, polls: u32, has_found: bool) -> u32 {
        (0..polls)
            .map(|_| {
                let is_due = looking.is_due();
                if is_due {
                    looking.note(has_found);
                }
                u32::from(is_due)
            })
            .sum()
    }

    #[test]
    fn vain_looks_become_rare_and_one_that_finds_something_makes_them_usual_again() {
        let mut looking = Looking::default();
        assert_eq!(looks(&mut looking, 1000, true), 1000);
        assert_eq!(looks(&mut looking, 1 + 1 + 1 + 2 + 1 + 4 + 1, false), 4);
        assert!((190..210).contains(&looks(&mut looking, 100_000, false)), "one in 512");
        while !looking.is_due() {}
        looking.note(true);
        assert_eq!(looks(&mut looking, 1000, true), 1000);
        assert_eq!(looks(&mut looking, 1 + 1 + 1, false), 2, "it begins anew");
    }
}
