//! The order in which collectives are issued: the communicator's, or the order of the scope that a call names.

use std::fmt::Display;
use std::ops::Deref;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_communicator::{
    Awaited, CallInfo, CallOptions, Descriptor, Error, ParentCall, Result, ScopeId, ShortText, Site,
    WhenBusy, deadline_after,
};

use crate::gate::CallGate;
use crate::scope::{Enclosing, ScopeOrder, ScopeTurn};
use crate::turnstile::{Pass, Turnstile};

/// The order that a call follows.
#[derive(Clone)]
pub enum CallOrder<'a> {
    /// The communicator's order.
    Plain(&'a Turnstile),
    /// A scope's order.
    Scoped(Arc<ScopeOrder>),
}

impl Deref for CallOrder<'_> {
    type Target = Turnstile;

    #[inline]
    fn deref(&self) -> &Turnstile {
        match self {
            CallOrder::Plain(order) => order,
            CallOrder::Scoped(scope) => &scope.order,
        }
    }
}

impl CallOrder<'_> {
    /// The parent call and the deadline of the scope; `None` outside a scope.
    #[inline]
    pub fn enclosing(&self) -> Option<&Enclosing> {
        match self {
            CallOrder::Plain(_) => None,
            CallOrder::Scoped(scope) => Some(&scope.enclosing),
        }
    }

    /// The options of a call with `own` options, completed by its scope's; it must end with the scope. `default` is the
    /// timeout of a call that sets none.
    #[inline]
    pub fn options(&self, own: &CallOptions, default: Duration) -> CallOptions {
        match self {
            CallOrder::Plain(_) => *own,
            CallOrder::Scoped(scope) => scope.options(own, default),
        }
    }

    /// Whether this is the order of a scope that was opened with a timeout.
    pub fn has_deadline(&self) -> bool {
        match self {
            CallOrder::Plain(_) => false,
            CallOrder::Scoped(scope) => scope.has_deadline,
        }
    }
}

/// The right to issue a collective, until it is dropped.
#[must_use]
pub struct Turn<'a> {
    pass: Pass<CallOrder<'a>>,
}

impl Turn<'_> {
    /// The parent call and the deadline of the call's scope, if it is in one.
    #[inline]
    pub fn enclosing(&self) -> Option<&Enclosing> {
        self.pass.turnstile().enclosing()
    }
}

