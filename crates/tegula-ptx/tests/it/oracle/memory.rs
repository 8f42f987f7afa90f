//! Memory of an execution: values, and for each byte the write that it is from.

use std::collections::BTreeMap;
use std::ops::Range;

use super::program::{Array, DATA_BYTES, Scope};

/// An array of memory; block 0 stands for global memory.
pub type ArrayOf = (u32, Array);

/// The bytes of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    pub array: ArrayOf,
    pub start: u32,
    pub len: u32,
}

impl Location {
    pub fn overlaps(self, other: Location) -> bool {
        self.array == other.array && self.start < other.start + other.len && other.start < self.start + self.len
    }

    pub fn bytes(self) -> Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }
}

/// The thread of a strong operation, and its scope.
#[derive(Clone, Copy, Debug)]
pub struct Strong {
    pub thread: usize,
    pub block: u32,
    pub scope: Scope,
}

impl Strong {
    /// Whether the scope of each includes the other's thread, or they are of one thread.
    pub fn reach_each_other(self, other: Strong) -> bool {
        let includes = |one: Strong, other: Strong| one.scope != Scope::Block || one.block == other.block;
        self.thread == other.thread || includes(self, other) && includes(other, self)
    }
}

/// A write, with what a read that observes it synchronizes with.
#[derive(Clone, Debug)]
pub struct Write {
    pub event: usize,
    pub location: Location,
    /// `None` for a weak write.
    pub strong: Option<Strong>,
    /// The first operations of the release patterns that this write ends.
    pub patterns: Vec<(usize, Strong)>,
    /// The writes that an atomic operation observed.
    pub observed: Vec<usize>,
}

/// Bytes, and the last write to each.
#[derive(Clone, Debug)]
struct Contents {
    bytes: Vec<u8>,
    last: Vec<Option<usize>>,
}

#[derive(Clone, Debug, Default)]
pub struct Memory {
    contents: BTreeMap<ArrayOf, Contents>,
    pub writes: Vec<Write>,
}

/// The initial byte of an array.
pub fn initial(array: Array, offset: u32) -> u8 {
    match array {
        Array::SharedFlags | Array::GlobalFlags => 0,
        Array::SharedData => 0x40 + offset as u8,
        Array::GlobalData => 0x80 + offset as u8,
        Array::Input => 0xc0 + offset as u8,
    }
}

impl Memory {
    pub fn new(blocks: u32) -> Self {
        let mut memory = Memory::default();
        let all = [Array::SharedData, Array::SharedFlags, Array::GlobalData, Array::GlobalFlags, Array::Input];
        for array in all {
            for block in 0..if array.is_shared() { blocks } else { 1 } {
                let bytes: Vec<u8> = (0..array.bytes()).map(|offset| initial(array, offset)).collect();
                let last = vec![None; bytes.len()];
                memory.contents.insert((block, array), Contents { bytes, last });
            }
        }
        memory
    }

    pub fn bytes(&self, array: ArrayOf) -> &[u8] {
        &self.contents[&array].bytes
    }

    pub fn load(&self, location: Location) -> u64 {
        let bytes = &self.contents[&location.array].bytes;
        location.bytes().rev().fold(0, |value, at| value << 8 | u64::from(bytes[at]))
    }

    /// Stores bytes, from a write whose number is returned.
    pub fn store(&mut self, write: Write, bytes: &[u8]) -> usize {
        let number = self.writes.len();
        let contents = self.contents.get_mut(&write.location.array).expect("an array");
        for (at, &byte) in write.location.bytes().zip(bytes) {
            (contents.bytes[at], contents.last[at]) = (byte, Some(number));
        }
        self.writes.push(write);
        number
    }

    /// The writes that a strong read observes.
    ///
    /// All its bytes are from one write, which is morally strong with it: both are strong, reach
    /// each other, and overlap completely. An atomic operation continues what it observed.
    pub fn observed(&self, location: Location, read: Strong) -> Vec<usize> {
        let last = &self.contents[&location.array].last;
        let Some(number) = last[location.start as usize] else { return Vec::new() };
        let write = &self.writes[number];
        let morally_strong = write.strong.is_some_and(|strong| strong.reach_each_other(read));
        if !morally_strong || write.location != location || location.bytes().any(|at| last[at] != Some(number)) {
            return Vec::new();
        }
        [&[number], &write.observed[..]].concat()
    }

    /// The writes that a strong read observes in some execution: all that are morally strong with
    /// it.
    pub fn observable(&self, location: Location, read: Strong) -> Vec<usize> {
        let is_observable = |write: &Write| {
            write.location == location && write.strong.is_some_and(|strong| strong.reach_each_other(read))
        };
        let writes = self.writes.iter().enumerate().filter(|(_, write)| is_observable(write));
        writes.flat_map(|(number, write)| [&[number], &write.observed[..]].concat()).collect()
    }
}

const _: () = assert!(0x40 + DATA_BYTES as u8 <= 0x80, "initial bytes of arrays differ");
