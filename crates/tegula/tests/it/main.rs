//! The library's tests from outside, in one binary.

mod blocked;
mod epilogue;
mod golden;
mod gpu;
mod gpu_bench;
mod gpu_epilogue;
mod gpu_large;
mod gpu_matrix;
mod gpu_ops;
mod gpu_random;
mod gpu_refusals;
mod gpu_tune;
mod interp_facts;
mod interp_ops;
mod interp_plants;
mod interp_products;
mod interp_races;
mod kernels;
mod large;
mod matrix;
mod nd;
mod product;
mod progress;
mod refusals;
mod vector;
mod views;
