//! The library, opened as programs open it, and ranks as threads.

#![expect(unsafe_code, reason = "memory of the double's devices, by its address")]

use std::ffi::{CStr, c_char};
use std::thread;
use std::time::{Duration, Instant};

use unisono_double_common::control::Control;
use unisono_double_common::memory::Part;
use unisono_double_common::{file, functions};

/// `HcclRootInfo`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RootInfo(pub(crate) [u8; 4108]);

/// `HcclCommConfig` of torch_npu's header: what it begins with, and the rest.
#[repr(C)]
pub(crate) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    rest: [u8; 2216],
}

impl Config {
    pub(crate) const fn new(magic: u32) -> Config {
        Config { size: 2232, magic, version: 10, rest: [0; 2216] }
    }
}

/// `HcclSendRecvItem`.
#[repr(C)]
pub(crate) struct Item {
    pub(crate) kind: i32,
    pub(crate) buffer: usize,
    pub(crate) count: u64,
    pub(crate) dtype: i32,
    pub(crate) peer: u32,
}

/// A copy of the library, which shares nothing with others.
pub(crate) struct Api {
    pub(crate) control: Control,
}

functions! {
    Api;
    init: "aclInit"(config: *const c_char) -> i32;
    finalize: "aclFinalize"() -> i32;
    device_count: "aclrtGetDeviceCount"(count: &mut u32) -> i32;
    set_device: "aclrtSetDevice"(device: i32) -> i32;
    reset_device: "aclrtResetDevice"(device: i32) -> i32;
    product: "aclrtGetSocName"() -> *const c_char;
    allocate: "aclrtMalloc"(address: &mut usize, bytes: usize, policy: i32) -> i32;
    free: "aclrtFree"(address: usize) -> i32;
    allocate_host: "aclrtMallocHost"(address: &mut usize, bytes: usize) -> i32;
    free_host: "aclrtFreeHost"(address: usize) -> i32;
    copy: "aclrtMemcpy"(to: usize, room: usize, from: usize, bytes: usize, kind: i32) -> i32;
    copy_async: "aclrtMemcpyAsync"(
        to: usize, room: usize, from: usize, bytes: usize, kind: i32, stream: usize
    ) -> i32;
    fill: "aclrtMemset"(to: usize, room: usize, byte: i32, count: usize) -> i32;
    stream_create: "aclrtCreateStream"(stream: &mut usize) -> i32;
    stream_destroy: "aclrtDestroyStream"(stream: usize) -> i32;
    synchronize: "aclrtSynchronizeStream"(stream: usize) -> i32;
    synchronize_for: "aclrtSynchronizeStreamWithTimeout"(stream: usize, milliseconds: i32) -> i32;
    stream_query: "aclrtStreamQuery"(stream: usize, status: &mut u32) -> i32;
    stream_wait: "aclrtStreamWaitEvent"(stream: usize, event: usize) -> i32;
    event_create: "aclrtCreateEvent"(event: &mut usize) -> i32;
    event_record: "aclrtRecordEvent"(event: usize, stream: usize) -> i32;
    event_query: "aclrtQueryEventStatus"(event: usize, status: &mut i32) -> i32;
    event_synchronize: "aclrtSynchronizeEvent"(event: usize) -> i32;
    event_destroy: "aclrtDestroyEvent"(event: usize) -> i32;
    root_info: "HcclGetRootInfo"(info: &mut RootInfo) -> i32;
    init_rank: "HcclCommInitRootInfo"(size: u32, info: *const RootInfo, rank: u32, comm: &mut usize) -> i32;
    init_rank_config: "HcclCommInitRootInfoConfig"(
        size: u32, info: *const RootInfo, rank: u32, config: *const Config, comm: &mut usize
    ) -> i32;
    sub_comm: "HcclCreateSubCommConfig"(
        comm: *const usize, size: u32, ranks: *const u32, id: u64, rank: u32, config: *const Config,
        child: &mut usize
    ) -> i32;
    destroy: "HcclCommDestroy"(comm: usize) -> i32;
    rank_size: "HcclGetRankSize"(comm: usize, size: &mut u32) -> i32;
    rank_id: "HcclGetRankId"(comm: usize, rank: &mut u32) -> i32;
    comm_name: "HcclGetCommName"(comm: usize, name: *mut u8) -> i32;
    async_error: "HcclGetCommAsyncError"(comm: usize, code: &mut i32) -> i32;
    error_string: "HcclGetErrorString"(code: i32) -> *const c_char;
    barrier: "HcclBarrier"(comm: usize, stream: usize) -> i32;
    all_reduce: "HcclAllReduce"(
        send: usize, recv: usize, count: u64, dtype: i32, op: i32, comm: usize, stream: usize
    ) -> i32;
    broadcast: "HcclBroadcast"(
        buffer: usize, count: u64, dtype: i32, root: u32, comm: usize, stream: usize
    ) -> i32;
    reduce: "HcclReduce"(
        send: usize, recv: usize, count: u64, dtype: i32, op: i32, root: u32, comm: usize, stream: usize
    ) -> i32;
    reduce_scatter: "HcclReduceScatter"(
        send: usize, recv: usize, count: u64, dtype: i32, op: i32, comm: usize, stream: usize
    ) -> i32;
    reduce_scatter_v: "HcclReduceScatterV"(
        send: usize, counts: *const u64, displacements: *const u64, recv: usize, count: u64, dtype: i32, op: i32,
        comm: usize, stream: usize
    ) -> i32;
    scatter: "HcclScatter"(
        send: usize, recv: usize, count: u64, dtype: i32, root: u32, comm: usize, stream: usize
    ) -> i32;
    all_gather: "HcclAllGather"(
        send: usize, recv: usize, count: u64, dtype: i32, comm: usize, stream: usize
    ) -> i32;
    all_gather_v: "HcclAllGatherV"(
        send: usize, count: u64, recv: usize, counts: *const u64, displacements: *const u64, dtype: i32,
        comm: usize, stream: usize
    ) -> i32;
    all_to_all: "HcclAlltoAll"(
        send: usize, send_count: u64, send_type: i32, recv: usize, recv_count: u64, recv_type: i32, comm: usize,
        stream: usize
    ) -> i32;
    all_to_all_v: "HcclAlltoAllV"(
        send: usize, send_counts: *const u64, send_displacements: *const u64, send_type: i32, recv: usize,
        recv_counts: *const u64, recv_displacements: *const u64, recv_type: i32, comm: usize, stream: usize
    ) -> i32;
    all_to_all_vc: "HcclAlltoAllVC"(
        send: usize, matrix: *const u64, send_type: i32, recv: usize, recv_type: i32, comm: usize, stream: usize
    ) -> i32;
    send: "HcclSend"(buffer: usize, count: u64, dtype: i32, peer: u32, comm: usize, stream: usize) -> i32;
    recv: "HcclRecv"(buffer: usize, count: u64, dtype: i32, peer: u32, comm: usize, stream: usize) -> i32;
    batch: "HcclBatchSendRecv"(items: *const Item, count: u32, comm: usize, stream: usize) -> i32;
    create_tensor: "aclCreateTensor"(
        shape: *const i64, dims: u64, dtype: i32, strides: *const i64, offset: i64, format: i32,
        storage: *const i64, storage_dims: u64, data: usize
    ) -> usize;
    destroy_tensor: "aclDestroyTensor"(tensor: usize) -> i32;
    create_scalar: "aclCreateScalar"(value: *const f32, dtype: i32) -> usize;
    destroy_scalar: "aclDestroyScalar"(scalar: usize) -> i32;
    plan_muls: "aclnnMulsGetWorkspaceSize"(
        input: usize, factor: usize, output: usize, workspace: &mut u64, executor: &mut usize
    ) -> i32;
    muls: "aclnnMuls"(workspace: usize, bytes: u64, executor: usize, stream: usize) -> i32;
    plan_divs: "aclnnDivsGetWorkspaceSize"(
        input: usize, divisor: usize, output: usize, workspace: &mut u64, executor: &mut usize
    ) -> i32;
    divs: "aclnnDivs"(workspace: usize, bytes: u64, executor: usize, stream: usize) -> i32;
    plan_add: "aclnnAddGetWorkspaceSize"(
        left: usize, right: usize, alpha: usize, output: usize, workspace: &mut u64, executor: &mut usize
    ) -> i32;
    add: "aclnnAdd"(workspace: usize, bytes: u64, executor: usize, stream: usize) -> i32;
    plan_mul: "aclnnMulGetWorkspaceSize"(
        left: usize, right: usize, output: usize, workspace: &mut u64, executor: &mut usize
    ) -> i32;
    mul: "aclnnMul"(workspace: usize, bytes: u64, executor: usize, stream: usize) -> i32;
    plan_maximum: "aclnnMaximumGetWorkspaceSize"(
        left: usize, right: usize, output: usize, workspace: &mut u64, executor: &mut usize
    ) -> i32;
    maximum: "aclnnMaximum"(workspace: usize, bytes: u64, executor: usize, stream: usize) -> i32;
    plan_minimum: "aclnnMinimumGetWorkspaceSize"(
        left: usize, right: usize, output: usize, workspace: &mut u64, executor: &mut usize
    ) -> i32;
    minimum: "aclnnMinimum"(workspace: usize, bytes: u64, executor: usize, stream: usize) -> i32;
    plan_norm: "aclnnNormGetWorkspaceSize"(
        input: usize, p: usize, dims: usize, keep_dims: bool, output: usize, workspace: &mut u64,
        executor: &mut usize
    ) -> i32;
    norm: "aclnnNorm"(workspace: usize, bytes: u64, executor: usize, stream: usize) -> i32;
    plan_pack: "aclnnSignBitsPackGetWorkspaceSize"(
        input: usize, size: i64, output: usize, workspace: &mut u64, executor: &mut usize
    ) -> i32;
    pack: "aclnnSignBitsPack"(workspace: usize, bytes: u64, executor: usize, stream: usize) -> i32;
    plan_unpack: "aclnnSignBitsUnpackGetWorkspaceSize"(
        input: usize, size: i64, dtype: i32, output: usize, workspace: &mut u64, executor: &mut usize
    ) -> i32;
    unpack: "aclnnSignBitsUnpack"(workspace: usize, bytes: u64, executor: usize, stream: usize) -> i32;
}

