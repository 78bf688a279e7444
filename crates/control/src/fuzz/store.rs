//! Fuzzed messages of stores, for the target `control`.

use super::input::Input;
use crate::store::{
    StoreAnswer, StoreCallId, StoreKey, StoreOperation, StoreRefusal, StoreReply, StoreRequest,
};
use crate::wire::CommunicatorKey;

/// A request of few slots, on few keys of two stores.
pub(super) fn store_request(input: &mut Input<'_>) -> StoreRequest {
    let call = call(input);
    let store = CommunicatorKey { id: input.below(2).into(), epoch: 0 };
    let key = ["", "a", "ab"][usize::from(input.below(3))].into();
    let operation = match input.below(8) {
        0 => StoreOperation::Set(value(input).into()),
        1 => StoreOperation::Get,
        2 => StoreOperation::TryGet,
        3 => StoreOperation::Wait,
        4 => StoreOperation::Add(i64::from(input.u8()) << (8 * input.below(8))),
        5 => StoreOperation::CompareAndSet { expected: value(input).into(), desired: value(input).into() },
        6 => StoreOperation::Delete,
        _ => StoreOperation::Count,
    };
    StoreRequest { call, key: StoreKey { store, key }, operation }
}

/// An answer, perhaps to a call of this rank.
pub(super) fn store_answer(input: &mut Input<'_>) -> StoreAnswer {
    let call = call(input);
    let reply = match input.below(7) {
        0 => StoreReply::Done,
        1 => StoreReply::Value(value(input).into()),
        2 => StoreReply::Missing,
        3 => StoreReply::Number(input.u8().into()),
        4 => StoreReply::Deleted(input.below(2) > 0),
        5 => StoreReply::Count(input.u8().into()),
        _ => {
            let refusals = [StoreRefusal::Full, StoreRefusal::NotANumber, StoreRefusal::Overflow];
            StoreReply::Refused(refusals[usize::from(input.below(3))])
        }
    };
    StoreAnswer { call, reply }
}

fn call(input: &mut Input<'_>) -> StoreCallId {
    StoreCallId { slot: input.below(3).into(), sequence: input.below(16).into() }
}

fn value<'a>(input: &mut Input<'a>) -> &'a [u8] {
    let bytes = usize::from(input.below(4));
    input.take(bytes)
}
