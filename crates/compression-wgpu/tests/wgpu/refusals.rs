//! Refusals and failures: each is an error with advice, and nothing panics.

use unisono_communicator::{Buffer, BufferMut, DeviceBuffer, Division, Error, Result};
use unisono_compression::{CodecKernels, DeviceMemory, KernelDevice, View, ViewMut};
use unisono_compression_wgpu::{AdapterChoice, OpenOptions, WgpuCode, WgpuKernels, adapters, wgpu};

/// Runs a kernel on memory: the sum of `input`.
fn sum(kernels: &WgpuKernels, input: &View<'_>, mut output: ViewMut<'_>) -> Result<()> {
    kernels.sum(&[input.buffer()], output.buffer())
}

fn assert_unsupported(result: Result<()>, texts: &[&str]) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Unsupported { backend: "wgpu", .. }), "{error}");
    assert!(texts.iter().all(|text| error.to_string().contains(text)), "{error}");
    assert!(error.is_before_start());
}

fn assert_invalid(result: Result<()>, argument: &str, text: &str) {
    let error = result.unwrap_err();
    let Error::InvalidArgument { argument: found, problem, .. } = &error else { panic!("{error}") };
    assert!(*found == argument && problem.contains(text), "{error}");
}

#[test]
fn an_adapter_that_is_not_there_is_an_error_that_lists_those_that_are() {
    let adapter = AdapterChoice::Named("no such adapter".to_owned());
    let error = WgpuKernels::open(&OpenOptions { adapter, limits: None }).unwrap_err();
    let Error::LibraryMissing { library, tried, .. } = &error else { panic!("{error}") };
    assert!(library.contains("no such adapter"), "{library}");
    let names: Vec<String> = adapters().into_iter().map(|info| info.name).collect();
    assert_eq!(tried.len(), names.len().max(1));
    for (name, tried) in names.iter().zip(tried) {
        assert!(tried.starts_with(name), "{tried}");
    }
}

#[test]
fn limits_that_are_too_small_are_named() {
    let Some(kernels) = crate::support::device() else { return };
    let whole = kernels.device().limits();
    let open = |limits| {
        WgpuKernels::open(&OpenOptions { adapter: AdapterChoice::Software, limits: Some(limits) }).map(drop)
    };
    let storage_buffers = wgpu::Limits { max_storage_buffers_per_shader_stage: 4, ..whole.clone() };
    assert_unsupported(
        open(storage_buffers),
        &["max_storage_buffers_per_shader_stage = 8", "llvmpipe", "has 4"],
    );
    let threads = wgpu::Limits { max_compute_invocations_per_workgroup: 32, ..whole.clone() };
    assert_unsupported(open(threads), &["max_compute_invocations_per_workgroup = 64", "has 32"]);

    let small = wgpu::Limits { max_buffer_size: 4096, max_storage_buffer_binding_size: 4096, ..whole };
    let kernels = crate::support::open(Some(small)).unwrap();
    assert_unsupported(kernels.allocate(1025).map(drop), &["max_buffer_size", "has 4096"]);
    // A whole block does not fit into a binding, beside the bytes that its alignment may cost.
    let (input, mut output) = (kernels.allocate(1024).unwrap(), kernels.allocate(33).unwrap());
    let mut out = output.view_mut(0..33);
    let encoded = kernels.sign_encode(input.view(0..1024).buffer(), None, 1024, out.buffer()).map(drop);
    assert_unsupported(
        encoded,
        &["sign_encode", "blocks of 1024", "max_storage_buffer_binding_size", "has 4096"],
    );
}

#[test]
fn memory_that_kernels_do_not_reach_is_refused() {
    let Some(kernels) = crate::support::device() else { return };
    let (input, mut output) = (kernels.allocate(8).unwrap(), kernels.allocate(8).unwrap());
    sum(kernels, &input.view(0..8), output.view_mut(0..8)).unwrap();

    assert_unsupported(
        kernels.sum(&[Buffer::of(&[1.0f32; 8])], output.view_mut(0..8).buffer()),
        &["of the host"],
    );
    let on_host = &mut [0.0f32; 8];
    assert_unsupported(kernels.sum(&[input.view(0..8).buffer()], BufferMut::of(on_host)), &["of the host"]);

    let View::Device(first) = input.view(0..4) else { panic!("{input:?}") };
    let View::Device(second) = input.view(4..8) else { panic!("{input:?}") };
    let list = DeviceBuffer::list([first, second], Division::Coalesced);
    assert_unsupported(
        kernels.sum(&[Buffer::Device(&list)], output.view_mut(0..8).buffer()),
        &["a list of spans"],
    );

    let other = crate::support::open(None).unwrap();
    let elsewhere = other.allocate(8).unwrap();
    let texts = &["on another device", "llvmpipe", "allocate"];
    assert_unsupported(sum(kernels, &elsewhere.view(0..8), output.view_mut(0..8)), texts);
    assert_unsupported(kernels.read(&elsewhere, 0, &mut [0; 8]), texts);
    assert_unsupported(kernels.copy(&elsewhere, 0, &mut output, 0..8), texts);
    assert_unsupported(other.write(&[1], &mut output, 0), texts);

    let View::Device(gone) = kernels.allocate(8).unwrap().view(0..8) else { panic!("not on a device") };
    let result = kernels.sum(&[Buffer::Device(&gone)], output.view_mut(0..8).buffer());
    assert_unsupported(result, &["memory that is gone"]);
}

