//! The result of one poll.

/// The result of a poll of a task or of a call.
pub(crate) enum Step {
    /// The task is finished.
    Finished,
    /// The task's own call moved.
    Moved,
    /// Only other calls moved; the task's own call waits.
    OthersMoved,
    /// Nothing can move until a link or another thread acts.
    Idle,
}
