//! What goes wrong in the double of NCCL and of the driver, and that it ends in a typed error. Functions whose hang
//! holds their caller are not in the table: on memory of the device, `ncclGroupStart`, which takes no communicator that
//! could be aborted, and functions of the driver, such as `cuEventRecord` and `cuEventQuery`.

use unisono_tests::doubles::NcclDouble;
use unisono_tests::on_device::faults::{FaultKind, FaultTable, Way, every_fault_ends_in_a_typed_error};

use FaultKind::{Code, Hang, HangInStream, InStream};

/// Of NCCL's functions of calls: every code of 2.19, and 8, which is newer. 7 says that a call is under way, so it is
/// no fault there.
const CALL: &[FaultKind] = &[Code(1), Code(2), Code(3), Code(4), Code(5), Code(6), Code(8), Hang];

/// Of those that give work to a stream: that of the work too.
const WORK: &[FaultKind] = &[
    Code(1),
    Code(2),
    Code(3),
    Code(4),
    Code(5),
    Code(6),
    Code(8),
    Hang,
    InStream(6),
    InStream(3),
    HangInStream,
];

const ABORT: &str = "ncclCommAbort";
const DESTROY: &str = "ncclCommDestroy";
const ASYNC_ERROR: &str = "ncclCommGetAsyncError";

const TABLE: FaultTable = FaultTable {
    rows: &[
        ("ncclAllReduce", WORK, &[Way::Met, Way::AllReduce]),
        ("ncclAllReduce", &[Code(3), InStream(6)], &[Way::Inline]),
        ("ncclReduce", WORK, &[Way::Reduce]),
        ("ncclReduceScatter", WORK, &[Way::ReduceScatter]),
        ("ncclBroadcast", WORK, &[Way::Broadcast]),
        ("ncclAllGather", WORK, &[Way::AllGather]),
        ("ncclAlltoAll", WORK, &[Way::AllToAll]),
        ("ncclGather", WORK, &[Way::Gather]),
        ("ncclScatter", WORK, &[Way::Scatter]),
        ("ncclSend", WORK, &[Way::Messages]),
        ("ncclRecv", WORK, &[Way::Messages]),
        ("ncclSend", &[Code(5), Hang, InStream(6), HangInStream], &[Way::ByName, Way::MetByName]),
        ("ncclRecv", &[Code(3), Hang], &[Way::ByName, Way::MetByName]),
        ("ncclGroupEnd", &[Code(6), Hang], &[Way::ByName, Way::MetByName]),
        ("ncclSend", &[Code(5), Hang, InStream(6), HangInStream], &[Way::Exchange]),
        ("ncclRecv", &[Code(3), Hang, InStream(6), HangInStream], &[Way::Exchange]),
        ("ncclGroupStart", &[Code(3)], &[Way::Exchange]),
        ("ncclGroupEnd", &[Code(3), Hang], &[Way::Exchange]),
        ("ncclRedOpCreatePreMulSum", CALL, &[Way::Scaled]),
        // Nothing is under way after 7.
        ("ncclRedOpCreatePreMulSum", &[Code(7)], &[Way::Scaled]),
        ("ncclRedOpDestroy", &[Code(4), Code(7), Hang], &[Way::Scaled]),
        ("ncclGroupStart", &[Code(3), Code(7)], &[Way::Messages]),
        ("ncclGroupStart", &[Hang], &[Way::MetByName]),
        ("ncclGroupEnd", &[Code(3), Code(6), Hang], &[Way::Messages]),
        ("ncclGetUniqueId", &[Code(2), Code(7), Hang], &[Way::Make]),
        ("ncclCommInitRankConfig", &[Code(1), Code(5), Code(6), InStream(2), HangInStream], &[Way::Make]),
        (ASYNC_ERROR, &[Code(3), Code(7), Hang], &[Way::Make]),
        (ASYNC_ERROR, &[Hang], &[Way::AllReduce, Way::Met]),
        ("cuCtxPushCurrent_v2", &[Code(201)], &[Way::Inline, Way::Met, Way::Make]),
        ("cuThreadExchangeStreamCaptureMode", &[Code(1)], &[Way::Inline, Way::Met, Way::Make]),
        ("cuStreamIsCapturing", &[Code(400)], &[Way::AllReduce]),
        ("cuStreamGetCtx", &[Code(400)], &[Way::AllReduce]),
        ("cuStreamCreate", &[Code(2)], &[Way::Inline, Way::Met]),
        ("cuMemAlloc_v2", &[Code(2)], &[Way::Inline, Way::Met]),
        ("cuMemcpyHtoDAsync_v2", &[Code(719)], &[Way::Inline, Way::Met]),
        ("cuMemcpyHtoDAsync_v2", &[Hang], &[Way::Met]),
        ("cuMemcpyDtoHAsync_v2", &[Code(719)], &[Way::Inline, Way::Met]),
        ("cuMemcpyDtoHAsync_v2", &[Hang], &[Way::Met]),
        ("cuEventCreate", &[Code(2)], &[Way::AllReduce]),
        ("cuEventRecord", &[Code(400)], &[Way::AllReduce]),
        ("cuEventRecord", &[Hang], &[Way::Met]),
        ("cuEventQuery", &[Code(719)], &[Way::AllReduce]),
        ("cuEventQuery", &[Hang], &[Way::Met]),
        (ABORT, &[Code(3), Hang], &[Way::Met]),
        (DESTROY, &[Code(1), Code(7), Hang], &[Way::Make]),
    ],
    first: &["cuStreamCreate", "cuMemAlloc_v2", "cuEventCreate"],
    checks: &["cuStreamIsCapturing", "cuStreamGetCtx"],
    alone: &["ncclGetUniqueId"],
    behind: &[
        (ABORT, Way::Met, "ncclAllReduce"),
        (ASYNC_ERROR, Way::AllReduce, "ncclAllReduce"),
        (ASYNC_ERROR, Way::Met, "ncclAllReduce"),
    ],
    harmless: &[DESTROY],
    tells_codes: true,
};

#[test]
fn no_row_is_lost() {
    assert_eq!(TABLE.count(), 209);
}

#[test]
fn every_fault_ends_in_a_typed_error_with_the_test_double() {
    let test = "nccl_double::faults::every_fault_ends_in_a_typed_error_with_the_test_double";
    every_fault_ends_in_a_typed_error::<NcclDouble>(&TABLE, test);
}
