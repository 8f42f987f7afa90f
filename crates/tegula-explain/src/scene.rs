//! What is in memory at a moment, as one block sees it: shared arrays, running sums, what was written so far.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::trace::{Does, Event, Header, Trace};

/// What an element of shared memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The number, as bits.
    pub bits: u64,
    /// The element that it is a copy of ([`crate::trace::MatrixOf::first`]); 0 if it is none's.
    pub from: u64,
}

/// The sum that a thread added to last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The number, as bits.
    pub bits: u64,
    /// How many products the thread has added, to whichever sum.
    pub products: u32,
}

/// What one moment does in the block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Elements of matrices that are read, written or multiplied: matrix, position.
    pub matrix: HashSet<(usize, u64)>,
    /// Elements of shared arrays that are read or written: array, position.
    pub shared: HashSet<(usize, u64)>,
    /// Threads of the block that take part, by their number in it.
    pub threads: HashSet<u32>,
}

/// What is in memory once some moments are over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scene {
    /// For each shared array what its elements hold; an element that nobody wrote is not there.
    pub shared: Vec<HashMap<u64, Held>>,
    /// By thread of the block, for those that have added anything.
    pub sums: HashMap<u32, Sum>,
    /// For each matrix what was written, by any block that was recorded.
    pub written: Vec<HashMap<u64, u64>>,
}

impl Scene {
    /// What is in memory for `block` when the first `done` moments are over.
    pub fn at(trace: &Trace, block: [u32; 3], done: u32) -> Scene {
        let header = &trace.header;
        let mut scene = Scene {
            shared: vec![HashMap::new(); header.shared.len()],
            written: vec![HashMap::new(); header.matrices.len()],
            sums: HashMap::new(),
        };
        for event in trace.during(0..done) {
            scene.see(header, block, event);
        }
        scene
    }

    fn see(&mut self, header: &Header, block: [u32; 3], event: &Event) {
        let operation = header.operation(event.moment);
        let memory = operation.memory as usize;
        match operation.does {
            Does::GlobalStore => {
                let Some(written) = self.written.get_mut(memory) else { return };
                written.extend(event.elements.iter().copied().zip(event.bits.iter().copied()));
            }
            Does::SharedStore if event.block == block => {
                let Some(array) = self.shared.get_mut(memory) else { return };
                let held = event.bits.iter().zip(&event.from).map(|(&bits, &from)| Held { bits, from });
                array.extend(event.elements.iter().copied().zip(held));
            }
            Does::MulAdd if event.block == block => {
                for (thread, &bits) in event.threads().zip(&event.bits) {
                    let sum = self.sums.entry(thread).or_default();
                    *sum = Sum { bits, products: sum.products + 1 };
                }
            }
            _ => {}
        }
    }
}

impl Now {
    /// What a moment does in `block`.
    pub fn of(trace: &Trace, block: [u32; 3], moment: u32) -> Now {
        let (header, mut now) = (&trace.header, Now::default());
        let operation = header.operation(moment);
        let memory = operation.memory as usize;
        for event in trace.during(moment..moment + 1).iter().filter(|event| event.block == block) {
            now.threads.extend(event.threads());
            let copies = event.from.iter().chain(&event.other).filter_map(|&number| header.position(number));
            now.matrix.extend(copies);
            match operation.does {
                Does::GlobalLoad | Does::GlobalStore => now.matrix.extend(event.elements.iter().map(|&e| (memory, e))),
                Does::SharedLoad | Does::SharedStore => now.shared.extend(event.elements.iter().map(|&e| (memory, e))),
                _ => {}
            }
        }
        now
    }
}

impl Trace {
    /// The events of consecutive moments.
    pub fn during(&self, moments: Range<u32>) -> &[Event] {
        let at = |moment: u32| self.events.partition_point(|event| event.moment < moment);
        &self.events[at(moments.start)..at(moments.end).max(at(moments.start))]
    }

    /// The elements of matrices that `block` reads (or writes, if `does` says so) in the moments, by matrix.
    pub fn touched(&self, block: [u32; 3], does: Does, moments: Range<u32>) -> Vec<HashSet<u64>> {
        let mut touched = vec![HashSet::new(); self.header.matrices.len()];
        for event in self.during(moments).iter().filter(|event| event.block == block) {
            let operation = self.header.operation(event.moment);
            if operation.does == does
                && let Some(elements) = touched.get_mut(operation.memory as usize)
            {
                elements.extend(&event.elements);
            }
        }
        touched
    }

    /// The blocks that something was recorded of, row after row.
    pub fn blocks(&self) -> Vec<[u32; 3]> {
        let mut blocks: Vec<_> =
            self.events.iter().map(|event| event.block).collect::<HashSet<_>>().into_iter().collect();
        blocks.sort_by_key(|[x, y, z]| [*z, *y, *x]);
        blocks
    }
}

impl Event {
    /// The threads of the block that took part, by their number in it, in the order of the lists.
    pub fn threads(&self) -> impl Iterator<Item = u32> + use<> {
        let (lanes, first) = (self.lanes, self.warp.saturating_mul(32));
        (0..32).filter(move |lane| lanes >> lane & 1 == 1).map(move |lane| first.saturating_add(lane))
    }
}

impl Header {
    /// Which element of which matrix a number in [`Event::from`] stands for: matrix and position.
    pub fn position(&self, number: u64) -> Option<(usize, u64)> {
        self.matrices.iter().enumerate().find_map(|(matrix, of)| {
            let position = number.checked_sub(of.first)?;
            (number > 0 && position < of.shape.iter().product()).then_some((matrix, position))
        })
    }
}
