//! PointToPoint between two ranks beyond `send` and `recv`: both at once, batches, probes.

use unisono_communicator::{
    Buffer, BufferMut, Call, Communicator, Element, Error, Operation, Outcome, Peer, Probed, Received,
    Result, Site, Tag, check,
};

use crate::arguments::message_descriptor;
use crate::skip::{NOBODY, skip};

/// PointToPoint between two ranks, as users of MPI know them. [`crate::Collectives`] has `send` and `recv`.
///
/// # Errors
/// As [`crate::Collectives::send`] and [`crate::Collectives::recv`].
pub trait PointToPoint: Communicator {
    /// Sends `message` to `destination` and receives into `buffer` from `source`, both with `tag`, and returns when
    /// both have ended: the exchange of neighbours, which cannot deadlock however long the messages are (MPI 4.1,
    /// section 3.10). [`Peer::None`] on either side moves nothing there.
    ///
    /// Cost: a send and a receive at once. It allocates nothing.
    ///
    /// ```text
    /// rank                              0      1      2      3
    /// message                           [1]    [2]    [3]    [4]
    /// buffer, in a ring, to the right   [4]    [1]    [2]    [3]
    /// buffer, in a row, to the right    [_]    [1]    [2]    [3]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Communicator, PointToPoint, Solo};
    /// let comm = Solo::new();
    /// let (right, left) = ((comm.rank() + 1) % comm.size(), (comm.rank() + comm.size() - 1) % comm.size());
    /// let mut edge = [0.0f64; 2];
    /// let received = comm.send_recv(&[1.0, 2.0], right, &mut edge, left, 0)?;
    /// assert_eq!((edge, received.count), ([1.0, 2.0], 2));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[doc(alias = "MPI_Sendrecv")]
    #[track_caller]
    fn send_recv<T: Element>(
        &self,
        message: &[T],
        destination: impl Into<Peer>,
        buffer: &mut [T],
        source: impl Into<Peer>,
        tag: u32,
    ) -> Result<Received> {
        let mut calls =
            [send_call(message, destination.into(), tag), recv_call(buffer, source.into(), tag.into())];
        let mut results = [None, None];
        exchange(self, &mut calls, &mut results)?;
        let [sent, received] = results;
        result_of(sent, &calls[0])?;
        result_of(received, &calls[1]).map(|outcome| Received::of(&outcome, T::DTYPE))
    }

    /// Starts all sends and receives of a batch, then waits for all of them: they cannot deadlock, in any order. The
    /// arguments of all are checked before any starts. Gives the results of the receives, in their order.
    ///
    /// Cost: the messages of the batch, and memory for its list.
    ///
    /// ```text
    /// rank                          0      1         2         3
    /// sends to both neighbours      [1]    [2]       [3]       [4]
    /// receives from both            [2]    [1, 3]    [2, 4]    [3]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Batch, PointToPoint, Peer, Solo};
    /// let comm = Solo::new();
    /// let (mut above, mut below) = ([0u8; 2], [0u16; 1]);
    /// let mut batch = Batch::new();
    /// batch.recv(&mut above, 0, 1).recv(&mut below, Peer::None, 2).send(&[5u8, 6], 0, 1);
    /// let received = comm.exchange(batch)?;
    /// assert_eq!((above, received[0].source, received[1].source), ([5, 6], Some(0), None));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for one of them, and none starts. A receive that refuses its message (too long, of
    /// another type) disturbs no other; the first error in the order of the batch is returned when all have ended.
    #[doc(alias = "batch_isend_irecv")]
    fn exchange(&self, batch: Batch<'_>) -> Result<Vec<Received>> {
        exchanged(self, &mut { batch.calls })
    }

    /// Waits for a message and gives it without receiving it, so that the buffer can have its length. `source` may be
    /// [`Peer::Any`], `tag` may be [`Tag::Any`]; of several messages the oldest is found. Nobody else receives it
    /// meanwhile; see [`Probed`]. `recv_vec` is the short way for a message of a known type.
    ///
    /// Cost: no message of its own.
    ///
    /// ```text
    /// rank           0                       1    2    3
    /// calls          send(&[1, 2], 3, 9)     -    -    probe(Peer::Any, Tag::Any)
    /// is given       -                       -    -    source 0, tag 9, 2 elements, which are still to be received
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, PointToPoint, Solo, Tag};
    /// let comm = Solo::new();
    /// comm.send(&[1u16, 2, 3], 0, 9)?;
    /// let message = comm.probe(0, Tag::Any)?;
    /// assert_eq!((message.tag(), message.recv_vec::<u16>()?), (9, vec![1, 2, 3]));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[doc(alias = "MPI_Mprobe")]
    #[track_caller]
    fn probe(&self, source: impl Into<Peer>, tag: impl Into<Tag>) -> Result<Probed> {
        let mut call = recv_call::<u8>(&mut [], source.into(), tag.into());
        match over(self, &mut call)? {
            Some(result) => result.map(|_| Probed::of_nobody()),
            None => match self.life().probe(&mut call, true) {
                Ok(Some(found)) => Ok(found),
                Ok(None) => Err(Error::closed().in_call(&call)),
                Err(error) => Err(error.in_call(&call)),
            },
        }
    }

    /// [`PointToPoint::probe`] without waiting: `None` if no message has arrived. It looks at the streams of all
    /// sources, so a loop of it finds each message.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, PointToPoint, Peer, Solo, Tag};
    /// let comm = Solo::new();
    /// assert!(comm.try_probe(Peer::Any, Tag::Any)?.is_none());
    /// comm.send(&[1u8], 0, 9)?;
    /// assert_eq!(comm.try_probe(Peer::Any, 9)?.and_then(|message| message.count::<u8>()), Some(1));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[doc(alias = "MPI_Iprobe")]
    #[doc(alias = "MPI_Improbe")]
    #[track_caller]
    fn try_probe(&self, source: impl Into<Peer>, tag: impl Into<Tag>) -> Result<Option<Probed>> {
        let mut call = recv_call::<u8>(&mut [], source.into(), tag.into());
        match over(self, &mut call)? {
            Some(result) => result.map(|_| Some(Probed::of_nobody())),
            None => self.life().probe(&mut call, false).map_err(|error| error.in_call(&call)),
        }
    }
}

