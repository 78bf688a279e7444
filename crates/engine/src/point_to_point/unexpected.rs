//! Messages that no receive has asked for yet: MPI's unexpected messages. The first that a receive takes is found in a
//! time that does not grow with their number, whether the receive names a source and a tag or takes any.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use unisono_communicator::{DType, GroupRank};

use super::frame::Message;
use super::queues::Queues;

/// A message without a receive.
pub(super) enum Arrived {
    /// A short message, with its bytes.
    Whole { message: Message, bytes: Vec<u8> },
    /// A long message, which waits at its sender.
    Request { message: Message },
}

impl Arrived {
    /// The message's header.
    pub(super) fn message(&self) -> &Message {
        match self {
            Arrived::Whole { message, .. } | Arrived::Request { message } => message,
        }
    }

    fn is_request(&self) -> bool {
        match self {
            Arrived::Request { .. } => true,
            Arrived::Whole { .. } => false,
        }
    }
}

/// A message, its source, and its place in the order of arrival.
pub(crate) struct Unread {
    pub(super) source: GroupRank,
    pub(super) number: u64,
    pub(super) arrived: Arrived,
}

impl Unread {
    /// The source and the tag.
    pub(crate) fn from(&self) -> (u32, u32) {
        (self.source.get(), self.arrived.message().tag)
    }

    /// The element type and the bytes.
    pub(crate) fn size(&self) -> (DType, u64) {
        let Message { dtype, bytes, .. } = *self.arrived.message();
        (dtype, bytes)
    }
}

/// The source and the tag of a receive; `None` if any will do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) source: Option<GroupRank>,
    pub(super) tag: Option<u32>,
}

/// As one number, which is hashed faster than each field with its presence. Each short message is looked up twice.
impl Hash for Wanted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let source = self.source.map_or(u32::MAX, GroupRank::get);
        state.write_u64(u64::from(source) << 32 | u64::from(self.tag.unwrap_or(u32::MAX)));
    }
}

/// The source and the tag of a message.
type Envelope = (GroupRank, u32);

/// Arrived messages, a queue for each source and tag.
pub(super) struct Unexpected {
    arrived: Queues<Envelope, Arrived>,
    /// The first message of each queue: by its number, by its tag and number, by its source and number.
    firsts: BTreeMap<u64, Envelope>,
    firsts_by_tag: BTreeSet<(u32, u64)>,
    firsts_by_source: BTreeSet<(GroupRank, u64)>,
}

