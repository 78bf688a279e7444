//! HCCL as a vendor of collectives: its calls, which enqueue their work on a stream of a device.

#![expect(unsafe_code, reason = "calls HCCL")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::path::PathBuf;
use std::ptr;

use unisono_communicator::{DType, Error, Result};
use unisono_offload::{
    Arithmetic, Capabilities, Device, LibraryTurn, NanInMinMax, NativeCall, NativeOp, Offloaded, RawStream,
    Vendor, lacks,
};

use crate::device::AclDevice;
use crate::discovery::HcclLibrary;
use crate::product::Product;
use crate::scaling::SCALABLE;
use crate::sys::{DataType, Handle, ROOT_INFO_BYTES, ReduceOp, RootInfo, SendRecvItem, SendRecvKind};

/// The backend's name.
pub const BACKEND: &str = "hccl";

/// A communicator whose collectives HCCL does.
pub type HcclCommunicator = Offloaded<Hccl>;

/// The options for the search for HCCL, and the device that it is used on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HcclOptions {
    /// The folder with CANN's libraries, by an absolute path. Without it the system's loader finds them, as it does
    /// after CANN's `set_env.sh`.
    pub directory: Option<PathBuf>,
    /// The number of the device, among the devices that `ASCEND_RT_VISIBLE_DEVICES` shows.
    pub device: u32,
}

/// HCCL on one device.
pub struct Hccl {
    library: &'static HcclLibrary,
    pub(crate) device: AclDevice,
    pub(crate) product: Product,
}

impl fmt::Debug for Hccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hccl({:?}, {:?}, {:?})", self.library, self.device, self.product)
    }
}

/// A communicator of HCCL.
pub struct HcclComm {
    handle: Handle,
}

// SAFETY: HCCL takes a communicator from any thread on which the device is current.
unsafe impl Send for HcclComm {}

// SAFETY: as above.
unsafe impl Sync for HcclComm {}

/// Nothing of this is in HCCL's documentation, and nobody has seen it on a device: no more is promised than that all
/// ranks have the same bits, since a sum is made once and copied.
pub const ARITHMETIC: Arithmetic = Arithmetic {
    nan_in_min_max: NanInMinMax::AnyOperand,
    orders_zeros: false,
    truncates: &[],
    equal_bits: true,
};

impl Hccl {
    /// HCCL on a device, which stays set up as long as this value.
    ///
    /// # Errors
    /// As [`HcclLibrary::open`]. [`Error::InvalidArgument`] for a number that no device has, [`Error::Vendor`] with
    /// `ACL_ERROR_RT_NO_DEVICE` without one, and [`Error::Unsupported`] for a chip that is not in the table of
    /// [`Product`].
    pub fn open(options: &HcclOptions) -> Result<Hccl> {
        Hccl::on(HcclLibrary::open(&options.directory)?, options)
    }

    /// The library on the device of the options.
    pub(crate) fn on(library: &'static HcclLibrary, options: &HcclOptions) -> Result<Hccl> {
        let device = AclDevice::open(library, options.device)?;
        let name = device.soc_name();
        let product = Product::of_soc(&name).ok_or_else(|| {
            let instead = Some("UNISONO_BACKEND=tcp".to_owned());
            Error::Unsupported { what: format!("the chip {name:?}"), backend: BACKEND, instead }
        })?;
        Ok(Hccl { library, device, product })
    }

    /// The family of its device.
    pub fn product(&self) -> Product {
        self.product
    }

