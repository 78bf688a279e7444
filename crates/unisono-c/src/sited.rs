//! A communicator whose calls have the line of a caller in C: for calls that the library itself makes, as in `split`.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use unisono::call::{Call, OwnedCall};
use unisono::extend::calls::{Executor, Life, ParentCall, Site};
use unisono::{CallOptions, Communicator, Error, Group, Outcome, Probed, Result, Scope, Work};

/// The communicator beneath, with this line in every call.
pub struct Sited {
    inner: Arc<dyn Communicator>,
    site: Site,
    /// Is told when a scope is open.
    opened: Option<Sender<()>>,
}

impl Sited {
    /// The same communicator; its calls are made at this line.
    pub fn new(inner: Arc<dyn Communicator>, site: Site) -> Sited {
        Sited { inner, site, opened: None }
    }

    /// The same, which tells when a scope is open.
    pub(crate) fn that_tells(self, opened: Sender<()>) -> Sited {
        Sited { opened: Some(opened), ..self }
    }

    /// The error of `call` with this line: an error that is found before the communicator sees the call names the line
    /// in this crate that has made it.
    pub(crate) fn at_own_line(&self, error: Error, call: &dyn fmt::Display) -> Error {
        let call = || Some(format!("{call}{}", self.site.at()));
        match error {
            Error::InvalidArgument { argument, problem, call: Some(_) } => {
                Error::InvalidArgument { argument, problem, call: call() }
            }
            Error::Closed { call: Some(_) } => Error::Closed { call: call() },
            other => other,
        }
    }
}

impl Executor for Sited {
    fn group(&self) -> &Group {
        self.inner.group()
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        call.site = self.site;
        self.inner.execute(call)
    }

    fn submit(&self, mut call: OwnedCall) -> Work {
        call.site = self.site;
        self.inner.submit(call)
    }

    fn life(&self) -> &dyn Life {
        self
    }
}

impl Life for Sited {
    fn under(&self) -> Option<&dyn Life> {
        Some(self.inner.life())
    }

    fn probe(&self, call: &mut Call<'_>, waits: bool) -> Result<Option<Probed>> {
        call.site = self.site;
        self.inner.life().probe(call, waits)
    }

    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Scope> {
        let scope = self.inner.life().scope(ParentCall { site: Some(self.site), ..parent }, options)?;
        if let Some(opened) = &self.opened {
            // Nobody may listen any more.
            let _ = opened.send(());
        }
        Ok(scope.on(Arc::new(Sited::new(self.inner.clone(), self.site))))
    }
}
