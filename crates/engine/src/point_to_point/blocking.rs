//! Blocking sends and receives: on the caller's own memory while its thread holds the baton.
//!
//! A thread that finds the baton taken posts its operation, copied, to the holder. A holder whose baton is wanted
//! makes its operation an owned one before it lets go. So threads never wait for each other's turns, and a program
//! with one thread copies nothing.

use std::panic::Location;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallOptions, Collective, Counts, Descriptor, Error, Outcome,
    OwnedBuffer, OwnedBuffers, OwnedCall, Result, Segments, SegmentsMut, deadline_after, zeroed,
};

use crate::baton::{Baton, Shared};
use crate::job::{Job, lock};
use crate::links::Links;
use crate::progress::Progress;

use super::Mail;
use super::operation::{Loan, late};

/// Of so many idle turns, one looks at all streams.
const TURNS_PER_ROUND: u32 = 8;

/// Longest sleep without looking, against a wake-up lost in a transport.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// How a turn on lent memory ended.
enum Lent {
    /// The operation is over.
    Over,
    /// Another thread must go on: the operation needs memory of its own.
    Wanted { started: Instant, deadline: Instant },
}

impl<L: Links + 'static> Shared<L> {
    /// A blocking send or receive.
    pub(crate) fn run_point_to_point(self: &Arc<Self>, call: Call<'_>) -> Result<Outcome> {
        let number = self.board.enter_message(&call.descriptor, call.site);
        let outcome = self.exchange(call)?;
        self.board.leave_message(number);
        Ok(outcome)
    }

    fn exchange(self: &Arc<Self>, mut call: Call<'_>) -> Result<Outcome> {
        let timeout = call.options.timeout.unwrap_or(self.options.timeout);
        let Buffers::Separate { input: Buffer::Host(input), output: BufferMut::Host(output) } =
            &mut call.buffers
        else {
            return Err(Error::invalid("place", "a send has an input and a receive has an output"));
        };
        let (descriptor, site) = (call.descriptor, call.site);
        if let (Segments::One(message), SegmentsMut::One(room)) = (&*input, &mut *output)
            && self.queue.is_empty()
            && let Some(mut baton) = self.try_baton()
        {
            let mut loan = Loan::new(descriptor, site, message, room);
            let (started, deadline) = match self.drive_lent(&mut baton, &mut loan, timeout) {
                Ok(Lent::Over) => return loan.result.unwrap_or(Err(Error::Closed)),
                Ok(Lent::Wanted { started, deadline }) => (started, deadline),
                Err(error) => return Err(self.settle(&mut baton, error)),
            };
            // What has begun cannot go back, and nobody else can go on with it.
            let owned = owned_call(descriptor, site, &Segments::One(message), loan.room.len())
                .map_err(|error| self.settle(&mut baton, error))?;
            let job = Job::new(owned, self.bell.clone());
            lock(&self.mail).own(&loan, job.clone(), started, deadline);
            self.has_mail.store(true, Ordering::SeqCst);
            drop(baton);
            self.leave_to_progress();
            return self.await_job(&job, output);
        }
        let owned = owned_call(descriptor, site, input, output.bytes())?;
        let job = Job::new(owned, self.bell.clone());
        self.post_mail(job.clone(), timeout);
        self.await_job(&job, output)
    }

    /// Turns of the lent operation, and of everything else in the mail, until it is over or the baton is wanted.
    fn drive_lent(
        self: &Arc<Self>,
        baton: &mut Baton<'_, L>,
        loan: &mut Loan<'_>,
        timeout: Duration,
    ) -> Result<Lent> {
        let mut wait = Wait::default();
        let mut mail = lock(&self.mail);
        mail.lend(&mut baton.links, loan);
        loop {
            let is_round = wait.is_round() || self.has_mail.load(Ordering::SeqCst);
            let links = &mut baton.links;
            let moved = if is_round { mail.advance(links, loan) } else { mail.advance_lent(links, loan) };
            let moved = moved?;
            if loan.is_over() {
                self.leave_mail(mail, links, loan);
                return Ok(Lent::Over);
            }
            drop(mail);
            self.bell.ring_if_news();
            self.check_revoked()?;
            if moved {
                wait.moved();
            } else if let Some(wanted) = self.wait_lent(baton, loan, &mut wait, (timeout, is_round))? {
                return Ok(wanted);
            }
            mail = lock(&self.mail);
        }
    }

    /// After an idle turn: gives way, spins or sleeps.
    fn wait_lent(
        &self,
        baton: &mut Baton<'_, L>,
        loan: &Loan<'_>,
        wait: &mut Wait,
        (timeout, was_round): (Duration, bool),
    ) -> Result<Option<Lent>> {
        let now = baton.links.now();
        let started = *wait.started.get_or_insert(now);
        let deadline = deadline_after(started, timeout);
        if now >= deadline {
            return Err(late(&loan.descriptor, loan.site, (self.group.rank(), started, now)));
        }
        if self.is_wanted() || !self.queue.is_empty() {
            return Ok(Some(Lent::Wanted { started, deadline }));
        }
        if wait.spins(now, self.options.spin) {
            std::thread::yield_now();
        } else if was_round {
            self.sleep_lent(baton, loan, deadline.min(now + SLEEP_MAX));
        } else {
            wait.ask_for_round();
        }
        Ok(None)
    }

    fn sleep_lent(&self, baton: &mut Baton<'_, L>, loan: &Loan<'_>, until: Instant) {
        let mut interest = Vec::new();
        let mut mail = lock(&self.mail);
        std::mem::swap(&mut interest, &mut mail.interest);
        mail.push_interest(&mut baton.links, loan, &mut interest);
        let until = mail.owned().map(|owned| owned.deadline).fold(until, Instant::min);
        drop(mail);
        baton.links.wait(&interest, until);
        interest.clear();
        lock(&self.mail).interest = interest;
    }

    /// After a lent operation: sees to it that somebody does what is left to do, and that nobody looks for mail that
    /// is not there.
    fn leave_mail(self: &Arc<Self>, mut mail: MutexGuard<'_, Mail>, links: &mut L, loan: &mut Loan<'_>) {
        if mail.leave(links, loan) {
            self.has_mail.store(true, Ordering::SeqCst);
            drop(mail);
            self.leave_to_progress();
        } else if self.has_mail.load(Ordering::SeqCst) && !mail.is_pending() {
            self.has_mail.store(false, Ordering::SeqCst);
        }
    }

    /// Waits for an operation that owns its memory, and fetches what it received.
    fn await_job(&self, job: &Job, output: &mut SegmentsMut<'_>) -> Result<Outcome> {
        self.wait_for(|| job.is_done());
        let finished = job.take().ok_or(Error::Closed)?;
        let outcome = finished.result?;
        if let Some(OwnedBuffers::Separate { output: received, .. }) = finished.buffers
            && job.descriptor.collective == Collective::Recv
        {
            let bytes = (outcome.bytes as usize).min(received.bytes().len());
            output.write_front(&Segments::One(&received.bytes()[..bytes]));
        }
        Ok(outcome)
    }

    /// Adds an operation that owns its memory to the mail, for whoever holds the baton.
    pub(crate) fn post_mail(self: &Arc<Self>, job: Arc<Job>, timeout: Duration) {
        let mut mail = lock(&self.mail);
        mail.post(job, timeout);
        self.has_mail.store(true, Ordering::SeqCst);
        drop(mail);
        self.nudge_holder();
        self.leave_to_progress();
    }

    /// The progress thread goes on with what is in the mail.
    fn leave_to_progress(self: &Arc<Self>) {
        if let Err(error) = Progress::notify(self) {
            self.fail(error);
        }
    }
}

