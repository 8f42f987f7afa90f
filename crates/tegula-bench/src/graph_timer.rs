//! Repeated GPU calls over several sets of operands, captured as graphs and timed by events.
//!
//! The module depends on a function that queues work for A, B and C, not on what it queues.

use std::cell::RefCell;
use std::fmt;

use tegula::cuda::{DeviceMatrix, Event, Gpu, Graph};
use tegula::element::{Element, Scalar};
use tegula::error::{Error, Result};
use tegula::matrix::{Layout, Matrix, View, ViewMut};

/// Sets of A, B and C in GPU memory, at fixed addresses: captured graphs refer to them.
#[derive(Debug)]
pub struct OperandSets<T: Element> {
    gpu: Gpu,
    transposed: [bool; 2],
    sets: Vec<Set<T>>,
    /// Bias shared by all sets.
    bias: Option<DeviceMatrix<T::Out>>,
}

#[derive(Debug)]
struct Set<T: Element> {
    a: DeviceMatrix<T>,
    b: DeviceMatrix<T>,
    c: RefCell<DeviceMatrix<T::Out>>,
}

impl<T: Element> OperandSets<T> {
    /// Uploads `sets` copies of A, B and C, at least one.
    ///
    /// If A or B is `transposed`, the given matrix is its transpose.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] and errors of the driver.
    pub fn upload(
        gpu: &Gpu,
        [a, b]: [View<'_, T>; 2],
        transposed: [bool; 2],
        c: View<'_, T::Out>,
        sets: usize,
    ) -> Result<Self> {
        let set = |_| {
            let (a, b) = (DeviceMatrix::upload(gpu, a)?, DeviceMatrix::upload(gpu, b)?);
            Ok(Set { a, b, c: RefCell::new(DeviceMatrix::upload(gpu, c)?) })
        };
        let sets = (0..sets.max(1)).map(set).collect::<Result<Vec<_>>>()?;
        Ok(OperandSets { gpu: gpu.clone(), transposed, sets, bias: None })
    }

    /// Uploads a bias, or removes it.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] and errors of the driver.
    pub fn with_bias(self, bias: Option<View<'_, T::Out>>) -> Result<Self> {
        let bias = bias.map(|bias| DeviceMatrix::upload(&self.gpu, bias)).transpose()?;
        Ok(OperandSets { bias, ..self })
    }

    /// The bias.
    pub fn bias(&self) -> Option<View<'_, T::Out>> {
        self.bias.as_ref().map(DeviceMatrix::view)
    }

    /// Sets C of the first set.
    ///
    /// # Errors
    /// [`Error::Layout`] for another number of elements; errors of the driver.
    pub fn set_c(&self, c: View<'_, T::Out>) -> Result<()> {
        self.sets[0].c.borrow_mut().upload_from(c)
    }

    /// Downloads C of the first set, after all queued work.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] and errors of the driver.
    pub fn c(&self) -> Result<Matrix<T::Out>> {
        self.sets[0].c.borrow().download()
    }

    /// The GPU.
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Layouts of A, B and C, identical in all sets.
    pub(crate) fn layouts(&self) -> [Layout; 3] {
        let Set { a, b, c } = &self.sets[0];
        let [at, bt] = self.transposed;
        [transpose_if(a.view(), at).layout(), transpose_if(b.view(), bt).layout(), c.borrow().view().layout()]
    }

    /// Alignments of A, B and C in bytes, valid for all sets.
    pub(crate) fn alignments(&self) -> [u32; 3] {
        let addresses =
            |set: &Set<T>| [set.a.buffer().address(), set.b.buffer().address(), set.c.borrow().buffer().address()];
        let all = self.sets.iter().map(addresses).fold([0; 3], |all, one| std::array::from_fn(|i| all[i] | one[i]));
        all.map(alignment)
    }

    /// Calls `queue` with views of a set.
    fn with_set(&self, set: usize, queue: &mut Queue<'_, T>) -> Result<()> {
        let Set { a, b, c } = &self.sets[set % self.sets.len()];
        let [at, bt] = self.transposed;
        queue(transpose_if(a.view(), at), transpose_if(b.view(), bt), c.borrow_mut().view_mut())
    }
}