    /// One call of HCCL's: its name, and its code.
    ///
    /// # Safety
    /// As [`Vendor::call`]; the device is current.
    unsafe fn enqueue(
        &self,
        comm: Handle,
        call: &NativeCall<'_>,
        stream: Handle,
    ) -> Result<(&'static str, c_int)> {
        let (table, bytes_of) = (&self.library.collectives, DataType::Uint8);
        let kind = |elements: unisono_offload::Elements| {
            Ok::<_, Error>((elements.count as u64, data_type(elements.dtype)?, reduction(elements.op)?))
        };
        // SAFETY: the caller's. The input is only read, and the output of an all-to-all is written, although the header
        // says otherwise.
        Ok(unsafe {
            match *call {
                NativeCall::AllReduce { input, output, elements } => {
                    let (count, dtype, op) = kind(elements)?;
                    let code = (table.all_reduce)(input.cast_mut(), output, count, dtype, op, comm, stream);
                    ("HcclAllReduce", code)
                }
                NativeCall::Reduce { input, output, elements, root } => {
                    let (count, dtype, op) = kind(elements)?;
                    let code = (table.reduce)(input.cast_mut(), output, count, dtype, op, root, comm, stream);
                    ("HcclReduce", code)
                }
                NativeCall::ReduceScatter { input, output, elements } => {
                    let (count, dtype, op) = kind(elements)?;
                    let code =
                        (table.reduce_scatter)(input.cast_mut(), output, count, dtype, op, comm, stream);
                    ("HcclReduceScatter", code)
                }
                NativeCall::Broadcast { buffer, bytes, root } => {
                    ("HcclBroadcast", (table.broadcast)(buffer, bytes as u64, bytes_of, root, comm, stream))
                }
                NativeCall::AllGather { input, output, bytes } => {
                    let code =
                        (table.all_gather)(input.cast_mut(), output, bytes as u64, bytes_of, comm, stream);
                    ("HcclAllGather", code)
                }
                NativeCall::AllToAll { input, output, bytes } => {
                    let ((input, output), bytes) = (apart((input, bytes), (output, bytes)), bytes as u64);
                    let code =
                        (table.all_to_all)(input, bytes, bytes_of, output, bytes, bytes_of, comm, stream);
                    ("HcclAlltoAll", code)
                }
                NativeCall::AllToAllV { input, send, output, receive } => {
                    let [sent, received] = [send, receive].map(|lengths| lengths.iter().sum());
                    let (input, output) = apart((input, sent), (output, received));
                    let starts = [starts(send), starts(receive)];
                    let [send_at, receive_at] = [starts[0].as_ptr().cast(), starts[1].as_ptr().cast()];
                    let (send, receive) = (send.as_ptr().cast(), receive.as_ptr().cast());
                    let code = (table.all_to_all_v)(
                        input, send, send_at, bytes_of, output, receive, receive_at, bytes_of, comm, stream,
                    );
                    ("HcclAlltoAllV", code)
                }
                NativeCall::Gather { .. } => return Err(lacks::<Hccl>("gather")),
                NativeCall::Scatter { input, output, bytes, root } => {
                    let (input, bytes) = (input.cast_mut(), bytes as u64);
                    ("HcclScatter", (table.scatter)(input, output, bytes, bytes_of, root, comm, stream))
                }
                NativeCall::Send { input, bytes, peer } => {
                    let code = (table.send)(input.cast_mut(), bytes as u64, bytes_of, peer, comm, stream);
                    ("HcclSend", code)
                }
                NativeCall::Recv { output, bytes, peer } => {
                    ("HcclRecv", (table.recv)(output, bytes as u64, bytes_of, peer, comm, stream))
                }
            }
        })
    }
}

/// Both sides of an all-to-all, which HCCL refuses when they have one address: memory without bytes has none here.
fn apart(input: (*const c_void, usize), output: (*mut c_void, usize)) -> (*const c_void, *mut c_void) {
    (if input.1 == 0 { ptr::null() } else { input.0 }, if output.1 == 0 { ptr::null_mut() } else { output.0 })
}

/// The place at which each part begins: parts follow each other.
fn starts(lengths: &[usize]) -> Vec<u64> {
    let next = |at: &mut u64, length: &usize| {
        let start = *at;
        *at += *length as u64;
        Some(start)
    };
    lengths.iter().scan(0, next).collect()
}

/// HCCL's number for an element type.
fn data_type(dtype: DType) -> Result<DataType> {
    Ok(match dtype {
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::U64 => DataType::Uint64,
        DType::F16 => DataType::Float16,
        DType::BF16 => DataType::Bfloat16,
        DType::F32 => DataType::Float32,
        DType::F64 => DataType::Float64,
        other => return Err(lacks::<Hccl>(&format!("reductions of {other}"))),
    })
}

