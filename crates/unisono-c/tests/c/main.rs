//! Programs in C and C++ that are compiled against unisono.h, linked with the library, and run as ranks.

#![expect(clippy::unwrap_used, reason = "every function here is part of a test")]
#![expect(clippy::disallowed_methods, reason = "variables of tests, no settings of the library")]

mod header_text;
mod page;
mod programs;
mod support;

/// Rows: K1
#[test]
fn the_header_is_of_this_library() {
    let header = header_text::header().unwrap();
    assert!(
        header == include_str!("../../unisono.h"),
        "unisono.h is old: cargo run -p unisono-c --example header > header; mv header crates/unisono-c/unisono.h"
    );
}
