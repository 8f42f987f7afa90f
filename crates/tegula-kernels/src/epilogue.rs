//! The epilogue of a kernel: a bias and an activation, applied to complete sums before the store.
//!
//! It adds nothing to the main loop, and nothing at all to a kernel without an epilogue.

use tegula_core::epilogue::{Activation, BiasShape, Epilogue};
use tegula_ir::prelude::*;

/// The epilogue of a kernel, with its parameter `bias`.
#[derive(Clone, Copy)]
pub(super) struct KernelEpilogue<'k, T: Element> {
    bias: Option<(BiasShape, Global<'k, T::Out>)>,
    activation: Activation,
}

impl<'k, T: Element> KernelEpilogue<'k, T> {
    /// Declares the parameter `bias`, if any: a row (1×n) or a column (m×1) for each matrix of the
    /// batch. Matrices come before scalars.
    pub fn declare(k: &'k Builder, Epilogue { bias, activation }: Epilogue) -> Self {
        let bias = bias.map(|shape| (shape, k.matrix("bias", Access::Read, Order2d::Strided, 1)));
        KernelEpilogue { bias, activation }
    }

    /// The empty epilogue of partial sums.
    pub fn none() -> Self {
        KernelEpilogue { bias: None, activation: Activation::None }
    }

    /// Whether the epilogue is empty.
    pub fn is_none(&self) -> bool {
        self.bias.is_none() && self.activation == Activation::None
    }

    /// Whether the epilogue is too long to be emitted once for each accumulator of a thread: more
    /// than a hundred times forty instructions exceed the instruction cache, with a main loop.
    /// [`for_each_subtile`] emits them once.
    pub fn is_long(&self) -> bool {
        self.activation.gate().is_some()
    }

    /// The same for one matrix of the batch.
    pub fn batch(self, batch: Val<'k, u32>) -> Self {
        KernelEpilogue { bias: self.bias.map(|(shape, bias)| (shape, bias.batch(batch))), ..self }
    }

    /// act(value + bias) for adjacent columns of C, the first at `at`. `in_bounds`: which of them
    /// exist. Branch-free, so that columns and vectors overlap.
    pub fn apply<const N: usize>(
        &self,
        values: [Val<'k, T::Acc>; N],
        at: (Val<'k, u32>, Val<'k, u32>),
        in_bounds: impl Fn(u32) -> Pred<'k>,
    ) -> [Val<'k, T::Out>; N] {
        let bias = self.bias_of::<N>(at, in_bounds);
        std::array::from_fn(|i| self.activate(bias.map_or(values[i], |bias| values[i] + bias[i].to::<T::Acc>())))
    }

    /// act(value), for a value with its bias.
    pub fn activate(&self, value: Val<'k, T::Acc>) -> Val<'k, T::Out> {
        activate::<_, T::Out>(self.activation, value).to()
    }

    /// The shape of the bias, if any.
    pub fn bias_shape(&self) -> Option<BiasShape> {
        self.bias.map(|(along, _)| along)
    }

    /// The bias of a row or column of C; 0 out of bounds.
    pub fn bias_at(&self, at: Val<'k, u32>) -> Option<Val<'k, T::Acc>> {
        let (shape, bias) = self.bias?;
        let bias = match shape {
            BiasShape::Row => bias.load_or((0u32, at), at.lt(bias.cols()), T::Out::ZERO),
            BiasShape::Column => bias.load_or((at, 0u32), at.lt(bias.rows()), T::Out::ZERO),
        };
        Some(bias.to())
    }

    fn bias_of<const N: usize>(
        &self,
        (row, col): (Val<'k, u32>, Val<'k, u32>),
        in_bounds: impl Fn(u32) -> Pred<'k>,
    ) -> Option<[Val<'k, T::Out>; N]> {
        let (shape, bias) = self.bias?;
        Some(match shape {
            BiasShape::Row => {
                std::array::from_fn(|i| bias.load_or((0u32, col + i as u32), in_bounds(i as u32), T::Out::ZERO))
            }
            // If any is in bounds, the first is.
            BiasShape::Column => [bias.load_or((row, 0u32), in_bounds(0), T::Out::ZERO); N],
        })
    }
}

/// Applies an activation to a sum that is then rounded to `Out`.
fn activate<'k, S: Arith, Out: Scalar>(activation: Activation, x: Val<'k, S>) -> Val<'k, S> {
    let Some(gate) = activation.gate() else {
        return if activation == Activation::Relu { x.lt(S::ZERO).select(S::ZERO, x) } else { x };
    };
    match S::TYPE {
        Type::F32 if Out::TYPE.size() <= 2 => gate.apply_short(x.to::<f32>()).to(),
        Type::F32 => gate.apply(x.to::<f32>()).to(),
        Type::F64 => gate.apply(x.to::<f64>()).to(),
        // Not accumulator types.
        Type::F16 | Type::BF16 => x,
        // `Epilogue::check` rejects gates of integers.
        Type::I8 | Type::U8 | Type::I32 | Type::U32 | Type::I64 | Type::U64 | Type::Pred => x,
    }
}

/// Runs the body for each epilogue subtile, with its index and accumulators: the `subtiles` equal
/// parts of a thread's accumulators.
///
/// The body always reads the first registers; the other parts move there after each run. So its
/// code is emitted once. The accumulators are overwritten.
pub(super) fn for_each_subtile<'k, S: Scalar>(
    k: &'k Builder,
    accumulators: Array<'k, S>,
    subtiles: u32,
    body: impl FnOnce(Val<'k, u32>, Array<'k, S>),
) {
    let each = accumulators.len() / subtiles;
    k.for_each(0, subtiles, |subtile| {
        body(subtile, accumulators.slice(0, each));
        (each..accumulators.len()).for_each(|i| accumulators.at(i - each).set(accumulators.at(i).get()));
    });
}
