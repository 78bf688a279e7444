//! Calls on memory of the double's devices. Ranks are threads.

use unisono_tests::doubles::NcclDouble;
pub(crate) use unisono_tests::on_device::SECONDS_MAX;

/// A rank with a device of its own and a stream on it.
pub(crate) type Rank = unisono_tests::on_device::DeviceRank<NcclDouble>;

unisono_tests::calls_on_device!(NcclDouble);

unisono_tests::messages_on_device!(NcclDouble);
unisono_tests::forms_on_device!(NcclDouble);
