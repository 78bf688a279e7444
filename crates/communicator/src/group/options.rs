//! The options that a new group has of its own, beside its ranks.

use std::time::Duration;

use crate::call::descriptor::Descriptor;
use crate::call::options::{AlgorithmName, CallOptions, Determinism};
use crate::short_text::ShortText;

/// The backend of a new group's collectives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupBackend {
    /// The same as for the communicator from which it is made.
    #[default]
    OfParent,
    /// The communicator's [companion](crate::Communicator::companion), so no vendor's library. It is the same as
    /// `OfParent` where no library is. As `new_group(backend="gloo")` of torch, beside a world of NCCL.
    Companion,
}

/// The options of a new group; see [`crate::Communicator::subgroup_with`]. All its ranks give the same: a difference is
/// an [`Error::Refused`](crate::Error::Refused) that names the option. An option that is not set comes from the
/// communicator from which the group is made; groups that are made from the group, its copies and its survivors have
/// its options in turn.
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
/// use std::time::Duration;
/// use unisono::{Communicator, GroupOptions, Solo};
/// let options = GroupOptions::new().timeout(Duration::from_secs(20)).label("evaluation");
/// let group = Solo::new().subgroup_with(&[0], &options)?.unwrap();
/// assert_eq!(group.group().options().timeout, Some(Duration::from_secs(20)));
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupOptions {
    /// The backend of its collectives.
    pub backend: GroupBackend,
    /// The deadline of its calls, from their start.
    pub timeout: Option<Duration>,
    /// The label of its calls that have none: errors and records show it.
    pub label: Option<ShortText>,
    /// The algorithm of its collectives that have one of this name; the cost model chooses for the others.
    pub algorithm: Option<AlgorithmName>,
    /// The order of its reductions. [`Determinism::Fixed`] holds for all its calls.
    pub determinism: Determinism,
    /// The time for which a thread that waits in one of its calls polls before it sleeps; see [`GroupOptions::spin`].
    pub spin: Option<Duration>,
}

impl GroupOptions {
    /// The names of the options, in the order of [`GroupOptions::texts`].
    pub const NAMES: [&'static str; 6] = ["backend", "timeout", "label", "algorithm", "determinism", "spin"];

    /// No option set.
    pub fn new() -> GroupOptions {
        GroupOptions::default()
    }

    /// Chooses the backend of its collectives.
    pub fn backend(mut self, backend: GroupBackend) -> GroupOptions {
        self.backend = backend;
        self
    }

    /// Sets the deadline of its calls.
    pub fn timeout(mut self, timeout: Duration) -> GroupOptions {
        self.timeout = Some(timeout);
        self
    }

    /// Labels its calls, with at most [`ShortText::BYTES_MAX`] bytes.
    pub fn label(mut self, text: &str) -> GroupOptions {
        self.label = Some(ShortText::new(text));
        self
    }

    /// Sets the algorithm of its collectives that have one of this name.
    pub fn algorithm(mut self, name: &str) -> GroupOptions {
        self.algorithm = Some(AlgorithmName::new(name));
        self
    }

    /// Chooses the order of its reductions.
    pub fn determinism(mut self, determinism: Determinism) -> GroupOptions {
        self.determinism = determinism;
        self
    }

    /// Sets the time for which a thread that waits in one of its calls polls before it sleeps, in place of
    /// `UNISONO_SPIN_US`. A rank that sleeps comes tens of microseconds late. With a time longer than the pause
    /// between two calls a rank sleeps only where other programs work on its core, and else burns it, or shares it
    /// with ranks by yielding: for the steps of an inference, with prepared calls. A backend of a vendor's library
    /// ignores it in calls on device memory, where no thread waits.
    pub fn spin(mut self, spin: Duration) -> GroupOptions {
        self.spin = Some(spin);
        self
    }

    /// These options; an option that is not set here comes from `parent`, except the backend, which says how a group
    /// was made.
    pub fn or(&self, parent: &GroupOptions) -> GroupOptions {
        GroupOptions {
            backend: self.backend,
            timeout: self.timeout.or(parent.timeout),
            label: self.label.or(parent.label),
            algorithm: self.algorithm.or(parent.algorithm),
            determinism: match self.determinism {
                Determinism::AnyOrder => parent.determinism,
                Determinism::Fixed => Determinism::Fixed,
            },
            spin: self.spin.or(parent.spin),
        }
    }

    /// Gives a call the options that it does not set itself.
    #[inline]
    pub fn complete(&self, descriptor: &mut Descriptor, options: &mut CallOptions) {
        if self.label.is_some() {
            descriptor.label = descriptor.label.or(self.label);
        }
        if self.determinism == Determinism::Fixed {
            options.determinism = Determinism::Fixed;
        }
    }

    /// Each option as a text, by which ranks compare them; empty for an option that is not set.
    pub fn texts(&self) -> [String; 6] {
        let backend = match self.backend {
            GroupBackend::OfParent => "",
            GroupBackend::Companion => "companion",
        };
        let determinism = match self.determinism {
            Determinism::AnyOrder => "",
            Determinism::Fixed => "fixed",
        };
        let algorithm = self.algorithm.and_then(|name| name.text().ok()).unwrap_or_default();
        let label = self.label.as_ref().map(ShortText::as_str).unwrap_or_default();
        let time = |time: Option<Duration>| time.map(|time| format!("{time:?}")).unwrap_or_default();
        let [backend, determinism] = [backend, determinism].map(str::to_owned);
        [backend, time(self.timeout), label.to_owned(), algorithm.to_owned(), determinism, time(self.spin)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn what_is_not_set_comes_from_the_parent_and_the_backend_does_not() {
        let parent = GroupOptions::new()
            .timeout(Duration::from_secs(3))
            .label("a")
            .algorithm("ring")
            .spin(Duration::from_millis(1));
        let parent = parent.backend(GroupBackend::Companion);
        let own = GroupOptions::new().label("b").determinism(Determinism::Fixed);
        assert_eq!(own.or(&parent).texts(), ["", "3s", "b", "ring", "fixed", "1ms"]);
        assert_eq!(parent.or(&own).texts(), ["companion", "3s", "a", "ring", "fixed", "1ms"]);
        assert_eq!(GroupOptions::new().texts(), [""; 6]);
    }

    #[test]
    fn what_no_group_can_have_is_refused_by_name() {
        let refused = [
            ("timeout", GroupOptions::new().timeout(Duration::ZERO)),
            ("label", GroupOptions::new().label(&"x".repeat(33))),
            ("algorithm", GroupOptions::new().algorithm(&"x".repeat(257))),
        ];
        for (name, options) in refused {
            let Err(Error::InvalidArgument { argument, .. }) = options.check() else { panic!("{name}") };
            assert_eq!(argument, name);
        }
    }
}
