//! The C ABI of unisono, for C, C++ and bindings of other languages: `unisono.h` has its functions, with the
//! documentation of this crate as comments, and docs/c.md a first hour. The library is `libunisono_c`.
//!
//! A call is a structure with its own size ([`fields::CallFields`]), so that a new operation adds no function.
//! Every function checks its arguments and gives a [`status::Status`]; [`error::unisono_last_error`] has the rest.
//!
//! | module | contents |
//! | --- | --- |
//! | [`version`], [`status`], [`names`] | the numbers of the ABI |
//! | [`error`], [`border`] | the last error of a thread; the one place where a panic ends |
//! | [`input`], [`handle`] | pointers, texts, lists, structures with a size, handles: from C's side, checked |
//! | [`fields`], [`user_op`], [`buffers`], [`call`] | a call's structure, its memory, and the call that is made of it |
//! | [`issue`], [`outcome`], [`work`] | calls that block, calls with handles |
//! | [`prepared`], [`message`] | plans of calls; messages that a probe has found |
//! | [`compressed`], [`threaded`] | states, and calls that send fewer bits, also with handles |
//! | [`world`], [`group`], [`life`], [`interrupt`] | joining a job, groups, failures, the end |
//! | [`store`], [`records`], [`text`] | the key-value store, logs as JSON, memory that the library gives |
//! | [`sited`] | calls that the library makes for a caller, with the caller's line |

pub mod border;
pub mod buffers;
pub mod call;
pub mod compressed;
pub mod error;
pub mod fields;
pub mod group;
pub mod handle;
pub mod input;
pub mod interrupt;
pub mod issue;
pub mod life;
pub mod message;
pub mod names;
pub mod outcome;
pub mod prepared;
pub mod records;
pub mod sited;
pub mod status;
pub mod store;
pub mod text;
pub mod threaded;
pub mod user_op;
pub mod version;
pub mod work;
pub mod world;
