//! Runs [`tegula_fuzz::ptx`] with inputs of libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegula_fuzz::ptx(data));
