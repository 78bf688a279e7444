//! The implementation that each method reaches, behind each pointer and each decorator.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesPrepared, PointToPoint, Solo};
use unisono_communicator::{
    Algorithm, Call, CallOptions, Collective, Communicator, CostModel, DType, Descriptor, Error, Executor,
    Finished, Group, GroupOptions, Life, MemoryKind, Observations, OpenScope, Outcome, OwnedCall, ParentCall,
    PreparedCall, Probed, ReduceOp, Result, Scope, ScopeId, Shrunk, Ticket, Trust, Work,
};

/// A backend that notes which of its methods are reached.
struct Noting {
    group: Group,
    reached: Mutex<Vec<&'static str>>,
}

impl Noting {
    fn new() -> Arc<Noting> {
        Arc::new(Noting { group: Group::world(0, 1), reached: Mutex::default() })
    }

    fn note(&self, method: &'static str) {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner).push(method);
    }

    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.reached.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Writes methods that note their names and give these results.
macro_rules! noting {
    ($(fn $method:ident($($argument:ty),*) -> $result:ty { $value:expr })+) => {
        impl Life for Noting {
            $(noting!(@ $method, $value, $result, $($argument),*);)+
        }
    };
    (@ $method:ident, $value:expr, $result:ty,) => {
        fn $method(&self) -> $result { self.note(stringify!($method)); $value }
    };
    (@ $method:ident, $value:expr, $result:ty, $a:ty) => {
        fn $method(&self, _: $a) -> $result { self.note(stringify!($method)); $value }
    };
    (@ $method:ident, $value:expr, $result:ty, $a:ty, $b:ty) => {
        fn $method(&self, _: $a, _: $b) -> $result { self.note(stringify!($method)); $value }
    };
    (@ $method:ident, $value:expr, $result:ty, $a:ty, $b:ty, $c:ty, $d:ty) => {
        fn $method(&self, _: $a, _: $b, _: $c, _: $d) -> $result { self.note(stringify!($method)); $value }
    };
}

noting! {
    fn backend() -> &'static str { "noting" }
    fn native_collectives() -> Vec<Collective> { Vec::new() }
    fn cost_model() -> CostModel { CostModel::LOOPBACK }
    fn companion() -> Option<Arc<dyn Communicator>> { None }
    fn observations() -> Observations { Observations::default() }
    fn supports(&Group, &Descriptor, &CallOptions, MemoryKind) -> Result<()> { Ok(()) }
    fn resolve_within(Ticket, Duration) -> Result<Option<Outcome>> { Ok(Some(Outcome::done(0, ""))) }
    fn prepare(&Group, &Descriptor, &CallOptions, MemoryKind) -> Result<PreparedCall> { Err(Error::closed()) }
    fn exchange(&mut [Call<'_>], &mut [Option<Result<Outcome>>]) -> Result<()> { Ok(()) }
    fn probe(&mut Call<'_>, bool) -> Result<Option<Probed>> { Ok(None) }
    fn register(Arc<Algorithm>, Trust) -> Result<()> { Ok(()) }
    fn subgroup_with(&[u32], &GroupOptions) -> Result<Option<Arc<dyn Communicator>>> { Ok(None) }
    fn duplicate() -> Result<Arc<dyn Communicator>> { Err(Error::closed()) }
    fn shrink() -> Result<Shrunk> { Err(Error::closed()) }
    fn agree(bool) -> Result<bool> { Ok(true) }
    fn monitored_barrier(Duration) -> Result<()> { Ok(()) }
    fn scope(ParentCall, &CallOptions) -> Result<Scope> { Err(Error::closed()) }
    fn revoke(Error) -> Result<()> { Ok(()) }
    fn abort() -> Result<()> { Ok(()) }
    fn close() -> Result<()> { Ok(()) }
}

/// Writes the doors of a backend that runs no calls.
macro_rules! doors_without_calls {
    ($backend:ty) => {
        impl Executor for $backend {
            fn group(&self) -> &Group {
                &self.group
            }

            fn execute(&self, _: &mut Call<'_>) -> Result<Outcome> {
                Err(Error::closed())
            }

            fn submit(&self, call: OwnedCall) -> Work {
                Work::finished(Finished { result: Err(Error::closed()), buffers: Some(call.buffers) })
            }

            fn life(&self) -> &dyn Life {
                self
            }
        }
    };
}

/// A backend with the four doors alone.
struct DoorsAlone {
    group: Group,
}

impl Life for DoorsAlone {}

doors_without_calls!(Noting);
doors_without_calls!(DoorsAlone);

/// An open scope that nothing depends on.
struct Open(Arc<ParentCall>, ScopeId);

impl OpenScope for Open {
    fn id(&self) -> ScopeId {
        self.1
    }

    fn parent(&self) -> &Arc<ParentCall> {
        &self.0
    }

    fn numbers(&self) -> Range<u64> {
        0..0
    }

    fn hand_over(&self) {}

    fn note_size(&self, _: u64) {}
}

fn barrier() -> Descriptor {
    Descriptor::new(Collective::Barrier, DType::U8, 0)
}

/// The result of a method that cannot fail.
fn called<T>(_: T) -> Result<()> {
    Ok(())
}

type MethodCall = fn(&dyn Communicator) -> Result<()>;

/// Every method of [`Life`] that users reach, as they call it.
const METHODS: [(&str, MethodCall); 20] = [
    ("backend", |comm| called(comm.backend())),
    ("native_collectives", |comm| called(comm.native_collectives())),
    ("cost_model", |comm| called(comm.cost_model())),
    ("companion", |comm| called(comm.companion())),
    ("observations", |comm| called(comm.observations())),
    ("supports", |comm| comm.supports(&barrier(), &CallOptions::new(), MemoryKind::Host)),
    ("resolve_within", |comm| comm.resolve(Ticket::new(1, 1)).map(drop)),
    ("prepare", |comm| comm.prepare_all_reduce::<u8>(1, ReduceOp::Sum).map(drop)),
    ("exchange", |comm| comm.send_recv(&[1u8], 0, &mut [0u8], 0, 0).map(drop)),
    ("probe", |comm| comm.try_probe(0, 0).map(drop)),
    ("register", |comm| {
        let algorithm = unisono_schedule::Registry::built_in().algorithms().next().cloned();
        comm.register(algorithm.ok_or_else(Error::closed)?, Trust::Prove)
    }),
    ("subgroup_with", |comm| comm.subgroup(&[0]).map(drop)),
    ("duplicate", |comm| comm.duplicate().map(drop)),
    ("shrink", |comm| comm.shrink().map(drop)),
    ("agree", |comm| comm.agree(true).map(drop)),
    ("monitored_barrier", |comm| comm.monitored_barrier(Duration::ZERO)),
    ("scope", |comm| comm.scope(ParentCall::new("parent", barrier()), &CallOptions::new()).map(drop)),
    ("revoke", |comm| comm.revoke(Error::closed())),
    ("abort", |comm| comm.abort()),
    ("close", |comm| comm.close()),
];

/// The methods that do not reach the backend's method of their name, each with its error.
fn not_reached(noting: &Noting, through: &dyn Communicator) -> Vec<(&'static str, Option<Error>)> {
    let mut missing = Vec::new();
    for (method, call) in METHODS {
        let error = call(through).err();
        if noting.take() != [method] {
            missing.push((method, error));
        }
    }
    missing
}

#[test]
fn pointers_and_decorators_reach_the_backend() {
    let noting = Noting::new();
    let shared: Arc<dyn Communicator> = noting.clone();
    let boxed: Box<dyn Communicator> = Box::new(shared.clone());
    let with = noting.with(CallOptions::new().label("label"));
    for through in [&*noting as &dyn Communicator, &&*noting, &shared, &boxed, &with, &&with] {
        assert!(not_reached(&noting, through).is_empty());
    }
}

#[test]
fn a_scope_refuses_three_methods_and_names_the_backend() {
    let noting = Noting::new();
    let open = Open(Arc::new(ParentCall::new("parent", barrier())), ScopeId::new_unique());
    let scope = Scope::new(noting.clone(), Box::new(open));
    let refused = not_reached(&noting, &scope);
    assert_eq!(refused.iter().map(|(method, _)| *method).collect::<Vec<_>>(), ["register", "scope", "close"]);
    for (method, error) in refused {
        let Some(Error::Unsupported { what, backend, .. }) = error else { panic!("{method}: {error:?}") };
        assert_eq!((what, backend), (format!("{method} within a scope"), "noting"));
    }
}

#[test]
fn a_backend_with_the_four_doors_alone_answers_with_its_name() {
    let bare = DoorsAlone { group: Group::world(0, 1) };
    let comm: &dyn Communicator = &bare;
    assert!(comm.backend().ends_with("DoorsAlone") && comm.companion().is_none());
    let plain = ["backend", "native_collectives", "cost_model", "companion", "observations", "supports"];
    for (method, call) in METHODS {
        match call(comm) {
            Ok(()) => assert!(plain.contains(&method), "{method}"),
            Err(Error::Unsupported { backend, .. }) => assert!(backend.ends_with("DoorsAlone"), "{method}"),
            Err(error) => panic!("{method}: {error}"),
        }
    }
}

/// The names of the methods in the lines of a trait.
fn methods(source: &'static str, of: &str) -> BTreeSet<&'static str> {
    let body =
        source.split_once(of).and_then(|(_, rest)| rest.split_once("\n}\n")).map_or("", |(body, _)| body);
    let names = body.lines().filter_map(|line| line.strip_prefix("    fn ")?.split('(').next());
    names.collect()
}

#[test]
fn the_tests_call_every_method() {
    let life = methods(include_str!("../src/life.rs"), "pub trait Life");
    let tested: BTreeSet<&str> = METHODS.into_iter().map(|(method, _)| method).collect();
    assert_eq!(life, tested.into_iter().chain(["under"]).collect());
    // Users reach these by typed calls, and the others are made of these and of the doors.
    let (typed, made) = (["under", "prepare", "exchange", "probe"], ["rank", "size", "resolve", "subgroup"]);
    let users = methods(include_str!("../src/communicator.rs"), "pub trait Communicator");
    assert_eq!(users, life.into_iter().filter(|name| !typed.contains(name)).chain(made).collect());
}

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
    assert_eq!([length(&solo, 1), length(borrowed, 2), length(boxed, 3), length(shared, 4)], [1, 2, 3, 4]);
}
