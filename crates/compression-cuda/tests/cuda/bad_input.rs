//! A failure on a card is an error that names it and a remedy.

#![expect(unsafe_code, reason = "memory of a card, by wrong addresses")]

use std::sync::Arc;

use unisono_communicator::{Buffer, BufferMut, DeviceBuffer, Error, ReduceOp};
use unisono_compression::{
    CodecKernels, CompressedCollectives, CompressionState, DeviceMemory, Feedback, HostKernels, Int8,
    KernelDevice, Shared, SignL1,
};
use unisono_compression_cuda::cuda::{Capability, Code};
use unisono_compression_cuda::{Compiled, CudaKernels, CudaOptions, KernelCode};
use unisono_engine::in_process;
use unisono_kernels::{CodeSize, IntFormat, IntWidth, Kernels, Rounding};
use unisono_tests::cuda::{double_kernels, driver_double};

fn open_error(options: &CudaOptions) -> String {
    CudaKernels::open(options).unwrap_err().to_string()
}

/// Whether an error is this one, and has these words.
fn has(error: &Error, is_it: impl Fn(&Error) -> bool, words: &[&str]) {
    let text = error.to_string();
    assert!(is_it(error) && words.iter().all(|word| text.contains(word)), "{error}");
}

fn is_invalid(error: &Error) -> bool {
    matches!(error, Error::InvalidArgument { .. })
}

fn is_unsupported(error: &Error) -> bool {
    matches!(error, Error::Unsupported { .. })
}

fn is_vendor(error: &Error) -> bool {
    matches!(error, Error::Vendor { .. })
}

#[test]
fn a_card_needs_its_own_code() {
    let Some(driver) = driver_double() else { return };
    let with = |cards: &[u32]| CudaOptions {
        driver: Some(driver.to_owned()),
        code: double_kernels(cards),
        device: 0,
    };
    assert!(CudaKernels::open(&with(&[80, 90, 100])).is_ok());
    for cards in [&[100, 120][..], &[80], &[91], &[]] {
        let error = CudaKernels::open(&with(cards)).unwrap_err();
        has(&error, is_unsupported, &["sm_90", "KernelCode::Nvrtc"]);
        for card in cards {
            assert!(error.to_string().contains(&format!("sm_{card}")), "{error}");
        }
    }
    // A later minor version runs the code of an earlier one.
    let newer = crate::common::failing("capability=89.minor").unwrap();
    let options = |cards: &[u32]| CudaOptions { driver: Some(newer.clone()), ..with(cards) };
    assert!(CudaKernels::open(&options(&[80])).is_ok());
    assert!(open_error(&options(&[90])).contains("a card of sm_89"));
    let broken = Compiled { capability: Capability::from_number(90), code: Code::new(*b"what is no code") };
    let options = CudaOptions { code: KernelCode::Compiled(vec![broken]), ..with(&[]) };
    let error = CudaKernels::open(&options).unwrap_err();
    has(&error, is_vendor, &["cuModuleLoadData", "CUDA_ERROR_INVALID_IMAGE", "NVRTC"]);
}

#[test]
fn without_libraries_nothing_is_opened() {
    let Some(driver) = driver_double() else { return };
    let nowhere = Some("/nowhere/lib.so".into());
    let options = CudaOptions { driver: nowhere.clone(), ..CudaOptions::default() };
    assert!(open_error(&options).contains("CUDA driver cannot be used: /nowhere/lib.so"));
    let code = KernelCode::Nvrtc(nowhere);
    let options = CudaOptions { driver: Some(driver.to_owned()), code, device: 0 };
    let text = open_error(&options);
    assert!(text.contains("NVRTC cannot be used: /nowhere/lib.so") && text.contains("install"), "{text}");
    let code = KernelCode::Nvrtc(Some(driver.to_owned()));
    let options = CudaOptions { driver: Some(driver.to_owned()), code, device: 0 };
    assert!(open_error(&options).contains("has no nvrtcVersion"));
    let options = CudaOptions { device: 7, code: double_kernels(&[90]), ..options };
    assert!(open_error(&options).contains("invalid device: 7, and the driver has 1"));
}

const FORMAT: IntFormat = IntFormat { width: IntWidth::Eight, block: 64, symmetric: true };

