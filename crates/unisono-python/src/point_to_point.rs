//! Messages between two ranks.

use pyo3::prelude::*;
use unisono::call::{Descriptor, Division};
use unisono::extend::calls::Operation;
use unisono::{Collectives, CollectivesGrouped, PointToPoint, Tag};

use crate::building::{Argument, Given, Maybe, given};
use crate::communicator::Communicator;
use crate::errors::invalid;
use crate::forms::calls;
use crate::interrupt::waiting;
use crate::message::Message;
use crate::messages::{Received, peer, tag};
use crate::request::{Arrays, Memory, Request};
use crate::results::Gives;
use crate::site::site;

fn sending(
    array: Argument<'_, '_>,
    destination: Argument<'_, '_>,
    tag: u32,
    dtype: Option<&str>,
) -> PyResult<Request> {
    let message = given(array, "array", dtype, Division::Anywhere)?;
    let descriptor =
        Descriptor { tag: Tag::Is(tag), ..to_peer(Operation::Send, &message, destination, "destination")? };
    let memory = Memory::Separate { input: message.arrays, output: Arrays::None };
    Ok(Request::new(descriptor, memory, Gives::Nothing))
}

fn receiving(
    out: Argument<'_, '_>,
    source: Argument<'_, '_>,
    tagged: Maybe<'_, '_>,
    dtype: Option<&str>,
) -> PyResult<Request> {
    let room = given(out, "out", dtype, Division::Anywhere)?;
    let descriptor = Descriptor { tag: tag(tagged)?, ..to_peer(Operation::Recv, &room, source, "source")? };
    let memory = Memory::Separate { input: Arrays::None, output: room.arrays };
    Ok(Request::new(descriptor, memory, Gives::Received))
}

fn to_peer(
    operation: Operation,
    message: &Given<'_, '_>,
    other: Argument<'_, '_>,
    name: &'static str,
) -> PyResult<Descriptor> {
    Ok(Descriptor {
        peer: Some(peer(other, name)?),
        ..Descriptor::new(operation, message.dtype, message.count)
    })
}

calls! {
    /// Sends the array as one message. `destination` is a rank, or `None` for nobody. It may return before the message
    /// was received, or wait until it is.
    send, send_async (array, destination, tag = 0, *, dtype = None)
        [array: Argument<'_, '_>, destination: Argument<'_, '_>, tag: u32, dtype: Option<&str>]
        |_comm| sending(array, destination, tag, dtype);

    /// Receives the next message of `source` with `tag` into `out`, which may be longer. `source` is a rank, `ANY`, or
    /// `None` for nobody; `tag` is a number or `ANY`.
    recv, recv_async (out, source, tag = None, *, dtype = None)
        [out: Argument<'_, '_>, source: Argument<'_, '_>, tag: Maybe<'_, '_>, dtype: Option<&str>]
        |_comm| receiving(out, source, tag, dtype);
}

#[pymethods]
impl Communicator {
    /// Sends `array` to `destination` and receives into `out` from `source`; both begin at once, so two ranks may send
    /// to each other.
    #[pyo3(signature = (array, destination, out, source, tag = 0, *, dtype = None))]
    #[expect(clippy::too_many_arguments, reason = "those of a send and of a receive")]
    fn send_recv(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        destination: Argument<'_, '_>,
        out: Argument<'_, '_>,
        source: Argument<'_, '_>,
        tag: u32,
        dtype: Option<&str>,
    ) -> PyResult<Received> {
        let tagged = tag.into_pyobject(py)?;
        let mut sent = sending(array, destination, tag, dtype)?;
        let mut received = receiving(out, source, Some(tagged.as_any()), dtype)?;
        Memory::check_all(py, [&sent.memory, &received.memory])?;
        let (site, dtype) = (site(py), received.descriptor.dtype);
        let calls = [sent.call(self, site), received.call(self, site)];
        let communicator = &*self.inner;
        let both = || communicator.group_calls(|group| calls.into_iter().for_each(|call| group.call(call)));
        let received = waiting(py, both)?;
        let Some(unisono::Received { source, tag, count }) = received.first().copied() else {
            return Err(invalid(py, "out", "nothing was received"));
        };
        Ok(Received::new(source, tag, count as u64, dtype))
    }

    /// Waits for a message of `source` with `tag`, and takes it out of the order of messages: only its `recv` receives
    /// it. `source` and `tag` may be `ANY`.
    #[pyo3(signature = (source, tag = None))]
    fn probe(&self, py: Python<'_>, source: Argument<'_, '_>, tag: Maybe<'_, '_>) -> PyResult<Message> {
        let (source, tagged, at) = (peer(source, "source")?, crate::messages::tag(tag)?, self.at(py));
        let options = self.options;
        let probed = waiting(py, || at.with(options).probe(source, tagged))?;
        Ok(Message::new(probed))
    }

    /// As probe, but `None` when no such message is there now.
    #[pyo3(signature = (source, tag = None))]
    fn try_probe(
        &self,
        py: Python<'_>,
        source: Argument<'_, '_>,
        tag: Maybe<'_, '_>,
    ) -> PyResult<Option<Message>> {
        let (source, tagged, at) = (peer(source, "source")?, crate::messages::tag(tag)?, self.at(py));
        let options = self.options;
        let probed = waiting(py, || at.with(options).try_probe(source, tagged))?;
        Ok(probed.map(Message::new))
    }
}
