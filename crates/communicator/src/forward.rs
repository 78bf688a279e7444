//! A macro for communicators that pass calls on to another communicator.

use std::sync::Arc;

use crate::communicator::Communicator;

/// Writes methods of [`Communicator`] that call the same method of an inner communicator; for use inside an `impl`. The
/// methods are listed after the semicolon; `all` is every method.
///
/// List every method that the `impl` does not write itself. A missing method gets the trait's default, which silently
/// answers [`Unsupported`] or ignores the inner communicator.
///
/// [`Unsupported`]: crate::Error::Unsupported
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use unisono_communicator::{
///     Call, Collectives, Communicator, Outcome, OwnedCall, ReduceOp, Result, Solo, Work, forward_communicator,
/// };
///
/// /// Counts the calls of a communicator.
/// struct Counted<C>(C, AtomicU64);
///
/// impl<C: Communicator> Communicator for Counted<C> {
///     forward_communicator!(self => self.0; group, backend, native_collectives, cost_model, companion, observations,
///         supports, resolve_within, resolve, register, subgroup_with, duplicate, shrink, agree, monitored_barrier,
///         scope, revoke, abort, close);
///
///     fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
///         self.1.fetch_add(1, Ordering::Relaxed);
///         self.0.execute(call)
///     }
///
///     fn submit(&self, call: OwnedCall) -> Work {
///         self.1.fetch_add(1, Ordering::Relaxed);
///         self.0.submit(call)
///     }
/// }
///
/// let counted = Counted(Solo::new(), AtomicU64::new(0));
/// counted.all_reduce(&mut [1.0f32], ReduceOp::Sum)?;
/// assert_eq!(counted.1.into_inner(), 1);
/// # Ok::<(), unisono_communicator::Error>(())
/// ```
#[macro_export]
macro_rules! forward_communicator {
    ($this:ident => $inner:expr; all) => {
        $crate::forward_communicator!($this => $inner; group, execute, submit, backend, native_collectives,
            cost_model, companion, observations, supports, resolve_within, resolve, register, subgroup_with,
            duplicate, shrink, agree, monitored_barrier, scope, revoke, abort, close);
    };
    ($this:ident => $inner:expr; $($method:ident),+ $(,)?) => {
        $($crate::forward_communicator!(@$method $this, $inner);)+
    };
    (@group $this:ident, $inner:expr) => {
        #[inline]
        fn group(&$this) -> &$crate::Group {
            $inner.group()
        }
    };
    (@execute $this:ident, $inner:expr) => {
        #[inline]
        fn execute(&$this, call: &mut $crate::Call<'_>) -> $crate::Result<$crate::Outcome> {
            $inner.execute(call)
        }
    };
    (@submit $this:ident, $inner:expr) => {
        #[inline]
        fn submit(&$this, call: $crate::OwnedCall) -> $crate::Work {
            $inner.submit(call)
        }
    };
    (@backend $this:ident, $inner:expr) => {
        fn backend(&$this) -> &'static str {
            $inner.backend()
        }
    };
    (@native_collectives $this:ident, $inner:expr) => {
        fn native_collectives(&$this) -> Vec<$crate::Collective> {
            $inner.native_collectives()
        }
    };
    (@cost_model $this:ident, $inner:expr) => {
        fn cost_model(&$this) -> $crate::CostModel {
            $inner.cost_model()
        }
    };
    (@companion $this:ident, $inner:expr) => {
        fn companion(&$this) -> Option<std::sync::Arc<dyn $crate::Communicator>> {
            $inner.companion()
        }
    };
    (@observations $this:ident, $inner:expr) => {
        fn observations(&$this) -> $crate::Observations {
            $inner.observations()
        }
    };
    (@supports $this:ident, $inner:expr) => {
        fn supports(
            &$this,
            descriptor: &$crate::Descriptor,
            options: &$crate::CallOptions,
            memory: $crate::MemoryKind,
        ) -> $crate::Result<()> {
            $inner.supports(descriptor, options, memory)
        }
    };
    (@resolve_within $this:ident, $inner:expr) => {
        fn resolve_within(
            &$this,
            ticket: $crate::Ticket,
            timeout: std::time::Duration,
        ) -> $crate::Result<Option<$crate::Outcome>> {
            $inner.resolve_within(ticket, timeout)
        }
    };
    (@resolve $this:ident, $inner:expr) => {
        fn resolve(&$this, ticket: $crate::Ticket) -> $crate::Result<$crate::Outcome> {
            $inner.resolve(ticket)
        }
    };
    (@register $this:ident, $inner:expr) => {
        fn register(
            &$this,
            algorithm: std::sync::Arc<$crate::Algorithm>,
            trust: $crate::Trust,
        ) -> $crate::Result<()> {
            $inner.register(algorithm, trust)
        }
    };
    (@subgroup_with $this:ident, $inner:expr) => {
        fn subgroup_with(
            &$this,
            ranks: &[u32],
            options: &$crate::GroupOptions,
        ) -> $crate::Result<Option<std::sync::Arc<dyn $crate::Communicator>>> {
            $inner.subgroup_with(ranks, options)
        }
    };
    (@duplicate $this:ident, $inner:expr) => {
        fn duplicate(&$this) -> $crate::Result<std::sync::Arc<dyn $crate::Communicator>> {
            $inner.duplicate()
        }
    };
    (@shrink $this:ident, $inner:expr) => {
        fn shrink(&$this) -> $crate::Result<$crate::Shrunk> {
            $inner.shrink()
        }
    };
    (@agree $this:ident, $inner:expr) => {
        fn agree(&$this, flag: bool) -> $crate::Result<bool> {
            $inner.agree(flag)
        }
    };
    (@monitored_barrier $this:ident, $inner:expr) => {
        fn monitored_barrier(&$this, timeout: std::time::Duration) -> $crate::Result<()> {
            $inner.monitored_barrier(timeout)
        }
    };
    (@scope $this:ident, $inner:expr) => {
        fn scope(&$this, parent: $crate::ParentCall, options: &$crate::CallOptions) -> $crate::Result<$crate::Scope> {
            $inner.scope(parent, options)
        }
    };
    (@revoke $this:ident, $inner:expr) => {
        fn revoke(&$this, cause: $crate::Error) -> $crate::Result<()> {
            $inner.revoke(cause)
        }
    };
    (@abort $this:ident, $inner:expr) => {
        fn abort(&$this) -> $crate::Result<()> {
            $inner.abort()
        }
    };
    (@close $this:ident, $inner:expr) => {
        fn close(&$this) -> $crate::Result<()> {
            $inner.close()
        }
    };
}

