//! A rank of the job in the plane of another one: its presence, and the connection to it.

use std::time::Instant;

use crate::wire::Message;

/// Questions to one rank without an answer; a newer one replaces the oldest.
const QUESTIONS_MAX: usize = 64;

/// The presence of a rank of the job, as far as this rank knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It takes part.
    Live,
    /// It has said goodbye.
    Left,
    /// It is gone.
    Lost,
}

/// The connection between this rank and another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// None, and this rank does not dial.
    None,
    /// None yet; this rank dials.
    Dialled,
    /// There is one.
    Open,
}

/// A rank of the job, seen from this one.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) presence: Presence,
    /// Whether its end is proven; see [`crate::hosts::Hosts::proven_gone`].
    pub(super) is_proven_gone: bool,
    pub(super) connection: ConnectionState,
    /// Whether anything has ever come from it.
    pub(super) is_heard: bool,
    /// The questions that it has not answered, and other lists. They are sent on every new connection: a connection
    /// that ends loses the messages under way, also answers.
    pub(super) questions: Vec<Message>,
    /// Since when a needed connection is missing that the other side is to dial.
    pub(super) missing_since: Option<Instant>,
}

impl Default for Peer {
    fn default() -> Peer {
        Peer {
            presence: Presence::Live,
            is_proven_gone: false,
            connection: ConnectionState::None,
            is_heard: false,
            questions: Vec::new(),
            missing_since: None,
        }
    }
}

impl Peer {
    /// Whether there is a connection to it.
    pub(super) fn is_open(&self) -> bool {
        self.connection == ConnectionState::Open
    }

    /// Keeps a question until its answer comes.
    pub(super) fn keep_question(&mut self, question: Message) {
        self.forget_question(&question);
        if self.questions.len() == QUESTIONS_MAX {
            self.questions.remove(0);
        }
        self.questions.push(question);
    }

    /// This question is answered, or asked again.
    pub(super) fn forget_question(&mut self, question: &Message) {
        self.questions.retain(|one| !one.repeats(question));
    }
}
