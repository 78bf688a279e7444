//! Why the program ends with a status other than 0: one line for the user, and the status.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

/// Bad input: the line names the allowed words.
const STATUS_USAGE: u8 = 2;
const STATUS_FAILED: u8 = 1;

/// The end of the program.
#[derive(Debug, Serialize, Deserialize)]
pub struct Problem {
    /// The exit status.
    pub status: u8,
    /// Printed after the program's name; empty when the user has been told already.
    pub text: String,
}

/// A result, or the end of the program.
pub type Result<T, E = Problem> = std::result::Result<T, E>;

impl Problem {
    /// Bad input.
    pub fn usage(text: impl Into<String>) -> Problem {
        Problem { status: STATUS_USAGE, text: text.into() }
    }

    /// `doing` this failed.
    pub fn failed(doing: impl Display, error: impl Display) -> Problem {
        Problem { status: STATUS_FAILED, text: format!("{doing}: {error}") }
    }

    /// Ends with `status` and prints nothing more.
    pub fn silent(status: u8) -> Problem {
        Problem { status, text: String::new() }
    }

    /// Ends with status 1 and prints nothing more: the printed lines name the fault.
    pub fn reported() -> Problem {
        Problem::silent(STATUS_FAILED)
    }
}

impl From<unisono_communicator::Error> for Problem {
    fn from(error: unisono_communicator::Error) -> Problem {
        Problem { status: STATUS_FAILED, text: error.to_string() }
    }
}
