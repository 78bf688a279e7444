//! The turns that a communicator takes in its library and on its device: on this rank alone for a call, or on all ranks
//! or none.

use std::time::{Duration, Instant};

use unisono_collectives::Collectives;
use unisono_communicator::{Awaited, CallInfo, CallOptions, Descriptor, Error, ReduceOp, Result};

use crate::device_turn::{DevicePass, DeviceTurn, Purpose, User};
use crate::thread::{VendorShared, stuck};
use crate::turn::LibraryPass;
use crate::vendor::Vendor;

/// The time that a rank waits for its turns before it compares its state with the others.
const TURN_WAIT_MIN: Duration = Duration::from_millis(1);
const TURN_WAIT_MAX: Duration = Duration::from_millis(64);

/// The states that ranks compare. The largest state of all ranks counts.
const HAS_TURN: u8 = 0;
const WAITS_FOR_TURN: u8 = 1;
const IS_STUCK: u8 = 2;

/// The turns that a thread has taken, as far as it needs any.
#[derive(Default)]
pub(crate) struct Passes<'t> {
    _library: Option<LibraryPass>,
    _device: Option<DevicePass<'t>>,
}

impl<V: Vendor> VendorShared<V> {
    /// The turn on the device, if the device needs one.
    pub(crate) fn device_turn(&self) -> Option<&DeviceTurn> {
        self.vendor.device().and_then(|device| device.turn())
    }

    /// The user who takes the turn.
    pub(crate) fn user(&self, purpose: Purpose) -> User {
        User { board: self.companion.gate().board().clone(), purpose }
    }

    /// Takes the turn on the device to enqueue a call, if the device needs a turn. `number` is the call's number, if
    /// that is known.
    ///
    /// # Errors
    /// [`Error::Timeout`], which names the holder, if the turn has not come in time; [`Error::Closed`] when the call is
    /// given up, or there is a first cause.
    pub(crate) fn take_device(
        &self,
        descriptor: &Descriptor,
        number: Option<u64>,
        until: Option<Instant>,
    ) -> Result<Option<DevicePass<'_>>> {
        let Some(turn) = self.device_turn() else { return Ok(None) };
        let (started, board) = (Instant::now(), self.companion.gate().board());
        let gave_up = || self.is_given_up() || board.first_cause().is_revoked();
        let user = self.user(Purpose::Call(*descriptor, number));
        if let Some(pass) = turn.take(&user, until, gave_up) {
            return Ok(Some(pass));
        }
        let not_arrived = self.behind().into_iter().collect();
        board.on_streams().wait_behind(None);
        if gave_up() {
            return Err(Error::closed());
        }
        let call = match (number, descriptor.operation.collective()) {
            // A message has no number.
            (None, None) => CallInfo::new(0, *descriptor),
            (number, _) => {
                let number = number.unwrap_or_else(|| board.calls().entered().saturating_sub(1));
                board.calls().info(number).unwrap_or_else(|| CallInfo::new(number, *descriptor))
            }
        };
        let (reported_by, waited) = (self.companion.group().own_job_rank(), started.elapsed());
        Err(Error::Timeout { call: Box::new(call), reported_by, waited, not_arrived })
    }

    /// The wait of this rank for its turn on the device, if it waits for that.
    pub(crate) fn behind(&self) -> Option<Awaited> {
        let gate = self.companion.gate();
        let (device, call) = (self.vendor.device()?, gate.board().on_streams().behind()?);
        let status = format!("waits for its turn on device {}, behind {call}", device.ordinal());
        Some(Awaited { rank: gate.group().own_job_rank(), status })
    }

    /// Takes the turn in the library on all ranks, if the library needs a turn, and the turn on each rank's device, if
    /// there is a `purpose`. All ranks must call it. If the turns of one rank do not come soon, all ranks let go and
    /// try again: no rank holds a turn while it waits for the turn of another rank.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on all ranks when a thread of one rank hangs in the library; errors of the communicator
    /// beneath.
    pub(crate) fn together(&self, until: Instant, purpose: Option<Purpose>) -> Result<Passes<'_>> {
        let turn = self.vendor.turn();
        let device = purpose.and_then(|purpose| Some((self.device_turn()?, self.user(purpose))));
        if turn.is_none() && device.is_none() {
            return Ok(Passes::default());
        }
        let mut wait = TURN_WAIT_MIN;
        loop {
            let given_up = || self.inner.gate().board().first_cause().is_revoked();
            let end = Some(Instant::now() + wait);
            let in_library = turn.map(|turn| turn.take(end, given_up));
            let on_device = device.as_ref().map(|(turn, user)| turn.take(user, end, given_up));
            let state = match (&in_library, &on_device) {
                _ if turn.is_some_and(|turn| turn.is_stuck()) => IS_STUCK,
                (Some(None), _) | (_, Some(None)) => WAITS_FOR_TURN,
                _ => HAS_TURN,
            };
            match self.tell(state, until)? {
                HAS_TURN => {
                    return Ok(Passes { _library: in_library.flatten(), _device: on_device.flatten() });
                }
                WAITS_FOR_TURN => {}
                _ => return Err(stuck::<V>()),
            }
            drop((in_library, on_device));
            // Ranks wait for different times, so that two communicators do not block each other for ever.
            let rank = self.companion.group().own_job_rank().get();
            std::thread::sleep(wait.mul_f64(f64::from(rank % 7) / 7.0));
            wait = (wait * 2).min(TURN_WAIT_MAX);
        }
    }

    /// The largest of all ranks' states.
    fn tell(&self, state: u8, until: Instant) -> Result<u8> {
        let mut largest = [state];
        // The deadline here is later than the call's own, because the call's own error says more.
        let timeout = until.saturating_duration_since(Instant::now()) + Duration::from_secs(1);
        let options = CallOptions::new().timeout(timeout).needed().profiled(false);
        self.inner.with(options).all_reduce(&mut largest, ReduceOp::Max)?;
        Ok(largest[0])
    }
}
