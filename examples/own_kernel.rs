//! A kernel outside the crate: the outer product C = x·yᵀ, one thread per element of C. It is
//! checked, interpreted with race detection, printed as PTX and, where a GPU is found, launched.
//!
//!     cargo run --release -p tegula --example own_kernel

use tegula::{Layout, Matrix, Shape};
use tegula_interp::{self as interp, Buffer, Config};
use tegula_ir::prelude::*;

fn outer<T: Element<Out = T> + Arith>(tile: u32) -> Kernel {
    kernel("outer", Block::d2(tile, tile), |k| {
        let (x, y, c) = (k.input::<T>("x"), k.input::<T>("y"), k.output::<T>("c"));
        let (rows, cols) = (c.rows(), c.cols());
        k.for_blocks([cols.div_ceil(tile), rows.div_ceil(tile), k.constant(1)], |[block_x, block_y, _]| {
            let (row, col) = (block_y * tile + k.thread_y(), block_x * tile + k.thread_x());
            k.when(row.lt(rows) & col.lt(cols), || {
                c.store((row, col), x.load((row, 0)) * y.load((col, 0)));
            });
        });
    })
}

fn main() -> tegula::Result<()> {
    let kernel = check(outer::<f32>(16))?;
    println!("{}", tegula_ir::ptx::print(&kernel)?.text);

    let x = Matrix::from_fn(40, 1, |row, _| row as f32)?;
    let y = Matrix::from_fn(50, 1, |row, _| 0.5 * row as f32)?;
    let shape = Shape::new(40, 50);
    let (a, b) = (Buffer::from_slice(x.as_slice(), x.layout())?, Buffer::from_slice(y.as_slice(), y.layout())?);
    let c = Buffer::output(Type::F32, Layout::row_major(shape)?)?;
    let outcome = interp::run(&kernel, &[(&a).into(), (&b).into(), (&c).into()], &Config::default())?.ok(&kernel)?;
    println!("interpreted: C(39, 49) = {}", Matrix::from_shape_vec(shape, c.to_vec::<f32>()?)?[[39, 49]]);
    println!("sectors read: {}", outcome.counters.global_load_sectors);
    #[cfg(feature = "cuda")]
    launch(&kernel, &x, &y, shape)?;
    Ok(())
}

#[cfg(feature = "cuda")]
fn launch(kernel: &Checked<Kernel>, x: &Matrix<f32>, y: &Matrix<f32>, shape: Shape) -> tegula::Result<()> {
    use tegula::cuda::{Arg, DeviceMatrix, Gpu};
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(why) => {
            println!("not launched: {why}");
            return Ok(());
        }
    };
    let (x, y) = (DeviceMatrix::upload(&gpu, x.view())?, DeviceMatrix::upload(&gpu, y.view())?);
    let mut c = DeviceMatrix::<f32>::uninit(&gpu, shape)?;
    let args = [Arg::input(x.view())?, Arg::input(y.view())?, Arg::output(c.view_mut())?];
    // SAFETY: the interpreter has run this kernel at these sizes and found nothing out of bounds.
    unsafe { gpu.run(kernel, &args)? };
    println!("launched: C(39, 49) = {}", c.download()?[[39, 49]]);
    Ok(())
}
