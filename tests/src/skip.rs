//! Tests of what not every machine has.

/// Says that a test is left out for want of `name`.
///
/// # Panics
/// Where `UNISONO_REQUIRE` lists `name`.
#[expect(clippy::disallowed_methods, reason = "a setting of tests, no knob of the library")]
pub fn skip(name: &str, reason: &str) {
    let required = std::env::var("UNISONO_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|one| one == name), "{name}: {reason}");
    eprintln!("SKIP {name}: {reason}");
}
