//! The table of a holder: each operation, its limits, repeated requests, and any run of requests against a model.

use std::collections::BTreeMap;

use proptest::prelude::*;
use unisono_backend::CommunicatorKey;
use unisono_communicator::JobRank;

use super::message::*;
use super::table::StoreTable;

fn key(store: u64, key: &str) -> StoreKey {
    StoreKey { store: CommunicatorKey { id: store, epoch: 0 }, key: key.into() }
}

fn request(slot: u16, sequence: u64, key: StoreKey, operation: StoreOperation) -> StoreRequest {
    StoreRequest { call: StoreCallId { slot, sequence }, key, operation }
}

/// A table, and the number of requests that it has had.
#[derive(Default)]
struct Holder {
    table: StoreTable,
    sequence: u64,
}

impl Holder {
    /// The answers to a request: receiver, slot, result.
    fn ask(&mut self, from: u32, request: StoreRequest) -> Vec<(u32, u16, StoreReply)> {
        self.table.on_request(JobRank::new(from), request);
        let answers = self.table.take_answers().into_iter();
        answers.map(|(to, answer)| (to.get(), answer.call.slot, answer.reply)).collect()
    }

    /// The bytes that the table counts are the bytes that it keeps.
    fn check_bytes(&self) {
        let (counted, anew) = self.table.counted_bytes();
        assert!(counted == anew && counted <= STORE_BYTES_MAX, "{counted}, not {anew}");
    }

    /// The one answer to an operation on `key` in slot 0 of rank 0.
    fn carry_out(&mut self, name: &str, operation: StoreOperation) -> StoreReply {
        self.sequence += 1;
        let mut answers = self.ask(0, request(0, self.sequence, key(0, name), operation));
        answers.retain(|(to, ..)| *to == 0);
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0).2
    }
}

fn set(value: &str) -> StoreOperation {
    StoreOperation::Set(value.as_bytes().into())
}

fn value(text: &str) -> StoreReply {
    StoreReply::Value(text.as_bytes().into())
}

fn swap(expected: &str, desired: &str) -> StoreOperation {
    StoreOperation::CompareAndSet { expected: expected.as_bytes().into(), desired: desired.as_bytes().into() }
}

#[test]
fn operations_have_the_results_of_their_documentation() {
    let mut holder = Holder::default();
    let mut check = |name: &str, operation: StoreOperation, expected: StoreReply| {
        assert_eq!(holder.carry_out(name, operation.clone()), expected, "{operation:?}");
    };
    check("a", StoreOperation::TryGet, StoreReply::Missing);
    check("a", set("1"), StoreReply::Done);
    check("a", StoreOperation::TryGet, value("1"));
    check("a", StoreOperation::Get, value("1"));
    check("a", StoreOperation::Wait, StoreReply::Done);
    check("a", StoreOperation::Add(4), StoreReply::Number(5));
    check("n", StoreOperation::Add(-7), StoreReply::Number(-7));
    check("n", StoreOperation::Get, value("-7"));
    check("n", StoreOperation::Add(i64::MIN), StoreReply::Refused(StoreRefusal::Overflow));
    check("n", StoreOperation::Get, value("-7"));
    check("t", set("text"), StoreReply::Done);
    check("t", StoreOperation::Add(0), StoreReply::Refused(StoreRefusal::NotANumber));
    check("leader", swap("other", "me"), value(""));
    check("leader", StoreOperation::TryGet, StoreReply::Missing);
    check("leader", swap("", "me"), value("me"));
    check("leader", swap("", "you"), value("me"));
    check("leader", swap("me", "you"), value("you"));
    check("", StoreOperation::Count, StoreReply::Count(4));
    check("le", StoreOperation::Count, StoreReply::Count(1));
    check("leader", StoreOperation::Delete, StoreReply::Deleted(true));
    check("leader", StoreOperation::Delete, StoreReply::Deleted(false));
    check("le", StoreOperation::Count, StoreReply::Count(0));
}

#[test]
fn stores_of_two_communicators_have_nothing_in_common() {
    let mut holder = Holder::default();
    holder.ask(0, request(0, 1, key(0, "a"), set("1")));
    assert_eq!(holder.ask(0, request(0, 2, key(7, "a"), StoreOperation::TryGet))[0].2, StoreReply::Missing);
    assert_eq!(holder.ask(0, request(0, 3, key(7, ""), StoreOperation::Count))[0].2, StoreReply::Count(0));
    assert_eq!(holder.ask(0, request(0, 4, key(0, ""), StoreOperation::Count))[0].2, StoreReply::Count(1));
}

