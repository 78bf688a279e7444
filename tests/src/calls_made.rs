//! The calls that the suite makes on each backend, in the files from which `cargo xtask matrix` counts them.
//!
//! The variable `UNISONO_TEST_CALLS` names the folder of the files. Each process adds to a file of its own, a line for
//! each kind of call that the ranks of a world have made: backend, operation, dtype, operator and form, with tabs
//! between.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, Collective, Descriptor, Division, Operation, OwnedCall, Place,
    ReduceOp, Segments, SegmentsMut,
};

const FOLDER: &str = "UNISONO_TEST_CALLS";

thread_local! {
    /// Whether the thread runs a test of the suite. The calls of other tests may be different in each run.
    static IS_SUITE: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test of the suite.
pub fn of_suite<R>(test: impl FnOnce() -> R) -> R {
    IS_SUITE.set(true);
    let result = test();
    IS_SUITE.set(false);
    result
}

/// A way to make a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Door {
    Blocking,
    Asynchronous,
    Batch,
}

impl Door {
    const fn name(self) -> &'static str {
        match self {
            Door::Blocking => "blocking",
            Door::Asynchronous => "asynchronous",
            Door::Batch => "batch",
        }
    }
}

/// The kinds of calls of one world. They are written when the world ends.
#[derive(Debug)]
pub(crate) struct CallsMade {
    backend: String,
    /// None where nobody wants to know.
    folder: Option<PathBuf>,
    kinds: Mutex<BTreeSet<String>>,
}

impl CallsMade {
    /// The calls of a world that the test of this thread opens.
    pub(crate) fn new(backend: &str) -> CallsMade {
        let folder = std::env::var_os(FOLDER).filter(|_| IS_SUITE.get()).map(PathBuf::from);
        CallsMade { backend: backend.to_owned(), folder, kinds: Mutex::default() }
    }

    /// The kind of a call; `None` where nobody wants to know.
    pub(crate) fn kind(&self, door: Door, call: &Call<'_>) -> Option<String> {
        self.folder.as_ref()?;
        let marks = [call.prepared.is_some(), call.body.is_some(), call.stream.is_some()];
        Some(format!("{}\t{}\n", self.backend, kind(door, &call.descriptor, &call.buffers, marks)))
    }

    /// [`CallsMade::kind`] of an asynchronous call.
    pub(crate) fn kind_of_owned(&self, call: &mut OwnedCall) -> Option<String> {
        self.folder.as_ref()?;
        let marks = [call.prepared.is_some(), call.body.is_some(), call.stream.is_some()];
        let kind = kind(Door::Asynchronous, &call.descriptor, &call.buffers.borrow(), marks);
        Some(format!("{}\t{kind}\n", self.backend))
    }

    /// Keeps a kind of call that was made.
    pub(crate) fn add(&self, kind: Option<String>) {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).extend(kind);
    }
}

impl Drop for CallsMade {
    fn drop(&mut self) {
        let Some(folder) = &self.folder else { return };
        let kinds = self.kinds.get_mut().unwrap_or_else(PoisonError::into_inner);
        let lines: String = std::mem::take(kinds).into_iter().collect();
        let file = folder.join(std::process::id().to_string());
        let write = || {
            fs::create_dir_all(folder)?;
            // One write, so that the lines of worlds that end at once stay whole.
            OpenOptions::new().create(true).append(true).open(&file)?.write_all(lines.as_bytes())
        };
        if let Err(error) = write() {
            eprintln!("{FOLDER}: {}: {error}", file.display());
        }
    }
}

/// The operator's name. All operators of programs are one kind.
const fn op_name(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::PreMulSum(_) => "pre_mul_sum",
        ReduceOp::User(_) => "user",
        plain => plain.name(),
    }
}

fn kind(door: Door, descriptor: &Descriptor, buffers: &Buffers<'_>, marks: [bool; 3]) -> String {
    let Descriptor { operation, dtype, op, place, uneven, .. } = *descriptor;
    let is_barrier = operation == Operation::Collective(Collective::Barrier);
    let (dtype, op) = (if is_barrier { "-" } else { dtype.name() }, op.map_or("-", op_name));
    let list = division(buffers).map(|division| match division {
        Division::Anywhere => "pieces",
        Division::Shares => "list",
        Division::Coalesced => "coalesced",
    });
    let mut form = vec![door.name()];
    form.extend((place == Place::InPlace).then_some("in-place"));
    form.extend(uneven.then_some("uneven"));
    form.extend(list);
    let named = ["prepared", "compressed", "stream"].into_iter().zip(marks);
    form.extend(named.filter_map(|(name, is_so)| is_so.then_some(name)));
    format!("{}\t{dtype}\t{op}\t{}", operation.name(), form.join(" "))
}

fn division(buffers: &Buffers<'_>) -> Option<Division> {
    let (input, output) = match buffers {
        Buffers::InOut(buffer) => (None, buffer),
        Buffers::Separate { input, output } => (Some(input), output),
    };
    let input = input.and_then(|input| match input {
        Buffer::Host(Segments::Many(list)) => Some(list.division()),
        Buffer::Host(Segments::Owned(list)) => Some(list.division()),
        Buffer::Host(Segments::One(_)) => None,
        Buffer::Device(buffer) => buffer.divided().map(|(division, _)| division),
    });
    input.or_else(|| match output {
        BufferMut::Host(SegmentsMut::Many(list)) => Some(list.division()),
        BufferMut::Host(SegmentsMut::Owned(list)) => Some(list.division()),
        BufferMut::Host(SegmentsMut::One(_)) => None,
        BufferMut::Device(buffer) => buffer.divided().map(|(division, _)| division),
    })
}
