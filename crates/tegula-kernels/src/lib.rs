//! The kernels: one idea a file, and what all of them share.
//!
//! A [`Variant`] names a kernel with everything that shapes it; [`Variant::build`] makes the [`Kernel`]. Sizes and addresses are
//! no part of it: one built kernel serves every problem.

/// A kernel function for the element type of that tag, where plain arithmetic has it.
macro_rules! of_type {
    ($ty:expr, $kernel:ident($variant:expr)) => {
        tegula_core::element::with_operand_type!(
            $ty,
            T => Ok($kernel::<T>($variant)),
            ty => Err(Error::no_kernels(ty))
        )
    };
}

mod blocked;
mod dispatch;
mod dmma;
mod ends;
mod epilogue;
mod fragments;
mod hopper;
mod limbs;
mod mend;
mod mma;
mod naive;
mod orders;
mod pack;
mod plain;
pub mod plan;
mod product;
mod reduce;
mod register;
mod stage;
mod sum;
mod tiled;
mod vector;

use std::fmt;

pub use blocked::{Blocked, Blocking, Core, Schedule};
pub use ends::Ends;
pub use fragments::Fragments;
pub use hopper::{Hopper, Pipeline};
pub use mend::Mend;
pub use pack::{Pack, PackBoth, Packing};
pub use plain::{Barriers, Edges, Family, Mapping, PLANTS, PRESETS, Plain};
pub use reduce::Reduce;
pub use sum::{Adding, Sum};
use tegula_core::element::{Accuracy, Type};
use tegula_core::epilogue::Epilogue;
use tegula_core::error::Result;
use tegula_ir::{Kernel, Mma, Order2d};
pub use vector::Vector;

macro_rules! sources {
    ($($file:literal)*) => { [$(($file, include_str!($file))),*] };
}

/// The files in which kernels are written, and their text: where the lines of a kernel's operations ([`tegula_ir::Site`]) lie.
pub const SOURCES: [(&str, &str); 12] = sources! {
    "naive.rs" "tiled.rs" "product.rs" "epilogue.rs" "register.rs" "stage.rs" "dmma.rs" "mma.rs" "limbs.rs" "vector.rs"
    "blocked.rs" "hopper.rs"
};

/// What names of kernels of blocks begin with.
const BLOCKED: [&str; 5] = ["register", "dmma", "mma", "tf32", "limbs"];

/// A kernel and everything that shapes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// One thread an element of C.
    Plain(Plain),
    /// A tile of C a block, a part of it in each thread's registers.
    Blocked(Blocked),
    /// A pipeline of warps on Hopper's matrix units.
    Hopper(Hopper),
    /// A C of few rows, a large B.
    Vector(Vector),
    /// The sum of what blocks along k made.
    Sum(Sum),
    /// The sum of what pipelines along k made.
    Reduce(Reduce),
    /// The sums of tiles that several blocks shared.
    Mend(Mend),
    /// A copy of a matrix, as another kernel takes it.
    Pack(Pack),
    /// Copies of both factors.
    PackBoth(PackBoth),
    /// Where the groups of a product end.
    Ends(Ends),
}

impl Variant {
    /// The kernel of that name, for row-major matrices: a plain one ([`Plain::named`]), one of blocks ([`Blocked::named`]) or for few rows
    /// ([`Vector::named`]), or `sum` or `mend`, which add what others split, or `pack`, which copies what others take.
    ///
    /// # Errors
    /// [`Error::KernelOption`](tegula_core::Error::KernelOption) that says what names there are.
    pub fn named(name: &str, ty: Type) -> Result<Self> {
        let (order, epilogue) = (Order2d::RowMajor, Epilogue::NONE);
        Ok(match name {
            "sum" => Variant::Sum(Sum { ty, order, adding: Adding::Few, epilogue }),
            "mend" => Variant::Mend(Mend { ty, order, epilogue }),
            "pack" => Variant::Pack(Pack { ty, from: order, packing: Packing::Same }),
            _ if name.starts_with("hopper") => Hopper::named(name, ty)?.into(),
            _ if name.starts_with("vector") => Vector::named(name, ty)?.into(),
            _ if BLOCKED.iter().any(|family| name.starts_with(family)) => Blocked::named(name, ty)?.into(),
            _ => Plain { ty, ..Plain::named(name)? }.into(),
        })
    }

    /// How exact its products are.
    pub fn accuracy(&self) -> Accuracy {
        match self {
            Variant::Blocked(Blocked { core: Core::Mma(Mma::TF32), .. }) => Accuracy::Tf32,
            _ => Accuracy::Full,
        }
    }