#[test]
fn a_wait_ends_with_the_key_and_a_rank_that_is_gone_waits_no_more() {
    let mut holder = Holder::default();
    for (rank, slot, operation) in
        [(1, 0, StoreOperation::Get), (2, 5, StoreOperation::Wait), (3, 0, StoreOperation::Get)]
    {
        assert_eq!(holder.ask(rank, request(slot, 9, key(0, "a"), operation)), []);
    }
    assert_eq!(holder.table.slots(), (3, 3));
    holder.table.remove_rank(JobRank::new(3));
    assert_eq!(holder.table.slots(), (2, 2), "nothing is left of it");
    let answers = holder.ask(0, request(0, 1, key(0, "a"), set("x")));
    assert_eq!(answers, [(1, 0, value("x")), (2, 5, StoreReply::Done), (0, 0, StoreReply::Done)]);
    assert_eq!(holder.table.slots(), (0, 3));
}

#[test]
fn a_slot_that_is_used_again_waits_no_more() {
    let mut holder = Holder::default();
    assert_eq!(holder.ask(1, request(0, 1, key(0, "a"), StoreOperation::Get)), []);
    assert_eq!(holder.ask(1, request(0, 2, key(0, "b"), StoreOperation::Get)), []);
    assert_eq!(holder.table.slots(), (1, 1));
    assert_eq!(holder.ask(1, request(0, 1, key(0, "a"), StoreOperation::Get)), [], "it comes late");
    assert_eq!(holder.ask(0, request(0, 1, key(0, "a"), set("x"))), [(0, 0, StoreReply::Done)]);
    assert_eq!(holder.ask(0, request(0, 2, key(0, "b"), set("y"))).len(), 2);
}

#[test]
fn a_repeated_request_gets_its_answer_again_and_has_no_second_effect() {
    let mut holder = Holder::default();
    let add = request(3, 1, key(0, "n"), StoreOperation::Add(1));
    for _ in 0..3 {
        assert_eq!(holder.ask(1, add.clone()), [(1, 3, StoreReply::Number(1))]);
    }
    assert_eq!(holder.ask(2, add.clone()), [(2, 3, StoreReply::Number(2))], "another rank's");
    assert_eq!(holder.ask(1, add), [(1, 3, StoreReply::Number(1))]);
    // A comparison that has failed once does not succeed at its repetition.
    let compare = request(4, 2, key(0, "n"), swap("3", "0"));
    assert_eq!(holder.ask(1, compare.clone()), [(1, 4, value("2"))]);
    assert_eq!(holder.ask(2, request(3, 2, key(0, "n"), StoreOperation::Add(1))).len(), 1);
    assert_eq!(holder.ask(1, compare), [(1, 4, value("2"))]);
}

#[test]
fn a_million_keys_end_in_a_refusal_and_deletes_make_room() {
    let mut holder = Holder::default();
    let full = StoreReply::Refused(StoreRefusal::Full);
    let stored = (0..1_000_000)
        .take_while(|number| holder.carry_out(&format!("key {number}"), set("")) == StoreReply::Done)
        .count();
    assert!((400_000..STORE_BYTES_MAX / ENTRY_BYTES).contains(&stored), "{stored} keys");
    assert_eq!(holder.carry_out("another", StoreOperation::Add(1)), full);
    assert_eq!(holder.carry_out("another", swap("", "x")), full);
    let wait = request(1, 1, key(0, "another"), StoreOperation::Get);
    assert_eq!(holder.ask(1, wait.clone()), [(1, 1, full)]);
    assert_eq!(holder.carry_out("key 7", StoreOperation::Delete), StoreReply::Deleted(true));
    assert_eq!(holder.carry_out("another", set("")), StoreReply::Done);
    assert_eq!(holder.ask(1, wait), [(1, 1, value(""))]);
    holder.check_bytes();
}

/// One event of a run: a request of a rank in a slot, on one of few keys, that perhaps repeats the last one of the
/// slot; or the end of a rank.
#[derive(Clone, Debug)]
enum Event {
    Request { rank: u32, slot: u16, name: u8, operation: StoreOperation },
    Repeat { rank: u32, slot: u16 },
    Gone { rank: u32 },
}

