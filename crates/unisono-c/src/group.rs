//! Communicators: their facts, and groups made of them.

#![expect(unsafe_code, reason = "exported functions that take pointers")]

use std::ffi::c_char;
use std::sync::Arc;

use unisono::{Collectives, Communicator, Determinism, Error, GroupBackend, GroupOptions, Result, World};

use crate::border::{border, value_or};
use crate::call::site;
use crate::handle::{CommHandle, handle_of, taken, value_of};
use crate::input::{Versioned, check_address, list, list_mut, needed_text, seconds, structure, text};
use crate::names::{COMPANION, FIXED_ORDER, flags};
use crate::sited::Sited;
use crate::status::Status;

/// Options of a new group, which all its ranks give alike. An option that is 0 comes from the communicator from which
/// the group is made.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct GroupFields {
    /// sizeof(unisono_group_t).
    pub struct_size: usize,
    /// The deadline of its calls in seconds.
    pub timeout_s: f64,
    /// The label of its calls that have none, of at most 32 bytes; or null.
    pub label: *const c_char,
    /// The algorithm of its collectives that have one of this name; or null.
    pub algorithm: *const c_char,
    /// Flags: UNISONO_FIXED_ORDER, UNISONO_COMPANION.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
    /// The time in seconds for which a thread that waits in one of its calls polls before it sleeps.
    pub spin_s: f64,
}

// SAFETY: the size is the first field; the rest are pointers and numbers.
unsafe impl Versioned for GroupFields {
    const BYTES_MIN: usize = size_of::<GroupFields>();
}

/// Facts of a communicator.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CommFields {
    /// This process's rank, from 0.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// This process's rank in the job.
    pub job_rank: u32,
    /// Its place among the ranks of the communicator on its host, from 0.
    pub local_rank: u32,
    /// The number of ranks of the communicator on its host.
    pub local_size: u32,
    /// The number of hosts.
    pub host_count: u32,
    /// The number of failures that it has survived.
    pub epoch: u32,
    /// 0.
    pub reserved: u32,
    /// Its number, the same on all ranks; 0 for all ranks of the job.
    pub id: u64,
}

/// This process's rank in the communicator, from 0; -1 after an error.
///
/// # Safety
/// The handle is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_rank(comm: *const CommHandle) -> i32 {
    // SAFETY: the caller promises it.
    value_or(-1, || Ok(unsafe { value_of("comm", comm) }?.communicator.rank() as i32))
}

/// The number of ranks of the communicator; -1 after an error.
///
/// # Safety
/// The handle is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_size(comm: *const CommHandle) -> i32 {
    // SAFETY: the caller promises it.
    value_or(-1, || Ok(unsafe { value_of("comm", comm) }?.communicator.size() as i32))
}

/// Facts of a communicator.
///
/// # Safety
/// The handle is not freed, and `fields` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_comm_info(comm: *const CommHandle, fields: *mut CommFields) -> Status {
    border(|| {
        check_address("fields", fields)?;
        // SAFETY: the caller promises it.
        let comm = unsafe { value_of("comm", comm) }?;
        let group = comm.communicator.group();
        let facts = CommFields {
            rank: group.rank(),
            size: group.size(),
            job_rank: group.own_job_rank().get(),
            local_rank: group.local_rank(),
            local_size: group.local_size(),
            host_count: group.host_count(),
            epoch: group.epoch(),
            reserved: 0,
            id: group.id(),
        };
        // SAFETY: it is checked, and the caller promises that it is writable.
        unsafe { fields.write(facts) };
        Ok(())
    })
}

/// The rank in the job and the host of each rank of a communicator.
///
/// @param comm The communicator.
/// @param job_ranks Room for `rank_count` ranks of the job, or null. Errors name these.
/// @param hosts Room for `rank_count` numbers of hosts, or null.
/// @param rank_count The number of ranks.
///
/// # Safety
/// The handle is not freed, and the lists are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_comm_ranks(
    comm: *const CommHandle,
    job_ranks: *mut u32,
    hosts: *mut u32,
    rank_count: usize,
) -> Status {
    border(|| {
        // SAFETY: the caller promises it.
        let comm = unsafe { value_of("comm", comm) }?;
        let group = comm.communicator.group();
        if rank_count != group.size() as usize {
            let problem = format!("{rank_count}, but the communicator has {}", group.size());
            return Err(Error::invalid("rank_count", problem));
        }
        // SAFETY: as above.
        let (job_ranks, hosts) = unsafe {
            let room = |list: *mut u32| if list.is_null() { 0 } else { rank_count };
            let job_ranks = list_mut("job_ranks", job_ranks, room(job_ranks))?;
            (job_ranks, list_mut("hosts", hosts, room(hosts))?)
        };
        job_ranks.iter_mut().zip(group.job_ranks()).for_each(|(place, rank)| *place = rank.get());
        hosts.iter_mut().zip(group.hosts()).for_each(|(place, host)| *place = *host);
        Ok(())
    })
}

