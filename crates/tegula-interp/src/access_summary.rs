//! The blocks that access each element of a matrix, for kernels with independent blocks.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use tegula_ir::SiteId;

/// For each element: its first and last writer and first and last reader, by block.
///
/// They do not depend on the order in which blocks run. The high half holds block + 1, the low half
/// site and lane.
pub struct AccessSummary(Vec<[AtomicU64; 4]>);

/// Bytes of the summary of one element.
pub const SUMMARY_BYTES: usize = size_of::<[AtomicU64; 4]>();

/// One access of a racing pair.
#[derive(Clone, Copy)]
pub struct RacingAccess {
    pub block: u32,
    pub lane: u16,
    pub site: SiteId,
    pub writes: bool,
}

impl AccessSummary {
    pub fn new(len: usize) -> Self {
        let empty = || [u64::MAX, 0, u64::MAX, 0].map(AtomicU64::new);
        AccessSummary((0..len).map(|_| empty()).collect())
    }

    /// Records an access of a block.
    pub fn record(&self, index: usize, block: u64, lane: u16, site: SiteId, write: bool) {
        let me = (block + 1) << 32 | u64::from(site.0 & 0x1f_ffff) << 11 | u64::from(lane & 0x7ff);
        let [first_writer, last_writer, first_reader, last_reader] = &self.0[index];
        let (first, last) = if write { (first_writer, last_writer) } else { (first_reader, last_reader) };
        first.fetch_min(me, Relaxed);
        last.fetch_max(me, Relaxed);
    }

    /// Yields the elements that a block writes and a block of another cluster accesses.
    ///
    /// Each with its index and the two accesses.
    pub fn races(&self, cluster: u32) -> impl Iterator<Item = (usize, [RacingAccess; 2])> {
        let race = move |uses: &[AtomicU64; 4]| race_of_blocks(uses.each_ref().map(|u| u.load(Relaxed)), cluster);
        self.0.iter().enumerate().filter_map(move |(index, uses)| Some((index, race(uses)?)))
    }
}

/// Returns two conflicting accesses of different blocks, that of the later block first.
///
/// The arguments are the first and last writer and the first and last reader of an element.
fn race_of_blocks([first, last, first_reader, last_reader]: [u64; 4], cluster: u32) -> Option<[RacingAccess; 2]> {
    if last == 0 {
        return None;
    }
    let block = |user: u64| user >> 32;
    // Accesses between blocks of one cluster are checked while the cluster runs.
    let cluster_of = |user: u64| (block(user) - 1) / u64::from(cluster);
    let other = if cluster_of(first) != cluster_of(last) {
        (first, true)
    } else {
        let readers = [last_reader, first_reader].into_iter();
        (readers.filter(|&r| r != 0 && r != u64::MAX).find(|&r| cluster_of(r) != cluster_of(last))?, false)
    };
    let [a, b] = [(last, true), other].map(|(user, writes)| RacingAccess {
        block: block(user) as u32 - 1,
        lane: (user & 0x7ff) as u16,
        site: SiteId((user >> 11 & 0x1f_ffff) as u32),
        writes,
    });
    Some(if a.block > b.block { [a, b] } else { [b, a] })
}
