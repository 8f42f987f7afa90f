//! An explanation of a product before it runs, as plain data: derived from the plan and the
//! layouts.

use std::fmt;

use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Bytes, Error, Result};
use tegula_core::matrix::{Layout, Packed};
use tegula_ir::launch::{BoundArgument, DeviceProperties};
use tegula_ir::{Param, ParamKind};

use super::launches::{Argument, Launch, Launches, Operands};
use super::legalize::Recipe;

/// An explanation of a product before it runs. [`Display`](fmt::Display) prints one fact a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The device: `cpu`, `cuda:0`, `interp`.
    pub device: String,
    /// The kernel's name, as in the report of a run.
    pub kernel: String,
    /// Whether the recipe is an entry of `tegula tune` and not the cost model's choice.
    pub tuned: bool,
    /// Number of products, one after the other: 1, except for N-dimensional ones whose stacks do
    /// not form a single batch.
    pub products: usize,
    /// Matrices in the batch of each product.
    pub batches: usize,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A and rows of B; 0 where alpha is 0, since nothing is multiplied.
    pub k: usize,
    /// The launch configuration; `None` on the CPU, and where C is empty.
    pub launch: Option<Grid>,
    /// A, B and C.
    pub operands: [Operand; 3],
    /// The bias, if any.
    pub bias: Option<Operand>,
    /// Bytes of GPU memory allocated for one product, without operands already in GPU memory.
    pub device_bytes: u128,
    /// Bytes of host memory allocated for one product, without operands already in host memory.
    pub host_bytes: u128,
}

/// A launch configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Rows and columns of a tile.
    pub tile: [u32; 2],
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
}

/// An operand, and how the device reads or writes it.
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
    /// The memory that holds it: `host memory`, `cuda:0`.
    pub memory: String,
    /// How the device reads or writes it.
    pub handling: OperandHandling,
}

/// How an operand is read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperandHandling {
    /// Not read.
    Unread,
    /// Read or written in place.
    InPlace,
    /// Packed in the order in which the kernel reads; on the CPU block by block.
    Packed,
    /// Accumulated in scratch memory by the CPU, block by block, and each element written once.
    Accumulated,
    /// Copied, since the device cannot address the operand's memory.
    Copied {
        /// The device.
        to: String,
        /// Bytes of the copy, for one product.
        bytes: u128,
        /// The storage order of the copy.
        order: StorageOrder,
        /// Whether elements are copied to the device.
        copied_in: bool,
        /// Whether elements are copied back.
        copied_out: bool,
    },
}

/// The storage order of the last two axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StorageOrder {
    /// Elements of a row are contiguous.
    RowMajor,
    /// Elements of a column are contiguous.
    ColumnMajor,
    /// Neither.
    Strided,
}

impl StorageOrder {
    /// The order of a shape with strides. A contiguous vector is row-major.
    pub fn of(shape: &[usize], strides: &[isize]) -> Self {
        let is_contiguous = |back: usize| {
            let axis = shape.len().checked_sub(back);
            axis.is_none_or(|axis| shape[axis] <= 1 || strides.get(axis) == Some(&1))
        };
        match (is_contiguous(1), shape.len() > 1 && is_contiguous(2)) {
            (true, _) => StorageOrder::RowMajor,
            (_, true) => StorageOrder::ColumnMajor,
            _ => StorageOrder::Strided,
        }
    }
}

impl fmt::Display for StorageOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StorageOrder::RowMajor => "row-major",
            StorageOrder::ColumnMajor => "column-major",
            StorageOrder::Strided => "strided",
        })
    }
}

impl Operand {
    /// The storage order of its last two axes.
    pub fn order(&self) -> StorageOrder {
        StorageOrder::of(&self.shape, &self.strides)
    }

    /// Whether an axis has a negative stride.
    pub fn is_reversed(&self) -> bool {
        self.has_axis(|stride| stride < 0)
    }

