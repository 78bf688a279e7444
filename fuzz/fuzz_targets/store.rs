//! What ranks say to the store, what it says to them, and rounds of arrivals.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unisono_job::fuzz::store(bytes));
