//! Questions and answers over one socket: both sides ask, and any number of questions are open at once.
//!
//! A frame is its kind `u8` (0 a question, 1 an answer, 2 the text of a panic), the number of the question `u64`, the
//! asking or answering thread `u64`, the length `u64`, and what is said.

use std::collections::HashMap;
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::wire::{Wire, decode, encode};
use super::workers::Workers;
use crate::world::panic_text;

const QUESTION: u8 = 0;
const ANSWER: u8 = 1;
const PANIC: u8 = 2;
const HEADER_BYTES: usize = 25;

static THREADS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The number of this thread, which no other thread of this process has.
    static THREAD: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
}

/// The other side has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended;

/// What answers the other side's questions.
pub(super) trait Answer: Send + Sync + 'static {
    /// Whether the questions of a thread are all answered by one thread, which answers no others'. Else by any.
    const KEEPS_THREADS: bool;

    /// The answer to a question. Questions of several threads are answered at once, so it may take its time.
    fn answer(&self, connection: &Arc<Connection>, question: &[u8]) -> Vec<u8>;

    /// The other side has ended.
    fn ended(&self);
}

/// One side of a socket.
pub(super) struct Connection {
    writer: Mutex<UnixStream>,
    open: Mutex<OpenQuestions>,
    workers: Workers,
}

/// The questions that this side has asked.
#[derive(Default)]
struct OpenQuestions {
    asked: u64,
    by_number: HashMap<u64, Sender<(u8, Vec<u8>)>>,
    has_ended: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// Starts to listen to the other side.
    pub(super) fn start<A: Answer>(stream: UnixStream, answers: Arc<A>) -> Arc<Connection> {
        let reader = BufReader::with_capacity(1 << 16, stream.try_clone().unwrap());
        let (writer, open, workers) = (Mutex::new(stream), Mutex::default(), Workers::default());
        let connection = Arc::new(Connection { writer, open, workers });
        let listening = connection.clone();
        let listen = move || {
            let _ = listening.listen(reader, &answers);
            let mut open = lock(&listening.open);
            open.has_ended = true;
            open.by_number.clear();
            drop(open);
            answers.ended();
        };
        drop(std::thread::Builder::new().name("connection".to_owned()).spawn(listen).unwrap());
        connection
    }

    /// Whether the other side has ended.
    pub(super) fn has_ended(&self) -> bool {
        lock(&self.open).has_ended
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// [`Ended`] when the other side ends before it answers.
    ///
    /// # Panics
    /// When the other side has panicked over the question.
    pub(super) fn ask<T: Wire>(&self, question: &impl Wire) -> Result<T, Ended> {
        answered(self.put(question)?.recv().map_err(|_| Ended)?)
    }

    /// As [`Connection::ask`], for at most `timeout`: `None` then.
    pub(super) fn ask_within<T: Wire>(
        &self,
        question: &impl Wire,
        timeout: Duration,
    ) -> Result<Option<T>, Ended> {
        use std::sync::mpsc::RecvTimeoutError;
        match self.put(question)?.recv_timeout(timeout) {
            Ok(answer) => answered(answer).map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Ended),
        }
    }

    fn put(&self, question: &impl Wire) -> Result<Receiver<(u8, Vec<u8>)>, Ended> {
        let (sender, answer) = channel();
        let number = {
            let mut open = lock(&self.open);
            if open.has_ended {
                return Err(Ended);
            }
            open.asked += 1;
            let number = open.asked;
            open.by_number.insert(number, sender);
            number
        };
        // When it cannot be sent, the listener learns of the end too, and drops what would be told.
        let _ = self.send(QUESTION, number, &encode(question));
        Ok(answer)
    }

    fn send(&self, kind: u8, number: u64, said: &[u8]) -> std::io::Result<()> {
        let mut frame = Vec::with_capacity(HEADER_BYTES + said.len());
        frame.push(kind);
        frame.extend_from_slice(&number.to_le_bytes());
        frame.extend_from_slice(&THREAD.with(|thread| thread.to_le_bytes()));
        frame.extend_from_slice(&(said.len() as u64).to_le_bytes());
        frame.extend_from_slice(said);
        lock(&self.writer).write_all(&frame)
    }

    fn listen<A: Answer>(self: &Arc<Self>, mut reader: impl Read, answers: &Arc<A>) -> std::io::Result<()> {
        loop {
            let mut header = [0; HEADER_BYTES];
            reader.read_exact(&mut header)?;
            let kind = header[0];
            let [number, thread, length] =
                [1, 9, 17].map(|at| u64::from_le_bytes(header[at..at + 8].try_into().unwrap()));
            let mut said = vec![0; length as usize];
            reader.read_exact(&mut said)?;
            if kind == QUESTION {
                let (connection, answers) = (self.clone(), answers.clone());
                let asker = A::KEEPS_THREADS.then_some(thread);
                self.workers.run(asker, move || connection.answer(number, &said, &*answers));
            } else if let Some(asker) = lock(&self.open).by_number.remove(&number) {
                // Who has asked for a time only may be gone.
                let _ = asker.send((kind, said));
            }
        }
    }

    /// The threads that have asked have ended, or do not mind who answers from now on.
    pub(super) fn forget_askers(&self) {
        self.workers.forget_askers();
    }

    fn answer(self: &Arc<Self>, number: u64, question: &[u8], answers: &impl Answer) {
        let answer = catch_unwind(AssertUnwindSafe(|| answers.answer(self, question)));
        let _ = match answer {
            Ok(answer) => self.send(ANSWER, number, &answer),
            Err(panic) => self.send(PANIC, number, panic_text(&*panic).as_bytes()),
        };
    }
}

fn answered<T: Wire>((kind, said): (u8, Vec<u8>)) -> Result<T, Ended> {
    assert!(kind != PANIC, "the other side has panicked: {}", String::from_utf8_lossy(&said));
    Ok(decode(&said))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers with the number that follows; asks back first for even ones; panics at 13.
    struct Next;

    impl Answer for Next {
        const KEEPS_THREADS: bool = false;

        fn answer(&self, connection: &Arc<Connection>, question: &[u8]) -> Vec<u8> {
            let number: u64 = decode(question);
            assert!(number != 13, "no such number");
            let next =
                if number.is_multiple_of(2) { connection.ask(&(number + 1)).unwrap() } else { number + 1 };
            encode(&next)
        }

        fn ended(&self) {}
    }

    #[test]
    fn both_sides_ask_at_once() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let [ours, theirs] = [ours, theirs].map(|stream| Connection::start(stream, Arc::new(Next)));
        std::thread::scope(|threads| {
            for side in [&ours, &theirs] {
                threads.spawn(|| {
                    assert_eq!(side.ask(&3u64), Ok(4u64));
                    assert_eq!(side.ask(&4u64), Ok(6u64));
                });
            }
        });
        let panicked = catch_unwind(AssertUnwindSafe(|| ours.ask::<u64>(&13u64)));
        assert!(panic_text(&*panicked.unwrap_err()).contains("no such number"));
    }

    #[test]
    fn the_end_of_the_other_side_ends_every_question() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ours = Connection::start(ours, Arc::new(Next));
        std::thread::scope(|threads| {
            threads.spawn(|| assert_eq!(ours.ask::<u64>(&1u64), Err(Ended)));
            drop(theirs);
        });
        assert_eq!(ours.ask::<u64>(&1u64), Err(Ended));
        assert!(ours.has_ended());
    }
}
