//! Two types of rank numbers: in the job and in a group. They differ in a subgroup, and [`crate::Group`] converts.

use std::fmt;

macro_rules! rank_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[repr(transparent)]
        pub struct $name(u32);

        impl $name {
            /// The rank of this number.
            pub const fn new(number: u32) -> $name {
                $name(number)
            }

            /// The first `size` ranks, in order.
            pub fn all(size: u32) -> impl ExactSizeIterator<Item = $name> + DoubleEndedIterator + Clone {
                (0..size).map($name)
            }

            /// Its number.
            pub const fn get(self) -> u32 {
                self.0
            }

            /// Its index in a list of all ranks.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        /// For `error.lost_ranks() == [2]`.
        impl PartialEq<u32> for $name {
            fn eq(&self, number: &u32) -> bool {
                self.0 == *number
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

rank_type! {
    /// A rank of the job: the number with which its process was started. Errors, logs and flight records use it,
    /// because it is the same in every communicator.
    ///
    /// ```compile_fail
    /// use unisono_communicator::{GroupRank, JobRank};
    /// assert!(JobRank::new(1) == GroupRank::new(1));
    /// ```
    JobRank
}

rank_type! {
    /// A rank of one communicator, from 0 to its size. Calls take it as root and peer.
    GroupRank
}