impl<C: Communicator + ?Sized> Communicator for &C {
    forward_communicator!(self => (**self); all);
}

impl<C: Communicator + ?Sized> Communicator for Box<C> {
    forward_communicator!(self => (**self); all);
}

impl<C: Communicator + ?Sized> Communicator for Arc<C> {
    forward_communicator!(self => (**self); all);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use crate::{Collectives, Communicator, ReduceOp, Solo};

    #[test]
    fn a_reference_a_box_and_an_arc_go_where_a_communicator_is_asked_for() {
        fn length<C: Communicator>(comm: C, own: usize) -> usize {
            let mut sum = [own];
            comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
            sum[0]
        }
        let (solo, boxed): (_, Box<dyn Communicator>) = (Solo::new(), Box::new(Solo::new()));
        let shared: Arc<dyn Communicator> = Arc::new(Solo::new());
        let borrowed: &dyn Communicator = &solo;
        assert_eq!(
            [length(&solo, 1), length(borrowed, 2), length(boxed, 3), length(shared, 4)],
            [1, 2, 3, 4]
        );
    }

    /// Methods whose defaults are right for every communicator that forwards the others.
    const MADE_OF_OTHERS: [&str; 3] = ["rank", "size", "subgroup"];

    /// The names that follow `marker` in the lines of `text`.
    fn names<'a>(text: &'a str, marker: &str) -> BTreeSet<&'a str> {
        let rests = text.lines().filter_map(|line| line.strip_prefix(marker));
        rests
            .filter_map(|rest| rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next())
            .collect()
    }

    #[test]
    fn every_method_is_forwarded_to_the_method_of_its_name() {
        let source = include_str!("communicator.rs");
        let body = source.split_once("pub trait Communicator").unwrap().1.split_once("\n}\n").unwrap().0;
        let methods: BTreeSet<&str> =
            names(body, "    fn ").into_iter().filter(|name| !MADE_OF_OTHERS.contains(name)).collect();
        assert!(methods.contains("execute") && methods.len() > 15, "{methods:?}");

        let own = include_str!("forward.rs").split_once("macro_rules!").unwrap().1;
        let own = own.split_once("#[cfg(test)]").unwrap().0;
        assert_eq!(names(own, "    (@"), methods, "arms of the macro");
        for method in &methods {
            let arm = own.split_once(&format!("(@{method} ")).unwrap().1.split_once("    };").unwrap().0;
            let arguments = arm.split_once(&format!("fn {method}(")).unwrap().1;
            assert!(arguments.trim_start().starts_with("&$this"), "{arm}");
            assert!(arm.contains(&format!("$inner.{method}(")), "{arm}");
        }
        let all = own.split_once("$inner; ").unwrap().1.split_once(')').unwrap().0;
        let all: BTreeSet<&str> = all.split(',').map(str::trim).collect();
        assert_eq!(all, methods, "the list of `all`");
    }
}
