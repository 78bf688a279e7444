//! What one poll of a task or of a call has done.

/// The result of a poll under the lock on the links.
pub(crate) enum Step {
    /// The task is finished.
    Finished,
    /// The task's own call moved.
    Moved,
    /// Only calls of others moved: the task's own waits.
    OthersMoved,
    /// Nothing can move until a link or a thread does something.
    Idle,
}
