//! NCCL as a vendor of collectives: its calls, which enqueue their work on a stream of a device.

#![expect(unsafe_code, reason = "calls NCCL")]

use std::ffi::{c_int, c_void};
use std::fmt;
use std::path::PathBuf;
use std::ptr;

use unisono_communicator::{DType, Error, Kind, ReduceOp, Result};
use unisono_cuda::KernelCode;
use unisono_offload::{
    Arithmetic, Capabilities, Device, Elements, LibraryTurn, NanInMinMax, Native, NativeCall, NativeOp,
    Offloaded, RawStream, Vendor, lacks,
};
use unisono_vendor_library::Optional;

use crate::comm::{NcclComm, group_ends, group_joins, group_opened};
use crate::device::CudaDevice;
use crate::discovery::NcclLibrary;
use crate::error::IN_PROGRESS;
use crate::sys::{
    CommHandle, Config, DataType, ReductionOp, SCALAR_HOST_IMMEDIATE, UNIQUE_ID_BYTES, UniqueId,
};

/// The backend's name.
pub const BACKEND: &str = "nccl";

/// A communicator whose collectives NCCL does.
pub type NcclCommunicator = Offloaded<Nccl>;

/// The options for the search for NCCL, and the device that it is used on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NcclOptions {
    /// The library's file, by an absolute path, or by a bare name that the system's loader knows. Without it the loader
    /// looks for NCCL's usual names.
    pub library: Option<PathBuf>,
    /// The driver's file; without it, the system's `libcuda.so.1`.
    pub driver: Option<PathBuf>,
    /// The number of the device, among the devices that `CUDA_VISIBLE_DEVICES` shows.
    pub device: u32,
    /// The source of the kernels that add messages, for algorithms by name. Without any there are none.
    pub kernels: KernelCode,
    /// Whether NCCL's functions block. Then making a communicator cannot be given up when a rank does not come.
    pub blocking: bool,
}

/// NCCL on one device.
pub struct Nccl {
    library: &'static NcclLibrary,
    device: CudaDevice,
    blocking: bool,
}

impl fmt::Debug for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nccl({:?}, {:?})", self.library, self.device.context)
    }
}

impl Nccl {
    /// NCCL on a device, whose primary context is kept as long as this value.
    ///
    /// # Errors
    /// As [`NcclLibrary::open`]. [`Error::LibraryMissing`] without a driver, [`Error::Vendor`] with
    /// `CUDA_ERROR_NO_DEVICE` without a device, and [`Error::InvalidArgument`] for a number that none has.
    /// [`Error::Unsupported`] for RCCL: it takes the memory and the streams of HIP, and this opens NVIDIA's driver.
    pub fn open(options: &NcclOptions) -> Result<Nccl> {
        Nccl::on(NcclLibrary::open(&options.library)?, options)
    }

    /// The library on the device of the options.
    pub(crate) fn on(library: &'static NcclLibrary, options: &NcclOptions) -> Result<Nccl> {
        if library.is_rccl() {
            let what = format!("devices of AMD's: {library:?}");
            let instead = Some("UNISONO_BACKEND=tcp, or NCCL".to_owned());
            return Err(Error::Unsupported { what, backend: BACKEND, instead });
        }
        let device = CudaDevice::open(options.driver.as_deref(), options.device, &options.kernels)?;
        Ok(Nccl { library, device, blocking: options.blocking })
    }

