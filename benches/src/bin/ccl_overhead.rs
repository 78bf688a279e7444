//! The cost of oneCCL through `unisono` beside oneCCL called by its own functions, in one run of the same processes:
//! the two take turns, block by block. `unisono run -n 2 -- target/release/ccl_overhead`.
//!
//! Rank 0 prints for each size the medians of all blocks, their quartiles, and the median of the differences of
//! neighbouring blocks. Results are checked, by both ways, before and after.

#![expect(unsafe_code, reason = "calls oneCCL")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program whose output is its result")]

use std::ffi::c_void;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, DType, Executor, ReduceOp, Result};
use unisono_job::Job;
use unisono_job::config::Config;
use unisono_offload::{Elements, NativeCall, NativeOp, OffloadOptions, RawStream, Vendor};
use unisono_offload_ccl::{Ccl, CclComm, CclCommunicator, CclOptions, CclSettings, CclVendor};
use unisono_transport_tcp::Tcp;

/// Vectors, in bytes.
const SIZES: [usize; 10] =
    [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// Blocks of each way, for each size.
const BLOCKS: usize = 40;

/// The time of a block, about.
const BLOCK: Duration = Duration::from_millis(25);

/// oneCCL by its own functions.
struct Direct {
    library: CclVendor,
    comm: CclComm,
}

impl Direct {
    /// A communicator of its own for the ranks of `world`.
    fn new(world: &dyn Communicator, library: CclVendor) -> Result<Direct> {
        let (rank, ranks) = (world.group().rank(), world.group().size());
        let mut id = vec![0u8; <CclVendor as Vendor>::ID_BYTES];
        if rank == 0 {
            id = library.unique_id()?;
        }
        world.broadcast(&mut id, 0)?;
        let comm = library.init(&id, rank, ranks, &|| false, &|_| ())?;
        Ok(Direct { library, comm })
    }

    fn all_reduce(&self, buffer: &mut [f32]) -> Result<()> {
        let elements = Elements { count: buffer.len(), dtype: DType::F32, op: NativeOp::Max };
        let address = buffer.as_mut_ptr().cast::<c_void>();
        let call = NativeCall::AllReduce { input: address.cast_const(), output: address, elements };
        // SAFETY: the buffer is borrowed for the call, which blocks; every rank makes the same one.
        unsafe { self.library.call(&self.comm, &call, RawStream::HOST) }
    }
}

/// The time of one call in a block of `calls`, in microseconds.
fn block(calls: usize, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    for _ in 0..calls {
        call()?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / calls as f64)
}

/// Quartiles: the lower, the median, the upper.
fn quartiles(mut times: Vec<f64>) -> [f64; 3] {
    times.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| times[times.len() * quarter / 4])
}

/// Whether both ways give the largest of all ranks' values.
fn is_right(direct: &Direct, comm: &CclCommunicator, buffer: &mut [f32]) -> Result<bool> {
    let (rank, ranks) = (comm.group().rank(), comm.group().size());
    let mut right = true;
    for is_direct in [true, false] {
        buffer.fill(rank as f32);
        if is_direct {
            direct.all_reduce(buffer)?
        } else {
            comm.all_reduce(buffer, ReduceOp::Max)?
        };
        right &= buffer.iter().all(|&value| value == (ranks - 1) as f32);
    }
    Ok(right)
}

/// One size: the line to print, or `None` for a wrong result.
fn measure(direct: &Direct, comm: &CclCommunicator, bytes: usize) -> Result<Option<String>> {
    let mut buffer = vec![0.0f32; bytes / 4];
    let mut right = is_right(direct, comm, &mut buffer)?;
    let single = block(5, || direct.all_reduce(&mut buffer))?;
    let mut calls = [(BLOCK.as_secs_f64() * 1e6 / single).clamp(3.0, 2000.0) as u64];
    comm.all_reduce(&mut calls, ReduceOp::Min)?;
    let calls = calls[0] as usize;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for turn in 0..BLOCKS {
        // Neither way is always the first of its pair.
        for is_direct in [turn % 2 == 0, turn % 2 == 1] {
            if is_direct {
                theirs.push(block(calls, || direct.all_reduce(&mut buffer))?);
            } else {
                ours.push(block(calls, || comm.all_reduce(&mut buffer, ReduceOp::Max))?);
            }
        }
    }
    right &= is_right(direct, comm, &mut buffer)?;
    let more = quartiles(ours.iter().zip(&theirs).map(|(ours, theirs)| ours - theirs).collect())[1];
    let ([low, direct, high], [our_low, through, our_high]) = (quartiles(theirs), quartiles(ours));
    Ok(right.then(|| {
        format!(
            "{bytes:>9} {direct:>10.2} ({low:.2} to {high:.2}) {through:>10.2} ({our_low:.2} to {our_high:.2}) \
             {more:>+8.3} us {:>+7.2} %",
            more / direct * 100.0
        )
    }))
}

fn run() -> Result<bool> {
    let config = Config::from_environment()?;
    let world = Job::join(&config, &Tcp { memory: false })?;
    let library = Ccl::open(&CclOptions { directory: CclSettings::of_environment().directory });
    let options = OffloadOptions::new(config.join_timeout, false);
    let comm = CclCommunicator::open(
        world.companion()?,
        library.clone().map(CclVendor::on_host).map(Arc::new),
        &options,
    )?;
    let direct = Direct::new(&*comm, CclVendor::on_host(library?))?;
    let is_first = comm.group().rank() == 0;
    if is_first {
        println!(
            "    bytes  direct us (quartiles)  through unisono us (quartiles)  difference of neighbours"
        );
    }
    for bytes in SIZES {
        let Some(line) = measure(&direct, &comm, bytes)? else { return Ok(false) };
        if is_first {
            println!("{line}");
        }
    }
    comm.barrier()?;
    direct.library.destroy(&direct.comm)?;
    comm.close()?;
    Ok(true)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("a result is wrong");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
