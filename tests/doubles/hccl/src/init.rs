//! Communicators come and go.

use std::sync::Arc;

use unisono_double_common::callers;
use unisono_double_common::fault::{self, Fault};
use unisono_double_common::mesh::{Door, Mesh};
use unisono_double_common::movement::descriptor;
use unisono_double_common::root::{self, Member, RootId, Stop};
use unisono_double_common::{In, Out, export};

use crate::codes::{HcclError, put};
use crate::communicator::{COMMUNICATORS, Communicator};
use crate::product::Product;
use crate::runtime::current;

/// `HcclRootInfo`, which goes by pointer.
#[derive(Clone, Copy)]
#[repr(C)]
struct RootInfo([u8; 4108]);

/// What `HcclCommConfig` begins with.
#[derive(Clone, Copy)]
#[repr(C)]
struct ConfigHead {
    size: usize,
    magic: u32,
    version: u32,
}

const CONFIG_MAGIC: u32 = 0xf0f0_f0f0;
/// Sizes of the struct: that of torch_npu's header, and that of hcomm's.
const CONFIG_SIZES: [usize; 2] = [2232, 2240];
const COMM_NAME_BYTES: usize = 128;
/// The id of no communicator, for ranks that are in none.
const NO_SUB_COMM: u64 = 0xffff_ffff;

fn check_config(config: In<u8>) -> Result<(), HcclError> {
    let head = config.cast::<ConfigHead>().get().ok_or(HcclError::PTR)?;
    let is_known = head.magic == CONFIG_MAGIC && head.version > 0 && CONFIG_SIZES.contains(&head.size);
    if is_known { Ok(()) } else { Err(HcclError::PARA) }
}

/// What goes wrong while a communicator is made.
fn suffer() -> Result<(), HcclError> {
    match fault::take_of_work() {
        None => Ok(()),
        Some(Fault::Code(code)) => Err(HcclError(code)),
        Some(Fault::Hang) => {
            fault::hang(0);
            Err(HcclError::INTERNAL)
        }
    }
}

fn open_door() -> Result<Door, HcclError> {
    Door::open().map_err(|_| HcclError::TCP_CONNECT)
}

fn member(device: u32, door: &Door) -> Member {
    Member { port: door.port, device, version: 0 }
}

/// Connects to the others of a communicator, and keeps it.
fn connect(
    device: u32,
    rank: u32,
    members: &[Member],
    nonce: u64,
    (door, stop): (&Door, Arc<Stop>),
) -> Result<usize, HcclError> {
    let is_shared =
        |member: &Member| members.iter().filter(|other| other.device == member.device).count() > 1;
    // Only these can have several ranks on one device.
    if Product::chosen() != Product::Ascend910B && members.iter().any(is_shared) {
        return Err(HcclError::UNAVAIL);
    }
    let ports: Vec<u16> = members.iter().map(|member| member.port).collect();
    Ok(Communicator::keep(device, Mesh::connect(rank, &ports, nonce, door, stop)?))
}

fn initialize(size: u32, info: In<RootInfo>, rank: u32, comm: Out<usize>) -> Result<(), HcclError> {
    let device = current()?;
    let info = info.get().ok_or(HcclError::PTR)?;
    if comm.is_null() {
        return Err(HcclError::PTR);
    }
    let id = RootId::from_bytes(&info.0).filter(|_| rank < size).ok_or(HcclError::PARA)?;
    // It has no handle yet.
    let _there = callers::work_on(device, 0, "HcclCommInitRootInfo");
    suffer()?;
    let (door, stop) = (open_door()?, root::stopped_at_reset());
    let members = root::join(id, size, rank, member(device, &door), &stop)?;
    let made = connect(device, rank, &members, id.nonce(), (&door, stop.clone()))?;
    stop.set_done();
    put(comm, made)
}

/// The ranks of the parent in the order of a child's, if they can be so.
fn check_ranks(parent: &Communicator, ranks: Option<Vec<u32>>, own: u32) -> Result<Vec<u32>, HcclError> {
    let ranks = ranks.ok_or(HcclError::PTR)?;
    let mut sorted = ranks.clone();
    sorted.sort_unstable();
    sorted.dedup();
    let is_right = ranks.get(own as usize) == Some(&parent.mesh.rank())
        && sorted.len() == ranks.len()
        && ranks.iter().all(|rank| *rank < parent.mesh.size());
    if is_right { Ok(ranks) } else { Err(HcclError::PARA) }
}

export! {
    fn HcclGetRootInfo(info: Out<RootInfo>) -> HcclError {
        current()?;
        let root = root::create().map_err(|_| HcclError::TCP_CONNECT)?;
        put(info, RootInfo(root.to_bytes()))
    }

    fn HcclCommInitRootInfo(size: u32, info: In<RootInfo>, rank: u32, comm: Out<usize>) -> HcclError {
        initialize(size, info, rank, comm)
    }

    fn HcclCommInitRootInfoConfig(
        size: u32, info: In<RootInfo>, rank: u32, config: In<u8>, comm: Out<usize>,
    ) -> HcclError {
        check_config(config)?;
        initialize(size, info, rank, comm)
    }

    fn HcclCreateSubCommConfig(
        comm: In<usize>, size: u32, ranks: In<u32>, id: u64, rank: u32, config: In<u8>, child: Out<usize>,
    ) -> HcclError {
        let parent = Communicator::ready(comm.get().ok_or(HcclError::PTR)?)?;
        put(child, 0)?;
        // A rank that is in none.
        if id == NO_SUB_COMM && ranks.address() == 0 {
            return Ok(());
        }
        check_config(config)?;
        let ranks = check_ranks(&parent, ranks.list(size as usize), rank)?;
        suffer()?;
        let (door, stop) = (open_door()?, Arc::<Stop>::default());
        let (number, members) = parent.mesh.set_up(&ranks, &member(parent.device, &door).to_bytes())?;
        let read = |bytes: &Vec<u8>| bytes.first_chunk().map(|bytes| Member::from_bytes(*bytes));
        let members: Vec<Member> = members.iter().filter_map(read).collect();
        let nonce = descriptor((parent.mesh.nonce(), number, id));
        put(child, connect(parent.device, rank, &members, nonce, (&door, stop))?)
    }

    fn HcclCommDestroy[comm](comm: usize) -> HcclError {
        let communicator = Communicator::of(comm)?;
        let _there = callers::work_on(communicator.device, comm, "HcclCommDestroy");
        COMMUNICATORS.remove(comm);
        communicator.launched.wait();
        communicator.mesh.leave();
        Ok(())
    }

    fn HcclGetRankSize[comm](comm: usize, size: Out<u32>) -> HcclError {
        put(size, Communicator::of(comm)?.mesh.size())
    }

    fn HcclGetRankId[comm](comm: usize, rank: Out<u32>) -> HcclError {
        put(rank, Communicator::of(comm)?.mesh.rank())
    }

    fn HcclGetCommName[comm](comm: usize, name: Out<u8>) -> HcclError {
        let says = format!("test double {:016x}", Communicator::of(comm)?.mesh.nonce());
        if name.put_text(&says, COMM_NAME_BYTES) { Ok(()) } else { Err(HcclError::PTR) }
    }

    fn HcclGetCommAsyncError(comm: usize, code: Out<i32>) -> HcclError {
        put(code, Communicator::of(comm)?.error())
    }

    plain fn HcclGetCommConfigCapability() -> u32 {
        // HCCL_COMM_CONFIG_RESERVED: as many settings as the version with this number has.
        10
    }
}
