//! Compares `mma` on the GPU with the interpreter's model, bit for bit: random values, values of
//! very different magnitude, cancellation, subnormals, infinities and NaN.
//!
//! The interpreter models the Tensor Cores of sm_90; on other GPUs the test is skipped.
#![cfg(feature = "cuda")]

use std::fmt::Write as _;

use tegula::cuda::{self, DeviceElement, DeviceMatrix, Gpu};
use tegula::element::{Scalar, Type, bf16, f16};
use tegula::interpret;
use tegula::{Device, Gemm, Layout, Matrix, Shape};
use tegula_interp::{self as interp, Arg, Config, TensorCore};
use tegula_ir::{Mma, check};
use tegula_kernels::Blocked;
use tegula_kernels::plan::{Plan, Recipe};

use crate::gpu::gpu;
use crate::kernels::matrix;
use crate::product::Random;

/// Instructions per case.
const WARPS: usize = 256;

/// Distribution of the values of A, B and the accumulators.
#[derive(Clone, Copy, Debug)]
pub enum Numbers {
    /// Between −1 and 1.
    Plain,
    /// Any exponent of a narrow range: bits are truncated in the alignment.
    Mixed,
    /// Any exponent of the format.
    Wide,
    /// Few different powers of two, so that sums cancel to small values.
    Cancelling,
    /// Near the least numbers of the format, subnormals among them.
    Tiny,
    /// Products near the least subnormal f32; accumulators are zero or subnormal.
    Underflow,
    /// Some infinities, NaN, zeros of either sign and greatest numbers.
    Special,
    /// Any bits.
    Bits,
}

pub const KINDS: [Numbers; 8] = [
    Numbers::Plain,
    Numbers::Mixed,
    Numbers::Wide,
    Numbers::Cancelling,
    Numbers::Tiny,
    Numbers::Underflow,
    Numbers::Special,
    Numbers::Bits,
];

/// The bits of a floating-point format's exponent and fraction.
#[derive(Clone, Copy)]
pub struct Format(u32, u32);

const DOUBLE: Format = Format(11, 52);
pub const SINGLE: Format = Format(8, 23);

impl Format {
    pub const HALF: Format = Format(5, 10);
    pub const BRAIN: Format = Format(8, 7);

    fn of(mma: Mma) -> Format {
        match mma {
            Mma::F16 => Format::HALF,
            Mma::BF16 => Format::BRAIN,
            Mma::TF32 => SINGLE,
            _ => DOUBLE,
        }
    }

    pub fn number(self, random: &mut Random, kind: Numbers) -> u64 {
        let Format(exponent, fraction) = self;
        let (bits, bias) = (random.next(), (1u64 << (exponent - 1)) - 1);
        let (low, sign) = (bits & ((1 << fraction) - 1), bits >> 63 << (exponent + fraction));
        let with = |exponent: u64, low: u64| sign | exponent << fraction | low;
        let highest = (1 << exponent) - 1;
        match kind {
            Numbers::Plain => with(bias - 1 - u64::from(bits.trailing_zeros().min(6)), low),
            Numbers::Mixed => with(bias - 8 + random.below(16) as u64, low),
            Numbers::Wide => with(random.below(highest as usize) as u64, low),
            Numbers::Cancelling => with(bias - 7 + 7 * random.below(3) as u64, low >> (fraction - 2) << (fraction - 2)),
            Numbers::Tiny => with(random.below(bias as usize / 2 + 2) as u64 / 8 * random.below(2) as u64, low),
            Numbers::Underflow => with(bias.saturating_sub(76) + random.below(5) as u64, low),
            Numbers::Special => match random.below(40) {
                0 => with(highest, 0),
                1 => with(highest, low | 1 << (fraction - 1)),
                2 => with(0, 0),
                3 => with(highest - 1, low),
                _ => with(bias - 4 + random.below(8) as u64, low),
            },
            Numbers::Bits => bits & (u64::MAX >> (63 - exponent - fraction)),
        }
    }

    pub fn accumulator(self, random: &mut Random, kind: Numbers) -> u64 {
        let Format(exponent, fraction) = self;
        match kind {
            Numbers::Underflow => {
                let bits = random.next();
                let low = (bits & ((1 << fraction) - 1)) >> random.below(fraction as usize);
                (bits >> 63 << (exponent + fraction)) | (low * (bits >> 62 & 1))
            }
            _ => self.number(random, kind),
        }
    }
}

/// A register of A or B.
fn register(random: &mut Random, mma: Mma, kind: Numbers) -> u64 {
    match mma {
        Mma::I8 | Mma::U8 => random.next() & 0xffff_ffff,
        Mma::F16 | Mma::BF16 => Format::of(mma).number(random, kind) | Format::of(mma).number(random, kind) << 16,
        _ => Format::of(mma).number(random, kind),
    }
}

