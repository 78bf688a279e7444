//! The operations on objects: values whose length other ranks do not know.

#[cfg(feature = "serde")]
mod decoder;
pub(crate) mod exchange;
pub(crate) mod object;

use bytes::Bytes;
use unisono_communicator::{
    Call, CallOptions, Communicator, Element, Error, GroupRank, Peer, Received, Result, Site, Tag,
};

use crate::asynchronous::{CollectivesAsync, message_of_any_length};
use crate::collectives::Collectives;
use crate::objects::exchange::OBJECT_BYTES_MAX;
use crate::objects::object::Object;
use crate::point_to_point::send_call;

/// Operations on objects, and on messages of unknown length. Objects need no agreement on their lengths.
///
/// A collective of objects is one call for objects of up to 1,000 bytes. If some object is longer, a second call
/// carries the rest of the longer ones. Both calls are in one [`Scope`](unisono_communicator::Scope), so each method is
/// [`Error::Unsupported`] on a [`Scope`](unisono_communicator::Scope).
///
/// The collectives have no asynchronous forms, because each rank decides between the two calls; a thread with a
/// [`Communicator::duplicate`] of its own makes them beside other work.
///
/// # Errors
/// [`Error::InvalidArgument`] for a root or a peer out of range, before anything is sent; for an object of more than
/// [`OBJECT_BYTES_MAX`] bytes and for an object that cannot be encoded, on every rank alike, after the first call; for
/// bytes that are no value of the type, on the rank that decodes them. The communicator stays usable. Else as
/// [`crate::Collectives`].
pub trait CollectivesOfObjects: Communicator {
    /// The root's object on every rank. The other ranks give `None`.
    ///
    /// Cost: a broadcast of 1,008 bytes, and for a longer object a broadcast of its rest.
    ///
    /// ```text
    /// rank              0          1                2          3
    /// object, root 1    None       Some("run 7")    None       None
    /// is given          "run 7"    "run 7"          "run 7"    "run 7"
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfObjects, Solo};
    /// let name = Solo::new().broadcast_object(Some("run 7".to_owned()), 0)?;
    /// assert_eq!(name, "run 7");
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn broadcast_object<O: Object>(&self, object: Option<O>, root: u32) -> Result<O> {
        let call = ("broadcast_object", Site::caller());
        let bytes = exchange::broadcast(self, object.map(encoded), root)?;
        decoded(self, call, bytes, root)
    }

    /// The objects of all ranks in rank order, on every rank.
    ///
    /// Cost: an all-gather of 1,008 bytes from each rank, and for longer objects an all-gather of their rests.
    ///
    /// ```text
    /// rank        0                       1                       2                       3
    /// object      "a"                     "bc"                    ""                      "d"
    /// is given    ["a", "bc", "", "d"]    ["a", "bc", "", "d"]    ["a", "bc", "", "d"]    ["a", "bc", "", "d"]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Bytes, CollectivesOfObjects, Solo};
    /// let all = Solo::new().all_gather_object(Bytes::from_static(b"state"))?;
    /// assert_eq!(all, ["state"]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_gather_object<O: Object>(&self, object: O) -> Result<Vec<O>> {
        let call = ("all_gather_object", Site::caller());
        let objects = exchange::gather(self, encoded(object), None)?.unwrap_or_default();
        (0..).zip(objects).map(|(rank, bytes)| decoded(self, call, bytes, rank)).collect()
    }

    /// The objects of all ranks in rank order on the root, `None` on the other ranks.
    ///
    /// Cost: an all-gather of 1,008 bytes from each rank, and for longer objects a gather of their rests.
    ///
    /// ```text
    /// rank                0       1                             2       3
    /// object              "a"     "bc"                          ""      "d"
    /// is given, root 1    None    Some(["a", "bc", "", "d"])    None    None
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfObjects, Solo};
    /// let all = Solo::new().gather_object("state".to_owned(), 0)?;
    /// assert_eq!(all, Some(vec!["state".to_owned()]));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn gather_object<O: Object>(&self, object: O, root: u32) -> Result<Option<Vec<O>>> {
        let call = ("gather_object", Site::caller());
        let Some(objects) = exchange::gather(self, encoded(object), Some(root))? else { return Ok(None) };
        let objects = (0..).zip(objects).map(|(rank, bytes)| decoded(self, call, bytes, rank));
        objects.collect::<Result<_>>().map(Some)
    }

    /// The object that the root has for this rank: the root gives one for each rank, the other ranks give `None`.
    ///
    /// Cost: a scatter of 1,000 bytes and p sizes to each rank, and for longer objects a scatter of their rests.
    ///
    /// ```text
    /// rank               0       1                             2       3
    /// objects, root 1    None    Some(["a", "bc", "", "d"])    None    None
    /// is given           "a"     "bc"                          ""      "d"
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfObjects, Solo};
    /// let work = Solo::new().scatter_object(Some(vec!["shard 0".to_owned()]), 0)?;
    /// assert_eq!(work, "shard 0");
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// Besides, [`Error::InvalidArgument`] for another number of objects, on the root, before anything is sent.
    #[track_caller]
    fn scatter_object<O: Object>(&self, objects: Option<Vec<O>>, root: u32) -> Result<O> {
        let call = ("scatter_object", Site::caller());
        let objects = objects.map(|objects| objects.into_iter().map(encoded).collect());
        let bytes = exchange::scatter(self, objects, root)?;
        decoded(self, call, bytes, root)
    }

    /// Sends the bytes of `object` to `peer` as one message. [`crate::Collectives::recv`] takes it too, as `u8`.
    ///
    /// Cost: as [`crate::Collectives::send`].
    ///
    /// ```text
    /// rank        0                            1    2    3
    /// calls       send_object("hello", 3, 7)   -    -    recv_object(Peer::Any, 7)
    /// is given    -                            -    -    "hello", source 0, tag 7, 5 bytes
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfObjects, Peer, Solo};
    /// let comm = Solo::new();
    /// comm.send_object("hello".to_owned(), 0, 7)?;
    /// let (text, received) = comm.recv_object::<String>(Peer::Any, 7)?;
    /// assert_eq!((text.as_str(), received.source), ("hello", Some(0)));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// An object that is too long, or that cannot be encoded, is an error before anything is sent.
    #[track_caller]
    fn send_object<O: Object>(&self, object: O, peer: impl Into<Peer>, tag: u32) -> Result<()> {
        let object = encoded(object);
        let bytes: &[u8] = object.as_ref().map_or(&[], |bytes| bytes);
        let call = Call { options: CallOptions::new().needed(), ..send_call(bytes, peer.into(), tag) };
        if let Err(error) = &object {
            return Err(error.clone().in_call(&call));
        }
        if bytes.len() as u64 > OBJECT_BYTES_MAX {
            let problem = format!("{} bytes, at most {OBJECT_BYTES_MAX}", bytes.len());
            return Err(Error::invalid("object", problem).in_call(&call));
        }
        self.issue(call).map(drop)
    }

    /// Receives the next message of `peer` with `tag` as an object. [`crate::Collectives::send`] sends it too, as `u8`.
    /// Of two threads that receive, each gets a whole message.
    ///
    /// # Errors
    /// [`Error::Truncated`] for a message of more than [`OBJECT_BYTES_MAX`] bytes; else as
    /// [`CollectivesOfObjects::recv_vec`]. The message is dropped; nothing else is affected.
    #[track_caller]
    fn recv_object<O: Object>(&self, peer: impl Into<Peer>, tag: impl Into<Tag>) -> Result<(O, Received)> {
        let call = ("recv_object", Site::caller());
        let options = CallOptions::new().needed();
        let work = message_of_any_length::<u8, _>(self, peer.into(), tag.into(), OBJECT_BYTES_MAX, options);
        let (bytes, received) = work.wait()?;
        let Some(source) = received.source else {
            let problem = "a receive from nobody gives no object";
            return Err(Error::invalid("peer", problem).in_call(&format_args!("{}{}", call.0, call.1.at())));
        };
        Ok((decoded(self, call, bytes.into(), source)?, received))
    }

    /// Receives the next message of `peer` with `tag`, of any length: memory for it is taken when the message is
    /// matched. Of two threads that receive, each gets a whole message.
    ///
    /// Cost: no message of its own, and the memory for the elements.
    ///
    /// ```text
    /// rank        0                        1    2    3
    /// calls       send(&[1.5, 2.0], 3, 7)  -    -    recv_vec(Peer::Any, 7)
    /// is given    -                        -    -    [1.5, 2.0], source 0, tag 7
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, CollectivesOfObjects, Peer, Solo};
    /// let comm = Solo::new();
    /// comm.send(&[1.5f32, 2.0], 0, 7)?;
    /// let (message, received) = comm.recv_vec::<f32>(Peer::Any, 7)?;
    /// assert_eq!((message, received.source), (vec![1.5, 2.0], Some(0)));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the message has another element type, or when there is no memory for it. The
    /// message is dropped; nothing else is affected.
    #[track_caller]
    fn recv_vec<T: Element>(&self, peer: impl Into<Peer>, tag: impl Into<Tag>) -> Result<(Vec<T>, Received)> {
        self.recv_vec_async(peer, tag).wait()
    }
}

impl<C: Communicator + ?Sized> CollectivesOfObjects for C {}

fn encoded<O: Object>(object: O) -> Result<Bytes> {
    object.encode().map_err(|problem| Error::invalid("object", problem))
}

/// The object that `rank` has sent in this call.
fn decoded<O: Object, C: Communicator + ?Sized>(
    comm: &C,
    (call, site): (&str, Site),
    bytes: Bytes,
    rank: u32,
) -> Result<O> {
    O::decode(bytes).map_err(|problem| {
        let rank = comm.group().job_rank(GroupRank::new(rank));
        let error = Error::invalid("object", format!("the object of rank {rank} is malformed: {problem}"));
        error.in_call(&format_args!("{call}{}", site.at()))
    })
}
