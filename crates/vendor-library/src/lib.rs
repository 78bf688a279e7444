//! A vendor's library, opened at run time: nothing of a vendor is needed to build or to link.
//!
//! [`Library`] is the open file, and [`functions!`] makes the struct of its functions, of which some may be newer than
//! the oldest version that is supported ([`Optional`]). A missing library is an error that names the files that were
//! tried, the fault of each, and a remedy. A [`Resident`] is a library that a process opens once, and [`VendorCode`]
//! makes an error of the code that one of its functions returned.
//!
//! ```
//! use std::ffi::{c_char, c_int};
//! use unisono_vendor_library::{Library, functions};
//!
//! functions! {
//!     /// Two functions of the C library, and a third that it may lack.
//!     Table {
//!         required {
//!             absolute: "abs" (c_int);
//!             version: "gnu_get_libc_version" () -> *const c_char;
//!         }
//!         optional {
//!             since "99.0": teleport: "teleport" (c_int);
//!         }
//!     }
//! }
//!
//! let table = Table::new(Library::open("C library", &["libc.so.6"], "install glibc")?)?;
//! // SAFETY: it takes a number, and gives a number.
//! assert_eq!(unsafe { (table.absolute)(-7) }, 7);
//! let error = table.teleport.require("the C library", "2.36", "a train").unwrap_err();
//! let words = "the C library does not support teleport, which needs version 99.0: this is 2.36; instead: a train";
//! assert_eq!(error.to_string(), words);
//! # Ok::<(), unisono_communicator::Error>(())
//! ```

mod elf;
mod functions;
mod library;
mod resident;
mod words;

pub use elf::check_file;
pub use functions::Optional;
pub use library::Library;
pub use resident::{Failure, Process, Resident};
pub use words::{VendorCode, text_at};