impl CallGate {
    /// The order of a call with this scope.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a scope that is not open on this communicator.
    #[inline]
    pub fn order_of(&self, scope: Option<ScopeId>) -> Result<CallOrder<'_>> {
        match scope {
            None => Ok(CallOrder::Plain(self.order())),
            Some(id) => match self.open_scope.find(id) {
                Some(scope) => Ok(CallOrder::Scoped(scope)),
                None => Err(Error::invalid("scope", "not open on this communicator")),
            },
        }
    }

    /// Takes the turn of a collective, its right to be issued. The scope completes its options, and the wait shortens
    /// its timeout.
    ///
    /// One thread at a time issues collectives. Another call waits if it has a label (a wrong order would then show),
    /// or if its caller guarantees the order ([`WhenBusy::Queue`]). Any other call is refused.
    ///
    /// # Errors
    /// As [`CallGate::order_of`] and, outside a scope, as [`CallGate::check_own_scope`]. [`Error::ConcurrentUse`].
    /// [`Error::Closed`] after a wait for `close`. [`Error::Timeout`] when the turn does not come in time; it revokes
    /// the communicator, since the other ranks wait for the call. The first cause, when it comes during the wait.
    pub fn take_turn(
        &self,
        scope: Option<ScopeId>,
        descriptor: &Descriptor,
        site: Site,
        options: &mut CallOptions,
    ) -> Result<Turn<'_>> {
        let order = self.order_of(scope)?;
        if let CallOrder::Scoped(scope) = &order {
            *options = scope.options(options, self.timeout());
        }
        let patience = self.patience(descriptor.label, options);
        let parent = order.enclosing().map(|enclosing| &enclosing.parent);
        let info =
            || CallInfo { site: Some(site.into()), parent: parent.cloned(), ..CallInfo::new(0, *descriptor) };
        let (pass, waited) = self.pass(order.clone(), descriptor, info, patience)?;
        if waited > Duration::ZERO {
            let timeout = options.timeout.unwrap_or(self.timeout());
            options.timeout = Some(timeout.saturating_sub(waited));
        }
        Ok(Turn { pass })
    }

    /// Takes the turn for a scope of `parent`. Ranks compare `context`, a hash of the parent.
    ///
    /// # Errors
    /// As [`CallGate::take_turn`].
    pub fn open_scope(&self, parent: ParentCall, context: u32, options: &CallOptions) -> Result<ScopeTurn> {
        let deadline = deadline_after(Instant::now(), options.timeout.unwrap_or(self.timeout()));
        let patience = self.patience(parent.descriptor.label, options);
        let site = parent.site.and_then(Site::text);
        let info = || CallInfo {
            site,
            parent: Some(Arc::new(parent.clone())),
            ..CallInfo::new(0, parent.descriptor)
        };
        let pass = self.pass(self.order().clone(), &parent, info, patience);
        let (pass, _) = pass.map_err(|error| error.in_call(&parent.with_site()))?;
        let turn = ScopeTurn::new(pass, self.board(), parent, context, options, deadline);
        self.open_scope.set(&turn);
        Ok(turn)
    }

    /// Refuses a call past the scope that this thread has open: the call would wait for itself. After a failure no call
    /// waits.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`].
    pub fn check_own_scope(&self) -> Result<()> {
        match self.open_scope.own_parent() {
            Some(parent) if !self.board().first_cause().is_revoked() => Err(Error::past_scope(&parent)),
            Some(_) | None => Ok(()),
        }
    }

    /// The time that a call may wait for its turn; `None` if it is refused instead.
    #[inline]
    pub(crate) fn patience(&self, label: Option<ShortText>, options: &CallOptions) -> Option<Duration> {
        match (options.when_busy, label) {
            (WhenBusy::Refuse, None) => None,
            (WhenBusy::Queue, _) | (WhenBusy::Refuse, Some(_)) => {
                Some(options.timeout.unwrap_or(self.timeout()))
            }
        }
    }

    /// Takes the pass of an order for `call`, and gives the time of the wait. `info` is the call as errors show it.
    #[inline]
    pub(crate) fn pass<H: Deref<Target = Turnstile> + Clone>(
        &self,
        order: H,
        call: &dyn Display,
        info: impl FnOnce() -> CallInfo,
        patience: Option<Duration>,
    ) -> Result<(Pass<H>, Duration)> {
        if let Some(pass) = Turnstile::try_pass(order.clone()) {
            return Ok((pass, Duration::ZERO));
        }
        let is_outside = ptr::eq::<Turnstile>(&*order, &**self.order());
        if is_outside {
            self.check_own_scope()?;
        }
        let patience = patience.ok_or_else(|| Error::ConcurrentUse { call: call.to_string() })?;
        let started = Instant::now();
        let pass = self.wait_for_turn(order, patience)?;
        let waited = started.elapsed();
        // The previous call may have been `close`.
        self.check_open(call)?;
        pass.map(|pass| (pass, waited)).ok_or_else(|| self.late(info(), is_outside, waited))
    }

    /// Fails the communicator because the turn of a call has not come in time. `is_outside` says whether the call waits
    /// in the communicator's order, outside any scope.
    fn late(&self, call: CallInfo, is_outside: bool, waited: Duration) -> Error {
        let reported_by = self.group().own_job_rank();
        let in_call = || "is in another thread's call, behind which this one waits".to_owned();
        let status = if is_outside { self.open_scope.status() } else { None };
        let status = status.unwrap_or_else(in_call);
        let not_arrived = vec![Awaited { rank: reported_by, status }];
        self.fail(Error::Timeout { call: Box::new(call), reported_by, waited, not_arrived })
    }

    /// Waits for earlier calls, at most for `timeout`; `None` when they are not over by then.
    ///
    /// # Errors
    /// The first cause, when it comes during the wait.
    pub fn wait_for_turn<H: Deref<Target = Turnstile>>(
        &self,
        order: H,
        timeout: Duration,
    ) -> Result<Option<Pass<H>>> {
        let until = deadline_after(Instant::now(), timeout);
        match Turnstile::wait(order, Some(until), || self.board().first_cause().is_revoked()) {
            Some(pass) => Ok(Some(pass)),
            None => self.check_revoked().map(|()| None),
        }
    }
}