fn accumulator(random: &mut Random, mma: Mma, kind: Numbers) -> u64 {
    match mma.accumulator_type() {
        Type::F64 => DOUBLE.accumulator(random, kind),
        Type::F32 => SINGLE.accumulator(random, kind),
        _ => random.next() & 0xffff_ffff,
    }
}

/// Registers of each lane of each warp.
struct Registers {
    cols: usize,
    bits: Vec<u64>,
}

impl Registers {
    fn new(cols: u32, mut register_bits: impl FnMut() -> u64) -> Self {
        let cols = cols as usize;
        Registers { cols, bits: (0..32 * WARPS * cols).map(|_| register_bits()).collect() }
    }

    fn shape(&self) -> Shape {
        Shape::new(32 * WARPS, self.cols)
    }

    fn matrix<T: Scalar>(&self) -> Matrix<T> {
        Matrix::from_shape_fn(self.shape(), |_, r, c| T::from_bits(self.bits[r * self.cols + c])).unwrap()
    }

    fn get(&self, warp: usize, lane: u32, register: u32) -> u64 {
        self.bits[(32 * warp + lane as usize) * self.cols + register as usize]
    }
}

/// Runs one case on both. Returns the number of differences and a description.
fn case<T: Scalar + DeviceElement, S: Scalar + DeviceElement>(
    gpu: Option<&Gpu>,
    mma: Mma,
    kind: Numbers,
    seed: u64,
) -> (usize, String) {
    let mut random = Random(seed);
    let [of_a, of_b, of_sums] = mma.registers();
    let a = Registers::new(of_a, || register(&mut random, mma, kind));
    let b = Registers::new(of_b, || register(&mut random, mma, kind));
    let c = Registers::new(of_sums, || accumulator(&mut random, mma, kind));
    let kernel = check(matrix(mma)).unwrap();
    let (host_a, host_b, host_c) = (a.matrix::<T>(), b.matrix::<T>(), c.matrix::<S>());
    let inputs = [&host_a, &host_b].map(|m| interpret::input(m.view()).unwrap());
    let model = interpret::in_out(host_c.view()).unwrap();
    let args = [Arg::from(&inputs[0]), Arg::from(&inputs[1]), Arg::from(&model)];
    interp::run(&kernel, &args, &Config::default()).unwrap().ok(&kernel).unwrap();
    let model = interpret::to_matrix::<S>(&model).unwrap();
    let Some(gpu) = gpu else { return (0, String::new()) };
    let upload = |m: &Matrix<T>| DeviceMatrix::upload(gpu, m.view()).unwrap();
    let (device_a, device_b) = (upload(&host_a), upload(&host_b));
    let gpu_values = DeviceMatrix::upload(gpu, host_c.view()).unwrap();
    let layout = |r: &Registers| Layout { shape: r.shape(), offset: 0, strides: [0, r.cols as isize, 1] };
    let args = [
        cuda::Arg::Matrix { ty: T::TYPE, layout: layout(&a), memory: device_a.buffer().memory() },
        cuda::Arg::Matrix { ty: T::TYPE, layout: layout(&b), memory: device_b.buffer().memory() },
        cuda::Arg::Matrix { ty: S::TYPE, layout: layout(&c), memory: gpu_values.buffer().memory() },
    ];
    // SAFETY: the interpreter has verified that the kernel stays in bounds with these arguments.
    unsafe { gpu.run(&kernel, &args).unwrap() };
    let gpu_values = gpu_values.download().unwrap();
    differences(mma, kind, [&a, &b, &c], &model, &gpu_values)
}

/// Number of accumulators that differ, and the first of them with all their operands.
fn differences<S: Scalar>(
    mma: Mma,
    kind: Numbers,
    [a, b, c]: [&Registers; 3],
    model: &Matrix<S>,
    gpu_values: &Matrix<S>,
) -> (usize, String) {
    const SHOWN: usize = 3;
    let (mut count, mut zeros, mut text) = (0, 0, String::new());
    for (index, (x, y)) in model.as_slice().iter().zip(gpu_values.as_slice()).enumerate() {
        let (x, y) = (x.to_bits(), y.to_bits());
        if x == y || is_nan(S::TYPE, x) && is_nan(S::TYPE, y) {
            continue;
        }
        count += 1;
        zeros += usize::from((x | y) << (65 - 8 * S::TYPE.size()) == 0);
        if count > SHOWN {
            continue;
        }
        let (warp, lane, register) = (index / c.cols / 32, (index / c.cols % 32) as u32, (index % c.cols) as u32);
        let (row, col) = mma.accumulator(lane, register);
        let _ = writeln!(text, "  {mma} {kind:?}, warp {warp}, ({row}, {col}): GPU {y:#x}, model {x:#x}");
        let _ = writeln!(text, "    accumulator {:#x}, products", c.get(warp, lane, register));
        for p in 0..mma.shape()[2] {
            let of_a = element(a, warp, mma.registers()[0], mma.elements_per_register(), |l, r, part| {
                mma.a(l, r, part) == (row, p)
            });
            let of_b = element(b, warp, mma.registers()[1], mma.elements_per_register(), |l, r, part| {
                mma.b(l, r, part) == (p, col)
            });
            let _ = writeln!(text, "    {of_a:#x} * {of_b:#x}   {} * {}", to_f64(mma, of_a), to_f64(mma, of_b));
        }
    }
    if count > 0 {
        let _ = writeln!(text, "  {mma} {kind:?}: {count} differ, {zeros} of them in the sign of a zero only");
    }
    (count, text)
}

