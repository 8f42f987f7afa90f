//! A product of host matrices: batches, threads, and the instruction set by the number of rows.

use tegula_core::element::Type;
use tegula_core::epilogue::Activation;
use tegula_core::error::Result;
use tegula_core::matrix::{Layout, Shape, check_product, check_work};
use tegula_core::progress::ProgressMeter;
use tegula_core::threads;

use crate::accumulation::Accumulation;
use crate::blocking::BlockingPlan;
use crate::epilogue::MatrixEpilogue;
use crate::isa::Isa;
use crate::macro_kernel::{Product, scale_c};
use crate::matrix_ptr::MatrixPtr;
use crate::micro_kernel::{Accumulate, CpuElement, MicroKernel};
use crate::pack_source::PackSource;
use crate::packed_b::PackedB;
use crate::problem::{BlockingProblem, cycles, units_of_b, work, work_units};
use crate::scratch::{ScratchBuffer, SharedPtr};
use crate::thread_pool::{self, ShortJob};
use crate::unpacked::UnpackedProduct;

/// Multiply-adds of a batch below which its products use one thread: waking others would cost more
/// than they save. Lower under Miri, which looks for races but is too slow for large products.
const MIN_PARALLEL_WORK: usize = if cfg!(miri) { 1 << 8 } else { 1 << 20 };
/// Multiply-adds from which threads share each product of a batch. Below that, each multiplies some
/// of them alone, unless B is large.
const SHARED_WORK: usize = 1 << 21;
/// Cycles of multiplications that justify waking another thread, unless B is large. It takes some
/// 10 µs of the caller, and the thread begins after 30 to 60 µs (measured in a virtual machine).
const WAKING_CYCLES: usize = 1 << 17;

/// The workspace of a product.
pub struct Workspace {
    /// Whether C itself holds the accumulators.
    pub in_place: bool,
    /// Bytes of packed blocks and accumulators, of all threads.
    pub bytes: u128,
}

/// A host matrix: the address of position 0 of its layout, and the layout.
pub struct HostMatrix<P> {
    pub memory: P,
    pub layout: Layout,
}

/// A product without its matrices.
#[derive(Clone, Copy)]
pub struct HostGemm<'a, S> {
    pub isa: Isa,
    pub alpha: S,
    pub beta: S,
    pub packed_b: Option<&'a PackedB>,
    pub meter: Option<&'a ProgressMeter<'a>>,
    pub batch_invariant: bool,
}

