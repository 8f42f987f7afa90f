//! What happens to sums on their way to C, a piece of a row at a time: a bias is added and an activation applied.

use tegula_core::element::Scalar;
use tegula_core::epilogue::{Activation, Gate};

use super::grid::Grid;
use super::isa::Isa;
use super::kernel::{Accumulator, Operand, Sum};

/// The epilogue of a matrix, or of a part of it.
#[derive(Clone, Copy)]
pub struct Ending<O> {
    pub isa: Isa,
    /// The bias as a matrix like C, with strides of 0; nobody writes to it.
    pub bias: Option<Grid<O>>,
    pub activation: Activation,
}

impl<O: Scalar> Ending<O> {
    /// Whether nothing happens.
    pub fn is_none(&self) -> bool {
        self.bias.is_none() && self.activation == Activation::None
    }

    /// That of another matrix of the batch.
    pub fn batch(self, batch: usize) -> Self {
        Ending { bias: self.bias.map(|bias| bias.batch(batch)), ..self }
    }

    /// That of a part, from an element on.
    pub fn from(self, row: usize, col: usize) -> Self {
        Ending { bias: self.bias.map(|bias| bias.from(row, col)), ..self }
    }

    /// Finishes values of a row, from a column on.
    ///
    /// # Safety
    /// The bias has as many columns, and may be read. The machine has the instruction set.
    pub unsafe fn apply<T: Operand<Out = O>>(&self, row: usize, col: usize, values: &mut [T::Acc]) {
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

    fn gate<T: Operand>(&self, gate: Gate, values: &mut [T::Acc]) {
        let fused = self.isa != Isa::Portable;
        // The casts fail for no type, since the tag says which it is.
        match T::Acc::ACCUMULATOR {
            Accumulator::F64 => gate_f64(fused, gate, bytemuck::cast_slice_mut(values)),
            Accumulator::F32 if T::Out::TYPE.size() <= 2 => gate_short(fused, gate, bytemuck::cast_slice_mut(values)),
            Accumulator::F32 => gate_f32(fused, gate, bytemuck::cast_slice_mut(values)),
            // Refused before: integers have no gates.
            Accumulator::I32 => {}
        }
    }
}

/// NaN stays.
fn relu<S: Scalar + PartialOrd>(values: &mut [S]) {
    values.iter_mut().for_each(|value| *value = if *value < S::ZERO { S::ZERO } else { *value });
}

/// A gate of many values. Where the program was built for machines without FMA it is compiled a second time with it.
macro_rules! gate {
    ($name:ident, $with_fma:ident, $plain:ident, $apply:ident, $t:ty) => {
        #[allow(unused_variables, reason = "other machines have FMA always, or never")]
        fn $name(fused: bool, gate: Gate, values: &mut [$t]) {
            #[cfg(target_arch = "x86_64")]
            if fused {
                // SAFETY: an instruction set that is not the portable one has both features.
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
            // A loop for each, which the compiler can make of vectors.
            match gate {
                Gate::Tanh => values.iter_mut().for_each(|x| *x = Gate::Tanh.$apply(*x)),
                Gate::Logistic => values.iter_mut().for_each(|x| *x = Gate::Logistic.$apply(*x)),
            }
        }
    };
}

gate!(gate_f32, fused_f32, plain_f32, apply, f32);
gate!(gate_f64, fused_f64, plain_f64, apply, f64);
// For results of 16 bits.
gate!(gate_short, fused_short, plain_short, apply_short, f32);
