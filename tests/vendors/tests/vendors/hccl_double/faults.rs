//! What goes wrong in the double of HCCL, ACL and aclnn, and that it ends in a typed error. A function that hangs in a
//! call on memory of the device holds its caller: HCCL cannot abort. So hangs of functions are those of calls that the
//! communicator's thread makes, and of work on streams.

use unisono_tests::doubles::HcclDouble;
use unisono_tests::on_device::faults::{FaultKind, FaultTable, Way, every_fault_ends_in_a_typed_error};

use FaultKind::{Code, Hang, HangInStream, InStream};

/// Every code of `HcclResult`.
const CODES: &[FaultKind] = &[
    Code(1),
    Code(2),
    Code(3),
    Code(4),
    Code(5),
    Code(6),
    Code(7),
    Code(8),
    Code(9),
    Code(10),
    Code(11),
    Code(12),
    Code(13),
    Code(14),
    Code(15),
    Code(16),
    Code(17),
    Code(18),
    Code(19),
    Code(20),
    Code(21),
    Code(22),
    Code(23),
    Code(24),
    Code(1041),
];

/// Of functions that differ in nothing but their name.
const SOME: &[FaultKind] = &[Code(4), Code(9), Code(13), InStream(13), HangInStream];

const TABLE: FaultTable = FaultTable {
    rows: &[
        ("HcclAllReduce", CODES, &[Way::AllReduce]),
        ("HcclAllReduce", &[Code(1), Code(13), InStream(9)], &[Way::Inline]),
        ("HcclAllReduce", &[Code(4), Code(21), Hang, InStream(13), HangInStream], &[Way::Met]),
        ("HcclAllReduce", SOME, &[Way::AllReduce, Way::Scaled, Way::Averaged]),
        ("HcclReduce", SOME, &[Way::Reduce]),
        ("HcclReduceScatter", SOME, &[Way::ReduceScatter]),
        ("HcclBroadcast", SOME, &[Way::Broadcast]),
        ("HcclAllGather", SOME, &[Way::AllGather]),
        ("HcclAlltoAll", SOME, &[Way::AllToAll]),
        ("HcclAlltoAllV", SOME, &[Way::Gather, Way::Messages]),
        ("HcclScatter", SOME, &[Way::Scatter]),
        ("HcclBatchSendRecv", SOME, &[Way::ByName, Way::Exchange]),
        ("HcclBatchSendRecv", &[Hang], &[Way::MetByName]),
        ("HcclGetRootInfo", &[Code(11), Hang], &[Way::Make]),
        (
            "HcclCommInitRootInfo",
            &[Code(1), Code(9), Code(11), InStream(4), Hang, HangInStream],
            &[Way::Make],
        ),
        ("aclnnMulsGetWorkspaceSize", &[Code(161_002)], &[Way::Scaled]),
        ("aclnnMuls", &[Code(361_001), InStream(507_899), HangInStream], &[Way::Scaled]),
        ("aclnnDivs", &[Code(361_001), HangInStream], &[Way::Averaged]),
        ("aclrtGetCurrentContext", &[Code(107_001)], &[Way::Inline, Way::Met, Way::Make]),
        ("aclrtStreamQuery", &[Code(507_899)], &[Way::AllReduce]),
        ("aclmdlRICaptureGetInfo", &[Code(207_000)], &[Way::AllReduce]),
        ("aclrtCreateStream", &[Code(207_001)], &[Way::Inline, Way::Met]),
        ("aclrtMalloc", &[Code(207_001)], &[Way::Inline, Way::Met]),
        ("aclrtMemcpyAsync", &[Code(507_899), InStream(507_899)], &[Way::Inline, Way::Met]),
        ("aclrtMemcpyAsync", &[Hang, HangInStream], &[Way::Met]),
        ("aclrtSynchronizeStream", &[Hang], &[Way::Met]),
        ("aclrtCreateEvent", &[Code(207_000)], &[Way::AllReduce]),
        ("aclrtRecordEvent", &[Code(107_000)], &[Way::AllReduce, Way::Inline]),
        ("aclrtQueryEventStatus", &[Code(507_000)], &[Way::AllReduce, Way::Inline, Way::Met]),
    ],
    first: &["aclrtCreateStream", "aclrtMalloc", "aclrtCreateEvent"],
    checks: &["aclrtStreamQuery", "aclmdlRICaptureGetInfo"],
    alone: &["HcclGetRootInfo"],
    behind: &[],
    harmless: &[],
    tells_codes: false,
};

#[test]
fn no_row_is_lost() {
    assert_eq!(TABLE.count(), 135);
}

#[test]
fn every_fault_ends_in_a_typed_error_with_the_test_double() {
    let test = "hccl_double::faults::every_fault_ends_in_a_typed_error_with_the_test_double";
    every_fault_ends_in_a_typed_error::<HcclDouble>(&TABLE, test);
}
