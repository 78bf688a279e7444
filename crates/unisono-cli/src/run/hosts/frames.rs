//! The agent's side of the output: pieces of its ranks become messages, up to a window of bytes for each stream.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::super::output::{Sink, Stream};
use super::message::{FromAgent, WINDOW_BYTES, write};

/// The state of one stream.
struct Window {
    /// Bytes that may still be sent.
    open_bytes: i64,
    /// Ranks whose output nobody reads any more.
    refused: BTreeSet<u32>,
}

/// A sink that sends.
pub(super) struct FrameSink {
    /// Standard output, which nothing else uses in an agent.
    to_launcher: Mutex<File>,
    windows: [Mutex<Window>; 2],
    changed: [Condvar; 2],
}

impl FrameSink {
    pub(super) fn new(stdout: File) -> FrameSink {
        let window = || Mutex::new(Window { open_bytes: WINDOW_BYTES as i64, refused: BTreeSet::new() });
        let to_launcher = Mutex::new(stdout);
        FrameSink { to_launcher, windows: [window(), window()], changed: Default::default() }
    }

    /// Sends a message, and the bytes behind it.
    pub(super) fn send(&self, message: &FromAgent, behind: &[u8]) -> io::Result<()> {
        write(&mut *self.to_launcher.lock().unwrap_or_else(PoisonError::into_inner), message, behind)
    }

    fn window(&self, stream: Stream) -> MutexGuard<'_, Window> {
        self.windows[stream as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The launcher has taken so many bytes.
    pub(super) fn taken(&self, stream: Stream, bytes: usize) {
        self.window(stream).open_bytes += bytes as i64;
        self.changed[stream as usize].notify_all();
    }

    /// Nobody reads the output of a rank any more.
    pub(super) fn refuse(&self, stream: Stream, rank: u32) {
        self.window(stream).refused.insert(rank);
        self.changed[stream as usize].notify_all();
    }
}

impl Sink for FrameSink {
    fn piece(&self, rank: u32, stream: Stream, piece: &[u8]) -> io::Result<()> {
        let is_shut = |window: &mut Window| window.open_bytes <= 0 && !window.refused.contains(&rank);
        let window = self.changed[stream as usize].wait_while(self.window(stream), is_shut);
        let mut window = window.unwrap_or_else(PoisonError::into_inner);
        if window.refused.contains(&rank) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        window.open_bytes -= piece.len() as i64;
        drop(window);
        self.send(&FromAgent::Output { rank, stream, bytes: piece.len() }, piece)
    }

    fn takes_many(&self) -> bool {
        true
    }

    fn takes_prompts(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::sync::Arc;
    use std::thread;

    use super::super::message::read_from_agent;
    use super::*;

    #[test]
    fn c10_output_waits_for_its_window_and_no_other_stream_does() {
        let (source, writing) = rustix::pipe::pipe().unwrap();
        let sink = Arc::new(FrameSink::new(writing.into()));
        let sender = thread::spawn({
            let sink = sink.clone();
            move || {
                let piece = vec![b'x'; WINDOW_BYTES / 2];
                (0..3).for_each(|_| sink.piece(0, Stream::Out, &piece).unwrap());
            }
        });
        let mut source = BufReader::new(File::from(source));
        let mut sizes = || read_from_agent(&mut source).unwrap().unwrap().1.len();
        assert_eq!((sizes(), sizes()), (WINDOW_BYTES / 2, WINDOW_BYTES / 2));
        sink.piece(0, Stream::Err, b"beside it").unwrap();
        assert_eq!(sizes(), "beside it".len(), "the third piece waits");
        sink.taken(Stream::Out, 1);
        assert_eq!(sizes(), WINDOW_BYTES / 2);
        sender.join().unwrap();
    }

    #[test]
    fn c10_a_piece_that_nobody_reads_is_a_broken_pipe_even_while_the_window_is_shut() {
        let (_source, writing) = rustix::pipe::pipe().unwrap();
        let sink = Arc::new(FrameSink::new(writing.into()));
        sink.taken(Stream::Out, 0);
        sink.window(Stream::Out).open_bytes = 0;
        let sender = thread::spawn({
            let sink = sink.clone();
            move || sink.piece(1, Stream::Out, b"x").unwrap_err().kind()
        });
        sink.refuse(Stream::Out, 1);
        assert_eq!(sender.join().unwrap(), io::ErrorKind::BrokenPipe);
    }
}
