//! Tests in a process of their own: what they tell a double, or do to it, concerns every thread of the process.

use std::process::{Command, Stdio};

use crate::watchdog;

/// Tells the process that it was started for one test.
const IS_ALONE: &str = "TEST_IS_ALONE";

/// Of one test, on a machine that is busy with others.
const SECONDS_MAX: u64 = 120;

/// Runs `body` in a process of this program in which only the test of this name, which calls this, runs. `variables`
/// are set there.
///
/// # Panics
/// When `body` does, and when the program has no such test.
pub fn alone(test: &'static str, variables: &[(&'static str, &str)], body: impl FnOnce() + Send + 'static) {
    if std::env::var_os(IS_ALONE).is_some() {
        return watchdog(SECONDS_MAX, test, body);
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(IS_ALONE, "").envs(variables.iter().copied());
    // The watchdog of the process ends it; this one is for a debugger that never lets it go.
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let ended = watchdog(2 * SECONDS_MAX, test, || child.wait_with_output().unwrap());
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{test}: {}", ended.status);
    assert!(said.contains("test result: ok. 1 passed"), "{test}: {said}");
}

/// The name of a test of this module, as the test program has it.
pub fn test_name(module: &'static str, test: &str) -> &'static str {
    let path = module.split_once("::").map_or("", |(_, path)| path);
    String::leak(format!("{path}::{test}"))
}
