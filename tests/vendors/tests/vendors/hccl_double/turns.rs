//! Several threads and communicators of one device of the double.

use unisono_tests::doubles::HcclDouble;

unisono_tests::turns_on_device!(HcclDouble, "HcclAllReduce");