    /// The library.
    pub fn library(&self) -> &'static NcclLibrary {
        self.library
    }

    /// A function that older versions lack.
    fn newer<F: Copy>(&self, function: &Optional<F>) -> Result<F> {
        function.require(BACKEND, &self.library.version().to_string(), "UNISONO_BACKEND=tcp")
    }

    /// Gives `call` NCCL's operator. An operator that NCCL does not have is made for this call: NCCL keeps it as long
    /// as it needs it.
    fn with_operator(
        &self,
        comm: CommHandle,
        elements: Elements,
        call: impl FnOnce(usize, DataType, ReductionOp) -> c_int,
    ) -> Result<c_int> {
        let Elements { count, dtype, op } = elements;
        let data_type = data_type(dtype)?;
        let operator = match op {
            NativeOp::Sum => ReductionOp::SUM,
            NativeOp::Prod => ReductionOp::PROD,
            NativeOp::Max => ReductionOp::MAX,
            NativeOp::Min => ReductionOp::MIN,
            NativeOp::Avg => ReductionOp::AVG,
            NativeOp::PreMulSum(factor) => {
                let (table, mut scalar) = (&self.library.table, scalar(factor, dtype)?);
                let (mut made, residence) = (ReductionOp::SUM, SCALAR_HOST_IMMEDIATE);
                let scalar: *mut c_void = scalar.as_mut_ptr().cast();
                // SAFETY: it writes one operator, and reads a scalar of the type before it returns.
                let code = unsafe {
                    (table.red_op_create_pre_mul_sum)(&mut made, scalar, data_type, residence, comm)
                };
                self.library.check("ncclRedOpCreatePreMulSum", code)?;
                let called = call(count, data_type, made);
                if called != 0 && called != IN_PROGRESS {
                    // The communicator may be gone: an abort ends calls so. If it is not, the operator goes with it.
                    return Ok(called);
                }
                // SAFETY: it was just made, and the call that it was made for has returned.
                let code = unsafe { (table.red_op_destroy)(made, comm) };
                self.library.check("ncclRedOpDestroy", code)?;
                return Ok(called);
            }
        };
        Ok(call(count, data_type, operator))
    }

    /// One call of NCCL's: its name, and its code.
    ///
    /// # Safety
    /// As [`Vendor::call`]; the communicator lives, and the device is current.
    unsafe fn enqueue(
        &self,
        comm: CommHandle,
        call: &NativeCall<'_>,
        stream: RawStream,
    ) -> Result<(&'static str, c_int)> {
        let (table, stream, bytes_of) = (&self.library.table, stream.as_pointer(), DataType::Uint8);
        // SAFETY: the caller's.
        Ok(unsafe {
            match *call {
                NativeCall::AllReduce { input, output, elements } => {
                    let code = self.with_operator(comm, elements, |count, dtype, op| {
                        (table.all_reduce)(input, output, count, dtype, op, comm, stream)
                    })?;
                    ("ncclAllReduce", code)
                }
                NativeCall::Reduce { input, output, elements, root } => {
                    let code = self.with_operator(comm, elements, |count, dtype, op| {
                        (table.reduce)(input, output, count, dtype, op, number(root), comm, stream)
                    })?;
                    ("ncclReduce", code)
                }
                NativeCall::ReduceScatter { input, output, elements } => {
                    let code = self.with_operator(comm, elements, |count, dtype, op| {
                        (table.reduce_scatter)(input, output, count, dtype, op, comm, stream)
                    })?;
                    ("ncclReduceScatter", code)
                }
                NativeCall::Broadcast { buffer, bytes, root } => {
                    let code = (table.broadcast)(buffer, buffer, bytes, bytes_of, number(root), comm, stream);
                    ("ncclBroadcast", code)
                }
                NativeCall::AllGather { input, output, bytes } => {
                    ("ncclAllGather", (table.all_gather)(input, output, bytes, bytes_of, comm, stream))
                }
                NativeCall::AllToAll { input, output, bytes } => {
                    let function = self.newer(&table.all_to_all)?;
                    ("ncclAlltoAll", function(input, output, bytes, bytes_of, comm, stream))
                }
                NativeCall::AllToAllV { .. } => return Err(lacks::<Nccl>("all_to_all_v")),
                NativeCall::Gather { input, output, bytes, root } => {
                    let function = self.newer(&table.gather)?;
                    ("ncclGather", function(input, output, bytes, bytes_of, number(root), comm, stream))
                }
                NativeCall::Scatter { input, output, bytes, root } => {
                    let function = self.newer(&table.scatter)?;
                    ("ncclScatter", function(input, output, bytes, bytes_of, number(root), comm, stream))
                }
                NativeCall::Send { input, bytes, peer } => {
                    ("ncclSend", (table.send)(input, bytes, bytes_of, number(peer), comm, stream))
                }
                NativeCall::Recv { output, bytes, peer } => {
                    ("ncclRecv", (table.recv)(output, bytes, bytes_of, number(peer), comm, stream))
                }
            }
        })
    }
}

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];
const UNSIGNED: [DType; 3] = [DType::U8, DType::U32, DType::U64];
const SIGNED: [DType; 3] = [DType::I8, DType::I32, DType::I64];

