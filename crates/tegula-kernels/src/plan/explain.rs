//! What a product will do, as plain data: known from the plan and the layouts, with nothing run.

use std::fmt;

use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Bytes, Error, Result};
use tegula_core::matrix::{Layout, Packed};
use tegula_ir::launch::{Bound, DeviceFacts};
use tegula_ir::{Param, ParamKind};

use super::fit::Recipe;
use super::launches::{Argument, Launch, Launches, Operands};

/// What a product will do. [`Display`](fmt::Display) gives one line a fact.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The device: `cpu`, `cuda:0`, `interp`.
    pub device: String,
    /// The kernel, as the report will name it.
    pub kernel: String,
    /// Whether it is a winner of `tegula tune` and not the cost model's choice.
    pub tuned: bool,
    /// How many products, one after the other: 1 but for N-dimensional ones whose stacks are no single batch.
    pub products: usize,
    /// Matrices in the batch of each.
    pub batches: usize,
    /// Rows of A and C in each.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A and rows of B; 0 where alpha is 0, since no sum is made.
    pub k: usize,
    /// How a kernel is launched; `None` on the CPU, and where C is empty.
    pub launch: Option<Grid>,
    /// A, B and C.
    pub operands: [Operand; 3],
    /// The bias, if there is one.
    pub bias: Option<Operand>,
    /// Bytes of GPU memory that are taken for one product, besides operands that lie there.
    pub device_bytes: u128,
    /// Bytes of host memory that are taken for one product, besides operands that lie there.
    pub host_bytes: u128,
}

/// How a kernel is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Rows and columns of a tile.
    pub tile: [u32; 2],
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
}

/// How A, B or C is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// `A`, `B`, `C` or `bias`.
    pub name: &'static str,
    /// Its element type.
    pub ty: Type,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Distances along each axis, in elements.
    pub strides: Vec<isize>,
    /// Where it lies: `host memory`, `cuda:0`.
    pub place: String,
    /// What happens to it.
    pub taken: Taken,
}

/// What happens to an operand.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Taken {
    /// Nothing: it is not read.
    Unread,
    /// It is read, or written, where it lies.
    InPlace,
    /// It is copied first, on the CPU block by block, in the order that the kernel reads, and the copy is multiplied.
    Packed,
    /// The CPU sums blocks of it beside it and writes each sum once.
    Summed,
    /// The device has a copy, since it does not reach where the operand lies.
    Copied {
        /// The device.
        to: String,
        /// Bytes of the copy, for one product.
        bytes: u128,
        /// How the copy lies.
        order: Order,
        /// Whether elements are copied to it.
        filled: bool,
        /// Whether elements are copied back from it.
        returned: bool,
    },
}

/// How the last two axes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Elements of a row are neighbours.
    RowMajor,
    /// Elements of a column are neighbours.
    ColumnMajor,
    /// Neither.
    Strided,
}

impl Order {
    /// The order of a shape with strides. A vector whose elements are neighbours is row-major.
    pub fn of(shape: &[usize], strides: &[isize]) -> Self {
        let steps_by_one = |back: usize| {
            let axis = shape.len().checked_sub(back);
            axis.is_none_or(|axis| shape[axis] <= 1 || strides.get(axis) == Some(&1))
        };
        match (steps_by_one(1), shape.len() > 1 && steps_by_one(2)) {
            (true, _) => Order::RowMajor,
            (_, true) => Order::ColumnMajor,
            _ => Order::Strided,
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::RowMajor => "row-major",
            Order::ColumnMajor => "column-major",
            Order::Strided => "strided",
        })
    }
}

impl Operand {
    /// How its last two axes lie.
    pub fn order(&self) -> Order {
        Order::of(&self.shape, &self.strides)
    }

    /// Whether an axis runs backwards.
    pub fn is_reversed(&self) -> bool {
        self.has_axis(|stride| stride < 0)
    }

    /// Whether an axis repeats the same elements.
    pub fn is_broadcast(&self) -> bool {
        self.has_axis(|stride| stride == 0)
    }

