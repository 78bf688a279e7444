//! A started system: its processes, its folder of pipes, and its turns.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command as Program, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::process::Signal;
use tempfile::TempDir;
use unisono_compare::{Command, Measured, Reply, SHARED_BYTES};

use crate::guard::Guard;
use crate::problem::{Problem, Result, While};
use crate::processes;
use crate::systems::{Start, System, Waiting};

/// Memory, not disk, holds the file with which ranks line up.
const SHARED_MEMORY: &str = "/dev/shm";
/// How often a wait looks whether the processes are still there.
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// What ranks get to leave by themselves.
const LEAVE_MAX: Duration = Duration::from_secs(3);

/// Why a system has no figure: a finding about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) String);

/// Becomes true when the user wants the run to end.
pub(crate) fn interruption() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, interrupted.clone()).during("noticing signals")?;
    }
    Ok(interrupted)
}

/// What ends a run before its time, and what then remains to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch<'a> {
    pub(crate) interrupted: &'a AtomicBool,
    pub(crate) guard: &'a Guard,
}

impl Watch<'_> {
    /// An error as soon as the user wants the run to end.
    pub(crate) fn check(&self) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) { Err(Problem::Interrupted) } else { Ok(()) }
    }
}

/// What every started system shares.
#[derive(Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) ranks: u32,
    /// For each host the words before the system's command: namespace and scheduling. Every host has the same number
    /// of ranks, in order; a launcher runs on the first.
    pub(crate) hosts: &'a [Vec<String>],
    /// Where what systems print goes, one file each.
    pub(crate) logs: &'a Path,
    pub(crate) watch: Watch<'a>,
    pub(crate) start_max: Duration,
    pub(crate) turn_max: Duration,
}

/// A system whose ranks wait for their turn.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) version: String,
    waiting: Waiting,
    children: Vec<Child>,
    /// The ranks' processes, as they said themselves.
    ranks: Vec<i32>,
    commands: Vec<File>,
    reply: File,
    /// What has come of the next line of `reply`.
    line: Vec<u8>,
    turns: u64,
    /// Last, so that it is removed after the processes have ended.
    folder: TempDir,
}

impl Instance {
    /// Starts it and waits until its ranks are ready. The inner failure is the system's.
    pub(crate) fn start(
        system: &System,
        around: &Surroundings<'_>,
    ) -> Result<std::result::Result<Instance, Failure>> {
        let folder = new_folder(around.ranks)?;
        around.watch.guard.watch(folder.path())?;
        let commands =
            (0..around.ranks).map(|rank| open_pipe(&folder.path().join(format!("command.{rank}"))));
        let mut instance = Instance {
            version: String::new(),
            waiting: system.waiting,
            children: Vec::new(),
            ranks: Vec::new(),
            commands: commands.collect::<Result<_>>()?,
            reply: open_pipe(&folder.path().join("reply"))?,
            line: Vec::new(),
            turns: 0,
            folder,
        };
        instance.spawn(system, around)?;
        let ready = match instance.reply(around, around.start_max)? {
            Ok(Reply::Ready(version)) => {
                instance.version = version.split_whitespace().collect::<Vec<_>>().join(" ");
                instance.ranks = instance.read_pids(around.ranks)?;
                Ok(())
            }
            Ok(reply) => Err(Failure(format!("began with {reply}"))),
            Err(failure) => Err(Failure(format!("did not start: {}", failure.0))),
        };
        instance.rest();
        Ok(ready.map(|()| instance))
    }

    fn spawn(&mut self, system: &System, around: &Surroundings<'_>) -> Result<()> {
        let log = around.logs.join(format!("{}.log", system.name));
        let log =
            OpenOptions::new().create(true).append(true).open(&log).during(log.display().to_string())?;
        let processes = match system.start {
            Start::Launcher => 1,
            Start::EachRank => around.ranks,
        };
        let ranks = around.ranks.to_string();
        let ranks_per_host = around.ranks / around.hosts.len() as u32;
        // What ranks started by hand on one host have in common: the folder is theirs alone.
        let job = self.folder.path().to_string_lossy().into_owned();
        for rank in 0..processes {
            let host = &around.hosts[(rank / ranks_per_host) as usize];
            let words = host.iter().chain(&system.command).map(|word| word.replace("{ranks}", &ranks));
            let words: Vec<String> = words.collect();
            let mut program = Program::new(&words[0]);
            program.args(&words[1..]).arg(self.folder.path());
            program.envs(system.environment.iter().map(|(key, value)| (key, value)));
            if system.start == Start::EachRank {
                program.env("RANK", rank.to_string()).env("WORLD_SIZE", &ranks).env("UNISONO_JOB", &job);
                program.env("LOCAL_RANK", (rank % ranks_per_host).to_string());
                program.env("LOCAL_WORLD_SIZE", ranks_per_host.to_string());
            }
            let out = log.try_clone().during("the log")?;
            let err = log.try_clone().during("the log")?;
            program.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
            self.children.push(program.spawn().during(format!("starting {}", system.name))?);
        }
        Ok(())
    }

