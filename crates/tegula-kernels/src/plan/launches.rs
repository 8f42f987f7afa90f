//! The launches of a recipe, in order, as plain data.
//!
//! Both engines that run kernels, the GPU and the interpreter, run exactly this list.

use std::iter::repeat_n;
use std::ops::Range;

use smallvec::{SmallVec, smallvec};
use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_core::matrix::{Layout, Shape};

use super::legalize::Recipe;
use super::limits;
use super::problem::OperandLayout;
use super::recipe::SplitReduction;
use crate::family::GemmVariant;
use crate::group_ends::GroupEnds;
use crate::helper::HelperKernel;
use crate::hopper::Hopper;
use crate::variant::Variant;

/// The layouts of a product's operands in an engine's memory, and its epilogue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operands {
    /// Shapes and strides of A, B and C.
    pub layouts: [Layout; 3],
    /// Orders and alignments of A, B and C that kernels rely on.
    pub operand_layouts: [OperandLayout; 3],
    /// Bias and activation of C, also where the kernel computes Cᵀ.
    pub epilogue: Epilogue,
}

impl Operands {
    /// Operands whose first elements are aligned as by an allocation.
    pub fn aligned(ty: Type, layouts: [Layout; 3], epilogue: Epilogue) -> Operands {
        let out = ty.output();
        let [a, b, c] = &layouts;
        Operands {
            operand_layouts: [OperandLayout::of(a, ty, 0), OperandLayout::of(b, ty, 0), OperandLayout::of(c, out, 0)],
            layouts,
            epilogue,
        }
    }
}

/// An argument of a launch: a matrix or a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The left operand.
    A,
    /// The right operand.
    B,
    /// The output.
    C,
    /// The bias.
    Bias,
    /// A workspace, by its number in [`Launches::workspaces`].
    Workspace(u8),
    /// The scalar of A·B.
    Alpha,
    /// The scalar of C.
    Beta,
    /// A `u32` constant, such as the k-steps of a tile or the end of a group.
    Number(u32),
}

/// A kernel and its arguments, in the order of its parameters. The grid follows from them
/// (`tegula_ir::Kernel::bind`).
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The kernel.
    pub kernel: Variant,
    /// Its arguments.
    pub arguments: SmallVec<[Argument; 8]>,
}

/// Memory of launches beyond the operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workspace {
    /// Its element type.
    pub ty: Type,
    /// Shape and strides.
    pub layout: Layout,
    /// Whether it is zeroed before the first launch; the launches restore the zeros.
    pub zeroed: bool,
}

/// The launches of a product, in order.
///
/// Each observes all writes of the previous ones. Engines may overlap them by programmatic
/// dependent launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launches {
    /// The recipe, legalized for the operands.
    pub recipe: Recipe,
    /// The launches, in order.
    pub launches: SmallVec<[Launch; 3]>,
    /// The index of the GEMM launch.
    pub gemm_index: usize,
    /// The workspaces.
    pub workspaces: SmallVec<[Workspace; 4]>,
    /// Whether A, B, and C with the bias are passed transposed.
    pub transposed: [bool; 3],
}

impl Launches {
    /// The GEMM launch.
    pub fn gemm(&self) -> &Launch {
        &self.launches[self.gemm_index]
    }

    /// The layout of A (0), B (1), or C and the bias (2) as passed to the launches.
    pub fn layout(&self, operand: usize, layout: Layout) -> Layout {
        if self.transposed[operand] { layout.transposed() } else { layout }
    }

