//! Compressed calls: their states, and the calls that send fewer bits.

#![expect(unsafe_code, reason = "exported functions that take pointers")]

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use unisono::call::Place;
use unisono::compression::{Codec, CompressedCollectives, CompressionState, Route, codec_by_name};
use unisono::extend::calls::Operation;
use unisono::{Collective, Collectives, Communicator, DType, Element, Error, Result, Shrunk, bf16, f16};

use crate::border::{border, unsupported};
use crate::call::Request;
use crate::handle::{CommHandle, StateHandle, handle_of, taken, value_of};
use crate::input::{Versioned, check_address, give, list, needed_text, structure};
use crate::names::{element_type, operation};
use crate::sited::Sited;
use crate::status::Status;
use crate::text::{OwnedBytes, give_bytes};

/// The way of a compressed call's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum RouteName {
    /// The cheaper way by the prices of the network.
    Cheaper = 0,
    /// Every rank encodes its vector and sends each owner its share.
    Direct = 1,
    /// The ranks of a host sum first, without loss.
    TwoLevels = 2,
    /// Codes are added on their way.
    SummedCodes = 3,
}

/// The state of compressed calls that is to be made.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct StateFields {
    /// sizeof(unisono_state_t).
    pub struct_size: usize,
    /// The codec: "sign", "sign-rms", "int8", "int4" or "bf16" (docs/compression.md).
    pub codec: *const c_char,
    /// The calls: UNISONO_OPERATION_ALL_REDUCE, UNISONO_OPERATION_REDUCE_SCATTER or UNISONO_OPERATION_ALL_GATHER.
    pub operation: i32,
    /// The elements: UNISONO_DTYPE_F32, UNISONO_DTYPE_F16 or UNISONO_DTYPE_BF16.
    pub dtype: i32,
    /// In elements: of all_reduce one number, the whole vector; of reduce_scatter the length of each vector; of
    /// all_gather the share of each rank.
    pub lengths: *const u64,
    /// The length of `lengths`.
    pub length_count: usize,
    /// A unisono_route, the same on all ranks.
    pub route: i32,
    /// 1: the first call measures whether compression pays, on all ranks, and calls are exact where it does not.
    pub or_exact: u32,
}

// SAFETY: the size is the first field; the rest are pointers and numbers.
unsafe impl Versioned for StateFields {
    const BYTES_MIN: usize = size_of::<StateFields>();
}

/// Makes a state for compressed calls of this communicator. Sends nothing. Its residuals take the memory of one or two
/// vectors of floats.
///
/// @param comm The communicator.
/// @param fields The codec, the calls and their lengths; the same on all ranks.
/// @param state Where the state goes, which the caller frees with unisono_state_free().
///
/// # Safety
/// The handle is not freed, and the structure and its pointers are as their documentation says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_state_new(
    comm: *const CommHandle,
    fields: *const StateFields,
    state: *mut *mut StateHandle,
) -> Status {
    border(|| {
        check_address("state", state)?;
        // SAFETY: the caller promises all of it.
        unsafe {
            let comm = value_of("comm", comm)?;
            let fields = structure("fields", fields)?;
            let made = new_state(&*comm.communicator, &fields)?;
            state.write(handle_of(StateHandle { state: Mutex::new(made) }));
        }
        Ok(())
    })
}

/// # Safety
/// The structure and its pointers are as their documentation says.
unsafe fn new_state(comm: &dyn Communicator, fields: &StateFields) -> Result<CompressionState> {
    // SAFETY: the caller promises it.
    let (codec, lengths) = unsafe {
        let lengths = list("lengths", fields.lengths, fields.length_count)?;
        (codec_by_name(needed_text("codec", fields.codec)?)?, lengths)
    };
    let too_long = |_| Error::invalid("lengths", "exceed the address space");
    let lengths: Vec<usize> =
        lengths.iter().map(|&length| usize::try_from(length).map_err(too_long)).collect::<Result<_>>()?;
    let dtype = element_type(fields.dtype, 0)?;
    let state = match (operation(fields.operation)?, lengths.as_slice()) {
        (Operation::Collective(Collective::AllReduce), &[elements]) => {
            CompressionState::with_codec(comm, codec, dtype, elements)?
        }
        (Operation::Collective(Collective::AllReduce), others) => {
            return Err(Error::invalid(
                "lengths",
                format!("has {} numbers, all_reduce has one", others.len()),
            ));
        }
        (Operation::Collective(Collective::ReduceScatter), lengths) => {
            shaped(dtype, Shaped::ReduceScatter, comm, codec, lengths)?
        }
        (Operation::Collective(Collective::AllGather), shares) => {
            shaped(dtype, Shaped::AllGather, comm, codec, shares)?
        }
        (other, _) => {
            return Err(unsupported(
                format!("compressed {other}"),
                "all_reduce, reduce_scatter or all_gather",
            ));
        }
    };
    let state = match fields.or_exact {
        0 => state,
        1 => state.or_exact(),
        other => return Err(Error::invalid("or_exact", format!("{other}, but 0 or 1 is needed"))),
    };
    match fields.route {
        0 => Ok(state),
        1 => state.by(Route::Direct, comm),
        2 => state.by(Route::TwoLevels, comm),
        3 => state.by(Route::SummedCodes, comm),
        other => Err(Error::invalid("route", format!("{other} is the number of none"))),
    }
}

