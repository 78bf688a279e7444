//! Messages of the only rank to itself, and its asynchronous receives.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use unisono_communicator::{
    AfterEnd, Awaited, BufferMut, Buffers, CALL_TIMEOUT_DEFAULT, Call, CallInfo, Completion, DType, Ending,
    Error, GroupRank, JobRank, Outcome, OwnedCall, Recording, Result, Segments, Tag, deadline_after,
};

/// The algorithm in outcomes.
pub(crate) const ALGORITHM: &str = "local";
/// The only rank of the job.
pub(crate) const OWN: JobRank = JobRank::new(0);

pub(crate) struct Message {
    /// Its place in the order of sends.
    pub(crate) number: u64,
    pub(crate) tag: u32,
    pub(crate) dtype: DType,
    pub(crate) bytes: Vec<u8>,
}

impl Message {
    /// Writes the message into the memory of a receive that owns it, and makes room there if the receive did not know
    /// the length.
    pub(crate) fn deliver_owned(&self, call: &mut OwnedCall) -> Result<Outcome> {
        if call.descriptor.dtype == self.dtype {
            call.buffers.make_room(GroupRank::new(0), self.tag, self.bytes.len() as u64)?;
        }
        self.deliver(&mut call.borrow())
    }

    /// Writes the message into the memory of its receive.
    pub(crate) fn deliver(&self, call: &mut Call<'_>) -> Result<Outcome> {
        let (tag, dtype) = (self.tag, call.descriptor.dtype);
        if dtype != self.dtype {
            return Err(Error::invalid("dtype", format!("{dtype}, but rank 0 sent {}", self.dtype)));
        }
        let mut bytes = 0;
        if let Buffers::Separate { output: BufferMut::Host(output), .. } = &mut call.buffers {
            bytes = self.bytes.len() as u64;
            let room_bytes = output.bytes() as u64;
            if bytes > room_bytes {
                let source_rank = GroupRank::new(0);
                return Err(Error::Truncated { source_rank, tag, sent_bytes: bytes, room_bytes });
            }
            output.write_front(&Segments::One(&self.bytes));
        }
        Ok(Outcome { completion: Completion::Done, source: Some(0), tag, bytes, algorithm: ALGORITHM })
    }
}

/// A receive whose handle was returned before its message came.
pub(crate) struct PostedReceive {
    pub(crate) tag: Tag,
    pub(crate) posted: Instant,
    pub(crate) deadline: Instant,
    call: Mutex<Option<(OwnedCall, Option<Recording>)>>,
    pub(crate) ending: Ending,
}

impl PostedReceive {
    pub(crate) fn new(mut call: OwnedCall, recording: Option<Recording>) -> PostedReceive {
        let (tag, posted, deadline) = (call.descriptor.tag, Instant::now(), deadline(&call.borrow()));
        let call = Mutex::new(Some((call, recording)));
        PostedReceive { tag, posted, deadline, call, ending: Ending::default() }
    }

    /// Ends the receive. The caller has taken it out of the world's list, and holds no lock.
    pub(crate) fn end(&self, result: impl FnOnce(&mut OwnedCall) -> Result<Outcome>) {
        let call = self.call.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((mut call, recording)) = call else { return };
        let result = result(&mut call).map_err(|error| error.in_call(&call));
        if let Some(recording) = recording {
            recording.end((&result).into());
        }
        self.ending.end(result, Some(call.buffers)).into_iter().for_each(AfterEnd::run);
    }
}

pub(crate) fn deadline(call: &Call<'_>) -> Instant {
    deadline_after(Instant::now(), call.options.timeout.unwrap_or(CALL_TIMEOUT_DEFAULT))
}

pub(crate) fn info(call: &Call<'_>) -> CallInfo {
    CallInfo { site: call.site.text(), ..CallInfo::new(0, call.descriptor) }
}

/// The timeout of a call that has waited for `waited`.
pub(crate) fn timeout(call: CallInfo, waited: Duration, status: String) -> Error {
    let not_arrived = vec![Awaited { rank: OWN, status }];
    Error::Timeout { call: Box::new(call), reported_by: OWN, waited, not_arrived }
}

/// The timeout of a receive that has waited for `waited`.
pub(crate) fn no_message(call: &Call<'_>, waited: Duration) -> Error {
    timeout(info(call), waited, "has not sent".to_owned())
}
