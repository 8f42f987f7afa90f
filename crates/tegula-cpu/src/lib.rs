//! GEMM on the CPU: C ← act(alpha·A·B + beta·C + bias).
//!
//! The loops are blocked for the caches, and micro-kernels vectorized for the instruction set.
//!
//! - `isa`, `amx_detect`: detection and choice of the instruction set;
//! - `host_gemm`: batches and threads; `compiled`: the same for each element type;
//! - `elements`: packing and rounding of each element type;
//! - `micro_kernel`: the interface of micro-kernels, which are in `portable`, `x86`, `grouped`,
//!   `along_k`, `whole_rows`, `whole_columns` and `amx`; `vectors`: what the vectorized ones share;
//!   `vnni`: packing of bytes; `transpose`: transpositions in registers;
//! - `problem`: the input of a plan; `accumulation`: KC, slices, and what is read unpacked;
//!   `blocking`: the plan, with MC, NC and macro tiles; `grid`: how threads share a block;
//!   `caches`: cache sizes;
//! - `macro_kernel`: LOOP 5 to LOOP 1, written once, and in `first_rows` those that pack while they
//!   multiply; `unpacked`: the loops without packing;
//! - `small`: small products, straight to the micro-kernels; `unblocked`: the choice among their
//!   loops; `shared_rows`: their threads;
//! - `pack`: packed panels of A and B; `packed_b`: all of B packed once; `scratch`: their memory;
//! - `pack_source`, `matrix_ptr`: strided operands to read, and a strided C to write;
//! - `thread_pool`: `parallel_phases`; `job`: phases of chunks; `workers`: their threads;
//!   `hand_off`: the slot of a worker; `placement`: the processor on which it is woken;
//! - `epilogue`: bias and activation;
//! - `probe`: whether the CPU runs at full speed.
//!
//! # Accuracy
//! Accumulators are of type [`Element::Acc`]. Products are added in order of k, in steps of KC; the
//! bf16 instructions add the second of a pair first. Each step starts from 0 (for bytes with VNNI,
//! from a compensation for their packing), and its sum is added to the sum of the steps before. Up
//! to four rows of f32 and f64, by a B of long rows, add each product to the sum of those before.
//! A few rows of A, up to 40 of bf16, and columns of B, that are contiguous along k are multiplied
//! as dot products, with a sum in each lane of a vector. Batch-invariant products have neither.
//! alpha and beta scale the whole.
//!
//! AMX and the bf16 instructions of AVX-512 read subnormal bf16 numbers as zeros. Their subnormal
//! sums are zeros, and AMX also writes zeros for subnormal bf16 results. Numbers from 2⁻¹²⁶ on are
//! normal.
//!
//! For normal numbers the error is within the bound of `tegula_bench::oracle`. 16-bit results are
//! rounded once. No result depends on the number of threads.
#![allow(unsafe_code)]

mod accumulation;
#[cfg(target_arch = "x86_64")]
mod along_k;
#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod amx_detect;
mod blocking;
mod caches;
mod compiled;
mod elements;
mod epilogue;
mod grid;
#[cfg(target_arch = "x86_64")]
mod grouped;
mod hand_off;
#[cfg(all(test, tegula_loom))]
mod hand_off_model;
mod host_gemm;
mod isa;
mod job;
mod macro_kernel;
mod matrix_ptr;
mod micro_kernel;
mod pack;
mod pack_source;
mod packed_b;
mod placement;
mod portable;
mod probe;
mod problem;
mod scratch;
mod shared_rows;
mod small;
mod sync;
mod thread_pool;
#[cfg(target_arch = "x86_64")]
mod transpose;
mod unblocked;
mod unpacked;
#[cfg(target_arch = "x86_64")]
mod vectors;
#[cfg(target_arch = "x86_64")]
mod vnni;
#[cfg(target_arch = "x86_64")]
mod whole_columns;
#[cfg(target_arch = "x86_64")]
mod whole_rows;
mod workers;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::borrow::Cow;
use std::sync::OnceLock;

use compiled::Compiled;
pub use host_gemm::Workspace;
use host_gemm::{HostGemm, HostMatrix};
pub use isa::{Isa, features};
use micro_kernel::CpuElement;
use pack_source::PackSource;
pub use packed_b::PackedB;
pub use probe::at_full_speed;
pub use small::gemm_small;
use tegula_core::element::{Element, Scalar, Type, with_operand_type};
use tegula_core::epilogue::EpilogueOperands;
use tegula_core::error::{Error, Result};
use tegula_core::matrix::{DeviceMemory, Layout, Memory, MemoryMut, Shape, View, ViewMut};
use tegula_core::progress::ProgressMeter;

