//! A test double of a vendor's library, for ranks that are threads of one process. It behaves as bad libraries do: a
//! call waits for ever for a rank that does not come, and calls that do not go together mix up their data without an
//! error. What it can do, how it computes, and what goes wrong in it is set.

#![expect(unsafe_code, reason = "memory of a call, by its address")]

mod arithmetic;
mod calls;
mod fault;
mod room;
mod settings;

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use unisono_communicator::{Error, Result};
use unisono_offload::{Capabilities, Elements, LibraryTurn, Native, NativeCall, RawStream, Vendor, lacks};

use room::{Interruption, Place, RoomShared};

pub use fault::{Fault, Moment};
pub use room::LibraryRoom;

/// The library of one rank.
pub struct LibraryDouble {
    room: Arc<RoomShared>,
    capabilities: Capabilities,
    turn: Option<LibraryTurn>,
    version: String,
    faults: Vec<(Moment, Fault)>,
    calls: AtomicU64,
    inside: AtomicUsize,
    /// Called by every thread that asks for the turn, and dropped with this.
    at_turn: Box<dyn Fn() + Send + Sync>,
}

/// A communicator of the double's.
pub struct LibraryComm {
    place: Place,
    rounds: AtomicU64,
    is_busy: AtomicBool,
}

/// A send or receive between the start and the end of a group, which one thread makes.
struct Grouped {
    place: Place,
    address: usize,
    bytes: usize,
    peer: u32,
    is_send: bool,
}

thread_local! {
    static GROUP: RefCell<Option<Vec<Grouped>>> = const { RefCell::new(None) };
}

impl LibraryDouble {
    fn error(&self, call: &str, code: i32, text: &str) -> Error {
        Error::Vendor {
            library: self.version.as_str().into(),
            call: call.into(),
            code,
            text: text.into(),
            remedy: "end the test".into(),
        }
    }

    fn ended(&self, call: &str, ended: Interruption) -> Error {
        match ended {
            Interruption::Released => self.error(call, -1, "the test has ended it"),
            Interruption::Aborted => self.error(call, -2, "aborted"),
        }
    }

    /// Refuses a call that it does not have, as a library without the symbol.
    fn require(&self, native: Native) -> Result<()> {
        if self.capabilities.has(native) {
            return Ok(());
        }
        self.room.note_misuse(format!("{} by a library without it", native.name()));
        Err(lacks::<LibraryDouble>(native.name()))
    }

    /// Goes into the library, where `at` may go wrong.
    fn visit<R>(
        &self,
        call: &str,
        at: Moment,
        place: Place,
        body: impl FnOnce() -> Result<R, Interruption>,
    ) -> Result<R> {
        let _inside = Inside::enter(self, call);
        let fault = self.faults.iter().find(|(moment, _)| *moment == at).map(|(_, fault)| *fault);
        match fault {
            Some(Fault::Error(code)) => return Err(self.error(call, code, "injected")),
            Some(Fault::Panic) => panic!("injected into {call}"),
            Some(Fault::Hang) => self.room.hang(place).map_err(|ended| self.ended(call, ended))?,
            Some(Fault::LateError(_)) | None => {}
        }
        let result = body().map_err(|ended| self.ended(call, ended))?;
        match fault {
            Some(Fault::LateError(code)) => Err(self.error(call, code, "injected")),
            _ => Ok(result),
        }
    }

    /// Makes a call on a communicator.
    fn call<R>(
        &self,
        call: &str,
        comm: &LibraryComm,
        body: impl FnOnce() -> Result<R, Interruption>,
    ) -> Result<R> {
        if comm.is_busy.swap(true, Ordering::SeqCst) {
            self.room.note_misuse(format!("{call} on a communicator in use, or destroyed"));
        }
        let number = Moment::Call(self.calls.fetch_add(1, Ordering::SeqCst));
        let result = self.visit(call, number, comm.place, body);
        comm.is_busy.store(false, Ordering::SeqCst);
        result
    }

    /// Every rank's input, for a collective.
    fn collective(
        &self,
        call: &str,
        comm: &LibraryComm,
        input: &[u8],
        finish: impl FnOnce(&[Arc<[u8]>]),
    ) -> Result<()> {
        self.call(call, comm, || {
            let round = comm.rounds.fetch_add(1, Ordering::SeqCst);
            finish(&self.room.exchange(comm.place, round, input)?);
            Ok(())
        })
    }

    /// Makes the sends and receives of a group.
    fn run_group(&self, group: &[Grouped]) -> Result<(), Interruption> {
        let mut posted = Vec::new();
        for one in group.iter().filter(|one| one.is_send) {
            // SAFETY: `send` has promised the memory until the end of the group.
            let message = unsafe { bytes_at(one.address as *const c_void, one.bytes) };
            posted.push((one, self.room.post(one.place, one.peer, message)));
        }
        for one in group.iter().filter(|one| !one.is_send) {
            let message = self.room.receive(one.place, one.peer)?;
            // SAFETY: `recv` has promised the memory until the end of the group.
            write_front(unsafe { bytes_at_mut(one.address as *mut c_void, one.bytes) }, &message);
        }
        posted.iter().try_for_each(|(one, number)| self.room.await_taken(one.place, one.peer, *number))
    }
}

/// A thread in the library.
struct Inside<'a>(&'a LibraryDouble);

