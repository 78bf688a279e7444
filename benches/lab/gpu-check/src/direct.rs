//! NCCL's own functions, called as a program calls them that does without this library: what they cost is what the
//! overhead is measured against.

#![expect(unsafe_code, reason = "calls NCCL")]

use std::ffi::{c_int, c_void};

use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, Error, Result};
use unisono_offload::RawStream;
use unisono_offload_nccl::NcclLibrary;
use unisono_vendor_library::{Library, functions};

/// `ncclUniqueId`, which goes by value.
#[derive(Clone, Copy)]
#[repr(C)]
struct UniqueId([u8; 128]);

type Handle = *mut c_void;

/// `ncclFloat32` and `ncclMax`.
const FLOAT32: c_int = 7;
const MAX: c_int = 2;

functions! {
    /// Those of NCCL's functions that are needed; all return an `ncclResult_t`.
    Table {
        required {
            get_unique_id: "ncclGetUniqueId" (*mut UniqueId);
            comm_init_rank: "ncclCommInitRank" (*mut Handle, c_int, UniqueId, c_int);
            comm_destroy: "ncclCommDestroy" (Handle);
            all_reduce: "ncclAllReduce" (*const c_void, *mut c_void, usize, c_int, c_int, Handle, *mut c_void);
        }
    }
}

/// A communicator of NCCL's, whose functions block until their work is enqueued.
pub(crate) struct Direct {
    table: Table,
    comm: Handle,
}

/// An error of NCCL's.
fn check(call: &'static str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::System { what: call.to_owned(), text: format!("it returned {code}") }),
    }
}

impl Direct {
    /// Of the ranks of a communicator, over which the id goes. The device's context must be current.
    pub(crate) fn new(library: &NcclLibrary, companion: &dyn Communicator) -> Result<Direct> {
        let library = Library::open("NCCL", &[library.file()], "it is open already, so it is there")?;
        let (table, mut id, mut comm) = (Table::new(library)?, UniqueId([0; 128]), std::ptr::null_mut());
        let (rank, ranks) = (companion.group().rank(), companion.group().size());
        if rank == 0 {
            // SAFETY: it writes one id.
            check("ncclGetUniqueId", unsafe { (table.get_unique_id)(&mut id) })?;
        }
        companion.broadcast(&mut id.0, 0)?;
        // SAFETY: it writes one handle; the id is the first rank's.
        let code = unsafe { (table.comm_init_rank)(&mut comm, ranks as c_int, id, rank as c_int) };
        check("ncclCommInitRank", code)?;
        Ok(Direct { table, comm })
    }

    /// The largest of all ranks' values, in place.
    ///
    /// # Safety
    /// There must be as many f32 on the device, which nobody else uses until the work is done; the stream lives, and
    /// the device's context is current.
    pub(crate) unsafe fn all_reduce(
        &self,
        at: *mut c_void,
        elements: usize,
        stream: RawStream,
    ) -> Result<()> {
        let stream = stream.as_pointer();
        // SAFETY: the caller's.
        let code = unsafe { (self.table.all_reduce)(at, at, elements, FLOAT32, MAX, self.comm, stream) };
        check("ncclAllReduce", code)
    }

    /// Gives the communicator back; its work is done.
    pub(crate) fn close(self) -> Result<()> {
        // SAFETY: it is this value's, and is used no more.
        check("ncclCommDestroy", unsafe { (self.table.comm_destroy)(self.comm) })
    }
}
