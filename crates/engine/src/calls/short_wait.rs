//! The waits of a call that may end within microseconds: looks at its links, then some yields of the core. Where ranks
//! share cores, the other rank can write only after this one has yielded, and the general way to wait takes longer
//! than the switch to that rank and back.

use std::time::Instant;

use crate::calls::idling::{Idling, before_look};

/// Yields before the call goes the general way, which sees deadlines and sleeps. Few ranks share a core.
const YIELDS: u32 = 16;

/// The next step of a call that has polled in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextPoll {
    /// Poll again.
    Look,
    /// Yield the core ([`Idling::give_way`]), then poll again.
    Yield,
    /// Wait in the general way.
    General,
}

/// The looks and yields that are left to one call.
#[derive(Debug)]
pub(crate) struct ShortWait {
    looks: u32,
    yields: u32,
    has_waited: bool,
}

impl ShortWait {
    /// Of a call that has not waited. A recorded call waits in the general way, which notes its phases.
    #[inline]
    pub(crate) fn new(idling: &Idling, is_recorded: bool) -> ShortWait {
        let may_wait = idling.may_poll() && !is_recorded;
        let (looks, yields) = if may_wait { (idling.looks(), YIELDS) } else { (0, 0) };
        ShortWait { looks, yields, has_waited: false }
    }

    /// True the first time: the caller wakes its peers, which may wait for bytes that it has written.
    #[inline]
    pub(crate) fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.has_waited, true)
    }

    /// The next step after a poll in vain. `is_wanted` says whether another thread waits for the links.
    #[inline]
    pub(crate) fn next(&mut self, idling: &mut Idling, is_wanted: impl FnOnce() -> bool) -> NextPoll {
        if self.looks > 0 {
            self.looks -= 1;
            if self.looks == 0 {
                idling.looked(false);
            } else {
                before_look(self.looks);
            }
            return NextPoll::Look;
        }
        if self.yields == 0 || idling.is_crowded() || is_wanted() {
            return NextPoll::General;
        }
        self.yields -= 1;
        idling.skip_look();
        NextPoll::Yield
    }

    /// Notes that the call has ended: a look that found something makes looks usual again.
    #[inline]
    pub(crate) fn end(&self, idling: &mut Idling) {
        if self.has_waited && self.looks > 0 {
            idling.looked(true);
        }
    }
}

impl Idling {
    /// Yields the core, and notes how long that took.
    pub(crate) fn give_way(&mut self, now: impl Fn() -> Instant) {
        let before = now();
        std::thread::yield_now();
        self.gave_way(before, now());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::options::EngineOptions;

    /// The looks and the yields of a call that finds nothing.
    fn waits(idling: &mut Idling, is_recorded: bool, is_wanted: bool) -> [u32; 2] {
        let (mut wait, mut waits) = (ShortWait::new(idling, is_recorded), [0, 0]);
        loop {
            match wait.next(idling, || is_wanted) {
                NextPoll::Look => waits[0] += 1,
                NextPoll::Yield => waits[1] += 1,
                NextPoll::General => return waits,
            }
        }
    }

    #[test]
    fn a_call_waits_for_a_little_and_for_nothing_else() {
        let of = |spin_us| {
            let spin = Duration::from_micros(spin_us);
            Idling::new(&EngineOptions { spin, ..EngineOptions::default() })
        };
        let mut idling = of(50);
        let [looks, yields] = waits(&mut idling, false, false);
        assert!(looks > 100 && yields == YIELDS);
        assert_eq!(waits(&mut of(50), false, true), [looks, 0], "another thread waits for the links");
        assert_eq!(waits(&mut of(50), true, false), [0, 0], "the log wants the general way");
        assert_eq!(waits(&mut of(0), false, false), [0, 0], "a rank that sleeps at once");
        let now = Instant::now();
        idling.gave_way(now, now + Duration::from_secs(1));
        assert_eq!(waits(&mut idling, false, false), [0, 0], "other work is on the core");
    }

    #[test]
    fn looks_in_vain_become_rare() {
        let mut idling = Idling::new(&EngineOptions::default());
        let looked = (0..100).filter(|_| waits(&mut idling, false, false)[0] > 0).count();
        // The yields of a call count as polls without a look, and skipped polls double up to 512.
        assert!((5..15).contains(&looked), "{looked} of 100");
    }
}
