//! Arrays as files store them: in memory, or mapped where they lie.

use std::fmt;
use std::ops::Deref;

use tegula_core::element::Scalar;
use tegula_core::nd::{NdLayout, NdView};
use tegula_core::{Layout, Shape, View};

use crate::dtype::{Dtype, for_each_dtype};
use crate::map::Mapped;
use crate::number::Number;
use crate::{Refusal, cast};

/// The elements of an array, to read: an owned vector or part of a mapped file. A copy of the latter shares the map.
#[derive(Clone)]
pub struct Data<T>(Storage<T>);

#[derive(Clone)]
enum Storage<T> {
    Owned(Vec<T>),
    Mapped(Mapped<T>),
}

impl<T> Data<T> {
    /// Whether the elements lie in a file, so that they take no memory of their own.
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

/// The number of elements, not each of them: there may be any number.
impl<T: Number> fmt::Debug for Data<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kept, len) = (if self.is_mapped() { "mapped" } else { "owned" }, self.len());
        write!(f, "{len} {} {kept}", T::DTYPE)
    }
}

/// An array as its file stores it. Fortran order stays as it is and becomes a layout; nothing is moved.
#[derive(Clone, Debug)]
pub struct Array<T: Number> {
    /// The elements, in the file's order.
    pub data: Data<T>,
    /// Where each element lies in `data`.
    pub layout: NdLayout,
}

impl<T: Number + Scalar> Array<T> {
    /// The array, to read.
    ///
    /// # Errors
    /// Never, unless `data` and `layout` were changed so that they do not fit.
    pub fn view(&self) -> tegula_core::Result<NdView<'_, T>> {
        NdView::strided(&self.data, self.layout.clone())
    }

    /// The array as one matrix, to read.
    ///
    /// # Errors
    /// [`tegula_core::Error::Shape`] where it has not two dimensions.
    pub fn matrix(&self) -> tegula_core::Result<View<'_, T>> {
        let (&[rows, cols], &[row, col]) = (self.layout.shape.as_slice(), self.layout.strides.as_slice()) else {
            let (dimensions, shape) = (self.layout.shape.len(), tegula_core::nd::display(&self.layout.shape));
            return Err(tegula_core::Error::Shape(format!("a {dimensions}-D array ({shape}) is no matrix")));
        };
        View::strided(
            &self.data,
            Layout { shape: Shape::new(rows, cols), offset: self.layout.offset, strides: [0, row, col] },
        )
    }
}

macro_rules! any_array {
    ($($tag:ident, $t:ty, $name:literal, $size:literal, $doc:literal;)*) => {
        /// An array of any of the number types, as stored.
        #[derive(Clone, Debug)]
        pub enum AnyArray {
            $(#[doc = $doc] $tag(Array<$t>),)*
        }

        /// Evaluates an expression with the array inside, whatever its type.
        macro_rules! with_array {
            ($any:expr, $array:ident => $body:expr) => {
                match $any { $(AnyArray::$tag($array) => $body,)* }
            };
        }

        /// Evaluates an expression with the Rust type of a number type at hand.
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
    /// The number type.
    pub fn dtype(&self) -> Dtype {
        fn of<T: Number>(_: &Array<T>) -> Dtype {
            T::DTYPE
        }
        with_array!(self, array => of(array))
    }

    /// Where each element lies.
    pub fn layout(&self) -> &NdLayout {
        with_array!(self, array => &array.layout)
    }

    /// Elements that are stored.
    pub fn len(&self) -> usize {
        with_array!(self, array => array.data.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the elements lie in a file, mapped.
    pub fn is_mapped(&self) -> bool {
        with_array!(self, array => array.data.is_mapped())
    }

    /// The same array in another number type, in the same order. The original is given up as soon as the copy is there.
    ///
    /// # Errors
    /// Where the host has no room for it, and for the 8-bit floats and truth values, which are only read.
    pub fn cast(self, dtype: Dtype) -> Result<AnyArray, Refusal> {
        if self.dtype() == dtype {
            return Ok(self);
        }
        with_array!(self, array => cast::array(array, dtype))
    }
}
