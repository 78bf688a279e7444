//! The conformance suite through memory.

use unisono_tests::Shm;

unisono_tests::conformance!(Shm);
