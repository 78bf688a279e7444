//! NVRTC from its wheel, without a card or a driver: its code, and its messages.

use std::path::Path;
use std::process::Command;

use unisono_communicator::Error;
use unisono_cuda::{Capability, Nvrtc, Source};
use unisono_tests::cuda::{driver_double, nvrtc_file};

const TWICE: Source<'static> = Source {
    name: "twice.cu",
    text: "#include \"two.cuh\"\nextern \"C\" __global__ void twice(float* x) { x[threadIdx.x] *= TWO; }\n",
    headers: &[("two.cuh", "#define TWO 2.0f\n")],
    options: &["--std=c++17"],
};

fn nvrtc() -> Option<Nvrtc> {
    Some(Nvrtc::open(Some(&nvrtc_file("libnvrtc.so.12")?), 12).unwrap())
}

#[test]
fn code_is_compiled_for_a_card() {
    let Some(nvrtc) = nvrtc() else { return };
    let known = nvrtc.capabilities().unwrap();
    for number in [80, 90, 100] {
        let card = Capability::from_number(number);
        assert!(known.contains(&card), "{known:?}");
        assert!(nvrtc.compile(&TWICE, card).unwrap().bytes().starts_with(b"\x7fELF"));
    }
}

/// A card of the future gets PTX, which its driver compiles.
#[test]
fn newer_cards_get_code_that_the_driver_compiles() {
    let Some(nvrtc) = nvrtc() else { return };
    let code = nvrtc.compile(&TWICE, Capability::from_number(990)).unwrap();
    let text = String::from_utf8(code.bytes().to_vec()).unwrap();
    let newest = nvrtc.capabilities().unwrap().last().unwrap().number();
    assert!(text.contains(&format!(".target sm_{newest}")) && text.contains(".entry twice"), "{text}");
}

#[test]
fn cards_that_are_too_old_are_refused() {
    let Some(nvrtc) = nvrtc() else { return };
    let error = nvrtc.compile(&TWICE, Capability::from_number(30)).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("sm_30") && text.contains("compiles for sm_50 and later"), "{text}");
    assert!(text.contains("an older NVRTC"), "{text}");
}

#[test]
fn a_broken_program_is_an_error_with_its_line() {
    let Some(nvrtc) = nvrtc() else { return };
    let text = "\n\nextern \"C\" __global__ void broken() { undeclared = 1; }";
    let error = nvrtc.compile(&Source { text, ..TWICE }, Capability::from_number(80)).unwrap_err();
    let Error::InvalidArgument { argument: "source", problem, .. } = &error else { panic!("{error}") };
    assert!(problem.contains("twice.cu(3)") && problem.contains("undeclared"), "{problem}");
    let missing = nvrtc.compile(&Source { headers: &[], ..TWICE }, Capability::from_number(80)).unwrap_err();
    assert!(missing.to_string().contains("two.cuh"), "{missing}");
    let long = "x ".repeat(100_000);
    let error = nvrtc.compile(&Source { text: &long, ..TWICE }, Capability::from_number(80)).unwrap_err();
    assert!(error.to_string().len() < 3000);
    let error = nvrtc.compile(&Source { text: "a\0b", ..TWICE }, Capability::from_number(80)).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
}

#[test]
fn wrong_options_are_an_error_of_the_compiler() {
    let Some(nvrtc) = nvrtc() else { return };
    let source = Source { options: &["--no-such-option"], ..TWICE };
    let error = nvrtc.compile(&source, Capability::from_number(80)).unwrap_err();
    let Error::Vendor { call, code: 5, .. } = &error else { panic!("{error}") };
    assert_eq!(&**call, "nvrtcCompileProgram");
    assert!(error.to_string().contains("invalid option"), "{error}");
}

#[test]
fn a_missing_compiler_is_an_error_that_says_what_to_do() {
    let error = Nvrtc::open(Some(Path::new("/nowhere/libnvrtc.so")), 12).unwrap_err();
    assert!(matches!(error, Error::LibraryMissing { .. }), "{error}");
    assert!(error.to_string().contains("wheel nvidia-cuda-nvrtc"), "{error}");
    // The newest that the driver can load comes first. This machine has none where the system looks, or it is opened.
    if let Err(Error::LibraryMissing { tried, .. }) = Nvrtc::open(None, 13) {
        assert!(
            tried[0].starts_with("libnvrtc.so.13") && tried[1].starts_with("libnvrtc.so.12"),
            "{tried:?}"
        );
    }
    let Some(double) = driver_double() else { return };
    let error = Nvrtc::open(Some(double), 12).unwrap_err();
    assert!(error.to_string().contains("has no nvrtcVersion"), "{error}");
}

/// A library with NVRTC's functions, of which only the function for its version is called.
const OLD: &str = r#"
#define F(name) extern "C" int name() { return 7; }
F(nvrtcGetNumSupportedArchs) F(nvrtcGetSupportedArchs) F(nvrtcCreateProgram) F(nvrtcDestroyProgram)
F(nvrtcCompileProgram) F(nvrtcGetProgramLogSize) F(nvrtcGetProgramLog) F(nvrtcGetCUBINSize) F(nvrtcGetCUBIN)
F(nvrtcGetPTXSize) F(nvrtcGetPTX)
extern "C" int nvrtcVersion(int* major, int* minor) { *major = 11, *minor = 8; return 0; }
"#;

#[test]
fn an_old_compiler_is_refused() {
    // The double says whether there is a compiler for the host.
    let Some(double) = driver_double() else { return };
    let (text, library) = (double.with_file_name("old.cc"), double.with_file_name("libnvrtc-old.so"));
    std::fs::write(&text, OLD).unwrap();
    let status = Command::new("g++").args(["-shared", "-fPIC", "-o"]).args([&library, &text]).status();
    assert!(status.unwrap().success());
    let error = Nvrtc::open(Some(&library), 12).unwrap_err();
    assert!(matches!(error, Error::LibraryMissing { .. }), "{error}");
    assert!(error.to_string().contains("is of CUDA 11.8, older than 12.0"), "{error}");
}
