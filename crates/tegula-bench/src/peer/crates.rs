//! Crates for Rust, which are part of the program.

use gemm::Parallelism;
use tegula::element::Type;
use tegula_core::threads;

use super::Blas;
use super::ready::{Call, Operand, Product, Work};

/// A crate.
#[non_exhaustive]
pub enum Crate {
    Gemm,
    Matrixmultiply,
}

impl Crate {
    pub fn of(which: Blas) -> Crate {
        if which == Blas::Gemm { Crate::Gemm } else { Crate::Matrixmultiply }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Crate::Gemm => "gemm",
            Crate::Matrixmultiply => "matrixmultiply",
        }
    }

    /// The way to make a product, on as many threads as the pool has.
    pub fn calls<'a>(&self, product: &Product<'a>) -> Vec<Call<'a>> {
        let threads = threads::count();
        let work = match (self, product.ty) {
            (Crate::Gemm, Type::F32) => Some(by_gemm(product, product.singles(), threads)),
            (Crate::Gemm, Type::F64) => Some(by_gemm(product, product.doubles(), threads)),
            // Its threads are those of an environment variable that is read once; it is measured without.
            (Crate::Matrixmultiply, _) if threads > 1 => None,
            (Crate::Matrixmultiply, Type::F32) => {
                Some(by_matrixmultiply(product, product.singles(), matrixmultiply::sgemm))
            }
            (Crate::Matrixmultiply, Type::F64) => {
                Some(by_matrixmultiply(product, product.doubles(), matrixmultiply::dgemm))
            }
            _ => None,
        };
        work.map(|work| Call { name: "", single: false, work }).into_iter().collect()
    }
}

/// Strides between rows and columns.
fn strides(operand: &Operand<'_>) -> [isize; 2] {
    let [_, row, col] = operand.layout.strides;
    [row, col]
}

fn by_gemm<'a, T: Copy + PartialEq + Default + 'static>(
    product: &Product<'a>,
    [alpha, beta]: [T; 2],
    threads: usize,
) -> Work<'a> {
    let ([m, n, k], batches, a, b) = (product.sizes(), product.shape.batches, product.a, product.b);
    let ([ar, ac], [br, bc], cr) = (strides(&a), strides(&b), n as isize);
    let parallelism = if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None };
    let (reads, plain) = (beta != T::default(), [false; 3]);
    let [c_plain, a_plain, b_plain] = plain;
    Box::new(move |c| {
        for batch in 0..batches {
            let (a, b, c) = (a.at::<T>(batch), b.at::<T>(batch), c.cast::<T>().wrapping_add(batch * m * n));
            // SAFETY: A and B are borrowed to be read, with layouts that lie within their memory, and C has room for the batch.
            unsafe {
                gemm::gemm(
                    m,
                    n,
                    k,
                    c,
                    1,
                    cr,
                    reads,
                    a,
                    ac,
                    ar,
                    b,
                    bc,
                    br,
                    beta,
                    alpha,
                    c_plain,
                    a_plain,
                    b_plain,
                    parallelism,
                );
            }
        }
        Ok(())
    })
}

/// `sgemm` and `dgemm` of the crate: m, k, n, alpha, A and its strides, B and its strides, beta, C and its strides.
type Matrixmultiply<T> =
    unsafe fn(usize, usize, usize, T, *const T, isize, isize, *const T, isize, isize, T, *mut T, isize, isize);

fn by_matrixmultiply<'a, T: Copy + 'static>(
    product: &Product<'a>,
    [alpha, beta]: [T; 2],
    multiply: Matrixmultiply<T>,
) -> Work<'a> {
    let ([m, n, k], batches, a, b) = (product.sizes(), product.shape.batches, product.a, product.b);
    let ([ar, ac], [br, bc], cr) = (strides(&a), strides(&b), n as isize);
    Box::new(move |c| {
        for batch in 0..batches {
            let (a, b, c) = (a.at(batch), b.at(batch), c.cast::<T>().wrapping_add(batch * m * n));
            // SAFETY: A and B are borrowed to be read, with layouts that lie within their memory, and C has room for the batch.
            unsafe { multiply(m, k, n, alpha, a, ar, ac, b, br, bc, beta, c, cr, 1) };
        }
        Ok(())
    })
}
