//! Ranks as processes, for the libraries that can have only one rank in a process.
//!
//! The tests of the suite stay what they are: functions that share closures, barriers and results between ranks, each
//! rank a thread. Its communicator is a proxy then: what a test asks of it travels to the process of that rank, is done
//! there by the real communicator, and the answer travels back. The proxy decides nothing by itself: a result, an
//! error, a refusal, the end of a handle, the drop of borrowed memory are those of the real one.
//!
//! | file | what it does |
//! | --- | --- |
//! | `wire.rs` | values as bytes |
//! | `values.rs`, `errors.rs` | those of the library |
//! | `messages.rs` | what a test asks a rank, and a rank a test |
//! | `memory.rs`, `raw.rs` | the buffers of a call, on both sides |
//! | `connection.rs`, `workers.rs` | questions and answers over one socket, many at a time |
//! | `proxy.rs`, `work.rs` | the test's side: communicators, scopes, handles |
//! | `remote.rs` | the process of a rank as the test sees it |
//! | `rank_process.rs`, `rank_calls.rs`, `held_work.rs` | the side of the rank |
//! | `pool.rs`, `backend.rs` | starting processes, keeping them for the next world, ending them |
//!
//! A call costs two messages over a Unix socket beside what it costs itself. A user's function is called where the test
//! has it: each of its calls is a question of the rank.

mod backend;
mod connection;
mod errors;
mod held_work;
mod memory;
mod messages;
mod pool;
mod proxy;
mod rank_calls;
mod rank_process;
mod raw;
mod remote;
mod values;
mod wire;
mod work;
mod workers;

pub use backend::{ProcessJob, Processes};
pub use pool::Environment;
pub use rank_process::{Joined, RankProcess, serve};
