//! The rows of the job's settings. [`crate::config`] reads them all; tests of `unisono` and of its program see to it
//! that each is read and is on the page of settings.

pub use unisono_communicator::settings::Source;
use unisono_communicator::settings::{self, HOW_CALLS_ARE_DONE, Knob, KnobGroup, knob};
pub(crate) use unisono_communicator::settings::{configuration, parse};

/// All settings of the job, in groups.
///
/// The settings of placement are also found under the names that launchers set, see [`crate::environment`].
#[rustfmt::skip]
pub const GROUPS: [KnobGroup; 6] = [
    KnobGroup { title: "What a program says", knobs: &[
        knob("UNISONO_LOG", "off, warn, info or debug", "warn", &[],
            "which lines reach standard error while the program has no tracing subscriber"),
        knob("UNISONO_WARN_AFTER_S", "s", "30", &[],
            "a call in which nothing moves for so long names the rank that it waits for; a rank that \
             waits to join says so after 3 s, and then as often"),
        knob("UNISONO_FLIGHT_DIR", "path", "", &[],
            "folder to which a rank writes its last calls when one fails, for unisono doctor; made if it is not there"),
        knob("UNISONO_COMMS_LOGGER", "on, off or path", "off", &[],
            "on: this rank records its calls, and rank 0 prints a table at its end; or a JSON file with the keys of \
             DeepSpeed's comms_logger, alone or in a whole configuration"),
        knob("UNISONO_METRICS", "path", "", &[],
            "folder in which each rank replaces a file of counts for Prometheus every second; made if it is not \
             there"),
    ] },
    KnobGroup { title: "Deadlines", knobs: &[
        knob("UNISONO_CALL_TIMEOUT_S", "s", "600", &["DEEPSPEED_TIMEOUT"],
            "deadline of a call; DEEPSPEED_TIMEOUT is in minutes, and counts as in torch for this row and the next \
             one"),
        knob("UNISONO_JOIN_TIMEOUT_S", "s", "300", &["DEEPSPEED_TIMEOUT"],
            "how long ranks wait for each other at the start; rank 0's is also the longest that the host of their \
             meeting stays for slow ones"),
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
        knob("UNISONO_CROSS_RANK", "host", "", &["CROSS_RANK"],
            "this host's place among the hosts of the job, from 0, as DeepSpeed's launcher says it; in ranks of \
             torchrun CROSS_RANK and CROSS_SIZE are left over and do not count"),
        knob("UNISONO_CROSS_SIZE", "hosts", "", &["CROSS_SIZE"],
            "number of hosts; 1 says that no rank is elsewhere; a number that does not go with the ranks on this host \
             is refused"),
        knob("UNISONO_DISCOVERY", "auto or off", "auto", &[],
            "off: only settings say who this process is and where ranks meet, by any of their names; auto: launchers \
             and platforms too"),
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
            "a port of that host; the one above it is ours, this one belongs to torch; without it 29500 where the \
             address is set, 6105 on Azure ML, in Slurm a port for each step or job"),
        knob("UNISONO_INTERFACE", "list", "", &["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"],
            "network interfaces to listen on: name prefixes with commas, =name exactly, ^a,b any but these; the other \
             tools' names count only if ranks are on several hosts"),
        knob("UNISONO_ADDRESS", "IP address", "", &[], "address to listen on, instead of an interface"),
    ] },
    KnobGroup { title: HOW_CALLS_ARE_DONE, knobs: &[
        knob("UNISONO_ALGORITHM", "name", "", &[],
            "the algorithm of every call that has it, instead of the cheapest"),
        knob("UNISONO_COST_MODEL", "name=number, ...", "", &[],
            "parameters of the cost model, as unisono calibrate prints them; rank 0's are used by all"),
        knob("UNISONO_CHECKSUM", "auto, on or off", "auto", &[],
            "a checksum over everything that collectives and messages send; auto: between hosts; rank 0's is used by \
             all"),
        knob("UNISONO_SKIP", "list", "", &[],
            "operations that do nothing, to measure what they cost: names with commas between, such as \
             all_reduce,barrier; rank 0's is used by all"),
        knob("UNISONO_SHM", "0 or 1", "1", &[],
            "1: data goes through memory between ranks of one host; 0: over TCP as between hosts; rank 0's is used by \
             all"),
        knob("UNISONO_SINGLE_COPY", "auto, on or off", "auto", &[],
            "whether ranks of one host read long messages out of each other's memory; auto: where the kernel allows \
             it; on: this rank also lets all processes of its user read its memory (Yama's ptrace_scope 1)"),
        knob("UNISONO_PIECE_BYTES", "bytes", "524288", &[], "the unit in which steps of a call take turns"),
        knob(
            "UNISONO_SPIN_US",
            "us",
            "50",
            &[],
            "how long a waiting call polls before it sleeps; with a callback, 4 times as long",
        ),
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

/// The same, one after the other.
pub fn knobs() -> impl Iterator<Item = &'static Knob> {
    settings::knobs(&GROUPS)
}