    /// The launches of a grouped GEMM: groups of rows, each with its own matrix B, by one kernel.
    ///
    /// The kernel has [`Schedule::Grouped`](crate::Schedule::Grouped), as those of
    /// [`grouped_kernel`](super::grouped_kernel). `rows` are the rows of A and C of each group,
    /// consecutive from row 0: kernels read only their ends.
    ///
    /// # Errors
    /// [`Error::Shape`] for too many groups to address, and for rows beyond 32-bit indices.
    pub fn grouped(kernel: Hopper, rows: &[Range<usize>]) -> Result<Launches> {
        let layout = Layout::row_major(Shape::new(1, rows.len().next_multiple_of(GroupEnds::PER_LAUNCH)))?;
        let ends = Argument::Workspace(0);
        let group_end = |rows: &Range<usize>| {
            let end = rows.end;
            u32::try_from(end).map_err(|_| {
                Error::Shape(format!("a group ends at row {end}; the limit of kernels is {}", limits::EXTENT))
            })
        };
        let write = |(first, rows): (u32, &[Range<usize>])| {
            let padding = repeat_n(0, GroupEnds::PER_LAUNCH - rows.len()).map(Ok);
            let constants = [Ok(first)].into_iter().chain(rows.iter().map(group_end)).chain(padding);
            let constants = constants.map(|constant| constant.map(Argument::Number));
            let arguments = [Ok(ends)].into_iter().chain(constants).collect::<Result<_>>()?;
            Ok(Launch { kernel: HelperKernel::GroupEnds(GroupEnds).into(), arguments })
        };
        let firsts = (0u32..).step_by(GroupEnds::PER_LAUNCH);
        let chunks = firsts.zip(rows.chunks(GroupEnds::PER_LAUNCH));
        let mut launches: SmallVec<[Launch; 3]> = chunks.map(write).collect::<Result<_>>()?;
        let bias = kernel.epilogue.bias.map(|_| Argument::Bias);
        let matrices = [Argument::A, Argument::B, ends, Argument::C];
        let arguments = matrices.into_iter().chain(bias).chain([Argument::Alpha, Argument::Beta]).collect();
        launches.push(Launch { kernel: kernel.into(), arguments });
        let workspaces = smallvec![Workspace { ty: Type::U32, layout, zeroed: false }];
        let (recipe, gemm_index) = (kernel.into(), launches.len() - 1);
        Ok(Launches { recipe, launches, gemm_index, workspaces, transposed: [false; 3] })
    }
}

impl Recipe {
    /// The launches of the product of these operands.
    ///
    /// # Errors
    /// [`Error::Shape`] for a workspace with more elements than can be addressed.
    pub fn launches(&self, operands: &Operands) -> Result<Launches> {
        let recipe = self.with_epilogue(operands.epilogue).legalize(operands.operand_layouts);
        let mut list = Launches {
            recipe,
            launches: SmallVec::new(),
            gemm_index: 0,
            workspaces: SmallVec::new(),
            transposed: [false; 3],
        };
        // The kernel's left and right operands: B and A if it computes the transpose.
        let sources = if recipe.swapped { [1, 0] } else { [0, 1] };
        let transposed = recipe.kernel.transposed_operands();
        for (operand, source) in sources.into_iter().enumerate() {
            // Two transpositions cancel.
            list.transposed[source] = recipe.swapped != transposed[operand];
        }
        list.transposed[2] = recipe.swapped;
        let layouts: [Layout; 3] = std::array::from_fn(|i| list.layout(i, operands.layouts[i]));
        let operand_layout = |i: usize| {
            if list.transposed[i] { operands.operand_layouts[i].transposed() } else { operands.operand_layouts[i] }
        };
        let (operand_layouts, c_layout) = (sources.map(operand_layout), operand_layout(2));
        let k = operands.layouts[0].shape.cols;

        let (ty, accumulator) = (recipe.kernel.ty(), recipe.kernel.ty().accumulator());
        let partial_sums =
            recipe.kernel.workspace(recipe.split, layouts[2].shape).map(Layout::row_major).transpose()?;
        let partial_sums =
            partial_sums.map(|layout| list.add_workspace(Workspace { ty: accumulator, layout, zeroed: false }));
        let mut inputs = sources.map(|source| [Argument::A, Argument::B][source]);
        let mut packed = [None; 2];
        for (operand, source) in sources.into_iter().enumerate() {
            if let Some(layout) = recipe.packed(operand, layouts[source].shape)? {
                let copy = list.add_workspace(Workspace { ty, layout, zeroed: false });
                packed[operand] = Some((copy, layout.shape));
            }
        }
        let packed_shapes = packed.map(|packed| packed.map(|(_, shape)| shape));
        for (kernel, operands_packed) in recipe.packs(operand_layouts, packed_shapes) {
            // Each operand and its packed copy.
            let copies =
                operands_packed.flat_map(|operand| [Some(inputs[operand]), packed[operand].map(|(copy, _)| copy)]);
            list.launches.push(Launch { kernel: kernel.into(), arguments: copies.flatten().collect() });
        }
        for (input, packed) in inputs.iter_mut().zip(packed) {
            *input = packed.map_or(*input, |(copy, _)| copy);
        }

        let split_reduction = recipe.kernel.split_reduction(recipe.split, k);
        let ready_flags = match split_reduction {
            SplitReduction::InKernel(count) => {
                let layout = Layout::row_major(Shape::new(1, count))?;
                Some(list.add_workspace(Workspace { ty: Type::U32, layout, zeroed: true }))
            }
            _ => None,
        };
        let bias = operands.epilogue.bias.map(|_| Argument::Bias);
        let scalars = split_reduction.scalar_arguments([Argument::Alpha, Argument::Beta], Argument::Number);
        let arguments = match split_reduction {
            // The kernel writes partial sums to the workspace; a later launch reduces them.
            SplitReduction::SplitK | SplitReduction::Fragments(_) => inputs.into_iter().chain(partial_sums).collect(),
            _ => {
                let matrices =
                    inputs.into_iter().chain([Argument::C]).chain(partial_sums).chain(ready_flags).chain(bias);
                matrices.chain([Argument::Alpha, Argument::Beta]).collect()
            }
        };
        list.gemm_index = list.launches.len();
        list.launches.push(Launch { kernel: recipe.kernel.into(), arguments });
        let elements = layouts[2].shape.len()?;
        let reduction =
            recipe.kernel.reduction_kernel(recipe.split, c_layout.order, elements, recipe.passed_epilogue());
        if let (Some(kernel), Some(partial_sums)) = (reduction, partial_sums) {
            let arguments = [partial_sums, Argument::C].into_iter().chain(bias).chain(scalars).collect();
            list.launches.push(Launch { kernel: kernel.into(), arguments });
        }
        Ok(list)
    }
}

