//! The conformance suite on a backend that refuses what a vendor's library refuses.

use unisono_tests::Limited;

unisono_tests::conformance!(Limited);
