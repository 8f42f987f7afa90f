//! Compares every operation on the GPU with the interpreter, bit for bit: the small golden kernels,
//! on corner values of each type.
#![cfg(feature = "cuda")]

use tegula::cuda::{self, DeviceMatrix, Gpu};
use tegula::element::{Scalar, Type, bf16, f16};
use tegula::interpret;
use tegula::{Layout, Matrix, Result, Shape, View};
use tegula_interp::{self as interp, Buffer, Config};
use tegula_ir::{Access, Checked, Kernel, ParamKind, check};

use crate::effort::seeds;
use crate::gpu::gpu;
use crate::kernels::small;
use crate::product::Random;

/// Rows of every matrix, and the row stride in elements.
const ROWS: usize = 128;
const PITCH: usize = 16;

/// Kernels whose threads race by design (only their text is tested), or that need special data.
const EXCLUDED: [&str; 6] = ["control", "ordered", "atomics", "barriers", "strided", "k_2_bare"];

#[test]
fn every_operation_has_the_interpreters_result_on_the_gpu() {
    let gpu = gpu();
    // Without a GPU the interpreter runs them alone, in the quick run for few seeds.
    let runs = if gpu.is_some() { 16 } else { seeds(4, 16) };
    let mut compared = 0;
    for kernel in small().into_iter().filter(|k| !EXCLUDED.contains(&k.name())) {
        let kernel = check(kernel).unwrap();
        for seed in 0..runs {
            compared += compare(gpu.as_ref(), &kernel, seed).unwrap_or_else(|e| panic!("{}: {e}", kernel.name()));
        }
    }
    println!("{compared} results compared");
    assert!(compared > 6250 * runs as usize);
}

/// Bits of a random value, often a corner value of its type.
fn corner(random: &mut Random, ty: Type) -> u64 {
    let scale = 10f64.powi(random.below(60) as i32 - 30);
    let float = match random.below(12) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => f64::NEG_INFINITY,
        3 => -0.0,
        4 => 0.5,
        5 => 2147483648.0,
        6 => -129.5,
        7 => random.below(70_000) as f64 + 0.5,
        _ => (random.next() as i64 as f64 / i64::MAX as f64) * scale,
    };
    match ty {
        ty if ty.is_float() => ty.round(float),
        Type::Pred => random.next() & 1,
        // Never 0, which may be a divisor.
        _ => match random.below(4) {
            0 => random.below(40) as u64 + 1,
            1 => u64::MAX >> random.below(ty.size() * 8),
            _ => random.next() | 1,
        },
    }
}

/// A matrix in both engines: its bytes on the GPU, its elements in the interpreter.
struct MatrixPair {
    ty: Type,
    layout: Layout,
    gpu_matrix: Option<DeviceMatrix<u8>>,
    interp_buffer: Buffer,
}

fn buffer<T: Scalar>(bits: &[u64], layout: Layout, access: Access) -> Result<Buffer> {
    let elements: Vec<T> = bits.iter().map(|&b| T::from_bits(b)).collect();
    let view = View::strided(&elements, layout)?;
    if access == Access::Read { interpret::input(view) } else { interpret::in_out(view) }
}

impl MatrixPair {
    fn new(gpu: Option<&Gpu>, random: &mut Random, ty: Type, access: Access, cols: usize) -> Result<MatrixPair> {
        let bits: Vec<u64> = (0..ROWS * PITCH).map(|_| corner(random, ty)).collect();
        let bytes: Vec<u8> = bits.iter().flat_map(|b| b.to_le_bytes()[..ty.size()].to_vec()).collect();
        let bytes = Matrix::from_vec(ROWS, PITCH * ty.size(), bytes)?;
        let layout = Layout { shape: Shape::new(ROWS, cols), offset: 0, strides: [0, PITCH as isize, 1] };
        let interp_buffer = match ty {
            Type::F64 => buffer::<f64>(&bits, layout, access),
            Type::F32 => buffer::<f32>(&bits, layout, access),
            Type::F16 => buffer::<f16>(&bits, layout, access),
            Type::BF16 => buffer::<bf16>(&bits, layout, access),
            Type::I8 => buffer::<i8>(&bits, layout, access),
            Type::U8 => buffer::<u8>(&bits, layout, access),
            Type::I32 => buffer::<i32>(&bits, layout, access),
            Type::U32 => buffer::<u32>(&bits, layout, access),
            Type::I64 => buffer::<i64>(&bits, layout, access),
            Type::U64 => buffer::<u64>(&bits, layout, access),
            Type::Pred => panic!("predicates are not stored in memory"),
        }?;
        let gpu_matrix = gpu.map(|gpu| DeviceMatrix::upload(gpu, bytes.view())).transpose()?;
        Ok(MatrixPair { ty, layout, gpu_matrix, interp_buffer })
    }

