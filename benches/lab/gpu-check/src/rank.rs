//! What a process does that this program has started as a rank.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::{Communicator, Executor};
use unisono_compression::{Codec, CompressionState};
use unisono_compression_cuda::{CudaKernels, CudaOptions};
use unisono_job::Job;
use unisono_job::config::Config;
use unisono_offload::{HostMemory, OffloadOptions};
use unisono_offload_nccl::{CudaDevice, Nccl, NcclCommunicator, NcclOptions};
use unisono_tests::bits;
use unisono_tests::compressed::{averages, averages_of_processor, codecs};
use unisono_tests::on_device::moved::OnDevice;
use unisono_transport_tcp::Tcp;

use crate::code::{COMBINE, COMPRESSION, code};
use crate::direct::Direct;
use crate::options::{Options, Part, RankOptions};
use crate::overhead::Setting;
use crate::report::{Check, Line, Overhead, check};
use crate::{calls, late, typed};

/// Until the communicator is there.
const INIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Elements of compressed vectors: many pieces of messages, one rank's alone, none; a test double is slow with more.
const LENGTHS: [usize; 4] = [9001, 1, 0, (1 << 22) + 3];

/// The sizes whose overhead is measured.
const SIZES: [usize; 2] = [8, 256 << 20];

/// Those of a test double, which has no speed: whether the results are right is all that they show.
const SIZES_OF_DOUBLE: [usize; 2] = [8, 4096];

/// Where a rank writes what it has found, line by line: what comes after a crash is all that is lost.
struct Lines(File);

impl Lines {
    fn open(path: &Path) -> Result<Lines, String> {
        File::create(path).map(Lines).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn write(&mut self, line: &Line) -> Result<(), String> {
        let text = serde_json::to_string(line).map_err(|error| error.to_string())?;
        writeln!(self.0, "{text}").map_err(|error| error.to_string())
    }

    /// Whether it passed.
    fn check(&mut self, name: String, body: impl FnOnce() -> Result<(), String>) -> Result<bool, String> {
        let check = check(name, body);
        let passed = check.failure.is_none();
        self.write(&Line::Check(check)).map(|()| passed)
    }
}

/// Does the part.
pub(crate) fn run(options: &Options, rank: &RankOptions) -> Result<(), String> {
    let mut lines = Lines::open(&rank.results)?;
    match rank.part {
        Part::Compression => Err("the kernels of compression need no rank".to_owned()),
        Part::Arithmetic => arithmetic(options, &mut lines),
        Part::Calls => Seat::open(options)?.calls(&mut lines),
        Part::Compressed => Seat::open(options)?.compressed(options, &mut lines),
        Part::Late => Seat::open(options)?.late(&mut lines),
        Part::Overhead => Seat::open(options)?.overhead(options, &mut lines),
    }
}

/// The kernels that add, for every type with every operator.
fn arithmetic(options: &Options, lines: &mut Lines) -> Result<(), String> {
    let driver = options.driver_file();
    let device = CudaDevice::open(driver.as_deref(), options.device, &code(options, COMBINE));
    let device = device.map_err(|error| error.to_string())?;
    for (dtype, op) in bits::pairs() {
        let name = format!("kernel combine, {op} of {dtype}");
        lines.check(name, || {
            if !device.combining().contains(&dtype) {
                return Err("no kernels for this card".to_owned());
            }
            bits::check(&device, dtype, op)
        })?;
    }
    Ok(())
}

/// A rank with a communicator.
struct Seat {
    library: Arc<Nccl>,
    comm: Arc<NcclCommunicator>,
    place: OnDevice<Nccl>,
}

impl Seat {
    fn open(options: &Options) -> Result<Seat, String> {
        Seat::made(options).map_err(|error| error.to_string())
    }

    fn made(options: &Options) -> unisono_communicator::Result<Seat> {
        let config = Config::from_environment()?;
        let nccl = NcclOptions {
            library: options.nccl_file(),
            driver: options.driver_file(),
            device: options.device,
            kernels: code(options, COMBINE),
            blocking: false,
        };
        let library = Nccl::open(&nccl).map(Arc::new);
        let companion = Job::join(&config, &Tcp { memory: false })?.companion()?;
        let settings = OffloadOptions {
            host_memory: HostMemory::Refused,
            ..OffloadOptions::new(INIT_TIMEOUT, config.has_call_timeout())
        };
        // A rank that lacks the library tells the others so.
        let comm = NcclCommunicator::open(companion, library.clone(), &settings)?;
        let library = library?;
        let place = OnDevice::new(comm.clone(), library.clone())?;
        Ok(Seat { library, comm, place })
    }

