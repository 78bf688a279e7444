//! The communication log on every backend whose ranks are threads.

mod in_process {
    unisono_tests::conformance!(@log unisono_tests::InProcess);
}

mod shm {
    unisono_tests::conformance!(@log unisono_tests::Shm);
}

mod tcp {
    unisono_tests::conformance!(@log unisono_tests::Tcp);
}
