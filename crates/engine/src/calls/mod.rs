//! Calls in progress, below everything that moves them: the state of a call until its end, and the behaviour of a
//! thread that waits for calls.
//!
//! | file | contents |
//! | --- | --- |
//! | `call` | one collective in progress |
//! | `request`, `queue` | an asynchronous call; the asynchronous collectives in their order |
//! | `step`, `pause` | the result of a poll; the events that end the pause of an idle thread |
//! | `wait` | the time that a call has waited, and the consequences |
//! | `short_wait` | the looks and yields of a call that may end within microseconds |
//! | `idling` | whether an idle thread looks at its links, gives its core away, or sleeps |
//! | `time_slice` | a short slice for a thread that waits beside other work on its core |
//! | `monitor`, `links_state` | the thread that holds the links, and the waiting threads |
//! | `progress_threads` | the threads that move calls of all communicators, and run code of the program after them |

pub(crate) mod call;
pub(crate) mod idling;
pub(crate) mod links_state;
pub(crate) mod monitor;
pub(crate) mod pause;
pub(crate) mod progress_threads;
pub(crate) mod queue;
pub(crate) mod request;
pub(crate) mod short_wait;
pub(crate) mod step;
pub(crate) mod time_slice;
pub(crate) mod wait;