impl<S: Accumulate> HostGemm<'_, S> {
    /// Multiplies a batch of matrices.
    ///
    /// All threads share each product. Where one product is too small for that, the products of the
    /// batch run in parallel.
    ///
    /// # Safety
    /// The elements of A, B and the bias, which has the shape of C, can be read meanwhile. The
    /// elements of C are distinct and not aliased.
    pub unsafe fn run<T: CpuElement<Acc = S>>(
        self,
        a: HostMatrix<*const T>,
        b: HostMatrix<*const T>,
        c: HostMatrix<*mut T::Out>,
        bias: Option<HostMatrix<*mut T::Out>>,
        activation: Activation,
    ) -> Result<()> {
        check_product(a.layout.shape, b.layout.shape, c.layout.shape)?;
        if c.layout.shape.is_empty() {
            return Ok(());
        }
        if self.alpha != S::ZERO {
            check_work(c.layout.shape, a.layout.shape.cols)?;
        }
        let Shape { batches, rows, cols } = c.layout.shape;
        let (mut sizes, transposed) = ([rows, cols, a.layout.shape.cols], is_transposed(&a.layout, &c.layout));
        // SAFETY: the caller's promise.
        let (mut a, mut b) =
            unsafe { (PackSource::rows(a.memory, a.layout), PackSource::rows(b.memory, b.layout.transposed())) };
        let mut c = MatrixPtr::new(c.memory, c.layout);
        let mut bias = bias.map(|bias| MatrixPtr::new(bias.memory, bias.layout));
        if transposed {
            (sizes, a, b) = ([cols, rows, sizes[2]], b, a);
            (c, bias) = (c.transposed(), bias.map(MatrixPtr::transposed));
        }
        let (HostGemm { alpha, beta, meter, batch_invariant, .. }, [m, n, k]) = (self, sizes);
        let epilogue = MatrixEpilogue { isa: self.isa, bias, activation };
        let (isa, b_shape) = (self.isa_for_rows::<T>(m), Shape { batches, rows: k, cols: n });
        let packed_b = |batch| usable_panels::<T>(self.packed_b, transposed, isa, b_shape, batch);
        let (kernel, (parallel, batch_parallel)) = (T::micro_kernel(isa), threading::<T>(sizes, batches));
        let short = (parallel && is_short(kernel, sizes, batches)).then_some(ShortJob);
        let problem = BlockingProblem {
            sizes,
            scalars: [alpha, beta],
            a: a.strides(),
            b: b.strides(),
            c_col: c.col_stride(),
            prepacked: packed_b(0).is_some(),
            threads: if parallel { thread_pool::available(short.is_some()) } else { 1 },
            batch_invariant,
        };
        let accumulation = Accumulation::new(kernel, &problem);
        let is_empty = k == 0 || alpha == S::ZERO;
        if accumulation.unblocked && !is_empty {
            let add = |k: usize| meter.iter().for_each(|meter| meter.add(m as u64 * n as u64 * k as u64));
            let one = |batch| {
                let ([a_strides, b_strides], c) = ([problem.a, problem.b], c.batch(batch).cast());
                let (a, b, c, c_row_stride) = (a.batch(batch).at(0, 0), b.batch(batch).at(0, 0), c.start, c.row_stride);
                let b_reads = accumulation.b_reads;
                let product =
                    UnpackedProduct { sizes, alpha, a, a_strides, b, b_strides, beta, c, c_row_stride, b_reads };
                // SAFETY: the caller's promise for C, of which each batch is written once. The CPU
                // has `isa`, and C holds the accumulators.
                unsafe { product.run_in_steps(kernel, accumulation.kc, &epilogue.batch(batch), add) };
                Ok(())
            };
            return match batches {
                1 => one(0),
                _ if batch_parallel => threads::for_each(batches, one),
                _ => (0..batches).try_for_each(one),
            };
        }
        let plan = (!is_empty).then(|| BlockingPlan::new(kernel, &problem, accumulation));
        let one = |batch| {
            let (a, b, c, epilogue) = (a.batch(batch), b.batch(batch), c.batch(batch), epilogue.batch(batch));
            let product = Product { sizes, alpha, a, b, packed_b: packed_b(batch), beta, c, epilogue, meter };
            // SAFETY: as above.
            unsafe {
                match &plan {
                    Some(plan) => product.run(kernel, plan),
                    None => {
                        scale_c::<T>(m, n, beta, epilogue, c);
                        Ok(())
                    }
                }
            }
        };
        if batch_parallel { threads::for_each(batches, one) } else { (0..batches).try_for_each(one) }
    }

    /// The instruction set for a number of rows: for a few rows, vectors beat mostly empty AMX
    /// tiles. They round in another order, unless to integers.
    fn isa_for_rows<T: CpuElement>(&self, rows: usize) -> Isa {
        let max_rows = match T::TYPE {
            Type::I32 => 16,
            ty if ty.is_float() && self.batch_invariant => 0,
            _ => 4,
        };
        if self.isa == Isa::Amx && rows <= max_rows { Isa::Avx512Bf16 } else { self.isa }
    }

    /// The workspace of a product of matrices of these layouts.
    pub fn workspace<T: CpuElement<Acc = S>>(self, [a, b, c]: [Layout; 3]) -> Result<Workspace> {
        let k = a.shape.cols;
        let transposed = is_transposed(&a, &c);
        let (a, b, c) = if transposed { (b.transposed(), a.transposed(), c.transposed()) } else { (a, b, c) };
        let Shape { batches, rows: m, cols: n } = c.shape;
        let sizes = [m, n, k];
        if c.shape.is_empty() || k == 0 || self.alpha == S::ZERO {
            return Ok(Workspace { in_place: true, bytes: 0 });
        }
        check_work(c.shape, k)?;
        let isa = self.isa_for_rows::<T>(m);
        let (kernel, (parallel, batch_parallel)) = (T::micro_kernel(isa), threading::<T>(sizes, batches));
        let problem = BlockingProblem {
            sizes,
            scalars: [self.alpha, self.beta],
            a: [a.strides[1], a.strides[2]],
            b: [b.strides[2], b.strides[1]],
            c_col: c.strides[2],
            prepacked: usable_panels::<T>(self.packed_b, transposed, isa, Shape { rows: k, ..c.shape }, 0).is_some(),
            threads: if parallel { thread_pool::available(is_short(kernel, sizes, batches)) } else { 1 },
            batch_invariant: self.batch_invariant,
        };
        let accumulation = Accumulation::new(kernel, &problem);
        if accumulation.unblocked {
            return Ok(Workspace { in_place: true, bytes: 0 });
        }
        let plan = BlockingPlan::new(kernel, &problem, accumulation);
        let bytes = plan.workspace_extents::<T>(kernel, sizes).map(|extents| ScratchBuffer::<S>::bytes(&extents));
        let bytes = bytes.into_iter().fold(0, u128::saturating_add);
        let concurrent = if batch_parallel { threads::count().min(batches) } else { 1 };
        Ok(Workspace { in_place: plan.in_place, bytes: bytes.saturating_mul(concurrent as u128) })
    }
}

