//! Rust crates that are linked into the program.

use gemm::Parallelism;
use tegula::element::Type;
use tegula_core::threads;

use super::Blas;
use super::prepared::{CallFn, Operand, PeerCall, PeerProblem};

/// A Rust crate with a matrix product.
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

    /// Calls that compute a product, on all threads of the pool.
    pub fn calls<'a>(&self, product: &PeerProblem<'a>) -> Vec<PeerCall<'a>> {
        let threads = threads::count();
        let function = match (self, product.ty) {
            (Crate::Gemm, Type::F32) => Some(gemm_call(product, product.f32_scalars(), threads)),
            (Crate::Gemm, Type::F64) => Some(gemm_call(product, product.f64_scalars(), threads)),
            // It reads its number of threads once, from the environment; only one is measured.
            (Crate::Matrixmultiply, _) if threads > 1 => None,
            (Crate::Matrixmultiply, Type::F32) => {
                Some(matrixmultiply_call(product, product.f32_scalars(), matrixmultiply::sgemm))
            }
            (Crate::Matrixmultiply, Type::F64) => {
                Some(matrixmultiply_call(product, product.f64_scalars(), matrixmultiply::dgemm))
            }
            _ => None,
        };
        function.map(|function| PeerCall { name: "", f32_c: false, function }).into_iter().collect()
    }
}

/// Row and column strides.
fn strides(operand: &Operand<'_>) -> [isize; 2] {
    let [_, row, col] = operand.layout.strides;
    [row, col]
}

fn gemm_call<'a, T: Copy + PartialEq + Default + 'static>(
    product: &PeerProblem<'a>,
    [alpha, beta]: [T; 2],
    threads: usize,
) -> CallFn<'a> {
    let ([m, n, k], batches, a, b) = (product.sizes(), product.shape.batches, product.a, product.b);
    let ([ar, ac], [br, bc], cr) = (strides(&a), strides(&b), n as isize);
    let parallelism = if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None };
    let (reads_c, [conj_c, conj_a, conj_b]) = (beta != T::default(), [false; 3]);
    Box::new(move |c| {
        for batch in 0..batches {
            let (a, b, c) = (a.at::<T>(batch), b.at::<T>(batch), c.cast::<T>().wrapping_add(batch * m * n));
            // SAFETY: A and B are borrowed, their layouts are in bounds, and C holds the batch.
            unsafe {
                gemm::gemm(
                    m,
                    n,
                    k,
                    c,
                    1,
                    cr,
                    reads_c,
                    a,
                    ac,
                    ar,
                    b,
                    bc,
                    br,
                    beta,
                    alpha,
                    conj_c,
                    conj_a,
                    conj_b,
                    parallelism,
                );
            }
        }
        Ok(())
    })
}

/// `sgemm` and `dgemm` of matrixmultiply.
///
/// Arguments: m, k, n, alpha, A and its strides, B and its strides, beta, C and its strides.
type Matrixmultiply<T> =
    unsafe fn(usize, usize, usize, T, *const T, isize, isize, *const T, isize, isize, T, *mut T, isize, isize);

fn matrixmultiply_call<'a, T: Copy + 'static>(
    product: &PeerProblem<'a>,
    [alpha, beta]: [T; 2],
    multiply: Matrixmultiply<T>,
) -> CallFn<'a> {
    let ([m, n, k], batches, a, b) = (product.sizes(), product.shape.batches, product.a, product.b);
    let ([ar, ac], [br, bc], cr) = (strides(&a), strides(&b), n as isize);
    Box::new(move |c| {
        for batch in 0..batches {
            let (a, b, c) = (a.at(batch), b.at(batch), c.cast::<T>().wrapping_add(batch * m * n));
            // SAFETY: A and B are borrowed, their layouts are in bounds, and C holds the batch.
            unsafe { multiply(m, k, n, alpha, a, ar, ac, b, br, bc, beta, c, cr, 1) };
        }
        Ok(())
    })
}
