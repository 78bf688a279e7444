//! The conformance suite on two hosts, through memory and over loopback sockets, with checksums.

use unisono_tests::MixedChecked;

unisono_tests::conformance!(MixedChecked);
