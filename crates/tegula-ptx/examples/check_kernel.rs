//! Checks a kernel as a test would: no errors, no bank conflicts, and the right result.
//!
//! `cargo run -p tegula-ptx --example check_kernel`

use std::path::Path;

use tegula_ptx::ast::ScalarType;
use tegula_ptx::cuda::{self, CompileOptions};
use tegula_ptx::{Argument, Buffer, Config, Launch, Module};

const SOURCE: &str = "
    extern \"C\" __global__ void reverse(const float* in, float* out, int n) {
        __shared__ float tile[64];
        tile[threadIdx.x] = in[threadIdx.x];
        __syncthreads();
        out[threadIdx.x] = tile[n - 1 - threadIdx.x];
    }";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // PTX that nvcc or another compiler made can be parsed at once.
    let compiled = cuda::compile(Path::new("reverse.cu"), SOURCE, &CompileOptions::default())?;
    let kernel = Module::parse(&compiled.ptx)?.kernel("reverse")?;

    let input: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let mut buffers = [Buffer::f32("in", &input), Buffer::uninitialized("out", ScalarType::F32, [64])];
    let arguments = vec![Argument::buffer(0), Argument::buffer(1), Argument::i32(64)];
    let launch = Launch::new([1, 1, 1], [64, 1, 1], arguments);
    let outcome = kernel.check(&launch, &mut buffers, &Config::default(), 4)?;

    assert!(outcome.error().is_none(), "{:?}", outcome.error());
    assert_eq!(outcome.counters.shared_bank_conflicts, 0);
    let reversed: Vec<f32> = input.iter().rev().copied().collect();
    assert_eq!(buffers[1].to_f32(), Some(reversed));
    println!("reverse: {} thread instructions, no errors, no bank conflicts", outcome.thread_instructions);
    Ok(())
}
