//! Communicators come and go.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use unisono_double_common::callers;
use unisono_double_common::fault::{self, Fault};
use unisono_double_common::mesh::{Door, Mesh};
use unisono_double_common::root::{self, Member, RootId};
use unisono_double_common::{In, Out, export, settings};

use crate::codes::{
    INTERNAL_ERROR, INVALID_USAGE, NcclError, SYSTEM_ERROR, UNHANDLED_CUDA_ERROR, put, version,
};
use crate::communicator::{COMMUNICATORS, Communicator};
use crate::config;
use crate::context::{self, CuError};
use crate::group::{self, Initialization};

/// `ncclUniqueId`, which goes by value.
#[derive(Clone, Copy)]
#[repr(C)]
struct UniqueId([u8; 128]);

impl From<CuError> for NcclError {
    fn from(error: CuError) -> NcclError {
        NcclError::new(UNHANDLED_CUDA_ERROR, format!("Cuda failure {}", error.0))
    }
}

/// The first version in which several ranks may have one device.
const SHARED_DEVICE_VERSION: u32 = 23000;

fn may_share_device() -> bool {
    #[expect(clippy::disallowed_methods, reason = "a variable of NCCL's own")]
    let is_asked_for = std::env::var_os("NCCL_MULTI_RANK_GPU_ENABLE").is_some_and(|value| value == "1");
    is_asked_for && version() >= SHARED_DEVICE_VERSION
}

/// What this rank tells the others.
pub(crate) fn own_member(device: u32, door: &Door) -> Member {
    Member { port: door.port, device, version: version() }
}

pub(crate) fn open_door() -> Result<Door, NcclError> {
    Door::open().map_err(|error| NcclError::new(SYSTEM_ERROR, error.to_string()))
}

/// Connects to the others of a communicator.
pub(crate) fn connect(
    communicator: &Communicator,
    rank: u32,
    members: &[Member],
    nonce: u64,
    door: &Door,
) -> Result<(), NcclError> {
    if members.iter().any(|member| member.version != version()) {
        return Err(NcclError::new(INVALID_USAGE, "Mismatched NCCL version detected"));
    }
    let mut owners = HashMap::new();
    for (rank, member) in members.iter().enumerate() {
        if let Some(other) = owners.insert(member.device, rank).filter(|_| !may_share_device()) {
            let text = format!(
                "Duplicate GPU detected : rank {rank} and rank {other} both on CUDA device {}",
                member.device
            );
            return Err(NcclError::new(INVALID_USAGE, text));
        }
    }
    let ports: Vec<u16> = members.iter().map(|member| member.port).collect();
    let mesh = Mesh::connect(rank, &ports, nonce, door, communicator.stop.clone())?;
    // Nobody else makes it.
    let _ = communicator.mesh.set(mesh);
    Ok(())
}

/// The fault of an operation that makes a communicator.
pub(crate) fn suffer(fault: Option<Fault>, communicator: &Communicator) -> Result<(), NcclError> {
    match fault {
        None => Ok(()),
        Some(Fault::Code(code)) => Err(NcclError::new(code, "injected")),
        Some(Fault::Hang) => {
            fault::hang(communicator.handle);
            Err(NcclError::new(INTERNAL_ERROR, "aborted"))
        }
    }
}

fn initialize(
    call: &str,
    to: Out<usize>,
    (size, id, rank): (i32, UniqueId, i32),
    device: u32,
    is_blocking: bool,
) -> Result<(), NcclError> {
    let invalid = |name: &str, value: i32| NcclError::argument(format!("{call} : invalid {name} {value}"));
    let size = u32::try_from(size).ok().filter(|size| *size > 0).ok_or_else(|| invalid("size", size))?;
    let rank = u32::try_from(rank).ok().filter(|rank| *rank < size).ok_or_else(|| invalid("rank", rank))?;
    let id =
        RootId::from_bytes(&id.0).ok_or_else(|| NcclError::argument(format!("{call} : invalid commId")))?;
    if to.is_null() {
        return Err(NcclError::null(call, "newcomm"));
    }
    let communicator = Communicator::new(device, is_blocking);
    let _ = to.put(communicator.handle);
    let fault = fault::take_of_work();
    let own = communicator.clone();
    let make = move || {
        suffer(fault, &own)?;
        let door = open_door()?;
        let members = root::join(id, size, rank, own_member(own.device, &door), &own.stop)?;
        connect(&own, rank, &members, id.nonce(), &door)
    };
    group::initialize(Initialization { communicator, to: Some(to), parent: None, make: Box::new(make) })
}

