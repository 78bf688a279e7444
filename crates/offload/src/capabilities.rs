//! The capabilities of a vendor's library: calls, reductions, the behaviour of its arithmetic. When a group is made,
//! its ranks agree on the capabilities that all of them have.

use std::fmt;

use unisono_communicator::{
    CallOptions, Collective, DType, Descriptor, Determinism, Error, Operation, Peer, ReduceOp, Result, Tag,
};

use crate::vendor::NativeOp;

/// A call that some libraries, or some of their versions, lack. Without it, other calls are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    /// All-to-all with lengths that differ by rank.
    AllToAllV,
    /// Scatter.
    Scatter,
    /// Sends and receives between group start and group end. The group end waits for all of them.
    Groups,
    /// Gather.
    Gather,
    /// All-to-all.
    AllToAll,
    /// All-to-all in place.
    AllToAllInPlace,
    /// Broadcast.
    Broadcast,
    /// Reduce to one rank.
    Reduce,
}

impl Native {
    /// All of them.
    pub const ALL: [Native; 8] = [
        Native::AllToAllV,
        Native::Scatter,
        Native::Groups,
        Native::Gather,
        Native::AllToAll,
        Native::AllToAllInPlace,
        Native::Broadcast,
        Native::Reduce,
    ];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Native::AllToAllV => "all_to_all_v",
            Native::Scatter => "scatter",
            Native::Groups => "groups of messages",
            Native::Gather => "gather",
            Native::AllToAll => "all_to_all",
            Native::AllToAllInPlace => "all_to_all in place",
            Native::Broadcast => "broadcast",
            Native::Reduce => "reduce",
        }
    }

    /// The calls that stand in for it, and the calls that are refused without it. docs/backends.md has the same table.
    pub const fn instead(self) -> &'static str {
        match self {
            Native::AllToAllV => "a group of messages, else the pairs of ranks one after the other",
            Native::Scatter => "all_to_all_v, in which only the root sends",
            Native::Groups => {
                "all_to_all_v, else the pairs of ranks one after the other; messages on memory of a device, \
                 algorithms by name, scan and exscan are refused"
            }
            Native::Gather => "all_to_all_v, in which only the root receives",
            Native::AllToAll => "all_to_all_v of equal lengths",
            Native::AllToAllInPlace => "all_to_all from a copy of the input",
            Native::Broadcast => "all_gather, of which the share of the root is kept",
            Native::Reduce => "all_reduce, whose result only the root keeps",
        }
    }
}

/// The element types that a library may reduce, in the order of their bits.
pub const REDUCIBLE: &[DType] = &[
    DType::I8,
    DType::U8,
    DType::I16,
    DType::U16,
    DType::I32,
    DType::U32,
    DType::I64,
    DType::U64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
    DType::F8E4M3,
    DType::F8E5M2,
];

/// The result of Min and Max for a NaN on one rank and numbers on the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NanInMinMax {
    /// A NaN.
    Propagates,
    /// The least or greatest number.
    Ignored,
    /// A NaN or any of the numbers, depending on the order of the operands.
    AnyOperand,
}

/// The behaviour in which reductions of floats may differ. The conformance suite measures it, and compares it with the
/// declared behaviour of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// A NaN among numbers.
    pub nan_in_min_max: NanInMinMax,
    /// Whether -0.0 is less than 0.0. If not, the result may be either.
    pub orders_zeros: bool,
    /// The types whose sums are truncated. Sums of other types are rounded to nearest, ties to even.
    pub truncates: &'static [DType],
    /// Whether all ranks get the same bits of a rounded sum.
    pub equal_bits: bool,
}

impl Arithmetic {
    /// The behaviour of the engine.
    pub const ENGINE: Arithmetic = Arithmetic {
        nan_in_min_max: NanInMinMax::Propagates,
        orders_zeros: true,
        truncates: &[],
        equal_bits: true,
    };
}

/// The capabilities of a library. All ranks of a group have the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    natives: u64,
    /// By operator: the element types that the library reduces.
    reductions: [u64; NativeOp::KINDS.len()],
    /// The element types that can be multiplied before a reduction, or divided after it.
    scaling: u64,
    /// By operator of a call: the element types of which the device combines two values, for schedules.
    combining: [u64; SCHEDULED_OPS],
    /// The behaviour of its sums and comparisons.
    pub arithmetic: Arithmetic,
    /// Whether a call that hangs in the library can be ended.
    pub abort: bool,
}

/// The number of operators that schedules may use.
const SCHEDULED_OPS: usize = ReduceOp::PLAIN.len() + 1;

