//! The releases of a poll: bytes that a link has taken and that may now be overwritten.
//!
//! A send is finished when its bytes are released, and so is its call. A link that copies releases bytes as it takes
//! them, and is never asked here.

use crate::links::{Link, Links};
use crate::plan::Plan;

use super::limit::Part;
use super::{Cursor, Failure, State};

impl State {
    /// Asks one link for its released bytes; true if something moved.
    pub(super) fn serve_release<K: Links>(
        &mut self,
        plan: &Plan,
        link: usize,
        links: &mut K,
    ) -> Result<bool, Failure> {
        let edge = plan.links[link].edge;
        match links.link(edge).unreleased_bytes() {
            Ok(unreleased) => Ok(self.release(plan, link, unreleased)),
            Err(error) => Err(Failure::Broken { peer: edge.peer, broken: error.into() }),
        }
    }

    /// Moves the released cursor of a link until only `unreleased_bytes` are left before the posted cursor; true if
    /// something moved. An empty step is released with the bytes before it.
    pub(super) fn release(&mut self, plan: &Plan, link: usize, unreleased_bytes: u64) -> bool {
        let mut left = self.links[link].held_bytes.saturating_sub(unreleased_bytes);
        let mut moved = false;
        loop {
            let state = &mut self.links[link];
            if state.released == state.posted {
                self.ready.releases.remove(link);
                return moved;
            }
            let Some(piece) = state.released.piece(plan, &plan.links[link].send) else { return moved };
            let part = Part {
                step: piece.step,
                start: piece.start,
                bytes: piece.end - piece.start,
                ends_piece: true,
                at: piece.at,
            };
            let bytes = part.bytes.min(left);
            if bytes == 0 && part.bytes > 0 {
                return moved;
            }
            left -= bytes;
            state.held_bytes -= bytes;
            (state.released, _) = Cursor::behind(&part, bytes);
            self.pass(plan, part.step, part.start + bytes);
            moved = true;
        }
    }
}
