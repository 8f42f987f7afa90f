//! The plain kernels of the tiling articles, with one thread per element of C, and the bugs that
//! can be injected into them.

use std::fmt;
use std::str::FromStr;

use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_ir::{MAX_THREADS, Order2d};

use super::orders::order_letters;

/// The kinds of plain kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlainKind {
    /// One thread per element of C, with all loads from global memory.
    Naive,
    /// Square tiles in shared memory, one thread per element of C.
    Tiled,
}

/// The mapping of thread indices to rows and columns of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Mapping {
    /// x is the column: adjacent threads access adjacent elements.
    #[default]
    XCol,
    /// x is the row: adjacent threads access elements a row apart.
    XRow,
}

/// The handling of tiles that extend past the edge of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Edges {
    /// The grid is rounded up, and every load and store is guarded.
    #[default]
    Guarded,
    /// Grid and k-steps are rounded down, and nothing is guarded: correct for multiples of the tile
    /// only.
    Floor,
    /// The grid is rounded up, and nothing is guarded: out of bounds except for multiples of the
    /// tile.
    Unguarded,
}

/// The barriers of the tiled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Barriers {
    /// After the loads and after the products.
    #[default]
    Both,
    /// Not after the loads: a data race.
    NoFirst,
    /// Not after the products: a data race with more than one step.
    NoSecond,
    /// After the loads and after every product: correct but slow.
    Extra,
}

/// The bugs that can be injected, by their names on the command line.
pub const INJECTED_BUGS: [&str; 5] =
    ["floor-launch", "no-guards", "missing-first-barrier", "missing-second-barrier", "extra-barrier"];

/// A plain kernel and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plain {
    /// The kind of kernel.
    pub kind: PlainKind,
    /// Element type of A and B.
    pub ty: Type,
    /// Threads per side of a block, and elements per side of a tile.
    pub tile: u32,
    /// The mapping of thread indices.
    pub mapping: Mapping,
    /// The handling of edges.
    pub edges: Edges,
    /// The barriers.
    pub barriers: Barriers,
    /// Storage orders of A, B and C.
    pub orders: [Order2d; 3],
    /// The epilogue.
    pub epilogue: Epilogue,
}

/// The names of presets: the kernels of the tiling articles.
pub const PRESETS: [&str; 6] = ["K1", "K2", "K3", "K4", "K5", "K6"];

impl Plain {
    /// A correct kernel: guarded, row-major, with x as the column.
    pub const fn new(kind: PlainKind, ty: Type, tile: u32) -> Self {
        Plain {
            kind,
            ty,
            tile,
            mapping: Mapping::XCol,
            edges: Edges::Guarded,
            barriers: Barriers::Both,
            orders: [Order2d::RowMajor; 3],
            epilogue: Epilogue::NONE,
        }
    }

    /// Parses a name: `naive`, `tiled`, one of them with its tile and mapping as in `tiled_32` and
    /// `naive_16_x_row`, or a preset `K1` to `K6`, in upper or lower case.
    ///
    /// # Errors
    /// [`Error::KernelOption`] with the known names.
    pub fn named(name: &str) -> Result<Self> {
        let tiled = |ty, tile| Plain::new(PlainKind::Tiled, ty, tile);
        Ok(match name.to_ascii_lowercase().as_str() {
            "naive" => Plain::new(PlainKind::Naive, Type::F32, 16),
            "tiled" => tiled(Type::F32, 16),
            "k1" => Plain::new(PlainKind::Naive, Type::F32, 16),
            "k2" => tiled(Type::F64, 16),
            "k3" => Plain { mapping: Mapping::XRow, ..tiled(Type::I32, 16) },
            "k4" => Plain { edges: Edges::Floor, ..tiled(Type::F32, 16) },
            "k5" => Plain { barriers: Barriers::Extra, ..tiled(Type::F32, 2) },
            "k6" => tiled(Type::F32, 32),
            other => {
                return Plain::with_parameters(other).ok_or_else(|| {
                    Error::KernelOption(format!(
                        "unknown kernel {name:?}; use naive, tiled, a preset K1 to K6, or a kernel listed by \
                         `tegula kernels`"
                    ))
                });
            }
        })
    }