/// The number of words of [`Capabilities::words`].
pub(crate) const CAPABILITY_WORDS: usize = 2 + SCHEDULED_OPS + NativeOp::KINDS.len();

impl Capabilities {
    /// The capabilities of a library that reduces nothing.
    pub fn new(arithmetic: Arithmetic) -> Capabilities {
        let (reductions, combining) = ([0; NativeOp::KINDS.len()], [0; SCHEDULED_OPS]);
        Capabilities { natives: 0, reductions, scaling: 0, combining, arithmetic, abort: false }
    }

    /// Adds a call.
    #[must_use]
    pub fn with(mut self, native: Native) -> Capabilities {
        self.natives |= 1 << native as u32;
        self
    }

    /// Adds reductions. Types that no library reduces are left out.
    #[must_use]
    pub fn reducing(mut self, op: NativeOp, dtypes: &[DType]) -> Capabilities {
        self.reductions[op.kind()] |= bits_of(dtypes);
        self
    }

    /// Adds the means to multiply and divide elements of these types, for operators that the library lacks.
    #[must_use]
    pub fn scaling(mut self, dtypes: &[DType]) -> Capabilities {
        self.scaling |= bits_of(dtypes);
        self
    }

    /// Adds a device's arithmetic for schedules ([`crate::Device::combine`]): reductions of these types by these
    /// operators, with the bits of the engine. [`ReduceOp::PreMulSum`] also needs [`Capabilities::scaling`], with any
    /// factor. User functions are left out.
    #[must_use]
    pub fn combining(mut self, ops: &[ReduceOp], dtypes: &[DType]) -> Capabilities {
        for row in ops.iter().filter_map(|op| scheduled_row(*op)) {
            self.combining[row] |= bits_of(dtypes);
        }
        self
    }

    /// Whether the library has the call.
    pub fn has(&self, native: Native) -> bool {
        self.natives & 1 << native as u32 != 0
    }

    /// The collectives for which the library has a call of its own.
    pub fn collectives(&self) -> Vec<Collective> {
        let has = |collective: &Collective| match collective {
            Collective::AllReduce | Collective::ReduceScatter | Collective::AllGather => true,
            Collective::AllToAll => self.has(Native::AllToAll),
            Collective::Broadcast => self.has(Native::Broadcast),
            Collective::Reduce => self.has(Native::Reduce),
            Collective::Gather => self.has(Native::Gather),
            Collective::Scatter => self.has(Native::Scatter),
            Collective::Barrier | Collective::Scan | Collective::Exscan => false,
        };
        Collective::ALL.into_iter().filter(has).collect()
    }

    /// Whether the library reduces elements of `dtype` by `op`.
    pub fn reduces(&self, op: NativeOp, dtype: DType) -> bool {
        bit_of(dtype).is_some_and(|bit| self.reductions[op.kind()] & bit != 0)
    }

    /// Whether a schedule reduces elements of `dtype` by `op`.
    pub fn combines(&self, op: ReduceOp, dtype: DType) -> bool {
        let can_scale = || bit_of(dtype).is_some_and(|bit| self.scaling & bit != 0);
        let has = |row: usize| bit_of(dtype).is_some_and(|bit| self.combining[row] & bit != 0);
        scheduled_row(op).is_some_and(has) && (!matches!(op, ReduceOp::PreMulSum(_)) || can_scale())
    }

    /// The capabilities as bits. A group uses only bits that every rank has.
    pub(crate) fn words(&self) -> [u64; CAPABILITY_WORDS] {
        let mut words = [self.natives; CAPABILITY_WORDS];
        words[1] = self.scaling;
        words[2..][..SCHEDULED_OPS].copy_from_slice(&self.combining);
        words[2 + SCHEDULED_OPS..].copy_from_slice(&self.reductions);
        words
    }

    /// The capabilities that are left with the bits of all ranks.
    pub(crate) fn agreed(self, words: [u64; CAPABILITY_WORDS]) -> Capabilities {
        let mut agreed = Capabilities { natives: words[0], scaling: words[1], ..self };
        agreed.combining.copy_from_slice(&words[2..][..SCHEDULED_OPS]);
        agreed.reductions.copy_from_slice(&words[2 + SCHEDULED_OPS..]);
        agreed
    }

