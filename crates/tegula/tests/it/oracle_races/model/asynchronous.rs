//! Asynchronous operations: copies, tiles, and the barriers that count their bytes.

use std::collections::BTreeSet;

use super::clock::Known;
use super::{Agent, Machine, Party, Place, Proxy};
use crate::oracle_races::program::{Array, At, B_ROWS, TILE};

impl Machine<'_> {
    /// Somebody who works beside a thread, and knows what that knew.
    pub(super) fn fork(&mut self, me: usize, party: Party, proxy: Proxy) -> (Agent, Known) {
        let number = self.agents;
        self.agents += 1;
        let mut known = self.threads[me].known.clone();
        let time = known.tick(number);
        (Agent { number, time, party, strength: self.strength(me, None), proxy }, known)
    }

    pub(super) fn copy(&mut self, me: usize, party: Party, to: At, from: At, lane: u32) -> bool {
        let (by, known) = self.fork(me, party, Proxy::Generic);
        let source = from.array.memory();
        if self.rules.copies_read_late {
            from.elements(lane).for_each(|index| self.note(&by, &known, (0, source, index), false));
        } else {
            self.access(me, party, from, lane, false, None);
        }
        // What the guard leaves out becomes zero.
        for (index, element) in to.elements(lane).zip(from.start(lane)..) {
            let copied = from.elements(lane).contains(&element);
            let value = if copied { self.location(me, source, element).1.value } else { 0 };
            self.note(&by, &known, (party.block, to.array, index), true);
            self.put((party.block, to.array, index), value);
        }
        self.threads[me].copies.push(by.number);
        true
    }

    /// Arrivals and bytes at a barrier, and what comes with them.
    pub(super) fn count(&mut self, (block, mbarrier): (u32, u32), known: &Known, arrivals: u32, bytes: i64) {
        let count = self.program.arrivals(mbarrier);
        let barrier = self.mbarriers.entry((block, mbarrier)).or_default();
        barrier.known.join(known);
        (barrier.arrived, barrier.bytes) = (barrier.arrived + arrivals, barrier.bytes + bytes);
        if barrier.arrived == count && barrier.bytes == 0 {
            barrier.arrived = 0;
            barrier.ended.push(std::mem::take(&mut barrier.known));
        }
    }

    /// Where the bytes are counted, what the copy wrote is known, whatever its proxy.
    pub(super) fn copy_tile(&mut self, me: usize, party: Party, tile: u32, mbarrier: u32, multicast: bool) -> bool {
        let cluster = self.program.cluster;
        let first = party.block / cluster * cluster;
        let blocks = if multicast { first..first + cluster } else { party.block..party.block + 1 };
        for block in blocks {
            // Each block's bytes count at its own barrier, which says nothing of those of another.
            let (by, known) = self.fork(me, party, Proxy::Async);
            let mut done = Known::default();
            done.learn(by.number);
            self.arrivals.push((block, by.number));
            for index in tile * TILE..(tile + 1) * TILE {
                self.note(&by, &known, (block, Array::Tiles, index), true);
                self.put((block, Array::Tiles, index), 0);
            }
            self.count((block, mbarrier), &done, 0, -i64::from(TILE));
        }
        true
    }

    /// Words on their way to a block of the cluster.
    pub(super) fn send(&mut self, me: usize, party: Party, to: At, lane: u32, mbarrier: u32, rank: u32) -> bool {
        let block = party.block / self.program.cluster * self.program.cluster + rank;
        let (by, known) = self.fork(me, party, Proxy::Generic);
        let mut done = Known::default();
        done.learn(by.number);
        self.arrivals.push((block, by.number));
        for index in to.elements(lane) {
            self.note(&by, &known, (block, to.array, index), true);
            self.put((block, to.array, index), 1);
        }
        self.count((block, mbarrier), &done, 0, -i64::from(to.width));
        true
    }

    /// A warp's part of a multiplication, which starts when all lanes have come: as far as order is
    /// concerned, by the first.
    pub(super) fn multiply(&mut self, me: usize, party: Party, shared: bool) -> bool {
        let (block, warp) = (party.block, party.thread / 32);
        let place = Place::Multiply { block, warp, step: party.step };
        if !self.meet(me, place, 32, true) {
            return false;
        }
        let nth = self.threads[me].visits[&place];
        let lead = me - party.thread as usize % 32;
        let number = match self.products.get(&(place, nth)) {
            Some(&number) => number,
            None => {
                let (by, known) = self.fork(lead, Party { thread: warp * 32, ..party }, Proxy::Async);
                let a = if shared { warp % 4 * 16..warp % 4 * 16 + 16 } else { 0..0 };
                // Rows that are of both factors are read once.
                let rows: BTreeSet<_> = a.chain(0..B_ROWS).collect();
                rows.into_iter().for_each(|row| self.note(&by, &known, (block, Array::Factors, row), false));
                self.products.insert((place, nth), by.number);
                by.number
            }
        };
        self.threads[me].products.push(number);
        true
    }

    pub(super) fn store_tile(&mut self, me: usize, party: Party, tile: u32, row: u32) -> bool {
        let (reads, known) = self.fork(me, party, Proxy::Async);
        for index in tile * TILE..(tile + 1) * TILE {
            self.note(&reads, &known, (party.block, Array::Tiles, index), false);
        }
        let (mut writes, mut known) = self.fork(me, party, Proxy::Async);
        if !self.rules.tiles_are_stored_late {
            let time = self.threads[me].known.tick(me);
            (writes.number, writes.time, known) = (me, time, self.threads[me].known.clone());
        }
        for (index, from) in (row * TILE..(row + 1) * TILE).zip(tile * TILE..) {
            let value = self.location(me, Array::Tiles, from).1.value;
            self.note(&writes, &known, (0, Array::Stored, index), true);
            self.put((0, Array::Stored, index), value);
        }
        self.threads[me].stores.push([reads.number, if writes.number == me { reads.number } else { writes.number }]);
        true
    }
}
