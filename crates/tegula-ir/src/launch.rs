//! What a kernel is launched with: the arguments bound to its parameters, checked, and the grid that follows from them.
//!
//! Callers never say how many blocks there are; the kernel does. Both engines bind through here, so they accept the same.

use tegula_core::element::Type;
use tegula_core::error::{Error, Result};
use tegula_core::matrix::Layout;

use super::ops::*;

/// The largest grid along y and z; x goes to 2³¹ − 1.
pub const GRID_YZ_LIMIT: u32 = 65_535;

/// The greatest extent of a matrix along any axis: indices are 32-bit and may run one tile past the end.
pub const MAX_EXTENT: usize = (1 << 31) - 1025;

/// An argument, as far as a launch needs to know it.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// A matrix in some memory.
    Matrix {
        /// Of its elements.
        ty: Type,
        /// Extents and strides, in elements.
        layout: Layout,
        /// Byte address of element (0, 0, 0), as far as alignment needs it.
        address: u64,
    },
    /// A number.
    Scalar {
        /// Its type.
        ty: Type,
        /// Its bits.
        bits: u64,
    },
}

/// What a kernel's grid may depend on besides sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Multiprocessors.
    pub multiprocessors: u32,
}

/// One entry of a kernel's parameter list, in the order of the PTX text. Strides are passed in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Address of element (0, 0, 0): `u64`.
    Address(ParamId),
    /// How the copy engine finds tiles: 128 bytes that the driver makes.
    Tensor(ParamId),
    /// Extent: `u32`.
    Extent(ParamId, Axis),
    /// Distance of neighbours along an axis in bytes: `i64`.
    Stride(ParamId, Axis),
    /// The number itself.
    Scalar(ParamId, Type),
}

impl Kernel {
    /// The parameter list. A stride that the declaration fixes is not passed.
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

    /// Bytes of the parameter list, each entry aligned as PTX does it.
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
    /// [`Error::Launch`] naming the parameter that an argument does not fit, or the axis along which the grid is too large.
    pub fn bind(&self, args: &[Bound], device: &DeviceFacts) -> Result<[u32; 3]> {
        if args.len() != self.params().len() {
            return Err(self.unfit(format!("it takes {} arguments, {} were given", self.params().len(), args.len())));
        }
        for (param, arg) in self.params().iter().zip(args) {
            check_argument(param, arg).map_err(|why| self.unfit(format!("parameter {} {why}", param.name)))?;
        }
        let Some(grid) = &self.grid else { return Err(self.unfit("it has no grid".into())) };
        let mut blocks = [0; 3];
        for ((blocks, size), (axis, limit)) in blocks.iter_mut().zip(grid).zip([
            ("x", (1 << 31) - 1),
            ("y", u64::from(GRID_YZ_LIMIT)),
            ("z", u64::from(GRID_YZ_LIMIT)),
        ]) {
            let count = size.evaluate(args, device).filter(|&count| count <= limit);
            *blocks =
                count.ok_or_else(|| self.unfit(format!("the grid has more than {limit} blocks along {axis}")))? as u32;
        }
        if !blocks[0].is_multiple_of(self.cluster()) {
            let (x, cluster) = (blocks[0], self.cluster());
            return Err(self.unfit(format!("the grid has {x} blocks along x, in clusters of {cluster}")));
        }
        Ok(blocks)
    }

    fn unfit(&self, why: String) -> Error {
        Error::Launch { kernel: self.name().into(), why }
    }
}

fn check_argument(param: &Param, arg: &Bound) -> Result<(), String> {
    match (&param.kind, arg) {
        (ParamKind::Scalar(want), Bound::Scalar { ty, .. }) if want == ty => Ok(()),
        (ParamKind::Scalar(want), _) => Err(format!("takes a number of type {want}")),
        (&ParamKind::Matrix { ty: want, access, order, aligned, tiles }, &Bound::Matrix { ty, layout, address }) => {
            if want != ty {
                return Err(format!("takes a matrix of {want}, not of {ty}"));
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
        (ParamKind::Matrix { ty, .. }, _) => Err(format!("takes a matrix of {ty}")),
    }
}

fn check_extents(layout: &Layout) -> Result<(), String> {
    let shape = layout.shape;
    for (name, extent) in [("batches", shape.batches), ("rows", shape.rows), ("columns", shape.cols)] {
        if extent > MAX_EXTENT {
            return Err(format!("has {extent} {name}; kernels index up to {MAX_EXTENT}"));
        }
    }
    Ok(())
}

fn check_order(layout: &Layout, order: Order2d) -> Result<(), String> {
    let [_, row, col] = layout.strides;
    match order {
        Order2d::RowMajor if layout.shape.cols > 1 && col != 1 => {
            Err(format!("takes columns side by side, not {col} elements apart"))
        }
        Order2d::ColMajor if layout.shape.rows > 1 && row != 1 => {
            Err(format!("takes rows side by side, not {row} elements apart"))
        }
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
    Err(format!("takes a base and strides that are multiples of {aligned} elements"))
}

/// Whether the copy engine finds its way: rows (columns) and matrices begin at multiples of 16 bytes, less than 2⁴⁰ apart, and forwards.
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
    Err("takes a base and strides that are multiples of 16 bytes, and strides of more than 0".into())
}

impl Size {
    /// The number of blocks; `None` where it is no number (a division by zero, an overflow, a negative count).
    pub fn evaluate(&self, args: &[Bound], device: &DeviceFacts) -> Option<u64> {
        match self {
            Size::Const(n) => Some(u64::from(*n)),
            Size::Multiprocessors => Some(u64::from(device.multiprocessors)),
            Size::Extent(param, axis) => match args.get(param.index())? {
                Bound::Matrix { layout, .. } => Some(match axis {
                    Axis::Batches => layout.shape.batches as u64,
                    Axis::Rows => layout.shape.rows as u64,
                    Axis::Cols => layout.shape.cols as u64,
                }),
                Bound::Scalar { .. } => None,
            },
            Size::Binary(op, a, b) => {
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
