//! Libraries with the C interface of BLAS, and what some of them add to it for short numbers.

use std::ffi::{c_int, c_void};

use libloading::Library;
use tegula::element::Type;
use tegula::error::Result;
use tegula::matrix::{Matrix, View};

use super::ready::{Call, Lies, Operand, Product, Work};
use super::{Blas, Threads, symbol};

/// `cblas_sgemm` and its kin: order, transposes, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc; with inputs of type `U` and sums of type `S`.
type Function<U, S, I> = unsafe extern "C" fn(c_int, c_int, c_int, I, I, I, S, *const U, I, *const U, I, S, *mut S, I);

/// `cblas_gemm_s8u8s32` of MKL, whose row-major A is u8 and B is i8: as above, with what an offset of C is after the transposes, an offset that is added to each
/// element behind A's and B's leading dimensions, and the offset of C last.
type Bytes = unsafe extern "C" fn(
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
/// The offset of C is one number.
const FIXED: c_int = 173;

/// A product of one type, by the size of its integers.
enum Gemm<U, S> {
    Narrow(Function<U, S, c_int>),
    Wide(Function<U, S, i64>),
}

/// The functions of an open library.
pub struct Functions {
    f32: Gemm<f32, f32>,
    f64: Option<Gemm<f64, f64>>,
    bf16: Option<Gemm<u16, f32>>,
    f16: Option<Gemm<u16, f32>>,
    i8: Option<Bytes>,
    pub threads: Threads,
}

impl Functions {
    /// # Safety
    /// It is that library.
    ///
    /// # Errors
    /// What it lacks.
    pub unsafe fn of(library: &Library, which: Blas) -> std::result::Result<Functions, &'static str> {
        let mkl = which == Blas::Mkl;
        // SAFETY: these are the types that the libraries' headers give functions of these names. Those of one name with integers of another size are
        // not among them.
        unsafe {
            let (bf16, f16) = if mkl { ("gemm_bf16bf16f32", "gemm_f16f16f32") } else { ("sbgemm", "shgemm") };
            Ok(Functions {
                f32: cblas(library, "sgemm").ok_or("it has no product of f32")?,
                f64: cblas(library, "dgemm"),
                bf16: cblas(library, bf16),
                f16: cblas(library, f16),
                i8: if mkl { symbol(library, &["cblas_gemm_s8u8s32"]) } else { None },
                threads: threads(library, which).ok_or("the number of its threads cannot be set")?,
            })
        }
    }

    /// The ways to make a product.
    pub fn calls<'a>(&'a self, product: &Product<'a>) -> Result<Vec<Call<'a>>> {
        let (short, single) = (product.ty.is_half_float(), product.singles());
        let work = match product.ty {
            Type::F32 => self.f32.work(product, single),
            Type::F64 => self.f64.as_ref().and_then(|gemm| gemm.work(product, product.doubles())),
            Type::BF16 => self.bf16.as_ref().and_then(|gemm| gemm.work(product, single)),
            Type::F16 => self.f16.as_ref().and_then(|gemm| gemm.work(product, single)),
            Type::I8 => self.i8.map_or(Ok(None), |gemm| bytes(gemm, product))?,
            _ => None,
        };
        Ok(work.map(|work| Call { name: "", single: short, work }).into_iter().collect())
    }
}

impl<U, S: Copy> Gemm<U, S> {
    fn work<'a>(&'a self, product: &Product<'a>, factors: [S; 2]) -> Option<Work<'a>> {
        match *self {
            Gemm::Narrow(gemm) => work(gemm, product, factors),
            Gemm::Wide(gemm) => work(gemm, product, factors),
        }
    }
}

/// Calls of a function, batch after batch. `None` of a layout or a size that it does not take.
fn work<'a, U: 'a, S: Copy + 'a, I: TryFrom<usize> + Copy + 'a>(
    gemm: Function<U, S, I>,
    product: &Product<'a>,
    [alpha, beta]: [S; 2],
) -> Option<Work<'a>> {
    let int = |size: usize| I::try_from(size).ok();
    let [rows, cols, depth] = product.sizes();
    let (m, n, k, ldc) = (int(rows)?, int(cols)?, int(depth)?, int(cols.max(1))?);
    let (a, b, batches) = (product.a, product.b, product.shape.batches);
    let (oa, ob) = (Lies::of(&a.layout)?, Lies::of(&b.layout)?);
    let (lda, ldb) = (int(oa.leading)?, int(ob.leading)?);
    Some(Box::new(move |c| {
        for batch in 0..batches {
            let (a, b, c) = (a.at(batch), b.at(batch), c.cast::<S>().wrapping_add(batch * rows * cols));
            // SAFETY: A and B are borrowed to be read, with layouts that lie within their memory, and C has room for the batch.
            unsafe { gemm(ROW_MAJOR, code(&oa), code(&ob), m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) };
        }
        Ok(())
    }))
}

