//! Collectives of vendors' libraries, by a test double of a library: the conformance suite, and what goes wrong.

mod errors;
mod lacking;
mod suite;
mod threads;
