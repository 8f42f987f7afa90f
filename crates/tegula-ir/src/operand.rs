//! What operations name: values, variables, parameters, and elements of memory.

use tegula_core::element::Type;

/// A value: the result of one operation, in one register a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValId(pub u32);
/// A variable: a register a lane that is written more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VarId(pub u32);
/// A parameter, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParamId(pub u32);
/// A shared array, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SharedId(pub u32);
/// Coordinates of an element of a shared array, axis by axis; [`Kernel::coordinates`](crate::Kernel::coordinates) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CoordinatesId(pub u32);
/// Where an operation was written; [`Kernel::site`](crate::Kernel::site) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(pub u32);

macro_rules! index {
    ($($id:ty)*) => {$(impl $id {
        /// The position, as an index.
        pub const fn index(self) -> usize { self.0 as usize }
    })*};
}
index! { ValId VarId ParamId SharedId CoordinatesId SiteId }

/// What an operation reads: a value or a constant's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// The result of an earlier operation.
    Val(ValId),
    /// A constant known when the kernel is built.
    Const(Type, u64),
}

/// An element of memory, by coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Of a matrix parameter. The coordinates are `u32`.
    Global {
        /// Which matrix.
        param: ParamId,
        /// Which of the batch.
        batch: Operand,
        /// Row.
        row: Operand,
        /// Column; a vector goes on from there along the row.
        col: Operand,
    },
    /// Of a matrix parameter, relative to a cursor.
    Cursor {
        /// Which matrix.
        param: ParamId,
        /// Which of the batch, as when the cursor was set.
        batch: Operand,
        /// The cursor: the first of two `u32` variables, its row and its column.
        cursor: VarId,
        /// Rows further on.
        row: u32,
        /// Columns further on.
        col: u32,
    },
    /// Of a shared array: element `index + offset`, row-major.
    Shared {
        /// Which array.
        array: SharedId,
        /// The part known at run time, `u32`.
        index: Operand,
        /// The part known when the kernel is built; it becomes the immediate of the instruction's address.
        offset: u32,
        /// What the two were computed from, so that each axis can be held to its extent.
        coordinates: CoordinatesId,
    },
}

impl Place {
    /// Whether it lies in shared memory.
    pub fn is_shared(&self) -> bool {
        matches!(self, Place::Shared { .. })
    }

    /// The operands that say where it is.
    pub fn operands(&self) -> impl Iterator<Item = Operand> + use<> {
        let operands = match *self {
            Place::Global { batch, row, col, .. } => [Some(batch), Some(row), Some(col)],
            Place::Cursor { batch, .. } => [Some(batch), None, None],
            Place::Shared { index, .. } => [Some(index), None, None],
        };
        operands.into_iter().flatten()
    }
}