impl Launches {
    /// Adds a workspace.
    fn add_workspace(&mut self, workspace: Workspace) -> Argument {
        self.workspaces.push(workspace);
        Argument::Workspace(self.workspaces.len() as u8 - 1)
    }
}

#[cfg(test)]
mod tests {
    use tegula_core::epilogue::{Activation, BiasShape};
    use tegula_ir::Order2d;

    use super::Argument::{A, Alpha, B, Beta, Bias, C, Number, Workspace as W};
    use super::*;
    use crate::GemmKernel;

    /// The launches of a bf16 product of row-major operands, aligned to 16 bytes or not.
    fn launches(name: &str, [m, n, k]: [usize; 3], epilogue: Epilogue) -> Launches {
        let layout = |rows, cols| Layout::row_major(Shape::new(rows, cols)).unwrap();
        let operands = Operands::aligned(Type::BF16, [layout(m, k), layout(k, n), layout(m, n)], epilogue);
        Recipe::named(name, Type::BF16).unwrap().launches(&operands).unwrap()
    }

    fn arguments(list: &Launches) -> Vec<Vec<Argument>> {
        list.launches.iter().map(|launch| launch.arguments.to_vec()).collect()
    }

    #[test]
    fn launches_of_an_unsplit_product_need_no_workspace() {
        let list = launches("hopper_64x64x64_consumers1_stages2", [64, 64, 64], Epilogue::NONE);
        assert_eq!(arguments(&list), [[A, B, C, Alpha, Beta]]);
        assert!(list.workspaces.is_empty() && list.transposed == [false; 3]);
        let epilogue = Epilogue { bias: Some(BiasShape::Row), activation: Activation::Relu };
        let list = launches("hopper_64x64x64_consumers1_stages2:s", [64, 64, 64], epilogue);
        assert_eq!(arguments(&list), [[B, A, C, Bias, Alpha, Beta]]);
        assert_eq!(list.transposed, [true; 3]);
    }

    #[test]
    fn launches_pack_both_operands_at_once_if_possible() {
        let list = launches("hopper_64x64x64_consumers1_stages2:pab", [64, 64, 64], Epilogue::NONE);
        assert_eq!(arguments(&list), [vec![A, W(0), B, W(1)], vec![W(0), W(1), C, Alpha, Beta]]);
        let list = launches("hopper_64x64x64_consumers1_stages2:pa", [64, 64, 64], Epilogue::NONE);
        assert_eq!(arguments(&list), [vec![A, W(0)], vec![W(0), B, C, Alpha, Beta]]);
        // A of 64×(2²²+…) is too large to be packed together with B.
        let list = launches("hopper_64x64x64_consumers1_stages2:pab", [1 << 21, 64, 1 << 21], Epilogue::NONE);
        assert_eq!(arguments(&list)[..2], [[A, W(0)], [B, W(1)]]);
        // Operands without elements are not packed.
        let list = launches("hopper_64x64x64_consumers1_stages2:pab", [64, 64, 0], Epilogue::NONE);
        assert_eq!(arguments(&list), [[W(0), W(1), C, Alpha, Beta]]);
        // Rows of 65 elements are not aligned, so packing is required.
        let list = launches("hopper_64x64x64_consumers1_stages2", [64, 65, 65], Epilogue::NONE);
        assert_eq!((list.launches.len(), list.gemm_index), (2, 1));
        let rows = list.workspaces.iter().map(|workspace| workspace.layout.strides[1]);
        assert!(rows.eq([128, 128]), "{:?}", list.workspaces);
    }