    /// The reduction of elements of `dtype` by `op`: an operator of the library, and the arithmetic around it.
    pub(crate) fn reduction(&self, op: ReduceOp, dtype: DType) -> Option<Reduction> {
        let native = |op: NativeOp| self.reduces(op, dtype).then_some(op);
        let only = |op| native(op).map(|op| Reduction { op, around: Around::Nothing });
        let can_scale = bit_of(dtype).is_some_and(|bit| self.scaling & bit != 0);
        let sum = native(NativeOp::Sum).filter(|_| can_scale);
        let scaled = |around| sum.map(|op| Reduction { op, around });
        match op {
            ReduceOp::Sum => only(NativeOp::Sum),
            ReduceOp::Prod => only(NativeOp::Prod),
            ReduceOp::Min => only(NativeOp::Min),
            ReduceOp::Max => only(NativeOp::Max),
            ReduceOp::Avg => only(NativeOp::Avg).or_else(|| scaled(Around::DivideByRanks)),
            ReduceOp::PreMulSum(factor) => {
                only(NativeOp::PreMulSum(factor)).or_else(|| scaled(Around::MultiplyFirst(factor)))
            }
            ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor | ReduceOp::User(_) => None,
        }
    }

    /// Refuses options that only a schedule can fulfil, if no schedule can run here. A schedule needs grouped messages
    /// of the library and arithmetic of the device.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with an alternative.
    pub(crate) fn check_wishes(
        &self,
        backend: &'static str,
        descriptor: &Descriptor,
        options: &CallOptions,
    ) -> Result<()> {
        match (options.algorithm, options.determinism) {
            (Some(_), _) => self.check_schedules(backend, "algorithms by name"),
            (None, Determinism::Fixed) if descriptor.op.is_some() => {
                self.check_schedules(backend, "a fixed order of reduction")
            }
            (None, Determinism::Fixed | Determinism::AnyOrder) => Ok(()),
        }
    }

    /// Refuses `wish` if no schedule can run.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with an alternative.
    pub(crate) fn check_schedules(&self, backend: &'static str, wish: &str) -> Result<()> {
        if self.runs_schedules() {
            return Ok(());
        }
        let what = format!("{wish} without grouped messages and arithmetic on the device, on every rank");
        Err(Error::Unsupported { what, backend, instead: over_tcp() })
    }

    fn runs_schedules(&self) -> bool {
        self.has(Native::Groups) && self.combining != [0; SCHEDULED_OPS]
    }

    /// Refuses a call that a schedule cannot run.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with an alternative.
    pub(crate) fn check_scheduled(&self, backend: &'static str, descriptor: &Descriptor) -> Result<()> {
        // No library has prefix reductions, so they run by schedules without being asked to.
        let prefix = descriptor.operation.collective().filter(|collective| collective.is_prefix());
        self.check_schedules(backend, prefix.map_or("UNISONO_ALGORITHM", Collective::name))?;
        let (Some(op), dtype) = (descriptor.op, descriptor.dtype) else { return Ok(()) };
        if self.combines(op, dtype) {
            return Ok(());
        }
        let what =
            format!("{op} of {dtype} by an algorithm: this device has no arithmetic for it with equal bits");
        let of_the_library = match self.reduction(op, dtype) {
            Some(_) if prefix.is_none() => "a call without an algorithm or a fixed order, or ",
            Some(_) | None => "",
        };
        let sum = match op {
            ReduceOp::Avg if self.combines(ReduceOp::Sum, dtype) => "sum, and a division of the result, or ",
            _ => "",
        };
        let instead = Some(format!("{sum}{of_the_library}UNISONO_BACKEND=tcp"));
        Err(Error::Unsupported { what, backend, instead })
    }

    /// Refuses a message on memory of a device that the library's groups cannot be: they have no tags, and one sender.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with an alternative.
    pub(crate) fn check_message(&self, backend: &'static str, descriptor: &Descriptor) -> Result<()> {
        let operation = descriptor.operation;
        let unsupported = |what: String, instead: &str| {
            let instead = Some(format!("{instead}, or a message on memory of the host"));
            Err(Error::Unsupported { what: format!("{what} on memory of a device"), backend, instead })
        };
        match (descriptor.peer, descriptor.tag) {
            (Some(Peer::None), _) => Ok(()),
            _ if !self.has(Native::Groups) => {
                let instead = Some("memory of the host, or all_to_all_v".to_owned());
                let what =
                    format!("{operation} on memory of a device without grouped messages, on every rank");
                Err(Error::Unsupported { what, backend, instead })
            }
            (Some(Peer::Any), _) => unsupported(format!("{operation} from any rank"), "one rank as the peer"),
            (Some(Peer::Rank(_)) | None, Tag::Is(0)) => Ok(()),
            (Some(Peer::Rank(_)) | None, tag) => {
                let order = "tag 0, where messages of a pair match in their order";
                unsupported(format!("{operation} with {tag}"), order)
            }
        }
    }