/// A group of ranks of the job that only its members make: the others need not know of it. Sends nothing over TCP: the
/// first call waits for members that have not come.
///
/// @param comm The world, or any communicator of it.
/// @param key A text that stands for one list of ranks as long as the job runs. Each time that all members have made a
/// group of the key again, it is a new one.
/// @param ranks Ranks of the job, with this one, in the order that they have in the group.
/// @param rank_count Their number.
/// @param options The options, or null.
/// @param group Where the group goes, which the caller frees with unisono_comm_free().
///
/// # Safety
/// The handle is not freed, the texts, the list and the structure are as their documentation says, and `group` is
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_make_group(
    comm: *const CommHandle,
    key: *const c_char,
    ranks: *const u32,
    rank_count: usize,
    options: *const GroupFields,
    group: *mut *mut CommHandle,
) -> Status {
    border(|| {
        check_address("group", group)?;
        // SAFETY: the caller promises all of it.
        unsafe {
            let comm = value_of("comm", comm)?;
            let (key, ranks) = (needed_text("key", key)?, list("ranks", ranks, rank_count)?);
            let made = comm.world.make_group_with(key, ranks, &group_options(options)?)?;
            group.write(of_world(&comm.world, made));
        }
        Ok(())
    })
}

/// A communicator of some ranks of this one. Every rank of it makes the call; nothing is sent. Members give the same
/// list; the others give a list without themselves, which may be their own group's.
///
/// @param comm The communicator.
/// @param ranks Ranks of `comm`, in the order that they have in the group.
/// @param rank_count Their number.
/// @param options The options, or null.
/// @param group Where the group goes; null where this rank is not in the list.
///
/// # Safety
/// As unisono_make_group().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_subgroup(
    comm: *const CommHandle,
    ranks: *const u32,
    rank_count: usize,
    options: *const GroupFields,
    group: *mut *mut CommHandle,
) -> Status {
    border(|| {
        check_address("group", group)?;
        // SAFETY: the caller promises all of it.
        unsafe {
            let comm = value_of("comm", comm)?;
            let ranks = list("ranks", ranks, rank_count)?;
            let made = comm.communicator.subgroup_with(ranks, &group_options(options)?)?;
            group.write(made.map_or(std::ptr::null_mut(), |made| of_world(&comm.world, made)));
        }
        Ok(())
    })
}

/// The ranks that give the same colour, as a communicator: MPI_Comm_split. Every rank of the communicator makes the
/// call, which is an all_gather.
///
/// @param comm The communicator.
/// @param colour The colour; a negative number for no group.
/// @param key Ranks come in the order of their keys; equal keys in the order of ranks.
/// @param file The file of the caller's line, or null.
/// @param line The line.
/// @param group Where the group goes; null for no group.
///
/// # Safety
/// The handle is not freed, `file` is null or a text, and `group` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_split(
    comm: *const CommHandle,
    colour: i32,
    key: i64,
    file: *const c_char,
    line: u32,
    group: *mut *mut CommHandle,
) -> Status {
    border(|| {
        check_address("group", group)?;
        // SAFETY: the caller promises all of it.
        unsafe {
            let comm = value_of("comm", comm)?;
            let sited = Sited::new(comm.communicator.clone(), site(file, line)?);
            let made = sited.split(u32::try_from(colour).ok(), key)?;
            group.write(made.map_or(std::ptr::null_mut(), |made| of_world(&comm.world, made)));
        }
        Ok(())
    })
}

/// A second communicator of the same ranks, with an order of calls of its own. Every rank makes the call.
///
/// @param comm The communicator.
/// @param copy Where the copy goes, which the caller frees with unisono_comm_free().
///
/// # Safety
/// The handle is not freed, and `copy` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_duplicate(comm: *const CommHandle, copy: *mut *mut CommHandle) -> Status {
    border(|| {
        check_address("copy", copy)?;
        // SAFETY: the caller promises it.
        let comm = unsafe { value_of("comm", comm) }?;
        let made = comm.communicator.duplicate()?;
        // SAFETY: it is checked, and the caller promises that it is writable.
        unsafe { copy.write(of_world(&comm.world, made)) };
        Ok(())
    })
}

/// Frees a handle; null is left alone. Calls that go on keep the communicator. The last handle of a world, its groups
/// and its stores says goodbye to the other ranks; unisono_close() before it finds ranks that have made other calls.
///
/// # Safety
/// The handle is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_comm_free(comm: *mut CommHandle) -> Status {
    // SAFETY: the caller gives the handle up.
    border(|| unsafe { taken("comm", comm) }.map(drop))
}

/// A handle of a communicator of this world.
pub(crate) fn of_world(world: &World, communicator: Arc<dyn Communicator>) -> *mut CommHandle {
    handle_of(CommHandle { world: world.clone(), communicator })
}

/// # Safety
/// The structure is null, or as its documentation says.
unsafe fn group_options(options: *const GroupFields) -> Result<GroupOptions> {
    if options.is_null() {
        return Ok(GroupOptions::new());
    }
    // SAFETY: the caller promises all of it.
    let (fields, label, algorithm) = unsafe {
        let fields = structure("options", options)?;
        (fields, text("label", fields.label)?, text("algorithm", fields.algorithm)?)
    };
    flags(fields.flags, FIXED_ORDER | COMPANION)?;
    if fields.reserved != 0 {
        return Err(Error::invalid("reserved", "not 0"));
    }
    let (timeout, spin) = (seconds("timeout_s", fields.timeout_s)?, seconds("spin_s", fields.spin_s)?);
    let mut options = GroupOptions { timeout, spin, ..GroupOptions::new() };
    if let Some(label) = label {
        options = options.label(label);
    }
    if let Some(name) = algorithm {
        options = options.algorithm(name);
    }
    if fields.flags & FIXED_ORDER != 0 {
        options = options.determinism(Determinism::Fixed);
    }
    if fields.flags & COMPANION != 0 {
        options = options.backend(GroupBackend::Companion);
    }
    Ok(options)
}
