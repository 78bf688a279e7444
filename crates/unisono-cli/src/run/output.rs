//! The output of the ranks, as pieces, and the places where it goes.
//!
//! A piece is a line with its end: a line feed, or a carriage return, with which a progress bar begins its line again.
//! A line without an end waits for it, but not for long: it may be a prompt (`pipes.rs`).
//!
//! For each of the two streams, one thread reads the pipes of all ranks (`pipes.rs`): it writes the files of
//! `--log-dir`, remembers last words, and puts the rest into a queue (`queue.rs`). Another thread takes it from there
//! to its sink. So a reader who pauses holds neither files nor the end of the job, and nothing is lost.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::last_words::LastWords;
use super::log_files::LogFiles;
use super::pipes::{Intake, Pipe, PipeReader};
use super::queue::Queue;
use super::rank::Event;
use crate::print;

/// Longer lines are passed on in parts, so that a rank that prints no line ends cannot fill the memory.
pub(super) const PIECE_BYTES_MAX: usize = 1 << 20;

/// The stream of a rank that a piece came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stream {
    Out,
    Err,
}

impl Stream {
    pub(super) const BOTH: [Stream; 2] = [Stream::Out, Stream::Err];

    pub(super) fn name(self) -> &'static str {
        match self {
            Stream::Out => "standard output",
            Stream::Err => "standard error",
        }
    }
}

/// A place for pieces. Two threads call it, one for each stream.
pub(crate) trait Sink: Send + Sync {
    /// One line with its end. A very long line comes in several pieces of which only the last has an end, as do a
    /// prompt and the rest of its line. The last line of a rank may have no end.
    ///
    /// # Errors
    /// When the piece did not reach its place: `BrokenPipe` when nobody reads there any more.
    fn piece(&self, rank: u32, stream: Stream, piece: &[u8]) -> io::Result<()>;

    /// Whether it takes several pieces as one, up to `PIECE_BYTES_MAX` bytes.
    fn takes_many(&self) -> bool {
        false
    }

    /// Whether a line in which its rank pauses comes in several pieces: somebody may wait for its beginning.
    fn takes_prompts(&self) -> bool {
        false
    }

    /// The next bytes on this stream are no part of the line that is open there, if there is one.
    fn end_line(&self, _stream: Stream) {}

    /// Nobody reads the target of this stream's pieces any more.
    fn has_no_reader(&self, _stream: Stream) {}
}

/// Writes standard output to standard output, standard error to standard error.
#[derive(Default)]
pub(crate) struct Terminal {
    /// Whether no line has its rank in front.
    is_untagged: bool,
    /// Whether the output that nobody reads here still goes to files.
    has_files: bool,
    /// For each stream, the rank whose line is open there.
    open: [Mutex<Option<u32>>; 2],
}

impl Terminal {
    pub(crate) fn new(tags: bool, has_files: bool) -> Terminal {
        Terminal { is_untagged: !tags, has_files, ..Terminal::default() }
    }

