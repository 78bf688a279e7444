//! Communicators that are made of others.

use std::sync::Arc;

use unisono_double_common::fault;
use unisono_double_common::mesh::Broken;
use unisono_double_common::movement::descriptor;
use unisono_double_common::root::Member;
use unisono_double_common::{In, Out, export};

use crate::codes::{INTERNAL_ERROR, NcclError, REMOTE_ERROR};
use crate::communicator::Communicator;
use crate::config;
use crate::group::{self, Initialization};
use crate::init::{connect, open_door, own_member, suffer};

/// NCCL_SPLIT_NOCOLOR: this rank is in no part.
const NO_COLOR: i32 = -1;
/// NCCL_SHRINK_ABORT: work that is under way is ended.
const SHRINK_ABORT: i32 = 1;

impl From<Broken> for NcclError {
    fn from(broken: Broken) -> NcclError {
        match broken {
            Broken::Lost(rank) => {
                NcclError::new(REMOTE_ERROR, format!("rank {rank} has closed its connection"))
            }
            Broken::Aborted => NcclError::new(INTERNAL_ERROR, "aborted"),
            Broken::Mismatch(_) | Broken::Memory => NcclError::new(INTERNAL_ERROR, "the ranks' calls differ"),
        }
    }
}

/// Color, key and member.
const PLACE_BYTES: usize = 8 + Member::BYTES;

/// What a rank of the parent wants to be.
#[derive(Clone, Copy)]
struct Wanted {
    color: i32,
    key: i32,
    parent_rank: u32,
    member: Member,
}

impl Wanted {
    fn to_bytes(self) -> [u8; PLACE_BYTES] {
        let mut bytes = [0; PLACE_BYTES];
        bytes[..4].copy_from_slice(&self.color.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8..].copy_from_slice(&self.member.to_bytes());
        bytes
    }

    fn from_bytes(parent_rank: u32, bytes: &[u8]) -> Option<Wanted> {
        let [a, b, c, d, e, f, g, h, member @ ..] = *bytes.first_chunk::<PLACE_BYTES>()?;
        Some(Wanted {
            color: i32::from_le_bytes([a, b, c, d]),
            key: i32::from_le_bytes([e, f, g, h]),
            parent_rank,
            member: Member::from_bytes(member),
        })
    }
}

/// Makes the child of the ranks of one color among `ranks`, the parent's ranks that take part.
fn make(
    parent: &Communicator,
    child: &Communicator,
    ranks: &[u32],
    color: i32,
    key: i32,
) -> Result<(), NcclError> {
    let door = open_door()?;
    let mesh = parent.mesh()?;
    let own = Wanted { color, key, parent_rank: mesh.rank(), member: own_member(parent.device, &door) };
    let (number, places) = mesh.set_up(ranks, &own.to_bytes())?;
    let all = ranks.iter().zip(&places).filter_map(|(rank, bytes)| Wanted::from_bytes(*rank, bytes));
    let mut same: Vec<Wanted> = all.filter(|one| one.color == color).collect();
    same.sort_by_key(|one| (one.key, one.parent_rank));
    let rank = same.iter().position(|one| one.parent_rank == own.parent_rank);
    let Some(rank) = rank.filter(|_| color != NO_COLOR) else { return Ok(()) };
    let members: Vec<Member> = same.iter().map(|one| one.member).collect();
    connect(child, rank as u32, &members, descriptor((mesh.nonce(), number, color)), &door)
}

/// Which ranks of the parent take part, and as what this one.
struct Plan {
    ranks: Vec<u32>,
    color: i32,
    key: i32,
}

fn start(
    call: &str,
    parent: Arc<Communicator>,
    plan: Plan,
    to: Out<usize>,
    config: In<u8>,
) -> Result<(), NcclError> {
    let is_blocking = config::read(config)?.unwrap_or(parent.is_blocking);
    if !to.put(0) {
        return Err(NcclError::null(call, "newcomm"));
    }
    let child = Communicator::new(parent.device, is_blocking);
    let is_in = plan.color != NO_COLOR;
    if is_in {
        let _ = to.put(child.handle);
    }
    let fault = fault::take_of_work();
    let (own, own_parent) = (child.clone(), parent.clone());
    let make = move || {
        suffer(fault, &own_parent)?;
        make(&own_parent, &own, &plan.ranks, plan.color, plan.key)
    };
    let to = is_in.then_some(to);
    group::initialize(Initialization { communicator: child, to, parent: Some(parent), make: Box::new(make) })
}

export! {
    fn ncclCommSplit[comm](comm: usize, color: i32, key: i32, child: Out<usize>, config: In<u8>) -> NcclError {
        let parent = Communicator::ready(comm, "CommSplit")?;
        if color < NO_COLOR {
            return Err(NcclError::argument(format!("CommSplit : invalid color {color}")));
        }
        let ranks = (0..parent.mesh()?.size()).collect();
        start("CommSplit", parent, Plan { ranks, color, key }, child, config)
    }

    fn ncclCommShrink[comm](
        comm: usize, excluded: In<i32>, count: i32, child: Out<usize>, config: In<u8>, flags: i32,
    ) -> NcclError {
        // One that has failed is what this function is for.
        let parent = Communicator::of(comm, "CommShrink")?;
        let count = usize::try_from(count).ok().filter(|count| *count > 0);
        let excluded = count.and_then(|count| excluded.list(count));
        let excluded = excluded.ok_or_else(|| NcclError::null("CommShrink", "excludeRanksList"))?;
        let (rank, size) = (parent.mesh()?.rank(), parent.mesh()?.size());
        let is_wrong = |one: &i32| u32::try_from(*one).map_or(true, |one| one >= size || one == rank);
        if excluded.iter().any(is_wrong) {
            return Err(NcclError::argument("CommShrink : invalid rank in excludeRanksList"));
        }
        if flags & SHRINK_ABORT != 0 {
            parent.mesh()?.abort_work();
            fault::end_hangs(comm);
        }
        let ranks = (0..size).filter(|rank| !excluded.contains(&(*rank as i32))).collect();
        start("CommShrink", parent, Plan { ranks, color: 0, key: 0 }, child, config)
    }
}
