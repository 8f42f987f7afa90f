//! Kernels that help those that multiply: what packs operands before them, and what adds split work
//! after them.

use std::fmt;

use tegula_core::element::Type;
use tegula_core::epilogue::{Activation, Along, Epilogue};
use tegula_core::error::Result;
use tegula_ir::{Kernel, Order2d};

use crate::ends::Ends;
use crate::mend::{self, Mend};
use crate::name::{Form, KernelName};
use crate::pack::{self, Pack, PackBoth, Packing};
use crate::reduce::Reduce;
use crate::sum::{Adding, Sum};

/// A helper kernel and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HelperKernel {
    /// Adds what blocks computed along k.
    Sum(Sum),
    /// Adds what pipelines computed along k.
    Reduce(Reduce),
    /// Adds the partial sums of tiles that several blocks shared.
    Mend(Mend),
    /// Copies a matrix to the layout that another kernel takes.
    Pack(Pack),
    /// Copies both operands so.
    PackBoth(PackBoth),
    /// Writes where the groups of a product end.
    Ends(Ends),
}

impl HelperKernel {
    /// The helpers that have a name of their own.
    pub const NAMES: [KernelName; 3] = [
        name("sum", "Second pass where sums along k were made in parts: adds them in order"),
        name("mend", "Second pass where blocks shared tiles: adds the pieces in order"),
        name("pack", "First pass where a kernel cannot take A or B as it lies, or not as fast: copies it"),
    ];

    /// The helper of that name, for row-major matrices.
    pub fn named(name: &str, ty: Type) -> Option<Self> {
        let (order, epilogue) = (Order2d::RowMajor, Epilogue::NONE);
        match name {
            "sum" => Some(HelperKernel::Sum(Sum { ty, order, adding: Adding::Few, epilogue })),
            "mend" => Some(HelperKernel::Mend(Mend { ty, order, epilogue })),
            "pack" => Some(HelperKernel::Pack(Pack { ty, from: order, packing: Packing::Same })),
            _ => None,
        }
    }

    /// Builds the kernel.
    ///
    /// # Errors
    /// [`Error::KernelOption`](tegula_core::Error::KernelOption) for a type without such a kernel.
    pub fn build(&self) -> Result<Kernel> {
        match self {
            HelperKernel::Sum(sum) => sum.build(),
            HelperKernel::Reduce(reduce) => reduce.build(),
            HelperKernel::Mend(mend) => mend.build(),
            HelperKernel::Pack(pack) => pack.build(),
            HelperKernel::PackBoth(packs) => packs.build(),
            HelperKernel::Ends(ends) => Ok(ends.build()),
        }
    }

    /// Whether it runs before the kernel that multiplies.
    pub fn comes_first(&self) -> bool {
        match self {
            HelperKernel::Pack(_) | HelperKernel::PackBoth(_) | HelperKernel::Ends(_) => true,
            HelperKernel::Sum(_) | HelperKernel::Reduce(_) | HelperKernel::Mend(_) => false,
        }
    }

    /// Element type of A and B, or of what is written.
    pub fn ty(&self) -> Type {
        match self {
            HelperKernel::Sum(sum) => sum.ty,
            HelperKernel::Reduce(reduce) => reduce.ty,
            HelperKernel::Mend(mend) => mend.ty,
            HelperKernel::Pack(pack) => pack.ty,
            HelperKernel::PackBoth(packs) => packs.ty,
            HelperKernel::Ends(_) => Type::U32,
        }
    }

    /// Rows and columns that a block writes.
    pub fn tile(&self) -> [u32; 2] {
        match self {
            HelperKernel::Sum(sum) => sum.tile(),
            HelperKernel::Reduce(_) => Reduce::TILE,
            HelperKernel::Mend(_) => [1, mend::ELEMENTS],
            HelperKernel::Pack(_) | HelperKernel::PackBoth(_) => [pack::TILE; 2],
            HelperKernel::Ends(_) => [1, Ends::NUMBERS as u32],
        }
    }

    /// The configurations that are assembled for every architecture.
    pub fn assembled() -> Vec<Self> {
        let orders = [Order2d::RowMajor, Order2d::ColMajor, Order2d::Strided];
        let packs = |ty, packing| orders.map(|from| Pack { ty, from, packing });
        let converted = [packs(Type::F32, Packing::Tf32), packs(Type::I32, Packing::Limbs)];
        let packs: Vec<Pack> =
            Type::OPERANDS.map(|ty| packs(ty, Packing::Same)).into_iter().chain(converted).flatten().collect();
        let both = packs
            .iter()
            .flat_map(|&Pack { ty, from, packing }| orders.map(|b| PackBoth { ty, from: [from, b], packing }));
        let mut all: Vec<Self> = packs.iter().map(|&pack| HelperKernel::Pack(pack)).collect();
        all.extend(both.map(HelperKernel::PackBoth));
        all.push(HelperKernel::Ends(Ends));
        let bias = |along, activation| Epilogue { bias: Some(along), activation };
        let epilogues = [Epilogue::NONE, bias(Along::Rows, Activation::Gelu), bias(Along::Columns, Activation::Relu)];
        for (order, epilogue) in orders.into_iter().flat_map(|order| epilogues.map(|epilogue| (order, epilogue))) {
            all.extend(
                [false, true].map(|shared| HelperKernel::Reduce(Reduce { ty: Type::BF16, order, shared, epilogue })),
            );
        }
        let order = Order2d::RowMajor;
        // bf16 differs from f16 by the instruction's name alone.
        for ty in Type::OPERANDS.into_iter().filter(|ty| *ty != Type::BF16) {
            for epilogue in assembled_epilogues(ty) {
                let sum = |adding| HelperKernel::Sum(Sum { ty, order, adding, epilogue });
                all.extend([Adding::Few, Adding::More, Adding::Shared].map(sum));
                all.push(HelperKernel::Mend(Mend { ty, order, epilogue }));
            }
        }
        all
    }
}

/// The epilogues that kernels are assembled with: the activation with most registers and a bias
/// along rows, and one with few, whose code is there once for each accumulator, and a bias along
/// columns.
pub(crate) fn assembled_epilogues(ty: Type) -> [Epilogue; 2] {
    let most = if ty.is_float() { Activation::Gelu } else { Activation::Relu };
    [
        Epilogue { bias: Some(Along::Rows), activation: most },
        Epilogue { bias: Some(Along::Columns), activation: Activation::Relu },
    ]
}

const fn name(name: &'static str, description: &'static str) -> KernelName {
    KernelName { name, ty: Type::F32, description, form: Form::Helper }
}

impl fmt::Display for HelperKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HelperKernel::Sum(sum) => sum.fmt(f),
            HelperKernel::Reduce(reduce) => reduce.fmt(f),
            HelperKernel::Mend(mend) => mend.fmt(f),
            HelperKernel::Pack(pack) => pack.fmt(f),
            HelperKernel::PackBoth(packs) => packs.fmt(f),
            HelperKernel::Ends(ends) => ends.fmt(f),
        }
    }
}
