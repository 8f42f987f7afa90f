//! Memory of one block at a tick: shared arrays, accumulators, elements written so far.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::trace::{Event, Header, OperationKind, Trace};

/// The value of an element of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedValue {
    /// The value, as bits.
    pub bits: u64,
    /// Provenance: the element that the value is a copy of, or 0
    /// ([`MatrixInfo::first_origin`](crate::trace::MatrixInfo::first_origin)).
    pub origin: u64,
}

/// The accumulator that a thread updated last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accumulator {
    /// The value, as bits.
    pub bits: u64,
    /// Products that the thread has added, over all of its accumulators.
    pub products: u32,
}

/// The accesses and active threads of one block in one tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TickActivity {
    /// Matrix elements that are read, written or multiplied: matrix, position.
    pub matrix: HashSet<(usize, u64)>,
    /// Shared elements that are read or written: array, position.
    pub shared: HashSet<(usize, u64)>,
    /// The active threads, by linear index in the block.
    pub threads: HashSet<u32>,
}

/// Memory of one block after a number of ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryState {
    /// For each shared array its initialized elements.
    pub shared: Vec<HashMap<u64, SharedValue>>,
    /// Accumulators by thread of the block; threads without a product have none.
    pub accumulators: HashMap<u32, Accumulator>,
    /// For each matrix the elements written by any recorded block.
    pub written: Vec<HashMap<u64, u64>>,
}

impl MemoryState {
    /// The state of `block` after the first `done` ticks.
    pub fn at(trace: &Trace, block: [u32; 3], done: u32) -> MemoryState {
        let header = &trace.header;
        let mut state = MemoryState {
            shared: vec![HashMap::new(); header.shared.len()],
            written: vec![HashMap::new(); header.matrices.len()],
            accumulators: HashMap::new(),
        };
        for event in trace.during(0..done) {
            state.apply(header, block, event);
        }
        state
    }

    fn apply(&mut self, header: &Header, block: [u32; 3], event: &Event) {
        let operation = header.operation(event.tick);
        let memory = operation.memory as usize;
        match operation.kind {
            OperationKind::GlobalStore => {
                let Some(written) = self.written.get_mut(memory) else { return };
                written.extend(event.elements.iter().copied().zip(event.bits.iter().copied()));
            }
            OperationKind::SharedStore if event.block == block => {
                let Some(array) = self.shared.get_mut(memory) else { return };
                let values = event.bits.iter().zip(&event.origins).map(|(&bits, &origin)| SharedValue { bits, origin });
                array.extend(event.elements.iter().copied().zip(values));
            }
            OperationKind::MulAdd if event.block == block => {
                for (thread, &bits) in event.threads().zip(&event.bits) {
                    let accumulator = self.accumulators.entry(thread).or_default();
                    *accumulator = Accumulator { bits, products: accumulator.products + 1 };
                }
            }
            _ => {}
        }
    }
}

impl TickActivity {
    /// The activity of `block` in a tick.
    pub fn of(trace: &Trace, block: [u32; 3], tick: u32) -> TickActivity {
        let (header, mut activity) = (&trace.header, TickActivity::default());
        let operation = header.operation(tick);
        let memory = operation.memory as usize;
        for event in trace.during(tick..tick + 1).iter().filter(|event| event.block == block) {
            activity.threads.extend(event.threads());
            let copies = event.origins.iter().chain(&event.origins_b).filter_map(|&number| header.position(number));
            activity.matrix.extend(copies);
            match operation.kind {
                OperationKind::GlobalLoad | OperationKind::GlobalStore => {
                    activity.matrix.extend(event.elements.iter().map(|&e| (memory, e)))
                }
                OperationKind::SharedLoad | OperationKind::SharedStore => {
                    activity.shared.extend(event.elements.iter().map(|&e| (memory, e)))
                }
                _ => {}
            }
        }
        activity
    }
}

impl Trace {
    /// The events of consecutive ticks.
    pub fn during(&self, ticks: Range<u32>) -> &[Event] {
        let at = |tick: u32| self.events.partition_point(|event| event.tick < tick);
        &self.events[at(ticks.start)..at(ticks.end).max(at(ticks.start))]
    }

    /// The elements that `block` accesses by operations of one kind, for each matrix.
    pub fn touched(&self, block: [u32; 3], kind: OperationKind, ticks: Range<u32>) -> Vec<HashSet<u64>> {
        let mut touched = vec![HashSet::new(); self.header.matrices.len()];
        for event in self.during(ticks).iter().filter(|event| event.block == block) {
            let operation = self.header.operation(event.tick);
            if operation.kind == kind
                && let Some(elements) = touched.get_mut(operation.memory as usize)
            {
                elements.extend(&event.elements);
            }
        }
        touched
    }

    /// The recorded blocks, in row-major order.
    pub fn blocks(&self) -> Vec<[u32; 3]> {
        let mut blocks: Vec<_> =
            self.events.iter().map(|event| event.block).collect::<HashSet<_>>().into_iter().collect();
        blocks.sort_by_key(|[x, y, z]| [*z, *y, *x]);
        blocks
    }
}

impl Event {
    /// The active threads by linear index in the block, in the order of the lists.
    pub fn threads(&self) -> impl Iterator<Item = u32> + use<> {
        let (lanes, first) = (self.lanes, self.warp.saturating_mul(32));
        (0..32).filter(move |lane| lanes >> lane & 1 == 1).map(move |lane| first.saturating_add(lane))
    }
}

impl Header {
    /// The matrix and position of a provenance number, as in [`Event::origins`].
    pub fn position(&self, number: u64) -> Option<(usize, u64)> {
        self.matrices.iter().enumerate().find_map(|(matrix, of)| {
            let position = number.checked_sub(of.first_origin)?;
            (number > 0 && position < of.shape.iter().product()).then_some((matrix, position))
        })
    }
}
