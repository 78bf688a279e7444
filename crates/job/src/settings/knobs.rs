//! The table of settings. A test of this folder compares docs/settings.md with it.

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// The environment variable.
    pub name: &'static str,
    /// The unit of a number, or the form of a text.
    pub unit: &'static str,
    /// The value when nothing is set, in the same form; empty for none.
    pub default: &'static str,
    /// Variables of other tools that are read when ours is not set, first match wins.
    pub also: &'static [&'static str],
    /// What it does.
    pub doc: &'static str,
}

/// Settings that belong together.
#[derive(Clone, Copy, Debug)]
pub struct KnobGroup {
    /// What they are about.
    pub title: &'static str,
    /// These settings.
    pub knobs: &'static [Knob],
}

const fn knob(
    name: &'static str,
    unit: &'static str,
    default: &'static str,
    also: &'static [&'static str],
    doc: &'static str,
) -> Knob {
    Knob { name, unit, default, also, doc }
}

/// All settings of a program, in groups.
///
/// The four of placement are also found under the names that launchers set, see [`crate::environment`].
#[rustfmt::skip]
pub const GROUPS: &[KnobGroup] = &[
    KnobGroup { title: "What a program says", knobs: &[
        knob("UNISONO_LOG", "off, warn, info or debug", "warn", &[],
            "which lines reach standard error while the program has no tracing subscriber"),
        knob("UNISONO_WARN_AFTER_S", "s", "30", &[],
            "a call in which nothing moves for so long names the rank that it waits for; a rank that \
             waits to join says so after 3 s, and then as often"),
        knob("UNISONO_FLIGHT_DIR", "path", "", &[],
            "folder to which a rank writes its last calls when one fails, for unisono doctor; made if it is not there"),
    ] },
    KnobGroup { title: "Deadlines", knobs: &[
        knob("UNISONO_CALL_TIMEOUT_S", "s", "600", &[], "deadline of a call"),
        knob("UNISONO_JOIN_TIMEOUT_S", "s", "300", &[], "how long ranks wait for each other at the start"),
        knob("UNISONO_HANDSHAKE_TIMEOUT_MS", "ms", "5000", &[], "deadline of the authentication of one connection"),
        knob("UNISONO_DROP_TIMEOUT_MS", "ms", "5000", &[],
            "how long a process that leaves waits until the others have what it has sent"),
        knob("UNISONO_HEARTBEAT_MS", "ms", "100", &[],
            "interval of the signs of life between ranks, at most a third of UNISONO_SUSPECT_AFTER_MS; that of rank 0 \
             holds for all"),
        knob("UNISONO_SUSPECT_AFTER_MS", "ms", "800", &[],
            "silence after which a rank counts as lost; that of rank 0 holds for all"),
    ] },
    KnobGroup { title: "Who this process is", knobs: &[
        knob("UNISONO_RANK", "rank", "", &["RANK"], "this process's place in the job, from 0"),
        knob("UNISONO_WORLD_SIZE", "ranks", "", &["WORLD_SIZE"], "number of ranks of the job"),
        knob("UNISONO_LOCAL_RANK", "rank", "", &["LOCAL_RANK"], "this process's place on its host, from 0"),
        knob("UNISONO_LOCAL_WORLD_SIZE", "ranks", "", &["LOCAL_WORLD_SIZE", "LOCAL_SIZE"],
            "number of ranks on this host; equal to the world size, it says that no rank is elsewhere"),
        knob("UNISONO_JOB", "text", "", &[], "what ranks of one job started by hand on one host have in common"),
        knob("UNISONO_HOST_ID", "text", "", &["NCCL_HOSTID"],
            "what tells hosts apart, instead of host name, boot and network namespace"),
    ] },
    KnobGroup { title: "Where the ranks meet", knobs: &[
        knob("UNISONO_STORE", "host:port", "", &[], "where ranks meet, hosted by the launcher"),
        knob("UNISONO_SECRET_FILE", "path", "", &[],
            "32 random bytes in a file of mode 0600; else unisono/secret in the user's configuration directory, if \
             there"),
        knob("UNISONO_SECRET_GROUP_FILE", "path", "", &[],
            "instead of that file: one of root or of this user that the file's group may read too, as Kubernetes \
             mounts a secret"),
        knob("UNISONO_SECRET_FD", "descriptor", "", &[],
            "instead of a file: the inherited reading end of a pipe that holds these 32 bytes"),
        knob("UNISONO_REPORT_FD", "descriptor:inode", "", &[],
            "set by unisono run: the inherited writing end of the pipe on which a rank reports its first error"),
        knob("UNISONO_MASTER_ADDRESS", "host", "", &["MASTER_ADDR"],
            "the host of rank 0, when nobody hosts a store"),
        knob("UNISONO_MASTER_PORT", "port", "", &["MASTER_PORT"],
            "a port of that host; the one above it is ours, this one belongs to torch"),
        knob("UNISONO_INTERFACE", "list", "", &["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"],
            "network interfaces to listen on: name prefixes with commas, =name exactly, ^a,b any but these"),
        knob("UNISONO_ADDRESS", "IP address", "", &[], "address to listen on, instead of an interface"),
    ] },
    KnobGroup { title: "How calls are done", knobs: &[
        knob("UNISONO_BACKEND", "auto, tcp, ccl, nccl or hccl", "auto", &[],
            "who does the collectives; tcp: unisono itself, ccl: Intel's oneCCL, nccl: NVIDIA's NCCL, hccl: Huawei's \
             HCCL, auto: nccl where every rank has it and a device, else tcp, without any network in a process that is \
             alone; see docs/backends.md"),
        knob("UNISONO_CCL_DIR", "path", "", &[],
            "folder with the libraries of Intel's oneCCL, an absolute path; else the system's loader finds them"),
        knob("UNISONO_NCCL_LIB", "path", "", &[],
            "the file of NCCL's library, an absolute path; else the system's loader finds libnccl.so.2"),
        knob("UNISONO_CUDA_LIB", "path", "", &[],
            "the file of NVIDIA's driver, an absolute path; else the system's loader finds libcuda.so.1"),
        knob("UNISONO_NVRTC_LIB", "path", "", &[],
            "the file of NVIDIA's run-time compiler, an absolute path; else the system's loader finds libnvrtc.so; \
             NCCL needs it for algorithms by name"),
        knob("UNISONO_HCCL_DIR", "path", "", &[],
            "folder with libhccl.so and libascendcl.so of Huawei's CANN, an absolute path; else the system's loader \
             finds them"),
        knob("UNISONO_DEVICE", "number", "", &[],
            "the device of this rank; else its place on the host, from the start again when there are fewer devices"),
        knob("UNISONO_HOST_MEMORY", "auto, refused, staged or tcp", "auto", &[],
            "what a backend for devices does with memory of the host: calls on it are refused, or it is copied to the \
             device and back, or calls on it go over TCP; auto: refused, but tcp if UNISONO_BACKEND is auto"),
        knob("UNISONO_ALGORITHM", "name", "", &[],
            "the algorithm of every call that has it, instead of the cheapest"),
        knob("UNISONO_COST_MODEL", "name=number, ...", "", &[],
            "parameters of the cost model, as unisono calibrate prints them; rank 0's are used by all"),
        knob("UNISONO_CHECKSUM", "auto, on or off", "auto", &[],
            "a checksum over everything that collectives and messages send; auto: between hosts; rank 0's is used by \
             all"),
        knob("UNISONO_PIECE_BYTES", "bytes", "524288", &[], "the unit in which steps of a call take turns"),
        knob("UNISONO_SPIN_US", "us", "50", &[], "how long a waiting call polls before it sleeps"),
        knob("UNISONO_PROBE_DELAY_MS", "ms", "50", &[],
            "time without progress after which the awaited rank is asked"),
    ] },
    KnobGroup { title: "Data sockets", knobs: &[
        knob("UNISONO_SOCKET_BUFFER_BYTES", "bytes", "0", &[],
            "send and receive buffer of a data socket; 0 leaves them to the system, which lets them grow"),
        knob("UNISONO_UNSENT_BYTES", "bytes", "131072", &[],
            "what a data socket may hold that the kernel has not sent yet"),
        knob("UNISONO_CONGESTION_CONTROL", "name", "reno", &[],
            "of sockets within a host; 'system' leaves them alone"),
    ] },
];

/// What only unisono's own tests and benches read.
#[rustfmt::skip]
pub const DEVELOPER_KNOBS: KnobGroup = KnobGroup { title: "For developers of unisono", knobs: &[
    knob("UNISONO_REQUIRE", "list", "", &[],
        "what this machine must have, with commas, such as namespaces: tests for want of it fail instead of being \
         left out"),
    knob("UNISONO_TEST_SEED", "number", "", &[], "repeats a randomised test with this seed"),
    knob("UNISONO_TEST_CASES", "number", "", &[], "how many cases or seeds a randomised test runs"),
    knob("UNISONO_TEST_ROUNDS", "number", "", &[], "how often the tests of endings run each job"),
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

/// All settings of a program, one after the other.
pub fn knobs() -> impl Iterator<Item = &'static Knob> {
    GROUPS.iter().flat_map(|group| group.knobs)
}

/// The settings of this name or, for [`crate::config::Config::variable`], of none.
pub(crate) fn knob_named(name: &str) -> Option<&'static Knob> {
    knobs().find(|knob| knob.name == name)
}
