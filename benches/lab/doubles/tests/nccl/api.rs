//! The library, opened as programs open it.

#![expect(unsafe_code, reason = "memory of the double's devices, by its address")]

use std::ffi::{CStr, c_char};
use std::time::Duration;

use unisono_double_common::control::Control;
use unisono_double_common::memory::Part;
use unisono_double_common::{file, functions};

/// `ncclUniqueId`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct UniqueId(pub(crate) [u8; 128]);

/// `ncclConfig_t` of 2.18.
#[repr(C)]
pub(crate) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: i32,
    rest: [i32; 3],
    net_name: usize,
    split_share: i32,
}

impl Config {
    pub(crate) const fn new(blocking: i32) -> Config {
        let (magic, version) = (0xcafe_beef, 21800);
        let rest = [i32::MIN; 3];
        Config {
            size: size_of::<Config>(),
            magic,
            version,
            blocking,
            rest,
            net_name: 0,
            split_share: i32::MIN,
        }
    }

    pub(crate) const fn with_magic(magic: u32) -> Config {
        Config { magic, ..Config::new(1) }
    }
}

/// A copy of the library, which shares nothing with others.
pub(crate) struct Api {
    pub(crate) control: Control,
}

/// How long a test may take.
const LIMIT: Duration = Duration::from_secs(60);