    fn has_axis(&self, test: impl Fn(isize) -> bool) -> bool {
        self.shape.iter().zip(&self.strides).any(|(&extent, &stride)| extent > 1 && test(stride))
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = if self.shape.is_empty() { "()".into() } else { product(&self.shape) };
        write!(f, "{}: {shape} {} in {}, {}", self.name, self.ty, self.place, self.order())?;
        if self.is_reversed() {
            f.write_str(", reversed")?;
        }
        if self.is_broadcast() {
            f.write_str(", broadcast")?;
        }
        write!(f, ", strides {:?}: ", self.strides)?;
        match &self.taken {
            Taken::Unread => f.write_str("not read"),
            Taken::InPlace if self.name == "C" => f.write_str("written as it is"),
            Taken::InPlace => f.write_str("read as it is"),
            Taken::Packed => f.write_str("packed block by block"),
            Taken::Summed => f.write_str("summed block by block beside it, written once"),
            Taken::Copied { to, bytes, order, filled, returned } => {
                let how = match (filled, returned) {
                    (true, true) => format!("copied to {to} and back"),
                    (true, false) => format!("copied to {to}"),
                    (false, _) => format!("made on {to} and copied back"),
                };
                write!(f, "{how}, {} as {order}: it lies in {}", Bytes(*bytes), self.place)
            }
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { m, n, k, .. } = self;
        writeln!(f, "device: {}", self.device)?;
        writeln!(f, "kernel: {}{}", self.kernel, if self.tuned { ", the winner of tegula tune" } else { "" })?;
        match self.products {
            1 => f.write_str("one product: ")?,
            count => write!(f, "{count} products, each: ")?,
        }
        if self.batches != 1 {
            write!(f, "a batch of {}, ", self.batches)?;
        }
        writeln!(f, "m = {m}, n = {n}, k = {k}")?;
        if let Some(Grid { tile, grid, block }) = &self.launch {
            let [rows, cols] = tile;
            writeln!(f, "grid: {} blocks of {} threads, tiles of {rows}×{cols}", product(grid), product(block))?;
        }
        self.operands.iter().chain(&self.bias).try_for_each(|operand| writeln!(f, "{operand}"))?;
        write!(f, "memory besides the operands: {} on the host", Bytes(self.host_bytes))?;
        if self.device_bytes > 0 {
            write!(f, ", {} on {}", Bytes(self.device_bytes), self.device)?;
        }
        Ok(())
    }
}

fn product<N: ToString>(extents: &[N]) -> String {
    extents.iter().map(N::to_string).collect::<Vec<_>>().join("×")
}

/// C among the operands.
const C: usize = 2;

/// What is given: a product as engines get it.
pub struct Given {
    /// Layouts of A, B and C.
    pub layouts: [Layout; 3],
    /// Their element types.
    pub types: [Type; 3],
    /// Which GPU each lies on.
    pub gpus: [Option<usize>; 3],
    /// Whether C is read as well.
    pub reads_c: bool,
    /// The layout of the bias, and which GPU it lies on.
    pub bias: Option<(Layout, Option<usize>)>,
    /// What happens to sums on their way to C.
    pub epilogue: Epilogue,
}

/// An engine that runs kernels, as far as an explanation depends on it.
pub struct Engine {
    /// `cuda:0`, `interp`.
    pub device: String,
    /// The GPU's ordinal.
    pub gpu: Option<usize>,
    /// What a grid may depend on.
    pub facts: DeviceFacts,
    /// Host memory that is taken.
    pub host_bytes: u128,
}

impl Given {
    /// Refuses what lies on another GPU than the device, which is none on the host.
    ///
    /// # Errors
    /// [`Error::Elsewhere`].
    pub fn refuse_other_gpus(&self, own: Option<usize>, device: &str) -> Result<()> {
        let elsewhere = |(_, gpu): &(&str, Option<usize>)| gpu.is_some() && *gpu != own;
        let bias = self.bias.map(|(_, gpu)| ("bias", gpu));
        match ["A", "B", "C"].into_iter().zip(self.gpus).chain(bias).find(elsewhere) {
            Some((what, Some(ordinal))) => {
                Err(Error::Elsewhere { what: what.into(), owner: format!("cuda:{ordinal}"), gpu: device.into() })
            }
            _ => Ok(()),
        }
    }

    /// What the CPU does: A and B are packed, C is written where it lies or summed beside it.
    pub fn on_cpu(&self, kernel: String, in_place: bool, host_bytes: u128) -> Explanation {
        let c = if in_place { Taken::InPlace } else { Taken::Summed };
        let bias = self.bias_operand(Taken::InPlace);
        let taken = if self.multiplies() { [Taken::Packed, Taken::Packed, c] } else { self.untouched() };
        Explanation { bias, ..self.explained("cpu".into(), kernel, taken, 0, host_bytes) }
    }