fn reduction(op: NativeOp) -> Result<ReduceOp> {
    Ok(match op {
        NativeOp::Sum => ReduceOp::Sum,
        NativeOp::Prod => ReduceOp::Prod,
        NativeOp::Max => ReduceOp::Max,
        NativeOp::Min => ReduceOp::Min,
        NativeOp::Avg | NativeOp::PreMulSum(_) => return Err(lacks::<Hccl>(op.name())),
    })
}

/// The messages of a group, on one communicator and one stream.
struct Batch {
    items: Vec<SendRecvItem>,
    place: Option<(Handle, Handle)>,
}

thread_local! {
    /// The group that this thread has open.
    static BATCH: RefCell<Option<Batch>> = const { RefCell::new(None) };
}

impl Batch {
    /// Notes a message.
    fn add(&mut self, comm: Handle, call: &NativeCall<'_>, stream: Handle) -> Result<()> {
        if *self.place.get_or_insert((comm, stream)) != (comm, stream) {
            return Err(lacks::<Hccl>("groups on several communicators or streams"));
        }
        let (kind, buffer, bytes, remote_rank) = match *call {
            NativeCall::Send { input, bytes, peer } => (SendRecvKind::Send, input.cast_mut(), bytes, peer),
            NativeCall::Recv { output, bytes, peer } => (SendRecvKind::Recv, output, bytes, peer),
            _ => return Err(lacks::<Hccl>("collectives within groups")),
        };
        let (count, dtype) = (bytes as u64, DataType::Uint8);
        self.items.push(SendRecvItem { kind, buffer, count, dtype, remote_rank });
        Ok(())
    }
}

/// The messages in batches as HCCL takes them: at most one to each rank, and one from it. The second message of a pair
/// of ranks and a direction is in the second batch, and so on. Both ends count alike, so each message is in the batch
/// of one number on both, and no batch waits for a later one.
fn batches(items: Vec<SendRecvItem>) -> Vec<Vec<SendRecvItem>> {
    let (mut batches, mut counts) = (Vec::<Vec<SendRecvItem>>::new(), HashMap::new());
    for item in items {
        let earlier = counts.entry((item.kind, item.remote_rank)).or_insert(0);
        if *earlier == batches.len() {
            batches.push(Vec::new());
        }
        batches[*earlier].push(item);
        *earlier += 1;
    }
    batches
}

/// Notes the message in the group that this thread has open; `None` when there is no group. A call that fails ends the
/// group: none of its messages is sent.
fn note(comm: Handle, call: &NativeCall<'_>, stream: Handle) -> Option<Result<()>> {
    BATCH.with_borrow_mut(|open| {
        let noted = open.as_mut()?.add(comm, call, stream);
        if noted.is_err() {
            *open = None;
        }
        Some(noted)
    })
}

impl Vendor for Hccl {
    const BACKEND: &'static str = BACKEND;
    const BACKEND_INLINE: &'static str = "hccl without meeting";
    const ID_BYTES: usize = ROOT_INFO_BYTES;
    const EVENTS_TELL_ERRORS: bool = false;

    type Comm = HcclComm;

    fn version(&self) -> String {
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: it writes three numbers.
        let code = unsafe { (self.library.acl.get_version)(&mut major, &mut minor, &mut patch) };
        let mark = self.library.collectives.library.mark();
        match code {
            0 => format!("HCCL with ACL {major}.{minor}.{patch}{mark}"),
            _ => format!("HCCL{mark}"),
        }
    }

    fn capabilities(&self) -> Capabilities {
        let known = self.product.capabilities(ARITHMETIC);
        let Some(aclnn) = &self.library.aclnn else { return known };
        let known = known.scaling(&SCALABLE);
        if aclnn.pairs.is_some() { self.product.combining(known) } else { known }
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
        let (_current, mut id) = (self.device.enter()?, RootInfo { bytes: [0; ROOT_INFO_BYTES] });
        // SAFETY: it writes one struct.
        let code = unsafe { (self.library.management.get_root_info)(&mut id) };
        self.library.check("HcclGetRootInfo", code)?;
        Ok(id.bytes.to_vec())
    }

