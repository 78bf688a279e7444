//! The choices for a state before its first call: the route of elements, and the form of residuals.

use unisono_communicator::{
    CallOptions, Collective, Communicator, DType, Descriptor, Error, MemoryKind, Result,
};
use unisono_kernels::SHIFT_MAX;

use crate::device::KernelDevice;
use crate::message_memory::MessageMemory;
use crate::rebind::own_calls;
use crate::residuals::{Kept, LoCo};
use crate::route::{Route, Teams};
use crate::state::{CompressionState, Members, Shape, owed};
use crate::summed::code_size;
use crate::wire::sum_of_codes;

impl<D: KernelDevice> CompressionState<D> {
    /// The same state before its first call, by another way than the cheaper one. All ranks must choose alike.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a state that has been called with, and when `comm` is not its communicator;
    /// [`Error::Unsupported`] for a codec whose codes cannot be summed by that route, and when `comm` cannot sum the
    /// integers that so many ranks need; [`Error::System`] when there is no memory.
    pub fn by(self, route: Route, comm: &(impl Communicator + ?Sized)) -> Result<CompressionState<D>> {
        let group = comm.group();
        self.check_is_new()?;
        if let (MessageMemory::Device(_), Route::TwoLevels | Route::SummedCodes) =
            (self.message_memory, route)
        {
            return Err(Error::Unsupported {
                what: format!("{route} with messages on a device"),
                backend: "compression",
                instead: Some("Route::Direct, or messages that go through the host".to_owned()),
            });
        }
        if route == Route::SummedCodes {
            self.check_summable(comm)?;
        }
        if self.members != Members::of(group) {
            return Err(Error::invalid("comm", "is not the communicator of the state"));
        }
        let layout = self.shape.layout(&*self.codec, self.members.ranks.len(), Teams::new(route, group));
        let (kept, own) = (self.worker.kept, self.members.own);
        let [worker, owner] = owed(&self.device, &*self.codec, kept, &self.shape, &layout, own)?;
        Ok(CompressionState { route, layout, worker, owner, ..self })
    }

    /// The same state before its first call, with residuals of one byte for each element.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a codec without error feedback, and for a codec that measures the whole vector first;
    /// [`Error::InvalidArgument`] for a state after its first call, and for a shift above 8; [`Error::System`] when
    /// there is no memory.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*, unisono_compression as compression}; }
    /// use unisono::{ReduceOp, Solo};
    /// use unisono::compression::{CompressedCollectives, CompressionState, LoCo, SignL1};
    /// let comm = Solo::new();
    /// let exact = CompressionState::new::<f32>(&comm, SignL1::default(), 4096)?;
    /// let mut state = CompressionState::new::<f32>(&comm, SignL1::default(), 4096)?.with_loco(LoCo::default())?;
    /// assert!(state.bytes() * 39 < exact.bytes() * 10);
    /// comm.compressed_all_reduce(&mut [1.0f32; 4096], ReduceOp::Sum, &mut state)?;
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    pub fn with_loco(self, loco: LoCo) -> Result<CompressionState<D>> {
        if loco.average_shift > SHIFT_MAX {
            let problem = format!("{}, it must be at most {SHIFT_MAX}", loco.average_shift);
            return Err(Error::invalid("average_shift", problem));
        }
        if !self.codec.has_feedback() || self.codec.measures() || self.route == Route::SummedCodes {
            return Err(Error::Unsupported {
                what: format!("LoCo with {:?} by {}", self.codec, self.route),
                backend: "compression",
                instead: Some(
                    "a codec with error feedback and scales of blocks, direct or in two levels".to_owned(),
                ),
            });
        }
        self.check_is_new()?;
        let (kept, own) = (Kept::Averaged(loco), self.members.own);
        let [worker, owner] = owed(&self.device, &*self.codec, kept, &self.shape, &self.layout, own)?;
        Ok(CompressionState { worker, owner, ..self })
    }

    /// The same state before its first call, whose messages stay in the memory of the device: calls of `comm` are
    /// enqueued behind the kernels that write them, on their stream, and the host reads statuses and scales. They go
    /// straight to their owners ([`Route::Direct`]), by a communicator that reaches the device, such as one over NCCL.
    ///
    /// The host waits for the stream once for each message that it closes, and once for each that it judges; kernels
    /// and calls of one rank do not overlap. It judges nothing of a part but its scales. All ranks must choose alike.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a device whose kernels have no stream, for a codec whose bits the host reorders
    /// ([`Codec::is_reordered`](crate::Codec::is_reordered)), and for a communicator that reaches no such memory; the
    /// errors of [`CompressionState::by`].
    pub fn with_messages_on_device(self, comm: &(impl Communicator + ?Sized)) -> Result<CompressionState<D>> {
        let refuse = |what: String, instead: &str| {
            let instead = Some(instead.to_owned());
            Err(Error::Unsupported { what, backend: "compression", instead })
        };
        let Some(stream) = self.device.stream() else {
            let what = format!("messages on {:?}", self.device);
            return refuse(what, "messages that go through the host");
        };
        if self.codec.is_reordered() {
            let what = format!("messages of {:?} on a device", self.codec);
            return refuse(
                what,
                "the order of bits that kernels write, or messages that go through the host",
            );
        }
        for collective in [Collective::AllToAll, Collective::AllGather] {
            let call = Descriptor { uneven: true, ..Descriptor::new(collective, DType::U32, 1) };
            comm.supports(&call, &CallOptions::new(), MemoryKind::Device)?;
        }
        let state = self.by(Route::Direct, comm)?;
        Ok(CompressionState { message_memory: MessageMemory::Device(stream), ..state })
    }

    fn check_summable(&self, comm: &(impl Communicator + ?Sized)) -> Result<()> {
        let Some(summable) = self.codec.summable().filter(|_| matches!(self.shape, Shape::Whole(_))) else {
            return Err(Error::Unsupported {
                what: format!("{} of {:?} by summed codes", self.shape.collective(), self.codec),
                backend: "compression",
                instead: Some("an all-reduce by symmetric int8 or int4, or another route".to_owned()),
            });
        };
        if self.worker.kept != Kept::Exactly {
            return Err(Error::Unsupported {
                what: "LoCo with summed codes".to_owned(),
                backend: "compression",
                instead: Some("residuals of f32, or another route".to_owned()),
            });
        }
        let size = code_size(summable, self.members.ranks.len())?;
        comm.supports(&sum_of_codes(size, 1), &own_calls(), MemoryKind::Host)
    }

    fn check_is_new(&self) -> Result<()> {
        if self.calls > 0 {
            return Err(Error::invalid("state", "has been called with"));
        }
        Ok(())
    }
}
