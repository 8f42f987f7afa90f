//! What a kernel does to finished sums before it stores them: a bias is added and an activation applied.
//!
//! Nothing of it is in the main loop, and a kernel without an epilogue is the kernel that it would be if there were none.

use tegula_core::epilogue::{Activation, Along, Epilogue};
use tegula_ir::prelude::*;

/// The epilogue of a kernel, with the parameter that it takes.
#[derive(Clone, Copy)]
pub(super) struct Ending<'k, T: Element> {
    bias: Option<(Along, Global<'k, T::Out>)>,
    activation: Activation,
}

impl<'k, T: Element> Ending<'k, T> {
    /// Declares the parameter `bias`, if there is one: a row (1×n) or a column (m×1) for each matrix of the batch. Matrices come before numbers.
    pub fn declare(k: &'k Builder, Epilogue { bias, activation }: Epilogue) -> Self {
        let bias = bias.map(|along| (along, k.matrix("bias", Access::Read, Order2d::Strided, 1)));
        Ending { bias, activation }
    }

    /// Of parts of sums, to which nothing happens yet.
    pub fn none() -> Self {
        Ending { bias: None, activation: Activation::None }
    }

    /// Whether nothing happens.
    pub fn is_none(&self) -> bool {
        self.bias.is_none() && self.activation == Activation::None
    }

    /// Whether its instructions are so many that they must not be there once for each sum of a thread: more than a hundred times forty are more
    /// than instruction caches hold beside a main loop. [`in_rounds`] keeps them few.
    pub fn is_long(&self) -> bool {
        self.activation.gate().is_some()
    }

    /// The same for one matrix of the batch.
    pub fn batch(self, batch: Val<'k, u32>) -> Self {
        Ending { bias: self.bias.map(|(along, bias)| (along, bias.batch(batch))), ..self }
    }

    /// act(value + bias) for neighbours in a row of C, the first at `at`; `inside` says which of them there are. There is no branch, so that
    /// neighbours and pieces overlap.
    pub fn finish<const N: usize>(
        &self,
        values: [Val<'k, T::Acc>; N],
        at: (Val<'k, u32>, Val<'k, u32>),
        inside: impl Fn(u32) -> Pred<'k>,
    ) -> [Val<'k, T::Out>; N] {
        let bias = self.bias_of::<N>(at, inside);
        std::array::from_fn(|i| self.activated(bias.map_or(values[i], |bias| values[i] + bias[i].to::<T::Acc>())))
    }

    /// act(value), for a value with its bias.
    pub fn activated(&self, value: Val<'k, T::Acc>) -> Val<'k, T::Out> {
        activate::<_, T::Out>(self.activation, value).to()
    }

    /// Along what the bias has a number for each of so many rows and columns of C, if there is one.
    pub fn biased(&self) -> Option<Along> {
        self.bias.map(|(along, _)| along)
    }

    /// The bias of a row of C, or of a column; 0 behind the last of them.
    pub fn bias_at(&self, at: Val<'k, u32>) -> Option<Val<'k, T::Acc>> {
        let (along, bias) = self.bias?;
        let bias = match along {
            Along::Rows => bias.load_or((0u32, at), at.lt(bias.cols()), T::Out::ZERO),
            Along::Columns => bias.load_or((at, 0u32), at.lt(bias.rows()), T::Out::ZERO),
        };
        Some(bias.to())
    }

    fn bias_of<const N: usize>(
        &self,
        (row, col): (Val<'k, u32>, Val<'k, u32>),
        inside: impl Fn(u32) -> Pred<'k>,
    ) -> Option<[Val<'k, T::Out>; N]> {
        let (along, bias) = self.bias?;
        Some(match along {
            Along::Rows => {
                std::array::from_fn(|i| bias.load_or((0u32, col + i as u32), inside(i as u32), T::Out::ZERO))
            }
            // The first is inside where any is.
            Along::Columns => [bias.load_or((row, 0u32), inside(0), T::Out::ZERO); N],
        })
    }
}

/// An activation of a sum that will be rounded to `Out`.
fn activate<'k, S: Arith, Out: Scalar>(activation: Activation, x: Val<'k, S>) -> Val<'k, S> {
    let Some(gate) = activation.gate() else {
        return if activation == Activation::Relu { x.lt(S::ZERO).select(S::ZERO, x) } else { x };
    };
    match S::TYPE {
        Type::F32 if Out::TYPE.size() <= 2 => gate.apply_short(x.to::<f32>()).to(),
        Type::F32 => gate.apply(x.to::<f32>()).to(),
        Type::F64 => gate.apply(x.to::<f64>()).to(),
        // No accumulators.
        Type::F16 | Type::BF16 => x,
        // `Epilogue::check` has refused gates of integers.
        Type::I8 | Type::U8 | Type::I32 | Type::U32 | Type::I64 | Type::U64 | Type::Pred => x,
    }
}

/// The body for each of so many equal parts of a thread's sums, of which it is given the number, and the registers where it finds them: the first
/// of all, where the other parts move up to after each round. So the body's code is there once. The sums are gone afterwards.
pub(super) fn in_rounds<'k, S: Scalar>(
    k: &'k Builder,
    sums: Array<'k, S>,
    rounds: u32,
    body: impl FnOnce(Val<'k, u32>, Array<'k, S>),
) {
    let each = sums.len() / rounds;
    k.for_each(0, rounds, |round| {
        body(round, sums.part(0, each));
        (each..sums.len()).for_each(|i| sums.at(i - each).set(sums.at(i).get()));
    });
}
