//! Tests of what not every machine has. Packages beneath this one include the file.

#![allow(unreachable_pub, reason = "public in one of the packages that have it")]

use std::io::Write;

/// Says that this thread's test is left out for want of `name`: past the test harness, which keeps what a test that
/// passes has written. `cargo xtask test` counts these lines.
///
/// # Panics
/// Where `UNISONO_REQUIRE` lists `name`.
#[expect(clippy::disallowed_methods, reason = "a setting of tests, no knob of the library")]
pub fn skip(name: &str, reason: &str) {
    let required = std::env::var("UNISONO_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|one| one == name), "{name}: {reason}");
    let thread = std::thread::current();
    let text = format!("SKIP {name}: {reason} [{}]\n", thread.name().unwrap_or("a thread"));
    // Without a standard error there is nobody to tell.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
