//! `unisono settings`, and that its page is the one in docs.

use crate::support::unisono;

#[test]
fn the_page_of_settings_is_what_the_program_prints() {
    let done = unisono(&["settings"]);
    assert!(done.status.success(), "{}", done.err);
    let page = include_str!("../../../../docs/settings.md");
    assert!(
        done.out == page,
        "docs/settings.md is old: cargo run -p unisono-cli -- settings > docs/settings.md"
    );
    for expected in
        ["| `UNISONO_CALL_TIMEOUT_S` | s | `600` | | deadline of a call |", "`NCCL_SOCKET_IFNAME`"]
    {
        assert!(done.out.contains(expected), "{expected}");
    }
}