    fn open(&self, stream: Stream) -> MutexGuard<'_, Option<u32>> {
        self.open[stream as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Terminal {
    fn piece(&self, rank: u32, stream: Stream, piece: &[u8]) -> io::Result<()> {
        let mut open = self.open(stream);
        let mut text = Vec::with_capacity(piece.len() + TAG_BYTES);
        if open.is_some_and(|other| other != rank) {
            text.push(b'\n');
        }
        if !self.is_untagged && *open != Some(rank) {
            text.extend_from_slice(format!("[{rank}] ").as_bytes());
        }
        text.extend_from_slice(piece);
        let has_end = piece.ends_with(b"\n") || piece.ends_with(b"\r");
        *open = (!has_end).then_some(rank);
        write_piece(stream, &text)
    }

    fn takes_prompts(&self) -> bool {
        true
    }

    /// Untagged standard output is the output of the ranks, byte for byte.
    fn end_line(&self, stream: Stream) {
        let was_open = self.open(stream).take().is_some();
        if was_open && !(self.is_untagged && stream == Stream::Out) {
            // If nobody reads it, no line is open there.
            let _ = write_piece(stream, b"\n");
        }
    }

    fn has_no_reader(&self, stream: Stream) {
        let then = if self.has_files { "goes on in the files of --log-dir" } else { "ends here" };
        let broken = if self.has_files { "" } else { ", and a rank that prints more gets a broken pipe" };
        end_line();
        print::tell(format!("nobody reads {} any more: it {then}{broken}", stream.name()));
    }
}

/// Room for a rank in front of a line, and for the end of another rank's line.
const TAG_BYTES: usize = 16;

/// Writes rank 0's standard output unchanged: that is the output of the job. Everything else goes to standard error,
/// with its rank in front.
#[derive(Default)]
pub(crate) struct Spokesman(Terminal);

impl Sink for Spokesman {
    fn piece(&self, rank: u32, stream: Stream, piece: &[u8]) -> io::Result<()> {
        match (rank, stream) {
            (0, Stream::Out) => write_piece(Stream::Out, piece),
            _ => self.0.piece(rank, Stream::Err, piece),
        }
    }

    fn end_line(&self, _stream: Stream) {
        self.0.end_line(Stream::Err);
    }
}

/// Whether the last piece ended with a carriage return: the next output would overwrite it.
static IS_LINE_OPEN: AtomicBool = AtomicBool::new(false);

/// Ends the line of a progress bar, so that the launcher's lines stand below it.
fn end_line() {
    if IS_LINE_OPEN.swap(false, Ordering::SeqCst) {
        // If nobody can be told, the job ends all the same.
        let _ = writeln!(io::stderr());
    }
}

/// Writes a piece with one call, so that lines of different ranks do not mix.
fn write_piece(stream: Stream, piece: &[u8]) -> io::Result<()> {
    IS_LINE_OPEN.store(piece.ends_with(b"\r"), Ordering::SeqCst);
    let target = match stream {
        Stream::Out => rustix::stdio::stdout(),
        Stream::Err => rustix::stdio::stderr(),
    };
    Ok(write_all(target, piece)?)
}

/// Waits where a terminal or a pipe has no room: a program that shares it may have set it not to block.
fn write_all(target: BorrowedFd<'_>, bytes: &[u8]) -> rustix::io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(target, rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => _ = poll(&mut [PollFd::new(&target, PollFlags::OUT)], None),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The length of the first piece, if it is complete.
fn piece_bytes(text: &[u8]) -> Option<usize> {
    let end = text.iter().position(|&byte| byte == b'\n' || byte == b'\r');
    let bytes = end.map(|at| if text[at..].starts_with(b"\r\n") { at + 2 } else { at + 1 });
    bytes.or((text.len() >= PIECE_BYTES_MAX).then_some(PIECE_BYTES_MAX))
}

/// The pieces of a text; the last one may have no end.
pub(super) fn pieces(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, behind) = rest.split_at(piece_bytes(rest).unwrap_or(rest.len()));
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The places for the output of a job.
#[derive(Clone)]
pub(super) struct Places {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) files: Option<Arc<LogFiles>>,
    pub(super) words: Arc<LastWords>,
}

/// The output of a job, from the pipes of its ranks to its places.
pub(super) struct Output {
    queues: [Arc<Queue>; 2],
    /// None where somebody else reads.
    readers: Vec<PipeReader>,
    files: Option<Arc<LogFiles>>,
}

impl Output {
    /// Starts to pass on the output of these pipes, of standard outputs and of standard errors. Each stream ends with
    /// an [`Event::StreamDone`].
    pub(super) fn of_pipes<R: Send + 'static>(
        pipes: [Vec<Pipe>; 2],
        places: Places,
        events: &Sender<Event<R>>,
    ) -> io::Result<Output> {
        let (mut output, intakes) = Output::of_intakes(places, events)?;
        for (pipes, intake) in pipes.into_iter().zip(intakes) {
            output.readers.push(PipeReader::start(pipes, intake)?);
        }
        Ok(output)
    }

    /// Starts to pass on the output that somebody hands to these intakes, of standard outputs and of standard errors.
    /// Each stream ends with an [`Event::StreamDone`] after its queue has been closed.
    pub(super) fn of_intakes<R: Send + 'static>(
        places: Places,
        events: &Sender<Event<R>>,
    ) -> io::Result<(Output, [Intake; 2])> {
        let queues = [Queue::new(), Queue::new()];
        let start = |stream: Stream| {
            let queue = queues[stream as usize].clone();
            let Places { sink, files, words } = places.clone();
            let hands_on_prompts = sink.takes_prompts();
            let intake = Intake { stream, hands_on_prompts, files, words, queue: queue.clone() };
            let events = events.clone();
            thread::Builder::new().name("output".into()).spawn(move || {
                pass_on(&queue, stream, &*sink);
                let _ = events.send(Event::StreamDone);
            })?;
            io::Result::Ok(intake)
        };
        let intakes = [start(Stream::Out)?, start(Stream::Err)?];
        Ok((Output { queues, readers: Vec::new(), files: places.files }, intakes))
    }

