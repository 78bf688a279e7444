//! The kernels that add messages compile for cards of three generations, and hold their values in registers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use unisono_cuda::{Capability, Nvrtc};
use unisono_offload_nccl::arithmetic_source;
use unisono_tests::cuda::{nvrtc_file, resource_usage};

/// A100, H100 and B200.
const CARDS: [u32; 3] = [80, 90, 100];

/// A card has 65,536 for each of its processors, so 80 allow 800 threads, which is enough to keep its memory busy.
const REGISTERS_MAX: u32 = 80;

#[test]
fn kernels_spill_nothing() {
    let (Some(nvrtc), Some(cuobjdump)) = (nvrtc_file("libnvrtc.so.12"), nvrtc_file("cuobjdump")) else {
        return;
    };
    let nvrtc = Nvrtc::open(Some(&nvrtc), 12).unwrap();
    for card in CARDS {
        let code = nvrtc.compile(&arithmetic_source(), Capability::from_number(card)).unwrap();
        let used = resource_usage(&cuobjdump, &code);
        assert_eq!(used.keys().collect::<Vec<_>>(), ["combine", "multiply"]);
        for (kernel, used) in used {
            let about = format!("{kernel} for sm_{card}: {used:?}, at most {REGISTERS_MAX} registers");
            assert_eq!((used["STACK"], used["LOCAL"]), (0, 0), "{about}");
            assert!(used["REG"] <= REGISTERS_MAX, "{about}");
        }
    }
}
