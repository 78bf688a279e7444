//! One rank of unisono in the comparison: `unisono-compare-rank FOLDER`, started once per rank. It takes turns
//! exactly as the ranks of the peers do (`peers/turns.h`).

#![forbid(unsafe_code)]

mod calls;
mod line_up;
mod turn;

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use unisono_compare::{Command, Reply};

use turn::Turns;

type RankResult<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(folder), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: unisono-compare-rank FOLDER");
        return ExitCode::from(2);
    };
    match serve(&PathBuf::from(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn serve(folder: &Path) -> RankResult<()> {
    let world = unisono::init()?;
    let (rank, ranks) = (world.group().rank(), world.group().size());
    std::fs::write(folder.join(format!("pid.{rank}")), format!("{}\n", std::process::id()))?;
    let mut reply = OpenOptions::new().write(true).open(folder.join("reply"))?;
    let commands = BufReader::new(File::open(folder.join(format!("command.{rank}")))?);
    let mut turns = Turns::new(&*world, &folder.join("shared"))?;
    turns.line_up()?;
    if rank == 0 {
        say(&mut reply, &Reply::Ready(format!("unisono {}, {ranks} ranks", env!("CARGO_PKG_VERSION"))))?;
    }
    for line in commands.lines() {
        let command: Command = line?.parse()?;
        match turns.take(command) {
            Ok(measured) if rank == 0 => say(&mut reply, &Reply::Measured(command.id, measured))?,
            Ok(_) => {}
            Err(problem) => {
                say(&mut reply, &Reply::Failed(format!("rank {rank}: {problem}").replace('\n', " ")))?;
                return Err(problem);
            }
        }
    }
    Ok(world.close()?)
}

/// One write, so that lines of several ranks never mix.
fn say(pipe: &mut File, reply: &Reply) -> RankResult<()> {
    Ok(pipe.write_all(format!("{reply}\n").as_bytes())?)
}
