//! Strong accesses of different sizes.
//!
//! Two strong accesses do not race if the scope of each includes the other's thread, and if they
//! overlap completely. Accesses of different sizes overlap in part: they race like weak ones (PTX
//! ISA, "Morally strong operations"). Few programs have such accesses to one memory. In these, each
//! strong access is compared with the earlier ones of other sizes to its bytes.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tegula_core::diagnostic::FindingKind;
use tegula_interp::rules::Access;
use tegula_ir::MemoryOrder;

use crate::access::Kind;
use crate::address::Location;
use crate::program::{Instruction, Op};
use crate::report::Report;
use crate::warp::Run;

/// A granule: the block of shared memory, the number of the memory, and the index.
type Granule = (Option<u32>, u32, u64);

/// What tells accesses apart: block, thread, first granule, size, and whether it writes.
type Shape = (u32, u16, u64, u32, bool);

/// The last strong access of each thread and size, by granule.
#[derive(Debug, Default)]
pub(crate) struct StrongAccesses(FxHashMap<Granule, BTreeMap<Shape, Access>>);

/// Whether a program has strong accesses of different sizes.
pub(crate) fn are_mixed(code: &[Instruction]) -> bool {
    let mut sizes = code.iter().filter_map(|instruction| match &instruction.op {
        Op::Load(transfer) | Op::Store(transfer) if transfer.order != MemoryOrder::Weak => Some(transfer.ty.size()),
        Op::Atomic(atomic) => Some(atomic.ty.size()),
        _ => None,
    });
    sizes.next().is_some_and(|first| sizes.any(|size| size != first))
}

impl Run<'_, '_> {
    /// Compares a strong access with earlier ones of other sizes, and records it.
    pub fn check_sizes(&mut self, location: Location, lane: usize, size: u32, kind: Kind) {
        let (now, block) = (self.now(lane, kind.scope), self.block.linear as u32);
        let of_block = matches!(location, Location::Shared { .. }).then_some(block);
        let keys: Vec<(u32, u64)> = self.shadow_keys(location, size).collect();
        let Some(&(_, first)) = keys.first() else { return };
        let mut race = None;
        for (memory, index) in keys {
            let known = self.partial.strong.0.entry((of_block, memory, index)).or_default();
            let clocks = &mut self.block.clocks;
            for (&(of, _, start, bytes, writes), access) in known.iter() {
                let other_bytes = (start, bytes) != (first, size);
                if other_bytes && (writes || kind.writes()) && !clocks.happens_before_across(of, access, &now) {
                    race = Some((*access, bytes, writes));
                }
            }
            known.insert((block, now.lane, first, size, kind.writes()), now.access());
        }
        if let Some((earlier, bytes, writes)) = race {
            let (element, other) = (self.describe(location), self.machine.describe_thread(earlier.lane));
            let verb = |writes: bool| if writes { "writes" } else { "reads" };
            let message = format!(
                "{} {size} bytes at {element} while {other} {} {bytes} bytes there; ordered accesses and atomic operations of different sizes race: use one size",
                verb(kind.writes()),
                verb(writes)
            );
            let report = Report::new(FindingKind::Race, message).lanes(1 << lane).element(element);
            self.report_with(report, Some(earlier.site));
        }
    }
}
