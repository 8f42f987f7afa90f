//! Arrays as stored in files: owned or memory-mapped.

use std::fmt;
use std::ops::Deref;

use tegula_core::element::Scalar;
use tegula_core::nd::{NdLayout, NdView};
use tegula_core::{Layout, Shape, View};

use crate::dtype::{Dtype, for_each_dtype};
use crate::file_map::Mapped;
use crate::number::Number;
use crate::{ErrorMessage, cast};

/// Elements of an array: an owned vector or part of a memory-mapped file.
///
/// Clones of mapped elements share the map.
#[derive(Clone)]
pub struct Data<T>(Storage<T>);

#[derive(Clone)]
enum Storage<T> {
    Owned(Vec<T>),
    Mapped(Mapped<T>),
}

impl<T> Data<T> {
    /// Whether the elements are memory-mapped, without an allocation.
    pub fn is_mapped(&self) -> bool {
        matches!(self.0, Storage::Mapped(_))
    }
}

impl<T: Number> Deref for Data<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Storage::Owned(data) => data,
            Storage::Mapped(data) => data.as_slice(),
        }
    }
}

impl<T> From<Vec<T>> for Data<T> {
    fn from(data: Vec<T>) -> Self {
        Data(Storage::Owned(data))
    }
}

impl<T> From<Mapped<T>> for Data<T> {
    fn from(data: Mapped<T>) -> Self {
        Data(Storage::Mapped(data))
    }
}

/// Prints the number of elements, not the elements.
impl<T: Number> fmt::Debug for Data<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (storage, len) = (if self.is_mapped() { "mapped" } else { "owned" }, self.len());
        write!(f, "{len} {} {storage}", T::DTYPE)
    }
}

/// An array as stored. Fortran order is expressed by the layout; no element is moved.
#[derive(Clone, Debug)]
pub struct Array<T: Number> {
    /// Elements in the order of the file.
    pub data: Data<T>,
    /// Layout of the elements in `data`.
    pub layout: NdLayout,
}

impl<T: Number + Scalar> Array<T> {
    /// Read-only view of the array.
    ///
    /// # Errors
    /// Only if `data` and `layout` were changed to be inconsistent.
    pub fn view(&self) -> tegula_core::Result<NdView<'_, T>> {
        NdView::strided(&self.data, self.layout.clone())
    }

    /// Read-only view of a two-dimensional array.
    ///
    /// # Errors
    /// [`tegula_core::Error::Shape`] for other numbers of dimensions.
    pub fn matrix(&self) -> tegula_core::Result<View<'_, T>> {
        let (&[rows, cols], &[row, col]) = (self.layout.shape.as_slice(), self.layout.strides.as_slice()) else {
            let (dimensions, shape) = (self.layout.shape.len(), tegula_core::nd::display(&self.layout.shape));
            return Err(tegula_core::Error::Shape(format!("a {dimensions}-D array ({shape}) is not a matrix")));
        };
        View::strided(
            &self.data,
            Layout { shape: Shape::new(rows, cols), offset: self.layout.offset, strides: [0, row, col] },
        )
    }
}

macro_rules! any_array {
    ($($tag:ident, $t:ty, $name:literal, $size:literal, $doc:literal;)*) => {
        /// An array of any dtype, as stored.
        #[derive(Clone, Debug)]
        pub enum AnyArray {
            $(#[doc = $doc] $tag(Array<$t>),)*
        }

        /// Evaluates an expression with the array of any dtype.
        macro_rules! with_array {
            ($any:expr, $array:ident => $body:expr) => {
                match $any { $(AnyArray::$tag($array) => $body,)* }
            };
        }

        /// Evaluates an expression with the Rust type of a dtype.
        macro_rules! with_number {
            ($dtype:expr, $number:ident => $body:expr) => {
                match $dtype {
                    $($crate::Dtype::$tag => {
                        type $number = $t;
                        $body
                    })*
                }
            };
        }
        pub(crate) use with_number;
    };
}
for_each_dtype!(any_array);

impl AnyArray {
    /// Dtype of the elements.
    pub fn dtype(&self) -> Dtype {
        fn of<T: Number>(_: &Array<T>) -> Dtype {
            T::DTYPE
        }
        with_array!(self, array => of(array))
    }

    /// Layout of the elements.
    pub fn layout(&self) -> &NdLayout {
        with_array!(self, array => &array.layout)
    }

    /// Number of stored elements.
    pub fn len(&self) -> usize {
        with_array!(self, array => array.data.len())
    }

    /// Whether the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the elements are memory-mapped.
    pub fn is_mapped(&self) -> bool {
        with_array!(self, array => array.data.is_mapped())
    }

    /// Casts the elements to another dtype, in the same order. Frees the original afterwards.
    ///
    /// # Errors
    /// If the copy does not fit in memory, and for 8-bit floats and booleans, which are read-only.
    pub fn cast(self, dtype: Dtype) -> Result<AnyArray, ErrorMessage> {
        if self.dtype() == dtype {
            return Ok(self);
        }
        with_array!(self, array => cast::array(array, dtype))
    }
}
