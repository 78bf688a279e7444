//! The last calls of a communicator by their numbers, with all that is known of each.

use std::sync::{Mutex, OnceLock};

use crate::lock;

/// The number of calls that are remembered.
pub const CALLS_REMEMBERED: usize = 1024;

/// The value of a call, and its number.
type Slot<T> = Mutex<Option<(u64, T)>>;

/// The last [`CALLS_REMEMBERED`] calls. Its memory is allocated at the first one: most communicators send no message,
/// and most logs are off.
#[derive(Debug)]
pub(super) struct LastCalls<T>(OnceLock<Box<[Slot<T>]>>);

impl<T> Default for LastCalls<T> {
    fn default() -> LastCalls<T> {
        LastCalls(OnceLock::new())
    }
}

impl<T> LastCalls<T> {
    /// Allocates the memory.
    pub(super) fn allocate(&self) {
        self.slots();
    }

    fn slots(&self) -> &[Slot<T>] {
        self.0.get_or_init(|| (0..CALLS_REMEMBERED).map(|_| Mutex::new(None)).collect())
    }

    /// Remembers a call in the place of the oldest one.
    #[inline]
    pub(super) fn set(&self, number: u64, value: T) {
        *lock(&self.slots()[place(number)]) = Some((number, value));
    }

    /// Looks at a call; `None` if it is not remembered.
    #[inline]
    pub(super) fn with<R>(&self, number: u64, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut slot = lock(&self.0.get()?[place(number)]);
        slot.as_mut().filter(|(other, _)| *other == number).map(|(_, value)| look(value))
    }
}

fn place(number: u64) -> usize {
    (number % CALLS_REMEMBERED as u64) as usize
}

/// The numbers of the remembered calls, of so many.
pub(super) fn remembered(entered: u64) -> std::ops::Range<u64> {
    entered.saturating_sub(CALLS_REMEMBERED as u64)..entered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered_by_number() {
        let last = LastCalls::default();
        assert_eq!(last.with(0, |value: &mut u64| *value), None);
        (0..1500).for_each(|number| last.set(number, number * 2));
        assert_eq!(last.with(1499, |value| std::mem::replace(value, 7)), Some(2998));
        assert_eq!(last.with(1499, |value| *value), Some(7));
        let numbers = (0..2000).filter(|number| last.with(*number, |_| ()).is_some());
        assert!(numbers.eq(remembered(1500)));
    }
}
