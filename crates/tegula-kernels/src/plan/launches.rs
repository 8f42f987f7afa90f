//! A recipe lowered: the launches that make a product, in order, as plain data. Every engine runs
//! this list and nothing else.

use std::iter::repeat_n;
use std::ops::Range;

use smallvec::{SmallVec, smallvec};
use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::Result;
use tegula_core::matrix::{Layout, Shape};

use super::fit::Recipe;
use super::problem::Lie;
use super::recipe::Meeting;
use crate::ends::Ends;
use crate::family::GemmVariant;
use crate::helper::HelperKernel;
use crate::hopper::Hopper;
use crate::variant::Variant;

/// The matrices of a product as an engine holds them: A, B, C, and what is done to C last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operands {
    /// Shapes and strides of A, B and C.
    pub layouts: [Layout; 3],
    /// What kernels may rely on: orders and alignments of A, B and C.
    pub lies: [Lie; 3],
    /// Bias and activation, by the rows and columns of C.
    pub epilogue: Epilogue,
}

impl Operands {
    /// Matrices of a product of elements of a type, the first element of each aligned as memory of
    /// its own is.
    pub fn aligned(ty: Type, layouts: [Layout; 3], epilogue: Epilogue) -> Operands {
        let out = ty.output();
        let [a, b, c] = &layouts;
        Operands { lies: [Lie::of(a, ty, 0), Lie::of(b, ty, 0), Lie::of(c, out, 0)], layouts, epilogue }
    }
}

/// An argument of a launch.
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
    /// A `u32`.
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

/// Memory that launches take besides the operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workspace {
    /// Its elements.
    pub ty: Type,
    /// Shape and strides.
    pub layout: Layout,
    /// Whether it is zero before the first launch; the launches leave it so.
    pub zeroed: bool,
}

/// A product as launches, each of which starts when the one before has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Launches {
    /// The recipe, fitted to the operands.
    pub recipe: Recipe,
    /// The launches, in order.
    pub launches: SmallVec<[Launch; 3]>,
    /// Which of them multiplies.
    pub multiply: usize,
    /// The workspaces.
    pub workspaces: SmallVec<[Workspace; 4]>,
    /// Whether launches take A, B, and C with the bias, transposed.
    pub transposed: [bool; 3],
}

impl Launches {
    /// The launch that multiplies.
    pub fn main(&self) -> &Launch {
        &self.launches[self.multiply]
    }

    /// A layout of A (0), B (1), or C and the bias (2) as launches take it.
    pub fn layout(&self, operand: usize, layout: Layout) -> Layout {
        if self.transposed[operand] { layout.transposed() } else { layout }
    }

    /// The launches that compute products of groups of rows, each with a matrix of B, by one
    /// kernel.
    ///
    /// # Errors
    /// [`Error::Shape`](tegula_core::Error::Shape) where there are too many groups to address.
    pub fn of_groups(kernel: Hopper, rows: &[Range<usize>]) -> Result<Launches> {
        let layout = Layout::row_major(Shape::new(1, rows.len().next_multiple_of(Ends::NUMBERS)))?;
        let ends = Argument::Workspace(0);
        let write = |(first, rows): (u32, &[Range<usize>])| {
            let numbers = rows.iter().map(|rows| rows.end as u32);
            let numbers = numbers.chain(repeat_n(0, Ends::NUMBERS - rows.len())).map(Argument::Number);
            let arguments = [ends, Argument::Number(first)].into_iter().chain(numbers).collect();
            Launch { kernel: HelperKernel::Ends(Ends).into(), arguments }
        };
        let firsts = (0u32..).step_by(Ends::NUMBERS);
        let mut launches: SmallVec<[Launch; 3]> = firsts.zip(rows.chunks(Ends::NUMBERS)).map(write).collect();
        let bias = kernel.epilogue.bias.map(|_| Argument::Bias);
        let matrices = [Argument::A, Argument::B, ends, Argument::C];
        let arguments = matrices.into_iter().chain(bias).chain([Argument::Alpha, Argument::Beta]).collect();
        launches.push(Launch { kernel: kernel.into(), arguments });
        let workspaces = smallvec![Workspace { ty: Type::U32, layout, zeroed: false }];
        let (recipe, multiply) = (kernel.into(), launches.len() - 1);
        Ok(Launches { recipe, launches, multiply, workspaces, transposed: [false; 3] })
    }
}

