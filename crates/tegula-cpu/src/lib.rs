//! The product on the CPU: C ← act(alpha·A·B + beta·C + bias), blocked for the caches and vectorised for the machine it finds itself on.
//!
//! - `isa`: which instructions there are, and which are used;
//! - `scaled`: batches and threads; `compiled`: the same for each element type;
//! - `kernel`: what a micro-kernel is (`portable`, `x86`, `vnni` and `amx` hold them);
//! - `way`: what is packed, how C is cut, for how many threads;
//! - `blocked`: the loops, written once;
//! - `pack`: A and B in the order a micro-kernel reads them; `panels`: all of B packed once;
//! - `crew`: threads that share tasks; `caches`: how large they are here;
//! - `epilogue`: what happens to sums last;
//! - `probe`: whether the processor runs at full speed.
//!
//! # Accuracy
//! Sums are kept in [`Element::Acc`] and added in order of k, in runs of KC: each run is summed from 0 (bytes with VNNI from what makes up for their packing) and added to those before; alpha and beta
//! scale the whole.
//! AMX takes subnormal numbers of bf16, and makes those of a bf16 result, zeros (2⁻¹²⁶ and more are normal).
//! So the result stays within the bound of `tegula_bench::oracle`, 16-bit results are rounded once, and no result depends
//! on the number of threads.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod amx;
mod blocked;
mod buffer;
mod caches;
mod compiled;
mod crew;
mod epilogue;
mod grid;
mod isa;
mod kernel;
mod operands;
mod pack;
mod panels;
mod portable;
mod probe;
mod scaled;
mod source;
#[cfg(target_arch = "x86_64")]
mod tiles;
#[cfg(target_arch = "x86_64")]
mod vnni;
mod way;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::borrow::Cow;
use std::sync::OnceLock;

use compiled::Compiled;
pub use isa::{Isa, features};
use kernel::Operand;
pub use panels::Panels;
pub use probe::at_full_speed;
pub use scaled::Workspace;
use scaled::{Host, Scaled};
use source::Source;
use tegula_core::element::{Element, Scalar, Type, with_operand_type};
use tegula_core::epilogue::Finish;
use tegula_core::error::{Error, Result};
use tegula_core::matrix::{DeviceMemory, Layout, Memory, MemoryMut, Shape, View, ViewMut};
use tegula_core::progress::Meter;

/// Runs a function for the number type that `T` is at run time.
macro_rules! for_type {
    ($t:ty, $function:ident($($argument:expr),*)) => {
        with_operand_type!(<$t as Scalar>::TYPE, U => $function::<$t, U>($($argument),*), _ => Err(foreign::<$t>()))
    };
}

/// C ← alpha·A·B + beta·C, where A is m×k, B is k×n and C is m×n, or batches of as many such matrices each.
///
/// Any strides will do: transposed, reversed, and for A and B broadcast (0). Where `beta` is 0, C is not read; where `alpha` is 0,
/// A and B are not. k may be 0. The [threads](tegula_core::threads::count) are those of the current rayon pool; small products use only the caller's.
///
/// # Errors
/// [`Error::Shape`] where the shapes do not make a product; [`Error::Unsupported`] where a matrix lies on a GPU or `TEGULA_CPU`
/// names an instruction set that this machine lacks; [`Error::OutOfMemory`] where there is no room to pack A and B.
pub fn gemm<T: Element>(alpha: T::Acc, a: View<T>, b: View<T>, beta: T::Acc, c: ViewMut<T::Out>) -> Result<()> {
    gemm_told(Isa::chosen(T::TYPE)?, alpha, a, b, beta, c, Finish::default(), None, None)
}

/// [`gemm`] with an instruction set that the machine has, an epilogue, B packed before, and a meter
/// of multiply-adds.
///
/// # Errors
/// As [`gemm`].
#[allow(clippy::too_many_arguments, reason = "the parts of a product")]
pub fn gemm_told<T: Element>(
    isa: Isa,
    alpha: T::Acc,
    a: View<T>,
    b: View<T>,
    beta: T::Acc,
    c: ViewMut<T::Out>,
    finish: Finish<'_, T::Out>,
    panels: Option<&Panels>,
    meter: Option<&Meter<'_>>,
) -> Result<()> {
    with_operand_type!(
        T::TYPE,
        U => {
            let [alpha, beta] = [sum::<T, U>(alpha)?, sum::<T, U>(beta)?];
            let bias = finish.bias.map(|bias| vector::<T, U>(bias, c.shape())).transpose()?;
            let (a, b, c) = (input("A", a)?, input("B", b)?, output::<T, U>(c)?);
            let scaled = Scaled { isa, alpha, beta, panels, meter };
            // SAFETY: views were borrowed to read A, B and the bias, which has the shape of C, and to write C, whose
            // elements are distinct.
            unsafe { U::multiply()(scaled, a, b, c, bias, finish.activation) }
        },
        _ => Err(foreign::<T>())
    )
}

/// All panels of B; `None` where there are no elements.
///
/// # Errors
/// As [`gemm`].
pub fn prepack<T: Element>(b: View<T>) -> Result<Option<Panels>> {
    let isa = Isa::chosen(T::TYPE)?;
    for_type!(T, prepack_as(isa, b))
}

