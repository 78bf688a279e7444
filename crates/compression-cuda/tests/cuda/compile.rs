//! The kernels compile for cards of three generations, and hold their values in registers.

use unisono_communicator::Error;
use unisono_compression_cuda::cuda::{Capability, Nvrtc, Source};
use unisono_compression_cuda::{KERNELS, compile, source};
use unisono_tests::cuda::{nvrtc_file, resource_usage};

/// The cards that code is compiled for: A100, H100 and B200.
const CARDS: [u32; 3] = [80, 90, 100];

/// The most registers that a thread of a kernel may have. A card has 65,536 for each of its processors, so 64 allow
/// half of all threads (1,024), 80 three eighths, 96 five sixteenths, with 32 loads of a thread under way.
const REGISTERS_MAX: [(&str, u32); 20] = [
    ("average", 64),
    ("bf16_decode_sum", 40),
    ("bf16_encode", 40),
    ("bf16_expand", 40),
    ("bf16_reduce_encode", 40),
    ("compensate", 96),
    ("int_decode_sum", 72),
    ("int_encode", 72),
    ("int_encode_shared", 72),
    ("int_expand", 64),
    ("int_expand_shared", 64),
    ("int_magnitudes", 64),
    ("int_reduce_encode", 80),
    ("sign_decode_sum", 80),
    ("sign_encode", 128),
    ("sign_expand", 64),
    ("sign_pack", 64),
    ("sign_reduce_encode", 128),
    ("sign_reduce_global", 80),
    ("sum", 64),
];

#[test]
fn kernels_spill_nothing() {
    let (Some(nvrtc), Some(cuobjdump)) = (nvrtc_file("libnvrtc.so.12"), nvrtc_file("cuobjdump")) else {
        return;
    };
    let nvrtc = Nvrtc::open(Some(&nvrtc), 12).unwrap();
    let cubins: Vec<_> = std::thread::scope(|scope| {
        let threads = CARDS.map(|card| {
            let nvrtc = &nvrtc;
            scope.spawn(move || compile(nvrtc, Capability::from_number(card)).unwrap())
        });
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (card, code) in CARDS.into_iter().zip(cubins) {
        let used = resource_usage(&cuobjdump, &code);
        assert_eq!(used.keys().map(String::as_str).collect::<Vec<_>>(), KERNELS, "sm_{card}");
        for (kernel, registers_max) in REGISTERS_MAX {
            let used = &used[kernel];
            let about = format!("{kernel} for sm_{card}: {used:?}, at most {registers_max} registers");
            assert_eq!((used["STACK"], used["LOCAL"]), (0, 0), "{about}");
            assert!(used["REG"] <= registers_max, "{about}");
        }
    }
}

#[test]
fn a_mistake_in_a_kernel_is_named() {
    let Some(nvrtc) = nvrtc_file("libnvrtc.so.12") else { return };
    let nvrtc = Nvrtc::open(Some(&nvrtc), 12).unwrap();
    let broken = source()
        .headers
        .iter()
        .map(|(name, text)| (*name, text.replace("span.count == 0", "span.cuont == 0")));
    let broken: Vec<(&str, String)> = broken.collect();
    let headers: Vec<(&str, &str)> = broken.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let source = Source { headers: &headers, ..source() };
    let error = nvrtc.compile(&source, Capability::from_number(90)).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "source", .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("global.cu(") && text.contains("cuont"), "{text}");
}
