//! Calls in progress, below everything that moves them: what a call is until its end, and what a thread that waits for
//! calls does meanwhile.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `call` | one collective in progress |
//! | `request`, `queue` | an asynchronous call; the asynchronous collectives in their order |
//! | `step`, `pause` | what a poll has done; what an idle thread waits for |
//! | `wait` | how long a call has waited, and what follows |
//! | `idling` | whether an idle thread looks at its links, gives its core away, or sleeps |
//! | `time_slice` | a short slice for a thread that waits beside other work on its core |
//! | `monitor` | who holds the links, and who waits for what |
//! | `progress_threads`, `callbacks` | the threads of all communicators; the thread that calls functions of users |

pub(crate) mod call;
pub(crate) mod callbacks;
pub(crate) mod idling;
pub(crate) mod monitor;
pub(crate) mod pause;
pub(crate) mod progress_threads;
pub(crate) mod queue;
pub(crate) mod request;
pub(crate) mod step;
pub(crate) mod time_slice;
pub(crate) mod wait;