/// Calls of the product of bytes. A is copied beforehand with 128 added to each element, which the library takes off again.
fn bytes<'a>(gemm: Bytes, product: &Product<'a>) -> Result<Option<Work<'a>>> {
    // It scales in f32, which is not exact.
    if !product.is_plain() {
        return Ok(None);
    }
    let int = |size: usize| c_int::try_from(size).ok();
    let [rows, cols, depth] = product.sizes();
    let (b, batches) = (product.b, product.shape.batches);
    let (Some(oa), Some(ob)) = (Lies::of(&product.a.layout), Lies::of(&b.layout)) else { return Ok(None) };
    let a = shifted(&product.a, &oa)?;
    let lda = if oa.transposed { rows } else { depth };
    let all = (int(rows), int(cols), int(depth), int(lda.max(1)), int(ob.leading), int(cols.max(1)));
    let (Some(m), Some(n), Some(k), Some(lda), Some(ldb), Some(ldc)) = all else { return Ok(None) };
    Ok(Some(Box::new(move |c| {
        for batch in 0..batches {
            let a = a.as_slice()[batch * rows * depth..].as_ptr().cast();
            let (b, c) = (b.at(batch), c.cast::<i32>().wrapping_add(batch * rows * cols));
            let (ta, tb) = (code(&oa), code(&ob));
            // SAFETY: A is a copy of as many elements, B is borrowed to be read, and C has room for the batch.
            unsafe { gemm(ROW_MAJOR, ta, tb, FIXED, m, n, k, 1.0, a, lda, i8::MIN, b, ldb, 0, 0.0, c, ldc, &0) };
        }
        Ok(())
    })))
}

/// Elements of i8, each 128 more as a u8, without gaps in the order in which they lie.
fn shifted(a: &Operand<'_>, lies: &Lies) -> Result<Matrix<i8>> {
    let layout = if lies.transposed { a.layout.transposed() } else { a.layout };
    // SAFETY: these are the elements of A, which is borrowed to be read.
    let view = unsafe { View::<i8>::from_raw_parts(a.at(0), layout.shape, layout.strides) };
    let mut copy = Matrix::from_view(view)?;
    copy.as_mut_slice().iter_mut().for_each(|element| *element ^= i8::MIN);
    Ok(copy)
}

/// Whether a matrix is transposed, as BLAS says it.
fn code(lies: &Lies) -> c_int {
    if lies.transposed { 112 } else { 111 }
}

/// A product by its BLAS name, however its integers and its name are.
///
/// # Safety
/// `U` and `S` are those of the function of that name.
unsafe fn cblas<U, S>(library: &Library, name: &str) -> Option<Gemm<U, S>> {
    let narrow = [format!("cblas_{name}"), format!("scipy_cblas_{name}")];
    let wide = [format!("scipy_cblas_{name}64_"), format!("cblas_{name}64_"), format!("cblas_{name}_64")];
    // SAFETY: the caller's promise; 64 in a name means integers of 64 bits.
    unsafe {
        let narrow = symbol(library, &narrow).map(Gemm::Narrow);
        narrow.or_else(|| symbol(library, &wide).map(Gemm::Wide))
    }
}

/// # Safety
/// It is that library.
unsafe fn threads(library: &Library, which: Blas) -> Option<Threads> {
    // SAFETY: the types that the libraries' headers give.
    unsafe {
        match which {
            Blas::Mkl => symbol(library, &["MKL_Set_Num_Threads"]).map(Threads::Narrow),
            Blas::Blis => symbol(library, &["bli_thread_set_num_threads"]).map(Threads::Wide),
            _ => {
                let names =
                    ["openblas_set_num_threads", "scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads"];
                symbol(library, &names).map(Threads::Narrow)
            }
        }
    }
}
