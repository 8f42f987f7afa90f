//! Repeated GPU calls over several sets of operands, captured as graphs and timed by events.
//!
//! The module depends on a function that queues work for A, B and C, not on what it queues.
#![allow(unsafe_code)]

use std::fmt;

use super::interleave::Timed;
use super::operand_sets::OperandSets;
use crate::cuda::{Event, Graph};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::matrix::{View, ViewMut};

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

    /// Captures `calls` calls as a graph, or returns the last graph if it has as many.
    fn graph(&mut self, calls: usize) -> Result<&Graph> {
        if self.graph.as_ref().is_none_or(|(captured, _)| *captured != calls) {
            if !self.warmed_up {
                self.run_once()?;
            }
            let (operands, queue) = (self.operands, &mut self.queue);
            let mut capture = || {
                let work = || (0..calls).try_for_each(|call| operands.with_set(call, &mut *queue));
                operands.gpu().capture_foreign(work)
            };
            // Another thread may invalidate a capture, for example by synchronizing the context:
            // retry once.
            let graph = match capture() {
                Err(Error::Capture { .. }) => capture(),
                captured => captured,
            }?;
            self.graph = Some((calls, graph));
        }
        match &self.graph {
            Some((_, graph)) => Ok(graph),
            None => Err(Error::Launch { kernel: "graph".into(), why: "nothing was captured".into() }),
        }
    }
}

impl<T: Element> Timed for GraphTimer<'_, T> {
    /// Calls rotate through the sets. An uncounted sample comes first, so that the host is ahead of
    /// the GPU when timing starts.
    fn time(&mut self, samples: usize, calls: usize) -> Result<Vec<f64>> {
        let gpu = self.operands.gpu();
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
}

impl<T: Element> fmt::Debug for GraphTimer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphTimer").field("captured", &self.graph.as_ref().map(|(calls, _)| calls)).finish()
    }
}
