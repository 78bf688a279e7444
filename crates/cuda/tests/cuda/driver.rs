//! The driver's functions, on its test double: their effects, and their errors when something is missing or fails.

#![expect(unsafe_code, reason = "memory and kernels of the driver's double")]
use std::path::{Path, PathBuf};

use unisono_communicator::Error;
use unisono_cuda::{Argument, Capability, Code, Context, Driver, EventKind, Grid, Memory, StreamKind};
use unisono_tests::cuda::{DOUBLE_CODE, double_without, driver_double, failing_double};

fn context() -> Option<Context> {
    Some(Driver::open(Some(driver_double()?)).unwrap().context(0).unwrap())
}

/// The error of opening this driver.
fn refusal(path: &Path) -> Error {
    Driver::open(Some(path)).unwrap_err()
}

fn code(error: &Error) -> i32 {
    let Error::Vendor { code, .. } = error else { panic!("{error}") };
    *code
}

#[test]
fn a_missing_driver_is_an_error_that_says_what_to_do() {
    let error = refusal(Path::new("/nowhere/libcuda.so.1"));
    let Error::LibraryMissing { library, tried, remedy } = &error else { panic!("{error}") };
    assert_eq!((&**library, tried.len()), ("CUDA driver", 1));
    assert!(tried[0].starts_with("/nowhere/libcuda.so.1: ") && remedy.contains("R525"), "{error}");
    // A file that is there, but is no library.
    let error = refusal(&PathBuf::from(file!()).canonicalize().unwrap_or("/etc/passwd".into()));
    assert!(matches!(error, Error::LibraryMissing { .. }), "{error}");
    // The system's, wherever there is none.
    if let Err(error) = Driver::open(None) {
        assert!(matches!(error, Error::LibraryMissing { .. } | Error::Vendor { .. }), "{error}");
        assert!(error.to_string().contains("libcuda.so.1"), "{error}");
    }
}

#[test]
fn a_missing_function_is_named() {
    for symbol in ["cuDriverGetVersion", "cuCtxPushCurrent_v2", "cuMemsetD32Async", "cuLaunchKernel"] {
        let Some(driver) = double_without(symbol) else { return };
        let error = refusal(&driver);
        assert!(matches!(error, Error::LibraryMissing { .. }), "{error}");
        let words = format!("has no {symbol}; install NVIDIA's driver R525 or later");
        assert!(error.to_string().contains(&words), "{error}");
    }
}

#[test]
fn an_old_driver_is_refused() {
    let Some(old) = failing_double("version=11080") else { return };
    let error = refusal(&old);
    assert!(matches!(error, Error::LibraryMissing { .. }), "{error}");
    assert!(error.to_string().contains("is of CUDA 11.8, older than 12.0; install"), "{error}");
    let newer = Driver::open(Some(&failing_double("version=13020").unwrap())).unwrap();
    assert_eq!((newer.version().major, newer.version().minor), (13, 2));
}

#[test]
fn without_a_device_nothing_is_opened() {
    let Some(none) = failing_double("no-device=1") else { return };
    let error = refusal(&none);
    assert_eq!(code(&error), 100);
    let text = error.to_string();
    assert!(text.contains("cuInit of ") && text.contains("CUDA_ERROR_NO_DEVICE: no CUDA"), "{text}");
    assert!(text.contains("nvidia-smi"), "{text}");
}

#[test]
fn devices_are_counted_and_described() {
    let Some(double) = driver_double() else { return };
    let driver = Driver::open(Some(double)).unwrap();
    assert_eq!(driver.devices().unwrap(), 1);
    let context = driver.context(0).unwrap();
    assert_eq!((context.ordinal(), context.capability().to_string()), (0, "sm_90".to_owned()));
    assert!(context.name().contains("test double"));
    let error = driver.context(1).unwrap_err();
    assert_eq!(error.to_string(), "invalid device: 1, and the driver has 1");
}

