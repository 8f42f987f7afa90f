//! Libraries with the C interface of BLAS, and their extensions for 16-bit and 8-bit types.

use std::ffi::{c_int, c_void};

use libloading::Library;
use tegula::element::Type;
use tegula::error::Result;
use tegula::matrix::{Matrix, View};

use super::prepared::{BlasLayout, CallFn, Operand, PeerCall, PeerProblem};
use super::{Blas, Threads, symbol};

/// `cblas_sgemm` and variants, with A and B of type `U`, C and scalars of type `S`.
///
/// Arguments: order, transposes, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc.
type Function<U, S, I> = unsafe extern "C" fn(c_int, c_int, c_int, I, I, I, S, *const U, I, *const U, I, S, *mut S, I);

/// `cblas_gemm_s8u8s32` of MKL, whose row-major A is u8 and B is i8.
///
/// Arguments as above, and: the kind of C's offset after the transposes, an offset of each element
/// after lda and ldb, and C's offset last.
type Int8Function = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    f32,
    *const c_void,
    c_int,
    i8,
    *const c_void,
    c_int,
    i8,
    f32,
    *mut i32,
    c_int,
    *const i32,
);

const ROW_MAJOR: c_int = 101;
/// `CblasFixOffset`: the offset of C is one number.
const FIXED: c_int = 173;

/// A GEMM function by the width of its integers.
enum Gemm<U, S> {
    Int32(Function<U, S, c_int>),
    Int64(Function<U, S, i64>),
}

/// Functions of a loaded library.
pub struct Functions {
    f32: Gemm<f32, f32>,
    f64: Option<Gemm<f64, f64>>,
    bf16: Option<Gemm<u16, f32>>,
    f16: Option<Gemm<u16, f32>>,
    i8: Option<Int8Function>,
    pub threads: Threads,
}

impl Functions {
    /// Looks up the functions of a library.
    ///
    /// # Safety
    /// `library` is the library `which`.
    ///
    /// # Errors
    /// The missing function.
    pub unsafe fn of(library: &Library, which: Blas) -> std::result::Result<Functions, &'static str> {
        let mkl = which == Blas::Mkl;
        // SAFETY: the types are those of the libraries' headers. No name stands for two widths of
        // integers.
        unsafe {
            let (bf16, f16) = if mkl { ("gemm_bf16bf16f32", "gemm_f16f16f32") } else { ("sbgemm", "shgemm") };
            Ok(Functions {
                f32: cblas(library, "sgemm").ok_or("it has no function sgemm")?,
                f64: cblas(library, "dgemm"),
                bf16: cblas(library, bf16),
                f16: cblas(library, f16),
                i8: if mkl { symbol(library, &["cblas_gemm_s8u8s32"]) } else { None },
                threads: threads(library, which).ok_or("the number of its threads cannot be set")?,
            })
        }
    }

    /// Calls that compute a product.
    pub fn calls<'a>(&'a self, product: &PeerProblem<'a>) -> Result<Vec<PeerCall<'a>>> {
        let (is_16_bit, scalars) = (product.ty.is_half_float(), product.f32_scalars());
        let function = match product.ty {
            Type::F32 => self.f32.call(product, scalars),
            Type::F64 => self.f64.as_ref().and_then(|gemm| gemm.call(product, product.f64_scalars())),
            Type::BF16 => self.bf16.as_ref().and_then(|gemm| gemm.call(product, scalars)),
            Type::F16 => self.f16.as_ref().and_then(|gemm| gemm.call(product, scalars)),
            Type::I8 => self.i8.map_or(Ok(None), |gemm| int8_call(gemm, product))?,
            _ => None,
        };
        Ok(function.map(|function| PeerCall { name: "", f32_c: is_16_bit, function }).into_iter().collect())
    }
}

impl<U, S: Copy> Gemm<U, S> {
    fn call<'a>(&'a self, product: &PeerProblem<'a>, scalars: [S; 2]) -> Option<CallFn<'a>> {
        match *self {
            Gemm::Int32(gemm) => batched_call(gemm, product, scalars),
            Gemm::Int64(gemm) => batched_call(gemm, product, scalars),
        }
    }
}

