//! cublasGemmGroupedBatchedEx: NVIDIA's own product of many groups in one call.

use std::ffi::c_void;
use std::ptr::from_ref;

use tegula::cuda::cudarc::cublas::{CudaBlas, sys};
use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::element::bf16;
use tegula::{Error, Matrix, Result};

use super::{EXPERTS, Fallible, K, N};

/// The library and where each group's B, A and C begin.
pub struct Library {
    blas: CudaBlas,
    rows: Vec<i32>,
    /// Addresses on the GPU, whose bits are those of these numbers.
    addresses: [DeviceMatrix<f64>; 3],
}

impl Library {
    /// For groups of so many rows, one after the other in A and C; none where the library is not installed.
    pub fn open(gpu: &Gpu, sizes: &[usize], [a, b, c]: [&DeviceMatrix<bf16>; 3]) -> Fallible<Option<Self>> {
        // SAFETY: opening the library runs initialisers that are known to be harmless.
        if !unsafe { sys::is_culib_present() } {
            return Ok(None);
        }
        let blas = CudaBlas::new(gpu.stream().clone())?;
        let starts: Vec<usize> = sizes.iter().scan(0, |end, rows| Some(std::mem::replace(end, *end + rows))).collect();
        let addresses = |matrix: &DeviceMatrix<bf16>, element: &dyn Fn(usize) -> usize| {
            let address = |group| matrix.buffer().address() + (size_of::<bf16>() * element(group)) as u64;
            let bits = (0..EXPERTS).map(|group| f64::from_bits(address(group))).collect();
            DeviceMatrix::upload(gpu, Matrix::from_vec(1, EXPERTS, bits)?.view())
        };
        let addresses = [
            addresses(b, &|group| group * K * N)?,
            addresses(a, &|group| starts[group] * K)?,
            addresses(c, &|group| starts[group] * N)?,
        ];
        let rows = sizes.iter().map(|&rows| i32::try_from(rows)).collect::<std::result::Result<_, _>>()?;
        Ok(Some(Library { blas, rows, addresses }))
    }

    /// Queues the products of all groups. The library has columns where rows are meant here, so it makes Cᵀ from Bᵀ and Aᵀ.
    ///
    /// # Safety
    /// The matrices that this was opened for are alive until the work is done.
    pub unsafe fn queue(&self) -> Result<()> {
        let (n, k, one_each) = ([N as i32; EXPERTS], [K as i32; EXPERTS], [1; EXPERTS]);
        let plain = [sys::cublasOperation_t::CUBLAS_OP_N; EXPERTS];
        let (alpha, beta) = ([1f32; EXPERTS], [0f32; EXPERTS]);
        let [b, a, c] = self.addresses.each_ref().map(|list| list.buffer().address() as usize as *const *const c_void);
        let ty = sys::cudaDataType_t::CUDA_R_16BF;
        // SAFETY: each array has one number or address for each group, those of A, B and C on the GPU; the caller keeps the matrices.
        let status = unsafe {
            sys::cublasGemmGroupedBatchedEx(
                *self.blas.handle(),
                plain.as_ptr(),
                plain.as_ptr(),
                n.as_ptr(),
                self.rows.as_ptr(),
                k.as_ptr(),
                from_ref(&alpha).cast(),
                b,
                ty,
                n.as_ptr(),
                a,
                ty,
                k.as_ptr(),
                from_ref(&beta).cast(),
                c.cast(),
                ty,
                n.as_ptr(),
                EXPERTS as i32,
                one_each.as_ptr(),
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            )
        };
        status
            .result()
            .map_err(|why| Error::Peer { call: "cublasGemmGroupedBatchedEx", status: format!("{:?}", why.0) })
    }
}
