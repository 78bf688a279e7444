//! The process of a rank: joins worlds, and does there what the test asks.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use unisono_communicator::{
    Algorithm, AlgorithmName, Communicator, ParentCall, Probed, Result, Scope, Shrunk, Trust,
};
use unisono_engine::EngineOptions;
use unisono_job::Job;
use unisono_job::config::Config;
use unisono_transport_tcp::Tcp;

use super::connection::{Answer, Connection};
use super::held_work::HeldWork;
use super::messages::{CommunicatorInfo, Id, ProbedMessage, Request, ScopeInfo, ShrunkMessage, WorldMessage};
use super::rank_calls::{exchange, execute, owned_call, probe};
use super::wire::{decode, encode};
use crate::backend::{MakeGroup, with_options};

/// How long the process may take to end by itself when the test has.
const GRACE: Duration = Duration::from_secs(3);

/// What a backend makes of a world that a process has joined.
pub trait RankProcess: Send + Sync + 'static {
    /// Makes the communicator of all ranks on this rank.
    ///
    /// # Errors
    /// For wrong options, or when the ranks do not come together.
    fn join(&self, world: &Job, options: &EngineOptions) -> Result<Joined>;

    /// Whether the process can serve another world.
    fn is_usable(&self) -> bool {
        true
    }
}

/// A rank's part of a world.
pub struct Joined {
    /// The world's communicator.
    pub communicator: Arc<dyn Communicator>,
    /// Makes groups with members only.
    pub groups: Box<dyn MakeGroup>,
}

/// Does what the test at the other end of standard input asks, until it ends; then the process ends too.
///
/// # Panics
/// When standard input is no socket.
pub fn serve(backend: impl RankProcess) -> ! {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let (last_id, asked, state) = (AtomicU64::new(0), AtomicUsize::new(0), Mutex::default());
    let rank = Rank { backend: Box::new(backend), last_id, asked, state };
    let _connection = Connection::start(UnixStream::from(socket), Arc::new(rank));
    loop {
        std::thread::park();
    }
}

struct Rank {
    backend: Box<dyn RankProcess>,
    last_id: AtomicU64,
    /// Questions that are being answered.
    asked: AtomicUsize,
    state: Mutex<State>,
}

/// What the test holds here. Dropped in this order.
#[derive(Default)]
struct State {
    works: HashMap<Id, Arc<HeldWork>>,
    probed: HashMap<Id, Probed>,
    communicators: HashMap<Id, Derived>,
    groups: Option<Arc<dyn MakeGroup>>,
    world: Option<Job>,
}

#[derive(Clone)]
enum Derived {
    Communicator(Arc<dyn Communicator>),
    Scope(Arc<Scope>),
}

impl Derived {
    fn communicator(&self) -> &dyn Communicator {
        match self {
            Derived::Communicator(communicator) => &**communicator,
            Derived::Scope(scope) => &**scope,
        }
    }
}

impl Answer for Rank {
    /// A thread that has opened a scope may do less than others.
    const KEEPS_THREADS: bool = true;

    fn answer(&self, connection: &Arc<Connection>, question: &[u8]) -> Vec<u8> {
        struct Asked<'a>(&'a AtomicUsize);
        impl Drop for Asked<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.asked.fetch_add(1, Ordering::SeqCst);
        let _asked = Asked(&self.asked);
        self.reply(connection, decode(question))
    }

    fn ended(&self) {
        // What is stuck in a library must not keep the process.
        std::thread::spawn(|| {
            std::thread::sleep(GRACE);
            std::process::abort();
        });
        std::process::exit(0);
    }
}

impl Rank {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_id(&self) -> Id {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn held(&self, id: Id) -> Derived {
        self.state().communicators.get(&id).unwrap().clone()
    }

    fn work(&self, id: Id) -> Option<Arc<HeldWork>> {
        self.state().works.get(&id).cloned()
    }