/// Calls a generic function with the built-in element type of the same `TYPE` as `T`.
macro_rules! for_type {
    ($t:ty, $function:ident($($argument:expr),*)) => {
        with_operand_type!(<$t as Scalar>::TYPE, U => $function::<$t, U>($($argument),*), _ => Err(foreign::<$t>()))
    };
}

/// C ← alpha·A·B + beta·C, where A is m×k, B is k×n and C is m×n, or batches of equal length.
///
/// Strides may have any value: transposed, reversed, and for A and B broadcast (0). Where `beta` is
/// 0, C is not read. Where `alpha` is 0, A and B are not read. k may be 0. Threads are
/// [those](tegula_core::threads::count) of the current rayon pool. Small products use only the
/// caller's thread.
///
/// # Errors
/// - [`Error::Shape`] where the shapes do not match.
/// - [`Error::Unsupported`] where a matrix is in GPU memory, or `TEGULA_CPU` is not available on
///   this CPU.
/// - [`Error::OutOfMemory`] where packed A and B do not fit in memory.
pub fn gemm<T: Element>(alpha: T::Acc, a: View<T>, b: View<T>, beta: T::Acc, mut c: ViewMut<T::Out>) -> Result<()> {
    let isa = Isa::chosen(T::TYPE)?;
    if gemm_small(isa, alpha, &a, &b, beta, &mut c) {
        return Ok(());
    }
    gemm_with_options(isa, alpha, a, b, beta, c, EpilogueOperands::default(), None, None, false)
}

/// [`gemm`] with an instruction set, an epilogue, packed B, and a progress meter.
///
/// The CPU must have the instruction set. The meter counts multiply-adds. `batch_invariant`: the
/// bits of a row of C depend on that row of A, on B, on n, k, the scalars and the epilogue, and on
/// nothing else but the instruction set.
///
/// # Errors
/// As for [`gemm`].
#[allow(clippy::too_many_arguments, reason = "the arguments of a product")]
#[inline]
pub fn gemm_with_options<T: Element>(
    isa: Isa,
    alpha: T::Acc,
    a: View<T>,
    b: View<T>,
    beta: T::Acc,
    c: ViewMut<T::Out>,
    epilogue: EpilogueOperands<'_, T::Out>,
    packed_b: Option<&PackedB>,
    meter: Option<&ProgressMeter<'_>>,
    batch_invariant: bool,
) -> Result<()> {
    with_operand_type!(
        T::TYPE,
        U => {
            let [alpha, beta] = [accumulator::<T, U>(alpha)?, accumulator::<T, U>(beta)?];
            let bias = epilogue.bias.map(|bias| bias_matrix::<T, U>(bias, c.shape())).transpose()?;
            let (a, b, c) = (input("A", a)?, input("B", b)?, output::<T, U>(c)?);
            let gemm = HostGemm { isa, alpha, beta, packed_b, meter, batch_invariant };
            // SAFETY: A, B and the bias, which has the shape of C, are borrowed to read. C is
            // borrowed to write, and its elements are distinct.
            unsafe { U::multiply()(gemm, a, b, c, bias, epilogue.activation) }
        },
        _ => Err(foreign::<T>())
    )
}

/// Packs all of B; `None` for an empty B.
///
/// # Errors
/// As for [`gemm`].
pub fn prepack<T: Element>(b: View<T>) -> Result<Option<PackedB>> {
    let isa = Isa::chosen(T::TYPE)?;
    for_type!(T, prepack_as(isa, b))
}

fn prepack_as<T: Element, U: Compiled>(isa: Isa, b: View<T>) -> Result<Option<PackedB>> {
    let b = input::<T, U>("B", b)?;
    let shape = b.layout.shape;
    if shape.is_empty() {
        return Ok(None);
    }
    // SAFETY: the view borrows B to read.
    let columns = unsafe { PackSource::rows(b.memory, b.layout.transposed()) };
    U::pack_b(isa, columns, shape).map(Some)
}

/// The name of the micro-kernel for large products of this type.
///
/// It has the instruction set, the type, and MR×NR, such as `avx2 f32 4x24`.
///
/// # Errors
/// [`Error::Unsupported`] where `TEGULA_CPU` is not available on this CPU.
#[inline]
pub fn kernel_name<T: Element>() -> Result<Cow<'static, str>> {
    // Every product reports its name, so names are kept by type.
    static NAMES: [OnceLock<String>; Type::ALL.len()] = [const { OnceLock::new() }; Type::ALL.len()];
    let cached = NAMES.get(T::TYPE as usize);
    match cached.and_then(OnceLock::get) {
        Some(name) => Ok(Cow::Borrowed(name)),
        None => {
            let isa = Isa::chosen(T::TYPE)?;
            let name = for_type!(T, kernel_name_of(isa))?;
            Ok(cached.map_or(Cow::Owned(name.clone()), |cached| Cow::Borrowed(cached.get_or_init(|| name))))
        }
    }
}

