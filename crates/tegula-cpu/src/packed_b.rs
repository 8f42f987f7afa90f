//! B packed once, for many products.

use tegula_core::error::Result;
use tegula_core::matrix::Shape;

use super::blocking::chunks;
use super::isa::Isa;
use super::micro_kernel::{CpuElement, MicroKernel};
use super::pack_source::PackSource;
use super::scratch::{ScratchBuffer, SharedPtr};

/// All packed panels of B: for each KC step along k, the panels of all columns.
#[derive(Debug)]
pub struct PackedB {
    /// The instruction set whose micro-kernels read the panels.
    isa: Isa,
    shape: Shape,
    /// Bytes of a packed matrix.
    matrix_bytes: usize,
    memory: ScratchBuffer<i8>,
}

impl PackedB {
    /// Packs a nonempty batch of matrices B, whose columns are the lanes of `b`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](tegula_core::Error::OutOfMemory) where the panels do not fit in
    /// memory.
    pub fn pack<T: CpuElement>(isa: Isa, b: PackSource<T>, shape: Shape) -> Result<PackedB> {
        let kernel = T::micro_kernel(isa);
        let Shape { batches, rows: k, cols: n } = shape;
        let total_k_groups = k / kernel.kc * kernel.k_groups(kernel.kc) + kernel.k_groups(k % kernel.kc);
        let extents = [total_k_groups, n.next_multiple_of(kernel.vector_len), size_of::<T::Acc>()];
        let mut memory = ScratchBuffer::<i8>::new("packed B", &[batches, extents[0], extents[1], extents[2]])?;
        // The allocation succeeded, so no offset into it overflows.
        let matrix_bytes = extents.iter().product();
        let start = memory.start_mut();
        for batch in 0..batches {
            let b = b.batch(batch);
            let matrix = start.at(batch * matrix_bytes).cast::<T::Acc>();
            for k_range in chunks(0..k, kernel.kc) {
                for cols in chunks(0..n, kernel.tile[1]) {
                    let width = cols.len().next_multiple_of(kernel.vector_len);
                    let k_groups = kernel.k_groups(k_range.len());
                    let to = matrix.wrapping_add(panel_offset(kernel, n, k_range.start, cols.start, k_groups));
                    // SAFETY: these columns and steps are in the matrix, panels are disjoint, and
                    // the CPU has the instruction set.
                    unsafe { kernel.pack_b(b, cols, k_range.clone(), width, to) };
                }
            }
        }
        Ok(PackedB { isa, shape, matrix_bytes, memory })
    }

    /// The panels of a matrix, if packed for this instruction set and shape. A single matrix serves
    /// every matrix of a batch.
    pub fn of<T: CpuElement>(&self, isa: Isa, shape: Shape, batch: usize) -> Option<SharedPtr<T::Acc>> {
        let fits = self.isa == isa && [self.shape.rows, self.shape.cols] == [shape.rows, shape.cols];
        let batch = if self.shape.batches == 1 { 0 } else { batch };
        (fits && batch < self.shape.batches).then(|| self.memory.start().offset(batch * self.matrix_bytes).cast())
    }

    /// Bytes of all panels.
    pub fn bytes(&self) -> usize {
        self.matrix_bytes * self.shape.batches
    }
}

/// Offset of a panel in packed values, by its first k, its first column and its `k_groups` along k.
pub fn panel_offset<T: CpuElement>(kernel: &MicroKernel<T>, n: usize, k: usize, col: usize, k_groups: usize) -> usize {
    k / kernel.kc * kernel.k_groups(kernel.kc) * n.next_multiple_of(kernel.vector_len) + col * k_groups
}

#[cfg(test)]
mod tests {
    use tegula_bench::oracle;
    use tegula_core::element::{Element, Scalar, Type, with_operand_type};
    use tegula_core::epilogue::EpilogueOperands;
    use tegula_core::matrix::{Layout, View, ViewMut};

    use super::super::{gemm_with_options, prepack_as};
    use super::*;

    /// Products with packed B are within the error bound, for several rows and batches.
    fn check_products<T: crate::compiled::Compiled>() {
        let number = |x: usize| {
            let small = (x.wrapping_mul(2_654_435_761) >> 7) % 13;
            if T::TYPE.is_int() { T::from_bits(small as u64) } else { T::from_float(small as f64 / 4.0 - 1.5) }
        };
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let cases = [
                (1, 1, [1, 7, 1]),
                (2, 2, [3, 9, 5]),
                (2, 2, [5, 33, 70]),
                (1, 1, [37, 51, 700]),
                (1, 1, [16, 600, 1030]),
                (3, 1, [130, 200, 530]),
            ];
            // Miri would take hours for all cases.
            for (batches, b_batches, [m, n, k]) in cases.into_iter().take(if cfg!(miri) { 2 } else { 6 }) {
                let shape = |batches, rows, cols| Shape { batches, rows, cols };
                let layout = |batches, rows, cols| Layout::row_major(shape(batches, rows, cols)).unwrap();
                let numbers = |batches, rows: usize, cols: usize, first, step| -> Vec<T> {
                    let len = rows * cols;
                    (0..batches * len).map(|i| number(first + i / len * step + i % len)).collect()
                };
                let (a, b) = (numbers(batches, m, k, 0, 31), numbers(b_batches, k, n, 7, 17));
                let a = View::strided(&a, layout(batches, m, k)).unwrap();
                let b = View::strided(&b, layout(b_batches, k, n)).unwrap();
                let packed_b = prepack_as::<T, T>(isa, b).unwrap().unwrap();
                let b = b.broadcast(shape(batches, k, n)).unwrap();
                let mut c = vec![T::Out::ZERO; batches * m * n];
                let mut c = ViewMut::strided(&mut c, layout(batches, m, n)).unwrap();
                let (one, zero) = (T::Acc::ONE, T::Acc::ZERO);
                let epilogue = EpilogueOperands::default();
                gemm_with_options::<T>(isa, one, a, b, zero, c.reborrow(), epilogue, Some(&packed_b), None, false)
                    .unwrap();
                let report = oracle::check::<T>(one, a, b, zero, None, c.as_view()).unwrap();
                assert!(report.within(oracle::bound::<T>(k)), "{isa} {} {m}×{n}×{k}: {report:?}", T::TYPE);
            }
        }
    }

    trait FromF64: Element {
        fn from_float(x: f64) -> Self;
    }

    impl<T: Element> FromF64 for T {
        fn from_float(x: f64) -> Self {
            T::from_bits(T::TYPE.round(x))
        }
    }

    #[test]
    fn products_with_packed_b_are_within_the_bound() {
        for ty in Type::OPERANDS {
            with_operand_type!(ty, T => check_products::<T>(), _ => {});
        }
    }

    #[test]
    fn packed_b_of_another_shape_or_isa_is_not_used() {
        let b = View::new(&[0f32; 5 * 7], 5, 7).unwrap();
        let packed_b = prepack_as::<f32, f32>(Isa::Portable, b).unwrap().unwrap();
        assert!(packed_b.of::<f32>(Isa::Portable, Shape::new(5, 7), 3).is_some());
        assert!(packed_b.of::<f32>(Isa::Portable, Shape::new(5, 6), 0).is_none());
        assert!(packed_b.of::<f32>(Isa::Avx2, Shape::new(5, 7), 0).is_none());
    }
}
