//! The checker of PTX: CUDA C++ examples, random programs against the memory model, Tegula's own
//! kernels printed and read back, and traces.

mod example_files;
mod examples;
mod oracle;
mod roundtrip;
mod trace;
