//! Arrays in files: read as they are stored, written whole or not at all.
//!
//! Every reader treats its file as hostile: what a header claims is checked before anybody allocates by it, and a refusal is one
//! line that names the file and says what to do. It knows formats and number types; it multiplies nothing.
#![deny(unsafe_code)]

pub mod cast;
mod header;
pub mod npy;
pub mod output;

use tegula::element::{Type, bf16, f16};
use tegula::nd::NdLayout;
use tegula::{Layout, Shape, View};

use cast::Number;

/// Why a file is refused: the half of a sentence that follows the file's name.
pub type Refusal = String;

/// A file that cannot be read or written, and why.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {why}")]
pub struct Error {
    /// The file as the user named it.
    pub file: String,
    /// The rest of the sentence.
    pub why: Refusal,
}

/// The result of reading or writing a file.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An array as its file stores it. Fortran order stays as it is and becomes a layout; nothing is moved.
#[derive(Clone, Debug)]
pub struct Array<T> {
    /// The elements, in the file's order.
    pub data: Vec<T>,
    /// Where each element lies in `data`.
    pub layout: NdLayout,
}

impl<T: Number> Array<T> {
    /// The array as one matrix, to read.
    ///
    /// # Errors
    /// [`tegula::Error::Shape`] where it has not two dimensions.
    pub fn matrix(&self) -> tegula::Result<View<'_, T>> {
        let (&[rows, cols], &[row, col]) = (self.layout.shape.as_slice(), self.layout.strides.as_slice()) else {
            let (dimensions, shape) = (self.layout.shape.len(), tegula::nd::display(&self.layout.shape));
            return Err(tegula::Error::Shape(format!("a {dimensions}-D array ({shape}) is no matrix")));
        };
        View::strided(
            &self.data,
            Layout { shape: Shape::new(rows, cols), offset: self.layout.offset, strides: [0, row, col] },
        )
    }
}

/// A matrix of one of the number types that products take.
#[derive(Clone, Debug)]
pub enum AnyArray {
    /// 64-bit floats.
    F64(Array<f64>),
    /// 32-bit floats.
    F32(Array<f32>),
    /// IEEE half precision.
    F16(Array<f16>),
    /// The upper half of a 32-bit float.
    BF16(Array<bf16>),
    /// 32-bit integers.
    I32(Array<i32>),
    /// 8-bit integers.
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
    ///
    /// # Errors
    /// Where the host has no room for it.
    pub fn cast(self, ty: Type) -> Result<AnyArray, Refusal> {
        if self.ty() == ty {
            return Ok(self);
        }
        with_array!(self, array => cast::array(&array, ty))
    }
}
