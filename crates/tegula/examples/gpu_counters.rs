//! What the interpreter counts, to hold against Nsight Compute: launches each kernel once and prints its counters.
//!
//!     ncu --clock-control none --csv --metrics l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum,\
//!     l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum,... target/release/examples/gpu_counters

use tegula::cuda::{Arg, DeviceMatrix, Gpu};
use tegula::element::{Element, Scalar, Type};
use tegula::interp::{self, Buffer, Config};
use tegula::ir::check;
use tegula::kernels::{Family, Mapping, Plain};
use tegula::{Layout, Matrix, Result, Shape};

const SIZE: usize = 128;

fn main() -> Result<()> {
    let gpu = Gpu::open(0)?;
    for ty in [Type::F32, Type::F64, Type::I32] {
        for family in [Family::Naive, Family::Tiled] {
            for tile in [8, 16, 32] {
                for mapping in [Mapping::XCol, Mapping::XRow] {
                    let variant = Plain { mapping, ..Plain::new(family, ty, tile) };
                    match ty {
                        Type::F32 => count::<f32>(&gpu, variant)?,
                        Type::F64 => count::<f64>(&gpu, variant)?,
                        _ => count::<i32>(&gpu, variant)?,
                    }
                }
            }
        }
    }
    Ok(())
}

fn count<T: Element>(gpu: &Gpu, variant: Plain) -> Result<()> {
    let kernel = check(variant.build()?)?;
    let shape = Shape::new(SIZE, SIZE);
    let ones = Matrix::<T>::from_fn(shape, |_, _, _| T::ONE)?;
    let (a, b) = (DeviceMatrix::upload(gpu, ones.view())?, DeviceMatrix::upload(gpu, ones.view())?);
    let mut c = DeviceMatrix::<T::Out>::zeros(gpu, shape)?;
    let args = [
        Arg::input(a.view())?,
        Arg::input(b.view())?,
        Arg::output(c.view_mut())?,
        Arg::scalar(T::Acc::ONE),
        Arg::scalar(T::Acc::ZERO),
    ];
    // SAFETY: a built-in kernel that guards its edges.
    unsafe { gpu.run(&kernel, &args)? };
    gpu.synchronize()?;
    let (a, b) = (Buffer::input(ones.view())?, Buffer::input(ones.view())?);
    let c = Buffer::output(<T::Out as Scalar>::TYPE, Layout::row_major(shape)?)?;
    let one = interp::Arg::scalar(T::Acc::ONE);
    let args = [(&a).into(), (&b).into(), (&c).into(), one, interp::Arg::scalar(T::Acc::ZERO)];
    let c = interp::run(&kernel, &args, &Config::default())?.ok(&kernel)?.counters;
    println!(
        "COUNT {},{},{},{},{},{},{},{},{},{}",
        kernel.name(),
        c.global_load_requests,
        c.global_load_sectors,
        c.global_store_requests,
        c.global_store_sectors,
        c.shared_load_requests,
        c.shared_load_wavefronts,
        c.shared_store_requests,
        c.shared_store_wavefronts,
        c.shared_bank_conflicts
    );
    Ok(())
}
