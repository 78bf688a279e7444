//! Joining a job: from the environment, by rank and address, or through a store that the program brings.

#![expect(unsafe_code, reason = "exported functions that take pointers, functions of a caller")]

use std::ffi::{CString, c_char, c_void};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use unisono::config::{GROUPS, SecretSource};
use unisono::extend::calls::Site;
use unisono::extend::tcp::MeetingStore;
use unisono::{Config, Error, Result, SecondInit, World};
use unisono_communicator::settings::{environment, knobs};

use crate::border::border;
use crate::call::site;
use crate::handle::{CommHandle, handle_of};
use crate::input::{Versioned, check_address, list, needed_text, structure, text};
use crate::names::{ADOPT_WORLD, ANOTHER_WORLD, flags};
use crate::status::Status;
use crate::user_op::Context;

/// The most bytes of a value in a program's store.
const VALUE_BYTES_MAX: usize = 4096;

/// A setting by the name of its environment variable; docs/settings.md lists them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Setting {
    /// The name, such as "UNISONO_CALL_TIMEOUT_S".
    pub name: *const c_char,
    /// The value. It wins over the environment.
    pub value: *const c_char,
}

/// Sets a value of the program's store, in place of an earlier one. 0 for success, else a number of the program's own,
/// which the error shows.
pub type SetFunction = Option<
    unsafe extern "C" fn(context: *mut c_void, key: *const c_char, value: *const u8, length: usize) -> i32,
>;

/// Gets a value of the program's store: at most `room` bytes at `value`, and their number. It may wait for one, at most
/// `timeout_s`. 0 for a value, UNISONO_NO_VALUE for none yet, else a number of the program's own.
pub type GetFunction = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        key: *const c_char,
        timeout_s: f64,
        value: *mut u8,
        room: usize,
        length: *mut usize,
    ) -> i32,
>;

/// The result of a unisono_get_function that has no value yet. It is asked again.
pub const NO_VALUE: i32 = 1;

/// The way in which this process joins its job. Everything 0 but `struct_size`: as the environment says, which every
/// launcher sets (unisono run, torchrun, mpirun, srun); with none around it, a world of one.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct InitFields {
    /// sizeof(unisono_init_t).
    pub struct_size: usize,
    /// Flags: UNISONO_ANOTHER_WORLD or UNISONO_ADOPT_WORLD. Without them a second world is refused while one is open.
    pub flags: u32,
    /// This rank, from 0, if `size` is not 0.
    pub rank: u32,
    /// The number of ranks; 0: the environment says it.
    pub size: u32,
    /// The line of the caller, which errors show; __LINE__.
    pub line: u32,
    /// The file of the line, __FILE__; or null.
    pub file: *const c_char,
    /// The meeting place, the same on all ranks: "tcp://host:port", of rank 0, which binds the port above; or
    /// "file:///path", a file that all ranks see. Null: the environment says it.
    pub address: *const c_char,
    /// The file of the job's secret, of 32 bytes and mode 0600; or null. Ranks on several hosts need it with "tcp://".
    pub secret_file: *const c_char,
    /// Settings that win over the environment.
    pub settings: *const Setting,
    /// The number of settings.
    pub setting_count: usize,
    /// With `meeting_get`: the ranks meet through a store of the program, in place of `address`. Both are called on the
    /// thread that joins, and only until it has joined. A process that can read the store can join the job, unless
    /// there is a secret file.
    pub meeting_set: SetFunction,
    /// See `meeting_set`.
    pub meeting_get: GetFunction,
    /// The first argument of both.
    pub meeting_context: *mut c_void,
}

// SAFETY: the size is the first field; the rest are pointers, integers and optional functions.
unsafe impl Versioned for InitFields {
    const BYTES_MIN: usize = size_of::<InitFields>();
}

/// Joins the job, and gives all its ranks as a communicator. Blocks until all ranks have come, at most for
/// UNISONO_JOIN_TIMEOUT_S.
///
/// @param init How, or null for the environment.
/// @param world Where the communicator goes, which the caller frees with unisono_comm_free().
/// @return UNISONO_STATUS_CONFIGURATION for a setting that cannot be obeyed, UNISONO_STATUS_RENDEZVOUS with the missing
/// ranks, UNISONO_STATUS_REFUSED when this process does not belong to the job that it has found.
///
/// # Safety
/// The structure and its pointers are as their documentation says, and `world` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_init(init: *const InitFields, world: *mut *mut CommHandle) -> Status {
    border(|| {
        check_address("world", world)?;
        let config = match init.is_null() {
            true => Config::from_environment()?.with_site(Site::UNKNOWN),
            // SAFETY: the caller promises it.
            false => unsafe { config(&structure("init", init)?) }?,
        };
        let joined: World = unisono::init_with(&config)?;
        let communicator = joined.communicator();
        // SAFETY: it is checked, and the caller promises that it is writable.
        unsafe { world.write(handle_of(CommHandle { world: joined, communicator })) };
        Ok(())
    })
}