#[test]
fn buffers_must_be_words_of_this_card() {
    let Some(card) = crate::common::open() else { return };
    let (mut memory, input) = (card.allocate(100).unwrap(), card.allocate(100).unwrap());
    let view = input.view(0..64);
    let mut out = memory.view_mut(0..100);

    let host = [0.0f32; 64];
    let error = card.bf16_encode(Buffer::of(&host), out.buffer()).unwrap_err();
    has(&error, is_unsupported, &["host memory as input"]);
    let mut words = [0u32; 64];
    let error = card.bf16_encode(view.buffer(), BufferMut::of(&mut words)).unwrap_err();
    has(&error, is_unsupported, &["host memory as out"]);

    let unisono_compression::View::Device(own) = &view else { panic!("on a device") };
    let address = own.spans()[0].address();
    for (address, bytes, device, words) in [
        (address, 256, 3, &["input", "is on device 3", "Context(0"][..]),
        (address + 2, 256, 0, &["no whole words"]),
        (address, 255, 0, &["no whole words"]),
    ] {
        let other = foreign(address, bytes, device);
        let error = card.bf16_encode(Buffer::Device(&other), out.buffer()).unwrap_err();
        has(&error, is_invalid, words);
    }
    let division = unisono_communicator::Division::Anywhere;
    let list = DeviceBuffer::list([foreign(address, 64, 0), foreign(address + 64, 64, 0)], division);
    let error = card.bf16_encode(Buffer::Device(&list), out.buffer()).unwrap_err();
    has(&error, is_unsupported, &["a list of spans as input"]);
}

/// A buffer that no kernel is given.
fn foreign(address: usize, bytes: usize, device: u32) -> DeviceBuffer {
    // SAFETY: it is refused before anything is started.
    unsafe { DeviceBuffer::from_raw(address, bytes, device) }.unwrap()
}

#[test]
fn buffers_must_be_long_enough() {
    let Some(card) = crate::common::open() else { return };
    let (mut memory, input) = (card.allocate(100).unwrap(), card.allocate(100).unwrap());
    let mut new = card.allocate(100).unwrap();
    let input = input.view(0..100);
    let part = input.buffer();

    // 100 elements in blocks of 64 are 2 scales, and 4 words of bits or 25 of codes.
    let error = card.sign_encode(input.buffer(), None, 64, memory.view_mut(0..5).buffer()).unwrap_err();
    has(&error, is_invalid, &["out", "has 5 words, and the call needs 6"]);
    let error =
        card.int_encode(input.buffer(), None, FORMAT, Rounding::Nearest, memory.view_mut(0..26).buffer());
    has(&error.unwrap_err(), is_invalid, &["out", "has 26 words, and the call needs 27"]);
    let short = input.buffer();
    let mut new = new.view_mut(0..99);
    let feedback = Feedback { old: short, new: new.buffer() };
    let error =
        card.sign_encode(input.buffer(), Some(feedback), 64, memory.view_mut(0..6).buffer()).unwrap_err();
    has(&error, is_invalid, &["feedback.new", "99 words"]);
    let parts = [part];
    let error =
        card.sign_reduce_encode(&parts, 4000, None, 64, memory.view_mut(0..100).buffer()).unwrap_err();
    has(&error, is_invalid, &["parts", "100 words"]);
    let magnitudes = input.buffer();
    let shared = Shared { format: FORMAT, size: CodeSize::Four, magnitudes };
    let error = card.int_encode_shared(
        input.buffer(),
        None,
        Rounding::Nearest,
        shared,
        memory.view_mut(0..99).buffer(),
    );
    has(&error.unwrap_err(), is_invalid, &["out", "needs 100"]);
}

#[test]
fn arguments_are_checked() {
    let Some(card) = crate::common::open() else { return };
    let (mut memory, input) = (card.allocate(100).unwrap(), card.allocate(64).unwrap());
    let input = input.view(0..64);
    let mut out = memory.view_mut(0..100);
    for block in [0, 1, 65] {
        let error = card.sign_encode(input.buffer(), None, block, out.buffer()).unwrap_err();
        has(&error, is_invalid, &["block", "multiple of 64"]);
    }
    let error = card.average(input.buffer(), 9, out.buffer()).unwrap_err();
    has(&error, is_invalid, &["shift", "9, above 8"]);
    let format = IntFormat { symmetric: false, ..FORMAT };
    let shared = Shared { format, size: CodeSize::One, magnitudes: input.buffer() };
    let error = card.int_encode_shared(input.buffer(), None, Rounding::Nearest, shared, out.buffer());
    has(&error.unwrap_err(), is_invalid, &["format", "asymmetric"]);
}

