//! Ranks of one host in namespaces of their own, as containers are.

use std::process::Command;

use unisono_tests::skip;

use crate::support::shell;

/// The options of `unshare` for the namespaces of rank 1.
const NAMESPACES: [&[&str]; 2] =
    [&["--user", "--map-root-user"], &["--user", "--map-root-user", "--pid", "--fork"]];

/// The kernel lets no rank read the other one's memory, or finds another process by its number. The messages are right
/// with any setting.
#[test]
fn ranks_in_different_namespaces_have_right_messages() {
    for namespaces in NAMESPACES {
        let tried = Command::new("unshare").args(namespaces).arg("true").output();
        if !tried.is_ok_and(|tried| tried.status.success()) {
            return skip("unshare", "this machine allows no such namespaces");
        }
        for single_copy in ["auto", "on"] {
            let line = format!(
                "export UNISONO_SINGLE_COPY={single_copy}; [ $UNISONO_RANK = 0 ] || in='unshare {}'; \
                 exec $in {} bench all_gather,all_to_all,scatter --sizes 64,256Ki,4Mi --json",
                namespaces.join(" "),
                env!("CARGO_BIN_EXE_unisono")
            );
            let done = shell("2", &[], &line);
            assert!(done.status.success(), "{namespaces:?} {single_copy}: {}", done.err);
            assert_eq!(done.out.matches("\"wrong\": 0").count(), 9, "{}", done.out);
        }
    }
}
