//! The work that a communicator has given to streams.

use std::sync::{Arc, Mutex};

use crate::lock;
use crate::memory::Part;
use crate::stream::Stream;

/// The last work on each stream.
#[derive(Default)]
pub struct Launched(Mutex<Vec<(Arc<Stream>, u64)>>);

impl Launched {
    /// Gives work to a stream ([`Stream::enqueue_output`]), and its number.
    pub fn enqueue(
        &self,
        stream: &Arc<Stream>,
        parts: [Vec<Part>; 2],
        work: impl FnOnce() -> i32 + Send + 'static,
    ) -> u64 {
        let number = stream.enqueue_output(parts, work);
        let mut launched = lock(&self.0);
        launched.retain(|(other, _)| !Arc::ptr_eq(other, stream));
        launched.push((stream.clone(), number));
        number
    }

    /// Returns when all of it is done.
    pub fn wait(&self) {
        let launched = lock(&self.0).clone();
        launched.iter().for_each(|(stream, number)| stream.wait(*number));
    }
}