    fn with_parameters(name: &str) -> Option<Self> {
        let (family, rest) = name.split_once('_')?;
        let plain = matches!(family, "naive" | "tiled").then(|| Plain::named(family).ok())??;
        let (tile, mapping) = match rest.strip_suffix("_x_row") {
            Some(tile) => (tile, Mapping::XRow),
            None => (rest, Mapping::XCol),
        };
        Some(Plain { tile: tile.parse().ok()?, mapping, ..plain })
    }

    /// Injects a bug by its name (see [`INJECTED_BUGS`]). It replaces a bug of the same kind.
    ///
    /// # Errors
    /// [`Error::KernelOption`] for an unknown bug, or one that the kernel cannot have.
    pub fn with_bug(self, bug: &str) -> Result<Self> {
        let kernel = match bug {
            "floor-launch" => Plain { edges: Edges::Floor, ..self },
            "no-guards" => Plain { edges: Edges::Unguarded, ..self },
            "missing-first-barrier" => Plain { barriers: Barriers::NoFirst, ..self },
            "missing-second-barrier" => Plain { barriers: Barriers::NoSecond, ..self },
            "extra-barrier" => Plain { barriers: Barriers::Extra, ..self },
            _ => {
                let known = INJECTED_BUGS.join(", ");
                return Err(Error::KernelOption(format!("unknown bug {bug:?}; the bugs are {known}")));
            }
        };
        kernel.check()?;
        Ok(kernel)
    }

    pub(super) fn check(&self) -> Result<()> {
        let invalid = |why: String| Err(Error::KernelOption(why));
        if self.tile == 0 || u64::from(self.tile).pow(2) > u64::from(MAX_THREADS) {
            return invalid(format!(
                "tile {} makes blocks of {} threads; a block has 1 to {MAX_THREADS}, so a tile of 1 to 32",
                self.tile,
                u64::from(self.tile).pow(2)
            ));
        }
        if self.kind == PlainKind::Naive && self.barriers != Barriers::Both {
            return invalid("the naive kernel has no barriers: barrier bugs apply to tiled".into());
        }
        self.epilogue.check(self.ty)
    }

    /// The name: kernel, element type and tile.
    pub fn name(&self) -> String {
        format!("{self}")
    }
}

/// Blocks of `tile`×`tile` threads per SM at full occupancy.
///
/// Plain kernels hide latency by occupancy alone, so ptxas must not use registers that lower it.
/// Without this bound, relocatable code for the driver's linker took 42 registers instead of 32 for
/// tile 32, and was a third slower.
pub(super) fn blocks_at_full_occupancy(tile: u32) -> u32 {
    const THREADS: u32 = 2048;
    // More small blocks fit, but their few threads never exhaust the registers.
    const BLOCKS: u32 = 8;
    (THREADS / (tile * tile).next_multiple_of(32)).min(BLOCKS)
}

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.kind {
            PlainKind::Naive => "naive",
            PlainKind::Tiled => "tiled",
        };
        write!(f, "{family}_{}_{}", self.ty, self.tile)?;
        if self.mapping == Mapping::XRow {
            f.write_str("_x_row")?;
        }
        match self.edges {
            Edges::Guarded => {}
            Edges::Floor => f.write_str("_floor")?,
            Edges::Unguarded => f.write_str("_unguarded")?,
        }
        match self.barriers {
            Barriers::Both => {}
            Barriers::NoFirst => f.write_str("_no_first_barrier")?,
            Barriers::NoSecond => f.write_str("_no_second_barrier")?,
            Barriers::Extra => f.write_str("_extra_barrier")?,
        }
        f.write_str(&order_letters(self.orders))?;
        f.write_str(&self.epilogue.suffix())
    }
}

impl FromStr for Mapping {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        match name {
            "x-col" => Ok(Mapping::XCol),
            "x-row" => Ok(Mapping::XRow),
            _ => Err(Error::KernelOption(format!("unknown mapping {name:?}; use x-col or x-row"))),
        }
    }
}
