#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_store::fuzzing::object(bytes));