impl Recipe {
    /// The launches that make a product of these operands.
    ///
    /// # Errors
    /// [`Error::Shape`](tegula_core::Error::Shape) where a workspace has more elements than can be
    /// addressed.
    pub fn launches(&self, operands: &Operands) -> Result<Launches> {
        let recipe = self.finished(operands.epilogue).fit(operands.lies);
        let mut list = Launches {
            recipe,
            launches: SmallVec::new(),
            multiply: 0,
            workspaces: SmallVec::new(),
            transposed: [false; 3],
        };
        // The kernel's left and right operands: B and A where it makes the transpose.
        let sources = if recipe.swapped { [1, 0] } else { [0, 1] };
        let turned = recipe.kernel.transposed_operands();
        for (side, source) in sources.into_iter().enumerate() {
            list.transposed[source] = recipe.swapped != turned[side];
        }
        list.transposed[2] = recipe.swapped;
        let layouts: [Layout; 3] = std::array::from_fn(|i| list.layout(i, operands.layouts[i]));
        let lie = |i: usize| if list.transposed[i] { operands.lies[i].transposed() } else { operands.lies[i] };
        let (lies, c_lie) = (sources.map(lie), lie(2));
        let k = operands.layouts[0].shape.cols;

        let (ty, sums) = (recipe.kernel.ty(), recipe.kernel.ty().accumulator());
        let parts = recipe.kernel.workspace(recipe.split, layouts[2].shape).map(Layout::row_major).transpose()?;
        let parts = parts.map(|layout| list.take(sums, layout, false));
        let mut inputs = sources.map(|source| [Argument::A, Argument::B][source]);
        let mut packed = [None; 2];
        for (side, source) in sources.into_iter().enumerate() {
            if let Some(layout) = recipe.packed(side, layouts[source].shape)? {
                packed[side] = Some((list.take(ty, layout, false), layout.shape));
            }
        }
        let to = packed.map(|packed| packed.map(|(_, shape)| shape));
        for (kernel, sides) in recipe.packs(lies, to) {
            let pairs = sides.flat_map(|side| [Some(inputs[side]), packed[side].map(|(to, _)| to)]);
            list.launches.push(Launch { kernel: kernel.into(), arguments: pairs.flatten().collect() });
        }
        for (input, packed) in inputs.iter_mut().zip(packed) {
            *input = packed.map_or(*input, |(to, _)| to);
        }

        let meeting = recipe.kernel.meeting(recipe.split, k);
        let flags = match meeting {
            Meeting::Flags(count) => {
                let layout = Layout::row_major(Shape::new(1, count))?;
                Some(list.take(Type::U32, layout, true))
            }
            _ => None,
        };
        let bias = operands.epilogue.bias.map(|_| Argument::Bias);
        let numbers = meeting.numbers([Argument::Alpha, Argument::Beta], Argument::Number);
        let arguments = match meeting {
            // Sums go to the workspace; the second launch finishes them.
            Meeting::Sum | Meeting::Reduce(_) => inputs.into_iter().chain(parts).collect(),
            _ => {
                let matrices = inputs.into_iter().chain([Argument::C]).chain(parts).chain(flags).chain(bias);
                matrices.chain([Argument::Alpha, Argument::Beta]).collect()
            }
        };
        list.multiply = list.launches.len();
        list.launches.push(Launch { kernel: recipe.kernel.into(), arguments });
        let elements = layouts[2].shape.len()?;
        let second = recipe.kernel.second(recipe.split, c_lie.order, elements, recipe.passed_epilogue());
        if let (Some(kernel), Some(parts)) = (second, parts) {
            let arguments = [parts, Argument::C].into_iter().chain(bias).chain(numbers).collect();
            list.launches.push(Launch { kernel: kernel.into(), arguments });
        }
        Ok(list)
    }
}

impl Launches {
    /// Takes another workspace.
    fn take(&mut self, ty: Type, layout: Layout, zeroed: bool) -> Argument {
        self.workspaces.push(Workspace { ty, layout, zeroed });
        Argument::Workspace(self.workspaces.len() as u8 - 1)
    }
}

#[cfg(test)]
mod tests {
    use tegula_core::epilogue::{Activation, Along};
    use tegula_ir::Order2d;

    use super::Argument::{A, Alpha, B, Beta, Bias, C, Number, Workspace as W};
    use super::*;
    use crate::GemmKernel;

    /// The launches of a product of bf16 whose A and B are row-major, each 16-byte aligned or not.
    fn launches(name: &str, [m, n, k]: [usize; 3], epilogue: Epilogue) -> Launches {
        let layout = |rows, cols| Layout::row_major(Shape::new(rows, cols)).unwrap();
        let operands = Operands::aligned(Type::BF16, [layout(m, k), layout(k, n), layout(m, n)], epilogue);
        Recipe::named(name, Type::BF16).unwrap().launches(&operands).unwrap()
    }

    fn arguments(list: &Launches) -> Vec<Vec<Argument>> {
        list.launches.iter().map(|launch| launch.arguments.to_vec()).collect()
    }

    #[test]
    fn a_whole_product_is_one_launch_without_workspaces() {
        let list = launches("hopper_64x64x64_1_2_1", [64, 64, 64], Epilogue::NONE);
        assert_eq!(arguments(&list), [[A, B, C, Alpha, Beta]]);
        assert!(list.workspaces.is_empty() && list.transposed == [false; 3]);
        let epilogue = Epilogue { bias: Some(Along::Rows), activation: Activation::Relu };
        let list = launches("hopper_64x64x64_1_2_1:s", [64, 64, 64], epilogue);
        assert_eq!(arguments(&list), [[B, A, C, Bias, Alpha, Beta]]);
        assert_eq!(list.transposed, [true; 3]);
    }

