//! Control messages, their stream, and the control plane that they move.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unisono_control::fuzz::control(bytes));
