//! Rows on the processor, by the system's clock.
//!
//! One set of inputs, so small products find them in the cache, as most do there. Other libraries of the processor are not called.

use std::time::Instant;

use super::accuracy::Sampled;
use super::{Inputs, Measured, Settings, Timed, contest};
use crate::element::Element;
use crate::error::Result;
use crate::exec::{Device, Executor};
use crate::gemm::{Gemm, Report};
use crate::matrix::Matrix;

/// Calls, timed on the host.
struct Calls<F>(F);

impl<F: FnMut() -> Result<()>> Timed for Calls<F> {
    fn time(&mut self, samples: usize, calls: usize) -> Result<Vec<f64>> {
        let Calls(call) = self;
        call()?;
        let sample = |_| {
            let start = Instant::now();
            (0..calls).try_for_each(|_| call())?;
            Ok(start.elapsed().as_secs_f64() / calls.max(1) as f64)
        };
        (0..samples).map(sample).collect()
    }
}

/// The candidates, of which there are none.
type Nobody = Calls<fn() -> Result<()>>;

/// A row.
pub fn measure<T: Element>(device: &Device, inputs: &Inputs<T>, settings: &Settings) -> Result<Measured> {
    let case = &inputs.case;
    let multiply = |c: &mut Matrix<T::Out>| -> Result<Report> {
        let product = Gemm::new(inputs.a(), inputs.b(), c.view_mut()).alpha(case.alpha).beta(case.beta);
        let mut product = product.accuracy(case.accuracy).on(device);
        product.finish = inputs.finish();
        match &settings.plan {
            Some(plan) => device.run(plan, product),
            None => product.run(),
        }
    };
    let mut c = inputs.c_before()?;
    let report = multiply(&mut c)?;
    let rows = Sampled::of(c.shape(), case.k, settings.seed);
    let r = rows.r(inputs, c.view())?;
    let mut ours = Calls(|| multiply(&mut c).map(drop));
    let contest = contest::<Nobody>(&mut ours, &mut [], 1, false, settings.seconds)?;
    Ok(contest.measured(report.kernel, r, None, rows.count(), 1))
}
