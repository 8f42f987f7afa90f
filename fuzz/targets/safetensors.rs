//! Runs [`tegula_fuzz::safetensors`] with inputs of libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegula_fuzz::safetensors(data));
