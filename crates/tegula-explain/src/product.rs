//! A product to explain: a kernel, and how large the matrices are.

use tegula_core::element::{Element, FloatFormat, Scalar, Type, with_operand_type};
use tegula_core::{Layout, Shape};
use tegula_interp::{Arg, Buffer, Config};
use tegula_ir::ptx::Image;
use tegula_ir::{self as ir, Checked, Kernel};
use tegula_kernels::Variant;

use crate::assembled::{self, Shared};
use crate::error::Result;
use crate::number;
use crate::profile::{Profile, profile};
use crate::sass::Listing;
use crate::trace::{Sample, Trace, record};

/// A kernel with all that it is launched with: row-major matrices of small integers.
#[derive(Debug)]
pub struct Product {
    kernel: Checked<Kernel>,
    matrices: [Buffer; 3],
    scalars: [Arg<'static>; 2],
    sizes: [usize; 3],
    out: Type,
}

impl Product {
    /// C = A·B with A of m×k and B of k×n. Their elements count from 1 to 99, row after row and again. The kernel takes row-major matrices as
    /// they are, and does all of the work itself.
    ///
    /// # Errors
    /// Where there is no such kernel or no room for the matrices.
    pub fn new(kernel: impl Into<Variant>, sizes: [usize; 3]) -> Result<Product> {
        let variant = kernel.into();
        let kernel = ir::check(variant.build()?)?;
        with_operand_type!(
            variant.ty(),
            T => Self::of::<T>(kernel, sizes),
            ty => Err(tegula_core::Error::no_kernels(ty).into())
        )
    }

    fn of<T: Element>(kernel: Checked<Kernel>, [m, n, k]: [usize; 3]) -> Result<Product> {
        let matrix = |rows: usize, cols: usize| {
            let of = |_, r: usize, c: usize| T::from_bits(T::TYPE.round(((r * cols + c) % 99 + 1) as f64));
            Buffer::from_fn(Layout::row_major(Shape::new(rows, cols))?, of)
        };
        let c = Buffer::output(<T::Out as Scalar>::TYPE, Layout::row_major(Shape::new(m, n))?)?;
        Ok(Product {
            kernel,
            matrices: [matrix(m, k)?, matrix(k, n)?, c],
            scalars: [Arg::scalar(<T::Acc as Scalar>::ONE), Arg::scalar(<T::Acc as Scalar>::ZERO)],
            sizes: [m, n, k],
            out: <T::Out as Scalar>::TYPE,
        })
    }

    /// The kernel.
    pub fn kernel(&self) -> &Checked<Kernel> {
        &self.kernel
    }

    fn args(&self) -> Vec<Arg<'_>> {
        self.matrices.iter().map(Arg::from).chain(self.scalars).collect()
    }

    /// What the launch does, of at most `most` numbers of single threads.
    ///
    /// # Errors
    /// As [`record`].
    pub fn trace(&self, sample: &Sample, most: usize) -> Result<Trace> {
        record(&self.kernel, &self.args(), &Config::default(), sample, most)
    }

    /// What is wrong with C after a launch, in words.
    pub fn wrong(&self) -> Option<String> {
        let [m, n, k] = self.sizes;
        let [a, b, c] = &self.matrices;
        let of = |matrix: &Buffer, row, col| number::value(matrix.ty(), matrix.bits(0, row, col).unwrap_or(0));
        // Whole numbers, whose sums are exact in f64. Of short types, C is rounded once.
        let format = self.out.float_format();
        let rounding = format.filter(|_| self.out.size() < 4).map_or(0.0, FloatFormat::unit_roundoff);
        let (mut missing, mut differing) = (Vec::new(), Vec::new());
        for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
            let expected: f64 = (0..k).map(|p| of(a, row, p) * of(b, p, col)).sum();
            let got = of(c, row, col);
            // Beyond the greatest number there is infinity, and rounding is right to say so.
            let infinite = got == f64::INFINITY && format.is_some_and(|format| expected >= format.overflow());
            let right = infinite || (got - expected).abs() <= rounding * expected.abs();
            if !c.written(0, row, col) {
                missing.push(format!("c[{row},{col}] was never written"));
            } else if !right {
                differing.push(format!("c[{row},{col}] is {got} and should be {expected}"));
            }
        }
        let all = m * n;
        let told = [(differing, "wrong"), (missing, "missing")].map(|(list, how)| {
            list.first().map(|first| format!("{first}; {} of {all} elements are {how}.", list.len()))
        });
        let told: Vec<String> = told.into_iter().flatten().collect();
        (!told.is_empty()).then(|| told.join(" "))
    }

    /// What it costs in shared memory as the assembler wrote it.
    ///
    /// # Errors
    /// As [`assembled::shared`].
    pub fn assembled(&self, image: &Image, listing: &Listing) -> Result<Shared> {
        assembled::shared(&self.kernel, &self.args(), image, listing)
    }

    /// What its threads do.
    ///
    /// # Errors
    /// As [`profile`].
    pub fn profile(&self) -> Result<Profile> {
        profile(&self.kernel, &self.args(), &Config::default())
    }
}
