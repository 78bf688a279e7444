//! Call headers, point-to-point frames and checked records, each with its receiver.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Of the kinds of input, each crate has its own.
    unisono_engine::fuzz::frame(bytes);
    unisono_transport_tcp::fuzz::frame(bytes);
});
