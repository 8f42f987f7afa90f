//! A product to look at, and what must not fail.

use tegula_explain::product::Product;
use tegula_explain::profile::Profile;
use tegula_explain::trace::{MOST, Sample, Trace};
use tegula_kernels::Plain;

pub fn product(plain: Plain, sizes: [usize; 3]) -> Product {
    Product::new(plain, sizes).unwrap()
}

pub fn trace(plain: Plain, sizes: [usize; 3]) -> Trace {
    product(plain, sizes).trace(&Sample::default(), MOST).unwrap()
}

pub fn profile(plain: Plain, sizes: [usize; 3]) -> Profile {
    product(plain, sizes).profile().unwrap()
}