    /// What an engine does with a kernel: operands that do not lie on its GPU are copied there.
    ///
    /// # Errors
    /// What binding the kernel to such layouts says.
    pub fn by_kernel(&self, recipe: &Recipe, engine: Engine) -> Result<Explanation> {
        let Engine { device, gpu, facts, host_bytes } = engine;
        if self.layouts[C].shape.is_empty() {
            return Ok(self.explained(device, recipe.finished(self.epilogue).name(), self.untouched(), 0, 0));
        }
        let (mut taken, mut there, mut device_bytes) = (self.untouched(), self.layouts, 0);
        for (i, &layout) in self.layouts.iter().enumerate() {
            if self.gpus[i].is_some() {
                taken[i] = Taken::InPlace;
                continue;
            }
            let (filled, returned) = if i == C { (self.reads_c, true) } else { (true, false) };
            let copy = copied(layout, self.types[i], &device, gpu.is_some(), [filled, returned])?;
            if gpu.is_some() {
                there[i] = copy.there;
                device_bytes += copy.bytes;
            }
            if self.multiplies() || i == C {
                taken[i] = copy.taken;
            }
        }
        let (mut bias, mut bias_there) = (self.bias_operand(Taken::InPlace), self.bias.map(|(layout, _)| layout));
        if let Some((layout, None)) = self.bias {
            let copy = copied(layout, self.types[C], &device, gpu.is_some(), [true, false])?;
            bias = self.bias_operand(copy.taken);
            if gpu.is_some() {
                bias_there = Some(copy.there);
                device_bytes += copy.bytes;
            }
        }
        // A copy may lie in another order than the original; the kernel is the one for the copy.
        let launches = recipe.launches(&Operands::aligned(self.types[0], there, self.epilogue))?;
        let launch = grid(&launches, there, bias_there, &facts)?;
        for workspace in launches.workspaces.iter().filter(|workspace| !workspace.zeroed) {
            device_bytes += workspace.layout.shape.len()? as u128 * workspace.ty.size() as u128;
        }
        for (operand, packed) in launches.recipe.packed_operands().into_iter().enumerate() {
            if packed && taken[operand] == Taken::InPlace {
                taken[operand] = Taken::Packed;
            }
        }
        let explained = self.explained(device, launches.recipe.name(), taken, device_bytes, host_bytes);
        Ok(Explanation { launch: Some(launch), bias, ..explained })
    }

    /// The bias, of which that happens.
    fn bias_operand(&self, taken: Taken) -> Option<Operand> {
        let (layout, gpu) = self.bias?;
        let (shape, strides) = axes(layout);
        Some(Operand { name: "bias", ty: self.types[C], shape, strides, place: place(gpu), taken })
    }

    /// Whether sums are made: A and B are read.
    fn multiplies(&self) -> bool {
        !self.layouts[C].shape.is_empty() && self.layouts[0].shape.cols > 0
    }

    /// A and B not read, C where it lies: there is nothing, or nothing but beta·C, to do.
    fn untouched(&self) -> [Taken; 3] {
        [Taken::Unread, Taken::Unread, Taken::InPlace]
    }