    /// Says something between the lines of the ranks.
    pub(super) fn tell(&self, text: String) {
        self.queues[Stream::Err as usize].tell(text);
    }

    /// Whether something that `rank` has printed was refused: it had no reader any more.
    pub(super) fn has_refused(&self, rank: u32) -> bool {
        self.queues.iter().any(|queue| queue.has_refused(rank))
    }

    /// All ranks have ended.
    pub(super) fn ranks_have_ended(&self) {
        self.queues.iter().for_each(|queue| queue.unbound());
        self.readers.iter().for_each(PipeReader::ranks_have_ended);
    }

    /// The output that has not reached its place so far, in words; `None` if all has.
    pub(super) fn lost(&self) -> Option<String> {
        let of_streams =
            Stream::BOTH.iter().filter_map(|&stream| self.queues[stream as usize].lost(stream.name()));
        let of_files = self.files.iter().flat_map(|files| files.lost());
        let lost: Vec<String> = of_streams.chain(of_files).collect();
        (!lost.is_empty()).then(|| lost.join("; "))
    }
}

/// Whether standard error takes some lines at once, as a pipe does that has a free page.
pub(super) fn has_room() -> bool {
    // A file that is no pipe and no terminal is always ready, and so is a pipe that nobody can read any more.
    poll(&mut [PollFd::new(&rustix::stdio::stderr(), PollFlags::OUT)], Some(&Timespec::default())) != Ok(0)
}

/// Takes everything in a queue to its sink.
fn pass_on(queue: &Queue, stream: Stream, sink: &dyn Sink) {
    let mut has_reader = true;
    while let Some(chunk) = queue.next() {
        let Some(rank) = chunk.rank else {
            sink.end_line(stream);
            end_line();
            print::tell(String::from_utf8_lossy(&chunk.bytes));
            continue;
        };
        let (mut one_by_one, mut many) = (pieces(&chunk.bytes), chunk.bytes.chunks(PIECE_BYTES_MAX));
        while let Some(piece) = if sink.takes_many() { many.next() } else { one_by_one.next() } {
            let done = sink.piece(rank, stream, piece);
            let is_closed = matches!(&done, Err(error) if error.kind() == io::ErrorKind::BrokenPipe);
            // A reader that has closed the pipe, as `head` does, wants no more: nothing is lost.
            queue.written(if is_closed { Ok(()) } else { done });
            if is_closed {
                queue.refuse(rank);
                if std::mem::take(&mut has_reader) {
                    sink.has_no_reader(stream);
                }
            }
        }
    }
    sink.end_line(stream);
    if stream == Stream::Err {
        end_line();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces_of(text: &[u8]) -> Vec<&[u8]> {
        pieces(text).collect()
    }

    #[test]
    fn lines_are_whole_and_the_last_needs_no_end() {
        assert_eq!(pieces_of(b"one\n\ntwo\nlast"), [&b"one\n"[..], b"\n", b"two\n", b"last"]);
        assert_eq!(pieces_of(b"\xff\xfe\n"), [b"\xff\xfe\n"]);
        assert!(pieces_of(b"").is_empty());
    }

    #[test]
    fn a_carriage_return_ends_a_piece_but_not_within_the_end_of_a_line() {
        let text = b"1%\r2%\rdone\r\nnext\n";
        assert_eq!(pieces_of(text), [&b"1%\r"[..], b"2%\r", b"done\r\n", b"next\n"]);
    }

    #[test]
    fn a_line_without_end_is_handed_on_in_parts() {
        let long = vec![b'x'; PIECE_BYTES_MAX + 10];
        assert_eq!(pieces(&long).map(<[u8]>::len).collect::<Vec<_>>(), [PIECE_BYTES_MAX, 10]);
    }
}
