//! Calls on memory of the double's devices. Ranks are threads.

use unisono_tests::doubles::HcclDouble;

unisono_tests::calls_on_device!(HcclDouble);

unisono_tests::messages_on_device!(HcclDouble);
unisono_tests::forms_on_device!(HcclDouble);
