//! A sample launch: a kernel and its operands, for traces and counts.

use tegula_core::element::{Element, FloatFormat, Scalar, Type, with_operand_type};
use tegula_core::{Layout, Shape};
use tegula_interp::{Arg, Buffer, Config};
use tegula_ir::ptx::Image;
use tegula_ir::{self as ir, Checked, Kernel};
use tegula_kernels::Variant;

use crate::assembled::{self, SharedCounters};
use crate::error::Result;
use crate::number;
use crate::profile::{Profile, profile};
use crate::sass::Listing;
use crate::trace::{Trace, TraceFilter, record};

/// A kernel with its arguments: row-major matrices of small integers.
#[derive(Debug)]
pub struct SampleLaunch {
    kernel: Checked<Kernel>,
    matrices: [Buffer; 3],
    scalars: [Arg<'static>; 2],
    extents: [usize; 3],
    out: Type,
}

impl SampleLaunch {
    /// Creates the launch C = A·B with A of m×k and B of k×n; `extents` are m, n and k.
    ///
    /// Elements count from 1 to 99 in row-major order, repeatedly. The kernel takes row-major
    /// operands in place, and is the only one of the product.
    ///
    /// # Errors
    /// An unsupported type, a kernel that fails validation, or too little memory for the matrices.
    pub fn new(kernel: impl Into<Variant>, extents: [usize; 3]) -> Result<SampleLaunch> {
        let variant = kernel.into();
        let kernel = ir::check(variant.build()?)?;
        with_operand_type!(
            variant.ty(),
            T => Self::of::<T>(kernel, extents),
            ty => Err(tegula_core::Error::no_kernels(ty).into())
        )
    }

    fn of<T: Element>(kernel: Checked<Kernel>, [m, n, k]: [usize; 3]) -> Result<SampleLaunch> {
        let matrix = |rows: usize, cols: usize| {
            let of = |_, r: usize, c: usize| T::from_bits(T::TYPE.round(((r * cols + c) % 99 + 1) as f64));
            Buffer::from_fn(Layout::row_major(Shape::new(rows, cols))?, of)
        };
        let c = Buffer::output(<T::Out as Scalar>::TYPE, Layout::row_major(Shape::new(m, n))?)?;
        Ok(SampleLaunch {
            kernel,
            matrices: [matrix(m, k)?, matrix(k, n)?, c],
            scalars: [Arg::scalar(<T::Acc as Scalar>::ONE), Arg::scalar(<T::Acc as Scalar>::ZERO)],
            extents: [m, n, k],
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

    /// Records the launch, at most `limit` per-thread values.
    ///
    /// # Errors
    /// As [`record`].
    pub fn trace(&self, filter: &TraceFilter, limit: usize) -> Result<Trace> {
        record(&self.kernel, &self.args(), &Config::default(), filter, limit)
    }

    /// Compares C with the exact product after a launch; `None` if it is right, else a description.
    pub fn result_error(&self) -> Option<String> {
        let [m, n, k] = self.extents;
        let [a, b, c] = &self.matrices;
        let of = |matrix: &Buffer, row, col| number::value(matrix.ty(), matrix.bits(0, row, col).unwrap_or(0));
        // Integers: dot products are exact in f64. For 8- and 16-bit types, C is rounded once.
        let format = self.out.float_format();
        let rounding = format.filter(|_| self.out.size() < 4).map_or(0.0, FloatFormat::unit_roundoff);
        let (mut missing, mut differing) = (Vec::new(), Vec::new());
        for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
            let expected: f64 = (0..k).map(|p| of(a, row, p) * of(b, p, col)).sum();
            let got = of(c, row, col);
            // Above the largest finite value, infinity is the correctly rounded result.
            let infinite = got == f64::INFINITY && format.is_some_and(|format| expected >= format.overflow());
            let right = infinite || (got - expected).abs() <= rounding * expected.abs();
            if !c.written(0, row, col) {
                missing.push(format!("c[{row},{col}] was never written"));
            } else if !right {
                differing.push(format!("c[{row},{col}] is {got} and should be {expected}"));
            }
        }
        let all = m * n;
        let summaries = [(differing, "wrong"), (missing, "missing")].map(|(list, how)| {
            list.first().map(|first| format!("{first}; {} of {all} elements are {how}.", list.len()))
        });
        let summaries: Vec<String> = summaries.into_iter().flatten().collect();
        (!summaries.is_empty()).then(|| summaries.join(" "))
    }

    /// Counts shared memory accesses at the widths of the machine code.
    ///
    /// # Errors
    /// As [`assembled::shared_counters`].
    pub fn assembled(&self, image: &Image, listing: &Listing) -> Result<SharedCounters> {
        assembled::shared_counters(&self.kernel, &self.args(), image, listing)
    }

    /// Runs the launch and counts per thread and in total.
    ///
    /// # Errors
    /// As [`profile`].
    pub fn profile(&self) -> Result<Profile> {
        profile(&self.kernel, &self.args(), &Config::default())
    }
}