fn transpose_if<S: Scalar>(view: View<'_, S>, transposed: bool) -> View<'_, S> {
    if transposed { view.t() } else { view }
}

/// Alignment of an address: the largest power of two, at most 256, that divides it.
pub(crate) fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(8)
}

/// Function that queues work for A, B and C on the stream of the operands.
type Queue<'o, T> = dyn FnMut(View<'_, T>, View<'_, T>, ViewMut<'_, <T as Element>::Out>) -> Result<()> + 'o;

/// A GPU call that is captured as a graph and timed by events.
pub struct GraphTimer<'o, T: Element> {
    operands: &'o OperandSets<T>,
    queue: Box<Queue<'o, T>>,
    /// Whether a call was queued before: the first may load modules, which cannot be captured.
    warmed_up: bool,
    /// Captured graph and its number of calls.
    graph: Option<(usize, Graph)>,
}

impl<'o, T: Element> GraphTimer<'o, T> {
    /// Times the work that `queue` queues for views of the operands.
    pub fn new(
        operands: &'o OperandSets<T>,
        queue: impl FnMut(View<'_, T>, View<'_, T>, ViewMut<'_, T::Out>) -> Result<()> + 'o,
    ) -> Self {
        GraphTimer { operands, queue: Box::new(queue), warmed_up: false, graph: None }
    }

    /// Queues one call for the first set.
    ///
    /// # Errors
    /// Errors of the call.
    pub fn run_once(&mut self) -> Result<()> {
        self.operands.with_set(0, &mut *self.queue)?;
        self.warmed_up = true;
        Ok(())
    }

    /// Takes consecutive samples of `calls` calls each and returns the seconds per call of each.
    ///
    /// Calls rotate through the sets. An uncounted sample comes first, so that the host is ahead of
    /// the GPU when timing starts.
    ///
    /// # Errors
    /// Errors of the calls and the driver.
    pub fn time(&mut self, samples: usize, calls: usize) -> Result<Vec<f64>> {
        let gpu = &self.operands.gpu;
        let graph = self.graph(calls)?;
        // SAFETY: the captured work uses the operands and the captures of `queue`. Both outlive the
        // graph, and the memory of the operands is exclusive. The host waits below; dropping the
        // graph does not stop queued work.
        let launch = || unsafe { graph.launch() };
        launch()?;
        let mut events: Vec<Event> = vec![gpu.record()?];
        for _ in 0..samples {
            launch()?;
            events.push(gpu.record()?);
        }
        let seconds = |pair: &[Event]| Ok(pair[1].seconds_since(&pair[0])? / calls.max(1) as f64);
        events.windows(2).map(seconds).collect()
    }

    /// Captures `calls` calls as a graph, or returns the last graph if it has as many.
    fn graph(&mut self, calls: usize) -> Result<&Graph> {
        if self.graph.as_ref().is_none_or(|(captured, _)| *captured != calls) {
            if !self.warmed_up {
                self.run_once()?;
            }
            let (operands, queue) = (self.operands, &mut *self.queue);
            let mut capture =
                || operands.gpu.capture_foreign(|| (0..calls).try_for_each(|call| operands.with_set(call, queue)));
            // Another thread may invalidate a capture, for example by synchronizing the context:
            // retry once.
            let graph = capture().or_else(|error| match error {
                Error::Capture { .. } => capture(),
                error => Err(error),
            })?;
            self.graph = Some((calls, graph));
        }
        match &self.graph {
            Some((_, graph)) => Ok(graph),
            None => Err(Error::Launch { kernel: "graph".into(), why: "nothing was captured".into() }),
        }
    }
}

impl<T: Element> fmt::Debug for GraphTimer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphTimer").field("captured", &self.graph.as_ref().map(|(calls, _)| calls)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_is_a_power_of_two_up_to_256() {
        assert_eq!([0, 512, 256, 24, 7, 2].map(alignment), [256, 256, 256, 8, 1, 2]);
    }
}