    #[test]
    fn launches_of_split_k_end_with_a_reduction() {
        let epilogue = Epilogue { bias: Some(BiasShape::Column), activation: Activation::None };
        let list = launches("hopper_64x64x64_consumers1_stages2:4", [64, 128, 512], epilogue);
        let Fragment { rows, cols } = Fragment::of(&list);
        assert_eq!(arguments(&list), [vec![A, B, W(0)], vec![W(0), C, Bias, Alpha, Beta, rows, cols]]);
        assert_eq!(list.gemm().kernel, list.launches[0].kernel);
        assert_eq!(list.workspaces[0].ty, Type::F32);
    }

    /// The scalar arguments of the reduction.
    struct Fragment {
        rows: Argument,
        cols: Argument,
    }

    impl Fragment {
        fn of(list: &Launches) -> Fragment {
            let Variant::Gemm(GemmKernel::Hopper(hopper)) = list.gemm().kernel else { panic!("a pipeline") };
            let fragments = hopper.pipeline.fragment_layout();
            Fragment { rows: Number(fragments.rows), cols: Number(fragments.cols) }
        }
    }

    #[test]
    fn launches_of_stream_k_take_zeroed_flags() {
        let list = launches("hopper_64x64x64_consumers1_stages2:w3", [128, 128, 512], Epilogue::NONE);
        assert_eq!(arguments(&list), [[A, B, C, W(0), W(1), Alpha, Beta]]);
        assert_eq!(list.workspaces.iter().map(|workspace| workspace.zeroed).collect::<Vec<_>>(), [false, true]);
        let list = launches("mma_64x64x64_warp32x32_thread16x8_stages3:w3", [128, 128, 512], Epilogue::NONE);
        assert_eq!(arguments(&list), [vec![A, B, C, W(0), Alpha, Beta], vec![W(0), C, Beta, Number(8)]]);
    }

    #[test]
    fn grouped_launches_begin_with_the_ends_of_groups() {
        let hopper = Hopper::named("hopper_64x64x64_consumers1_stages2", Type::BF16).unwrap();
        let rows: Vec<Range<usize>> = (0..GroupEnds::PER_LAUNCH + 1).map(|i| i..i + 1).collect();
        let list = Launches::grouped(hopper, &rows).unwrap();
        assert_eq!((list.launches.len(), list.gemm_index), (3, 2));
        assert_eq!(list.gemm().arguments.as_slice(), [A, B, W(0), C, Alpha, Beta]);
        let second = &list.launches[1].arguments;
        assert_eq!(
            second[..4],
            [W(0), Number(GroupEnds::PER_LAUNCH as u32), Number(GroupEnds::PER_LAUNCH as u32 + 1), Number(0)]
        );
    }

    #[test]
    fn without_workspace_needs_no_workspace() {
        let recipe = Recipe::named("hopper_64x64x64_consumers1_stages2:4", Type::BF16).unwrap();
        let layout = |rows, cols| Layout::row_major(Shape::new(rows, cols)).unwrap();
        for n in [64, 65] {
            let operands =
                Operands::aligned(Type::BF16, [layout(64, 64), layout(64, n), layout(64, n)], Epilogue::NONE);
            let list = recipe.without_workspace(operands.operand_layouts).launches(&operands).unwrap();
            assert!(list.workspaces.is_empty() && list.launches.len() == 1, "{list:?}");
            assert_eq!(matches!(list.gemm().kernel, Variant::Gemm(GemmKernel::Hopper(_))), n == 64);
        }
        assert_eq!(OperandLayout::new(Order2d::RowMajor, true), OperandLayout::of(&layout(64, 64), Type::BF16, 0));
    }
}
