//! Diagnostics: lanes, elements and findings as text.

use tegula_core::diagnostic::{Finding, FindingKind, Space};
use tegula_ir::{Scope, Site, SiteId};

use super::access_summary::RacingAccess;
use super::agent::{AsyncAgent, copy_unit_elements, tile_elements};
use super::launch::Arg;
use super::machine::Machine;
use super::partial_outcome::PartialOutcome;
use super::race::{AccessKind, Race};

/// A diagnostic: kind, source locations, lanes, element and message.
///
/// The message continues after the name of the first lane.
#[derive(Debug)]
pub(super) struct Diagnostic {
    pub kind: FindingKind,
    pub sites: Vec<SiteId>,
    pub lanes: Vec<u16>,
    pub element: Option<(Space, String, Vec<u64>)>,
    pub message: String,
}

impl Machine<'_> {
    /// Describes a thread or an agent.
    pub fn describe_lane(&self, lane: u16) -> String {
        match self.agents.agent(lane) {
            None => format!("thread {:?}", self.thread(lane.into())),
            Some(AsyncAgent::BulkCopy { array, unit }) => {
                let array = &self.kernel.shared()[array];
                format!(
                    "a bulk copy to tile {} of {}",
                    unit * copy_unit_elements(array) / tile_elements(array),
                    array.name
                )
            }
            Some(AsyncAgent::Wgmma(warp)) => format!("a matrix instruction of warp {warp}"),
            Some(AsyncAgent::StoreRead(thread) | AsyncAgent::StoreWrite(thread)) => {
                format!("a bulk store of thread {:?}", self.thread(thread.into()))
            }
            Some(AsyncAgent::CopyAsync(thread)) => {
                format!("a `cp.async` copy of thread {:?}", self.thread(thread.into()))
            }
        }
    }

    /// The space, name and coordinates of an element, and its text for messages.
    pub fn element(&self, space: Space, memory: usize, index: usize) -> ((Space, String, Vec<u64>), String) {
        let (name, at) = match space {
            Space::Shared => {
                let array = &self.kernel.shared()[memory];
                (array.name.clone(), array.coordinates(index as u64))
            }
            Space::Global => {
                let at = match self.args[memory] {
                    Arg::Matrix(buffer) => buffer.coordinates(index),
                    Arg::Scalar { .. } => Vec::new(),
                };
                (self.kernel.params()[memory].name.clone(), at)
            }
        };
        let text = format!("{name}{at:?}");
        ((space, name, at), text)
    }

    /// Describes a race that involves an agent.
    pub fn race_diagnostic(
        &self,
        space: Space,
        memory: usize,
        index: usize,
        (site, lane, access): (SiteId, u16, AccessKind),
        Race { earlier, earlier_writes, .. }: Race,
    ) -> Diagnostic {
        let (element, text) = self.element(space, memory, index);
        let agent = self.describe_lane(earlier.lane);
        let verb = |writes| if writes { "writes" } else { "reads" };
        let access = verb(access == AccessKind::Write);
        let (kind, message) = match self.agents.agent(earlier.lane) {
            Some(AsyncAgent::BulkCopy { .. }) if earlier_writes => (
                FindingKind::InFlight,
                format!("{access} {text} while {agent} is in flight; wait for its barrier first"),
            ),
            Some(AsyncAgent::BulkCopy { .. }) => {
                (FindingKind::Race, format!("{access} {text}, which {agent} reads until a wait for its barrier"))
            }
            Some(AsyncAgent::StoreWrite(_)) => (
                FindingKind::Race,
                format!("{access} {text} unordered with the write by {agent}; it writes until `bulk_wait_group`"),
            ),
            Some(AsyncAgent::CopyAsync(_)) => (
                FindingKind::Race,
                format!(
                    "{access} {text} unordered with the read by {agent}; it reads until the thread waits for its group"
                ),
            ),
            Some(AsyncAgent::Wgmma(_)) => {
                let advice = "it reads until `wgmma_wait_group`; an earlier arrival does not order it";
                (FindingKind::Race, format!("{access} {text} unordered with the read by {agent}; {advice}"))
            }
            Some(AsyncAgent::StoreRead(_)) => {
                let advice = "it reads until `bulk_wait_group_read`; an earlier arrival does not order it";
                (FindingKind::Race, format!("{access} {text} unordered with the read by {agent}; {advice}"))
            }
            None => (
                FindingKind::Race,
                format!(
                    "{access} {text} unordered with the {} by {agent}",
                    if earlier_writes { "write" } else { "read" }
                ),
            ),
        };
        let (sites, lanes) = (vec![site, SiteId(earlier.site)], vec![lane, earlier.lane]);
        Diagnostic { kind, sites, lanes, element: Some(element), message }
    }

    pub fn sites(&self, diagnostic: &Diagnostic) -> Vec<Site> {
        diagnostic.sites.iter().map(|&site| self.kernel.site(site)).collect()
    }

    /// Converts a diagnostic of a block to a finding.
    pub fn finding(&self, block: [u32; 3], diagnostic: Diagnostic) -> Finding {
        let source: Vec<_> = self.sites(&diagnostic).iter().map(|site| site.location).collect();
        let Diagnostic { kind, lanes, element, message, .. } = diagnostic;
        let locations: Vec<_> = source.iter().map(|at| format!("{}:{}", at.file(), at.line())).collect();
        let agent = lanes.first().map_or(String::new(), |&lane| format!(", {}", self.describe_lane(lane)));
        let threads = lanes.iter().filter_map(|&lane| match self.agents.agent(lane) {
            None => Some(lane.into()),
            Some(AsyncAgent::Wgmma(warp)) => Some(32 * warp),
            Some(AsyncAgent::StoreRead(thread) | AsyncAgent::CopyAsync(thread) | AsyncAgent::StoreWrite(thread)) => {
                Some(thread.into())
            }
            Some(AsyncAgent::BulkCopy { .. }) => None,
        });
        let (space, name, index) = match element {
            Some((space, name, index)) => (Some(space), name, index),
            None => (None, String::new(), Vec::new()),
        };
        Finding {
            kind,
            message: format!("block {block:?}{agent}: {message} ({})", locations.join(", ")),
            block,
            threads: threads.map(|thread| self.thread(thread)).collect(),
            space,
            name,
            index,
            source,
            times: 1,
        }
    }

    /// Records a diagnostic outside the execution of a warp.
    pub fn record(&self, partial: &mut PartialOutcome, block: u32, diagnostic: Diagnostic) {
        let sites = self.sites(&diagnostic);
        partial.findings.add(diagnostic.kind, &sites, block.into(), || self.finding(self.block_id(block), diagnostic));
    }

    /// Describes two accesses to one element without a happens-before order.
    ///
    /// `missed_releases` is the source location of a read that missed a release of the other block.
    pub fn race_finding(
        &self,
        (space, name, index): (Space, String, Vec<u64>),
        one: RacingAccess,
        other: RacingAccess,
        missed_releases: Option<SiteId>,
    ) -> Finding {
        let (here, there) = (self.block_id(one.block), self.block_id(other.block));
        let threads = [one, other].map(|u| self.thread(u.lane.into()));
        let [site, other_site] = [one, other].map(|u| self.kernel.site(u.site).location);
        let verb = |u: RacingAccess| match self.strong_accesses.get(&u.site) {
            Some((_, true)) => "reads and writes",
            _ if u.writes => "writes",
            _ => "reads",
        };
        let elsewhere = if here == there { String::new() } else { format!(" of block {there:?}") };
        let message = format!(
            "block {here:?}: thread {:?} {} {name}{index:?} ({}:{}) and thread {:?}{elsewhere} {} it ({}:{}), unordered{}",
            threads[0],
            verb(one),
            site.file(),
            site.line(),
            threads[1],
            verb(other),
            other_site.file(),
            other_site.line(),
            self.narrow_scope(one, other, missed_releases),
        );
        Finding {
            kind: FindingKind::Race,
            message,
            block: here,
            threads: threads.to_vec(),
            space: Some(space),
            name,
            index,
            source: vec![site, other_site],
            times: 1,
        }
    }

    /// Explains why accesses with too narrow a scope do not order two blocks.
    fn narrow_scope(&self, one: RacingAccess, other: RacingAccess, missed_releases: Option<SiteId>) -> String {
        if one.block == other.block {
            return String::new();
        }
        let narrow = |site: &SiteId| matches!(self.strong_accesses.get(site), Some((Scope::Block, _)));
        let is_strong = |site: &SiteId| self.strong_accesses.contains_key(site);
        let both = [one.site, other.site];
        let site = both.into_iter().find(narrow).filter(|_| both.iter().all(is_strong)).or(missed_releases);
        site.map_or_else(String::new, |site| {
            let at = self.kernel.site(site).location;
            let what = if Some(site) == missed_releases {
                "the acquire there or the release that it observes"
            } else {
                "the access there"
            };
            format!(
                "; {what} has the scope of a block, which excludes other blocks ({}:{}); use Device",
                at.file(),
                at.line()
            )
        })
    }

    /// Reports elements that one block writes and another accesses.
    ///
    /// Independent blocks are not ordered.
    pub fn report_block_races(&self, partial: &mut PartialOutcome) {
        for (param, access_summaries) in self.access_summaries.iter().enumerate() {
            let races =
                access_summaries.iter().flat_map(|access_summaries| access_summaries.races(self.kernel.cluster()));
            for (index, [later, earlier]) in races {
                let sites = [later, earlier].map(|u| self.kernel.site(u.site));
                let name = self.kernel.params()[param].name.clone();
                let Arg::Matrix(buffer) = self.args[param] else { continue };
                let element = || (Space::Global, name, buffer.coordinates(index));
                let block = u64::from(later.block);
                partial
                    .findings
                    .add(FindingKind::Race, &sites, block, || self.race_finding(element(), later, earlier, None));
            }
        }
    }

    pub fn report_redundant_barriers(&self, partial: &mut PartialOutcome) {
        for (pc, &(ran, needed)) in partial.barriers.iter().enumerate() {
            if !ran || needed {
                continue;
            }
            let site = self.site(pc);
            let iteration =
                if site.iteration == 0 { String::new() } else { format!(", iteration {}", site.iteration + 1) };
            let new_finding = || Finding {
                kind: FindingKind::RedundantBarrier,
                message: format!(
                    "no access needs this barrier at these sizes ({}:{}{iteration})",
                    site.location.file(),
                    site.location.line()
                ),
                block: [0; 3],
                threads: Vec::new(),
                space: None,
                name: String::new(),
                index: Vec::new(),
                source: vec![site.location],
                times: 1,
            };
            partial.findings.add(FindingKind::RedundantBarrier, &[site], 0, new_finding);
        }
    }
}