#[test]
#[should_panic(expected = "60..101 of 100 words")]
fn a_view_beyond_the_memory_panics() {
    // Without a double nothing is shown.
    let Some(card) = crate::common::open() else { panic!("60..101 of 100 words") };
    card.allocate(100).unwrap().view(60..101);
}

#[test]
fn memory_that_there_is_not_is_an_error() {
    let Some(driver) = crate::common::failing("memory=65536.calls") else { return };
    let card = crate::common::open_on(&driver).unwrap();
    let error = card.allocate(1 << 20).unwrap_err();
    has(&error, is_vendor, &["cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", "smaller vector"]);
    // Nor is the pool's memory lost for others.
    drop(card.to_read(vec![1; 15_000]).unwrap());
    assert_eq!(card.allocate(16_000).unwrap().words(), 16_000);
    drop(card.to_read(vec![1; 9_000]).unwrap());
    drop(card.to_read(vec![1; 16_000]).unwrap());
}

/// A card whose launch fails in the middle of a call: all ranks have the cause, with its words.
#[test]
fn a_card_that_fails_ends_the_call_on_all_ranks() {
    const ELEMENTS: usize = 5000;
    // The double fails at every place of the call: encoders, sums, decoders.
    for launches in 0..4 {
        let Some(driver) = crate::common::failing(&format!("launch={launches}")) else { return };
        let errors = in_process::run(2, |comm| {
            let codec = || Arc::new(SignL1::default());
            if comm.group().rank() == 0 {
                let card = crate::common::open_on(&driver).unwrap();
                let mut vector = card.allocate(ELEMENTS).unwrap();
                let mut state = CompressionState::on(&*comm, card, codec(), ELEMENTS).unwrap();
                comm.compressed_all_reduce_on(&mut vector, ReduceOp::Sum, &mut state).err()
            } else {
                let host = HostKernels(Kernels::best());
                let mut vector = host.allocate(ELEMENTS).unwrap();
                let mut state = CompressionState::on(&*comm, host, codec(), ELEMENTS).unwrap();
                comm.compressed_all_reduce_on(&mut vector, ReduceOp::Sum, &mut state).err()
            }
        });
        let own = errors[0].as_ref().unwrap();
        has(own.root_cause(), is_vendor, &["CUDA_ERROR_LAUNCH_FAILED", "restart the process"]);
        // A decoder fails when the others have all that they need.
        if let Some(other) = &errors[1] {
            assert_eq!(other.root_cause().to_string(), own.root_cause().to_string());
        }
    }
}

#[test]
fn a_card_that_is_opened_twice_has_one_memory() {
    let (Some(card), Some(other)) = (crate::common::open(), crate::common::open()) else { return };
    let mut vector = other.allocate(64).unwrap();
    let comm = unisono_collectives::Solo::new();
    let mut state = CompressionState::on(&comm, card, Arc::new(Int8::default()), 64).unwrap();
    comm.compressed_all_reduce_on(&mut vector, ReduceOp::Sum, &mut state).unwrap();
}

/// Memory of a user's own.
#[test]
fn addresses_of_users_are_checked() {
    let Some(card) = crate::common::open() else { return };
    let mut own = card.allocate(64).unwrap();
    card.write(&[2.5f32.to_bits(); 64], &mut own, 0).unwrap();
    let address = match own.view(0..64) {
        unisono_compression::View::Device(buffer) => buffer.spans()[0].address() as u64,
        unisono_compression::View::Host(_) => panic!("on a device"),
    };
    // SAFETY: an address that is no memory of the card is refused, and the rest is `own`, which lives longer.
    let from_raw = |address, words| unsafe { card.from_raw(address, words) };
    has(&from_raw(16, 4).unwrap_err(), is_invalid, &["address", "0x10", "no memory of"]);
    has(&from_raw(address + 2, 4).unwrap_err(), is_invalid, &["multiple of 4"]);
    has(&from_raw(address, usize::MAX / 2).unwrap_err(), is_invalid, &["exceed the address space"]);
    let mut tensor = from_raw(address, 64).unwrap();
    let comm = unisono_collectives::Solo::new();
    let mut state = CompressionState::on(&comm, card.clone(), Arc::new(SignL1::default()), 64).unwrap();
    comm.compressed_all_reduce_on(&mut tensor, ReduceOp::Sum, &mut state).unwrap();
    drop(tensor);
    let mut words = [0; 64];
    card.read(&own, 0, &mut words).unwrap();
    assert_eq!(words, [2.5f32.to_bits(); 64]);
}
