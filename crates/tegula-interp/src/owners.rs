//! Which blocks use each element of a matrix, for kernels whose blocks run independently.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use tegula_ir::SiteId;

/// The first and the last to write each element, and the first and the last to read it, by block:
/// which they are does not depend on the order in which blocks run. Block + 1 in the high half,
/// site and lane in the low one.
pub(super) struct Owners(Vec<[AtomicU64; 4]>);

/// What that takes for each element.
pub(super) const OWNERS_BYTES: usize = size_of::<[AtomicU64; 4]>();

/// One side of a race.
#[derive(Clone, Copy)]
pub(super) struct Use {
    pub block: u32,
    pub lane: u16,
    pub site: SiteId,
    pub writes: bool,
}

impl Owners {
    pub fn new(len: usize) -> Self {
        let nobody = || [u64::MAX, 0, u64::MAX, 0].map(AtomicU64::new);
        Owners((0..len).map(|_| nobody()).collect())
    }

    /// Notes that a block uses an element.
    pub fn note(&self, index: usize, block: u64, lane: u16, site: SiteId, write: bool) {
        let me = (block + 1) << 32 | u64::from(site.0 & 0x1f_ffff) << 11 | u64::from(lane & 0x7ff);
        let [first_writer, last_writer, first_reader, last_reader] = &self.0[index];
        let (first, last) = if write { (first_writer, last_writer) } else { (first_reader, last_reader) };
        first.fetch_min(me, Relaxed);
        last.fetch_max(me, Relaxed);
    }

    /// Of each element that one block writes and one of another cluster uses, its index and the two
    /// uses.
    pub fn conflicts(&self, cluster: u32) -> impl Iterator<Item = (usize, [Use; 2])> {
        let conflict =
            move |uses: &[AtomicU64; 4]| conflict_of_blocks(uses.each_ref().map(|u| u.load(Relaxed)), cluster);
        self.0.iter().enumerate().filter_map(move |(index, uses)| Some((index, conflict(uses)?)))
    }
}

/// Of the first and last writer and the first and last reader of an element: two from different
/// blocks, one of which writes, the one of the later block first.
fn conflict_of_blocks([first, last, first_reader, last_reader]: [u64; 4], cluster: u32) -> Option<[Use; 2]> {
    if last == 0 {
        return None;
    }
    let block = |user: u64| user >> 32;
    // What blocks of a cluster do to each other is judged where they run.
    let place = |user: u64| (block(user) - 1) / u64::from(cluster);
    let other = if place(first) != place(last) {
        (first, true)
    } else {
        let readers = [last_reader, first_reader].into_iter();
        (readers.filter(|&r| r != 0 && r != u64::MAX).find(|&r| place(r) != place(last))?, false)
    };
    let [a, b] = [(last, true), other].map(|(user, writes)| Use {
        block: block(user) as u32 - 1,
        lane: (user & 0x7ff) as u16,
        site: SiteId((user >> 11 & 0x1f_ffff) as u32),
        writes,
    });
    Some(if a.block > b.block { [a, b] } else { [b, a] })
}
