//! Programs that tests start: a test program once more, in which one test runs a function of a table. Packages beneath
//! this one include the file.

#![allow(unreachable_pub, reason = "public in one of the packages that have it")]

/// Names the function to the process.
const PROGRAM: &str = "TEST_PROGRAM";

/// The words behind `env` that run the program of this name.
///
/// # Panics
/// Where the path of this process is no text.
pub fn words(name: &str) -> [String; 5] {
    let this = std::env::current_exe().unwrap();
    let words = [this.to_str().unwrap(), "program_of_this_process", "--nocapture", "--test-threads=1"];
    let [this, test, output, threads] = words.map(str::to_owned);
    [format!("{PROGRAM}={name}"), this, test, output, threads]
}

/// The body of the test `program_of_this_process`: runs the program that this process was started for, and nothing in a
/// process that no test has started.
///
/// # Panics
/// When the program does, and where these have no program of the name.
pub fn run(programs: &[(&str, fn())]) {
    #[expect(clippy::disallowed_methods, reason = "a variable of tests, no setting of the library")]
    let Some(name) = std::env::var_os(PROGRAM) else { return };
    let program = programs.iter().find(|program| name == program.0);
    program.unwrap_or_else(|| panic!("no program {name:?}")).1();
}
