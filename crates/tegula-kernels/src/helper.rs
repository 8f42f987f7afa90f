//! Helper kernels: packing before a GEMM kernel, and reductions of partial sums after it.

use std::fmt;

use tegula_core::element::Type;
use tegula_core::epilogue::{Activation, BiasShape, Epilogue};
use tegula_core::error::Result;
use tegula_ir::{Kernel, Order2d};

use crate::fix_up::{self, FixUp};
use crate::fragment_reduction::FragmentReduction;
use crate::group_ends::GroupEnds;
use crate::name::{KernelName, NameSyntax};
use crate::pack::{self, Pack, PackBoth, Packing};
use crate::split_k_reduction::{ReductionSchedule, SplitKReduction};

/// A helper kernel and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HelperKernel {
    /// Adds the split-K partial sums of blocked kernels.
    SplitKReduction(SplitKReduction),
    /// Adds the split-K partial sums of `wgmma` pipelines.
    FragmentReduction(FragmentReduction),
    /// Adds the stream-K partial sums of split tiles.
    FixUp(FixUp),
    /// Packs an operand.
    Pack(Pack),
    /// Packs both operands.
    PackBoth(PackBoth),
    /// Writes the ends of the groups of a grouped GEMM.
    GroupEnds(GroupEnds),
}

impl HelperKernel {
    /// The helpers with a name on the command line.
    pub const NAMES: [KernelName; 3] = [
        name("reduce", "Split-K reduction: adds the partial sums in a fixed order"),
        name("fixup", "Stream-K fix-up: adds the partial sums of split tiles in the order of k"),
        name("pack", "Packing pass: copies A or B to a layout that the kernel supports or reads faster"),
    ];

    /// Parses the name of a helper, for row-major matrices.
    pub fn named(name: &str, ty: Type) -> Option<Self> {
        let (order, epilogue) = (Order2d::RowMajor, Epilogue::NONE);
        match name {
            "reduce" => Some(HelperKernel::SplitKReduction(SplitKReduction {
                ty,
                order,
                schedule: ReductionSchedule::Prefetch4,
                epilogue,
            })),
            "fixup" => Some(HelperKernel::FixUp(FixUp { ty, order, epilogue })),
            "pack" => Some(HelperKernel::Pack(Pack { ty, from: order, packing: Packing::Same })),
            _ => None,
        }
    }

    /// Builds the kernel.
    ///
    /// # Errors
    /// [`Error::KernelOption`](tegula_core::Error::KernelOption) for an unsupported type.
    pub fn build(&self) -> Result<Kernel> {
        match self {
            HelperKernel::SplitKReduction(reduction) => reduction.build(),
            HelperKernel::FragmentReduction(reduction) => reduction.build(),
            HelperKernel::FixUp(fix_up) => fix_up.build(),
            HelperKernel::Pack(pack) => pack.build(),
            HelperKernel::PackBoth(packs) => packs.build(),
            HelperKernel::GroupEnds(ends) => Ok(ends.build()),
        }
    }

    /// Whether it runs before the GEMM kernel.
    pub fn runs_before_gemm(&self) -> bool {
        match self {
            HelperKernel::Pack(_) | HelperKernel::PackBoth(_) | HelperKernel::GroupEnds(_) => true,
            HelperKernel::SplitKReduction(_) | HelperKernel::FragmentReduction(_) | HelperKernel::FixUp(_) => false,
        }
    }

    /// Element type of A and B, or of the output.
    pub fn ty(&self) -> Type {
        match self {
            HelperKernel::SplitKReduction(reduction) => reduction.ty,
            HelperKernel::FragmentReduction(reduction) => reduction.ty,
            HelperKernel::FixUp(fix_up) => fix_up.ty,
            HelperKernel::Pack(pack) => pack.ty,
            HelperKernel::PackBoth(packs) => packs.ty,
            HelperKernel::GroupEnds(_) => Type::U32,
        }
    }

    /// Rows and columns of a block's output.
    pub fn tile(&self) -> [u32; 2] {
        match self {
            HelperKernel::SplitKReduction(reduction) => reduction.tile(),
            HelperKernel::FragmentReduction(_) => FragmentReduction::TILE,
            HelperKernel::FixUp(_) => [1, fix_up::ELEMENTS],
            HelperKernel::Pack(_) | HelperKernel::PackBoth(_) => [pack::TILE; 2],
            HelperKernel::GroupEnds(_) => [1, GroupEnds::PER_LAUNCH as u32],
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
        all.push(HelperKernel::GroupEnds(GroupEnds));
        let bias = |along, activation| Epilogue { bias: Some(along), activation };
        let epilogues =
            [Epilogue::NONE, bias(BiasShape::Row, Activation::Gelu), bias(BiasShape::Column, Activation::Relu)];
        for (order, epilogue) in orders.into_iter().flat_map(|order| epilogues.map(|epilogue| (order, epilogue))) {
            all.extend([false, true].map(|cooperative| {
                HelperKernel::FragmentReduction(FragmentReduction { ty: Type::BF16, order, cooperative, epilogue })
            }));
        }
        let order = Order2d::RowMajor;
        // bf16 differs from f16 only in the name of the instruction.
        for ty in Type::OPERANDS.into_iter().filter(|ty| *ty != Type::BF16) {
            for epilogue in assembled_epilogues(ty) {
                let sum = |schedule| HelperKernel::SplitKReduction(SplitKReduction { ty, order, schedule, epilogue });
                all.extend(
                    [ReductionSchedule::Prefetch4, ReductionSchedule::Prefetch8, ReductionSchedule::MultiThread]
                        .map(sum),
                );
                all.push(HelperKernel::FixUp(FixUp { ty, order, epilogue }));
            }
        }
        all
    }
}

/// The epilogues of assembled kernels: the activation with the most registers and a row bias, and
/// one with few, which is emitted once for each accumulator, and a column bias.
pub(crate) fn assembled_epilogues(ty: Type) -> [Epilogue; 2] {
    let most = if ty.is_float() { Activation::Gelu } else { Activation::Relu };
    [
        Epilogue { bias: Some(BiasShape::Row), activation: most },
        Epilogue { bias: Some(BiasShape::Column), activation: Activation::Relu },
    ]
}

const fn name(name: &'static str, description: &'static str) -> KernelName {
    KernelName { name, ty: Type::F32, description, syntax: NameSyntax::Helper }
}

impl fmt::Display for HelperKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HelperKernel::SplitKReduction(reduction) => reduction.fmt(f),
            HelperKernel::FragmentReduction(reduction) => reduction.fmt(f),
            HelperKernel::FixUp(fix_up) => fix_up.fmt(f),
            HelperKernel::Pack(pack) => pack.fmt(f),
            HelperKernel::PackBoth(packs) => packs.fmt(f),
            HelperKernel::GroupEnds(ends) => ends.fmt(f),
        }
    }
}
