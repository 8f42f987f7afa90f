//! Operands of operations: values, variables, parameters and memory references.

use tegula_core::element::Type;

/// A value: the result of one operation, one register for each lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValId(pub u32);
/// A variable: a mutable register for each lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VarId(pub u32);
/// The index of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParamId(pub u32);
/// The index of a shared array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SharedId(pub u32);
/// The index of an element's coordinates; see [`Kernel::coordinates`](crate::Kernel::coordinates).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CoordinatesId(pub u32);
/// The index of a source location; see [`Kernel::site`](crate::Kernel::site).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(pub u32);

macro_rules! index {
    ($($id:ty)*) => {$(impl $id {
        /// The id as an index.
        pub const fn index(self) -> usize { self.0 as usize }
    })*};
}
index! { ValId VarId ParamId SharedId CoordinatesId SiteId }

/// An input of an operation: a value or a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// The result of an earlier operation.
    Val(ValId),
    /// A constant of the type, by its bits.
    Const(Type, u64),
}

/// A reference to an element of memory, by coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryRef {
    /// An element of a matrix parameter. The coordinates are `u32`.
    Global {
        /// The matrix.
        param: ParamId,
        /// The index in the batch.
        batch: Operand,
        /// The row.
        row: Operand,
        /// The column; a vector access continues along the row.
        col: Operand,
    },
    /// An element of a matrix parameter, relative to a cursor.
    Cursor {
        /// The matrix.
        param: ParamId,
        /// The index in the batch, the same as where the cursor was set.
        batch: Operand,
        /// The cursor: the first of two `u32` variables, its row and its column.
        cursor: VarId,
        /// The row offset.
        row: u32,
        /// The column offset.
        col: u32,
    },
    /// An element of a shared array: the flat index `index + offset`, row-major.
    Shared {
        /// The array.
        array: SharedId,
        /// The dynamic part of the index, `u32`.
        index: Operand,
        /// The static part of the index, which becomes the immediate of the address.
        offset: u32,
        /// The coordinates, from which each axis is checked against its extent.
        coordinates: CoordinatesId,
    },
}

impl MemoryRef {
    /// Whether the element is in shared memory.
    pub fn is_shared(&self) -> bool {
        matches!(self, MemoryRef::Shared { .. })
    }

    /// The operands of the coordinates.
    pub fn operands(&self) -> impl Iterator<Item = Operand> + use<> {
        let operands = match *self {
            MemoryRef::Global { batch, row, col, .. } => [Some(batch), Some(row), Some(col)],
            MemoryRef::Cursor { batch, .. } => [Some(batch), None, None],
            MemoryRef::Shared { index, .. } => [Some(index), None, None],
        };
        operands.into_iter().flatten()
    }
}
