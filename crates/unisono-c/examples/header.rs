//! Prints unisono.h, as cbindgen makes it from this crate: `cargo run -p unisono-c --example header >
//! crates/unisono-c/unisono.h`.

#![expect(clippy::print_stdout, reason = "its purpose")]
#![expect(clippy::expect_used, reason = "a tool for developers")]

#[path = "../tests/c/header_text.rs"]
mod header_text;

fn main() {
    print!("{}", header_text::header().expect("a header"));
}