/// NCCL's additions and comparisons, by its source (`src/device/reduce_kernel.h`). It compares with CUDA's `fmin` and
/// `fmax`, which drop a NaN; since other ways of reduction, by switches of NVLink, are not in the source, nothing is
/// promised. It adds with one rounding to nearest. A sum is made once and copied to all ranks.
pub const ARITHMETIC: Arithmetic = Arithmetic {
    nan_in_min_max: NanInMinMax::AnyOperand,
    orders_zeros: false,
    truncates: &[],
    equal_bits: true,
};

/// NCCL's number for an element type.
fn data_type(dtype: DType) -> Result<DataType> {
    Ok(match dtype {
        DType::I8 => DataType::Int8,
        DType::U8 => DataType::Uint8,
        DType::I32 => DataType::Int32,
        DType::U32 => DataType::Uint32,
        DType::I64 => DataType::Int64,
        DType::U64 => DataType::Uint64,
        DType::F16 => DataType::Float16,
        DType::BF16 => DataType::Bfloat16,
        DType::F32 => DataType::Float32,
        DType::F64 => DataType::Float64,
        other => return Err(lacks::<Nccl>(&format!("elements of {other}"))),
    })
}

/// A factor as an element.
fn scalar(factor: f64, dtype: DType) -> Result<[u8; 8]> {
    let Kind::Float(format) = dtype.kind() else {
        return Err(lacks::<Nccl>(&format!("pre_mul_sum of {dtype}")));
    };
    let mut bytes = [0; 8];
    format.write(factor, &mut bytes[..format.bytes]);
    Ok(bytes)
}

/// A rank, as C has it. There are at most 65,535.
fn number(rank: u32) -> c_int {
    rank as c_int
}

impl Vendor for Nccl {
    const BACKEND: &'static str = BACKEND;
    const BACKEND_INLINE: &'static str = "nccl without meeting";
    const ID_BYTES: usize = UNIQUE_ID_BYTES;

    type Comm = NcclComm;

    fn version(&self) -> String {
        let mark = self.library.table.library.mark();
        format!("{} {}{mark}", self.library.name(), self.library.version())
    }

    fn capabilities(&self) -> Capabilities {
        let mut known = Capabilities::new(ARITHMETIC);
        for op in [NativeOp::Sum, NativeOp::Prod, NativeOp::Max, NativeOp::Min] {
            known = known.reducing(op, &FLOATS).reducing(op, &UNSIGNED).reducing(op, &SIGNED);
        }
        // NCCL divides a sum of integers as if it had no sign (`FuncSumPostDiv`).
        known = known.reducing(NativeOp::Avg, &FLOATS).reducing(NativeOp::Avg, &UNSIGNED);
        known = known.reducing(NativeOp::PreMulSum(1.0), &FLOATS);
        let table = &self.library.table;
        let newer = [
            (Native::AllToAll, table.all_to_all.function.is_some()),
            (Native::Gather, table.gather.function.is_some()),
            (Native::Scatter, table.scatter.function.is_some()),
        ];
        let there = newer.into_iter().filter(|(_, is_there)| *is_there).map(|(native, _)| native);
        let always = [Native::Groups, Native::Broadcast, Native::Reduce];
        known = always.into_iter().chain(there).fold(known, Capabilities::with);
        let arithmetic = &self.device.arithmetic;
        known = known.combining(ReduceOp::PLAIN, arithmetic.combining());
        known = known.combining(&[ReduceOp::PreMulSum(1.0)], arithmetic.multiplying());
        known = known.scaling(arithmetic.multiplying());
        known.abort = true;
        known
    }

