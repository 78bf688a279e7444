//! How a library's double is set up: what it has, how it computes, what goes wrong.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use unisono_communicator::DType;
use unisono_offload::{Arithmetic, Capabilities, LibraryTurn, NanInMinMax, Native, NativeOp, REDUCIBLE};

use super::{Fault, LibraryDouble, LibraryRoom, Moment};

/// Every operator that it has.
const OPS: [NativeOp; 5] = [NativeOp::Sum, NativeOp::Prod, NativeOp::Max, NativeOp::Min, NativeOp::Avg];

impl LibraryDouble {
    /// A library that has every call and every reduction, and serves one thread of its rank at a time. The ranks that
    /// meet are those of the same room.
    pub fn new(room: &LibraryRoom) -> LibraryDouble {
        let none = Capabilities::new(Arithmetic::ENGINE).scaling(REDUCIBLE);
        let capabilities = Native::ALL.into_iter().fold(none, Capabilities::with);
        let reducing = |known: Capabilities, op| known.reducing(op, REDUCIBLE);
        LibraryDouble {
            room: room.shared.clone(),
            capabilities: OPS.into_iter().fold(capabilities, reducing),
            turn: Some(LibraryTurn::new()),
            version: "the double 1.0".to_owned(),
            faults: Vec::new(),
            calls: AtomicU64::new(0),
            inside: AtomicUsize::new(0),
            at_turn: Box::new(|| {}),
        }
    }

    /// With only these of the calls that not every library has.
    #[must_use]
    pub fn with_natives(mut self, natives: &[Native]) -> LibraryDouble {
        let known = self.capabilities;
        let reducing = OPS.into_iter().fold(self.nothing(), |all, op| {
            let is_known = |dtype: &DType| known.reduces(op, *dtype);
            all.reducing(op, &REDUCIBLE.iter().copied().filter(is_known).collect::<Vec<_>>())
        });
        self.capabilities = natives.iter().copied().fold(reducing, Capabilities::with);
        self
    }

    /// With only these reductions.
    #[must_use]
    pub fn with_reductions(mut self, ops: &[NativeOp], dtypes: &[DType]) -> LibraryDouble {
        let kept = Native::ALL.into_iter().filter(|native| self.capabilities.has(*native));
        let kept = kept.fold(self.nothing(), Capabilities::with);
        self.capabilities = ops.iter().fold(kept, |all, op| all.reducing(*op, dtypes));
        self
    }

    /// What it would be without its calls and reductions.
    fn nothing(&self) -> Capabilities {
        let mut nothing = Capabilities::new(self.capabilities.arithmetic).scaling(REDUCIBLE);
        nothing.abort = self.capabilities.abort;
        nothing
    }

    /// With this rule for NaN in minima and maxima.
    #[must_use]
    pub fn with_nan(mut self, rule: NanInMinMax) -> LibraryDouble {
        self.capabilities.arithmetic.nan_in_min_max = rule;
        self
    }

    /// Serving any number of threads, each on its own communicator.
    #[must_use]
    pub fn serving_all_threads(mut self) -> LibraryDouble {
        self.turn = None;
        self
    }

    /// Of this version.
    #[must_use]
    pub fn with_version(mut self, version: &str) -> LibraryDouble {
        self.version = version.to_owned();
        self
    }

    /// Able to end a call that hangs.
    #[must_use]
    pub fn with_abort(mut self) -> LibraryDouble {
        self.capabilities.abort = true;
        self
    }

    /// Has every thread call `at_turn` that asks for the library's turn, as one does that reports a revocation. It is
    /// dropped with the library.
    pub fn with_at_turn(self, at_turn: impl Fn() + Send + Sync + 'static) -> LibraryDouble {
        LibraryDouble { at_turn: Box::new(at_turn), ..self }
    }

    /// In which this goes wrong then.
    #[must_use]
    pub fn with_fault(mut self, at: Moment, fault: Fault) -> LibraryDouble {
        self.faults.push((at, fault));
        self
    }

    /// How many calls this rank has made; see [`Moment::Call`].
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}
