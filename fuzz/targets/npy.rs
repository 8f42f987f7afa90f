//! Runs [`tegula_fuzz::npy`] with inputs of libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegula_fuzz::npy(data));
