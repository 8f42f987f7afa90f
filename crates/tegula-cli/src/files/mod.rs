//! Matrices in files: what was read, whichever number type it holds, and the type-safe way back to one type.

pub mod cast;
mod header;
pub mod npy;
pub mod output;

use tegula::element::{Type, bf16, f16};
use tegula::{Layout, Matrix, Shape, View};

use crate::failure::Result;
use cast::Number;

/// A matrix as its file stores it. Fortran order stays as it is and becomes a layout; nothing is moved.
#[derive(Clone, Debug)]
pub struct Array<T> {
    pub data: Vec<T>,
    pub layout: Layout,
}

impl<T: Number> Array<T> {
    /// Extents.
    pub fn shape(&self) -> Shape {
        self.layout.shape
    }

    /// The matrix, to read.
    pub fn view(&self) -> Result<View<'_, T>> {
        Ok(View::strided(&self.data, self.layout)?)
    }

    /// The matrix in C order; free where it already is.
    pub fn into_matrix(self) -> Result<Matrix<T>> {
        if self.layout == Layout::row_major(self.shape())? {
            return Ok(Matrix::from_shape_vec(self.shape(), self.data)?);
        }
        let at = |batch, row, col| self.data[self.layout.at(batch, row, col)];
        Ok(Matrix::from_fn(self.shape(), at)?)
    }
}

/// A matrix of one of the number types that products take.
#[derive(Clone, Debug)]
pub enum AnyArray {
    F64(Array<f64>),
    F32(Array<f32>),
    F16(Array<f16>),
    BF16(Array<bf16>),
    I32(Array<i32>),
    I8(Array<i8>),
}

/// Evaluates an expression with the array inside, whatever its type.
macro_rules! with_array {
    ($any:expr, $array:ident => $body:expr) => {
        match $any {
            AnyArray::F64($array) => $body,
            AnyArray::F32($array) => $body,
            AnyArray::F16($array) => $body,
            AnyArray::BF16($array) => $body,
            AnyArray::I32($array) => $body,
            AnyArray::I8($array) => $body,
        }
    };
}

impl AnyArray {
    /// The number type.
    pub fn ty(&self) -> Type {
        fn of<T: Number>(_: &Array<T>) -> Type {
            T::TYPE
        }
        with_array!(self, array => of(array))
    }

    /// The same matrix in another number type, in the same order.
    pub fn cast(self, ty: Type) -> Result<AnyArray> {
        if self.ty() == ty {
            return Ok(self);
        }
        with_array!(self, array => cast::array(&array, ty))
    }
}
