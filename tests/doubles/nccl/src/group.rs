//! Groups: what is called between `ncclGroupStart` and `ncclGroupEnd` on a thread is begun together at the end.

use std::cell::RefCell;
use std::sync::Arc;
use std::thread;

use unisono_double_common::fault::Fault;
use unisono_double_common::mesh::Message;
use unisono_double_common::movement::Movement;
use unisono_double_common::stream::Stream;
use unisono_double_common::{Out, export};

use crate::codes::{IN_PROGRESS, INVALID_USAGE, NcclError};
use crate::communicator::{COMMUNICATORS, Communicator, StreamWork};
use crate::driver_stream::{PER_THREAD, stream_on};

type Make = Box<dyn FnOnce() -> Result<(), NcclError> + Send>;

/// A communicator that is to be made.
pub(crate) struct Initialization {
    pub(crate) communicator: Arc<Communicator>,
    /// Where its handle is, unless this rank is not in it.
    pub(crate) to: Option<Out<usize>>,
    /// Whose calls return when it is made.
    pub(crate) parent: Option<Arc<Communicator>>,
    pub(crate) make: Make,
}

/// A collective, send or receive.
pub(crate) struct Operation {
    pub(crate) communicator: Arc<Communicator>,
    pub(crate) stream: Arc<Stream>,
    /// Whether it is the default one of a thread, which is that of the thread that launches.
    pub(crate) is_of_thread: bool,
    pub(crate) fault: Option<Fault>,
    pub(crate) what: What,
}

pub(crate) enum What {
    Collective(Movement),
    /// Its number is taken when it is begun.
    Message(Message),
}

#[derive(Default)]
struct Group {
    depth: u32,
    initializations: Vec<Initialization>,
    operations: Vec<Operation>,
    /// The first call that was refused.
    error: Option<NcclError>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Opens a group.
pub(crate) fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

fn is_open() -> bool {
    GROUP.with_borrow(|group| group.depth > 0)
}

/// The communicator of the first call in the group that is open, or 0: the end of a group waits for its calls, so an
/// abort of theirs gets it out.
fn first() -> usize {
    GROUP.with_borrow(|group| group.operations.first().map_or(0, |one| one.communicator.handle))
}

/// Notes that a call of the group was refused: nothing of it is begun.
pub(crate) fn note(error: NcclError) -> NcclError {
    GROUP.with_borrow_mut(|group| {
        if group.depth > 0 {
            group.error.get_or_insert_with(|| error.clone());
        }
    });
    error
}

/// A function was made to fail: with it fails the group that is open. An end that fails ends it all the same.
pub(crate) fn note_injected(call: &str, error: NcclError) {
    let error = note(error);
    if call == "ncclGroupEnd" && error.code != IN_PROGRESS {
        let _ = end();
    }
}

/// Makes a communicator, now or at the end of the group.
pub(crate) fn initialize(one: Initialization) -> Result<(), NcclError> {
    if is_open() {
        GROUP.with_borrow_mut(|group| group.initializations.push(one));
        return Ok(());
    }
    one.run()
}

/// Begins an operation, now or at the end of the group.
pub(crate) fn operate(one: Operation) -> Result<(), NcclError> {
    if is_open() {
        GROUP.with_borrow_mut(|group| group.operations.push(one));
        return Ok(());
    }
    begin(vec![one])
}

/// Takes back the handle of a communicator that was not made.
fn clear(to: Option<Out<usize>>) {
    if let Some(to) = to {
        let _ = to.put(0);
    }
}

impl Initialization {
    /// Makes the communicator: in the call, or later if calls do not block.
    fn run(self) -> Result<(), NcclError> {
        let Initialization { communicator, to, parent, make } = self;
        let is_blocking = parent.as_ref().unwrap_or(&communicator).is_blocking;
        let child = communicator.clone();
        let is_in = to.is_some();
        // One that does not block and has no parent ends with its operation, once: it may be in the next one then.
        let ends_here = is_blocking || parent.is_some();
        let finish = move || {
            let result = make();
            if ends_here {
                child.end_operation(&result);
            }
            if !is_in || result.is_err() && is_blocking {
                COMMUNICATORS.remove(child.handle);
            }
            result
        };
        communicator.set_in_progress();
        let result = parent.unwrap_or(communicator).operate(finish);
        if is_blocking && result.is_err() {
            clear(to);
        }
        result
    }
}

/// Closes a group after a call that opened it and has then come so far.
pub(crate) fn end_with(result: Result<(), NcclError>) -> Result<(), NcclError> {
    result.map_err(note)?;
    end()
}

fn end() -> Result<(), NcclError> {
    let group = GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return Err(NcclError::new(INVALID_USAGE, "ncclGroupEnd: not in a group call."));
        }
        group.depth -= 1;
        Ok(if group.depth == 0 { std::mem::take(group) } else { Group::default() })
    })?;
    if let Some(error) = group.error {
        // The communicators that were to be made are not.
        for one in group.initializations {
            COMMUNICATORS.remove(one.communicator.handle);
            clear(one.to);
        }
        return Err(error);
    }
    thread::scope(|scope| {
        let makers: Vec<_> = group.initializations.into_iter().map(|one| scope.spawn(|| one.run())).collect();
        let results =
            makers.into_iter().map(|maker| maker.join().unwrap_or_else(|_| Err(NcclError::in_progress())));
        results.fold(Ok(()), Result::and)
    })?;
    begin(group.operations)
}