    /// Whether an axis has stride 0.
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
        write!(f, "{}: {shape} {} in {}, {}", self.name, self.ty, self.memory, self.order())?;
        if self.is_reversed() {
            f.write_str(", reversed")?;
        }
        if self.is_broadcast() {
            f.write_str(", broadcast")?;
        }
        write!(f, ", strides {:?}: ", self.strides)?;
        match &self.handling {
            OperandHandling::Unread => f.write_str("not read"),
            OperandHandling::InPlace if self.name == "C" => f.write_str("written in place"),
            OperandHandling::InPlace => f.write_str("read in place"),
            OperandHandling::Packed => f.write_str("packed block by block"),
            OperandHandling::Accumulated => f.write_str("accumulated in scratch memory, written once"),
            OperandHandling::Copied { to, bytes, order, copied_in, copied_out } => {
                let how = match (copied_in, copied_out) {
                    (true, true) => format!("copied to {to} and back"),
                    (true, false) => format!("copied to {to}"),
                    (false, _) => format!("written on {to} and copied back"),
                };
                write!(f, "{how}, {}, {order}", Bytes(*bytes))
            }
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { m, n, k, .. } = self;
        writeln!(f, "device: {}", self.device)?;
        writeln!(f, "kernel: {}{}", self.kernel, if self.tuned { ", tuned by tegula tune" } else { "" })?;
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

/// The index of C among the operands.
const C: usize = 2;

/// A product as engines receive it: layouts, types and the memory of its operands.
pub struct ProblemOperands {
    /// Layouts of A, B and C.
    pub layouts: [Layout; 3],
    /// Their element types.
    pub types: [Type; 3],
    /// The GPU whose memory holds each; `None` for host memory.
    pub gpus: [Option<usize>; 3],
    /// Whether C is read as well.
    pub reads_c: bool,
    /// The layout of the bias, and the GPU whose memory holds it.
    pub bias: Option<(Layout, Option<usize>)>,
    /// Bias and activation.
    pub epilogue: Epilogue,
}

/// An engine that runs kernels, as far as an explanation depends on it.
pub struct Engine {
    /// `cuda:0`, `interp`.
    pub device: String,
    /// The GPU's ordinal.
    pub gpu: Option<usize>,
    /// Device properties that a grid may depend on.
    pub facts: DeviceProperties,
    /// Bytes of host memory to allocate.
    pub host_bytes: u128,
}

impl ProblemOperands {
    /// Checks that each operand is in host memory or on the device's own GPU (`None` on the host).
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`].
    pub fn check_device(&self, own: Option<usize>, device: &str) -> Result<()> {
        let is_elsewhere = |(_, gpu): &(&str, Option<usize>)| gpu.is_some() && *gpu != own;
        let bias = self.bias.map(|(_, gpu)| ("bias", gpu));
        match ["A", "B", "C"].into_iter().zip(self.gpus).chain(bias).find(is_elsewhere) {
            Some((what, Some(ordinal))) => {
                Err(Error::DeviceMismatch { what: what.into(), owner: format!("cuda:{ordinal}"), gpu: device.into() })
            }
            _ => Ok(()),
        }
    }

    /// Explains a product on the CPU: A and B are packed, C is written in place or accumulated in
    /// scratch memory.
    pub fn explain_cpu(&self, kernel: String, in_place: bool, host_bytes: u128) -> Explanation {
        let c = if in_place { OperandHandling::InPlace } else { OperandHandling::Accumulated };
        let bias = self.bias_operand(OperandHandling::InPlace);
        let handling =
            if self.multiplies() { [OperandHandling::Packed, OperandHandling::Packed, c] } else { self.unread() };
        Explanation { bias, ..self.explained("cpu".into(), kernel, handling, 0, host_bytes) }
    }

    /// Explains a product by kernels of an engine: operands in other memory are copied to its GPU.
    ///
    /// # Errors
    /// As binding the kernel to these layouts.
    pub fn explain_kernel(&self, recipe: &Recipe, engine: Engine) -> Result<Explanation> {
        let Engine { device, gpu, facts, host_bytes } = engine;
        if self.layouts[C].shape.is_empty() {
            return Ok(self.explained(device, recipe.with_epilogue(self.epilogue).name(), self.unread(), 0, 0));
        }
        let (mut handling, mut device_layouts, mut device_bytes) = (self.unread(), self.layouts, 0);
        for (i, &layout) in self.layouts.iter().enumerate() {
            if self.gpus[i].is_some() {
                handling[i] = OperandHandling::InPlace;
                continue;
            }
            let (copied_in, copied_out) = if i == C { (self.reads_c, true) } else { (true, false) };
            let copy = copied(layout, self.types[i], &device, gpu.is_some(), [copied_in, copied_out])?;
            if gpu.is_some() {
                device_layouts[i] = copy.layout;
                device_bytes += copy.bytes;
            }
            if self.multiplies() || i == C {
                handling[i] = copy.handling;
            }
        }
        let (mut bias, mut bias_layout) =
            (self.bias_operand(OperandHandling::InPlace), self.bias.map(|(layout, _)| layout));
        if let Some((layout, None)) = self.bias {
            let copy = copied(layout, self.types[C], &device, gpu.is_some(), [true, false])?;
            bias = self.bias_operand(copy.handling);
            if gpu.is_some() {
                bias_layout = Some(copy.layout);
                device_bytes += copy.bytes;
            }
        }
        // A copy may have another order than the original; the recipe is legalized for the copy.
        let launches = recipe.launches(&Operands::aligned(self.types[0], device_layouts, self.epilogue))?;
        let launch = grid(&launches, device_layouts, bias_layout, &facts)?;
        for workspace in launches.workspaces.iter().filter(|workspace| !workspace.zeroed) {
            device_bytes += workspace.layout.shape.len()? as u128 * workspace.ty.size() as u128;
        }
        for (operand, packed) in launches.recipe.packed_operands().into_iter().enumerate() {
            if packed && handling[operand] == OperandHandling::InPlace {
                handling[operand] = OperandHandling::Packed;
            }
        }
        let explained = self.explained(device, launches.recipe.name(), handling, device_bytes, host_bytes);
        Ok(Explanation { launch: Some(launch), bias, ..explained })
    }

    /// The bias as an operand.
    fn bias_operand(&self, handling: OperandHandling) -> Option<Operand> {
        let (layout, gpu) = self.bias?;
        let (shape, strides) = axes(layout);
        Some(Operand { name: "bias", ty: self.types[C], shape, strides, memory: memory_name(gpu), handling })
    }

    /// Whether A and B are read and multiplied.
    fn multiplies(&self) -> bool {
        !self.layouts[C].shape.is_empty() && self.layouts[0].shape.cols > 0
    }

    /// A and B unread, C in place: at most beta·C is computed.
    fn unread(&self) -> [OperandHandling; 3] {
        [OperandHandling::Unread, OperandHandling::Unread, OperandHandling::InPlace]
    }

    fn explained(
        &self,
        device: String,
        kernel: String,
        handling: [OperandHandling; 3],
        device_bytes: u128,
        host_bytes: u128,
    ) -> Explanation {
        let [a, _, c] = self.layouts;
        let (mut names, mut handling) = (0.., handling.into_iter());
        let operands = ["A", "B", "C"].map(|name| {
            let i = names.next().unwrap_or(0);
            let (shape, strides) = axes(self.layouts[i]);
            let memory = memory_name(self.gpus[i]);
            let handling = handling.next().unwrap_or(OperandHandling::Unread);
            Operand { name, ty: self.types[i], shape, strides, memory, handling }
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

/// The tile, grid and block of the GEMM launch.
fn grid(launches: &Launches, layouts: [Layout; 3], bias: Option<Layout>, facts: &DeviceProperties) -> Result<Grid> {
    let Launch { kernel: variant, arguments } = launches.gemm();
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
        (&ParamKind::Matrix { ty, .. }, Some(layout)) => BoundArgument::Matrix { ty, layout, address: 0 },
        (&(ParamKind::Matrix { ty, .. } | ParamKind::Scalar(ty)), _) => BoundArgument::Scalar { ty, bits: 0 },
    };
    let bound: Vec<BoundArgument> = kernel.params().iter().zip(arguments).map(bind).collect();
    Ok(Grid { tile: variant.tile(), grid: kernel.bind(&bound, facts)?, block: kernel.block() })
}

/// The name of a GPU's memory, or of host memory.
fn memory_name(gpu: Option<usize>) -> String {
    gpu.map_or_else(|| "host memory".into(), |ordinal| format!("cuda:{ordinal}"))
}

/// A copy of a matrix for a device.
struct Copied {
    handling: OperandHandling,
    layout: Layout,
    bytes: u128,
}

/// Describes an engine's copy of a matrix.
///
/// A GPU has a packed copy in the order closest to the original. The interpreter stores elements
/// densely and passes the original strides to kernels.
fn copied(layout: Layout, ty: Type, device: &str, gpu: bool, [copied_in, copied_out]: [bool; 2]) -> Result<Copied> {
    let dense = || Ok(Packed { from: layout, to: Layout::row_major(layout.shape)? });
    let copy = if gpu { layout.packed() } else { dense() }?;
    let bytes = copy.from.shape.len()? as u128 * ty.size() as u128;
    let (shape, strides) = axes(copy.to);
    let order = StorageOrder::of(&shape, &strides);
    let handling = OperandHandling::Copied { to: device.into(), bytes, order, copied_in, copied_out };
    Ok(Copied { handling, layout: copy.to, bytes })
}

/// Extents and strides, without the batch of a single matrix.
fn axes(layout: Layout) -> (Vec<usize>, Vec<isize>) {
    let extents = [layout.shape.batches, layout.shape.rows, layout.shape.cols];
    let first = usize::from(layout.shape.batches == 1);
    (extents[first..].to_vec(), layout.strides[first..].to_vec())
}

#[cfg(test)]
mod tests {
    use tegula_core::matrix::Shape;

    use super::*;
    use crate::{Plain, PlainKind};

    #[test]
    fn explanation_host_operands_are_copied_to_the_gpu() {
        let shape = |rows, cols| Shape { batches: 3, rows, cols };
        let layouts = [
            Layout { shape: shape(100, 40), offset: 0, strides: [0, 1, 100] },
            Layout { shape: shape(40, 50), offset: 0, strides: [2000, 50, 1] },
            Layout { shape: shape(100, 50), offset: 4999, strides: [5000, -50, -1] },
        ];
        let operands = ProblemOperands {
            layouts,
            types: [Type::F32; 3],
            gpus: [None, Some(1), None],
            reads_c: true,
            bias: None,
            epilogue: Epilogue::NONE,
        };
        assert!(operands.check_device(Some(0), "cuda:0").is_err());
        assert!(operands.check_device(Some(1), "cuda:1").is_ok());
        let facts = DeviceProperties { multiprocessors: 132 };
        let engine = Engine { device: "cuda:1".into(), gpu: Some(1), facts, host_bytes: 8 << 20 };
        let explanation = operands.explain_kernel(&Plain::new(PlainKind::Tiled, Type::F32, 32).into(), engine).unwrap();
        // A is one matrix for the whole batch, and copied once.
        assert_eq!(explanation.device_bytes, 4 * (100 * 40 + 3 * 100 * 50));
        assert_eq!(explanation.launch.unwrap().grid, [2, 4, 3]);
        let expected = "\
device: cuda:1
kernel: tiled_f32_32_crr
one product: a batch of 3, m = 100, n = 50, k = 40
grid: 2×4×3 blocks of 32×32×1 threads, tiles of 32×32
A: 3×100×40 f32 in host memory, column-major, broadcast, strides [0, 1, 100]: copied to cuda:1, 15.6 KiB, column-major
B: 3×40×50 f32 in cuda:1, row-major, strides [2000, 50, 1]: read in place
C: 3×100×50 f32 in host memory, strided, reversed, strides [5000, -50, -1]: copied to cuda:1 and back, 58.6 KiB, row-major
memory besides the operands: 8.0 MiB on the host, 74.2 KiB on cuda:1";
        assert_eq!(explanation.to_string(), expected);
    }
}