impl<C: Communicator + ?Sized> PointToPoint for C {}

/// Sends and receives that [`PointToPoint::exchange`] starts together.
#[derive(Default)]
pub struct Batch<'a> {
    calls: Vec<Call<'a>>,
}

impl<'a> Batch<'a> {
    /// An empty batch.
    pub fn new() -> Batch<'a> {
        Batch::default()
    }

    /// Adds a send; see [`crate::Collectives::send`].
    #[track_caller]
    pub fn send<T: Element>(&mut self, message: &'a [T], peer: impl Into<Peer>, tag: u32) -> &mut Batch<'a> {
        self.calls.push(send_call(message, peer.into(), tag));
        self
    }

    /// Adds a receive; see [`crate::Collectives::recv`].
    #[track_caller]
    pub fn recv<T: Element>(
        &mut self,
        buffer: &'a mut [T],
        peer: impl Into<Peer>,
        tag: impl Into<Tag>,
    ) -> &mut Batch<'a> {
        self.calls.push(recv_call(buffer, peer.into(), tag.into()));
        self
    }

    /// Makes `site` the line of all its sends and receives, for functions that make batches for their callers.
    pub fn at(&mut self, site: Site) -> &mut Batch<'a> {
        self.calls.iter_mut().for_each(|call| call.site = site);
        self
    }
}

#[inline]
#[track_caller]
pub(crate) fn send_call<T: Element>(message: &[T], peer: Peer, tag: u32) -> Call<'_> {
    let descriptor = message_descriptor(Operation::Send, T::DTYPE, message.len(), peer, tag.into());
    Call::separate(descriptor, Buffer::of(message), BufferMut::empty())
}

#[inline]
#[track_caller]
pub(crate) fn recv_call<T: Element>(buffer: &mut [T], peer: Peer, tag: Tag) -> Call<'_> {
    let descriptor = message_descriptor(Operation::Recv, T::DTYPE, buffer.len(), peer, tag);
    Call::separate(descriptor, Buffer::empty(), BufferMut::of(buffer))
}

/// Runs the calls of a batch. Gives the results of its receives.
pub(crate) fn exchanged<C: Communicator + ?Sized>(comm: &C, calls: &mut [Call<'_>]) -> Result<Vec<Received>> {
    let mut results = vec![None; calls.len()];
    exchange(comm, calls, &mut results)?;
    let mut received = Vec::new();
    for (call, result) in calls.iter().zip(results) {
        let outcome = result_of(result, call)?;
        if call.descriptor.operation == Operation::Recv {
            received.push(Received::of(&outcome, call.descriptor.dtype));
        }
    }
    Ok(received)
}

/// Runs the calls of a batch that a backend enqueues as one. Gives the outcome of all.
pub(crate) fn exchange_as_one<C: Communicator + ?Sized>(comm: &C, calls: &mut [Call<'_>]) -> Result<Outcome> {
    let mut results = vec![None; calls.len()];
    exchange(comm, calls, &mut results)?;
    let mut all = Outcome::done(0, NOBODY);
    for (call, result) in calls.iter().zip(results) {
        let outcome = result_of(result, call)?;
        if outcome.ticket().is_some() {
            all = Outcome { bytes: all.bytes + outcome.bytes, source: None, ..outcome };
        }
    }
    Ok(all)
}

/// Checks all calls, then runs them, except for messages of nobody and calls that are switched off. Gives the result
/// of each.
fn exchange<C: Communicator + ?Sized>(
    comm: &C,
    calls: &mut [Call<'_>],
    results: &mut [Option<Result<Outcome>>],
) -> Result<()> {
    for (call, result) in calls.iter_mut().zip(&mut *results) {
        *result = over(comm, call)?;
    }
    if results.iter().all(Option::is_some) {
        return Ok(());
    }
    comm.life().exchange(calls, results).map_err(|error| match calls.first() {
        Some(first) => error.in_call(first),
        None => error,
    })
}

/// Checks a call. Gives its result if no backend need see it.
fn over<C: Communicator + ?Sized>(comm: &C, call: &mut Call<'_>) -> Result<Option<Result<Outcome>>> {
    call.descriptor.label = call.descriptor.label.or(call.options.label);
    check(call, comm.group()).map_err(|error| error.in_call(call))?;
    Ok(skip(comm, &call.descriptor, &call.options))
}

fn result_of(result: Option<Result<Outcome>>, call: &Call<'_>) -> Result<Outcome> {
    result.unwrap_or(Err(Error::closed())).map_err(|error| error.in_call(call))
}
