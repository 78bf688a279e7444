//! The conformance suite over loopback sockets.

use unisono_tests::Tcp;

unisono_tests::conformance!(Tcp);
