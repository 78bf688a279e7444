//! The programs of this folder, each as ranks of a job.

use std::process::Command;

use crate::support::{Compiler, Linked, Program, assert_good, clear, compile, file, skip};

/// The ranks of a job.
const RANKS: u32 = 4;

/// The memory that a thousand groups may leave: allocators keep some.
const GROWN_MAX_KIB: &str = "8192";

/// The same under the address sanitizer, which keeps freed memory aside.
const QUARANTINE_MAX_KIB: &str = "262144";

/// In place of the folder of a program.
const FOLDER: &str = "FOLDER";

fn shared(name: &str) -> Option<Program> {
    compile(Compiler::Gcc, &file(name), Linked::Shared, &[])
}

/// Rows: K1
#[test]
fn every_operation_gives_the_expected_values() {
    let Some(program) = shared("operations.c") else { return };
    assert_good(&program.run(RANKS, &[], &[]));
}

/// Rows: K1
#[test]
fn calls_with_handles_end_and_release_their_memory() {
    let Some(program) = shared("asynchronous.c") else { return };
    assert_good(&program.run(RANKS, &[], &[]));
}

/// Rows: K1
#[test]
fn a_thousand_groups_leave_no_descriptor_and_no_memory() {
    let Some(program) = shared("groups.c") else { return };
    assert_good(&program.run(RANKS, &["1000", GROWN_MAX_KIB], &[]));
}

/// Rows: K1
#[test]
fn arguments_that_cannot_be_used_are_named() {
    let Some(program) = shared("arguments.c") else { return };
    assert_good(&program.run(RANKS, &[], &[]));
}

/// Rows: K1
#[test]
fn a_mismatch_names_both_calls_and_their_lines() {
    let Some(program) = shared("mismatch.c") else { return };
    assert_good(&program.run(2, &[], &[]));
}

/// Rows: K1
#[test]
fn a_killed_rank_is_named_and_the_others_go_on() {
    let Some(program) = shared("killed.c") else { return };
    let mut ended = program.run(RANKS, &[], &[]);
    assert_eq!(ended.remove(2).code, None, "it has killed itself");
    assert_good(&ended);
}

/// Rows: K1
#[test]
fn a_program_may_end_its_calls() {
    let Some(program) = shared("ends.c") else { return };
    assert_good(&program.run(RANKS, &[], &[]));
}

/// Rows: K1
#[test]
fn compressed_calls_and_records_work() {
    let Some(program) = shared("records.c") else { return };
    let folder = program.folder().join("flight");
    assert_good(&program.run(RANKS, &[folder.to_str().unwrap()], &[]));
}

/// Rows: K1
#[test]
fn ranks_meet_through_a_store_of_the_program() {
    let Some(program) = shared("store.c") else { return };
    let folder = program.folder().to_str().unwrap();
    let ended = program.run_each(RANKS, |rank, command| {
        command.args([folder, &rank.to_string(), &RANKS.to_string()]);
    });
    assert_good(&ended);
}

/// Rows: K1
#[test]
fn ranks_meet_by_number_and_address() {
    let Some(program) = shared("address.c") else { return };
    // The port is a name here: none is bound where all ranks are on this host.
    let port = 20_000 + std::process::id() % 40_000;
    let file = format!("file://{}/meeting", program.folder().display());
    for address in [file, format!("tcp://localhost:{port}")] {
        let ended = program.run_each(RANKS, |rank, command| {
            command.args([address.as_str(), &rank.to_string(), &RANKS.to_string()]);
        });
        assert_good(&ended);
    }
}

/// Rows: K1
#[test]
fn a_program_of_c_plus_plus_runs() {
    let Some(program) = compile(Compiler::Gxx, &file("plus.cpp"), Linked::Shared, &[]) else { return };
    assert_good(&program.run(RANKS, &[], &[]));
}

/// Rows: K1
#[test]
fn the_static_library_is_whole() {
    let Some(program) = compile(Compiler::Gcc, &file("mismatch.c"), Linked::Static, &[]) else { return };
    assert_good(&program.run(2, &[], &[]));
}

/// The launcher is another package's program: it is there where the whole workspace was built.
///
/// Rows: K1
#[test]
fn the_launcher_starts_programs_of_c() {
    let this = std::env::current_exe().unwrap();
    let launcher = this.parent().unwrap().with_file_name("unisono");
    if !launcher.exists() {
        return skip("unisono", "the program is not built");
    }
    let Some(program) = shared("operations.c") else { return };
    let ended = program.run_each(1, |_, command| {
        *command = Command::new(&launcher);
        clear(command);
        command.args(["run", "-n", "4", "--"]).arg(program.path());
    });
    assert_good(&ended);
}

/// Memory errors at the border: reads beyond a caller's memory, use after free, leaks.
///
/// Rows: K1
#[test]
fn programs_are_clean_under_the_address_sanitizer() {
    let probe = tempfile::tempdir().unwrap();
    let source = probe.path().join("probe.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let probe = probe.path().join("probe");
    let tried = Command::new("gcc").arg("-fsanitize=address").arg(&source).arg("-o").arg(&probe).output();
    let can = tried.is_ok_and(|output| output.status.success());
    if !can || !Command::new(probe).status().is_ok_and(|status| status.success()) {
        return skip("asan", "gcc has no address sanitizer here");
    }
    let options = [("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0")];
    for (name, ranks, words) in [
        ("operations.c", 4, &[][..]),
        ("asynchronous.c", 4, &[]),
        ("arguments.c", 4, &[]),
        ("records.c", 4, &[FOLDER]),
        ("ends.c", 4, &[]),
        ("groups.c", 4, &["20", QUARANTINE_MAX_KIB]),
    ] {
        let flags = ["-fsanitize=address", "-fno-omit-frame-pointer"];
        let Some(program) = compile(Compiler::Gcc, &file(name), Linked::Shared, &flags) else { return };
        let folder = program.folder().to_str().unwrap();
        let words: Vec<&str> = words.iter().map(|word| if *word == FOLDER { folder } else { word }).collect();
        assert_good(&program.run(ranks, &words, &options));
    }
}