    /// Cannot be interrupted; HCCL gives up by itself after `HCCL_CONNECT_TIMEOUT`, 120 s unless it is set.
    fn init(
        &self,
        id: &[u8],
        rank: u32,
        ranks: u32,
        _: &dyn Fn() -> bool,
        _: &dyn Fn(&Error),
    ) -> Result<HcclComm> {
        let Ok(bytes) = id.try_into() else {
            return Err(Error::invalid("id", format!("{} bytes, not {ROOT_INFO_BYTES}", id.len())));
        };
        let (_current, root, mut handle) = (self.device.enter()?, RootInfo { bytes }, ptr::null_mut());
        // SAFETY: it reads the value that the group's first rank has from `HcclGetRootInfo`, and writes one handle.
        let code = unsafe { (self.library.management.comm_init_root_info)(ranks, &root, rank, &mut handle) };
        self.library.check("HcclCommInitRootInfo", code)?;
        Ok(HcclComm { handle })
    }

    fn destroy(&self, comm: &HcclComm) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: the handle is one of `init`, and nobody uses it any more.
        let code = unsafe { (self.library.management.comm_destroy)(comm.handle) };
        self.library.check("HcclCommDestroy", code)
    }

    fn late_error(&self, comm: &HcclComm) -> Result<()> {
        const CALL: &str = "HcclGetCommAsyncError";
        let Some(get) = self.library.management.get_comm_async_error.function else { return Ok(()) };
        let (_current, mut code) = (self.device.enter()?, 0);
        // SAFETY: the communicator lives; it writes one number.
        self.library.check(CALL, unsafe { get(comm.handle, &mut code) })?;
        self.library.check(CALL, code)
    }

    // SAFETY: the terms are the trait's.
    unsafe fn call(&self, comm: &HcclComm, call: &NativeCall<'_>, stream: RawStream) -> Result<()> {
        let stream = stream.as_pointer();
        if let Some(noted) = note(comm.handle, call, stream) {
            return noted;
        }
        let _current = self.device.enter()?;
        // SAFETY: the caller's.
        let (name, code) = unsafe { self.enqueue(comm.handle, call, stream) }?;
        self.library.check(name, code)
    }

    fn group_start(&self) -> Result<()> {
        BATCH.set(Some(Batch { items: Vec::new(), place: None }));
        Ok(())
    }

    /// Does nothing when a call of the group has failed: that has ended it.
    fn group_end(&self) -> Result<()> {
        let Some(Batch { items, place: Some((comm, stream)) }) = BATCH.take() else { return Ok(()) };
        let _current = self.device.enter()?;
        batches(items).iter_mut().try_for_each(|items| {
            // SAFETY: the terms of the calls that were noted; there are as many items as it says.
            let code = unsafe {
                let count = items.len() as u32;
                (self.library.collectives.batch_send_recv)(items.as_mut_ptr(), count, comm, stream)
            };
            self.library.check("HcclBatchSendRecv", code)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_one_message_of_a_pair_and_a_direction() {
        use SendRecvKind::{Recv, Send};
        let item = |(kind, remote_rank): (SendRecvKind, u32)| {
            let (buffer, count, dtype) = (ptr::null_mut(), 4, DataType::Uint8);
            SendRecvItem { kind, buffer, count, dtype, remote_rank }
        };
        let messages = [(Send, 1), (Recv, 1), (Send, 1), (Send, 2), (Recv, 2), (Send, 1), (Recv, 2)];
        let found = batches(messages.map(item).into());
        let pairs = |batch: &Vec<SendRecvItem>| {
            batch.iter().map(|item| (item.kind, item.remote_rank)).collect::<Vec<_>>()
        };
        assert_eq!(pairs(&found[0]), [(Send, 1), (Recv, 1), (Send, 2), (Recv, 2)]);
        assert_eq!(pairs(&found[1]), [(Send, 1), (Recv, 2)]);
        assert_eq!((pairs(&found[2]), found.len()), (vec![(Send, 1)], 3));
        assert!(batches(Vec::new()).is_empty());
    }

    #[test]
    fn parts_follow_each_other() {
        assert_eq!(starts(&[3, 0, 5]), [0, 3, 3]);
        assert!(starts(&[]).is_empty());
    }
}
