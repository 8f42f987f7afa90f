//! Strong accesses of different sizes.
//!
//! Two strong accesses do not race if the scope of each includes the other's thread, and if they
//! overlap completely. Accesses of different sizes overlap only in part, so they race like weak
//! ones (PTX ISA, "Morally strong operations"). Few programs have such accesses. In these programs,
//! each strong access is compared with earlier accesses of other sizes to the same bytes.

use tegula_core::diagnostic::FindingKind;

use crate::access::Kind;
use crate::address::Location;
use crate::report::Report;
use crate::run::Run;

impl Run<'_, '_> {
    /// Reports a race of a strong access with an earlier one of another size; records the access.
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