#[test]
fn lengths_and_blocks_that_do_not_fit_are_refused() {
    let Some(kernels) = crate::support::device() else { return };
    let (input, mut output) = (kernels.allocate(100).unwrap(), kernels.allocate(100).unwrap());
    assert_invalid(sum(kernels, &input.view(0..7), output.view_mut(0..8)), "parts", "7 words for 8 elements");
    for block in [0, 32, 100] {
        let mut out = output.view_mut(0..3);
        let encoded = kernels.sign_encode(input.view(0..64).buffer(), None, block, out.buffer());
        assert_invalid(encoded.map(drop), "block", "a multiple of 64");
    }
    let mut out = output.view_mut(0..4);
    let encoded = kernels.sign_encode(input.view(0..64).buffer(), None, 64, out.buffer());
    assert_invalid(encoded.map(drop), "out", "4 words for 64 elements, which have 3");
    let mut new = output.view_mut(0..8);
    assert_invalid(kernels.average(input.view(0..8).buffer(), 9, new.buffer()), "shift", "at most 8");
    assert_invalid(kernels.read(&input, 96, &mut [0; 5]), "memory", "5 words from word 96 on");
}

#[test]
fn one_allocation_is_not_read_and_written_by_a_kernel() {
    let Some(kernels) = crate::support::device() else { return };
    let mut memory = kernels.allocate(16).unwrap();
    let View::Device(input) = memory.view(0..8) else { panic!("{memory:?}") };
    let result = kernels.sum(&[Buffer::Device(&input)], memory.view_mut(8..16).buffer());
    assert_unsupported(result, &["read and written"]);
}

/// The arithmetic of the shader must not overflow.
#[test]
fn a_block_may_be_much_longer_than_the_vector() {
    let Some(kernels) = crate::support::device() else { return };
    let block = u32::MAX as usize / 64 * 64;
    let mut input = kernels.allocate(3).unwrap();
    kernels.write(&[1.0f32, -2.0, 3.0].map(f32::to_bits), &mut input, 0).unwrap();
    let mut output = kernels.allocate(2).unwrap();
    let bad = kernels.sign_encode(input.view(0..3).buffer(), None, block, output.view_mut(0..2).buffer());
    let mut words = [0; 2];
    kernels.read(&output, 0, &mut words).unwrap();
    assert_eq!((bad.unwrap(), words), (None, [2.0f32.to_bits(), 0b101]));
}

/// A program may work on memory of the kernels, on its own device.
#[test]
fn a_program_shares_its_device_with_the_kernels() {
    let Some(kernels) = crate::support::device() else { return };
    let shared = WgpuKernels::on_device(kernels.device().clone(), kernels.queue().clone()).unwrap();
    let (input, mut output) = (shared.allocate(8).unwrap(), shared.allocate(8).unwrap());
    shared.queue().write_buffer(input.buffer(), 4, &1.5f32.to_le_bytes());
    sum(&shared, &input.view(0..8), output.view_mut(0..8)).unwrap();
    let mut words = [0; 2];
    shared.read(&output, 0, &mut words).unwrap();
    assert_eq!(words.map(f32::from_bits), [0.0, 1.5]);
}

fn assert_lost<T: std::fmt::Debug>(result: Result<T>) {
    let error = result.unwrap_err();
    let Error::Vendor { library, code, remedy, .. } = &error else { panic!("{error}") };
    assert!(library.contains("llvmpipe") && *code == WgpuCode::Lost as i32, "{error}");
    assert!(remedy.contains("open it again"), "{error}");
    assert!(!error.is_before_start());
}

#[test]
fn every_call_on_a_lost_device_says_so() {
    let Some(kernels) = crate::support::open(None) else { return };
    let (input, mut output) = (kernels.allocate(4096).unwrap(), kernels.allocate(4096).unwrap());
    let message = kernels.to_write(vec![0; 100]).unwrap();
    sum(&kernels, &input.view(0..4096), output.view_mut(0..4096)).unwrap();
    kernels.device().destroy();
    // A kernel whose result nobody waits for may be taken, and is not run; a call that waits for a result fails.
    assert_lost(kernels.bf16_encode(input.view(0..4096).buffer(), output.view_mut(0..2048).buffer()));
    assert_lost(sum(&kernels, &input.view(0..4096), output.view_mut(0..4096)));
    assert_lost(kernels.read(&input, 0, &mut [0; 8]));
    assert_lost(kernels.write(&[1; 8], &mut output, 0));
    assert_lost(kernels.allocate(8));
    assert_lost(kernels.to_read(vec![1; 8]));
    assert_lost(kernels.written(message));
    // Another device of the same adapter goes on.
    let again = crate::support::open(None).unwrap();
    again.allocate(8).unwrap();
}

/// Destroyed while another thread is within calls.
#[test]
fn a_device_that_is_lost_in_the_middle_of_calls_ends_them() {
    let Some(kernels) = crate::support::open(None) else { return };
    let elements = 1 << 18;
    let input = kernels.allocate(elements).unwrap();
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let mut output = kernels.allocate(elements / 2).unwrap();
            let encode = |_| {
                kernels
                    .bf16_encode(input.view(0..elements).buffer(), output.view_mut(0..elements / 2).buffer())
            };
            (0..).map(encode).find_map(Result::err).unwrap()
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        kernels.device().destroy();
        assert_lost::<()>(Err(calls.join().unwrap()));
    });
}
