//! cublasGemmGroupedBatchedEx: the grouped GEMM of cuBLAS.

use std::ffi::c_void;
use std::ptr::from_ref;

use tegula::cuda::cudarc::cublas::{CudaBlas, sys};
use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::element::bf16;
use tegula::{Error, Matrix, Result};

use super::{EXPERTS, Fallible, K, N};

/// The cuBLAS handle, and the addresses of B, A and C of each group.
pub struct Library {
    blas: CudaBlas,
    rows: Vec<i32>,
    /// Arrays of GPU addresses, stored as the bits of f64.
    addresses: [DeviceMatrix<f64>; 3],
}

impl Library {
    /// Opens the library for contiguous groups of these sizes; `None` where it is not installed.
    pub fn open(gpu: &Gpu, sizes: &[usize], [a, b, c]: [&DeviceMatrix<bf16>; 3]) -> Fallible<Option<Self>> {
        // SAFETY: opening the library runs its initializers, which have no precondition.
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

    /// Queues the products of all groups. The library is column-major, so it computes Cᵀ from Bᵀ
    /// and Aᵀ.
    ///
    /// # Safety
    /// The matrices passed to `open` are alive until the work is complete.
    pub unsafe fn queue(&self) -> Result<()> {
        let (n, k, one_each) = ([N as i32; EXPERTS], [K as i32; EXPERTS], [1; EXPERTS]);
        let plain = [sys::cublasOperation_t::CUBLAS_OP_N; EXPERTS];
        let (alpha, beta) = ([1f32; EXPERTS], [0f32; EXPERTS]);
        let [b, a, c] = self.addresses.each_ref().map(|list| list.buffer().address() as usize as *const *const c_void);
        let ty = sys::cudaDataType_t::CUDA_R_16BF;
        // SAFETY: each array has one entry per group, the addresses in GPU memory. The caller keeps
        // the matrices alive.
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
