//! NVIDIA's compiler from CUDA C++ to the code of a card, as a library. It needs neither a card nor a driver.

#![expect(unsafe_code, reason = "calls NVIDIA's compiler")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;

use unisono_communicator::{Error, Result, beginning};
use unisono_vendor_library::{Library, functions};

use crate::context::Capability;
use crate::driver::{Handle, VERSION_MIN, Version};
use crate::module::Code;

functions! {
    /// The compiler's functions, with the signatures of `nvrtc.h` (CUDA 12.9).
    Table {
        required {
            version: "nvrtcVersion" (*mut c_int, *mut c_int);
            get_num_supported_archs: "nvrtcGetNumSupportedArchs" (*mut c_int);
            get_supported_archs: "nvrtcGetSupportedArchs" (*mut c_int);
            create_program: "nvrtcCreateProgram" (
                *mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
            );
            destroy_program: "nvrtcDestroyProgram" (*mut Handle);
            compile_program: "nvrtcCompileProgram" (Handle, c_int, *const *const c_char);
            get_log_size: "nvrtcGetProgramLogSize" (Handle, *mut usize);
            get_log: "nvrtcGetProgramLog" (Handle, *mut c_char);
            get_cubin_size: "nvrtcGetCUBINSize" (Handle, *mut usize);
            get_cubin: "nvrtcGetCUBIN" (Handle, *mut c_char);
            get_ptx_size: "nvrtcGetPTXSize" (Handle, *mut usize);
            get_ptx: "nvrtcGetPTX" (Handle, *mut c_char);
        }
    }
}

const REMEDY: &str = "install NVRTC of the driver's major version (CUDA's toolkit has it, and the wheel \
                      nvidia-cuda-nvrtc), give the path of its libnvrtc.so, or bring code that was compiled before";

/// The newest major version that is looked for.
const MAJOR_MAX: u32 = 20;

/// The longest part of a compiler's log that an error holds.
const LOG_BYTES_MAX: usize = 2000;

/// The compiler's library.
pub struct Nvrtc {
    table: Table,
    version: Version,
}

impl fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nvrtc({}, CUDA {})", self.table.library.file(), self.version)
    }
}

/// A program.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its name in errors.
    pub name: &'a str,
    /// CUDA C++.
    pub text: &'a str,
    /// The files that it includes: names and texts.
    pub headers: &'a [(&'a str, &'a str)],
    /// Options, such as `--fmad=false`; the architecture is added.
    pub options: &'a [&'a str],
}

/// A program that the compiler holds.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    handle: Handle,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: it was created, and is destroyed once.
        unsafe { (self.nvrtc.table.destroy_program)(&mut self.handle) };
    }
}

impl Nvrtc {
    /// Opens the library at `path`, or else the system's, of `major` or the newest before it: a driver of `major` may
    /// not load the code of a newer compiler.
    ///
    /// # Errors
    /// [`Error::LibraryMissing`] when there is none from CUDA 12.0 on.
    pub fn open(path: Option<&Path>, major: u32) -> Result<Nvrtc> {
        let majors = (VERSION_MIN.major..=major.min(MAJOR_MAX)).rev();
        let candidates: Vec<PathBuf> = match path {
            Some(path) => vec![path.to_owned()],
            None => majors.map(|major| format!("libnvrtc.so.{major}").into()).collect(),
        };
        let table = Table::new(Library::open("NVRTC", &candidates, REMEDY)?)?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: it writes two numbers.
        let code = unsafe { (table.version)(&mut major, &mut minor) };
        let version = Version { major: major.unsigned_abs(), minor: minor.unsigned_abs() };
        let nvrtc = Nvrtc { table, version };
        nvrtc.check("nvrtcVersion", code)?;
        if version < VERSION_MIN {
            return Err(nvrtc
                .table
                .library
                .unusable(&format!("is of CUDA {version}, older than {VERSION_MIN}")));
        }
        Ok(nvrtc)
    }