/// The calls whose states have several lengths.
#[derive(Clone, Copy)]
enum Shaped {
    ReduceScatter,
    AllGather,
}

fn shaped(
    dtype: DType,
    shaped: Shaped,
    comm: &dyn Communicator,
    codec: Arc<dyn Codec>,
    lengths: &[usize],
) -> Result<CompressionState> {
    fn of<T: Element>(
        shaped: Shaped,
        comm: &dyn Communicator,
        codec: Arc<dyn Codec>,
        lengths: &[usize],
    ) -> Result<CompressionState> {
        match shaped {
            Shaped::ReduceScatter => CompressionState::reduce_scatter::<T>(comm, codec, lengths),
            Shaped::AllGather => CompressionState::all_gather::<T>(comm, codec, lengths),
        }
    }
    match dtype {
        DType::F32 => of::<f32>(shaped, comm, codec, lengths),
        DType::F16 => of::<f16>(shaped, comm, codec, lengths),
        DType::BF16 => of::<bf16>(shaped, comm, codec, lengths),
        other => Err(no_codec_of(other)),
    }
}

fn no_codec_of(dtype: DType) -> Error {
    unsupported(format!("compression of {dtype}"), "f32, f16 or bf16")
}

/// Makes a compressed call.
///
/// # Safety
/// While it runs, nobody writes the call's input, and nobody else uses its output.
pub(crate) unsafe fn compressed(sited: &Sited, state: &StateHandle, request: &Request) -> Result<()> {
    let mut state = locked(state)?;
    // SAFETY: as the caller promises.
    let made = unsafe {
        match request.descriptor.dtype {
            DType::F32 => compressed_of::<f32>(sited, &mut state, request),
            DType::F16 => compressed_of::<f16>(sited, &mut state, request),
            DType::BF16 => compressed_of::<bf16>(sited, &mut state, request),
            other => Err(no_codec_of(other)),
        }
    };
    made.map_err(|error| sited.at_own_line(error, &format_args!("compressed {}", request.descriptor)))
}

/// # Safety
/// As [`compressed`]; the elements are of type `T`.
unsafe fn compressed_of<T: Element>(
    sited: &Sited,
    state: &mut CompressionState,
    request: &Request,
) -> Result<()> {
    let comm = sited.with(request.options);
    let descriptor = &request.descriptor;
    let op = || descriptor.op.ok_or_else(|| Error::invalid("op", "missing"));
    // SAFETY: as the caller promises.
    let (inputs, mut outputs) = unsafe {
        let inputs = request.sides.input().map(|input| input.slices::<T>()).unwrap_or_default();
        (inputs, request.sides.output().slices_mut::<T>())
    };
    match (descriptor.operation, descriptor.place) {
        (Operation::Collective(Collective::AllReduce), Place::InPlace) => {
            comm.compressed_all_reduce_coalesced(&mut outputs, op()?, state)
        }
        (Operation::Collective(Collective::ReduceScatter), Place::Separate) => {
            comm.compressed_reduce_scatter(&inputs, &mut outputs, op()?, state)
        }
        (Operation::Collective(Collective::AllGather), Place::Separate) => {
            match (inputs.as_slice(), outputs.as_mut_slice()) {
                ([input], [output]) => comm.compressed_all_gather(input, output, state),
                _ => Err(unsupported("a compressed all_gather of lists", "one input and one output")),
            }
        }
        _ => Err(unsupported(
            format!("compressed {descriptor}"),
            "all_reduce in place, reduce_scatter or all_gather from one buffer to another",
        )),
    }
}

