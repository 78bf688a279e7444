//! The table of settings: the rows that the parts of this build bring, and two lists of names that are no rows.

use unisono_communicator::settings::{HOW_CALLS_ARE_DONE, Knob, KnobGroup, knob};

/// All settings of a program, in groups; vendors' settings in builds that have the vendor.
///
/// The four of placement are also found under the names that launchers set.
pub const GROUPS: &[KnobGroup] = &{
    let [says, deadlines, placement, meeting, calls, sockets] = unisono_job::settings::GROUPS;
    [
        says,
        deadlines,
        placement,
        meeting,
        SELECTION,
        #[cfg(feature = "ccl")]
        unisono_offload_ccl::SETTINGS,
        #[cfg(feature = "nccl")]
        unisono_offload_nccl::SETTINGS,
        #[cfg(feature = "hccl")]
        unisono_offload_hccl::SETTINGS,
        #[cfg(feature = "offload")]
        unisono_offload::SETTINGS,
        calls,
        sockets,
    ]
};

/// The choice of a backend.
#[rustfmt::skip]
const SELECTION: KnobGroup = KnobGroup { title: HOW_CALLS_ARE_DONE, knobs: &[
    knob("UNISONO_BACKEND", "auto, tcp, ccl, nccl or hccl", "auto", &[],
        "who does the collectives; tcp: unisono itself, ccl: Intel's oneCCL, nccl: NVIDIA's NCCL, hccl: Huawei's \
         HCCL, auto: nccl where every rank has it and a device, else tcp, without any network in a process that is \
         alone; see docs/backends.md"),
] };

/// The settings that only unisono's own tests and benches read.
#[rustfmt::skip]
pub(super) const DEVELOPER_KNOBS: KnobGroup = KnobGroup { title: "For developers of unisono", knobs: &[
    knob("UNISONO_REQUIRE", "list", "", &[],
        "what this machine must have, with commas, such as namespaces: tests for want of it fail instead of being \
         left out"),
    knob("UNISONO_TEST_SEED", "number", "", &[], "repeats a randomised test with this seed"),
    knob("UNISONO_TEST_ADAPTER", "name", "", &[], "the adapter that tests of kernels in WGSL use, such as a GPU's"),
    knob("UNISONO_TEST_CASES", "number", "", &[], "how many cases or seeds a randomised test runs"),
    knob("UNISONO_TEST_ROUNDS", "number", "", &[], "how often the tests of endings run each job"),
    knob("UNISONO_TEST_CALLS", "path", "", &[], "the folder in which the suite lists the kinds of its calls"),
    knob("UNISONO_PEERS", "path", "target/peers", &[], "where cargo xtask compare builds the other libraries"),
    knob("UNISONO_ROWS", "paths", "", &[],
        "with colons, files of rows of the bench, for the test that compares them with predictions"),
    knob("UNISONO_DOUBLE_DEVICES", "number", "8", &[],
        "how many devices the test doubles of vendors' libraries have; tests/doubles/common/src/settings.rs has more"),
    knob("UNISONO_DOUBLE_PRODUCT", "910b, 950, 910 or 310p", "910b", &[],
        "which of Huawei's products the test double of HCCL is"),
    knob("UNISONO_DOUBLE_VERSION", "number", "", &[],
        "what the test doubles of vendors' libraries call their version; the newest unless it is set"),
    knob("UNISONO_DOUBLE_CONNECT", "early or late", "early", &[],
        "test doubles of vendors' libraries: late when ranks connect in their first call"),
    knob("UNISONO_DOUBLE_MEET", "ms", "0", &[],
        "test doubles of vendors' libraries: how long a thread in a communicator waits for another one to come"),
    knob("UNISONO_DOUBLE_MEET_ON_DEVICE", "ms", "0", &[],
        "the same, for a thread with another communicator of the device"),
    knob("UNISONO_DOUBLE_KERNELS", "path", "", &[],
        "a test double of a driver: the library of kernels for the host that it runs"),
    knob("UNISONO_DOUBLE_INJECT", "list", "", &[],
        "what goes wrong in the test doubles of vendors' libraries; see tests/doubles/common/src/fault.rs"),
] };

/// Names that settings had before, and their names now.
pub(super) const FORMER_NAMES: &[(&str, &str)] = &[("UNISONO_PRICES", "UNISONO_COST_MODEL")];

/// The settings of vendors' libraries: a build without a library knows only their names.
pub(super) const OF_VENDORS: [&str; 7] = [
    "UNISONO_CCL_DIR",
    "UNISONO_NCCL_LIB",
    "UNISONO_CUDA_LIB",
    "UNISONO_NVRTC_LIB",
    "UNISONO_HCCL_DIR",
    "UNISONO_DEVICE",
    "UNISONO_HOST_MEMORY",
];

/// All settings of a program, one after the other.
pub(super) fn knobs() -> impl Iterator<Item = &'static Knob> {
    unisono_communicator::settings::knobs(GROUPS)
}