impl<'a> Inside<'a> {
    fn enter(library: &'a LibraryDouble, call: &str) -> Inside<'a> {
        library.room.count_inside(1);
        if library.inside.fetch_add(1, Ordering::SeqCst) > 0 && library.turn.is_some() {
            library.room.note_misuse(format!("{call} by a second thread"));
        }
        Inside(library)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
        self.0.room.count_inside(-1);
    }
}

/// Memory to read.
///
/// # Safety
/// As [`Vendor`]; null only for no bytes.
unsafe fn bytes_at<'a>(address: *const c_void, bytes: usize) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(address.cast(), bytes) }
}

/// Memory to write.
///
/// # Safety
/// As [`Vendor`]; null only for no bytes.
unsafe fn bytes_at_mut<'a>(address: *mut c_void, bytes: usize) -> &'a mut [u8] {
    if bytes == 0 {
        return &mut [];
    }
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts_mut(address.cast(), bytes) }
}

/// As much of `from` as there is room for.
fn write_front(to: &mut [u8], from: &[u8]) {
    let bytes = to.len().min(from.len());
    to[..bytes].copy_from_slice(&from[..bytes]);
}

/// A part of what a rank has laid down, or what there is of it.
fn part(of: &[u8], start: usize, bytes: usize) -> &[u8] {
    &of[start.min(of.len())..(start + bytes).min(of.len())]
}

/// Of elements, in bytes.
fn length(elements: Elements) -> usize {
    elements.count * elements.dtype.bytes()
}

impl Vendor for LibraryDouble {
    const BACKEND: &'static str = "double";
    const BACKEND_INLINE: &'static str = "double without meeting";
    const ID_BYTES: usize = 32;

    type Comm = LibraryComm;

    fn version(&self) -> String {
        self.version.clone()
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn shares_processes(&self) -> bool {
        true
    }

    fn turn(&self) -> Option<&LibraryTurn> {
        (self.at_turn)();
        self.turn.as_ref()
    }

    fn unique_id(&self) -> Result<Vec<u8>> {
        let number = self.room.new_id();
        let mut id = vec![0; Self::ID_BYTES];
        id[..8].copy_from_slice(&number.to_le_bytes());
        let nowhere = Place { id: number, rank: 0, ranks: 1 };
        self.visit("double_id", Moment::Id, nowhere, || Ok(id))
    }

    fn init(
        &self,
        id: &[u8],
        rank: u32,
        ranks: u32,
        _: &dyn Fn() -> bool,
        _: &dyn Fn(&Error),
    ) -> Result<LibraryComm> {
        let mut number = [0; 8];
        number.copy_from_slice(&id[..8]);
        let place = Place { id: u64::from_le_bytes(number), rank, ranks };
        self.visit("double_init", Moment::Init, place, || self.room.join(place))?;
        Ok(LibraryComm { place, rounds: AtomicU64::new(0), is_busy: AtomicBool::new(false) })
    }

    fn destroy(&self, comm: &LibraryComm) -> Result<()> {
        if comm.is_busy.swap(true, Ordering::SeqCst) {
            self.room.note_misuse("double_destroy on a communicator in use, or destroyed".to_owned());
        }
        self.visit("double_destroy", Moment::Destroy, comm.place, || {
            self.room.destroy(comm.place);
            Ok(())
        })
    }

    fn abort(&self, comm: &LibraryComm) -> bool {
        if self.capabilities.abort {
            self.room.abort(comm.place);
        }
        self.capabilities.abort
    }

    // SAFETY: as the trait has it.
    unsafe fn call(&self, comm: &LibraryComm, call: &NativeCall<'_>, _: RawStream) -> Result<()> {
        if let Some(native) = requirement(call) {
            self.require(native)?;
        }
        // SAFETY: the caller's.
        unsafe { self.make(comm, call) }
    }

    fn group_start(&self) -> Result<()> {
        self.require(Native::Groups)?;
        GROUP.with_borrow_mut(|group| *group = Some(Vec::new()));
        Ok(())
    }

    fn group_end(&self) -> Result<()> {
        let group = GROUP.take().unwrap_or_default();
        let number = Moment::Call(self.calls.fetch_add(1, Ordering::SeqCst));
        let place = group.first().map_or(Place { id: 0, rank: 0, ranks: 1 }, |one| one.place);
        self.visit("double_group_end", number, place, || self.run_group(&group))
    }
}

/// The call of the table that not every library has; `None` for a call that all have.
fn requirement(call: &NativeCall<'_>) -> Option<Native> {
    match *call {
        NativeCall::Reduce { .. } => Some(Native::Reduce),
        NativeCall::Broadcast { .. } => Some(Native::Broadcast),
        NativeCall::AllToAll { input, output, bytes } if bytes > 0 && input == output.cast_const() => {
            Some(Native::AllToAllInPlace)
        }
        NativeCall::AllToAll { .. } => Some(Native::AllToAll),
        NativeCall::AllToAllV { .. } => Some(Native::AllToAllV),
        NativeCall::Gather { .. } => Some(Native::Gather),
        NativeCall::Scatter { .. } => Some(Native::Scatter),
        NativeCall::AllReduce { .. }
        | NativeCall::ReduceScatter { .. }
        | NativeCall::AllGather { .. }
        | NativeCall::Send { .. }
        | NativeCall::Recv { .. } => None,
    }
}

/// Keeps a send or receive for the end of the thread's group; gives it back when there is none.
fn into_group(one: Grouped) -> Result<(), Grouped> {
    GROUP.with_borrow_mut(|group| match group {
        Some(group) => {
            group.push(one);
            Ok(())
        }
        None => Err(one),
    })
}