    /// The version of CUDA that it belongs to.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The cards that it compiles for, in ascending order.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    pub fn capabilities(&self) -> Result<Vec<Capability>> {
        let mut count = 0;
        // SAFETY: it writes one number.
        let code = unsafe { (self.table.get_num_supported_archs)(&mut count) };
        self.check("nvrtcGetNumSupportedArchs", code)?;
        let mut numbers: Vec<c_int> = vec![0; count.unsigned_abs() as usize];
        // SAFETY: it writes as many numbers as it has just said.
        let code = unsafe { (self.table.get_supported_archs)(numbers.as_mut_ptr()) };
        self.check("nvrtcGetSupportedArchs", code)?;
        Ok(numbers.into_iter().map(|number| Capability::from_number(number.unsigned_abs())).collect())
    }

    /// Compiles for a card: to its own code if this compiler knows it, else, for a card that is newer than the
    /// compiler, to PTX, which the driver compiles.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the compiler's words, file and line for a program that is not right;
    /// [`Error::Unsupported`] for a card that is too old for this compiler; [`Error::Vendor`].
    pub fn compile(&self, source: &Source<'_>, card: Capability) -> Result<Code> {
        let known = self.capabilities()?;
        if known.contains(&card) {
            let program = self.program(source, &format!("--gpu-architecture=sm_{}", card.number()))?;
            return program.take("nvrtcGetCUBIN", self.table.get_cubin_size, self.table.get_cubin);
        }
        let Some(nearest) = known.iter().rev().find(|known| **known < card) else {
            let oldest = known.first().map_or("nothing".to_owned(), |oldest| format!("{oldest} and later"));
            return Err(Error::Unsupported {
                what: format!("code for {card}: it compiles for {oldest}"),
                backend: "NVRTC",
                instead: Some("an older NVRTC, or the kernels of the processor".to_owned()),
            });
        };
        let option = format!("--gpu-architecture=compute_{}", nearest.number());
        self.program(source, &option)?.take("nvrtcGetPTX", self.table.get_ptx_size, self.table.get_ptx)
    }

    /// Compiles with one more option.
    fn program(&self, source: &Source<'_>, option: &str) -> Result<Program<'_>> {
        let text = |text: &str| {
            CString::new(text).map_err(|_| Error::invalid("source", format!("{} has a zero", source.name)))
        };
        let headers = source.headers.iter().map(|(name, content)| Ok((text(name)?, text(content)?)));
        let (names, contents): (Vec<CString>, Vec<CString>) =
            headers.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let options = source.options.iter().copied().chain([option]).map(text).collect::<Result<Vec<_>>>()?;
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let (names, contents, options) =
            (pointers(&names), pointers(&contents), (pointers(&options), options));
        let mut handle = ptr::null_mut();
        // SAFETY: it writes one handle, and reads strings with zeros at their ends, as many as it is told; they live
        // until it returns.
        let code = unsafe {
            (self.table.create_program)(
                &mut handle,
                text(source.text)?.as_ptr(),
                text(source.name)?.as_ptr(),
                names.len() as c_int,
                contents.as_ptr(),
                names.as_ptr(),
            )
        };
        self.check("nvrtcCreateProgram", code)?;
        let program = Program { nvrtc: self, handle };
        // SAFETY: the program lives, and so do the options.
        let code =
            unsafe { (self.table.compile_program)(handle, options.0.len() as c_int, options.0.as_ptr()) };
        match code {
            0 => Ok(program),
            // NVRTC_ERROR_COMPILATION.
            6 => Err(Error::invalid("source", program.log()?)),
            code => Err(self.error("nvrtcCompileProgram", code)),
        }
    }

    fn check(&self, call: &str, code: c_int) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.error(call, code)) }
    }

    fn error(&self, call: &str, code: c_int) -> Error {
        let (text, remedy) = match code {
            1 => ("out of memory", "free memory"),
            5 => ("invalid option", "check the options; another version may know other ones"),
            7 => ("builtin operation failure", "put libnvrtc-builtins of the same version beside libnvrtc"),
            _ => ("see nvrtcResult in NVRTC's documentation", "try another version of NVRTC"),
        };
        Error::Vendor {
            library: self.table.library.file().into(),
            call: call.into(),
            code,
            text: text.into(),
            remedy: remedy.into(),
        }
    }
}

type GetSize = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
type GetBytes = unsafe extern "C" fn(Handle, *mut c_char) -> c_int;

impl Program<'_> {
    /// The bytes that a pair of functions of the compiler gives.
    fn bytes(&self, call: &str, size: GetSize, get: GetBytes) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: it writes one number.
        self.nvrtc.check(call, unsafe { size(self.handle, &mut bytes) })?;
        let mut buffer = vec![0u8; bytes];
        // SAFETY: it writes as many bytes as it has just said.
        self.nvrtc.check(call, unsafe { get(self.handle, buffer.as_mut_ptr().cast()) })?;
        Ok(buffer)
    }

    fn take(&self, call: &str, size: GetSize, get: GetBytes) -> Result<Code> {
        self.bytes(call, size, get).map(Code::new)
    }

    /// The messages of the compiler, up to the first zero, cut to a length that errors can have.
    fn log(&self) -> Result<String> {
        let bytes =
            self.bytes("nvrtcGetProgramLog", self.nvrtc.table.get_log_size, self.nvrtc.table.get_log)?;
        let text = CStr::from_bytes_until_nul(&bytes).map(CStr::to_string_lossy).unwrap_or_default();
        Ok(beginning(&text, LOG_BYTES_MAX).trim_end().to_owned())
    }
}