    fn keep(&self, held: Derived) -> CommunicatorInfo {
        let (id, communicator) = (self.next_id(), held.communicator());
        let (group, backend) = (communicator.group().clone(), communicator.backend());
        let (natives, cost_model) = (communicator.native_collectives(), communicator.cost_model());
        let info = CommunicatorInfo { id, group, backend, natives, cost_model };
        self.state().communicators.insert(id, held);
        info
    }

    fn keep_probed(&self, probed: Probed) -> ProbedMessage {
        let (id, source, tag) = (self.next_id(), probed.source().unwrap(), probed.tag());
        let message = ProbedMessage { id, source, tag, dtype: probed.dtype(), bytes: probed.bytes() };
        self.state().probed.insert(id, probed);
        message
    }

    /// Everything that is held is released before the answer is sent.
    fn reply(&self, connection: &Arc<Connection>, request: Request) -> Vec<u8> {
        match request {
            Request::Join { world } => encode(&self.join(&world)),
            Request::Leave {} => {
                connection.forget_askers();
                encode(&self.leave())
            }
            Request::MakeGroup { key, ranks } => {
                let groups = self.state().groups.clone().unwrap();
                let made = groups.make_group(&key, &ranks);
                encode(&made.map(|made| self.keep(Derived::Communicator(made))))
            }
            Request::Execute { on, call } => encode(&execute(self.held(on).communicator(), call, connection)),
            Request::Submit { on, call } => {
                let (call, lent) = owned_call(call, connection);
                let work = self.held(on).communicator().submit(call);
                let id = self.next_id();
                self.state().works.insert(id, Arc::new(HeldWork::new(work, lent)));
                encode(&id)
            }
            Request::Exchange { on, calls } => encode(&exchange(self.held(on).communicator(), &calls)),
            Request::Probe { on, call, waits } => {
                let found = probe(self.held(on).communicator(), &call, waits);
                encode(&found.map(|found| found.map(|probed| self.keep_probed(probed))))
            }
            Request::ReceiveProbed { probed, call } => {
                let probed = self.state().probed.remove(&probed).unwrap();
                let (call, lent) = owned_call(call, connection);
                let work = probed.into_found().unwrap().receive(call);
                let id = self.next_id();
                self.state().works.insert(id, Arc::new(HeldWork::new(work, lent)));
                encode(&id)
            }
            Request::DropProbed { probed } => {
                let dropped = self.state().probed.remove(&probed);
                drop(dropped);
                encode(&())
            }
            Request::IsDone { .. }
            | Request::Wait { .. }
            | Request::Notify { .. }
            | Request::Finish { .. }
            | Request::Cancel { .. }
            | Request::Detach { .. } => self.reply_of_work(connection, request),
            Request::Drop { on } => {
                let dropped = self.state().communicators.remove(&on);
                drop(dropped);
                encode(&())
            }
            other => self.reply_of_communicator(other),
        }
    }

