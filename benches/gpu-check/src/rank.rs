//! What a process does that this program has started as a rank.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::Communicator;
use unisono_job::Job;
use unisono_job::config::Config;
use unisono_offload::{HostMemory, OffloadOptions};
use unisono_offload_nccl::{CudaDevice, Nccl, NcclCommunicator, NcclOptions};
use unisono_tests::bits;
use unisono_tests::on_device::moved::OnDevice;
use unisono_transport_tcp::Tcp;

use crate::code::{COMBINE, code};
use crate::direct::Direct;
use crate::options::{Options, Part, RankOptions};
use crate::overhead::Setting;
use crate::report::{Check, Line, check};
use crate::{calls, typed};

/// Until the communicator is there.
const INIT_TIMEOUT: Duration = Duration::from_secs(60);

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
        let companion = Job::join(&config, &Tcp)?.companion()?;
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

    fn overhead(&self, options: &Options, lines: &mut Lines) -> Result<(), String> {
        let (sizes, rounds) = if options.double { (SIZES_OF_DOUBLE, 1) } else { (SIZES, options.rounds) };
        let measured = || {
            let context =
                CudaDevice::open(options.driver_file().as_deref(), options.device, &code(options, COMBINE))?;
            let context = context.context();
            let companion = self.comm.companion();
            let companion = companion.as_deref().unwrap_or(&*self.comm);
            let direct = context.with_current(|| Direct::new(self.library.library(), companion))?;
            let setting = Setting { comm: &self.comm, direct: &direct, place: &self.place, context };
            let rows: unisono_communicator::Result<Vec<_>> =
                sizes.iter().map(|&bytes| setting.measure(bytes, rounds)).collect();
            let rows = rows?;
            context.with_current(|| direct.close())?;
            Ok::<_, unisono_communicator::Error>(rows)
        };
        let rows = match measured() {
            Ok(rows) => rows,
            Err(error) => vec![Err(error.to_string())],
        };
        for row in rows {
            let name = self.name("NCCL's own all_reduce and unisono's");
            lines.write(&Line::Check(Check { name, failure: row.as_ref().err().cloned() }))?;
            if let (Ok(row), 0, false) = (row, self.comm.group().rank(), options.double) {
                lines.write(&Line::Overhead(row))?;
            }
        }
        Ok(())
    }
}