/// Begins operations, those of each communicator in their order.
fn begin(mut operations: Vec<Operation>) -> Result<(), NcclError> {
    let mut result = Ok(());
    while let Some(first) = operations.first() {
        let communicator = first.communicator.clone();
        let is_own = |one: &Operation| Arc::ptr_eq(&one.communicator, &communicator);
        let (own, rest) = operations.into_iter().partition(is_own);
        operations = rest;
        let launched = communicator.clone();
        result = result.and(communicator.operate(move || launch(&launched, own)));
    }
    result
}

/// Gives the operations of one communicator to their streams: each collective by itself, all messages as one.
fn launch(communicator: &Arc<Communicator>, operations: Vec<Operation>) -> Result<(), NcclError> {
    let mesh = communicator.mesh()?;
    let is_collective = operations.iter().any(|one| matches!(one.what, What::Collective(_)));
    let pairs = operations.iter().filter_map(|one| match &one.what {
        What::Message(message) => Some((message.peer, message.is_send)),
        What::Collective(_) => None,
    });
    mesh.connect_for(is_collective, &pairs.collect::<Vec<_>>())?;
    let mut messages = Vec::new();
    let mut streams: Vec<Arc<Stream>> = Vec::new();
    let mut fault = None;
    for mut one in operations {
        if one.is_of_thread
            && let Some(own) = stream_on(communicator.device, PER_THREAD)
        {
            one.stream = own;
        }
        match one.what {
            What::Collective(movement) => {
                let number = mesh.next_collective();
                let work = StreamWork {
                    fault: one.fault,
                    inputs: movement.inputs(),
                    outputs: movement.outputs(),
                    run: Box::new(move |mesh| movement.run(mesh, number)),
                };
                communicator.enqueue(&one.stream, work);
            }
            What::Message(message) => {
                let number = mesh.number(message.peer, message.is_send);
                messages.push(Message { number, ..message });
                fault = fault.or(one.fault);
                if !streams.iter().any(|stream| Arc::ptr_eq(stream, &one.stream)) {
                    streams.push(one.stream);
                }
            }
        }
    }
    let Some((first, others)) = streams.split_first() else { return Ok(()) };
    others.iter().for_each(|other| first.push_wait(other, other.enqueued()));
    let parts = |is_send: bool| {
        messages.iter().filter(|one| one.is_send == is_send).map(|one| one.part).collect::<Vec<_>>()
    };
    let work = StreamWork {
        fault,
        inputs: parts(true),
        outputs: parts(false),
        run: Box::new(move |mesh| mesh.pass(&messages)),
    };
    let number = communicator.enqueue(first, work);
    others.iter().for_each(|other| other.push_wait(first, number));
    Ok(())
}

export! {
    fn ncclGroupStart() -> NcclError {
        start();
        Ok(())
    }

    fn ncclGroupEnd[first()]() -> NcclError {
        end()
    }
}
