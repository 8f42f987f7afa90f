//! Scheduling: the blocks of a grid, their warps, and the barriers at which warps meet.
//!
//! Blocks that cannot wait for each other run one after the other on each core. Blocks of a kernel
//! that orders accesses between blocks (atomics, acquire, release, `wait_until`) run together, a
//! device full at a time, each making progress in turn.

use std::sync::atomic::Ordering::Relaxed;

use rayon::prelude::*;
use tegula_core::diagnostic::{Finding, Kind, Severity};
use tegula_core::error::Result;
use tegula_core::threads;

use super::barrier::Named;
use super::block::{Progress, Running};
use super::cluster::Group;
use super::count::{Pattern, Tally, summarise};
use super::gathered::Gathered;
use super::launch::Outcome;
use super::machine::Machine;
use super::observe::Observer;
use super::path::{State, Warp};
use super::program::{Act, Code};
use super::random::{mix, shuffle};
use super::shadow::GlobalShadow;
use super::warp::Run;

impl Machine<'_> {
    pub fn run(&self, observer: Option<&mut dyn Observer>) -> Result<Outcome> {
        let blocks = self.groups();
        let gathered = if self.cooperative {
            self.together(&blocks, observer)
        } else if self.config.parallel && observer.is_none() && blocks.len() > 1 && threads::count() > 1 {
            blocks
                .par_iter()
                .fold(
                    || self.gathered(),
                    |mut gathered, &block| {
                        self.alone(block, &mut gathered, None);
                        gathered
                    },
                )
                .reduce(|| self.gathered(), Gathered::merge)
        } else {
            let mut gathered = self.gathered();
            let mut observer = observer;
            for &block in &blocks {
                self.alone(block, &mut gathered, reborrow(&mut observer));
                if gathered.stopped {
                    break;
                }
            }
            gathered
        };
        Ok(self.outcome(gathered))
    }

    /// The clusters to run, by the position of their first blocks. A cluster runs whole.
    fn groups(&self) -> Vec<u64> {
        let (blocks, cluster) = (self.blocks(), u64::from(self.kernel.cluster()));
        if cluster == 1 {
            return blocks;
        }
        let mut groups: Vec<_> = blocks.into_iter().map(|block| block / cluster * cluster).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// The blocks to run, by position in the grid (x fastest).
    fn blocks(&self) -> Vec<u64> {
        let [x, y, z] = self.grid.map(u64::from);
        match &self.config.blocks {
            None => (0..x * y * z).collect(),
            Some(chosen) => {
                let inside = |id: &&[u32; 3]| id.iter().zip(self.grid).all(|(&i, n)| i < n);
                chosen
                    .iter()
                    .filter(inside)
                    .map(|&[i, j, k]| u64::from(i) + x * (u64::from(j) + y * u64::from(k)))
                    .collect()
            }
        }
    }

    fn gathered(&self) -> Gathered {
        let n = self.program.code.len();
        Gathered {
            tallies: vec![Tally::default(); n],
            patterns: vec![[Pattern::NONE; 2]; n],
            barriers: vec![(false, false); n],
            ..Default::default()
        }
    }

    /// Runs one cluster from start to end.
    fn alone(&self, first: u64, gathered: &mut Gathered, mut observer: Option<&mut dyn Observer>) {
        if gathered.stopped {
            return;
        }
        let mut group = self.start_group(first);
        let mut global = GlobalShadow::default();
        loop {
            let progress = self.advance_group(&mut group, &mut global, gathered, reborrow(&mut observer));
            let released = progress != Progress::Ran && self.release_lanes(&mut group);
            if gathered.stopped || progress == Progress::None && !released {
                break;
            }
        }
        if !gathered.stopped {
            self.finish_group(&mut group, gathered);
        }
    }

    /// Lets lanes go ahead of others that nothing lets on any more. False where there are none.
    fn release_lanes(&self, group: &mut Group) -> bool {
        group.blocks.iter_mut().flat_map(|block| &mut block.warps).any(|warp| warp.release(&self.program.code))
    }

    /// Runs every block of a cluster in turn.
    fn advance_group(
        &self,
        group: &mut Group,
        global: &mut GlobalShadow,
        gathered: &mut Gathered,
        mut observer: Option<&mut dyn Observer>,
    ) -> Progress {
        let mut progress = Progress::None;
        let mut order: Vec<usize> = (0..group.blocks.len()).collect();
        group.blocks[0].vary(&mut order);
        for at in order {
            let block = &mut group.blocks[at];
            progress = progress.max(self.advance(block, global, gathered, reborrow(&mut observer)));
            if gathered.stopped {
                return Progress::None;
            }
        }
        if self.hopper {
            progress.or(self.exchange(group, global, gathered, progress == Progress::Ran))
        } else {
            progress
        }
    }

    /// What is to be said about a cluster that has ended, or never will.
    fn finish_group(&self, group: &mut Group, gathered: &mut Gathered) {
        let ended = group.blocks.iter().all(|block| block.warps.iter().all(|w| w.state == State::Done));
        for block in &mut group.blocks {
            self.finish(block, gathered);
            if self.hopper && ended {
                self.leave_all(block);
                for (whose, mistake) in self.left_behind(block) {
                    self.note(gathered, whose, mistake);
                }
            }
        }
    }

    /// Runs blocks that may wait for each other: as many as the device holds, each in turn.
    fn together(&self, blocks: &[u64], mut observer: Option<&mut dyn Observer>) -> Gathered {
        let (mut gathered, mut global) = (self.gathered(), GlobalShadow::default());
        let mut waiting = blocks.iter();
        let mut resident: Vec<Group> = Vec::new();
        let mut random = mix(self.config.seed);
        loop {
            while resident.len() < (self.config.resident / self.kernel.cluster()).max(1) as usize {
                let Some(&first) = waiting.next() else { break };
                resident.push(self.start_group(first));
            }
            if resident.is_empty() {
                return gathered;
            }
            let mut progress = Progress::None;
            let mut turns: Vec<&mut Group> = resident.iter_mut().collect();
            if self.config.seed != 0 {
                shuffle(&mut turns, &mut random);
            }
            for group in turns {
                progress = progress.max(self.advance_group(group, &mut global, &mut gathered, reborrow(&mut observer)));
            }
            if gathered.stopped {
                return gathered;
            }
            let before = resident.len();
            resident.retain_mut(|group| {
                let done = group.is_done();
                if done {
                    self.finish_group(group, &mut gathered);
                }
                !done
            });
            if progress == Progress::Ran || resident.len() != before {
                continue;
            }
            let released = resident.iter_mut().any(|group| self.release_lanes(group));
            if progress == Progress::None && !released {
                for group in &mut resident {
                    self.finish_group(group, &mut gathered);
                }
                return gathered;
            }
        }
    }

    /// Runs every warp of a block that can run until it cannot, then lets through who has met at a
    /// barrier.
    fn advance(
        &self,
        block: &mut Running,
        global: &mut GlobalShadow,
        gathered: &mut Gathered,
        mut observer: Option<&mut dyn Observer>,
    ) -> Progress {
        let mut order: Vec<usize> = (0..block.warps.len()).collect();
        shuffle(&mut order, &mut block.random);
        let mut progress = Progress::None;
        for warp in order {
            if !block.engine.coming.is_empty() && block.random(4) == 0 {
                progress = progress.or(self.land_one(block, gathered));
            }
            if !block.warps[warp].can_run() {
                continue;
            }
            // The warp leaves its block while it runs, so that both can be changed.
            let placeholder = block.warps[warp].placeholder();
            let mut running = std::mem::replace(&mut block.warps[warp], placeholder);
            let mut run = Run {
                machine: self,
                block,
                global,
                gathered,
                observer: reborrow(&mut observer),
                warp: &mut running,
                request: None,
                changed: false,
            };
            progress = progress.max(run.until_blocked());
            block.warps[warp] = running;
            if gathered.stopped {
                return Progress::None;
            }
        }
        progress.or(self.release_barrier(block, gathered))
    }

    /// Lets the block go on once every warp is at the barrier.
    fn release_barrier(&self, block: &mut Running, gathered: &mut Gathered) -> bool {
        if !block.warps.iter().all(|w| w.state == State::Barrier) {
            return false;
        }
        block.judge_barrier(gathered);
        block.last_barrier = block.warps.first().map(|w| w.pc as u32);
        block.clocks.barrier();
        for warp in &mut block.warps {
            warp.pc += 1;
            warp.state = State::Ready;
        }
        true
    }

    /// What is to be said about a block that has ended, or never will.
    fn finish(&self, block: &mut Running, gathered: &mut Gathered) {
        block.judge_barrier(gathered);
        gathered.blocks += 1;
        if let Some((meter, finished)) = &self.meter {
            meter.reach(finished.fetch_add(1, Relaxed) + 1, self.grid.into_iter().map(u64::from).product());
        }
        // Each path that waits: its state, its warp, for what, its first thread, and where.
        let mut stuck: Vec<(State, u32, String, [u32; 3], usize)> = Vec::new();
        for warp in 0..block.warps.len() {
            for _ in 0..=block.warps[warp].parked.len() {
                let path = &block.warps[warp];
                if path.state != State::Done {
                    let thread = self.thread(path.index * 32 + path.mask.trailing_zeros().min(31));
                    // A warp at a named barrier already stands behind it.
                    let pc = path.pc - usize::from(matches!(path.state, State::Named(_)));
                    stuck.push((path.state, path.index, self.waits_for(block, path), thread, pc));
                }
                block.warps[warp].switch();
            }
        }
        // Lanes that wait for others of their warp only do so because those wait for something
        // else.
        if stuck.iter().any(|(state, ..)| *state != State::Converge) {
            stuck.retain(|(state, ..)| *state != State::Converge);
        }
        let Some(&(.., first)) = stuck.first() else { return };
        let is = |state: State| stuck.iter().any(|(other, ..)| *other == state);
        let kind = match () {
            () if is(State::Registers) => Kind::RegisterBudget,
            () if is(State::Converge) => Kind::DivergentWarp,
            () if is(State::Spinning) => Kind::NoProgress,
            () => Kind::Deadlock,
        };
        // Those together that wait for the same.
        let mut waits: Vec<(String, Vec<u32>)> = Vec::new();
        for (_, warp, what, ..) in &stuck {
            match waits.iter_mut().find(|(other, _)| other == what) {
                Some((_, warps)) => warps.push(*warp),
                None => waits.push((what.clone(), vec![*warp])),
            }
        }
        let threads: Vec<_> = stuck.iter().map(|&(_, _, _, thread, _)| thread).collect();
        let waits: Vec<_> = waits.iter().map(|(what, warps)| format!("warps {warps:?} {what}")).collect();
        let site = self.site(first);
        let finding = || Finding {
            kind,
            message: format!(
                "block {:?}: {} ({}:{})",
                block.id,
                waits.join("; "),
                site.location.file(),
                site.location.line()
            ),
            block: block.id,
            threads,
            space: None,
            name: String::new(),
            index: Vec::new(),
            source: vec![site.location],
            times: 1,
        };
        gathered.findings.add(kind, &[site], block.linear, finding);
    }

    fn waits_for(&self, block: &Running, warp: &Warp) -> String {
        match warp.state {
            State::Barrier => "wait at a barrier to which the rest of the block never comes".into(),
            State::Named(id) => {
                let Named { threads, arrived, .. } = block.named[id as usize];
                format!("wait at named barrier {id}: {arrived} of {threads} threads came")
            }
            State::Await => format!("wait {}", self.awaited(block, warp).unwrap_or_default()),
            State::Registers => match self.program.code.get(warp.pc) {
                Some(Code::Hopper(act)) => match **act {
                    Act::SetRegisters { count, .. } => format!("wait {}", block.engine.wanted(warp.index, count)),
                    _ => String::new(),
                },
                _ => String::new(),
            },
            State::Cluster => "wait at the barrier of the cluster, to which not all of its threads come".into(),
            State::Converge => {
                format!(
                    "wait with lanes {:#010x} at an instruction of the warp to which the other lanes never come",
                    warp.mask
                )
            }
            State::Spinning => "repeat a loop in which nothing changes any more".into(),
            _ => "wait for an element of memory that nobody changes any more".into(),
        }
    }

    fn outcome(&self, mut gathered: Gathered) -> Outcome {
        if self.config.races && !self.cooperative {
            self.races_of_blocks(&mut gathered);
            self.note_redundant_barriers(&mut gathered);
        }
        let (counters, lines) = summarise(&self.program, &gathered.tallies);
        let mut findings = gathered.findings.into_vec();
        findings.sort_by_key(|f| f.severity() == Severity::Note);
        let lines = lines.into_iter().map(|(site, counters)| (self.kernel.site(site), counters)).collect();
        Outcome { findings, counters, lines, grid: self.grid, blocks: gathered.blocks }
    }
}

fn reborrow<'o>(observer: &'o mut Option<&mut dyn Observer>) -> Option<&'o mut dyn Observer> {
    match observer {
        Some(observer) => Some(&mut **observer),
        None => None,
    }
}