    fn reply_of_communicator(&self, request: Request) -> Vec<u8> {
        let keep = |made| self.keep(Derived::Communicator(made));
        let held = |on| self.held(on);
        match request {
            Request::Supports { on, descriptor, options, memory } => {
                encode(&held(on).communicator().supports(&descriptor, &options, memory))
            }
            Request::ResolveWithin { on, ticket, timeout } => {
                encode(&held(on).communicator().resolve_within(ticket, timeout))
            }
            Request::Subgroup { on, ranks, options } => {
                let made = held(on).communicator().subgroup_with(&ranks, &options);
                encode(&made.map(|made| made.map(keep)))
            }
            Request::Duplicate { on } => encode(&held(on).communicator().duplicate().map(keep)),
            Request::Shrink { on } => {
                let message = |Shrunk { communicator, new_ranks, last_common_call }| ShrunkMessage {
                    communicator: keep(communicator),
                    new_ranks,
                    last_common_call,
                };
                encode(&held(on).communicator().shrink().map(message))
            }
            Request::MonitoredBarrier { on, timeout } => {
                encode(&held(on).communicator().monitored_barrier(timeout))
            }
            Request::Agree { on, flag } => encode(&held(on).communicator().agree(flag)),
            Request::Scope { on, parent, options } => {
                let made = held(on).communicator().scope(parent, &options);
                encode(&made.map(|scope| {
                    let scope = Arc::new(scope);
                    let parent = ParentCall::clone(scope.parent());
                    ScopeInfo { communicator: self.keep(Derived::Scope(scope)), parent }
                }))
            }
            Request::Numbers { on } => {
                let Derived::Scope(scope) = held(on) else { panic!("a communicator has no numbers") };
                let numbers = scope.numbers();
                encode(&(numbers.start, numbers.end))
            }
            Request::HandOver { on } => {
                let Derived::Scope(scope) = held(on) else { panic!("a communicator is no scope") };
                scope.hand_over();
                encode(&())
            }
            Request::NoteSize { on, bytes } => {
                let Derived::Scope(scope) = held(on) else { panic!("a communicator is no scope") };
                scope.note_size(bytes);
                encode(&())
            }
            Request::Register { on, name, collective, is_proved } => {
                // To a rank that does not exist: nobody can build it.
                let algorithm = Algorithm::new(name, collective, |builder| builder.send_all(u32::MAX, [0]));
                let trust = if is_proved { Trust::Prove } else { Trust::Trusted };
                encode(&held(on).communicator().register(Arc::new(algorithm), trust))
            }
            Request::Revoke { on, cause } => encode(&held(on).communicator().revoke(cause)),
            Request::Abort { on } => encode(&held(on).communicator().abort()),
            Request::Close { on } => encode(&held(on).communicator().close()),
            _ => unreachable!("the others are answered elsewhere"),
        }
    }

    fn reply_of_work(&self, connection: &Arc<Connection>, request: Request) -> Vec<u8> {
        match request {
            Request::IsDone { work } => encode(&self.work(work).is_none_or(|work| work.is_done())),
            Request::Wait { work, timeout } => encode(&self.work(work).is_none_or(|work| work.wait(timeout))),
            Request::Notify { work: id } => {
                encode(&self.work(id).is_some_and(|work| work.notify(id, connection)))
            }
            Request::Finish { work } => {
                let work = self.state().works.remove(&work);
                encode(&work.unwrap().finish())
            }
            Request::Cancel { work } => {
                if let Some(work) = self.work(work) {
                    work.cancel();
                }
                encode(&())
            }
            Request::Detach { work } => {
                let work = self.state().works.remove(&work);
                drop(work);
                encode(&())
            }
            _ => unreachable!("the others are answered elsewhere"),
        }
    }

    fn join(&self, message: &WorldMessage) -> Result<CommunicatorInfo> {
        let options = EngineOptions {
            timeout: message.timeout,
            probe_after: message.probe_after,
            piece_bytes: message.piece_bytes,
            skipped: message.skipped,
            algorithm: message.algorithm.as_deref().map(AlgorithmName::new),
            ..EngineOptions::default()
        };
        // Nothing of the environment of the tests.
        let settings = |name: &str| match name {
            "UNISONO_RANK" | "UNISONO_LOCAL_RANK" => Some(message.rank.to_string()),
            "UNISONO_WORLD_SIZE" | "UNISONO_LOCAL_WORLD_SIZE" => Some(message.ranks.to_string()),
            "UNISONO_STORE" => Some(message.store.clone()),
            "UNISONO_SECRET_FILE" => Some(message.secret_file.clone()),
            _ => None,
        };
        let world =
            Job::join(&with_options(Config::from_lookup(&settings)?, &options), &Tcp { memory: true })?;
        let Joined { communicator, groups } = self.backend.join(&world, &options)?;
        let info = self.keep(Derived::Communicator(communicator));
        let mut state = self.state();
        (state.world, state.groups) = (Some(world), Some(Arc::from(groups)));
        Ok(info)
    }

    /// Drops all that belongs to the world. Whether nothing else is asked of it.
    fn leave(&self) -> bool {
        let state = std::mem::take(&mut *self.state());
        drop(state);
        self.asked.load(Ordering::SeqCst) == 1 && self.backend.is_usable()
    }
}
