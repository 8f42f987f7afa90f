//! The formula of what one thread computes, read off its trace: which products it added, in which step, and what the sum came to.

use crate::trace::{Does, Event, Header, Trace};

/// An element of one of the matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Element {
    /// Position of the matrix among the header's.
    pub matrix: usize,
    /// The matrix of its batch, row, column.
    pub at: [u64; 3],
}

/// A product that a thread added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// When, as a position among the moments.
    pub moment: u32,
    /// In which step.
    pub step: Option<u32>,
    /// Of which elements; `None` for a number that is no element's copy, as the zero beyond an edge.
    pub factors: [Option<Element>; 2],
    /// The sum with it, as bits.
    pub sum: u64,
}

/// The element of C that a thread wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// When.
    pub moment: u32,
    /// Where.
    pub element: Element,
    /// What, as bits.
    pub bits: u64,
}

impl Header {
    /// The element that a number in [`Event::from`] or [`Event::other`] stands for.
    pub fn element(&self, number: u64) -> Option<Element> {
        let of =
            |matrix: usize| self.matrices[matrix].shape.iter().fold(1u64, |all, &extent| all.saturating_mul(extent));
        let inside = |&matrix: &usize| {
            let first = self.matrices[matrix].first;
            number >= first && number - first < of(matrix)
        };
        let matrix = (0..self.matrices.len()).find(inside)?;
        Some(Element { matrix, at: self.coordinates(matrix, number - self.matrices[matrix].first) })
    }

    /// Batch, row and column of an element of a matrix by its position, row after row.
    pub fn coordinates(&self, matrix: usize, position: u64) -> [u64; 3] {
        let [_, rows, cols] = self.matrices[matrix].shape.map(|extent| extent.max(1));
        [position / cols / rows, position / cols % rows, position % cols]
    }

    /// A thread's position in its block along x, y, z.
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
    /// Where in its lists the event keeps what is of a lane, if the lane took part.
    pub fn entry(&self, lane: u32) -> Option<usize> {
        let before = self.lanes & !(u32::MAX << lane);
        (self.lanes >> lane & 1 == 1).then_some(before.count_ones() as usize)
    }
}

/// The products that a thread adds, in the order in which it does.
pub fn terms(trace: &Trace, block: [u32; 3], thread: [u32; 3]) -> Vec<Term> {
    let header = &trace.header;
    let adds = of_thread(trace, block, thread, Does::MulAdd);
    adds.map(|(event, entry)| Term {
        moment: event.moment,
        step: header.moments[event.moment as usize].step,
        factors: [event.from[entry], event.other[entry]].map(|number| header.element(number)),
        sum: event.bits[entry],
    })
    .collect()
}

/// The elements that a thread writes to global memory.
pub fn stored(trace: &Trace, block: [u32; 3], thread: [u32; 3]) -> Vec<Stored> {
    let header = &trace.header;
    let stores = of_thread(trace, block, thread, Does::GlobalStore);
    stores
        .map(|(event, entry)| {
            let matrix = header.operation(event.moment).memory as usize;
            let at = header.coordinates(matrix, event.elements[entry]);
            Stored { moment: event.moment, element: Element { matrix, at }, bits: event.bits[entry] }
        })
        .collect()
}

/// The events of a kind in which a thread took part, and where in their lists.
fn of_thread(trace: &Trace, block: [u32; 3], thread: [u32; 3], does: Does) -> impl Iterator<Item = (&Event, usize)> {
    let (warp, lane) = trace.header.lane(thread);
    trace
        .events
        .iter()
        .filter(move |event| (event.block, event.warp) == (block, warp))
        .filter(move |event| trace.header.operation(event.moment).does == does)
        .filter_map(move |event| Some((event, event.entry(lane)?)))
}