impl Unexpected {
    pub(super) fn new() -> Unexpected {
        Unexpected {
            arrived: Queues::new(),
            firsts: BTreeMap::new(),
            firsts_by_tag: BTreeSet::new(),
            firsts_by_source: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.arrived.len()
    }

    /// The sources and tags, the oldest message first, with the number of messages of each.
    pub(super) fn oldest(&self) -> impl Iterator<Item = (GroupRank, u32, u64)> {
        self.firsts.values().map(|&(source, tag)| (source, tag, self.arrived.len_of((source, tag)) as u64))
    }

    /// Takes the oldest message that a receive wants.
    pub(super) fn take(&mut self, wanted: Wanted) -> Option<Unread> {
        let key = match (wanted.source, wanted.tag) {
            (Some(source), Some(tag)) => (source, tag),
            (Some(source), None) => {
                let (_, number) = self.firsts_by_source.range((source, 0)..=(source, u64::MAX)).next()?;
                *self.firsts.get(number)?
            }
            (None, Some(tag)) => {
                let (_, number) = self.firsts_by_tag.range((tag, 0)..=(tag, u64::MAX)).next()?;
                *self.firsts.get(number)?
            }
            (None, None) => *self.firsts.values().next()?,
        };
        let number = self.arrived.first_number(key)?;
        let arrived = self.arrived.pop(key)?;
        self.forget_first(key, number);
        if let Some(next) = self.arrived.first_number(key) {
            self.note_first(key, next);
        }
        Some(Unread { source: key.0, number, arrived })
    }

    /// Puts a message at its place: behind all others of its queue if it is new.
    pub(super) fn put(&mut self, Unread { source, number, arrived }: Unread) {
        let key = (source, arrived.message().tag);
        match self.arrived.first_number(key) {
            Some(first) if first < number => {}
            Some(first) => {
                self.forget_first(key, first);
                self.note_first(key, number);
            }
            None => self.note_first(key, number),
        }
        self.arrived.insert(key, number, arrived);
    }

    /// Forgets the long messages of a rank that has said goodbye, since they will not come. True if there were any.
    pub(super) fn forget_requests(&mut self, peer: GroupRank) -> bool {
        if self.arrived.take(|(source, _), arrived| *source == peer && arrived.is_request()).is_empty() {
            return false;
        }
        self.firsts.clear();
        self.firsts_by_tag.clear();
        self.firsts_by_source.clear();
        let firsts: Vec<_> = self.arrived.firsts().collect();
        firsts.into_iter().for_each(|(key, number)| self.note_first(key, number));
        true
    }

    fn note_first(&mut self, key @ (source, tag): Envelope, number: u64) {
        self.firsts.insert(number, key);
        self.firsts_by_tag.insert((tag, number));
        self.firsts_by_source.insert((source, number));
    }

    fn forget_first(&mut self, (source, tag): Envelope, number: u64) {
        self.firsts.remove(&number);
        self.firsts_by_tag.remove(&(tag, number));
        self.firsts_by_source.remove(&(source, number));
    }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::SplitMix;

    use super::*;

    fn unread(source: u32, tag: u32, number: u64) -> Unread {
        let message = Message { dtype: DType::U8, tag, number, bytes: 0 };
        let arrived = if number.is_multiple_of(3) {
            Arrived::Request { message }
        } else {
            Arrived::Whole { message, bytes: Vec::new() }
        };
        Unread { source: GroupRank::new(source), number, arrived }
    }

    /// Beside a plain list, in which the oldest message is searched for.
    #[test]
    fn each_receive_gets_the_oldest_message_that_fits_also_after_messages_were_put_back() {
        let mut random = SplitMix(54);
        let (mut unexpected, mut list, mut held) = (Unexpected::new(), Vec::new(), Vec::new());
        for number in 0..20_000u64 {
            let (source, tag) = (random.below(3) as u32, random.below(4) as u32);
            match random.below(20) {
                0..10 => {
                    unexpected.put(unread(source, tag, number));
                    list.push((number, source, tag));
                }
                10..18 => {
                    let wanted_source = (random.below(2) == 0).then_some(source);
                    let wanted_tag = (random.below(2) == 0).then_some(tag);
                    let fits = |&(_, source, tag): &(u64, u32, u32)| {
                        wanted_source.is_none_or(|wanted| wanted == source)
                            && wanted_tag.is_none_or(|wanted| wanted == tag)
                    };
                    let expected = list.iter().filter(|message| fits(message)).min().copied();
                    let taken = unexpected
                        .take(Wanted { source: wanted_source.map(GroupRank::new), tag: wanted_tag });
                    let shown = taken
                        .as_ref()
                        .map(|unread| (unread.number, unread.source.get(), unread.arrived.message().tag));
                    assert_eq!(shown, expected);
                    list.retain(|message| Some(*message) != expected);
                    held.extend(taken.filter(|_| random.below(2) == 0));
                }
                18 if !held.is_empty() => {
                    let back = held.swap_remove(random.below(held.len()));
                    list.push((back.number, back.source.get(), back.arrived.message().tag));
                    unexpected.put(back);
                }
                19 if random.below(50) == 0 => {
                    unexpected.forget_requests(GroupRank::new(source));
                    list.retain(|(number, of, _)| *of != source || !number.is_multiple_of(3));
                }
                _ => {}
            }
            assert_eq!(unexpected.len(), list.len());
            assert_eq!(unexpected.oldest().map(|(.., messages)| messages).sum::<u64>(), list.len() as u64);
        }
    }
}
