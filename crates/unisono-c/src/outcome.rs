//! The outcome of a call, for C.

use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::sync::{LazyLock, PoisonError, RwLock};

use unisono::Outcome;
use unisono::extend::calls::Completion;

use crate::error::c_text;

/// The outcome of a call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OutcomeFields {
    /// The rank of the communicator that sent the message; -1 in calls but recv, and from nobody.
    pub source: i64,
    /// Bytes received (recv), or bytes of this rank's buffer.
    pub bytes: u64,
    /// The name of the algorithm that ran; valid for ever.
    pub algorithm: *const c_char,
    /// The tag of the message (recv).
    pub tag: u32,
    /// 1 if the operation is switched off (UNISONO_SKIP), and the buffers are untouched; else 0.
    pub is_skipped: u32,
    /// 0.
    pub reserved: [u64; 4],
}

impl OutcomeFields {
    /// The outcome for C.
    pub(crate) fn of(outcome: &Outcome) -> OutcomeFields {
        OutcomeFields {
            source: outcome.source.map_or(-1, i64::from),
            bytes: outcome.bytes,
            algorithm: algorithm_text(outcome.algorithm),
            tag: outcome.tag,
            is_skipped: match outcome.completion {
                Completion::Skipped => 1,
                Completion::Done | Completion::StreamOrdered(_) => 0,
            },
            reserved: [0; 4],
        }
    }
}

/// The name of an algorithm as a text of C, which the process keeps: there are as many as algorithms.
fn algorithm_text(name: &'static str) -> *const c_char {
    static KEPT: LazyLock<RwLock<HashMap<&'static str, CString>>> = LazyLock::new(RwLock::default);
    if let Some(text) = KEPT.read().unwrap_or_else(PoisonError::into_inner).get(name) {
        return text.as_ptr();
    }
    let mut kept = KEPT.write().unwrap_or_else(PoisonError::into_inner);
    kept.entry(name).or_insert_with(|| c_text(name)).as_ptr()
}