/// The element whose lane, register and part satisfy `is_at`.
fn element(of: &Registers, warp: usize, count: u32, packed: u32, is_at: impl Fn(u32, u32, u32) -> bool) -> u64 {
    for lane in 0..32 {
        for register in 0..count {
            for part in 0..packed {
                if is_at(lane, register, part) {
                    let bits = of.get(warp, lane, register);
                    return if packed == 1 {
                        bits
                    } else {
                        bits >> (32 / packed * part) & (u64::MAX >> (64 - 32 / packed))
                    };
                }
            }
        }
    }
    0
}

fn to_f64(mma: Mma, bits: u64) -> f64 {
    match mma {
        Mma::F16 => f16::from_bits(bits as u16).to_f64(),
        Mma::BF16 => bf16::from_bits(bits as u16).to_f64(),
        Mma::TF32 => f32::from_bits(bits as u32).into(),
        Mma::I8 => (bits as i8).into(),
        Mma::U8 => (bits as u8).into(),
        _ => f64::from_bits(bits),
    }
}

fn is_nan(ty: Type, bits: u64) -> bool {
    match ty {
        Type::F64 => f64::from_bits(bits).is_nan(),
        Type::F32 => f32::from_bits(bits as u32).is_nan(),
        _ => false,
    }
}

#[test]
fn mma_on_the_gpu_equals_the_model() {
    let gpu = gpu().filter(|gpu| {
        let fits = gpu.info().compute == (9, 0);
        if !fits {
            println!("skipped: {:?} is not sm_90, which the model describes", gpu.info().compute);
        }
        fits
    });
    assert_eq!(Config::default().tensor_core, TensorCore::Sm90);
    let (mut differing, mut text) = (0, String::new());
    for mma in Mma::ALL {
        for (seed, kind) in (0..).zip(KINDS) {
            let (count, why) = match mma.accumulator_type() {
                Type::F64 => case::<f64, f64>(gpu.as_ref(), mma, kind, seed),
                Type::F32 => case::<u32, f32>(gpu.as_ref(), mma, kind, seed),
                _ => case::<u32, i32>(gpu.as_ref(), mma, kind, seed),
            };
            differing += count;
            text += &why;
        }
    }
    if gpu.is_some() {
        println!("{} instructions compared, {differing} accumulators differ", Mma::ALL.len() * KINDS.len() * WARPS);
    }
    assert!(differing == 0, "{text}");
}

/// The f64 kernel has a fixed order of additions, so the interpreter's bits are the GPU's.
#[test]
fn f64_kernel_has_the_interpreters_bits_on_the_gpu() {
    let Some(gpu) = gpu() else { return };
    let (m, n, mut compared) = (201, 136, 0);
    for (k, vectors) in [(78, true), (77, false)] {
        let random = |seed, rows, cols| {
            let mut random = Random(seed);
            Matrix::from_fn(rows, cols, |_, _| f64::from_bits(DOUBLE.number(&mut random, Numbers::Mixed)))
        };
        let (a, b, c) = (random(1, m, k).unwrap(), random(2, k, n).unwrap(), random(3, m, n).unwrap());
        let is_hopper = gpu.info().compute == (9, 0);
        for core in
            ["dmma16x16", "dmma16x8", "dmma16x4", "dmma8x4"].into_iter().filter(|&core| is_hopper || core == "dmma8x4")
        {
            for blocking in ["64x64x32_warp32x32_thread16x8_stages3", "128x128x16_warp32x64_thread16x8_stages4"] {
                let recipe = Recipe::from(Blocked::named(&format!("{core}_{blocking}"), Type::F64).unwrap());
                let [model, gpu_values] = [Device::interp(), gpu.clone().into()].map(|device| {
                    let mut c = c.clone();
                    let product = Gemm::new(a.view(), b.view(), c.view_mut()).alpha(1.5).beta(-0.5);
                    device.run(&Plan::Gpu(recipe), product).unwrap();
                    c
                });
                for (i, (x, y)) in model.as_slice().iter().zip(gpu_values.as_slice()).enumerate() {
                    let (x, y) = (x.to_bits(), y.to_bits());
                    assert!(x == y, "{core} {vectors}, ({}, {}): GPU {y:#x}, interpreter {x:#x}", i / n, i % n);
                    compared += 1;
                }
            }
        }
    }
    println!("{compared} elements of the f64 kernel compared");
}
