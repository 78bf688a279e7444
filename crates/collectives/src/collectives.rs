//! The typed operations of every communicator. They check the arguments once, above all backends.

use std::convert::Infallible;
use std::sync::Arc;

use unisono_communicator::{
    Buffer, BufferMut, Call, CallOptions, Communicator, DType, Descriptor, Division, Element, Error, Outcome,
    Peer, Received, ReduceOp, Result, Tag, UserOp,
};
use unisono_schedule::Collective;

use crate::arguments::{moving, operation_named, reducing, reducing_at, rooted, share_of, typed_function};
use crate::blocking::{in_place, issue, separate, to_root};
use crate::point_to_point::{recv_call, send_call};
use crate::split::{own_row, ranks_of_same_colour};
use crate::with::With;

/// The blocking operations.
///
/// Every rank of the group must call them in the same order; `send` and `recv` concern two ranks only. `n` is the
/// length of the named slice, `p` the number of ranks. A picture shows four ranks.
///
/// A cost is of the algorithms in its parentheses. The library takes the cheapest for the length, the network and the
/// cores: `unisono algo price` shows which, and `unisono algo list` tells the sources.
///
/// # Errors
/// [`Error::InvalidArgument`] before anything is sent when lengths, root, peer or op do not fit;
/// [`Error::Mismatch`] when ranks make different calls; [`Error::PeerLost`], [`Error::Timeout`] or
/// [`Error::Revoked`] when the job fails. After such a failure inputs are intact and outputs indeterminate.
pub trait Collectives: Communicator {
    /// Adds options to every call on the result.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use std::time::Duration;
    /// use unisono::{CallOptions, Collectives, ReduceOp, Solo};
    /// let comm = Solo::new();
    /// let patient = comm.with(CallOptions::new().timeout(Duration::from_secs(60)).label("loss"));
    /// patient.all_reduce(&mut [1u32], ReduceOp::Max)?;
    /// # Ok::<(), unisono::Error>(())
    /// ```
    fn with(&self, options: CallOptions) -> With<'_, Self> {
        With::new(self, options)
    }

    /// Every rank's `buffer` becomes the reduction of all ranks' buffers, the same bits everywhere.
    ///
    /// Cost: about 2 (p-1)/p n elements sent per rank for long buffers (`ring`, `halving_doubling`), log2 p messages of
    /// n elements for short ones (`recursive_doubling`).
    /// ```text
    /// rank           0     1     2     3
    /// before         1     2     3     4
    /// after, Sum    10    10    10    10
    /// ```
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, ReduceOp, Solo};
    /// let mut values = [3i64, -1];
    /// Solo::new().all_reduce(&mut values, ReduceOp::Sum)?;
    /// assert_eq!(values, [3, -1]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_reduce<T: Element>(&self, buffer: &mut [T], op: ReduceOp) -> Result<()> {
        issue(self, in_place(reducing(Collective::AllReduce, T::DTYPE, buffer.len(), op), buffer)).map(drop)
    }

    /// [`Collectives::all_reduce`] from `input` to `output`, both of n elements.
    #[track_caller]
    fn all_reduce_into<T: Element>(&self, input: &[T], output: &mut [T], op: ReduceOp) -> Result<()> {
        issue(self, separate(reducing(Collective::AllReduce, T::DTYPE, input.len(), op), input, output))
            .map(drop)
    }

    /// One all-reduce over many buffers, without copying them together. All ranks must give the same number of buffers
    /// with the same lengths. A list of one buffer matches [`Collectives::all_reduce`].
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, ReduceOp, Solo};
    /// let (mut weights, mut biases) = ([1.0f32; 6], [2.0f32; 2]);
    /// Solo::new().all_reduce_coalesced(&mut [&mut weights, &mut biases], ReduceOp::Sum)?;
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_reduce_coalesced<T: Element>(&self, buffers: &mut [&mut [T]], op: ReduceOp) -> Result<()> {
        let count = buffers.iter().map(|buffer| buffer.len()).sum();
        let descriptor = reducing(Collective::AllReduce, T::DTYPE, count, op);
        let list = buffers.iter_mut().map(|buffer| &mut **buffer);
        self.issue(Call::in_place(descriptor, BufferMut::of_list(list, Division::Coalesced))).map(drop)
    }

    /// [`Collectives::all_reduce`] with the caller's own operator: `function(left, right, out)` over slices of equal
    /// length. It must be associative; the order of ranks is kept unless `op.commutative`. The algorithm decides on
    /// which ranks it runs, and how often: on some ranks it may never run.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, Solo, UserOp};
    /// let op = UserOp::commutative("smallest");
    /// Solo::new().all_reduce_user(&mut [12u32, 8], op, |a, b, out| {
    ///     for i in 0..out.len() { out[i] = a[i].min(b[i]); }
    /// })?;
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_reduce_user<T: Element>(
        &self,
        buffer: &mut [T],
        op: UserOp,
        function: impl Fn(&[T], &[T], &mut [T]) + Send + Sync + 'static,
    ) -> Result<()> {
        let descriptor = reducing(Collective::AllReduce, T::DTYPE, buffer.len(), ReduceOp::User(op));
        let call = Call::in_place(descriptor, BufferMut::of(buffer));
        self.issue(Call { user_function: Some(typed_function(function)), ..call }).map(drop)
    }

    /// Rank r's `output` (n elements) becomes share r of the reduction of all inputs (p n elements).
    ///
    /// Cost: (p-1) n elements sent per rank, in ceil(log2 p) messages (`circulant`) up to p-1 (`ring`, `direct`).
    /// ```text
    /// rank           0               1               2               3
    /// input          [1, 2, 3, 4]    [1, 1, 1, 1]    [2, 2, 2, 2]    [0, 0, 0, 9]
    /// output, Sum    [4]             [5]             [6]             [16]
    /// ```
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, ReduceOp, Solo};
    /// let mut share = [0.0f64; 2];
    /// Solo::new().reduce_scatter(&[1.0, 2.0], &mut share, ReduceOp::Sum)?;
    /// assert_eq!(share, [1.0, 2.0]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn reduce_scatter<T: Element>(&self, input: &[T], output: &mut [T], op: ReduceOp) -> Result<()> {
        issue(self, separate(reducing(Collective::ReduceScatter, T::DTYPE, output.len(), op), input, output))
            .map(drop)
    }

    /// [`Collectives::reduce_scatter`] on one buffer of p n elements. On rank r, share r becomes the result, and the
    /// other shares are indeterminate.
    #[track_caller]
    fn reduce_scatter_in_place<T: Element>(&self, buffer: &mut [T], op: ReduceOp) -> Result<()> {
        let share = share_of(self, Collective::ReduceScatter, T::DTYPE, buffer.len(), "buffer")?;
        issue(self, in_place(reducing(Collective::ReduceScatter, T::DTYPE, share, op), buffer)).map(drop)
    }

    /// [`Collectives::reduce_scatter`] with a list as input: `inputs[r]`, as long as `output`, goes to rank r. Other
    /// ranks may give one slice.
    #[track_caller]
    fn reduce_scatter_list<T: Element>(&self, inputs: &[&[T]], output: &mut [T], op: ReduceOp) -> Result<()> {
        let descriptor = reducing(Collective::ReduceScatter, T::DTYPE, output.len(), op);
        let input = Buffer::of_list(inputs, Division::Shares);
        self.issue(Call::separate(descriptor, input, BufferMut::of(output))).map(drop)
    }

    /// Every rank's `output` (p n elements) becomes the inputs (n elements) of all ranks in rank order.
    ///
    /// Cost: (p-1) n elements sent per rank, in ceil(log2 p) messages (`circulant`) up to p-1 (`ring`, `direct`).
    /// ```text
    /// rank      0               1               2               3
    /// input     [1]             [2]             [3]             [4]
    /// output    [1, 2, 3, 4]    [1, 2, 3, 4]    [1, 2, 3, 4]    [1, 2, 3, 4]
    /// ```
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, Solo};
    /// let mut all = [0u8; 3];
    /// Solo::new().all_gather(&[1, 2, 3], &mut all)?;
    /// assert_eq!(all, [1, 2, 3]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_gather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        issue(self, separate(moving(Collective::AllGather, T::DTYPE, input.len()), input, output)).map(drop)
    }

    /// [`Collectives::all_gather`] on one buffer of p n elements in which rank r has filled share r.
    #[track_caller]
    fn all_gather_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<()> {
        let share = share_of(self, Collective::AllGather, T::DTYPE, buffer.len(), "buffer")?;
        issue(self, in_place(moving(Collective::AllGather, T::DTYPE, share), buffer)).map(drop)
    }

    /// [`Collectives::all_gather`] into a list: `outputs[r]`, as long as `input`, receives rank r's input. Other ranks
    /// may give one slice.
    #[track_caller]
    fn all_gather_list<T: Element>(&self, input: &[T], outputs: &mut [&mut [T]]) -> Result<()> {
        let descriptor = moving(Collective::AllGather, T::DTYPE, input.len());
        let output = BufferMut::of_list(outputs.iter_mut().map(|output| &mut **output), Division::Shares);
        self.issue(Call::separate(descriptor, Buffer::of(input), output)).map(drop)
    }

    /// Part j of every rank's `input` goes to rank j. `output` holds the received parts in rank order. Both have p n
    /// elements.
    ///
    /// Cost: the parts for other ranks in p-1 messages per rank (`direct`, `pairwise`); short ones in ceil(log2 p)
    /// messages of about half of the input each (`bruck`, not in place).
    /// ```text
    /// rank      0                 1                 2                 3
    /// input     [0, 1, 2, 3]      [10, 11, 12, 13]  [20, 21, 22, 23]  [30, 31, 32, 33]
    /// output    [0, 10, 20, 30]   [1, 11, 21, 31]   [2, 12, 22, 32]   [3, 13, 23, 33]
    /// ```
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, Solo};
    /// let mut output = [0i8; 2];
    /// Solo::new().all_to_all(&[5, 6], &mut output)?;
    /// assert_eq!(output, [5, 6]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_to_all<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        let share = share_of(self, Collective::AllToAll, T::DTYPE, input.len(), "input")?;
        issue(self, separate(moving(Collective::AllToAll, T::DTYPE, share), input, output)).map(drop)
    }

    /// [`Collectives::all_to_all`] in place: the part from a rank replaces the part for that rank.
    #[track_caller]
    fn all_to_all_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<()> {
        let share = share_of(self, Collective::AllToAll, T::DTYPE, buffer.len(), "buffer")?;
        issue(self, in_place(moving(Collective::AllToAll, T::DTYPE, share), buffer)).map(drop)
    }

    /// Every rank's `buffer` becomes the root's.
    ///
    /// Cost: at most n elements sent per rank (`double_tree`); short buffers take ceil(log2 p) rounds (`binomial`).
    /// ```text
    /// rank           0     1     2     3
    /// before         1     2     3     4
    /// after, root 1  2     2     2     2
    /// ```
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, Solo};
    /// Solo::new().broadcast(&mut [1.5f32], 0)?;
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn broadcast<T: Element>(&self, buffer: &mut [T], root: u32) -> Result<()> {
        issue(self, in_place(rooted(Collective::Broadcast, T::DTYPE, buffer.len(), root), buffer)).map(drop)
    }

    /// The root's `output` becomes the reduction of all inputs; the other ranks give `None`.
    ///
    /// Cost: at most n elements received per rank (`double_tree`); short buffers take ceil(log2 p) rounds (`binomial`).
    /// ```text
    /// rank                  0      1       2      3
    /// input                 [1]    [2]     [3]    [4]
    /// output, Sum, root 1   -      [10]    -      -
    /// ```
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, ReduceOp, Solo};
    /// let mut sum = [0u16];
    /// Solo::new().reduce(&[7], Some(&mut sum), ReduceOp::Sum, 0)?;
    /// assert_eq!(sum, [7]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn reduce<T: Element>(
        &self,
        input: &[T],
        output: Option<&mut [T]>,
        op: ReduceOp,
        root: u32,
    ) -> Result<()> {
        issue(self, to_root(reducing_at(T::DTYPE, input.len(), op, root), input, output)).map(drop)
    }

    /// [`Collectives::reduce`] in place: the root's `buffer` becomes the reduction; the others' buffers do not change.
    #[track_caller]
    fn reduce_in_place<T: Element>(&self, buffer: &mut [T], op: ReduceOp, root: u32) -> Result<()> {
        if self.group().rank() != root {
            return self.reduce(buffer, None, op, root);
        }
        issue(self, in_place(reducing_at(T::DTYPE, buffer.len(), op, root), buffer)).map(drop)
    }

    /// The root's `output` (p n elements) becomes all inputs (n elements) in rank order; the other ranks give `None`.
    ///
    /// Cost: (p-1) n elements reach the root, in ceil(log2 p) messages (`binomial`, where a rank sends at most half of
    /// all shares) or more (`k_nomial_8`: of up to 8 ranks, each sends its share to the root itself).
    /// ```text
    /// rank              0      1               2      3
    /// input             [1]    [2]             [3]    [4]
    /// output, root 1    -      [1, 2, 3, 4]    -      -
    /// ```
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, Solo};
    /// let mut all = [0u64; 1];
    /// Solo::new().gather(&[9], Some(&mut all), 0)?;
    /// assert_eq!(all, [9]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn gather<T: Element>(&self, input: &[T], output: Option<&mut [T]>, root: u32) -> Result<()> {
        issue(self, to_root(rooted(Collective::Gather, T::DTYPE, input.len(), root), input, output)).map(drop)
    }

    /// [`Collectives::gather`] in place. The root's `buffer` (p n elements) has its own share at its place, and becomes
    /// all inputs; the others' buffers (n elements) are inputs, and do not change.
    #[track_caller]
    fn gather_in_place<T: Element>(&self, buffer: &mut [T], root: u32) -> Result<()> {
        if self.group().rank() != root {
            return self.gather(buffer, None, root);
        }
        let share = share_of(self, Collective::Gather, T::DTYPE, buffer.len(), "buffer")?;
        issue(self, in_place(rooted(Collective::Gather, T::DTYPE, share, root), buffer)).map(drop)
    }

    /// Rank r's `output` (n elements) becomes share r of the root's `input` (p n elements); other ranks give `None`.
    ///
    /// Cost: (p-1) n elements leave the root, as they reach it in [`Collectives::gather`].
    /// ```text
    /// rank             0      1               2      3
    /// input, root 1    -      [1, 2, 3, 4]    -      -
    /// output           [1]    [2]             [3]    [4]
    /// ```
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, Solo};
    /// let mut share = [0i16; 2];
    /// Solo::new().scatter(Some(&[3, 4]), &mut share, 0)?;
    /// assert_eq!(share, [3, 4]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn scatter<T: Element>(&self, input: Option<&[T]>, output: &mut [T], root: u32) -> Result<()> {
        let input = input.unwrap_or(&[]);
        issue(self, separate(rooted(Collective::Scatter, T::DTYPE, output.len(), root), input, output))
            .map(drop)
    }

    /// [`Collectives::scatter`] in place. The root's `buffer` (p n elements) stays as it is, and its own share is its
    /// result; the others' buffers (n elements) become their shares.
    #[track_caller]
    fn scatter_in_place<T: Element>(&self, buffer: &mut [T], root: u32) -> Result<()> {
        if self.group().rank() != root {
            return self.scatter(None, buffer, root);
        }
        let share = share_of(self, Collective::Scatter, T::DTYPE, buffer.len(), "buffer")?;
        issue(self, in_place(rooted(Collective::Scatter, T::DTYPE, share, root), buffer)).map(drop)
    }

    /// Returns when every rank has called it.
    ///
    /// Cost: ceil(log2 p) messages without elements sent per rank (`dissemination`).
    /// ```text
    /// rank         0      1      2      3
    /// calls at     1 s    2 s    5 s    3 s
    /// returns at   5 s    5 s    5 s    5 s
    /// ```
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, Solo};
    /// Solo::new().barrier()?;
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn barrier(&self) -> Result<()> {
        let descriptor = Descriptor::new(Collective::Barrier, DType::U8, 0);
        self.issue(Call::separate(descriptor, Buffer::empty(), BufferMut::empty())).map(drop)
    }

    /// Sends `message` to `peer`, and returns when the buffer may be used again. A message above 512 KiB waits until
    /// its receive is posted; a shorter one only if streams and queue are full. Messages of one pair and tag arrive in
    /// order. Cost: one message.
    /// ```text
    /// rank          0                    1    2    3
    /// call          send(&[5, 6], 3, 7)  -    -    recv(&mut buffer, 0, 7)
    /// its buffer    [5, 6]               -    -    [0, 0, 0], then [5, 6, 0]
    /// ```
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, Peer, Solo};
    /// let comm = Solo::new();
    /// comm.send(&[1u8, 2], 0, 7)?;
    /// let mut buffer = [0u8; 4];
    /// assert_eq!(comm.recv(&mut buffer, Peer::Any, 7)?.count, 2);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn send<T: Element>(&self, message: &[T], peer: impl Into<Peer>, tag: u32) -> Result<()> {
        self.issue(send_call(message, peer.into(), tag)).map(drop)
    }

    /// Receives the next message of `peer` with `tag`; the buffer may be larger than the message. `peer` is a rank,
    /// [`Peer::Any`] or [`Peer::None`], `tag` a number or [`Tag::Any`]. [`Collectives::send`] has a picture.
    ///
    /// # Errors
    /// [`Error::Truncated`] when the message is larger, [`Error::InvalidArgument`] when it has another
    /// element type. The message is dropped; nothing else is affected. [`Error::PeerLost`] when the peer, or
    /// each other rank for [`Peer::Any`], is lost or has left, and all its messages were received.
    #[track_caller]
    fn recv<T: Element>(
        &self,
        buffer: &mut [T],
        peer: impl Into<Peer>,
        tag: impl Into<Tag>,
    ) -> Result<Received> {
        let outcome = self.issue(recv_call(buffer, peer.into(), tag.into()))?;
        Ok(Received::of(&outcome, T::DTYPE))
    }

    /// Any call, made by hand: lists, uneven counts, device memory (`DeviceBufferMut` has an example).
    /// [`crate::CollectivesAsync::start`] is the same for memory that moves in.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*};
    /// # pub mod call { pub use unisono_communicator::*; } }
    /// use unisono::{Collective, Collectives, DType, Solo};
    /// use unisono::call::{Buffer, BufferMut, Call, Descriptor, Division};
    /// let mut all = [0u16; 3];
    /// let input = Buffer::of_list(&[&[1u16][..], &[2, 3]], Division::Anywhere);
    /// let descriptor = Descriptor::new(Collective::AllGather, DType::U16, 3);
    /// assert_eq!(Solo::new().issue(Call::separate(descriptor, input, BufferMut::of(&mut all)))?.bytes, 6);
    /// assert_eq!(all, [1, 2, 3]);
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    fn issue(&self, call: Call<'_>) -> Result<Outcome> {
        issue(self, call)
    }

    /// [`Collectives::issue`] of the operation of this name, as reports and `UNISONO_SKIP` write it, in place of the
    /// descriptor's: for programs that read names from a table.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*};
    /// # pub mod call { pub use unisono_communicator::*; } }
    /// use unisono::{Collective, Collectives, DType, Error, Solo};
    /// use unisono::call::{BufferMut, Call, Descriptor};
    /// let descriptor = Descriptor { root: Some(0), ..Descriptor::new(Collective::Broadcast, DType::U8, 1) };
    /// let run = |name| Solo::new().run_collective(name, Call::in_place(descriptor, BufferMut::of(&mut [1u8])));
    /// assert_eq!(run("broadcast")?.bytes, 1);
    /// assert!(matches!(run("brodcast"), Err(Error::InvalidArgument { argument: "name", .. })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a name that is none; else as [`Collectives::issue`].
    fn run_collective(&self, name: &str, mut call: Call<'_>) -> Result<Outcome> {
        call.descriptor.operation = operation_named(name).map_err(|error| error.in_call(&call))?;
        self.issue(call)
    }

    /// Memory of this many bytes on each rank that all ranks address directly, as NVSHMEM and torch's symmetric memory
    /// have it. No backend has any, and nothing else is given in its place.
    ///
    /// # Errors
    /// [`Error::Unsupported`], with the reason.
    #[doc(alias = "enable_symm_mem_for_group")]
    fn symmetric_memory(&self, bytes: u64) -> Result<Infallible> {
        let what = format!("symmetric memory ({bytes} bytes): no rank reads the memory of another");
        let instead = Some("a call, which moves the bytes".to_owned());
        Err(Error::Unsupported { what, backend: self.backend(), instead })
    }

    /// The group of this rank's row, if it is in one: rows are lists of ranks without a common rank, as for
    /// `new_subgroups_by_enumeration` of torch. Collective; a rank may give its own row alone, or none.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, Communicator, Solo};
    /// let rows: [&[u32]; 1] = [&[0]];
    /// assert_eq!(Solo::new().subgroups(&rows)?.map(|row| row.size()), Some(1));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for rows with a common rank; otherwise as [`Communicator::subgroup_with`].
    fn subgroups(&self, rows: &[&[u32]]) -> Result<Option<Arc<dyn Communicator>>> {
        self.subgroup(own_row(rows, self.rank())?)
    }

    /// Divides the ranks into groups of one colour each, as `MPI_Comm_split` (MPI 4.1, section 7.4.2). The ranks of a
    /// group stand in the order of their keys, and by rank where keys are equal. A rank with `None` gets no group.
    ///
    /// Collective. Cost: one all-gather of 16 bytes a rank, whose label is `split`; no connection is made before the
    /// first call of a group.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, Communicator, Solo};
    /// assert_eq!(Solo::new().split(Some(3), 0)?.map(|group| group.size()), Some(1));
    /// assert!(Solo::new().split(None, 0)?.is_none());
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of the all-gather; [`Error::Unsupported`] unless the backend has subgroups.
    #[track_caller]
    fn split(&self, colour: Option<u32>, key: i64) -> Result<Option<Arc<dyn Communicator>>> {
        self.subgroup(&ranks_of_same_colour(self, colour, key)?)
    }
}

impl<C: Communicator + ?Sized> Collectives for C {}