fn prepack_as<T: Element, U: Compiled>(isa: Isa, b: View<T>) -> Result<Option<Panels>> {
    let b = input::<T, U>("B", b)?;
    let shape = b.layout.shape;
    if shape.is_empty() {
        return Ok(None);
    }
    // SAFETY: the view was borrowed to be read.
    let columns = unsafe { Source::rows(b.memory, b.layout.transposed()) };
    U::panels(isa, columns, shape).map(Some)
}

/// The micro-kernel that large products of this type use: instruction set, type, and the tile of C it holds, such as `avx2 f32 4x24`.
///
/// # Errors
/// [`Error::Unsupported`] where `TEGULA_CPU` names an instruction set that this machine lacks.
pub fn kernel_name<T: Element>() -> Result<Cow<'static, str>> {
    // Every product tells it. By type, of which there are fewer.
    static NAMES: [OnceLock<String>; Type::ALL.len()] = [const { OnceLock::new() }; Type::ALL.len()];
    let isa = Isa::chosen(T::TYPE)?;
    let kept = NAMES.get(T::TYPE as usize);
    match kept.and_then(OnceLock::get) {
        Some(name) => Ok(Cow::Borrowed(name)),
        None => {
            let name = for_type!(T, kernel_name_of(isa))?;
            Ok(kept.map_or(Cow::Owned(name.clone()), |kept| Cow::Borrowed(kept.get_or_init(|| name))))
        }
    }
}

fn kernel_name_of<T: Element, U: Operand>(isa: Isa) -> Result<String> {
    let [rows, cols] = U::tiles(isa).block;
    Ok(format!("{} {} {rows}x{cols}", U::own(isa), T::TYPE))
}

/// What [`gemm`] takes for matrices that lie so.
///
/// # Errors
/// As [`kernel_name`].
pub fn workspace<T: Element>(
    alpha: T::Acc,
    a: Layout,
    b: Layout,
    beta: T::Acc,
    c: Layout,
    panels: Option<&Panels>,
) -> Result<Workspace> {
    let isa = Isa::chosen(T::TYPE)?;
    for_type!(T, workspace_as(isa, alpha, [a, b], beta, c, panels))
}

fn workspace_as<T: Element, U: Compiled>(
    isa: Isa,
    alpha: T::Acc,
    [a, b]: [Layout; 2],
    beta: T::Acc,
    c: Layout,
    panels: Option<&Panels>,
) -> Result<Workspace> {
    let [alpha, beta] = [sum::<T, U>(alpha)?, sum::<T, U>(beta)?];
    U::workspace(Scaled { isa, alpha, beta, panels, meter: None }, [a, b, c])
}

/// A number of the accumulator type, where `T` is `U`.
fn sum<T: Element, U: Operand>(number: T::Acc) -> Result<U::Acc> {
    bytemuck::try_cast(number).map_err(|_| foreign::<T>())
}

fn input<T: Element, U: Operand>(name: &str, view: View<'_, T>) -> Result<Host<*const U>> {
    // Views of other crates' matrices are made without a check.
    view.shape().len()?;
    match view.memory() {
        Memory::Device(device) => Err(on_gpu::<T>(name, device)),
        Memory::Host(memory) => {
            Ok(Host { memory: same::<T, T, U>(memory.as_ptr().cast_mut())?, layout: view.layout() })
        }
    }
}

/// The bias as a matrix like C. It is never written to.
fn vector<T: Element, U: Operand>(bias: View<'_, T::Out>, c: Shape) -> Result<Host<*mut U::Out>> {
    let bias = bias.broadcast(c)?;
    match bias.memory() {
        Memory::Device(device) => Err(on_gpu::<T>("bias", device)),
        Memory::Host(memory) => {
            Ok(Host { memory: same::<T, _, _>(memory.as_ptr().cast_mut())?, layout: bias.layout() })
        }
    }
}

fn output<T: Element, U: Operand>(view: ViewMut<'_, T::Out>) -> Result<Host<*mut U::Out>> {
    let layout = view.layout();
    match view.into_memory() {
        MemoryMut::Device(device) => Err(on_gpu::<T>("C", device)),
        MemoryMut::Host(mut memory) => Ok(Host { memory: same::<T, _, _>(memory.as_mut_ptr())?, layout }),
    }
}

/// The address of elements that are of the type `U` by their tag; refused where a foreign type's tag lies.
fn same<T: Element, S: Scalar, U: Scalar>(memory: *mut S) -> Result<*mut U> {
    let memory = memory.cast::<U>();
    let same = S::TYPE == U::TYPE && size_of::<S>() == size_of::<U>() && memory.is_aligned();
    if same { Ok(memory) } else { Err(foreign::<T>()) }
}

fn on_gpu<T: Element>(name: &str, memory: DeviceMemory) -> Error {
    Error::Unsupported {
        what: format!("a product whose {name} lies on cuda:{}", memory.ordinal()),
        ty: T::TYPE,
        device: "the CPU; copy it to the host first".into(),
    }
}

/// An element type of somebody else's, for which there are no micro-kernels.
fn foreign<T: Element>() -> Error {
    Error::Unsupported { what: "a product".into(), ty: T::TYPE, device: "the CPU".into() }
}

#[cfg(test)]
mod product_tests;
