//! Messages of ranks to the store, its answers to them, and rounds of arrivals.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unisono_job::fuzz::store(bytes));