/// Whether all threads share each product of a batch, and whether the products run in parallel.
fn threading<T: CpuElement>(sizes: [usize; 3], batches: usize) -> (bool, bool) {
    let parallel = match batches {
        1 => work_units::<T>(sizes) > 1,
        _ => work(sizes) >= SHARED_WORK || units_of_b::<T>(sizes) > 1,
    };
    (parallel, !parallel && work(sizes).saturating_mul(batches) >= MIN_PARALLEL_WORK)
}

/// Whether the products of a batch do not justify waking a thread. Under Miri all do: it looks for
/// races.
fn is_short<T: CpuElement>(kernel: &MicroKernel<T>, sizes: [usize; 3], batches: usize) -> bool {
    let cycles = cycles(kernel, sizes).saturating_mul(batches);
    !cfg!(miri) && cycles < WAKING_CYCLES && units_of_b::<T>(sizes) <= 1
}

/// Whether the transposed product is computed, since micro-kernels write rows: the columns of C are
/// contiguous and its rows are not, or C is a contiguous column, and one row is fastest.
pub fn is_transposed(a: &Layout, c: &Layout) -> bool {
    let readable = a.strides[1] == 1 || a.strides[2] == 1;
    c.strides[1] == 1 && (c.strides[2] != 1 || c.shape.cols == 1 && readable)
}

/// The packed panels of B for a matrix of the batch, where the product can read them.
///
/// For that, B is not exchanged with A, and was packed for this instruction set.
fn usable_panels<T: CpuElement>(
    packed_b: Option<&PackedB>,
    transposed: bool,
    isa: Isa,
    b: Shape,
    batch: usize,
) -> Option<SharedPtr<T::Acc>> {
    packed_b.filter(|_| !transposed).and_then(|packed_b| packed_b.of::<T>(isa, b, batch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "other limits")]
    fn threads_share_a_product_or_the_products_of_a_batch() {
        // Some microseconds of work are shared, unless there are other products.
        assert_eq!(threading::<f32>([64; 3], 1), (false, false));
        assert_eq!(threading::<f32>([100; 3], 1), (true, false));
        assert_eq!(threading::<f32>([100; 3], 64), (false, true));
        assert_eq!(threading::<f32>([512; 3], 64), (true, false));
        assert_eq!(threading::<f32>([1, 1024, 1024], 2), (true, false));
    }

    /// One product may not justify waking a thread, where a batch of them does.
    #[test]
    #[cfg_attr(miri, ignore = "other limits")]
    fn short_products_wake_no_thread() {
        let kernel = f32::micro_kernel(Isa::Portable);
        let of_cycles = |cycles: usize| [cycles / 256, 32, 16 * kernel.vector_len];
        assert!(is_short(kernel, of_cycles(WAKING_CYCLES - 256), 1));
        assert!(!is_short(kernel, of_cycles(WAKING_CYCLES), 1));
        assert!(!is_short(kernel, of_cycles(WAKING_CYCLES / 2), 2));
        assert!(!is_short(kernel, [1, 1024, 1024], 1), "B is large");
    }
}
