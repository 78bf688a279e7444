//! Messages of compressed calls, and checkpoints of their states.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unisono_compression::fuzz::compression(bytes));
