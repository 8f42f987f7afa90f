//! A product that a library is asked for, and one that it is ready to make.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

use tegula::element::{Element, Scalar, Type};
use tegula::error::Result;
use tegula::matrix::{Layout, Matrix, Memory, Shape, View};

/// A product as a library is asked for it. C is row-major, batch behind batch.
pub struct Product<'a> {
    pub ty: Type,
    /// Of C.
    pub shape: Shape,
    pub k: usize,
    pub a: Operand<'a>,
    pub b: Operand<'a>,
    /// alpha and beta, as bits of the type that sums have.
    pub factors: [u64; 2],
}

impl Product<'_> {
    /// m, n and k.
    pub fn sizes(&self) -> [usize; 3] {
        [self.shape.rows, self.shape.cols, self.k]
    }

    /// alpha and beta where sums are f32.
    pub fn singles(&self) -> [f32; 2] {
        self.factors.map(|bits| f32::from_bits(bits as u32))
    }

    /// alpha and beta where sums are f64.
    pub fn doubles(&self) -> [f64; 2] {
        self.factors.map(f64::from_bits)
    }

    /// Whether it is A·B and nothing else.
    pub fn is_plain(&self) -> bool {
        self.factors == [self.ty.accumulator().round(1.0), 0]
    }
}

/// A or B on the host.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    /// Where position 0 of the layout lies.
    start: *const u8,
    /// Bytes of an element.
    size: usize,
    pub layout: Layout,
    borrowed: PhantomData<&'a [u8]>,
}

impl<'a> Operand<'a> {
    /// `None` of one on a GPU.
    pub fn of<T: Element>(view: View<'a, T>) -> Option<Operand<'a>> {
        let Memory::Host(memory) = view.memory() else { return None };
        let (start, size) = (memory.as_ptr().cast(), size_of::<T>());
        Some(Operand { start, size, layout: view.layout(), borrowed: PhantomData })
    }

    /// The address of the first element of a matrix of the batch.
    pub fn at<U>(&self, batch: usize) -> *const U {
        self.start.wrapping_add(self.layout.at(batch, 0, 0) * self.size).cast()
    }
}

/// One matrix as BLAS takes it: whether it is transposed, and from one stored row to the next.
pub struct Lies {
    pub transposed: bool,
    pub leading: usize,
}

impl Lies {
    /// Of a matrix whose rows, or whose columns, lie together.
    pub fn of(layout: &Layout) -> Option<Lies> {
        let [_, row, col] = layout.strides;
        let (rows, cols) = (layout.shape.rows, layout.shape.cols);
        let leading =
            |stride: isize, least: usize| usize::try_from(stride).ok().filter(|&stride| stride >= least.max(1));
        if col == 1 || cols == 1 {
            let leading = if rows == 1 { cols.max(1) } else { leading(row, cols)? };
            return Some(Lies { transposed: false, leading });
        }
        let leading = (row == 1 || rows == 1).then(|| leading(col, rows))??;
        Some(Lies { transposed: true, leading })
    }
}

/// The work of a call, given where C lies.
pub type Work<'a> = Box<dyn FnMut(*mut c_void) -> Result<()> + 'a>;

/// A way in which a library makes a product.
pub struct Call<'a> {
    /// What the library calls it.
    pub name: &'static str,
    /// Whether C is f32 also where the product's type has a C of 16 bits.
    pub single: bool,
    pub work: Work<'a>,
}

/// A product that a library is ready to make again and again.
pub struct Ready<'a, T: Element> {
    name: String,
    work: Work<'a>,
    c: Output<T>,
}

/// C.
enum Output<T: Element> {
    Own(Matrix<T::Out>),
    /// f32 where ours is of 16 bits.
    Single(Matrix<f32>),
}

impl<T: Element> fmt::Debug for Ready<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl<'a, T: Element> Ready<'a, T> {
    pub(super) fn new(library: &str, call: Call<'a>, shape: Shape) -> Result<Self> {
        let name = if call.name.is_empty() { library.into() } else { format!("{library} {}", call.name) };
        let c = if call.single {
            Output::Single(Matrix::zeros_of_shape(shape)?)
        } else {
            Output::Own(Matrix::zeros_of_shape(shape)?)
        };
        Ok(Ready { name, work: call.work, c })
    }

    /// The library, and in which way it makes the product.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes it.
    ///
    /// # Errors
    /// [`Peer`](tegula::Error::Peer) where the library refuses.
    pub fn run(&mut self) -> Result<()> {
        (self.work)(match &mut self.c {
            Output::Own(c) => c.as_mut_slice().as_mut_ptr().cast(),
            Output::Single(c) => c.as_mut_slice().as_mut_ptr().cast(),
        })
    }

    /// Says what C is before the next product.
    pub fn set(&mut self, c: &Matrix<T::Out>) {
        match &mut self.c {
            Output::Own(own) => own.as_mut_slice().copy_from_slice(c.as_slice()),
            Output::Single(own) => {
                own.as_mut_slice().iter_mut().zip(c.as_slice()).for_each(|(own, c)| *own = single::<T>(*c));
            }
        }
    }

    /// C after a product, rounded to its type where the library leaves that to others.
    ///
    /// # Errors
    /// [`OutOfMemory`](tegula::Error::OutOfMemory).
    pub fn c(&self) -> Result<Matrix<T::Out>> {
        match &self.c {
            Output::Own(own) => Matrix::from_view(own.view()),
            Output::Single(own) => {
                let mut c = Matrix::zeros_of_shape(own.shape())?;
                c.as_mut_slice().iter_mut().zip(own.as_slice()).for_each(|(c, own)| *c = rounded::<T>(*own));
                Ok(c)
            }
        }
    }
}

/// An element of C of 16 bits.
fn single<T: Element>(x: T::Out) -> f32 {
    T::Out::TYPE.to_f64(x.to_bits()) as f32
}

/// A number as an element of C of 16 bits.
pub(super) fn rounded<T: Element>(x: f32) -> T::Out {
    T::Out::from_bits(T::Out::TYPE.round(x.into()))
}
