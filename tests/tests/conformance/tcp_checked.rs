//! The conformance suite over loopback sockets with checksums.

use unisono_tests::TcpChecked;

unisono_tests::conformance!(TcpChecked);
