//! Diagnostics: lanes, elements and mistakes in words.

use tegula_core::diagnostic::{Finding, Kind, Space};
use tegula_ir::{Scope, Site, SiteId};

use super::agent::{Agent, part_elements, tile_elements};
use super::gathered::Gathered;
use super::launch::Arg;
use super::machine::Machine;
use super::owners::Use;
use super::race::{Conflict, Does};

/// Something wrong: in which lines, by whom, about which element, in words that go on after who it
/// was.
#[derive(Debug)]
pub(super) struct Mistake {
    pub kind: Kind,
    pub sites: Vec<SiteId>,
    pub lanes: Vec<u16>,
    pub element: Option<(Space, String, Vec<u64>)>,
    pub message: String,
}

impl Machine<'_> {
    /// A lane in words.
    pub fn who(&self, lane: u16) -> String {
        match self.agents.agent(lane) {
            None => format!("thread {:?}", self.thread(lane.into())),
            Some(Agent::Part { array, part }) => {
                let array = &self.kernel.shared()[array];
                format!("a copy to tile {} of {}", part * part_elements(array) / tile_elements(array), array.name)
            }
            Some(Agent::Warp(warp)) => format!("a multiplication of warp {warp}"),
            Some(Agent::Thread(thread) | Agent::Stores(thread)) => {
                format!("a store of a tile by thread {:?}", self.thread(thread.into()))
            }
            Some(Agent::Copies(thread)) => format!("an asynchronous copy of thread {:?}", self.thread(thread.into())),
        }
    }

    /// The space, name and coordinates of an element, and how messages write it.
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

    /// An access that races with one that an agent has to do with.
    pub fn conflict(
        &self,
        space: Space,
        memory: usize,
        index: usize,
        (site, lane, does): (SiteId, u16, Does),
        Conflict { earlier, earlier_writes, .. }: Conflict,
    ) -> Mistake {
        let (element, text) = self.element(space, memory, index);
        let who = self.who(earlier.lane);
        let verb = |writes| if writes { "writes" } else { "reads" };
        let does = verb(does == Does::Write);
        let (kind, message) = match self.agents.agent(earlier.lane) {
            Some(Agent::Part { .. }) if earlier_writes => {
                (Kind::InFlight, format!("{does} {text} while {who} is on its way; wait for its barrier first"))
            }
            Some(Agent::Part { .. }) => {
                (Kind::Race, format!("{does} {text}, which {who} reads until its barrier has been waited for"))
            }
            Some(Agent::Stores(_)) => {
                (Kind::Race, format!("{does} {text}, which {who} writes, in no order; it writes until `await_stores`"))
            }
            Some(Agent::Copies(_)) => (
                Kind::Race,
                format!(
                    "{does} {text}, which {who} reads, in no order; it reads until the thread has waited for its group"
                ),
            ),
            Some(Agent::Warp(_)) => {
                let advice = "it reads until `wgmma_wait`, and who arrives before says nothing of it";
                (Kind::Race, format!("{does} {text}, which {who} reads, in no order; {advice}"))
            }
            Some(Agent::Thread(_)) => {
                let advice = "it reads until `await_reads`, and who arrives before says nothing of it";
                (Kind::Race, format!("{does} {text}, which {who} reads, in no order; {advice}"))
            }
            None => (Kind::Race, format!("{does} {text}, which {who} {}, in no order", verb(earlier_writes))),
        };
        let (sites, lanes) = (vec![site, SiteId(earlier.site)], vec![lane, earlier.lane]);
        Mistake { kind, sites, lanes, element: Some(element), message }
    }

    pub fn sites(&self, mistake: &Mistake) -> Vec<Site> {
        mistake.sites.iter().map(|&site| self.kernel.site(site)).collect()
    }

    /// A mistake in a block, as it is reported.
    pub fn finding(&self, block: [u32; 3], mistake: Mistake) -> Finding {
        let source: Vec<_> = self.sites(&mistake).iter().map(|site| site.location).collect();
        let Mistake { kind, lanes, element, message, .. } = mistake;
        let places: Vec<_> = source.iter().map(|at| format!("{}:{}", at.file(), at.line())).collect();
        let who = lanes.first().map_or(String::new(), |&lane| format!(", {}", self.who(lane)));
        let threads = lanes.iter().filter_map(|&lane| match self.agents.agent(lane) {
            None => Some(lane.into()),
            Some(Agent::Warp(warp)) => Some(32 * warp),
            Some(Agent::Thread(thread) | Agent::Copies(thread) | Agent::Stores(thread)) => Some(thread.into()),
            Some(Agent::Part { .. }) => None,
        });
        let (space, name, index) = match element {
            Some((space, name, index)) => (Some(space), name, index),
            None => (None, String::new(), Vec::new()),
        };
        Finding {
            kind,
            message: format!("block {block:?}{who}: {message} ({})", places.join(", ")),
            block,
            threads: threads.map(|thread| self.thread(thread)).collect(),
            space,
            name,
            index,
            source,
            times: 1,
        }
    }

    /// Notes a mistake that no warp is at.
    pub fn note(&self, gathered: &mut Gathered, block: u32, mistake: Mistake) {
        let sites = self.sites(&mistake);
        gathered.findings.add(mistake.kind, &sites, block.into(), || self.finding(self.block_id(block), mistake));
    }

    /// Two uses of one element in no order.
    ///
    /// `missed` is where a thread read a release of the other block in vain.
    pub fn race(
        &self,
        (space, name, index): (Space, String, Vec<u64>),
        one: Use,
        other: Use,
        missed: Option<SiteId>,
    ) -> Finding {
        let (here, there) = (self.block_id(one.block), self.block_id(other.block));
        let threads = [one, other].map(|u| self.thread(u.lane.into()));
        let [site, met] = [one, other].map(|u| self.kernel.site(u.site).location);
        let verb = |u: Use| match self.ordered.get(&u.site) {
            Some((_, true)) => "reads and writes",
            _ if u.writes => "writes",
            _ => "reads",
        };
        let elsewhere = if here == there { String::new() } else { format!(" of block {there:?}") };
        let message = format!(
            "block {here:?}: thread {:?} {} {name}{index:?} ({}:{}) and thread {:?}{elsewhere} {} it ({}:{}) in no order{}",
            threads[0],
            verb(one),
            site.file(),
            site.line(),
            threads[1],
            verb(other),
            met.file(),
            met.line(),
            self.narrow_scope(one, other, missed),
        );
        Finding {
            kind: Kind::Race,
            message,
            block: here,
            threads: threads.to_vec(),
            space: Some(space),
            name,
            index,
            source: vec![site, met],
            times: 1,
        }
    }

    /// Why accesses or a release and an acquire that were meant to order two blocks do not.
    fn narrow_scope(&self, one: Use, other: Use, missed: Option<SiteId>) -> String {
        if one.block == other.block {
            return String::new();
        }
        let narrow = |site: &SiteId| matches!(self.ordered.get(site), Some((Scope::Block, _)));
        let ordered = |site: &SiteId| self.ordered.contains_key(site);
        let both = [one.site, other.site];
        let site = both.into_iter().find(narrow).filter(|_| both.iter().all(ordered)).or(missed);
        site.map_or_else(String::new, |site| {
            let at = self.kernel.site(site).location;
            let what = if Some(site) == missed {
                "what is acquired there or the release that it reads"
            } else {
                "the access there"
            };
            format!(
                "; {what} has the scope of a block, which does not reach another block ({}:{}): use Device",
                at.file(),
                at.line()
            )
        })
    }

    /// Reports elements that one block writes and another one uses: nothing orders blocks that run
    /// independently.
    pub fn races_of_blocks(&self, gathered: &mut Gathered) {
        for (param, owners) in self.owners.iter().enumerate() {
            let conflicts = owners.iter().flat_map(|owners| owners.conflicts(self.kernel.cluster()));
            for (index, [later, earlier]) in conflicts {
                let sites = [later, earlier].map(|u| self.kernel.site(u.site));
                let name = self.kernel.params()[param].name.clone();
                let Arg::Matrix(buffer) = self.args[param] else { continue };
                let element = || (Space::Global, name, buffer.coordinates(index));
                let block = u64::from(later.block);
                gathered.findings.add(Kind::Race, &sites, block, || self.race(element(), later, earlier, None));
            }
        }
    }

    pub fn note_redundant_barriers(&self, gathered: &mut Gathered) {
        for (pc, &(ran, needed)) in gathered.barriers.iter().enumerate() {
            if !ran || needed {
                continue;
            }
            let site = self.site(pc);
            let times = if site.iteration == 0 { String::new() } else { format!(", time {}", site.iteration + 1) };
            let make = || Finding {
                kind: Kind::RedundantBarrier,
                message: format!(
                    "no access needs this barrier at these sizes ({}:{}{times})",
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
            gathered.findings.add(Kind::RedundantBarrier, &[site], 0, make);
        }
    }
}
