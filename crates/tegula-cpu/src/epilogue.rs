//! The epilogue of a row of C: adds the bias, then applies the activation.

use std::ops::Range;

use tegula_core::element::Scalar;
use tegula_core::epilogue::{Activation, Gate};

use super::isa::Isa;
use super::matrix_ptr::MatrixPtr;
use super::micro_kernel::{Accumulate, Accumulator, CpuElement};

/// The epilogue of a matrix or a submatrix.
#[derive(Clone, Copy)]
pub struct MatrixEpilogue<O> {
    pub isa: Isa,
    /// The bias with the shape of C, broadcast by strides of 0; never written.
    pub bias: Option<MatrixPtr<O>>,
    pub activation: Activation,
}

impl<O: Scalar> MatrixEpilogue<O> {
    /// Whether the epilogue has neither bias nor activation.
    pub fn is_none(&self) -> bool {
        self.bias.is_none() && self.activation == Activation::None
    }

    /// The epilogue of the matrix `batch` of the batch.
    pub fn batch(self, batch: usize) -> Self {
        MatrixEpilogue { bias: self.bias.map(|bias| bias.batch(batch)), ..self }
    }

    /// The epilogue of the submatrix whose first element is (row, col).
    pub fn submatrix(self, row: usize, col: usize) -> Self {
        MatrixEpilogue { bias: self.bias.map(|bias| bias.submatrix(row, col)), ..self }
    }

    /// Applies the epilogue to accumulators of a row, from column `col` on.
    ///
    /// # Safety
    /// The bias has these columns, and can be read. The CPU has the instruction set.
    pub unsafe fn apply<T: CpuElement<Out = O>>(&self, row: usize, col: usize, values: &mut [T::Acc]) {
        if let Some(bias) = self.bias {
            for (i, value) in values.iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                *value = value.plus(T::widen_out(unsafe { bias.at(row, col + i).read() }));
            }
        }
        match self.activation {
            Activation::None => {}
            Activation::Relu => relu(values),
            Activation::Gelu => self.gate::<T>(Gate::Tanh, values),
            Activation::Silu => self.gate::<T>(Gate::Logistic, values),
        }
    }

    /// Applies the epilogue to complete accumulators in C.
    ///
    /// # Safety
    /// The bias and C have these rows and columns, and rows of C are contiguous. The bias can be
    /// read, and no other thread accesses C. The CPU has the instruction set.
    pub unsafe fn apply_in_place<T: CpuElement<Out = O>>(
        &self,
        rows: Range<usize>,
        cols: Range<usize>,
        c: MatrixPtr<T::Acc>,
    ) {
        if self.is_none() {
            return;
        }
        for row in rows {
            // SAFETY: the caller's promise.
            unsafe {
                let values = std::slice::from_raw_parts_mut(c.at(row, cols.start), cols.len());
                self.apply::<T>(row, cols.start, values);
            }
        }
    }

    fn gate<T: CpuElement>(&self, gate: Gate, values: &mut [T::Acc]) {
        let fused = self.isa != Isa::Portable;
        // The tag is that of the type, so the casts cannot fail.
        match T::Acc::ACCUMULATOR {
            Accumulator::F64 => gate_f64(fused, gate, bytemuck::cast_slice_mut(values)),
            Accumulator::F32 if T::Out::TYPE.size() <= 2 => gate_short(fused, gate, bytemuck::cast_slice_mut(values)),
            Accumulator::F32 => gate_f32(fused, gate, bytemuck::cast_slice_mut(values)),
            // Unreachable: gates of integers are refused before.
            Accumulator::I32 => {}
        }
    }
}

/// ReLU; NaN stays NaN.
fn relu<S: Scalar + PartialOrd>(values: &mut [S]) {
    values.iter_mut().for_each(|value| *value = if *value < S::ZERO { S::ZERO } else { *value });
}

/// Applies a gate to many values. On x86-64 it is compiled twice: for the build target, and with
/// FMA.
macro_rules! gate {
    ($name:ident, $with_fma:ident, $plain:ident, $apply:ident, $t:ty) => {
        #[allow(unused_variables, reason = "other architectures always have FMA, or never")]
        fn $name(fused: bool, gate: Gate, values: &mut [$t]) {
            #[cfg(target_arch = "x86_64")]
            if fused {
                // SAFETY: every instruction set except the portable one includes both features.
                return unsafe { $with_fma(gate, values) };
            }
            $plain(gate, values);
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "fma,avx2")]
        fn $with_fma(gate: Gate, values: &mut [$t]) {
            $plain(gate, values);
        }

        #[inline(always)]
        fn $plain(gate: Gate, values: &mut [$t]) {
            // One loop per gate, which the compiler can vectorize.
            match gate {
                Gate::Tanh => values.iter_mut().for_each(|x| *x = Gate::Tanh.$apply(*x)),
                Gate::Logistic => values.iter_mut().for_each(|x| *x = Gate::Logistic.$apply(*x)),
            }
        }
    };
}

gate!(gate_f32, fused_f32, plain_f32, apply, f32);
gate!(gate_f64, fused_f64, plain_f64, apply, f64);
// For 16-bit results.
gate!(gate_short, fused_short, plain_short, apply_short, f32);
