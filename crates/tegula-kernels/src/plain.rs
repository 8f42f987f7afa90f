//! The plain kernels, one thread an element of C: those of the tiling articles, with the mistakes that can be planted in them.

use std::fmt;
use std::str::FromStr;

use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_ir::{MAX_THREADS, Order2d};

use super::orders::order_letters;

/// Which of the plain kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// One thread an element of C, all reads from global memory.
    Naive,
    /// Square tiles in shared memory, one thread an element of C.
    Tiled,
}

/// Which index of a thread runs along a row of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Mapping {
    /// x is the column: neighbouring threads read neighbouring elements.
    #[default]
    XCol,
    /// x is the row: neighbouring threads read elements a row apart.
    XRow,
}

/// What happens where a tile reaches over the edge of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Edges {
    /// The grid is rounded up; every load and store is guarded.
    #[default]
    Guarded,
    /// The grid and the slide are rounded down and nothing is guarded: right for multiples of the tile only.
    Floor,
    /// The grid is rounded up and nothing is guarded: wrong but for multiples of the tile.
    Unguarded,
}

/// Where the tiled kernel's barriers stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Barriers {
    /// After the loads and after the products.
    #[default]
    Both,
    /// Not after the loads: a race.
    NoFirst,
    /// Not after the products: a race when there is more than one step.
    NoSecond,
    /// After the loads and after every product: right but wasteful.
    Extra,
}

/// Mistakes to plant, by the names the command line knows.
pub const PLANTS: [&str; 5] =
    ["floor-launch", "no-guards", "missing-first-barrier", "missing-second-barrier", "extra-barrier"];

/// A plain kernel and everything that shapes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plain {
    /// Which kernel.
    pub family: Family,
    /// Element type of A and B.
    pub ty: Type,
    /// Threads along each side of a block, and elements along each side of a tile.
    pub tile: u32,
    /// Which index is the column.
    pub mapping: Mapping,
    /// What happens at the edges.
    pub edges: Edges,
    /// Where the barriers stand.
    pub barriers: Barriers,
    /// What is known of the strides of A, B and C.
    pub orders: [Order2d; 3],
    /// What happens to sums on their way to C.
    pub epilogue: Epilogue,
}

/// The names of presets: the kernels of the tiling articles.
pub const PRESETS: [&str; 6] = ["K1", "K2", "K3", "K4", "K5", "K6"];

impl Plain {
    /// A kernel in its plain form: guarded, row-major, x the column.
    pub const fn new(family: Family, ty: Type, tile: u32) -> Self {
        Plain {
            family,
            ty,
            tile,
            mapping: Mapping::XCol,
            edges: Edges::Guarded,
            barriers: Barriers::Both,
            orders: [Order2d::RowMajor; 3],
            epilogue: Epilogue::NONE,
        }
    }

    /// The kernel called `name`: `naive`, `tiled`, one of them with its tile and mapping as in `tiled_32` and `naive_16_x_row`, or a preset `K1` to
    /// `K6`, in upper or lower case.
    ///
    /// # Errors
    /// [`Error::KernelOption`] listing the names there are.
    pub fn named(name: &str) -> Result<Self> {
        let tiled = |ty, tile| Plain::new(Family::Tiled, ty, tile);
        Ok(match name.to_ascii_lowercase().as_str() {
            "naive" => Plain::new(Family::Naive, Type::F32, 16),
            "tiled" => tiled(Type::F32, 16),
            "k1" => Plain::new(Family::Naive, Type::F32, 16),
            "k2" => tiled(Type::F64, 16),
            "k3" => Plain { mapping: Mapping::XRow, ..tiled(Type::I32, 16) },
            "k4" => Plain { edges: Edges::Floor, ..tiled(Type::F32, 16) },
            "k5" => Plain { barriers: Barriers::Extra, ..tiled(Type::F32, 2) },
            "k6" => tiled(Type::F32, 32),
            other => {
                return Plain::spelled(other).ok_or_else(|| {
                    Error::KernelOption(format!(
                        "there is no kernel {name:?}; there are naive, tiled, the presets K1 to K6, and those that `tegula kernels` tells of"
                    ))
                });
            }
        })
    }

    fn spelled(name: &str) -> Option<Self> {
        let (family, rest) = name.split_once('_')?;
        let plain = matches!(family, "naive" | "tiled").then(|| Plain::named(family).ok())??;
        let (tile, mapping) = match rest.strip_suffix("_x_row") {
            Some(tile) => (tile, Mapping::XRow),
            None => (rest, Mapping::XCol),
        };
        Some(Plain { tile: tile.parse().ok()?, mapping, ..plain })
    }

    /// The same kernel with a mistake in it, by name (see [`PLANTS`]). One of the same sort that it has already is replaced.
    ///
    /// # Errors
    /// [`Error::KernelOption`] where there is no such mistake, or the kernel cannot have it.
    pub fn planted(self, plant: &str) -> Result<Self> {
        let planted = match plant {
            "floor-launch" => Plain { edges: Edges::Floor, ..self },
            "no-guards" => Plain { edges: Edges::Unguarded, ..self },
            "missing-first-barrier" => Plain { barriers: Barriers::NoFirst, ..self },
            "missing-second-barrier" => Plain { barriers: Barriers::NoSecond, ..self },
            "extra-barrier" => Plain { barriers: Barriers::Extra, ..self },
            _ => {
                let known = PLANTS.join(", ");
                return Err(Error::KernelOption(format!("there is no mistake {plant:?}; there are {known}")));
            }
        };
        planted.check()?;
        Ok(planted)
    }

    pub(super) fn check(&self) -> Result<()> {
        let refuse = |why: String| Err(Error::KernelOption(why));
        if self.tile == 0 || u64::from(self.tile).pow(2) > u64::from(MAX_THREADS) {
            return refuse(format!(
                "tile {} makes blocks of {} threads; a block has 1 to {MAX_THREADS}, so a tile of 1 to 32",
                self.tile,
                u64::from(self.tile).pow(2)
            ));
        }
        if self.family == Family::Naive && self.barriers != Barriers::Both {
            return refuse("the naive kernel has no barriers to miss or to add".into());
        }
        self.epilogue.check(self.ty)
    }

    /// The name: of the kernel, its element type and its tile.
    pub fn name(&self) -> String {
        format!("{self}")
    }
}

/// Blocks of `tile`×`tile` threads that fill a multiprocessor: plain kernels hide latency by threads alone, so the assembler is
/// asked not to spend registers that would keep a block out. (It would: relocatable code, which is what the driver's linker
/// makes, took 42 registers instead of 32 for tile 32 and lost a third of the speed.)
pub(super) fn full_multiprocessor(tile: u32) -> u32 {
    const THREADS: u32 = 2048;
    // More small blocks fit, but with so few threads each no register is ever short.
    const BLOCKS: u32 = 8;
    (THREADS / (tile * tile).next_multiple_of(32)).min(BLOCKS)
}

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.family {
            Family::Naive => "naive",
            Family::Tiled => "tiled",
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
            _ => Err(Error::KernelOption(format!("there is no mapping {name:?}; there are x-col and x-row"))),
        }
    }
}
