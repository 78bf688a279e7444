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
        let (looks, yields) = if is_recorded { (0, 0) } else { (idling.looks(), YIELDS) };
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
