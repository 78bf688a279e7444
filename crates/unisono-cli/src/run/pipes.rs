//! Reads one of the two streams of all ranks, from the first line to the rest that is there when the ranks have ended.
//!
//! A short line without an end is handed on after [`PAUSE`] to a reader who may wait for it: it may be a prompt.
//!
//! After the last rank has ended, each pipe is read until all is out of it that it held at that time. Processes that a
//! rank has left behind may hold a pipe for as long as they like, so their output is read for [`GRACE`] more.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::ioctl_fionread;

use super::last_words::LastWords;
use super::log_files::LogFiles;
use super::output::{PIECE_BYTES_MAX, Stream};
use super::queue::Queue;

/// The time for which processes that outlive the ranks are heard.
const GRACE: Duration = Duration::from_secs(1);
/// The time that a prompt waits for the end of its line.
const PAUSE: Duration = Duration::from_millis(100);
/// A longer piece is no prompt.
const PROMPT_BYTES_MAX: usize = 1 << 10;
/// The bytes that are read of one pipe in that time: a process that prints more prints for ever.
const GRACE_BYTES_MAX: usize = 1 << 20;
/// The bytes that are read at once.
const READ_BYTES_MAX: usize = 64 << 10;
/// Pipes that are looked at before the kernel is asked again.
const READY_MAX: usize = 64;
/// Among the numbers of pipes, the end of the ranks.
const END: u64 = u64::MAX;

/// A pipe and whose it is.
pub(super) struct Pipe {
    pub(super) rank: u32,
    pub(super) source: OwnedFd,
}

/// The destinations of the output: it goes to files and last words at once, to everybody else when they take it.
pub(super) struct Intake {
    pub(super) stream: Stream,
    /// Whether beginnings of lines are handed on too, after a pause.
    pub(super) hands_on_prompts: bool,
    pub(super) files: Option<Arc<LogFiles>>,
    pub(super) words: Arc<LastWords>,
    pub(super) queue: Arc<Queue>,
}

impl Intake {
    /// Gives whether anybody wants more of this rank.
    pub(super) fn take(&self, rank: u32, bytes: Vec<u8>) -> bool {
        if let Some(error) = self.files.as_ref().and_then(|files| files.write(rank, &bytes)) {
            self.queue.tell(error);
        }
        if self.stream == Stream::Err {
            self.words.hear(rank, &bytes);
        }
        self.queue.push(rank, bytes) || self.files.is_some()
    }
}

/// The thread that reads.
pub(super) struct PipeReader {
    end: OwnedFd,
}

impl PipeReader {
    pub(super) fn start(pipes: Vec<Pipe>, intake: Intake) -> io::Result<PipeReader> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let end = eventfd(0, EventfdFlags::CLOEXEC)?;
        let once = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        epoll::add(&epoll, &end, epoll::EventData::new_u64(END), once)?;
        let mut open = Vec::new();
        for (number, Pipe { rank, source }) in (0..).zip(pipes) {
            epoll::add(&epoll, &source, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
            open.push(Some(OpenPipe { rank, source: source.into(), held: Vec::new(), due: None }));
        }
        let reading = Reading { epoll, pipes: open, intake };
        thread::Builder::new().name("pipes".into()).spawn(move || reading.read_all())?;
        Ok(PipeReader { end })
    }

    /// The pipes now hold the last output of the ranks, and the queue is unbounded.
    pub(super) fn ranks_have_ended(&self) {
        // Any number but 0 will do. It fails only when the counter would overflow.
        let _ = rustix::io::write(&self.end, &[1; size_of::<u64>()]);
    }
}

struct OpenPipe {
    rank: u32,
    source: File,
    /// Bytes of a line whose end has not come.
    held: Vec<u8>,
    /// When they are handed on all the same.
    due: Option<Instant>,
}

struct Reading {
    epoll: OwnedFd,
    /// `None` for a pipe that has ended.
    pipes: Vec<Option<OpenPipe>>,
    intake: Intake,
}

impl Reading {
    fn read_all(mut self) {
        self.while_ranks_run();
        self.rest();
        self.after_the_ranks();
        (0..self.pipes.len()).for_each(|number| self.close(number));
        self.intake.queue.close();
    }

    fn is_open(&self) -> bool {
        self.pipes.iter().any(Option::is_some)
    }

    fn while_ranks_run(&mut self) {
        while self.is_open() {
            for number in self.ready(None) {
                if number == END {
                    return;
                }
                self.read(number as usize, READ_BYTES_MAX);
            }
        }
    }