    /// Each with a device of its own.
    fn shares_processes(&self) -> bool {
        true
    }

    fn turn(&self) -> Option<&LibraryTurn> {
        None
    }

    fn device(&self) -> Option<&dyn Device> {
        Some(&self.device)
    }

    fn unique_id(&self) -> Result<Vec<u8>> {
        let mut id = UniqueId { bytes: [0; UNIQUE_ID_BYTES] };
        // SAFETY: it writes one id.
        self.library.check("ncclGetUniqueId", unsafe { (self.library.table.get_unique_id)(&mut id) })?;
        Ok(id.bytes.to_vec())
    }

    fn init(
        &self,
        id: &[u8],
        rank: u32,
        ranks: u32,
        gives_up: &dyn Fn() -> bool,
        tell: &dyn Fn(&Error),
    ) -> Result<NcclComm> {
        const INIT: &str = "ncclCommInitRankConfig";
        let Ok(bytes) = id.try_into() else {
            return Err(Error::invalid("id", format!("{} bytes, not {UNIQUE_ID_BYTES}", id.len())));
        };
        self.device.context.with_current(|| {
            let (mut handle, mut config) = (ptr::null_mut(), Config::new(self.blocking));
            let (init, id) = (self.library.table.comm_init_rank_config, UniqueId { bytes });
            // SAFETY: it reads the configuration, and writes one handle; the id is one of `ncclGetUniqueId` of the
            // group's first rank.
            let code = unsafe { init(&mut handle, number(ranks), id, number(rank), &mut config) };
            if handle.is_null() {
                self.library.check(INIT, code)?;
                let text = "it gave no communicator".to_owned();
                return Err(Error::System { what: INIT.to_owned(), text });
            }
            let comm = NcclComm::new(handle);
            let made = comm.enter().and_then(|inside| inside.settle(self.library, INIT, code, gives_up));
            if let Err(error) = made {
                tell(&error);
                comm.abort(self.library);
                return Err(error);
            }
            Ok(comm)
        })
    }

    fn destroy(&self, comm: &NcclComm) -> Result<()> {
        self.device.context.with_current(|| comm.destroy(self.library))
    }

    fn abort(&self, comm: &NcclComm) -> bool {
        self.device.context.with_current(|| Ok(comm.abort(self.library))).unwrap_or(false)
    }

    /// Finds nothing while another thread is in the communicator.
    fn late_error(&self, comm: &NcclComm) -> Result<()> {
        match comm.enter()?.async_error(self.library)? {
            IN_PROGRESS => Ok(()),
            code => self.library.check("ncclCommGetAsyncError", code),
        }
    }

    // SAFETY: the terms are the trait's.
    unsafe fn call(&self, comm: &NcclComm, call: &NativeCall<'_>, stream: RawStream) -> Result<()> {
        self.device.context.with_current(|| {
            let inside = comm.enter()?;
            group_joins(comm)?;
            let operation = inside.operate()?;
            // SAFETY: the caller's; somebody is inside.
            let (name, code) = unsafe { self.enqueue(operation.handle(), call, stream) }?;
            drop(operation);
            inside.settle(self.library, name, code, &|| false)
        })
    }

    fn group_start(&self) -> Result<()> {
        // SAFETY: it takes nothing.
        self.library.check("ncclGroupStart", unsafe { (self.library.table.group_start)() })?;
        group_opened();
        Ok(())
    }

    /// NCCL makes none of the calls when one has failed.
    fn group_end(&self) -> Result<()> {
        self.device.context.with_current(|| {
            // SAFETY: it takes nothing; the communicators of its calls live, as `comm::Group` keeps them.
            group_ends(self.library, || unsafe { (self.library.table.group_end)() })
        })
    }
}