/// # Safety
/// The structure and its pointers are as their documentation says.
unsafe fn config(fields: &InitFields) -> Result<Config> {
    flags(fields.flags, ANOTHER_WORLD | ADOPT_WORLD)?;
    // SAFETY: the caller promises it.
    let (own, address, secret, site) = unsafe {
        let own = own_settings(fields)?;
        let secret = text("secret_file", fields.secret_file)?;
        (own, text("address", fields.address)?, secret, site(fields.file, fields.line)?)
    };
    let mut config = match own.is_empty() {
        true => Config::from_environment()?,
        false => {
            let environment: Vec<(String, String)> = environment().collect();
            let both = || own.iter().chain(&environment);
            let value = |name: &str| both().find(|one| one.0 == name).map(|one| one.1.clone());
            Config::from_lookup(&value)?
        }
    };
    if fields.size != 0 {
        config.set_rank(fields.rank, fields.size)?;
    } else if fields.rank != 0 {
        return Err(Error::invalid("rank", "given, but without the number of ranks"));
    }
    if let Some(address) = address {
        config.set_init_method(address)?;
    }
    if let Some(secret) = secret {
        config.secret = Some(SecretSource::File(secret.into()));
    }
    config.site = Some(site);
    config.second_init = match fields.flags {
        0 => SecondInit::Refuse,
        ANOTHER_WORLD => SecondInit::Another,
        ADOPT_WORLD => SecondInit::Adopt,
        _ => return Err(Error::invalid("flags", "a world is another one or an adopted one")),
    };
    match (fields.meeting_set, fields.meeting_get) {
        (None, None) => Ok(config),
        (Some(set), Some(get)) if address.is_none() => {
            let context = Context(fields.meeting_context);
            Ok(config.with_meeting(Arc::new(ProgramStore { set, get, context })))
        }
        (Some(_), Some(_)) => Err(Error::invalid("address", "given, beside a store of the program")),
        _ => Err(Error::invalid("meeting_get", "a store of the program has both functions")),
    }
}

/// # Safety
/// As [`config`].
unsafe fn own_settings(fields: &InitFields) -> Result<Vec<(String, String)>> {
    // SAFETY: the caller promises it.
    let settings = unsafe { list("settings", fields.settings, fields.setting_count) }?;
    let read = |setting: &Setting| {
        // SAFETY: as above.
        let (name, value) = unsafe {
            (needed_text("settings.name", setting.name)?, needed_text("settings.value", setting.value)?)
        };
        if !knobs(GROUPS).any(|knob| knob.name == name) {
            return Err(Error::invalid("settings.name", format!("{name} is no setting")));
        }
        Ok((name.to_owned(), value.to_owned()))
    };
    settings.iter().map(read).collect()
}

/// The error of a store of the program.
type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// A store whose functions the program brings.
struct ProgramStore {
    set: unsafe extern "C" fn(*mut c_void, *const c_char, *const u8, usize) -> i32,
    get: unsafe extern "C" fn(*mut c_void, *const c_char, f64, *mut u8, usize, *mut usize) -> i32,
    context: Context,
}

impl fmt::Debug for ProgramStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the program's store")
    }
}

impl MeetingStore for ProgramStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let key = CString::new(key)?;
        // SAFETY: the program has given the function with its context.
        match unsafe { (self.set)(self.context.get(), key.as_ptr(), value.as_ptr(), value.len()) } {
            0 => Ok(()),
            number => Err(format!("meeting_set has returned {number}").into()),
        }
    }

    fn get(&self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, StoreError> {
        let key = CString::new(key)?;
        let mut value = vec![0; VALUE_BYTES_MAX];
        let mut length = 0;
        let timeout_s = deadline.saturating_duration_since(Instant::now()).as_secs_f64();
        let (start, room) = (value.as_mut_ptr(), value.len());
        // SAFETY: as above; the function writes at most as many bytes as there is room.
        let number =
            unsafe { (self.get)(self.context.get(), key.as_ptr(), timeout_s, start, room, &raw mut length) };
        match number {
            0 if length <= room => {
                value.truncate(length);
                Ok(Some(value))
            }
            0 => Err(format!("meeting_get says {length} bytes, but there is room for {room}").into()),
            NO_VALUE => Ok(None),
            number => Err(format!("meeting_get has returned {number}").into()),
        }
    }
}