#[test]
fn capabilities_are_compared_as_cards_run_code() {
    let card = Capability::from_number;
    assert_eq!(card(121), Capability { major: 12, minor: 1 });
    assert_eq!(card(121).number(), 121);
    assert!(card(89).runs(card(80)) && card(80).runs(card(80)));
    assert!(!card(80).runs(card(89)) && !card(90).runs(card(80)));
}

#[test]
fn memory_comes_and_goes() {
    let Some(context) = context() else { return };
    let stream = context.stream().unwrap();
    let mut memory = context.allocate(1000).unwrap();
    let bytes: Vec<u8> = (0..1000).map(|index| index as u8).collect();
    memory.write(0, &bytes, &stream).unwrap();
    memory.fill(100, 0x0403_0201, 2, &stream).unwrap();
    let mut copy = context.allocate(20).unwrap();
    copy.copy(4, &memory, 98..112, &stream).unwrap();
    let mut found = [0; 14];
    copy.read(4, &mut found, &stream).unwrap();
    assert_eq!(found, [98, 99, 1, 2, 3, 4, 1, 2, 3, 4, 108, 109, 110, 111]);

    for error in [
        memory.write(999, &[1, 2], &stream),
        memory.write(usize::MAX, &[1], &stream),
        memory.read(1000, &mut [0], &stream),
        copy.copy(19, &memory, 0..2, &stream),
        copy.copy(0, &memory, 999..1001, &stream),
        memory.fill(0, 7, usize::MAX, &stream),
        memory.fill(2, 7, 1, &stream),
    ] {
        assert!(matches!(error, Err(Error::InvalidArgument { .. })), "{error:?}");
    }
    let mut nothing = context.allocate(0).unwrap();
    nothing.write(0, &[], &stream).unwrap();
    assert_eq!((nothing.address(), nothing.bytes()), (0, 0));
}

#[test]
fn what_is_dropped_is_free_again() {
    let Some(double) = failing_double("memory=4096.freed") else { return };
    let context = Driver::open(Some(&double)).unwrap().context(0).unwrap();
    assert_eq!(context.free_bytes().unwrap(), 4096);
    let memory = context.allocate(3000).unwrap();
    let error = context.allocate(2000).unwrap_err();
    assert_eq!((code(&error), context.free_bytes().unwrap()), (2, 1096));
    assert!(error.to_string().ends_with("free memory of the device, or give it a smaller vector"));
    drop(memory);
    assert_eq!(context.allocate(4096).map(|memory| memory.bytes()).unwrap(), 4096);
    assert_eq!(context.free_bytes().unwrap(), 4096);
}

#[test]
fn addresses_of_others_are_checked() {
    let Some(context) = context() else { return };
    let memory = context.allocate(64).unwrap();
    // SAFETY: it is not used.
    let unknown = unsafe { Memory::from_raw(&context, 0x10, 4) };
    assert!(matches!(unknown, Err(Error::InvalidArgument { argument: "address", .. })));
    // SAFETY: the allocation lives longer.
    let part = unsafe { Memory::from_raw(&context, memory.address() + 16, 8) }.unwrap();
    drop(part);
    let stream = context.stream().unwrap();
    memory.read(0, &mut [0; 64], &stream).unwrap();
}

/// `average(old, fresh, elements, shift)` on 8 elements.
fn launch(context: &Context) -> Result<Vec<u8>, Error> {
    let (stream, module) = (context.stream()?, context.load(&Code::new(DOUBLE_CODE))?);
    let function = module.function("average")?;
    let (mut old, mut fresh) = (context.allocate(32)?, context.allocate(32)?);
    old.fill(0, 1.0f32.to_bits(), 8, &stream)?;
    fresh.fill(0, 3.0f32.to_bits(), 8, &stream)?;
    let arguments = [
        Argument::Address(old.address()),
        Argument::Address(fresh.address()),
        Argument::Long(8),
        Argument::Word(2),
    ];
    // SAFETY: the arguments are the kernel's, for memory of 8 words.
    unsafe { stream.launch(&function, Grid { blocks: 1, threads: 128 }, &arguments) }?;
    let mut bytes = vec![0; 32];
    fresh.read(0, &mut bytes, &stream)?;
    Ok(bytes)
}

