//! What the ranks print. One thread for each pipe reads whole lines and gives them to a sink.

use std::io::{self, BufRead, BufReader, Read, Write};

/// Longer lines are passed on in parts, so that a rank that prints no line ends cannot fill the memory.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Which of a rank's two streams a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// Where lines go. Several threads call it; the lines of one stream come in order.
pub(crate) trait Sink: Send + Sync {
    /// One line, without its end.
    fn line(&self, rank: u32, stream: Stream, line: &[u8]);
}

/// Writes each line with its rank in front: standard output to standard output, standard error to standard error.
pub(crate) struct Prefixed;

impl Sink for Prefixed {
    fn line(&self, rank: u32, stream: Stream, line: &[u8]) {
        let mut whole = format!("[{rank}] ").into_bytes();
        whole.extend_from_slice(line);
        write_line(stream, whole);
    }
}

/// Writes what rank 0 prints on standard output unchanged: that is the output of the job. Everything else goes to
/// standard error, with its rank in front.
pub(crate) struct Spokesman;

impl Sink for Spokesman {
    fn line(&self, rank: u32, stream: Stream, line: &[u8]) {
        match (rank, stream) {
            (0, Stream::Out) => write_line(Stream::Out, line.to_vec()),
            _ => Prefixed.line(rank, Stream::Err, line),
        }
    }
}

/// Writes a line with one call, so that lines of different ranks do not mix. If the reader has closed the pipe (as
/// `head` does), the job goes on, and its output is still read.
fn write_line(stream: Stream, mut line: Vec<u8>) {
    line.push(b'\n');
    let _ = match stream {
        Stream::Out => {
            let mut out = io::stdout().lock();
            out.write_all(&line).and_then(|()| out.flush())
        }
        Stream::Err => io::stderr().lock().write_all(&line),
    };
}

/// Gives every line of `source` to `sink`, also a last one without a line end, until no process has the pipe open.
pub(crate) fn forward(source: impl Read, rank: u32, stream: Stream, sink: &dyn Sink) {
    let mut source = BufReader::new(source);
    let mut line = Vec::new();
    loop {
        line.clear();
        match source.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) => sink.line(rank, stream, line.strip_suffix(b"\n").unwrap_or(&line)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Kept(Mutex<Vec<Vec<u8>>>);

    impl Sink for Kept {
        fn line(&self, rank: u32, stream: Stream, line: &[u8]) {
            assert_eq!((rank, stream), (3, Stream::Err));
            self.0.lock().unwrap().push(line.to_vec());
        }
    }

    fn lines(text: &[u8]) -> Vec<Vec<u8>> {
        let kept = Kept::default();
        forward(text, 3, Stream::Err, &kept);
        kept.0.into_inner().unwrap()
    }

    #[test]
    fn lines_are_whole_and_the_last_needs_no_end() {
        assert_eq!(lines(b"one\n\ntwo\nlast"), [&b"one"[..], b"", b"two", b"last"]);
        assert_eq!(lines(b"\xff\xfe\n"), [b"\xff\xfe"]);
        assert!(lines(b"").is_empty());
    }

    #[test]
    fn a_line_without_end_is_handed_on_in_parts() {
        let long = vec![b'x'; LINE_BYTES_MAX as usize + 10];
        let parts = lines(&long);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [LINE_BYTES_MAX as usize, 10]);
    }
}
