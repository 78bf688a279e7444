//! `cargo xtask slow-link`: builds the program and the comparison, of which this is a part, and hands over to it.

use crate::compare;

/// Does not come back unless it could not start.
pub(crate) fn run(words: &[&str]) -> bool {
    let peers = compare::peers_folder(words);
    let prepared = if peers.join(compare::TORCH).exists() {
        compare::copy_torch_rank(&peers)
    } else {
        // The measurement itself says that it leaves torch out.
        Ok(())
    };
    if let Err(problem) = prepared {
        println!("slow-link: {problem}");
        return false;
    }
    compare::hand_over(&peers, &[&["slow-link"], words].concat())
}
