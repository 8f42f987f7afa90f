//! Sample launches, unwrapped.

use tegula_explain::profile::Profile;
use tegula_explain::sample_launch::SampleLaunch;
use tegula_explain::trace::{MAX_VALUES, Trace, TraceFilter};
use tegula_kernels::Plain;

pub fn launch(plain: Plain, extents: [usize; 3]) -> SampleLaunch {
    SampleLaunch::new(plain, extents).unwrap()
}

pub fn trace(plain: Plain, extents: [usize; 3]) -> Trace {
    launch(plain, extents).trace(&TraceFilter::default(), MAX_VALUES).unwrap()
}

pub fn profile(plain: Plain, extents: [usize; 3]) -> Profile {
    launch(plain, extents).profile().unwrap()
}
