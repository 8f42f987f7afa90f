//! A product to look at.

use tegula::element::{Element, Scalar};
use tegula::interp::{Arg, Buffer, Config};
use tegula::ir::{self, Checked, Kernel};
use tegula::kernels::Plain;
use tegula::{Layout, Matrix, Shape};
use tegula_explain::Result;
use tegula_explain::profile::{Profile, profile};
use tegula_explain::trace::{MOST, Sample, Trace, record};

/// C = A·B of row-major matrices of small integers.
pub struct Launch {
    kernel: Checked<Kernel>,
    buffers: [Buffer; 3],
    scalars: [Arg<'static>; 2],
}

impl Launch {
    /// Each element of A and B is its position, row after row, plus 1.
    pub fn new<T: Element>(plain: Plain, [m, n, k]: [usize; 3], number: fn(u8) -> T) -> Launch {
        let matrix = |rows: usize, cols: usize| {
            let of = |_, r: usize, c: usize| number(((r * cols + c) % 100 + 1) as u8);
            Buffer::input(Matrix::from_fn(Shape::new(rows, cols), of).unwrap().view()).unwrap()
        };
        let layout = Layout::row_major(Shape::new(m, n)).unwrap();
        let c = Buffer::output(<T::Out as Scalar>::TYPE, layout).unwrap();
        let (one, zero) = (<T::Acc as Scalar>::ONE, <T::Acc as Scalar>::ZERO);
        Launch {
            kernel: ir::check(plain.build().unwrap()).unwrap(),
            buffers: [matrix(m, k), matrix(k, n), c],
            scalars: [Arg::scalar(one), Arg::scalar(zero)],
        }
    }

    fn args(&self) -> Vec<Arg<'_>> {
        self.buffers.iter().map(Arg::from).chain(self.scalars).collect()
    }

    pub fn trace(&self) -> Trace {
        self.sample(&Sample::default(), MOST).unwrap()
    }

    pub fn sample(&self, sample: &Sample, most: usize) -> Result<Trace> {
        record(&self.kernel, &self.args(), &Config::default(), sample, most)
    }

    pub fn profile(&self) -> Profile {
        profile(&self.kernel, &self.args(), &Config::default()).unwrap()
    }
}