#[test]
fn kernels_run_on_any_thread() {
    let Some(context) = context() else { return };
    let expected = 1.5f32.to_le_bytes().repeat(8);
    assert_eq!(launch(&context).unwrap(), expected);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let context = context.clone();
            std::thread::spawn(move || launch(&context).unwrap())
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), expected);
    }
}

#[test]
fn code_and_kernels_that_there_are_not_are_errors() {
    let Some(context) = context() else { return };
    let error = context.load(&Code::new(*b"no code")).unwrap_err();
    assert_eq!(code(&error), 200);
    let module = context.load(&Code::new(DOUBLE_CODE)).unwrap();
    let error = module.function("no_such").unwrap_err();
    assert!(error.to_string().starts_with("cuModuleGetFunction(no_such) of "), "{error}");
    assert!(matches!(module.function("a\0b"), Err(Error::InvalidArgument { .. })));
}

#[test]
fn a_launch_that_fails_loses_the_context() {
    let Some(double) = failing_double("launch=1") else { return };
    let context = Driver::open(Some(&double)).unwrap().context(0).unwrap();
    launch(&context).unwrap();
    let error = launch(&context).unwrap_err();
    assert_eq!(code(&error), 719);
    assert!(error.to_string().contains("cuStreamSynchronize of "), "{error}");
    assert!(error.to_string().contains("restart the process"), "{error}");
    assert_eq!(code(&context.allocate(4).unwrap_err()), 719);
}

/// The double notices the writes of a kernel beside its memory.
#[test]
fn a_kernel_that_writes_too_much_is_found() {
    let Some(double) = failing_double("guards") else { return };
    let context = Driver::open(Some(&double)).unwrap().context(0).unwrap();
    let (stream, module) = (context.stream().unwrap(), context.load(&Code::new(DOUBLE_CODE)).unwrap());
    let function = module.function("average").unwrap();
    let (old, fresh) = (context.allocate(64).unwrap(), context.allocate(32).unwrap());
    let arguments = [
        Argument::Address(old.address()),
        Argument::Address(fresh.address()),
        Argument::Long(9),
        Argument::Word(1),
    ];
    // SAFETY: there is none: the last element is beside the memory, in a guard of the double.
    unsafe { stream.launch(&function, Grid { blocks: 1, threads: 128 }, &arguments) }.unwrap();
    assert_eq!(code(&stream.synchronize().unwrap_err()), 700);
}

/// The use of a library on top of the driver: streams and memory of its caller's.
#[test]
fn handles_of_others_are_used_and_judged() {
    let Some(context) = context() else { return };
    let (address, stream) =
        (context.allocate_raw(64).unwrap(), context.create_stream(StreamKind::NonBlocking).unwrap());
    let event = context.create_event(EventKind::Done).unwrap();
    // SAFETY: all of them are of this context and live until the end; the bytes are within the memory.
    unsafe {
        assert!(context.is_done(event).unwrap(), "nothing was recorded");
        context.upload(address, &[7; 32], stream).unwrap();
        context.copy(address + 32, address, 32, stream).unwrap();
        context.record(event, stream).unwrap();
        assert!(!context.is_done(event).unwrap(), "the double works only when somebody waits");
        let mut bytes = [0; 64];
        context.download(&mut bytes, address, stream).unwrap();
        assert_eq!(bytes, [7; 64]);
        assert!(context.is_done(event).unwrap());
        assert!(context.owns_stream(stream).unwrap() && !context.is_capturing(stream).unwrap());
        assert_eq!(code(&context.owns_stream(std::ptr::dangling_mut()).unwrap_err()), 400);
    }
    assert_eq!(context.device_of(address), Some(0));
    assert_eq!(context.device_of((&raw const event).expose_provenance() as u64), None);
    // SAFETY: none of them is used again.
    unsafe {
        context.destroy_event(event);
        context.destroy_stream(stream);
        context.free_raw(address);
    }
    assert_eq!(context.device_of(address), None);
}