fn operation() -> impl Strategy<Value = StoreOperation> {
    let text = || prop::sample::select(vec!["", "1", "5", "x"]);
    prop_oneof![
        text().prop_map(set),
        Just(StoreOperation::Get),
        Just(StoreOperation::TryGet),
        Just(StoreOperation::Wait),
        (-2i64..3).prop_map(StoreOperation::Add),
        (text(), text()).prop_map(|(expected, desired)| swap(expected, desired)),
        Just(StoreOperation::Delete),
        Just(StoreOperation::Count),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let place = || (0u32..3, 0u16..2);
    prop_oneof![
        8 => (place(), 0u8..3, operation()).prop_map(|((rank, slot), name, operation)| {
            Event::Request { rank, slot, name, operation }
        }),
        3 => place().prop_map(|(rank, slot)| Event::Repeat { rank, slot }),
        1 => (0u32..3).prop_map(|rank| Event::Gone { rank }),
    ]
}

/// The stores without slots and repetitions.
#[derive(Default)]
struct Model {
    entries: BTreeMap<String, Vec<u8>>,
    waits: BTreeMap<(u32, u16), (String, bool)>,
}

impl Model {
    /// The answers to a new request.
    fn ask(
        &mut self,
        place: (u32, u16),
        name: &str,
        operation: &StoreOperation,
    ) -> Vec<(u32, u16, StoreReply)> {
        self.waits.remove(&place);
        let value = |bytes: &[u8]| StoreReply::Value(bytes.into());
        let before = self.entries.get(name).cloned();
        let mut new = None;
        let reply = match (operation, &before) {
            (StoreOperation::Set(bytes), _) => {
                new = Some(bytes.to_vec());
                StoreReply::Done
            }
            (StoreOperation::Get | StoreOperation::TryGet, Some(bytes)) => value(bytes),
            (StoreOperation::TryGet, None) => StoreReply::Missing,
            (StoreOperation::Wait, Some(_)) => StoreReply::Done,
            (StoreOperation::Get | StoreOperation::Wait, None) => {
                self.waits.insert(place, (name.to_owned(), *operation == StoreOperation::Get));
                return Vec::new();
            }
            (StoreOperation::Add(number), _) => {
                let text = String::from_utf8(before.unwrap_or(b"0".to_vec())).unwrap();
                match text.parse::<i64>() {
                    Ok(old) => {
                        new = Some((old + number).to_string().into_bytes());
                        StoreReply::Number(old + number)
                    }
                    Err(_) => StoreReply::Refused(StoreRefusal::NotANumber),
                }
            }
            (StoreOperation::CompareAndSet { expected, desired }, _) => {
                let old = before.unwrap_or_default();
                let is_equal = old[..] == expected[..];
                new = is_equal.then(|| desired.to_vec());
                value(if is_equal { desired } else { &old })
            }
            (StoreOperation::Delete, _) => StoreReply::Deleted(self.entries.remove(name).is_some()),
            (StoreOperation::Count, _) => {
                let keys = self.entries.keys().filter(|key| key.starts_with(name));
                StoreReply::Count(keys.count() as u64)
            }
        };
        let mut answers = Vec::new();
        if let Some(bytes) = new {
            let woken: Vec<_> = self.waits.iter().filter(|(_, wait)| wait.0 == name).collect();
            answers.extend(woken.iter().map(|((rank, slot), (_, wants_value))| {
                (*rank, *slot, if *wants_value { value(&bytes) } else { StoreReply::Done })
            }));
            self.waits.retain(|_, wait| wait.0 != name);
            self.entries.insert(name.to_owned(), bytes);
        }
        answers.push((place.0, place.1, reply));
        answers
    }
}

proptest! {
    #[test]
    fn any_run_of_requests_has_the_answers_of_the_model(events in prop::collection::vec(event(), 0..60)) {
        let (mut holder, mut model) = (Holder::default(), Model::default());
        let mut sent = BTreeMap::new();
        for event in events {
            match event {
                Event::Request { rank, slot, name, operation } => {
                    let name = ["", "k", "key"][usize::from(name)];
                    holder.sequence += 1;
                    let new = request(slot, holder.sequence, key(0, name), operation.clone());
                    let expected = model.ask((rank, slot), name, &operation);
                    prop_assert_eq!(holder.ask(rank, new.clone()), expected.clone());
                    let reply = expected.last().filter(|one| (one.0, one.1) == (rank, slot)).cloned();
                    sent.insert((rank, slot), (new, reply));
                }
                Event::Repeat { rank, slot } => {
                    let Some((last, reply)) = sent.get(&(rank, slot)).cloned() else { continue };
                    let is_read = !matches!(
                        last.operation,
                        StoreOperation::Set(_)
                            | StoreOperation::Add(_)
                            | StoreOperation::CompareAndSet { .. }
                            | StoreOperation::Delete
                    );
                    let name = last.key.key.to_string();
                    let answers = holder.ask(rank, last.clone());
                    let expected = match (model.waits.contains_key(&(rank, slot)), is_read) {
                        (true, _) => Vec::new(),
                        (false, true) => model.ask((rank, slot), &name, &last.operation),
                        (false, false) => Vec::from_iter(reply),
                    };
                    prop_assert_eq!(answers, expected);
                }
                Event::Gone { rank } => {
                    holder.table.remove_rank(JobRank::new(rank));
                    model.waits.retain(|(waiting, _), _| *waiting != rank);
                    sent.retain(|(gone, _), _| *gone != rank);
                }
            }
            prop_assert_eq!(holder.table.slots().0, model.waits.len());
            holder.check_bytes();
        }
    }
}