    /// Names this rank in the name of a check.
    fn name(&self, what: &str) -> String {
        format!("{what}, rank {} of {}", self.comm.group().rank(), self.comm.group().size())
    }

    fn calls(&self, lines: &mut Lines) -> Result<(), String> {
        for dtype in typed::DTYPES {
            let name = self.name(&format!("typed calls of {dtype}"));
            lines.check(name, || typed::check(&self.comm, &self.place, dtype))?;
        }
        for subject in calls::subjects(self.comm.group().size()) {
            lines.check(self.name(&subject.name), || calls::run(&subject, &self.place).map(drop))?;
        }
        lines.check(self.name("closing"), || self.comm.close().map_err(|error| error.to_string())).map(drop)
    }

    /// Against the bits of the processor.
    fn compressed(&self, options: &Options, lines: &mut Lines) -> Result<(), String> {
        let lengths = if options.double { &LENGTHS[..3] } else { &LENGTHS[..] };
        for codec in codecs() {
            for &elements in lengths {
                let name = self.name(&format!("compressed all_reduce of {elements} by {}", codec.name()));
                lines.check(name, || self.compressed_as_on_processor(options, &codec, elements))?;
            }
        }
        Ok(())
    }

    fn compressed_as_on_processor(
        &self,
        options: &Options,
        codec: &Arc<dyn Codec>,
        elements: usize,
    ) -> Result<(), String> {
        let (driver, code) = (options.driver_file(), code(options, COMPRESSION));
        let found =
            CudaKernels::open(&CudaOptions { driver, device: options.device, code }).and_then(|device| {
                let state = CompressionState::on(&*self.comm, device.clone(), codec.clone(), elements)?;
                averages(&*self.comm, state.with_messages_on_device(&*self.comm)?, &device)
            });
        let (found, group) = (found.map_err(|error| error.to_string())?, self.comm.group());
        let right = &averages_of_processor(group.size(), codec, elements)[group.rank() as usize];
        let wrong = found.iter().zip(right).position(|(found, right)| found != right);
        wrong.map_or(Ok(()), |at| Err(format!("word {at}: {:#x} instead of {:#x}", found[at], right[at])))
    }

    fn late(&self, lines: &mut Lines) -> Result<(), String> {
        let name = self.name("a call that one rank does not make");
        lines.check(name, || late::check(&self.comm, &self.place)).map(drop)
    }

    fn overhead(&self, options: &Options, lines: &mut Lines) -> Result<(), String> {
        let is_told = self.comm.group().rank() == 0 && !options.double;
        let mut written = Ok(());
        // At once: the next size may take too long.
        let mut note = |row: Result<Overhead, String>| {
            let name = self.name("NCCL's own all_reduce and unisono's");
            let check = Line::Check(Check { name, failure: row.as_ref().err().cloned() });
            let lines_of_row = [Some(check), row.ok().filter(|_| is_told).map(Line::Overhead)];
            for line in lines_of_row.into_iter().flatten() {
                written = written.clone().and_then(|()| lines.write(&line));
            }
        };
        if let Err(error) = self.each_overhead(options, &mut note) {
            note(Err(error.to_string()));
        }
        written
    }

    fn each_overhead(
        &self,
        options: &Options,
        note: &mut dyn FnMut(Result<Overhead, String>),
    ) -> unisono_communicator::Result<()> {
        let (sizes, rounds) = if options.double { (SIZES_OF_DOUBLE, 1) } else { (SIZES, options.rounds) };
        let driver = options.driver_file();
        let device = CudaDevice::open(driver.as_deref(), options.device, &code(options, COMBINE))?;
        let (context, companion) = (device.context(), self.comm.companion());
        let companion = companion.as_deref().unwrap_or(&*self.comm);
        let direct = context.with_current(|| Direct::new(self.library.library(), companion))?;
        let setting = Setting { comm: &self.comm, companion, direct: &direct, place: &self.place, context };
        for bytes in sizes {
            note(setting.measure(bytes, rounds)?);
        }
        context.with_current(|| direct.close())
    }
}
