//! A product to be computed by a peer library, and a product that is prepared for repeated calls.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

use tegula::element::{Element, Scalar, Type};
use tegula::error::Result;
use tegula::matrix::{Layout, Matrix, Memory, Shape, View};

/// Problem description for a peer library. C is row-major and contiguous, batch included.
pub struct PeerProblem<'a> {
    pub ty: Type,
    /// Shape of C.
    pub shape: Shape,
    pub k: usize,
    pub a: Operand<'a>,
    pub b: Operand<'a>,
    /// alpha and beta, as bits of the accumulator type.
    pub scalars: [u64; 2],
}

impl PeerProblem<'_> {
    /// m, n and k.
    pub fn sizes(&self) -> [usize; 3] {
        [self.shape.rows, self.shape.cols, self.k]
    }

    /// alpha and beta for f32 accumulators.
    pub fn f32_scalars(&self) -> [f32; 2] {
        self.scalars.map(|bits| f32::from_bits(bits as u32))
    }

    /// alpha and beta for f64 accumulators.
    pub fn f64_scalars(&self) -> [f64; 2] {
        self.scalars.map(f64::from_bits)
    }

    /// Whether alpha is 1 and beta is 0.
    pub fn is_unscaled(&self) -> bool {
        self.scalars == [self.ty.accumulator().round(1.0), 0]
    }
}

/// A or B on the host.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    /// Address of offset 0 of the layout.
    start: *const u8,
    /// Bytes per element.
    size: usize,
    pub layout: Layout,
    borrowed: PhantomData<&'a [u8]>,
}

impl<'a> Operand<'a> {
    /// Wraps a view; `None` if it is in GPU memory.
    pub fn of<T: Element>(view: View<'a, T>) -> Option<Operand<'a>> {
        let Memory::Host(memory) = view.memory() else { return None };
        let (start, size) = (memory.as_ptr().cast(), size_of::<T>());
        Some(Operand { start, size, layout: view.layout(), borrowed: PhantomData })
    }

    /// Address of the first element of a matrix of the batch.
    pub fn at<U>(&self, batch: usize) -> *const U {
        self.start.wrapping_add(self.layout.at(batch, 0, 0) * self.size).cast()
    }
}

/// Layout of a matrix in BLAS terms: transposition and leading dimension, in elements.
pub struct BlasLayout {
    pub transposed: bool,
    pub leading: usize,
}

impl BlasLayout {
    /// Describes a matrix with contiguous rows or columns; `None` for other layouts.
    pub fn of(layout: &Layout) -> Option<BlasLayout> {
        let [_, row, col] = layout.strides;
        let (rows, cols) = (layout.shape.rows, layout.shape.cols);
        let leading =
            |stride: isize, least: usize| usize::try_from(stride).ok().filter(|&stride| stride >= least.max(1));
        if col == 1 || cols == 1 {
            let leading = if rows == 1 { cols.max(1) } else { leading(row, cols)? };
            return Some(BlasLayout { transposed: false, leading });
        }
        let leading = (row == 1 || rows == 1).then(|| leading(col, rows))??;
        Some(BlasLayout { transposed: true, leading })
    }
}

/// Function that computes the product into C at the given address.
pub type CallFn<'a> = Box<dyn FnMut(*mut c_void) -> Result<()> + 'a>;

/// A function of a library that computes a product.
pub struct PeerCall<'a> {
    /// Name within the library; may be empty.
    pub name: &'static str,
    /// Whether C is f32 although the type of the problem has a 16-bit C.
    pub f32_c: bool,
    pub function: CallFn<'a>,
}

/// A product prepared by a peer library for repeated calls.
pub struct PreparedProduct<'a, T: Element> {
    name: String,
    function: CallFn<'a>,
    c: Output<T>,
}

/// Storage of C.
enum Output<T: Element> {
    Native(Matrix<T::Out>),
    /// f32 instead of 16 bits.
    F32(Matrix<f32>),
}

impl<T: Element> fmt::Debug for PreparedProduct<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl<'a, T: Element> PreparedProduct<'a, T> {
    pub(super) fn new(library: &str, call: PeerCall<'a>, shape: Shape) -> Result<Self> {
        let name = if call.name.is_empty() { library.into() } else { format!("{library} {}", call.name) };
        let c = if call.f32_c {
            Output::F32(Matrix::zeros_of_shape(shape)?)
        } else {
            Output::Native(Matrix::zeros_of_shape(shape)?)
        };
        Ok(PreparedProduct { name, function: call.function, c })
    }

    /// Names of the library and the function.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Computes the product.
    ///
    /// # Errors
    /// [`Peer`](tegula::Error::Peer) if the library reports an error.
    pub fn run(&mut self) -> Result<()> {
        (self.function)(match &mut self.c {
            Output::Native(c) => c.as_mut_slice().as_mut_ptr().cast(),
            Output::F32(c) => c.as_mut_slice().as_mut_ptr().cast(),
        })
    }

    /// Sets C before the next call.
    pub fn set_c(&mut self, c: &Matrix<T::Out>) {
        match &mut self.c {
            Output::Native(stored) => stored.as_mut_slice().copy_from_slice(c.as_slice()),
            Output::F32(stored) => {
                stored.as_mut_slice().iter_mut().zip(c.as_slice()).for_each(|(stored, c)| *stored = to_f32::<T>(*c));
            }
        }
    }

    /// Copies C after a call, rounded to its type.
    ///
    /// # Errors
    /// [`OutOfMemory`](tegula::Error::OutOfMemory).
    pub fn c(&self) -> Result<Matrix<T::Out>> {
        match &self.c {
            Output::Native(stored) => Matrix::from_view(stored.view()),
            Output::F32(stored) => {
                let mut c = Matrix::zeros_of_shape(stored.shape())?;
                c.as_mut_slice().iter_mut().zip(stored.as_slice()).for_each(|(c, stored)| *c = rounded::<T>(*stored));
                Ok(c)
            }
        }
    }
}

/// Converts a 16-bit element of C to f32.
fn to_f32<T: Element>(x: T::Out) -> f32 {
    T::Out::TYPE.to_f64(x.to_bits()) as f32
}

/// Rounds an f32 to a 16-bit element of C.
pub(super) fn rounded<T: Element>(x: f32) -> T::Out {
    T::Out::from_bits(T::Out::TYPE.round(x.into()))
}