/// Calls a function for each matrix of the batch; `None` for unsupported layouts and sizes.
fn batched_call<'a, U: 'a, S: Copy + 'a, I: TryFrom<usize> + Copy + 'a>(
    gemm: Function<U, S, I>,
    product: &PeerProblem<'a>,
    [alpha, beta]: [S; 2],
) -> Option<CallFn<'a>> {
    let int = |size: usize| I::try_from(size).ok();
    let [rows, cols, depth] = product.sizes();
    let (m, n, k, ldc) = (int(rows)?, int(cols)?, int(depth)?, int(cols.max(1))?);
    let (a, b, batches) = (product.a, product.b, product.shape.batches);
    let (a_layout, b_layout) = (BlasLayout::of(&a.layout)?, BlasLayout::of(&b.layout)?);
    let (lda, ldb) = (int(a_layout.leading)?, int(b_layout.leading)?);
    Some(Box::new(move |c| {
        for batch in 0..batches {
            let (a, b, c) = (a.at(batch), b.at(batch), c.cast::<S>().wrapping_add(batch * rows * cols));
            // SAFETY: A and B are borrowed, their layouts are in bounds, and C holds the batch.
            unsafe {
                gemm(
                    ROW_MAJOR,
                    transpose_code(&a_layout),
                    transpose_code(&b_layout),
                    m,
                    n,
                    k,
                    alpha,
                    a,
                    lda,
                    b,
                    ldb,
                    beta,
                    c,
                    ldc,
                )
            };
        }
        Ok(())
    }))
}

/// Calls the 8-bit function on a copy of A with an offset of 128, which the library subtracts.
fn int8_call<'a>(gemm: Int8Function, product: &PeerProblem<'a>) -> Result<Option<CallFn<'a>>> {
    // The library scales in f32, which is inexact.
    if !product.is_unscaled() {
        return Ok(None);
    }
    let int = |size: usize| c_int::try_from(size).ok();
    let [rows, cols, depth] = product.sizes();
    let (b, batches) = (product.b, product.shape.batches);
    let (Some(a_layout), Some(b_layout)) = (BlasLayout::of(&product.a.layout), BlasLayout::of(&b.layout)) else {
        return Ok(None);
    };
    let a = with_offset(&product.a, &a_layout)?;
    let lda = if a_layout.transposed { rows } else { depth };
    let all = (int(rows), int(cols), int(depth), int(lda.max(1)), int(b_layout.leading), int(cols.max(1)));
    let (Some(m), Some(n), Some(k), Some(lda), Some(ldb), Some(ldc)) = all else { return Ok(None) };
    Ok(Some(Box::new(move |c| {
        for batch in 0..batches {
            let a = a.as_slice()[batch * rows * depth..].as_ptr().cast();
            let (b, c) = (b.at(batch), c.cast::<i32>().wrapping_add(batch * rows * cols));
            let (ta, tb) = (transpose_code(&a_layout), transpose_code(&b_layout));
            // SAFETY: A is a copy of the same size, B is borrowed, and C holds the batch.
            unsafe { gemm(ROW_MAJOR, ta, tb, FIXED, m, n, k, 1.0, a, lda, i8::MIN, b, ldb, 0, 0.0, c, ldc, &0) };
        }
        Ok(())
    })))
}

/// Copies elements of A as u8 with an offset of 128, contiguous, in memory order.
fn with_offset(a: &Operand<'_>, layout: &BlasLayout) -> Result<Matrix<i8>> {
    let layout = if layout.transposed { a.layout.transposed() } else { a.layout };
    // SAFETY: these are the elements of A, which is borrowed.
    let view = unsafe { View::<i8>::from_raw_parts(a.at(0), layout.shape, layout.strides) };
    let mut copy = Matrix::from_view(view)?;
    copy.as_mut_slice().iter_mut().for_each(|element| *element ^= i8::MIN);
    Ok(copy)
}

/// `CblasTrans` or `CblasNoTrans`.
fn transpose_code(layout: &BlasLayout) -> c_int {
    if layout.transposed { 112 } else { 111 }
}

/// Looks up a GEMM function by its BLAS name, with 32-bit or 64-bit integers.
///
/// # Safety
/// `U` and `S` are the types of the function of that name.
unsafe fn cblas<U, S>(library: &Library, name: &str) -> Option<Gemm<U, S>> {
    let int32 = [format!("cblas_{name}"), format!("scipy_cblas_{name}")];
    let int64 = [format!("scipy_cblas_{name}64_"), format!("cblas_{name}64_"), format!("cblas_{name}_64")];
    // SAFETY: guaranteed by the caller; 64 in a name means 64-bit integers.
    unsafe {
        let int32 = symbol(library, &int32).map(Gemm::Int32);
        int32.or_else(|| symbol(library, &int64).map(Gemm::Int64))
    }
}

/// Looks up the function that sets the number of threads.
///
/// # Safety
/// `library` is the library `which`.
unsafe fn threads(library: &Library, which: Blas) -> Option<Threads> {
    // SAFETY: the types are those of the libraries' headers.
    unsafe {
        match which {
            Blas::Mkl => symbol(library, &["MKL_Set_Num_Threads"]).map(Threads::Int32),
            Blas::Blis => symbol(library, &["bli_thread_set_num_threads"]).map(Threads::Int64),
            _ => {
                let names =
                    ["openblas_set_num_threads", "scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads"];
                symbol(library, &names).map(Threads::Int32)
            }
        }
    }
}