fn locked(state: &StateHandle) -> Result<MutexGuard<'_, CompressionState>> {
    match state.state.try_lock() {
        Ok(state) => Ok(state),
        Err(TryLockError::Poisoned(state)) => Ok(state.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Error::invalid("state", "another call uses it")),
    }
}

/// Forgets everything that a state owes, as at the start of a training.
///
/// # Safety
/// The handle is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_state_reset(state: *const StateHandle) -> Status {
    border(|| {
        // SAFETY: the caller promises it.
        let state = unsafe { value_of("state", state) }?;
        locked(&state)?.reset()
    })
}

/// The state of all_reduce as bytes, for a checkpoint of this rank.
///
/// @param state The state.
/// @param bytes Where the bytes go; freed with unisono_bytes_free().
///
/// # Safety
/// The handle is not freed, and `bytes` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_state_export(state: *const StateHandle, bytes: *mut OwnedBytes) -> Status {
    border(|| {
        // SAFETY: the caller promises it.
        unsafe {
            let state = value_of("state", state)?;
            let exported = locked(&state)?.export()?;
            give_bytes(bytes, exported)
        }
    })
}

/// The state that unisono_state_export() wrote on the same rank of as many ranks.
///
/// @param comm The communicator.
/// @param fields As when the state was made; `lengths`, `route` and `or_exact` are in the bytes, and 0 here.
/// @param data The bytes.
/// @param length Their number.
/// @param state Where the state goes.
///
/// # Safety
/// As unisono_state_new(); `data` has so many readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_state_import(
    comm: *const CommHandle,
    fields: *const StateFields,
    data: *const c_void,
    length: usize,
    state: *mut *mut StateHandle,
) -> Status {
    border(|| {
        check_address("state", state)?;
        // SAFETY: the caller promises all of it.
        unsafe {
            let comm = value_of("comm", comm)?;
            let fields = structure("fields", fields)?;
            let bytes = list("data", data.cast::<u8>(), length)?;
            let codec = codec_by_name(needed_text("codec", fields.codec)?)?;
            let comm = &*comm.communicator;
            let made = match element_type(fields.dtype, 0)? {
                DType::F32 => CompressionState::import_with_codec::<f32>(comm, codec, bytes),
                DType::F16 => CompressionState::import_with_codec::<f16>(comm, codec, bytes),
                DType::BF16 => CompressionState::import_with_codec::<bf16>(comm, codec, bytes),
                other => Err(no_codec_of(other)),
            }?;
            state.write(handle_of(StateHandle { state: Mutex::new(made) }));
        }
        Ok(())
    })
}

/// Takes a state to the communicator of the survivors, with the results of unisono_shrink(). Collective over the
/// survivors.
///
/// @param state The state.
/// @param survivors The communicator of the survivors.
/// @param new_ranks The new rank of each old rank; -1 for lost ones.
/// @param rank_count The number of old ranks.
/// @param last_common_call As unisono_shrink() gave it.
/// @param went_back 1 if this rank had ended a call that another survivor had not: take its result back too. Or null.
///
/// # Safety
/// The handles are not freed, the list is readable, and `went_back` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_state_rebind(
    state: *const StateHandle,
    survivors: *const CommHandle,
    new_ranks: *const i32,
    rank_count: usize,
    last_common_call: u64,
    went_back: *mut u32,
) -> Status {
    border(|| {
        // SAFETY: the caller promises all of it.
        unsafe {
            let (state, survivors) = (value_of("state", state)?, value_of("survivors", survivors)?);
            let new_ranks = list("new_ranks", new_ranks, rank_count)?;
            let new_ranks = new_ranks.iter().map(|&rank| u32::try_from(rank).ok()).collect();
            let communicator = survivors.communicator.clone();
            let rebound = locked(&state)?.rebind(&Shrunk { communicator, new_ranks, last_common_call })?;
            give("went_back", went_back, u32::from(rebound.went_back))
        }
    })
}

/// Frees a state; null is left alone.
///
/// # Safety
/// The handle is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_state_free(state: *mut StateHandle) -> Status {
    // SAFETY: the caller gives the handle up.
    border(|| unsafe { taken("state", state) }.map(drop))
}
