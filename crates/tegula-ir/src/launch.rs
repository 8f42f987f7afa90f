//! Launch parameters: arguments bound to a kernel's parameters, and the grid that follows from
//! them.
//!
//! The kernel defines its grid; callers do not. Both engines bind arguments here, so they accept
//! the same arguments.

use tegula_core::element::Type;
use tegula_core::error::{Error, Result};
use tegula_core::matrix::Layout;

use super::ops::*;

/// The largest grid along y and z; along x it is 2³¹ − 1.
pub const GRID_YZ_LIMIT: u32 = 65_535;

/// The largest extent of a matrix along any axis.
///
/// Indices are 32-bit and may exceed the extent by one tile.
pub const MAX_EXTENT: usize = (1 << 31) - 1025;

/// An argument of a launch, as far as checks and the grid depend on it.
#[derive(Clone, Copy, Debug)]
pub enum BoundArgument {
    /// A matrix.
    Matrix {
        /// The type of its elements.
        ty: Type,
        /// Extents and strides, in elements.
        layout: Layout,
        /// The byte address of element (0, 0, 0), for alignment checks.
        address: u64,
    },
    /// A scalar.
    Scalar {
        /// Its type.
        ty: Type,
        /// Its bits.
        bits: u64,
    },
}

/// The device properties that a grid can depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceProperties {
    /// The number of SMs.
    pub multiprocessors: u32,
}

/// An entry of a kernel's parameter list, in the order of the PTX text. Strides are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The address of element (0, 0, 0): `u64`.
    Address(ParamId),
    /// The tensor map for TMA: 128 bytes, encoded by the driver.
    Tensor(ParamId),
    /// An extent: `u32`.
    Extent(ParamId, Axis),
    /// The stride of an axis in bytes: `i64`.
    Stride(ParamId, Axis),
    /// The scalar.
    Scalar(ParamId, Type),
}

impl Kernel {
    /// The parameter list. A stride that the declaration fixes is omitted.
    pub fn fields(&self) -> Vec<Field> {
        let mut fields = Vec::new();
        for (i, param) in self.params().iter().enumerate() {
            let id = ParamId(i as u32);
            match param.kind {
                ParamKind::Scalar(ty) => fields.push(Field::Scalar(id, ty)),
                ParamKind::Matrix { order, tiles, .. } => {
                    fields.extend(tiles.map(|_| Field::Tensor(id)));
                    fields.push(Field::Address(id));
                    fields.extend([Axis::Batches, Axis::Rows, Axis::Cols].map(|axis| Field::Extent(id, axis)));
                    fields.push(Field::Stride(id, Axis::Batches));
                    if order != Order2d::ColMajor {
                        fields.push(Field::Stride(id, Axis::Rows));
                    }
                    if order != Order2d::RowMajor {
                        fields.push(Field::Stride(id, Axis::Cols));
                    }
                }
            }
        }
        fields
    }

    /// The size of the parameter list in bytes, with the alignment of PTX.
    pub fn parameter_bytes(&self) -> u64 {
        self.fields().iter().fold(0, |end: u64, field| {
            let (size, align) = match field {
                Field::Tensor(_) => (128, 64),
                Field::Address(_) | Field::Stride(..) => (8, 8),
                Field::Extent(..) => (4, 4),
                Field::Scalar(_, ty) => (ty.size().max(1) as u64, ty.size().max(1) as u64),
            };
            end.next_multiple_of(align) + size
        })
    }

    /// Checks arguments against the parameters and computes the grid.
    ///
    /// # Errors
    /// [`Error::Launch`] with the mismatched parameter, or the axis along which the grid is too
    /// large.
    pub fn bind(&self, args: &[BoundArgument], device: &DeviceProperties) -> Result<[u32; 3]> {
        if args.len() != self.params().len() {
            return Err(self.launch_error(format!(
                "it takes {} arguments, but {} were given",
                self.params().len(),
                args.len()
            )));
        }
        for (param, arg) in self.params().iter().zip(args) {
            check_argument(param, arg).map_err(|why| self.launch_error(format!("parameter {} {why}", param.name)))?;
        }
        let Some(grid) = &self.grid else { return Err(self.launch_error("it has no grid".into())) };
        let mut blocks = [0; 3];
        for ((blocks, size), (axis, limit)) in blocks.iter_mut().zip(grid).zip([
            ("x", (1 << 31) - 1),
            ("y", u64::from(GRID_YZ_LIMIT)),
            ("z", u64::from(GRID_YZ_LIMIT)),
        ]) {
            let count = size.evaluate(args, device).filter(|&count| count <= limit);
            *blocks = count
                .ok_or_else(|| self.launch_error(format!("the grid has more than {limit} blocks along {axis}")))?
                as u32;
        }
        if !blocks[0].is_multiple_of(self.cluster()) {
            let (x, cluster) = (blocks[0], self.cluster());
            return Err(self.launch_error(format!(
                "the grid has {x} blocks along x, which is not a multiple of the cluster size {cluster}"
            )));
        }
        Ok(blocks)
    }

