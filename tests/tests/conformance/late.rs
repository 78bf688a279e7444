//! The conformance suite over links that release the bytes of a send only when the peer has received them.

use unisono_tests::LateInProcess;

unisono_tests::conformance!(LateInProcess);
