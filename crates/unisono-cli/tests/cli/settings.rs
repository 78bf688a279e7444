//! `unisono settings`, its page in docs, and the use of settings by ranks of a launcher.

use unisono::{Collectives, Config, ReduceOp, SecondInit};
use unisono_tests::program::words;

use crate::support::{Finished, unisono};

/// Runs two ranks of [`program_that_joins_twice`].
fn run_twice(setting: &str) -> Finished {
    let words = words("program_that_joins_twice");
    unisono(&[&["run", "-n", "2", "--", "env", setting][..], &words.each_ref().map(String::as_str)].concat())
}

pub(crate) fn program_that_joins_twice() {
    let another = || Config::from_environment().map(|config| config.with_second_init(SecondInit::Another));
    let join =
        || another().and_then(|config| unisono::init_with(&config)).unwrap_or_else(|error| panic!("{error}"));
    let (first, second) = (join(), join());
    for world in [&first, &second] {
        let mut value = [1u8];
        world.all_reduce(&mut value, ReduceOp::Sum).unwrap();
        assert_eq!(u32::from(value[0]), world.size());
    }
    first.close().unwrap();
    second.close().unwrap();
    join().close().unwrap();
}

#[test]
fn ranks_of_a_launcher_may_join_again() {
    let done = run_twice("UNISONO_LOG=warn");
    assert!(done.status.success() && done.err.is_empty(), "{}{}", done.out, done.err);
}

#[test]
fn ranks_of_a_launcher_report_a_misspelt_setting_once() {
    let done = run_twice("UNISONO_WARN_AFTER=5");
    let expected = "[0] unisono: UNISONO_WARN_AFTER is no setting; the nearest is UNISONO_WARN_AFTER_S (`unisono \
                    settings` lists all)\n";
    assert!(done.status.success(), "{}{}", done.out, done.err);
    assert_eq!(done.err, expected);
}

#[test]
fn the_page_of_settings_is_what_the_program_prints() {
    let done = unisono(&["settings"]);
    assert!(done.status.success(), "{}", done.err);
    let page = include_str!("../../../../docs/settings.md");
    assert!(
        done.out == page,
        "docs/settings.md is old: cargo run -p unisono-cli -- settings > docs/settings.md"
    );
    for expected in [
        "| `UNISONO_CALL_TIMEOUT_S` | s | `600` | `DEEPSPEED_TIMEOUT` | deadline of a call; ",
        "`NCCL_SOCKET_IFNAME`",
        "| Open MPI | `OMPI_COMM_WORLD_RANK` |",
        "| `AZ_BATCH_MASTER_NODE` | Azure ML |",
    ] {
        assert!(done.out.contains(expected), "{expected}");
    }
}