    /// Reads all that the pipes hold.
    fn rest(&mut self) {
        for number in 0..self.pipes.len() {
            let held = |pipe: &OpenPipe| ioctl_fionread(&pipe.source).unwrap_or_default();
            let mut left = self.pipes[number].as_ref().map_or(0, held) as usize;
            while left > 0 {
                match self.read(number, left.min(READ_BYTES_MAX)) {
                    0 => break,
                    bytes => left -= bytes,
                }
            }
        }
    }

    /// Reads the output of processes that the ranks have left behind.
    fn after_the_ranks(&mut self) {
        let deadline = Instant::now() + GRACE;
        let mut budgets = vec![GRACE_BYTES_MAX; self.pipes.len()];
        while self.is_open() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            for number in self.ready(Some(left)) {
                let Some(budget) = budgets.get_mut(number as usize) else { continue };
                *budget = budget.saturating_sub(self.read(number as usize, READ_BYTES_MAX));
                if *budget == 0 {
                    self.close(number as usize);
                }
            }
        }
    }

    /// The numbers of the pipes that can be read, or [`END`]; none after the timeout, or when a line has waited long
    /// enough for its end.
    fn ready(&mut self, timeout: Option<Duration>) -> Vec<u64> {
        let due = self.pipes.iter().flatten().filter_map(|pipe| pipe.due).min();
        let pause = due.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = [timeout, pause].into_iter().flatten().min();
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut events = Vec::with_capacity(READY_MAX);
        // It fails only when a signal interrupts it.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref());
        let ready: Vec<u64> = events.iter().map(|event| event.data.u64()).collect();
        if due.is_some_and(|due| due <= Instant::now()) {
            self.hand_on_prompts(&ready);
        }
        ready
    }

    /// Hands on the beginnings of lines whose ends do not come: nothing is in these pipes.
    fn hand_on_prompts(&mut self, ready: &[u64]) {
        let now = Instant::now();
        for number in 0..self.pipes.len() {
            let waiting = self.pipes[number].as_mut().filter(|pipe| pipe.due.is_some_and(|due| due <= now));
            if let Some(pipe) = waiting.filter(|_| !ready.contains(&(number as u64))) {
                pipe.due = None;
                let (rank, held) = (pipe.rank, std::mem::take(&mut pipe.held));
                self.hand_on(number, rank, held);
            }
        }
    }

    /// A rank whose output nobody wants any more learns so at its next write, as if it had written there itself.
    fn hand_on(&mut self, number: usize, rank: u32, bytes: Vec<u8>) {
        if !self.intake.take(rank, bytes) {
            self.close(number);
        }
    }

    /// Reads once from a pipe that holds something or has ended, and hands on the whole pieces of it. Gives the number
    /// of bytes.
    fn read(&mut self, number: usize, most: usize) -> usize {
        let Some(pipe) = self.pipes[number].as_mut() else { return 0 };
        let mut room = [0; READ_BYTES_MAX];
        let bytes = match pipe.source.read(&mut room[..most]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return 0,
            Ok(bytes @ 1..) => bytes,
            Ok(0) | Err(_) => {
                self.close(number);
                return 0;
            }
        };
        let is_end = |&byte: &u8| byte == b'\n' || byte == b'\r';
        let whole = room[..bytes].iter().rposition(is_end).map_or(0, |at| at + 1);
        let held = pipe.held.len();
        pipe.held.extend_from_slice(&room[..bytes]);
        if whole > 0 || pipe.held.len() >= PIECE_BYTES_MAX {
            let rest = if whole > 0 { pipe.held.split_off(held + whole) } else { Vec::new() };
            let chunk = std::mem::replace(&mut pipe.held, rest);
            let rank = pipe.rank;
            pipe.due = None;
            self.hand_on(number, rank, chunk);
        }
        self.note_prompt(number);
        bytes
    }

    /// The beginning of a line is handed on some time after it came.
    fn note_prompt(&mut self, number: usize) {
        if let Some(pipe) = self.pipes[number].as_mut().filter(|_| self.intake.hands_on_prompts) {
            let is_prompt = (1..=PROMPT_BYTES_MAX).contains(&pipe.held.len());
            pipe.due = is_prompt.then(|| pipe.due.unwrap_or_else(|| Instant::now() + PAUSE));
        }
    }

    /// Hands on a last line without an end.
    fn close(&mut self, number: usize) {
        if let Some(OpenPipe { rank, source, held, .. }) = self.pipes[number].take() {
            // It would stay ready otherwise, if another process has it.
            let _ = epoll::delete(&self.epoll, source.as_fd());
            if !held.is_empty() {
                self.intake.take(rank, held);
            }
            if self.intake.stream == Stream::Err {
                self.intake.words.end(rank);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn intake(stream: Stream) -> (Intake, Arc<Queue>) {
        let queue = Queue::new();
        let words = Arc::new(LastWords::new(1));
        (Intake { stream, hands_on_prompts: false, files: None, words, queue: queue.clone() }, queue)
    }

    fn all(queue: &Queue) -> Vec<u8> {
        std::iter::from_fn(|| queue.next()).flat_map(|chunk| chunk.bytes).collect()
    }

    #[test]
    fn a_line_that_comes_in_parts_is_handed_on_whole() {
        let (source, writing) = rustix::pipe::pipe().unwrap();
        let (intake, queue) = intake(Stream::Err);
        let words = intake.words.clone();
        PipeReader::start(vec![Pipe { rank: 0, source }], intake).unwrap();
        let mut writing = File::from(writing);
        writing.write_all(b"one\ntw").unwrap();
        assert_eq!(queue.next().unwrap().bytes, b"one\n");
        writing.write_all(b"o\nlast").unwrap();
        assert_eq!(queue.next().unwrap().bytes, b"two\n");
        drop(writing);
        assert_eq!(all(&queue), b"last");
        assert_eq!(words.of(0, Instant::now()).unwrap().text, "last");
    }

    #[test]
    fn a_prompt_is_handed_on_without_an_end_where_somebody_may_wait_for_it() {
        let (source, writing) = rustix::pipe::pipe().unwrap();
        let (intake, queue) = intake(Stream::Err);
        let words = intake.words.clone();
        PipeReader::start(vec![Pipe { rank: 0, source }], Intake { hands_on_prompts: true, ..intake })
            .unwrap();
        let mut writing = File::from(writing);
        let long = [b'x'; PROMPT_BYTES_MAX + 1];
        writing.write_all(b"error: really? ").unwrap();
        assert_eq!(queue.next().unwrap().bytes, b"error: really? ");
        writing.write_all(b"yes\n").unwrap();
        assert_eq!(queue.next().unwrap().bytes, b"yes\n");
        assert_eq!(words.of(0, Instant::now()).unwrap().text, "error: really? yes");
        writing.write_all(&long).unwrap();
        thread::sleep(2 * PAUSE);
        writing.write_all(b"\n").unwrap();
        assert_eq!(queue.next().unwrap().bytes, [&long[..], b"\n"].concat(), "no prompt is so long");
    }

    #[test]
    fn a_rank_whose_output_nobody_wants_gets_a_broken_pipe() {
        let (source, writing) = rustix::pipe::pipe().unwrap();
        let (intake, queue) = intake(Stream::Out);
        PipeReader::start(vec![Pipe { rank: 3, source }], intake).unwrap();
        let mut writing = File::from(writing);
        writing.write_all(b"wanted\n").unwrap();
        assert_eq!(queue.next().unwrap().bytes, b"wanted\n");
        queue.refuse(3);
        // It ends when the pipe is closed.
        while writing.write_all(b"unwanted\n").is_ok() {}
        assert!(all(&queue).is_empty());
    }

    /// The other side never closes the pipe, and its reader takes nothing until the ranks have ended.
    #[test]
    fn what_pipes_hold_at_the_end_of_the_ranks_is_read_whoever_holds_them() {
        let (source, writing) = rustix::pipe::pipe().unwrap();
        let (intake, queue) = intake(Stream::Out);
        let reader = PipeReader::start(vec![Pipe { rank: 0, source }], intake).unwrap();
        let mut text = vec![b'x'; 2 << 20];
        text.push(b'\n');
        File::from(writing.try_clone().unwrap()).write_all(&text).unwrap();
        queue.unbound();
        reader.ranks_have_ended();
        assert!(all(&queue) == text, "all of it, and then an end though the pipe is open");
        drop(writing);
    }

    #[test]
    fn who_prints_for_ever_keeps_nobody() {
        let (source, writing) = rustix::pipe::pipe().unwrap();
        let (intake, queue) = intake(Stream::Out);
        let reader = PipeReader::start(vec![Pipe { rank: 0, source }], intake).unwrap();
        let printer = thread::spawn(move || {
            let mut writing = File::from(writing);
            // It ends with an error when nobody reads any more.
            while writing.write_all(b"again and again\n").is_ok() {}
        });
        let first = queue.next().unwrap();
        queue.unbound();
        reader.ranks_have_ended();
        let read = first.bytes.len() + all(&queue).len();
        assert!(read > GRACE_BYTES_MAX, "{read}");
        printer.join().unwrap();
    }
}
