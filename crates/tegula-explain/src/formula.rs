//! The formula of one thread, derived from its trace: terms by k-step, accumulator values, stores.

use crate::trace::{Event, Header, OperationKind, Trace};

/// An element of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Element {
    /// The matrix: position in [`Header::matrices`].
    pub matrix: usize,
    /// Batch, row, column.
    pub at: [u64; 3],
}

/// A product that a thread adds to its accumulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The tick of the multiply-add.
    pub tick: u32,
    /// The k-step.
    pub step: Option<u32>,
    /// The elements of A and B; `None` for a value of other origin, such as zero fill.
    pub operands: [Option<Element>; 2],
    /// The accumulator after the addition, as bits.
    pub accumulator: u64,
}

/// A store of a thread to global memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The tick of the store.
    pub tick: u32,
    /// The element.
    pub element: Element,
    /// The value, as bits.
    pub bits: u64,
}

impl Header {
    /// The matrix element with this provenance number, as in [`Event::origins`].
    pub fn element(&self, number: u64) -> Option<Element> {
        let len =
            |matrix: usize| self.matrices[matrix].shape.iter().fold(1u64, |len, &extent| len.saturating_mul(extent));
        let contains = |&matrix: &usize| {
            let first = self.matrices[matrix].first_origin;
            number >= first && number - first < len(matrix)
        };
        let matrix = (0..self.matrices.len()).find(contains)?;
        Some(Element { matrix, at: self.coordinates(matrix, number - self.matrices[matrix].first_origin) })
    }

    /// Batch, row and column of an element at a row-major position.
    pub fn coordinates(&self, matrix: usize, position: u64) -> [u64; 3] {
        let [_, rows, cols] = self.matrices[matrix].shape.map(|extent| extent.max(1));
        [position / cols / rows, position / cols % rows, position % cols]
    }

    /// The position of a thread in its block, along x, y, z.
    pub fn thread(&self, warp: u32, lane: u32) -> [u32; 3] {
        let [x, y, _] = self.block.map(|extent| extent.max(1));
        let thread = warp * 32 + lane;
        [thread % x, thread / x % y, thread / x / y]
    }

    /// The warp and the lane of a thread.
    pub fn lane(&self, [tx, ty, tz]: [u32; 3]) -> (u32, u32) {
        let [x, y, _] = self.block;
        let thread = tx + x * (ty + y * tz);
        (thread / 32, thread % 32)
    }
}

impl Event {
    /// The index of a lane in the event's lists; `None` for an inactive lane.
    pub fn entry(&self, lane: u32) -> Option<usize> {
        let before = self.lanes & !(u32::MAX << lane);
        (self.lanes >> lane & 1 == 1).then_some(before.count_ones() as usize)
    }
}

/// The products that a thread adds, in order.
pub fn terms(trace: &Trace, block: [u32; 3], thread: [u32; 3]) -> Vec<Term> {
    let header = &trace.header;
    let adds = events_of(trace, block, thread, OperationKind::MulAdd);
    adds.map(|(event, entry)| Term {
        tick: event.tick,
        step: header.ticks[event.tick as usize].step,
        operands: [event.origins[entry], event.origins_b[entry]].map(|number| header.element(number)),
        accumulator: event.bits[entry],
    })
    .collect()
}

/// The stores of a thread to global memory, in order.
pub fn stored(trace: &Trace, block: [u32; 3], thread: [u32; 3]) -> Vec<Stored> {
    let header = &trace.header;
    let stores = events_of(trace, block, thread, OperationKind::GlobalStore);
    stores
        .map(|(event, entry)| {
            let matrix = header.operation(event.tick).memory as usize;
            let at = header.coordinates(matrix, event.elements[entry]);
            Stored { tick: event.tick, element: Element { matrix, at }, bits: event.bits[entry] }
        })
        .collect()
}

/// The events of one kind in which a thread is active, and its index in their lists.
fn events_of(
    trace: &Trace,
    block: [u32; 3],
    thread: [u32; 3],
    kind: OperationKind,
) -> impl Iterator<Item = (&Event, usize)> {
    let (warp, lane) = trace.header.lane(thread);
    trace
        .events
        .iter()
        .filter(move |event| (event.block, event.warp) == (block, warp))
        .filter(move |event| trace.header.operation(event.tick).kind == kind)
        .filter_map(move |event| Some((event, event.entry(lane)?)))
}
