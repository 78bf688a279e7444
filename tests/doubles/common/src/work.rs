//! The work that a communicator has given to streams.

use std::sync::{Arc, Mutex};

use crate::lock;
use crate::memory::{self, Part};
use crate::stream::Stream;

/// The last work on each stream.
#[derive(Default)]
pub struct Launched(Mutex<Vec<(Arc<Stream>, u64)>>);

impl Launched {
    /// Gives work to a stream, and the number of it. What it is to write is rubbish until it is done, except where it is
    /// also read: from now on, or if something is before it on the stream, which may read it, from its beginning on.
    pub fn enqueue(
        &self,
        stream: &Arc<Stream>,
        [inputs, outputs]: [Vec<Part>; 2],
        work: impl FnOnce() -> i32 + Send + 'static,
    ) -> u64 {
        let is_idle = stream.is_idle();
        if is_idle && !stream.is_capturing() {
            memory::poison(&outputs, &inputs);
        }
        let number = stream.enqueue(Box::new(move || {
            if !is_idle {
                memory::poison(&outputs, &inputs);
            }
            work()
        }));
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