/// How long a test may take.
const LIMIT: Duration = Duration::from_secs(60);

impl Api {
    pub(crate) fn open(settings: &str) -> Api {
        let library = file::library("unisono_double_hccl").unwrap();
        let control = Control::open_copy(&library, settings, &[]).unwrap();
        control.watch(settings, LIMIT);
        let api = Api { control };
        assert_eq!(api.init(std::ptr::null()), 0);
        api
    }

    pub(crate) fn text(&self, text: *const c_char) -> String {
        // SAFETY: it is a string of the library's, which lives for ever.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
    }

    /// What lies in a device's memory now, without a wait for any stream.
    pub(crate) fn peek(&self, part: Part) -> Vec<u8> {
        // SAFETY: tests peek only while the streams are held.
        unsafe { std::slice::from_raw_parts(part.address as *const u8, part.bytes) }.to_vec()
    }

    pub(crate) fn new_root(&self) -> RootInfo {
        let mut info = RootInfo([0; 4108]);
        assert_eq!(self.set_device(0), 0);
        assert_eq!(self.root_info(&mut info), 0);
        info
    }
}

/// INT32 and FP32.
pub(crate) const I32: i32 = 2;
pub(crate) const F32: i32 = 4;
pub(crate) const SUM: i32 = 0;
pub(crate) const TO_DEVICE: i32 = 1;
pub(crate) const TO_HOST: i32 = 2;