    fn launch_error(&self, why: String) -> Error {
        Error::Launch { kernel: self.name().into(), why }
    }
}

fn check_argument(param: &Param, arg: &BoundArgument) -> Result<(), String> {
    match (&param.kind, arg) {
        (ParamKind::Scalar(want), BoundArgument::Scalar { ty, .. }) if want == ty => Ok(()),
        (ParamKind::Scalar(want), _) => Err(format!("needs a scalar of type {want}")),
        (
            &ParamKind::Matrix { ty: want, access, order, aligned, tiles },
            &BoundArgument::Matrix { ty, layout, address },
        ) => {
            if want != ty {
                return Err(format!("needs a matrix of {want}, not of {ty}"));
            }
            check_extents(&layout)?;
            check_order(&layout, order)?;
            match tiles {
                Some(_) => check_tiled(&layout, ty, address, order)?,
                None => check_alignment(&layout, ty, address, aligned)?,
            }
            if access != Access::Read {
                layout.check_distinct().map_err(|e| e.to_string())?;
            }
            Ok(())
        }
        (ParamKind::Matrix { ty, .. }, _) => Err(format!("needs a matrix of {ty}")),
    }
}

fn check_extents(layout: &Layout) -> Result<(), String> {
    let shape = layout.shape;
    for (name, extent) in [("batches", shape.batches), ("rows", shape.rows), ("columns", shape.cols)] {
        if extent > MAX_EXTENT {
            return Err(format!("has {extent} {name}; the limit is {MAX_EXTENT}"));
        }
    }
    Ok(())
}

fn check_order(layout: &Layout, order: Order2d) -> Result<(), String> {
    let [_, row, col] = layout.strides;
    match order {
        Order2d::RowMajor if layout.shape.cols > 1 && col != 1 => Err(format!("needs a column stride of 1, not {col}")),
        Order2d::ColMajor if layout.shape.rows > 1 && row != 1 => Err(format!("needs a row stride of 1, not {row}")),
        _ => Ok(()),
    }
}

fn check_alignment(layout: &Layout, ty: Type, address: u64, aligned: u32) -> Result<(), String> {
    let [batch, row, _] = layout.strides;
    let unit = aligned as isize;
    let strides_fit = (layout.shape.rows <= 1 || row % unit == 0) && (layout.shape.batches <= 1 || batch % unit == 0);
    if strides_fit && address.is_multiple_of(u64::from(aligned) * ty.size() as u64) {
        return Ok(());
    }
    Err(format!("needs a base address and strides that are multiples of {aligned} elements"))
}

/// Checks the requirements of TMA.
///
/// The base, the lines (rows or columns) and the matrices start at multiples of 16 bytes. The
/// strides are positive and below 2⁴⁰ bytes.
fn check_tiled(layout: &Layout, ty: Type, address: u64, order: Order2d) -> Result<(), String> {
    let [batch, row, col] = layout.strides;
    let (lines, line) = if order == Order2d::ColMajor { (layout.shape.cols, col) } else { (layout.shape.rows, row) };
    let fits = |count: usize, stride: isize| {
        let bytes = stride.checked_mul(ty.size() as isize);
        count <= 1
            || layout.shape.is_empty()
            || bytes.is_some_and(|bytes| (1..1 << 40).contains(&bytes) && bytes % 16 == 0)
    };
    if fits(lines, line) && fits(layout.shape.batches, batch) && address.is_multiple_of(16) {
        return Ok(());
    }
    Err("needs a base address that is a multiple of 16 bytes, and positive strides below 2⁴⁰ bytes that are multiples of 16 bytes".into())
}

impl GridExtent {
    /// The number of blocks; `None` for a division by zero, an overflow or a negative number.
    pub fn evaluate(&self, args: &[BoundArgument], device: &DeviceProperties) -> Option<u64> {
        match self {
            GridExtent::Const(n) => Some(u64::from(*n)),
            GridExtent::Multiprocessors => Some(u64::from(device.multiprocessors)),
            GridExtent::Extent(param, axis) => match args.get(param.index())? {
                BoundArgument::Matrix { layout, .. } => Some(match axis {
                    Axis::Batches => layout.shape.batches as u64,
                    Axis::Rows => layout.shape.rows as u64,
                    Axis::Cols => layout.shape.cols as u64,
                }),
                BoundArgument::Scalar { .. } => None,
            },
            GridExtent::Binary(op, a, b) => {
                let (a, b) = (a.evaluate(args, device)?, b.evaluate(args, device)?);
                match op {
                    Binary::Add => a.checked_add(b),
                    Binary::Sub => a.checked_sub(b),
                    Binary::Mul => a.checked_mul(b),
                    Binary::Div => a.checked_div(b),
                    Binary::Min => Some(a.min(b)),
                    Binary::Max => Some(a.max(b)),
                    _ => None,
                }
            }
        }
    }
}
