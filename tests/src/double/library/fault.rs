//! What can be made to go wrong in a library's double, and when.

/// When.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// An id is made.
    Id,
    /// A communicator is made.
    Init,
    /// The call of this number, counted from 0 over all communicators of the rank: a collective, a send or receive
    /// outside of a group, the end of a group.
    Call(u64),
    /// A communicator is destroyed.
    Destroy,
}

/// What.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The code comes back at once: the other ranks wait for ever.
    Error(i32),
    /// The code comes back after the call has been made: the other ranks have theirs.
    LateError(i32),
    /// The call does not come back until the room is released, or the communicator aborted.
    Hang,
    /// The thread panics.
    Panic,
}