    #[test]
    fn operands_are_packed_by_one_launch_where_one_kernel_can() {
        let list = launches("hopper_64x64x64_1_2_1:pab", [64, 64, 64], Epilogue::NONE);
        assert_eq!(arguments(&list), [vec![A, W(0), B, W(1)], vec![W(0), W(1), C, Alpha, Beta]]);
        let list = launches("hopper_64x64x64_1_2_1:pa", [64, 64, 64], Epilogue::NONE);
        assert_eq!(arguments(&list), [vec![A, W(0)], vec![W(0), B, C, Alpha, Beta]]);
        // A of 64×(2²²+…) is too large to be packed beside B.
        let list = launches("hopper_64x64x64_1_2_1:pab", [1 << 21, 64, 1 << 21], Epilogue::NONE);
        assert_eq!(arguments(&list)[..2], [[A, W(0)], [B, W(1)]]);
        // Nothing is copied of an operand without elements.
        let list = launches("hopper_64x64x64_1_2_1:pab", [64, 64, 0], Epilogue::NONE);
        assert_eq!(arguments(&list), [[W(0), W(1), C, Alpha, Beta]]);
        // Rows of 65 elements are not aligned, so the copies are forced.
        let list = launches("hopper_64x64x64_1_2_1", [64, 65, 65], Epilogue::NONE);
        assert_eq!((list.launches.len(), list.multiply), (2, 1));
        let rows = list.workspaces.iter().map(|workspace| workspace.layout.strides[1]);
        assert!(rows.eq([128, 128]), "{:?}", list.workspaces);
    }

    #[test]
    fn parts_are_reduced_by_a_second_launch() {
        let epilogue = Epilogue { bias: Some(Along::Columns), activation: Activation::None };
        let list = launches("hopper_64x64x64_1_2_1:4", [64, 128, 512], epilogue);
        let Fragment { rows, cols } = Fragment::of(&list);
        assert_eq!(arguments(&list), [vec![A, B, W(0)], vec![W(0), C, Bias, Alpha, Beta, rows, cols]]);
        assert_eq!(list.main().kernel, list.launches[0].kernel);
        assert_eq!(list.workspaces[0].ty, Type::F32);
    }

    /// The numbers that the reduction takes.
    struct Fragment {
        rows: Argument,
        cols: Argument,
    }

    impl Fragment {
        fn of(list: &Launches) -> Fragment {
            let Variant::Gemm(GemmKernel::Hopper(hopper)) = list.main().kernel else { panic!("a pipeline") };
            let fragments = hopper.pipeline.fragments();
            Fragment { rows: Number(fragments.rows), cols: Number(fragments.cols) }
        }
    }

    #[test]
    fn shared_tiles_take_flags_that_are_zero() {
        let list = launches("hopper_64x64x64_1_2_1:w3", [128, 128, 512], Epilogue::NONE);
        assert_eq!(arguments(&list), [[A, B, C, W(0), W(1), Alpha, Beta]]);
        assert_eq!(list.workspaces.iter().map(|workspace| workspace.zeroed).collect::<Vec<_>>(), [false, true]);
        let list = launches("mma_64x64x64_32x32_16x8_3_1_1:w3", [128, 128, 512], Epilogue::NONE);
        assert_eq!(arguments(&list), [vec![A, B, C, W(0), Alpha, Beta], vec![W(0), C, Beta, Number(8)]]);
    }

    #[test]
    fn groups_are_preceded_by_launches_that_write_where_they_end() {
        let hopper = Hopper::named("hopper_64x64x64_1_2_1", Type::BF16).unwrap();
        let rows: Vec<Range<usize>> = (0..Ends::NUMBERS + 1).map(|i| i..i + 1).collect();
        let list = Launches::of_groups(hopper, &rows).unwrap();
        assert_eq!((list.launches.len(), list.multiply), (3, 2));
        assert_eq!(list.main().arguments.as_slice(), [A, B, W(0), C, Alpha, Beta]);
        let second = &list.launches[1].arguments;
        assert_eq!(second[..4], [W(0), Number(Ends::NUMBERS as u32), Number(Ends::NUMBERS as u32 + 1), Number(0)]);
    }

    #[test]
    fn without_a_workspace_is_slower_and_takes_none() {
        let recipe = Recipe::named("hopper_64x64x64_1_2_1:4", Type::BF16).unwrap();
        let layout = |rows, cols| Layout::row_major(Shape::new(rows, cols)).unwrap();
        for n in [64, 65] {
            let operands =
                Operands::aligned(Type::BF16, [layout(64, 64), layout(64, n), layout(64, n)], Epilogue::NONE);
            let list = recipe.without_workspace(operands.lies).launches(&operands).unwrap();
            assert!(list.workspaces.is_empty() && list.launches.len() == 1, "{list:?}");
            assert_eq!(matches!(list.main().kernel, Variant::Gemm(GemmKernel::Hopper(_))), n == 64);
        }
        assert_eq!(Lie::new(Order2d::RowMajor, true), Lie::of(&layout(64, 64), Type::BF16, 0));
    }
}