    /// Refuses a call that neither the library nor a composition of its calls can do.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with an alternative.
    pub(crate) fn check(&self, backend: &'static str, descriptor: &Descriptor) -> Result<()> {
        let unsupported = |what: String| Err(Error::Unsupported { what, backend, instead: over_tcp() });
        match (descriptor.operation, descriptor.op) {
            (Operation::Collective(collective), Some(op))
                if collective.reduces() && self.reduction(op, descriptor.dtype).is_none() =>
            {
                unsupported(format!("{op} of {} in {collective}", descriptor.dtype))
            }
            _ => Ok(()),
        }
    }
}

fn over_tcp() -> Option<String> {
    Some("UNISONO_BACKEND=tcp".to_owned())
}

/// An operator of the library, and the arithmetic around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reduction {
    pub(crate) op: NativeOp,
    pub(crate) around: Around,
}

/// The arithmetic before or after a reduction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Around {
    /// Nothing.
    Nothing,
    /// This rank's input is multiplied first.
    MultiplyFirst(f64),
    /// The result is divided by the number of ranks.
    DivideByRanks,
}

/// The row of an operator in the table of operators that schedules may use.
fn scheduled_row(op: ReduceOp) -> Option<usize> {
    Some(match op {
        ReduceOp::Sum => 0,
        ReduceOp::Prod => 1,
        ReduceOp::Min => 2,
        ReduceOp::Max => 3,
        ReduceOp::Avg => 4,
        ReduceOp::BitAnd => 5,
        ReduceOp::BitOr => 6,
        ReduceOp::BitXor => 7,
        ReduceOp::PreMulSum(_) => 8,
        ReduceOp::User(_) => return None,
    })
}

fn bits_of(dtypes: &[DType]) -> u64 {
    dtypes.iter().filter_map(|dtype| bit_of(*dtype)).fold(0, |bits, bit| bits | bit)
}

fn bit_of(dtype: DType) -> Option<u64> {
    REDUCIBLE.iter().position(|known| *known == dtype).map(|position| 1 << position)
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for op in NativeOp::KINDS {
            let names: Vec<_> = REDUCIBLE
                .iter()
                .filter(|dtype| self.reduces(op, **dtype))
                .map(|dtype| dtype.name())
                .collect();
            if !names.is_empty() {
                writeln!(f, "{op}: {}", names.join(" "))?;
            }
        }
        let natives: Vec<_> =
            Native::ALL.into_iter().filter(|native| self.has(*native)).map(Native::name).collect();
        let composed = if natives.is_empty() { "none".to_owned() } else { natives.join(", ") };
        writeln!(f, "calls that not every library has: {composed}")?;
        let nan = match self.arithmetic.nan_in_min_max {
            NanInMinMax::Propagates => "the result",
            NanInMinMax::Ignored => "ignored",
            NanInMinMax::AnyOperand => "may be the result or not, and another on each rank",
        };
        writeln!(f, "a NaN among numbers in min and max: {nan}")?;
        let truncated: Vec<_> = self.arithmetic.truncates.iter().map(|dtype| dtype.name()).collect();
        if !truncated.is_empty() {
            writeln!(f, "sums cut off, not rounded: {}", truncated.join(" "))?;
        }
        let bits = if self.arithmetic.equal_bits { "yes" } else { "no" };
        writeln!(f, "equal bits on all ranks: {bits}")?;
        let deadline = if self.abort { "yes" } else { "no, unless the call sets one" };
        write!(f, "deadline of blocking calls: {deadline}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_on_devices_need_groups_one_peer_and_no_tag() {
        let with = Capabilities::new(Arithmetic::ENGINE).with(Native::Groups);
        let recv = |peer, tag| Descriptor {
            peer: Some(peer),
            tag,
            ..Descriptor::new(Operation::Recv, DType::F32, 4)
        };
        let instead = |known: Capabilities, peer, tag| match known.check_message("x", &recv(peer, tag)) {
            Err(Error::Unsupported { instead: Some(instead), .. }) => Some(instead),
            Ok(()) => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(instead(with, Peer::Rank(1), Tag::Is(0)), None);
        assert_eq!(instead(with, Peer::None, Tag::Any), None);
        assert!(instead(with, Peer::Any, Tag::Is(0)).unwrap().starts_with("one rank as the peer, or"));
        for tag in [Tag::Is(7), Tag::Any] {
            assert!(instead(with, Peer::Rank(1), tag).unwrap().starts_with("tag 0"));
        }
        let without = Capabilities::new(Arithmetic::ENGINE);
        assert!(instead(without, Peer::Rank(1), Tag::Is(0)).unwrap().contains("all_to_all_v"));
    }
}