fn kernel_name_of<T: Element, U: CpuElement>(isa: Isa) -> Result<String> {
    let [rows, cols] = U::micro_kernel(isa).tile;
    Ok(format!("{} {} {rows}x{cols}", U::micro_kernel_isa(isa), T::TYPE))
}

/// The workspace that [`gemm`] allocates for these layouts.
///
/// # Errors
/// As for [`kernel_name`].
pub fn workspace<T: Element>(
    alpha: T::Acc,
    a: Layout,
    b: Layout,
    beta: T::Acc,
    c: Layout,
    packed_b: Option<&PackedB>,
) -> Result<Workspace> {
    let isa = Isa::chosen(T::TYPE)?;
    for_type!(T, workspace_as(isa, alpha, [a, b], beta, c, packed_b))
}

fn workspace_as<T: Element, U: Compiled>(
    isa: Isa,
    alpha: T::Acc,
    [a, b]: [Layout; 2],
    beta: T::Acc,
    c: Layout,
    packed_b: Option<&PackedB>,
) -> Result<Workspace> {
    let [alpha, beta] = [accumulator::<T, U>(alpha)?, accumulator::<T, U>(beta)?];
    U::workspace(HostGemm { isa, alpha, beta, packed_b, meter: None, batch_invariant: false }, [a, b, c])
}

/// Casts a scalar to the accumulator type of `U`, where `T` is `U`.
#[inline]
fn accumulator<T: Element, U: CpuElement>(number: T::Acc) -> Result<U::Acc> {
    bytemuck::try_cast(number).map_err(|_| foreign::<T>())
}

#[inline]
fn input<T: Element, U: CpuElement>(name: &str, view: View<'_, T>) -> Result<HostMatrix<*const U>> {
    // Views of other crates' matrices are created without a check.
    view.shape().len()?;
    match view.memory() {
        Memory::Device(device) => Err(on_gpu::<T>(name, device)),
        Memory::Host(memory) => {
            Ok(HostMatrix { memory: checked_cast::<T, T, U>(memory.as_ptr().cast_mut())?, layout: view.layout() })
        }
    }
}

/// The bias, broadcast to the shape of C; never written.
fn bias_matrix<T: Element, U: CpuElement>(bias: View<'_, T::Out>, c: Shape) -> Result<HostMatrix<*mut U::Out>> {
    let bias = bias.broadcast(c)?;
    match bias.memory() {
        Memory::Device(device) => Err(on_gpu::<T>("bias", device)),
        Memory::Host(memory) => {
            Ok(HostMatrix { memory: checked_cast::<T, _, _>(memory.as_ptr().cast_mut())?, layout: bias.layout() })
        }
    }
}

#[inline]
fn output<T: Element, U: CpuElement>(view: ViewMut<'_, T::Out>) -> Result<HostMatrix<*mut U::Out>> {
    let layout = view.layout();
    match view.into_memory() {
        MemoryMut::Device(device) => Err(on_gpu::<T>("C", device)),
        MemoryMut::Host(mut memory) => Ok(HostMatrix { memory: checked_cast::<T, _, _>(memory.as_mut_ptr())?, layout }),
    }
}

/// [`same_elements`], or the error.
#[inline]
fn checked_cast<T: Element, S: Scalar, U: Scalar>(memory: *mut S) -> Result<*mut U> {
    same_elements(memory).ok_or_else(foreign::<T>)
}

/// Casts a pointer to elements whose `TYPE` is that of `U`.
///
/// Refuses an element type of another crate whose size or alignment is not that of its `TYPE`.
#[inline]
fn same_elements<S: Scalar, U: Scalar>(memory: *mut S) -> Option<*mut U> {
    let memory = memory.cast::<U>();
    (S::TYPE == U::TYPE && size_of::<S>() == size_of::<U>() && memory.is_aligned()).then_some(memory)
}

#[cold]
fn on_gpu<T: Element>(name: &str, memory: DeviceMemory) -> Error {
    Error::Unsupported {
        what: format!("a product with {name} on cuda:{}", memory.ordinal()),
        ty: T::TYPE,
        device: "the CPU; copy it to the host first".into(),
    }
}

/// The error for an element type of another crate, which has no micro-kernels.
#[cold]
fn foreign<T: Element>() -> Error {
    Error::Unsupported { what: "a product".into(), ty: T::TYPE, device: "the CPU".into() }
}

#[cfg(test)]
mod product_tests;