    /// The name: of the kernel, its element type and its shape.
    pub fn name(&self) -> String {
        self.to_string()
    }

    /// Builds the kernel.
    ///
    /// # Errors
    /// [`Error::KernelOption`](tegula_core::Error::KernelOption) for a shape or a type that the kernel cannot have.
    pub fn build(&self) -> Result<Kernel> {
        match self {
            Variant::Plain(plain) => plain.build(),
            Variant::Blocked(blocked) => blocked.build(),
            Variant::Hopper(hopper) => hopper.build(),
            Variant::Vector(vector) => vector.build(),
            Variant::Sum(sum) => sum.build(),
            Variant::Reduce(reduce) => reduce.build(),
            Variant::Mend(mend) => mend.build(),
            Variant::Pack(pack) => pack.build(),
            Variant::PackBoth(packs) => packs.build(),
            Variant::Ends(ends) => Ok(ends.build()),
        }
    }

    /// Builds the kernel for GPUs since Hopper, where launches overlap: one may begin before those before it have ended, if they allow it and it
    /// waits for them itself. Pipelines do both by themselves, and so does what adds their parts. Passes before them only allow the next to begin: they
    /// are several blocks a multiprocessor, which would begin where there is room, not evenly.
    ///
    /// # Errors
    /// As [`Variant::build`].
    pub fn build_overlapping(&self) -> Result<Kernel> {
        let kernel = self.build()?;
        Ok(match self {
            Variant::Pack(_) | Variant::PackBoth(_) | Variant::Ends(_) => kernel.allowing_next(),
            _ => kernel,
        })
    }

    /// Element type of A and B, or of what a pass writes.
    pub fn ty(&self) -> Type {
        match self {
            Variant::Plain(plain) => plain.ty,
            Variant::Blocked(blocked) => blocked.ty,
            Variant::Hopper(hopper) => hopper.ty,
            Variant::Vector(vector) => vector.ty,
            Variant::Sum(sum) => sum.ty,
            Variant::Reduce(reduce) => reduce.ty,
            Variant::Mend(mend) => mend.ty,
            Variant::Pack(pack) => pack.ty,
            Variant::PackBoth(packs) => packs.ty,
            Variant::Ends(_) => Type::U32,
        }
    }

    /// Rows and columns of a tile of C.
    pub fn tile(&self) -> [u32; 2] {
        match self {
            Variant::Plain(plain) => [plain.tile; 2],
            Variant::Blocked(Blocked { blocking: Blocking { block: [rows, cols, _], .. }, .. }) => [*rows, *cols],
            Variant::Hopper(Hopper { pipeline: Pipeline { tile: [rows, cols, _], .. }, .. }) => [*rows, *cols],
            Variant::Vector(vector) => [vector.few, vector.columns()],
            Variant::Sum(sum) => sum.tile(),
            Variant::Reduce(_) => Reduce::TILE,
            Variant::Mend(_) => [1, mend::ELEMENTS],
            Variant::Pack(_) | Variant::PackBoth(_) => [pack::TILE; 2],
            Variant::Ends(_) => [1, Ends::NUMBERS as u32],
        }
    }
}

impl From<Plain> for Variant {
    fn from(plain: Plain) -> Self {
        Variant::Plain(plain)
    }
}

impl From<Blocked> for Variant {
    fn from(blocked: Blocked) -> Self {
        Variant::Blocked(blocked)
    }
}

impl From<Hopper> for Variant {
    fn from(hopper: Hopper) -> Self {
        Variant::Hopper(hopper)
    }
}

impl From<Pack> for Variant {
    fn from(pack: Pack) -> Self {
        Variant::Pack(pack)
    }
}

impl From<PackBoth> for Variant {
    fn from(packs: PackBoth) -> Self {
        Variant::PackBoth(packs)
    }
}

impl From<Ends> for Variant {
    fn from(ends: Ends) -> Self {
        Variant::Ends(ends)
    }
}

impl From<Vector> for Variant {
    fn from(vector: Vector) -> Self {
        Variant::Vector(vector)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Variant::Plain(plain) => plain.fmt(f),
            Variant::Blocked(blocked) => blocked.fmt(f),
            Variant::Hopper(hopper) => hopper.fmt(f),
            Variant::Vector(vector) => vector.fmt(f),
            Variant::Sum(sum) => sum.fmt(f),
            Variant::Reduce(reduce) => reduce.fmt(f),
            Variant::Mend(mend) => mend.fmt(f),
            Variant::Pack(pack) => pack.fmt(f),
            Variant::PackBoth(packs) => packs.fmt(f),
            Variant::Ends(ends) => ends.fmt(f),
        }
    }
}