    fn read_pids(&self, ranks: u32) -> Result<Vec<i32>> {
        let read = |rank: u32| {
            let file = self.folder.path().join(format!("pid.{rank}"));
            let text = fs::read_to_string(&file).during(file.display().to_string())?;
            text.trim().parse().map_err(|_| Problem::Refused(format!("{} holds no process", file.display())))
        };
        (0..ranks).map(read).collect()
    }

    /// One measurement. After a failure the instance is of no more use.
    pub(crate) fn turn(
        &mut self,
        command: Command,
        around: &Surroundings<'_>,
    ) -> Result<std::result::Result<Measured, Failure>> {
        self.turns += 1;
        let command = Command { id: self.turns, ..command };
        self.wake();
        let mut told = Ok(());
        for pipe in &mut self.commands {
            told = told.and(pipe.write_all(format!("{command}\n").as_bytes()));
        }
        told.during("telling the ranks their turn")?;
        let outcome = self.reply(around, around.turn_max)?;
        self.rest();
        Ok(match outcome {
            Ok(Reply::Measured(id, measured)) if id == command.id && measured.ok => Ok(measured),
            Ok(Reply::Measured(id, _)) if id == command.id => Err(Failure("wrong result".to_owned())),
            Ok(reply) => Err(Failure(format!("answered {reply}"))),
            Err(failure) => Err(failure),
        })
    }

    fn wake(&self) {
        if self.waiting == Waiting::Spins {
            processes::signal(&self.ranks, Signal::CONT);
        }
    }

    fn rest(&self) {
        if self.waiting == Waiting::Spins {
            processes::signal(&self.ranks, Signal::STOP);
        }
    }

    /// CPU time of all its processes so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        processes::cpu_time(&self.processes())
    }

    /// Every process has this system's folder as an argument, except for what launchers start in between.
    fn processes(&self) -> Vec<i32> {
        let mut all = processes::with_argument(&self.folder.path().to_string_lossy());
        for child in &self.children {
            all.extend(processes::family(child.id() as i32));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    fn is_running(&mut self) -> bool {
        self.children.iter_mut().any(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// The next line of the ranks, or why there is none.
    fn reply(
        &mut self,
        around: &Surroundings<'_>,
        at_most: Duration,
    ) -> Result<std::result::Result<Reply, Failure>> {
        let until = Instant::now() + at_most;
        loop {
            if let Some(line) = self.read_line()? {
                return Ok(match line.parse() {
                    Ok(Reply::Failed(problem)) => Err(Failure(problem)),
                    Ok(reply) => Ok(reply),
                    Err(problem) => Err(Failure(problem)),
                });
            }
            around.watch.check()?;
            if let Some(status) = self.ended()? {
                return Ok(Err(Failure(format!("ended: {status}"))));
            }
            if Instant::now() >= until {
                return Ok(Err(Failure(format!("no answer within {} s", at_most.as_secs()))));
            }
            let mut pipes = [PollFd::new(&self.reply, PollFlags::IN)];
            match poll(&mut pipes, Some(&GLANCE)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).during("waiting for a reply"),
            }
        }
    }

    fn read_line(&mut self) -> Result<Option<String>> {
        let mut byte = [0; 512];
        loop {
            if let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.line.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line).trim().to_owned()));
            }
            match self.reply.read(&mut byte) {
                Ok(0) => return Ok(None),
                Ok(count) => self.line.extend_from_slice(&byte[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).during("reading a reply"),
            }
        }
    }

    fn ended(&mut self) -> Result<Option<std::process::ExitStatus>> {
        for child in &mut self.children {
            if let Some(status) = child.try_wait().during("the state of a system")? {
                return Ok(Some(status));
            }
        }
        Ok(None)
    }
}

impl Instance {
    /// The end of the commands lets ranks leave by themselves, so that they free what they hold in the system.
    pub(crate) fn dismiss(&mut self) {
        self.wake();
        self.commands.clear();
    }
}

impl Drop for Instance {
    /// Whoever is still there after a while is killed.
    fn drop(&mut self) {
        self.dismiss();
        let until = Instant::now() + LEAVE_MAX;
        while Instant::now() < until && self.is_running() {
            thread::sleep(Duration::from_millis(10));
        }
        if self.is_running() {
            processes::signal(&self.processes(), Signal::KILL);
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
        // Ranks whose launcher went first.
        processes::signal(&processes::with_argument(&self.folder.path().to_string_lossy()), Signal::KILL);
    }
}

fn new_folder(ranks: u32) -> Result<TempDir> {
    let folder = tempfile::Builder::new()
        .prefix("unisono-compare-")
        .tempdir_in(SHARED_MEMORY)
        .during(format!("a folder in {SHARED_MEMORY}"))?;
    let shared = File::create(folder.path().join("shared")).during("the file with which ranks line up")?;
    shared.set_len(SHARED_BYTES).during("the file with which ranks line up")?;
    let commands = (0..ranks).map(|rank| format!("command.{rank}"));
    for name in commands.chain(["reply".to_owned()]) {
        mkfifoat(CWD, folder.path().join(name), Mode::RUSR | Mode::WUSR).during("a pipe")?;
    }
    Ok(folder)
}

/// For reading too, so that neither this nor the ranks' opening waits for the other side. Nobody else opens the pipe of
/// commands for writing: when this program ends, however it ends, the ranks see the end of it.
fn open_pipe(path: &Path) -> Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .during(path.display().to_string())
}
