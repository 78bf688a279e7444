//! Several threads and communicators of one device of the double.

use unisono_tests::doubles::NcclDouble;

unisono_tests::turns_on_device!(NcclDouble, "ncclAllReduce");