    fn explained(
        &self,
        device: String,
        kernel: String,
        taken: [Taken; 3],
        device_bytes: u128,
        host_bytes: u128,
    ) -> Explanation {
        let [a, _, c] = self.layouts;
        let (mut names, mut taken) = (0.., taken.into_iter());
        let operands = ["A", "B", "C"].map(|name| {
            let i = names.next().unwrap_or(0);
            let (shape, strides) = axes(self.layouts[i]);
            let place = place(self.gpus[i]);
            Operand { name, ty: self.types[i], shape, strides, place, taken: taken.next().unwrap_or(Taken::Unread) }
        });
        let (batches, m, n, k) = (c.shape.batches, c.shape.rows, c.shape.cols, a.shape.cols);
        Explanation {
            device,
            kernel,
            tuned: false,
            products: 1,
            batches,
            m,
            n,
            k,
            launch: None,
            operands,
            bias: None,
            device_bytes,
            host_bytes,
        }
    }
}

/// The tile, grid and block of the launch that multiplies.
fn grid(launches: &Launches, layouts: [Layout; 3], bias: Option<Layout>, facts: &DeviceFacts) -> Result<Grid> {
    let Launch { kernel: variant, arguments } = launches.main();
    let kernel = variant.build()?;
    let layout = |argument: &Argument| match *argument {
        Argument::A => Some(launches.layout(0, layouts[0])),
        Argument::B => Some(launches.layout(1, layouts[1])),
        Argument::C => Some(launches.layout(2, layouts[C])),
        Argument::Bias => bias.map(|bias| launches.layout(2, bias)),
        Argument::Workspace(number) => Some(launches.workspaces[usize::from(number)].layout),
        Argument::Alpha | Argument::Beta | Argument::Number(_) => None,
    };
    let bind = |(param, argument): (&Param, &Argument)| match (&param.kind, layout(argument)) {
        (&ParamKind::Matrix { ty, .. }, Some(layout)) => Bound::Matrix { ty, layout, address: 0 },
        (&(ParamKind::Matrix { ty, .. } | ParamKind::Scalar(ty)), _) => Bound::Scalar { ty, bits: 0 },
    };
    let bound: Vec<Bound> = kernel.params().iter().zip(arguments).map(bind).collect();
    Ok(Grid { tile: variant.tile(), grid: kernel.bind(&bound, facts)?, block: kernel.block() })
}

/// Where a matrix lies, given which GPU that is.
fn place(gpu: Option<usize>) -> String {
    gpu.map_or_else(|| "host memory".into(), |ordinal| format!("cuda:{ordinal}"))
}

/// A copy of a matrix for a device.
struct Copied {
    taken: Taken,
    there: Layout,
    bytes: u128,
}

/// How an engine copies a matrix: a GPU without gaps, in the order nearest to the original; the interpreter keeps elements densely, and tells
/// kernels the strides of the original.
fn copied(layout: Layout, ty: Type, device: &str, gpu: bool, [filled, returned]: [bool; 2]) -> Result<Copied> {
    let dense = || Ok(Packed { from: layout, to: Layout::row_major(layout.shape)? });
    let copy = if gpu { layout.packed() } else { dense() }?;
    let bytes = copy.from.shape.len()? as u128 * ty.size() as u128;
    let (shape, strides) = axes(copy.to);
    let order = Order::of(&shape, &strides);
    let taken = Taken::Copied { to: device.into(), bytes, order, filled, returned };
    Ok(Copied { taken, there: copy.to, bytes })
}

/// Extents and strides, without the batch where there is one matrix.
fn axes(layout: Layout) -> (Vec<usize>, Vec<isize>) {
    let extents = [layout.shape.batches, layout.shape.rows, layout.shape.cols];
    let first = usize::from(layout.shape.batches == 1);
    (extents[first..].to_vec(), layout.strides[first..].to_vec())
}

#[cfg(test)]
mod tests {
    use tegula_core::matrix::Shape;

    use super::*;
    use crate::{Family, Plain};

    #[test]
    fn a_gpu_copies_what_lies_on_the_host() {
        let shape = |rows, cols| Shape { batches: 3, rows, cols };
        let layouts = [
            Layout { shape: shape(100, 40), offset: 0, strides: [0, 1, 100] },
            Layout { shape: shape(40, 50), offset: 0, strides: [2000, 50, 1] },
            Layout { shape: shape(100, 50), offset: 4999, strides: [5000, -50, -1] },
        ];
        let given = Given {
            layouts,
            types: [Type::F32; 3],
            gpus: [None, Some(1), None],
            reads_c: true,
            bias: None,
            epilogue: Epilogue::NONE,
        };
        assert!(given.refuse_other_gpus(Some(0), "cuda:0").is_err());
        assert!(given.refuse_other_gpus(Some(1), "cuda:1").is_ok());
        let facts = DeviceFacts { multiprocessors: 132 };
        let engine = Engine { device: "cuda:1".into(), gpu: Some(1), facts, host_bytes: 8 << 20 };
        let explanation = given.by_kernel(&Plain::new(Family::Tiled, Type::F32, 32).into(), engine).unwrap();
        // A is one matrix for the whole batch, and copied once.
        assert_eq!(explanation.device_bytes, 4 * (100 * 40 + 3 * 100 * 50));
        assert_eq!(explanation.launch.unwrap().grid, [2, 4, 3]);
        let expected = "\
device: cuda:1
kernel: tiled_f32_32_crr
one product: a batch of 3, m = 100, n = 50, k = 40
grid: 2×4×3 blocks of 32×32×1 threads, tiles of 32×32
A: 3×100×40 f32 in host memory, column-major, broadcast, strides [0, 1, 100]: copied to cuda:1, 15.6 KiB as column-major: it lies in host memory
B: 3×40×50 f32 in cuda:1, row-major, strides [2000, 50, 1]: read as it is
C: 3×100×50 f32 in host memory, strided, reversed, strides [5000, -50, -1]: copied to cuda:1 and back, 58.6 KiB as row-major: it lies in host memory
memory besides the operands: 8.0 MiB on the host, 74.2 KiB on cuda:1";
        assert_eq!(explanation.to_string(), expected);
    }
}
