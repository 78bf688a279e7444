//! What the ranks print. One thread for each pipe reads it and gives it to a sink, line by line.
//!
//! A piece is a line with its end: a line feed, or a carriage return, with which a progress bar begins its line again.
//! A line without an end waits for it, also a prompt, which nobody could answer: ranks have no standard input.

use std::io::{self, Read, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longer lines are passed on in parts, so that a rank that prints no line ends cannot fill the memory. Memory is taken
/// as lines need it.
const PIECE_BYTES_MAX: usize = 1 << 20;

/// Which of a rank's two streams a piece came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// Where pieces go. Several threads call it; the pieces of one stream come in order.
pub(crate) trait Sink: Send + Sync {
    /// One line with its end. A part of a very long line has none, nor has a last line that the rank did not end.
    fn piece(&self, rank: u32, stream: Stream, piece: &[u8]);
}

/// Writes standard output to standard output, standard error to standard error.
pub(crate) struct Terminal {
    /// Whether each line has its rank in front.
    pub(crate) tags: bool,
}

impl Sink for Terminal {
    fn piece(&self, rank: u32, stream: Stream, piece: &[u8]) {
        if !self.tags {
            return write_piece(stream, piece);
        }
        let end: &[u8] = if piece.ends_with(b"\n") || piece.ends_with(b"\r") { b"" } else { b"\n" };
        write_piece(stream, &[format!("[{rank}] ").as_bytes(), piece, end].concat());
    }
}

/// Writes what rank 0 prints on standard output unchanged: that is the output of the job. Everything else goes to
/// standard error, with its rank in front.
pub(crate) struct Spokesman;

impl Sink for Spokesman {
    fn piece(&self, rank: u32, stream: Stream, piece: &[u8]) {
        match (rank, stream) {
            (0, Stream::Out) => write_piece(Stream::Out, piece),
            _ => Terminal { tags: true }.piece(rank, Stream::Err, piece),
        }
    }
}

/// Why output of the ranks has not reached its place, the first time.
static LOST: OnceLock<String> = OnceLock::new();

/// Why output of the ranks was lost, if some was: a full disk, for one.
pub(super) fn lost_output() -> Option<&'static str> {
    LOST.get().map(String::as_str)
}

/// Whether the last piece ended with a carriage return: what comes next would be written over it.
static IS_LINE_OPEN: AtomicBool = AtomicBool::new(false);

/// Ends the line of a progress bar, so that what the launcher says stands below it.
pub(super) fn end_line() {
    if IS_LINE_OPEN.swap(false, Ordering::SeqCst) {
        // If nobody can be told, the job ends all the same.
        let _ = writeln!(io::stderr());
    }
}

/// Writes a piece with one call, so that lines of different ranks do not mix.
fn write_piece(stream: Stream, piece: &[u8]) {
    IS_LINE_OPEN.store(piece.ends_with(b"\r"), Ordering::SeqCst);
    let written = match stream {
        Stream::Out => {
            let mut out = io::stdout().lock();
            out.write_all(piece).and_then(|()| out.flush())
        }
        Stream::Err => io::stderr().lock().write_all(piece),
    };
    match written {
        Ok(()) => {}
        // A reader that has closed the pipe, as `head` does, wants no more. The job goes on, its output is still read.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(error) => {
            let _ = LOST.set(error.to_string());
        }
    }
}

/// Gives every piece of `source` to `sink`, until no process has the pipe open.
pub(crate) fn forward(mut source: impl Read, rank: u32, stream: Stream, sink: &dyn Sink) {
    let mut room = vec![0; PIECE_BYTES_MAX];
    // Bytes of a line whose end has not come, at the start of the room.
    let mut held = 0;
    loop {
        let filled = match source.read(&mut room[held..]) {
            Ok(count @ 1..) => held + count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => break,
        };
        let mut rest = &room[..filled];
        while let Some(bytes) = piece_bytes(rest) {
            sink.piece(rank, stream, &rest[..bytes]);
            rest = &rest[bytes..];
        }
        held = rest.len();
        room.copy_within(filled - held..filled, 0);
    }
    if held > 0 {
        sink.piece(rank, stream, &room[..held]);
    }
}

/// The length of the first piece, if it is complete.
fn piece_bytes(text: &[u8]) -> Option<usize> {
    let end = text.iter().position(|&byte| byte == b'\n' || byte == b'\r');
    let bytes = end.map(|at| if text[at..].starts_with(b"\r\n") { at + 2 } else { at + 1 });
    bytes.or((text.len() == PIECE_BYTES_MAX).then_some(PIECE_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Kept(Mutex<Vec<Vec<u8>>>);

    impl Sink for Kept {
        fn piece(&self, rank: u32, stream: Stream, piece: &[u8]) {
            assert_eq!((rank, stream), (3, Stream::Err));
            self.0.lock().unwrap().push(piece.to_vec());
        }
    }

    fn pieces(source: impl Read) -> Vec<Vec<u8>> {
        let kept = Kept::default();
        forward(source, 3, Stream::Err, &kept);
        kept.0.into_inner().unwrap()
    }

    #[test]
    fn lines_are_whole_and_the_last_needs_no_end() {
        assert_eq!(pieces(&b"one\n\ntwo\nlast"[..]), [&b"one\n"[..], b"\n", b"two\n", b"last"]);
        assert_eq!(pieces(&b"\xff\xfe\n"[..]), [b"\xff\xfe\n"]);
        assert!(pieces(&b""[..]).is_empty());
    }

    #[test]
    fn a_line_that_comes_in_parts_is_one_piece() {
        let parts = (&b"o"[..]).chain(&b"n"[..]).chain(&b"e\ntw"[..]).chain(&b"o\n"[..]);
        assert_eq!(pieces(parts), [b"one\n", b"two\n"]);
    }

    #[test]
    fn a_carriage_return_ends_a_piece_but_not_within_the_end_of_a_line() {
        assert_eq!(pieces(&b"1%\r2%\rdone\r\nnext\n"[..]), [&b"1%\r"[..], b"2%\r", b"done\r\n", b"next\n"]);
    }

    #[test]
    fn a_line_without_end_is_handed_on_in_parts() {
        let long = vec![b'x'; PIECE_BYTES_MAX + 10];
        let parts = pieces(&long[..]);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [PIECE_BYTES_MAX, 10]);
    }
}
