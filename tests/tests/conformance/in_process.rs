//! The conformance suite on ranks that are threads of one process.

use unisono_tests::InProcess;

unisono_tests::conformance!(InProcess);
