//! The same product again and again, over several sets of operands, timed on the GPU's own clock.
//!
//! It knows that something is queued for A, B and C, not what.

use std::cell::RefCell;
use std::fmt;

use tegula::cuda::{DeviceMatrix, Event, Gpu, Graph};
use tegula::element::{Element, Scalar};
use tegula::error::{Error, Result};
use tegula::matrix::{Layout, Matrix, View, ViewMut};

/// Sets of A, B and C on a GPU, which stay where they are: graphs remember their addresses.
#[derive(Debug)]
pub struct Operands<T: Element> {
    gpu: Gpu,
    transposed: [bool; 2],
    sets: Vec<Set<T>>,
    /// One for all sets.
    bias: Option<DeviceMatrix<T::Out>>,
}

#[derive(Debug)]
struct Set<T: Element> {
    a: DeviceMatrix<T>,
    b: DeviceMatrix<T>,
    c: RefCell<DeviceMatrix<T::Out>>,
}

impl<T: Element> Operands<T> {
    /// So many sets, at least one, each with copies of A, B and C. Where A or B is `transposed`, it is its transpose that is given and
    /// copied.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] and what the driver says.
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
        Ok(Operands { gpu: gpu.clone(), transposed, sets, bias: None })
    }

    /// The same with a copy of a bias, if there is one.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] and what the driver says.
    pub fn biased(self, bias: Option<View<'_, T::Out>>) -> Result<Self> {
        let bias = bias.map(|bias| DeviceMatrix::upload(&self.gpu, bias)).transpose()?;
        Ok(Operands { bias, ..self })
    }

    /// The bias.
    pub fn bias(&self) -> Option<View<'_, T::Out>> {
        self.bias.as_ref().map(DeviceMatrix::view)
    }

    /// Sets C of the first set.
    ///
    /// # Errors
    /// [`Error::Layout`] for another number of elements; what the driver says.
    pub fn set_c(&self, c: View<'_, T::Out>) -> Result<()> {
        self.sets[0].c.borrow_mut().upload_from(c)
    }

    /// C of the first set. Waits for what is queued.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] and what the driver says.
    pub fn c(&self) -> Result<Matrix<T::Out>> {
        self.sets[0].c.borrow().download()
    }

    /// The GPU.
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The layouts of A, B and C, the same in each set.
    pub(crate) fn layouts(&self) -> [Layout; 3] {
        let Set { a, b, c } = &self.sets[0];
        let [at, bt] = self.transposed;
        [turned(a.view(), at).layout(), turned(b.view(), bt).layout(), c.borrow().view().layout()]
    }

    /// The bytes that every set's A, B and C are aligned to.
    pub(crate) fn alignments(&self) -> [u32; 3] {
        let addresses =
            |set: &Set<T>| [set.a.buffer().address(), set.b.buffer().address(), set.c.borrow().buffer().address()];
        let all = self.sets.iter().map(addresses).fold([0; 3], |all, one| std::array::from_fn(|i| all[i] | one[i]));
        all.map(alignment)
    }

    /// Queues something for a set.
    fn with(&self, set: usize, queue: &mut Queue<'_, T>) -> Result<()> {
        let Set { a, b, c } = &self.sets[set % self.sets.len()];
        let [at, bt] = self.transposed;
        queue(turned(a.view(), at), turned(b.view(), bt), c.borrow_mut().view_mut())
    }
}

fn turned<S: Scalar>(view: View<'_, S>, transposed: bool) -> View<'_, S> {
    if transposed { view.t() } else { view }
}

/// The largest power of two up to 256 that divides an address.
pub(crate) fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(8)
}

/// Queues a product of A and B into C on the handle that the operands were made with.
type Queue<'o, T> = dyn FnMut(View<'_, T>, View<'_, T>, ViewMut<'_, <T as Element>::Out>) -> Result<()> + 'o;

/// A way to make a product, that can be done again and again.
pub struct Repeat<'o, T: Element> {
    operands: &'o Operands<T>,
    queue: Box<Queue<'o, T>>,
    /// Whether a call was queued: what is made or loaded at the first is then there, and calls can be captured.
    ready: bool,
    /// So many calls, captured.
    graph: Option<(usize, Graph)>,
}

impl<'o, T: Element> Repeat<'o, T> {
    /// What `queue` queues for views of the operands.
    pub fn new(
        operands: &'o Operands<T>,
        queue: impl FnMut(View<'_, T>, View<'_, T>, ViewMut<'_, T::Out>) -> Result<()> + 'o,
    ) -> Self {
        Repeat { operands, queue: Box::new(queue), ready: false, graph: None }
    }

    /// Queues one call, for the first set.
    ///
    /// # Errors
    /// What the call says.
    pub fn once(&mut self) -> Result<()> {
        self.operands.with(0, &mut *self.queue)?;
        self.ready = true;
        Ok(())
    }

    /// Makes samples of `calls` calls each, which go round the sets, back to back; gives the seconds of a call in each. A sample that is
    /// not counted comes first, so that the host is ahead of the GPU when the clock starts.
    ///
    /// # Errors
    /// What the calls and the driver say.
    pub fn time(&mut self, samples: usize, calls: usize) -> Result<Vec<f64>> {
        let gpu = &self.operands.gpu;
        let graph = self.graph(calls)?;
        // SAFETY: the captured work uses the operands, which are borrowed for longer than this graph lives and whose memory nobody else
        // has, and what `queue` owns or borrows, which lives as long; the host waits below, and Graph's drop leaves work alone.
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

    /// So many calls as a graph, the one from last time where it fits.
    fn graph(&mut self, calls: usize) -> Result<&Graph> {
        if self.graph.as_ref().is_none_or(|(captured, _)| *captured != calls) {
            if !self.ready {
                self.once()?;
            }
            let (operands, queue) = (self.operands, &mut *self.queue);
            let mut record =
                || operands.gpu.capture_foreign(|| (0..calls).try_for_each(|call| operands.with(call, queue)));
            // What another thread does to the context, such as waiting for it, spoils a recording that is fine by itself.
            let graph =
                record().or_else(|why| if matches!(why, Error::Capture { .. }) { record() } else { Err(why) })?;
            self.graph = Some((calls, graph));
        }
        match &self.graph {
            Some((_, graph)) => Ok(graph),
            None => Err(Error::Launch { kernel: "graph".into(), why: "nothing was captured".into() }),
        }
    }
}

impl<T: Element> fmt::Debug for Repeat<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repeat").field("captured", &self.graph.as_ref().map(|(calls, _)| calls)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignments_are_powers_of_two_up_to_256() {
        assert_eq!([0, 512, 256, 24, 7, 2].map(alignment), [256, 256, 256, 8, 1, 2]);
    }
}
