//! Unauthenticated peers, edited exchanges and members that do not fit, on both sides of a handshake.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unisono_control::fuzz::handshake(bytes));
