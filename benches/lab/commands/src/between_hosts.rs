//! `cargo xtask slow-link` and `two-hosts`: builds the program and the comparison, of which these are parts, and hands
//! over to it.

use crate::compare;

/// Does not come back unless it could not start.
pub(crate) fn run(part: &str, words: &[&str]) -> bool {
    let peers = compare::peers_folder(words);
    // The measurement itself says which peers are absent, and leaves them out.
    let torch = if peers.join(compare::TORCH).exists() { compare::copy_torch_rank(&peers) } else { Ok(()) };
    let open_mpi =
        || if peers.join(compare::OPEN_MPI).exists() { compare::build_open_mpi(&peers) } else { Ok(()) };
    if let Err(problem) = torch.and_then(|()| open_mpi()) {
        println!("{part}: {problem}");
        return false;
    }
    compare::hand_over(&peers, &[&[part], words].concat())
}
