//! Runs [`tegula_fuzz::array_path`] with inputs of libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegula_fuzz::array_path(data));