functions! {
    Api;
    init: "cuInit"(flags: u32) -> i32;
    device_count: "cuDeviceGetCount"(count: &mut i32) -> i32;
    device_name: "cuDeviceGetName"(name: *mut u8, bytes: i32, device: i32) -> i32;
    retain: "cuDevicePrimaryCtxRetain"(context: &mut usize, device: i32) -> i32;
    release: "cuDevicePrimaryCtxRelease_v2"(device: i32) -> i32;
    push: "cuCtxPushCurrent_v2"(context: usize) -> i32;
    pop: "cuCtxPopCurrent_v2"(context: &mut usize) -> i32;
    set_current: "cuCtxSetCurrent"(context: usize) -> i32;
    get_current: "cuCtxGetCurrent"(context: &mut usize) -> i32;
    memory_info: "cuMemGetInfo_v2"(free: &mut usize, total: &mut usize) -> i32;
    allocate: "cuMemAlloc_v2"(address: &mut usize, bytes: usize) -> i32;
    free: "cuMemFree_v2"(address: usize) -> i32;
    pointer_attributes: "cuPointerGetAttributes"(
        count: u32, attributes: &[i32; 2], values: &[*mut i32; 2], address: usize,
    ) -> i32;
    write: "cuMemcpyHtoDAsync_v2"(to: usize, from: *const u8, bytes: usize, stream: usize) -> i32;
    read: "cuMemcpyDtoHAsync_v2"(to: *mut u8, from: usize, bytes: usize, stream: usize) -> i32;
    copy: "cuMemcpyDtoDAsync_v2"(to: usize, from: usize, bytes: usize, stream: usize) -> i32;
    fill: "cuMemsetD32Async"(to: usize, word: u32, words: usize, stream: usize) -> i32;
    stream_create: "cuStreamCreate"(stream: &mut usize, flags: u32) -> i32;
    stream_synchronize: "cuStreamSynchronize"(stream: usize) -> i32;
    stream_query: "cuStreamQuery"(stream: usize) -> i32;
    stream_destroy: "cuStreamDestroy_v2"(stream: usize) -> i32;
    stream_wait: "cuStreamWaitEvent"(stream: usize, event: usize, flags: u32) -> i32;
    stream_context: "cuStreamGetCtx"(stream: usize, context: &mut usize) -> i32;
    is_capturing: "cuStreamIsCapturing"(stream: usize, status: &mut i32) -> i32;
    begin_capture: "cuStreamBeginCapture_v2"(stream: usize, mode: i32) -> i32;
    end_capture: "cuStreamEndCapture"(stream: usize, graph: &mut usize) -> i32;
    exchange_capture_mode: "cuThreadExchangeStreamCaptureMode"(mode: &mut i32) -> i32;
    graph_destroy: "cuGraphDestroy"(graph: usize) -> i32;
    event_create: "cuEventCreate"(event: &mut usize, flags: u32) -> i32;
    event_record: "cuEventRecord"(event: usize, stream: usize) -> i32;
    event_query: "cuEventQuery"(event: usize) -> i32;
    event_synchronize: "cuEventSynchronize"(event: usize) -> i32;
    event_elapsed: "cuEventElapsedTime"(milliseconds: &mut f32, start: usize, end: usize) -> i32;
    event_destroy: "cuEventDestroy_v2"(event: usize) -> i32;
    module_load: "cuModuleLoadData"(module: &mut usize, image: *const u8) -> i32;
    launch: "cuLaunchKernel"(
        function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared_bytes: u32, stream: usize, arguments: usize, extra: usize
    ) -> i32;
    version: "ncclGetVersion"(version: &mut i32) -> i32;
    unique_id: "ncclGetUniqueId"(id: &mut UniqueId) -> i32;
    error_string: "ncclGetErrorString"(code: i32) -> *const c_char;
    last_error: "ncclGetLastError"(comm: usize) -> *const c_char;
    async_error: "ncclCommGetAsyncError"(comm: usize, code: &mut i32) -> i32;
    init_rank: "ncclCommInitRank"(comm: &mut usize, size: i32, id: UniqueId, rank: i32) -> i32;
    init_rank_config: "ncclCommInitRankConfig"(
        comm: &mut usize, size: i32, id: UniqueId, rank: i32, config: &Config
    ) -> i32;
    init_all: "ncclCommInitAll"(comms: *mut usize, devices: i32, list: *const i32) -> i32;
    split: "ncclCommSplit"(comm: usize, color: i32, key: i32, child: &mut usize, config: *const Config) -> i32;
    shrink: "ncclCommShrink"(
        comm: usize, excluded: *const i32, count: i32, child: &mut usize, config: *const Config, flags: i32
    ) -> i32;
    finalize: "ncclCommFinalize"(comm: usize) -> i32;
    destroy: "ncclCommDestroy"(comm: usize) -> i32;
    abort: "ncclCommAbort"(comm: usize) -> i32;
    count: "ncclCommCount"(comm: usize, count: &mut i32) -> i32;
    user_rank: "ncclCommUserRank"(comm: usize, rank: &mut i32) -> i32;
    device_of: "ncclCommCuDevice"(comm: usize, device: &mut i32) -> i32;
    register: "ncclCommRegister"(comm: usize, address: usize, bytes: usize, handle: &mut usize) -> i32;
    deregister: "ncclCommDeregister"(comm: usize, handle: usize) -> i32;
    mem_alloc: "ncclMemAlloc"(address: &mut usize, bytes: usize) -> i32;
    mem_free: "ncclMemFree"(address: usize) -> i32;
    create_operator: "ncclRedOpCreatePreMulSum"(
        op: &mut i32, scalar: *const u8, dtype: i32, residence: i32, comm: usize
    ) -> i32;
    destroy_operator: "ncclRedOpDestroy"(op: i32, comm: usize) -> i32;
    all_reduce: "ncclAllReduce"(
        send: usize, recv: usize, count: usize, dtype: i32, op: i32, comm: usize, stream: usize
    ) -> i32;
    broadcast: "ncclBroadcast"(
        send: usize, recv: usize, count: usize, dtype: i32, root: i32, comm: usize, stream: usize
    ) -> i32;
    reduce: "ncclReduce"(
        send: usize, recv: usize, count: usize, dtype: i32, op: i32, root: i32, comm: usize, stream: usize
    ) -> i32;
    all_gather: "ncclAllGather"(
        send: usize, recv: usize, count: usize, dtype: i32, comm: usize, stream: usize
    ) -> i32;
    reduce_scatter: "ncclReduceScatter"(
        send: usize, recv: usize, count: usize, dtype: i32, op: i32, comm: usize, stream: usize
    ) -> i32;
    all_to_all: "ncclAlltoAll"(
        send: usize, recv: usize, count: usize, dtype: i32, comm: usize, stream: usize
    ) -> i32;
    gather: "ncclGather"(
        send: usize, recv: usize, count: usize, dtype: i32, root: i32, comm: usize, stream: usize
    ) -> i32;
    scatter: "ncclScatter"(
        send: usize, recv: usize, count: usize, dtype: i32, root: i32, comm: usize, stream: usize
    ) -> i32;
    send: "ncclSend"(send: usize, count: usize, dtype: i32, peer: i32, comm: usize, stream: usize) -> i32;
    recv: "ncclRecv"(recv: usize, count: usize, dtype: i32, peer: i32, comm: usize, stream: usize) -> i32;
    group_start: "ncclGroupStart"() -> i32;
    group_end: "ncclGroupEnd"() -> i32;
}

impl Api {
    /// A copy with these settings.
    pub(crate) fn open(settings: &str) -> Api {
        Api::without(settings, &[])
    }

    /// A copy that lacks some functions.
    pub(crate) fn without(settings: &str, without: &[&str]) -> Api {
        let library = file::library("unisono_double_nccl").unwrap();
        let control = Control::open_copy(&library, settings, without).unwrap();
        control.watch(settings, LIMIT);
        let api = Api { control };
        assert_eq!(api.init(0), 0);
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

    /// Writes past the rules of the library.
    pub(crate) fn poke(&self, address: usize, byte: u8) {
        // SAFETY: the guards of an allocation are memory, too.
        unsafe { (address as *mut u8).write(byte) };
    }
}