    /// Checks that all elements written by the interpreter are equal on the GPU. Returns their
    /// number.
    fn assert_equal(&self, name: &str) -> Result<usize> {
        let size = self.ty.size();
        let bytes = self.gpu_matrix.as_ref().map(DeviceMatrix::download).transpose()?;
        let mut written = 0;
        for (row, col) in (0..ROWS).flat_map(|row| (0..self.layout.shape.cols).map(move |col| (row, col))) {
            if !self.interp_buffer.written(0, row, col) {
                continue;
            }
            written += 1;
            let Some(bytes) = &bytes else { continue };
            let mut gpu_bytes = [0; 8];
            let at = (row * PITCH + col) * size;
            gpu_bytes[..size].copy_from_slice(&bytes.as_slice()[at..at + size]);
            let (gpu_bits, interp_bits) =
                (u64::from_le_bytes(gpu_bytes), self.interp_buffer.bits(0, row, col).unwrap());
            let same = gpu_bits == interp_bits || (is_nan(self.ty, gpu_bits) && is_nan(self.ty, interp_bits));
            assert!(same, "{name} ({row}, {col}) {}: GPU {gpu_bits:#x}, interpreter {interp_bits:#x}", self.ty);
        }
        Ok(written)
    }
}

fn is_nan(ty: Type, bits: u64) -> bool {
    ty.to_f64(bits).is_nan()
}

fn compare(gpu: Option<&Gpu>, kernel: &Checked<Kernel>, seed: u64) -> Result<usize> {
    let mut random = Random(seed);
    let (mut matrices, mut scalars) = (Vec::new(), Vec::new());
    for param in kernel.params() {
        match param.kind {
            ParamKind::Matrix { ty, access, .. } => {
                // Six columns fill half of the second 4-element vector.
                let cols = if kernel.name() == "widths" && access == Access::Read { 6 } else { PITCH };
                matrices.push(MatrixPair::new(gpu, &mut random, ty, access, cols)?);
            }
            ParamKind::Scalar(ty) => scalars.push((ty, corner(&mut random, ty))),
        }
    }
    let (mut interp_args, mut gpu_args) = (Vec::new(), Vec::new());
    let (mut next_matrix, mut next_scalar) = (matrices.iter(), scalars.iter());
    for param in kernel.params() {
        match param.kind {
            ParamKind::Matrix { .. } => {
                let MatrixPair { ty, layout, gpu_matrix, interp_buffer } = next_matrix.next().unwrap();
                interp_args.push(interp::Arg::from(interp_buffer));
                let memory = gpu_matrix.as_ref().map(|m| m.buffer().memory());
                gpu_args.extend(memory.map(|memory| cuda::Arg::Matrix { ty: *ty, layout: *layout, memory }));
            }
            ParamKind::Scalar(_) => {
                let &(ty, bits) = next_scalar.next().unwrap();
                interp_args.push(interp::Arg::Scalar { ty, bits });
                gpu_args.push(cuda::Arg::Scalar { ty, bits });
            }
        }
    }
    interp::run(kernel, &interp_args, &Config::default())?.ok(kernel)?;
    if let Some(gpu) = gpu {
        // SAFETY: the interpreter has verified that the kernel stays in bounds with these
        // arguments.
        unsafe { gpu.run(kernel, &gpu_args)? };
    }
    let mut written = 0;
    for (pair, param) in matrices.iter().zip(kernel.params().iter().filter(|p| !matches!(p.kind, ParamKind::Scalar(_))))
    {
        written += pair.assert_equal(&format!("{} {}", kernel.name(), param.name))?;
    }
    Ok(written)
}