fn leave(communicator: &Arc<Communicator>) {
    communicator.launched.wait();
    if let Some(mesh) = communicator.mesh.get() {
        mesh.leave();
    }
}

export! {
    fn ncclGetUniqueId(id: Out<UniqueId>) -> NcclError {
        let root = root::create().map_err(|error| NcclError::new(SYSTEM_ERROR, error.to_string()))?;
        put(id, UniqueId(root.to_bytes()), "GetUniqueId", "out")
    }

    fn ncclCommInitRank(comm: Out<usize>, size: i32, id: UniqueId, rank: i32) -> NcclError {
        initialize("CommInitRank", comm, (size, id, rank), context::current_or_first()?, true)
    }

    fn ncclCommInitRankConfig(comm: Out<usize>, size: i32, id: UniqueId, rank: i32, config: In<u8>) -> NcclError {
        let device = context::current_or_first()?;
        let is_blocking = config::read(config)?.unwrap_or(true);
        initialize("CommInitRankConfig", comm, (size, id, rank), device, is_blocking)
    }

    fn ncclCommInitAll(comms: Out<usize>, devices: i32, list: In<i32>) -> NcclError {
        context::current_or_first()?;
        let invalid = || NcclError::argument("CommInitAll : invalid device");
        let count = usize::try_from(devices).map_err(|_| invalid())?;
        let list = list.list(count).unwrap_or_else(|| (0..devices).collect());
        let root = root::create().map_err(|error| NcclError::new(SYSTEM_ERROR, error.to_string()))?;
        group::start();
        let each = list.iter().zip(0..).try_for_each(|(device, rank)| {
            let device = u32::try_from(*device).ok().filter(|device| *device < settings::devices());
            let to = comms.at(rank as usize);
            let id = UniqueId(root.to_bytes());
            initialize("CommInitAll", to, (devices, id, rank), device.ok_or_else(invalid)?, true)
        });
        group::end_with(each)
    }

    fn ncclCommFinalize[comm](comm: usize) -> NcclError {
        let communicator = Communicator::ready(comm, "CommFinalize")?;
        communicator.is_finalized.store(true, Ordering::SeqCst);
        let own = communicator.clone();
        communicator.operate(move || {
            own.launched.wait();
            Ok(())
        })
    }

    fn ncclCommDestroy[comm](comm: usize) -> NcclError {
        // As with free, null is nothing.
        if comm == 0 {
            return Ok(());
        }
        let communicator = Communicator::of(comm, "CommDestroy")?;
        if communicator.mesh.get().is_none() {
            return Err(NcclError::argument("CommDestroy : comm is not initialized"));
        }
        let _there = callers::work_on(communicator.device, comm, "ncclCommDestroy");
        COMMUNICATORS.remove(comm);
        leave(&communicator);
        Ok(())
    }

    fn ncclCommAbort(comm: usize) -> NcclError {
        if comm == 0 {
            return Ok(());
        }
        let communicator = Communicator::of(comm, "CommAbort")?;
        COMMUNICATORS.remove(comm);
        communicator.abort();
        Ok(())
    }

    fn ncclCommGetAsyncError[comm](comm: usize, code: Out<i32>) -> NcclError {
        put(code, Communicator::of(comm, "CommGetAsyncError")?.state(), "CommGetAsyncError", "asyncError")
    }

    fn ncclCommCount[comm](comm: usize, count: Out<i32>) -> NcclError {
        let communicator = Communicator::ready(comm, "CommCount")?;
        put(count, communicator.mesh()?.size() as i32, "CommCount", "count")
    }

    fn ncclCommUserRank[comm](comm: usize, rank: Out<i32>) -> NcclError {
        let communicator = Communicator::ready(comm, "CommUserRank")?;
        put(rank, communicator.mesh()?.rank() as i32, "CommUserRank", "rank")
    }

    fn ncclCommCuDevice[comm](comm: usize, device: Out<i32>) -> NcclError {
        put(device, Communicator::ready(comm, "CommCuDevice")?.device as i32, "CommCuDevice", "devid")
    }
}