/// The same call on memory of its own.
fn owned_call(
    descriptor: Descriptor,
    site: &'static Location<'static>,
    message: &Segments<'_>,
    room_bytes: usize,
) -> Result<OwnedCall> {
    let (input, output) = (OwnedBuffer::new(message.copied()?), OwnedBuffer::new(zeroed::<u8>(room_bytes)?));
    Ok(OwnedCall {
        descriptor,
        buffers: OwnedBuffers::Separate { input, output },
        counts: Counts::Even,
        options: CallOptions::default(),
        user_function: None,
        site,
    })
}

/// How long a lent operation has waited.
#[derive(Default)]
struct Wait {
    /// Its first idle turn: an operation that never waits reads no clock.
    started: Option<Instant>,
    idle_since: Option<Instant>,
    idle_turns: u32,
}

impl Wait {
    /// Whether the next turn looks at all streams.
    fn is_round(&self) -> bool {
        self.idle_turns % TURNS_PER_ROUND == TURNS_PER_ROUND - 1
    }

    /// Makes it so: nobody sleeps who has not looked everywhere.
    fn ask_for_round(&mut self) {
        self.idle_turns = TURNS_PER_ROUND - 1;
    }

    /// Something has moved.
    fn moved(&mut self) {
        self.idle_since = None;
        self.idle_turns = 0;
    }

    /// Counts an idle turn. Whether the caller goes on spinning.
    fn spins(&mut self, now: Instant, spin: Duration) -> bool {
        self.idle_turns = self.idle_turns.wrapping_add(1);
        let since = *self.idle_since.get_or_insert(now);
        now.saturating_duration_since(since) < spin
    }
}
