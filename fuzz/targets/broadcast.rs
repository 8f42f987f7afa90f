//! Runs [`tegula_fuzz::broadcast`] on what libFuzzer makes up.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegula_fuzz::broadcast(data));
