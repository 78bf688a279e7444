//! Queues by key, each in the order of its numbers. An empty queue takes no memory, and a queue of one item no
//! allocation of its own.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::hash::Hash;

/// Items with their numbers, which only grow.
pub(super) struct Queues<K, T> {
    queues: HashMap<K, KeyQueue<T>>,
    items: usize,
}

struct KeyQueue<T> {
    first: (u64, T),
    later: VecDeque<(u64, T)>,
}

impl<K: Copy + Eq + Hash, T> Queues<K, T> {
    pub(super) fn new() -> Queues<K, T> {
        Queues { queues: HashMap::new(), items: 0 }
    }

    /// The number of items in all queues.
    pub(super) fn len(&self) -> usize {
        self.items
    }

    /// Adds an item at the place of its number among the items of its key: a new item goes behind all others.
    pub(super) fn insert(&mut self, key: K, number: u64, item: T) {
        self.items += 1;
        match self.queues.entry(key) {
            Entry::Vacant(place) => {
                place.insert(KeyQueue { first: (number, item), later: VecDeque::new() });
            }
            Entry::Occupied(mut queue) => {
                let KeyQueue { first, later } = queue.get_mut();
                if number < first.0 {
                    later.push_front(std::mem::replace(first, (number, item)));
                } else {
                    let place = later.iter().rposition(|(other, _)| *other < number).map_or(0, |at| at + 1);
                    later.insert(place, (number, item));
                }
            }
        }
    }

    /// The number of the first item of a key.
    pub(super) fn first_number(&self, key: K) -> Option<u64> {
        self.queues.get(&key).map(|queue| queue.first.0)
    }

    /// The number of items of a key.
    pub(super) fn len_of(&self, key: K) -> usize {
        self.queues.get(&key).map_or(0, |queue| 1 + queue.later.len())
    }

    /// Takes the first item of a key.
    pub(super) fn pop(&mut self, key: K) -> Option<T> {
        self.pop_if(key, |_| true)
    }

    /// Takes the first item of a key, if it `fits`.
    pub(super) fn pop_if(&mut self, key: K, fits: impl FnOnce(&T) -> bool) -> Option<T> {
        // An entry of an empty map would hash the key, and make room.
        if self.items == 0 {
            return None;
        }
        let Entry::Occupied(mut queue) = self.queues.entry(key) else { return None };
        if !fits(&queue.get().first.1) {
            return None;
        }
        self.items -= 1;
        let (_, item) = match queue.get_mut().later.pop_front() {
            Some(second) => std::mem::replace(&mut queue.get_mut().first, second),
            None => queue.remove().first,
        };
        Some(item)
    }

    /// The items of a key, in order.
    pub(super) fn of_mut(&mut self, key: K) -> impl Iterator<Item = &mut T> {
        self.queues.get_mut(&key).into_iter().flat_map(KeyQueue::iter_mut)
    }

    /// All items, in no order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.queues.values_mut().flat_map(KeyQueue::iter_mut)
    }

    /// All items with their keys, in no order.
    pub(super) fn keyed_mut(&mut self) -> impl Iterator<Item = (&K, &mut T)> {
        self.queues.iter_mut().flat_map(|(key, queue)| queue.iter_mut().map(move |item| (key, item)))
    }

    /// Each key with the number of its first item.
    pub(super) fn firsts(&self) -> impl Iterator<Item = (K, u64)> {
        self.queues.iter().map(|(key, queue)| (*key, queue.first.0))
    }

    /// Takes the items for which `is_wanted` is true, in order of their numbers.
    pub(super) fn take(&mut self, mut is_wanted: impl FnMut(&K, &T) -> bool) -> Vec<(K, T)> {
        let has_any = {
            let mut queues = self.queues.iter();
            queues.any(|(key, queue)| queue.iter().any(|item| is_wanted(key, item)))
        };
        if !has_any {
            return Vec::new();
        }
        let mut taken = Vec::new();
        for (key, KeyQueue { first, later }) in std::mem::take(&mut self.queues) {
            for (number, item) in std::iter::once(first).chain(later) {
                self.items -= 1;
                if is_wanted(&key, &item) {
                    taken.push((number, key, item));
                } else {
                    self.insert(key, number, item);
                }
            }
        }
        taken.sort_by_key(|(number, ..)| *number);
        taken.into_iter().map(|(_, key, item)| (key, item)).collect()
    }
}

impl<T> KeyQueue<T> {
    fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.first).chain(&self.later).map(|(_, item)| item)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        std::iter::once(&mut self.first).chain(&mut self.later).map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_order_and_empty_queues_are_gone() {
        let mut queues = Queues::new();
        queues.insert('a', 1, "one");
        queues.insert('b', 2, "two");
        queues.insert('a', 5, "five");
        queues.insert('a', 3, "three");
        assert_eq!((queues.len(), queues.len_of('a'), queues.len_of('c')), (4, 3, 0));
        assert_eq!((queues.first_number('a'), queues.first_number('c')), (Some(1), None));
        assert_eq!(queues.of_mut('a').map(|item| *item).collect::<Vec<_>>(), ["one", "three", "five"]);
        assert_eq!(queues.pop_if('a', |item| *item == "three"), None, "it is the second");
        assert_eq!(
            (queues.pop('a'), queues.pop('a'), queues.first_number('a')),
            (Some("one"), Some("three"), Some(5))
        );
        assert_eq!((queues.pop('a'), queues.pop('a'), queues.queues.len()), (Some("five"), None, 1));
    }

    #[test]
    fn what_is_taken_comes_in_order_and_the_rest_stays_in_order() {
        let mut queues = Queues::new();
        for number in 0..100u64 {
            queues.insert(number % 7, number, number);
        }
        let taken: Vec<u64> =
            queues.take(|_, number| number % 2 == 1).into_iter().map(|(_, item)| item).collect();
        assert_eq!(taken, (0..100).filter(|number| number % 2 == 1).collect::<Vec<_>>());
        assert_eq!(queues.len(), 50);
        let fourth: Vec<u64> = queues.of_mut(4).map(|number| *number).collect();
        assert_eq!(fourth, [4, 18, 32, 46, 60, 74, 88]);
    }
}