/// One rank.
#[derive(Clone, Copy)]
pub(crate) struct Rank<'a> {
    pub(crate) api: &'a Api,
    pub(crate) rank: usize,
    pub(crate) comm: usize,
    pub(crate) stream: usize,
}

/// Waits until something holds.
pub(crate) fn await_that(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT / 2, "{what} does not come");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs ranks, whose results are in order. They destroy their communicators themselves.
pub(crate) fn run<R: Send>(api: &Api, size: usize, body: impl Fn(Rank<'_>) -> R + Sync) -> Vec<R> {
    let info = api.new_root();
    let body = &body;
    thread::scope(|scope| {
        let one = |rank: usize| {
            assert_eq!(api.set_device(rank as i32), 0);
            let mut own = Rank { api, rank, comm: 0, stream: 0 };
            assert_eq!(api.init_rank(size as u32, &info, rank as u32, &mut own.comm), 0);
            assert_eq!(api.stream_create(&mut own.stream), 0);
            let result = body(own);
            assert_eq!(api.stream_destroy(own.stream), 0);
            result
        };
        let ranks: Vec<_> = (0..size).map(|rank| scope.spawn(move || one(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// The same, and each destroys its communicator.
pub(crate) fn run_well<R: Send>(api: &Api, size: usize, body: impl Fn(Rank<'_>) -> R + Sync) -> Vec<R> {
    let results = run(api, size, |rank| {
        let result = body(rank);
        assert_eq!(api.destroy(rank.comm), 0);
        result
    });
    assert_eq!((api.control.live_handles(), api.control.misuses()), (0, 0));
    results
}

impl Rank<'_> {
    pub(crate) fn room(&self, bytes: usize) -> usize {
        let mut address = 0;
        assert_eq!(self.api.allocate(&mut address, bytes, 0), 0);
        address
    }

    pub(crate) fn put(&self, bytes: &[u8]) -> usize {
        let address = self.room(bytes.len());
        let from = bytes.as_ptr() as usize;
        assert_eq!(self.api.copy(address, bytes.len(), from, bytes.len(), TO_DEVICE), 0);
        address
    }

    /// Waits for the stream, and takes the bytes away.
    pub(crate) fn take(&self, address: usize, bytes: usize) -> Vec<u8> {
        assert_eq!(self.api.synchronize(self.stream), 0);
        let mut result = vec![0; bytes];
        assert_eq!(self.api.copy(result.as_mut_ptr() as usize, bytes, address, bytes, TO_HOST), 0);
        assert_eq!(self.api.free(address), 0);
        result
    }

    pub(crate) fn put_numbers(&self, numbers: &[i32]) -> usize {
        self.put(&numbers.iter().flat_map(|one| one.to_le_bytes()).collect::<Vec<_>>())
    }

    pub(crate) fn take_numbers(&self, address: usize, count: usize) -> Vec<i32> {
        let bytes = self.take(address, 4 * count);
        bytes.as_chunks().0.iter().map(|word| i32::from_le_bytes(*word)).collect()
    }

    pub(crate) fn error(&self) -> i32 {
        let mut code = -1;
        assert_eq!(self.api.async_error(self.comm, &mut code), 0);
        code
    }
}
