//! Runs [`tegula_fuzz::safetensors`] on what libFuzzer makes up.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegula_fuzz::safetensors(data));
