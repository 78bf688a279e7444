//! Permanent numbers for the kinds of errors: for bindings, exit codes and the wire.

use std::fmt;

use crate::error::Error;

macro_rules! codes {
    ($($number:literal $name:ident,)*) => {
        /// The kind of an [`Error`], as a number that is the same in every version. `docs/errors.md` lists the numbers.
        ///
        /// ```
        /// # use unisono_communicator as unisono;
        /// use unisono::{Error, ErrorCode};
        /// let code = Error::closed().code();
        /// assert_eq!((code, code.number()), (ErrorCode::Closed, 6));
        /// assert_eq!(ErrorCode::from_number(6), Some(ErrorCode::Closed));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u16)]
        pub enum ErrorCode {
            $(#[doc = concat!("The code of [`Error::", stringify!($name), "`].")] $name = $number,)*
        }

        impl ErrorCode {
            /// Every code, in ascending order.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name),*];

            /// The name of the variant of [`Error`].
            pub const fn name(self) -> &'static str {
                match self {
                    $(ErrorCode::$name => stringify!($name),)*
                }
            }

            /// The code of this number, if there is one.
            pub const fn from_number(number: u16) -> Option<ErrorCode> {
                match number {
                    $($number => Some(ErrorCode::$name),)*
                    _ => None,
                }
            }
        }

        impl Error {
            /// The number of its kind.
            pub fn code(&self) -> ErrorCode {
                match self {
                    $(Error::$name { .. } => ErrorCode::$name,)*
                }
            }
        }
    };
}

// A number is never reused, not even if its kind is removed.
codes! {
    1 Mismatch,
    2 PeerLost,
    3 Timeout,
    4 Cancelled,
    5 Panicked,
    6 Closed,
    7 Refused,
    8 System,
    9 Evicted,
    10 Corrupted,
    11 Revoked,
    12 InvalidArgument,
    13 Unsupported,
    14 ConcurrentUse,
    15 NoQuorum,
    16 Truncated,
    17 Rendezvous,
    18 Configuration,
    19 Forked,
    20 Aborted,
    21 AlgorithmRefused,
    22 NonFinite,
    23 LibraryMissing,
    24 Vendor,
    25 StoreTimeout,
    26 StoreFull,
}

impl ErrorCode {
    /// The number.
    pub const fn number(self) -> u16 {
        self as u16
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
