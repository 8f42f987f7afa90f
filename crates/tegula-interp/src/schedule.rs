//! Scheduling: the blocks of a grid, their warps, and the barriers of a block.
//!
//! Independent blocks run one after the other on each core. Blocks of a kernel that orders accesses
//! between blocks (atomics, acquire, release, `wait_until`) run interleaved, as many as are
//! resident on the device.

use std::sync::atomic::Ordering::Relaxed;

use rayon::prelude::*;
use tegula_core::diagnostic::{Finding, FindingKind, Severity};
use tegula_core::error::Result;
use tegula_core::threads;

use super::barrier::NamedBarrier;
use super::block::{BlockState, Progress};
use super::cluster::Cluster;
use super::count::{InstructionCounts, RequestCache, summarize};
use super::launch::Outcome;
use super::machine::Machine;
use super::observe::Observer;
use super::partial_outcome::PartialOutcome;
use super::path::{State, Warp};
use super::program::{Instruction, LoweredOp};
use super::random::{mix, shuffle};
use super::shadow::GlobalShadow;
use super::warp::WarpContext;

impl Machine<'_> {
    pub fn run(&self, observer: Option<&mut dyn Observer>) -> Result<Outcome> {
        let blocks = self.clusters();
        let partial = if self.cooperative {
            self.run_cooperative(&blocks, observer)
        } else if self.config.parallel && observer.is_none() && blocks.len() > 1 && threads::count() > 1 {
            blocks
                .par_iter()
                .fold(
                    || self.empty_outcome(),
                    |mut partial, &block| {
                        self.run_cluster(block, &mut partial, None);
                        partial
                    },
                )
                .reduce(|| self.empty_outcome(), PartialOutcome::merge)
        } else {
            let mut partial = self.empty_outcome();
            let mut observer = observer;
            for &block in &blocks {
                self.run_cluster(block, &mut partial, reborrow(&mut observer));
                if partial.stopped {
                    break;
                }
            }
            partial
        };
        Ok(self.outcome(partial))
    }

    /// The clusters to run, by their first blocks. A cluster always runs as a whole.
    fn clusters(&self) -> Vec<u64> {
        let (blocks, cluster) = (self.blocks(), u64::from(self.kernel.cluster()));
        if cluster == 1 {
            return blocks;
        }
        let mut clusters: Vec<_> = blocks.into_iter().map(|block| block / cluster * cluster).collect();
        clusters.sort_unstable();
        clusters.dedup();
        clusters
    }

    /// The blocks to run, by linear index in the grid (x fastest).
    fn blocks(&self) -> Vec<u64> {
        let [x, y, z] = self.grid.map(u64::from);
        match &self.config.blocks {
            None => (0..x * y * z).collect(),
            Some(chosen) => {
                let in_grid = |id: &&[u32; 3]| id.iter().zip(self.grid).all(|(&i, n)| i < n);
                chosen
                    .iter()
                    .filter(in_grid)
                    .map(|&[i, j, k]| u64::from(i) + x * (u64::from(j) + y * u64::from(k)))
                    .collect()
            }
        }
    }

    fn empty_outcome(&self) -> PartialOutcome {
        let n = self.program.code.len();
        PartialOutcome {
            instruction_counts: vec![InstructionCounts::default(); n],
            request_caches: vec![[RequestCache::NONE; 2]; n],
            barriers: vec![(false, false); n],
            ..Default::default()
        }
    }

    /// Runs one cluster from start to end.
    fn run_cluster(&self, first: u64, partial: &mut PartialOutcome, mut observer: Option<&mut dyn Observer>) {
        if partial.stopped {
            return;
        }
        let mut cluster = self.start_cluster(first);
        let mut global = GlobalShadow::default();
        loop {
            let progress = self.advance_cluster(&mut cluster, &mut global, partial, reborrow(&mut observer));
            let released = progress != Progress::Ran && self.release_lanes(&mut cluster);
            if partial.stopped || progress == Progress::None && !released {
                break;
            }
        }
        if !partial.stopped {
            self.finish_cluster(&mut cluster, partial);
        }
    }

    /// Lets stalled lanes continue without the others of their path; false if there are none.
    fn release_lanes(&self, cluster: &mut Cluster) -> bool {
        cluster
            .blocks
            .iter_mut()
            .flat_map(|block| &mut block.warps)
            .any(|warp| warp.release_stalled(&self.program.code))
    }

    /// Runs every block of a cluster until all its warps wait or end.
    fn advance_cluster(
        &self,
        cluster: &mut Cluster,
        global: &mut GlobalShadow,
        partial: &mut PartialOutcome,
        mut observer: Option<&mut dyn Observer>,
    ) -> Progress {
        let mut progress = Progress::None;
        let mut order: Vec<usize> = (0..cluster.blocks.len()).collect();
        cluster.blocks[0].permute(&mut order);
        for at in order {
            let block = &mut cluster.blocks[at];
            progress = progress.max(self.advance(block, global, partial, reborrow(&mut observer)));
            if partial.stopped {
                return Progress::None;
            }
        }
        if self.uses_hopper {
            progress.or(self.deliver_in_transit(cluster, global, partial, progress == Progress::Ran))
        } else {
            progress
        }
    }

    /// Reports the findings of a cluster that has ended or is deadlocked.
    fn finish_cluster(&self, cluster: &mut Cluster, partial: &mut PartialOutcome) {
        let ended = cluster.blocks.iter().all(|block| block.warps.iter().all(|w| w.state == State::Done));
        for block in &mut cluster.blocks {
            self.finish(block, partial);
            if self.uses_hopper && ended {
                self.complete_all_stores(block);
                for (responsible, diagnostic) in self.unfinished_at_exit(block) {
                    self.record(partial, responsible, diagnostic);
                }
            }
        }
    }

    /// Runs blocks that may wait for each other, interleaved, as many as are resident.
    fn run_cooperative(&self, blocks: &[u64], mut observer: Option<&mut dyn Observer>) -> PartialOutcome {
        let (mut partial, mut global) = (self.empty_outcome(), GlobalShadow::default());
        let mut waiting = blocks.iter();
        let mut resident: Vec<Cluster> = Vec::new();
        let mut random = mix(self.config.seed);
        loop {
            while resident.len() < (self.config.resident / self.kernel.cluster()).max(1) as usize {
                let Some(&first) = waiting.next() else { break };
                resident.push(self.start_cluster(first));
            }
            if resident.is_empty() {
                return partial;
            }
            let mut progress = Progress::None;
            let mut order: Vec<&mut Cluster> = resident.iter_mut().collect();
            if self.config.seed != 0 {
                shuffle(&mut order, &mut random);
            }
            for cluster in order {
                progress =
                    progress.max(self.advance_cluster(cluster, &mut global, &mut partial, reborrow(&mut observer)));
            }
            if partial.stopped {
                return partial;
            }
            let before = resident.len();
            resident.retain_mut(|cluster| {
                let done = cluster.is_done();
                if done {
                    self.finish_cluster(cluster, &mut partial);
                }
                !done
            });
            if progress == Progress::Ran || resident.len() != before {
                continue;
            }
            let released = resident.iter_mut().any(|cluster| self.release_lanes(cluster));
            if progress == Progress::None && !released {
                for cluster in &mut resident {
                    self.finish_cluster(cluster, &mut partial);
                }
                return partial;
            }
        }
    }

    /// Runs every warp of a block until it must wait, then completes the block's barrier.
    fn advance(
        &self,
        block: &mut BlockState,
        global: &mut GlobalShadow,
        partial: &mut PartialOutcome,
        mut observer: Option<&mut dyn Observer>,
    ) -> Progress {
        let mut order: Vec<usize> = (0..block.warps.len()).collect();
        shuffle(&mut order, &mut block.random);
        let mut progress = Progress::None;
        for warp in order {
            if !block.hopper.in_flight.is_empty() && block.random(4) == 0 {
                progress = progress.or(self.land_one(block, partial));
            }
            if !block.warps[warp].can_run() {
                continue;
            }
            // The warp is moved out of its block while it runs, so that both are mutable.
            let placeholder = block.warps[warp].placeholder();
            let mut running = std::mem::replace(&mut block.warps[warp], placeholder);
            let mut run = WarpContext {
                machine: self,
                block,
                global,
                partial,
                observer: reborrow(&mut observer),
                warp: &mut running,
                request: None,
                changed: false,
            };
            progress = progress.max(run.run_until_blocked());
            block.warps[warp] = running;
            if partial.stopped {
                return Progress::None;
            }
        }
        progress.or(self.release_barrier(block, partial))
    }

    /// Completes the barrier of the block once every warp has arrived.
    fn release_barrier(&self, block: &mut BlockState, partial: &mut PartialOutcome) -> bool {
        if !block.warps.iter().all(|w| w.state == State::Barrier) {
            return false;
        }
        block.record_barrier_use(partial);
        block.last_barrier = block.warps.first().map(|w| w.pc as u32);
        block.clocks.barrier();
        for warp in &mut block.warps {
            warp.pc += 1;
            warp.state = State::Ready;
        }
        true
    }

    /// Reports the findings of a block that has ended or is deadlocked.
    fn finish(&self, block: &mut BlockState, partial: &mut PartialOutcome) {
        block.record_barrier_use(partial);
        partial.blocks += 1;
        if let Some((meter, finished)) = &self.meter {
            meter.raise_to(finished.fetch_add(1, Relaxed) + 1, self.grid.into_iter().map(u64::from).product());
        }
        // For each waiting path: its state, warp, reason, first thread and position.
        let mut stuck: Vec<(State, u32, String, [u32; 3], usize)> = Vec::new();
        for warp in 0..block.warps.len() {
            for _ in 0..=block.warps[warp].parked.len() {
                let path = &block.warps[warp];
                if path.state != State::Done {
                    let thread = self.thread(path.index * 32 + path.mask.trailing_zeros().min(31));
                    // A warp at a named barrier has already advanced past it.
                    let pc = path.pc - usize::from(matches!(path.state, State::NamedBarrier(_)));
                    stuck.push((path.state, path.index, self.describe_wait(block, path), thread, pc));
                }
                block.warps[warp].switch_path();
            }
        }
        // Lanes that wait for other lanes of their warp are a consequence; report the cause.
        if stuck.iter().any(|(state, ..)| *state != State::Converge) {
            stuck.retain(|(state, ..)| *state != State::Converge);
        }
        let Some(&(.., first)) = stuck.first() else { return };
        let is = |state: State| stuck.iter().any(|(other, ..)| *other == state);
        let kind = match () {
            () if is(State::Registers) => FindingKind::RegisterBudget,
            () if is(State::Converge) => FindingKind::DivergentWarp,
            () if is(State::Spinning) => FindingKind::NoProgress,
            () => FindingKind::Deadlock,
        };
        // Group the warps by the reason of their wait.
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
        partial.findings.add(kind, &[site], block.linear, finding);
    }

    fn describe_wait(&self, block: &BlockState, warp: &Warp) -> String {
        match warp.state {
            State::Barrier => "wait at a barrier that the rest of the block never reaches".into(),
            State::NamedBarrier(id) => {
                let NamedBarrier { threads, arrived, .. } = block.named[id as usize];
                format!("wait at named barrier {id}: {arrived} of {threads} threads arrived")
            }
            State::Mbarrier => format!("wait {}", self.mbarrier_wait_status(block, warp).unwrap_or_default()),
            State::Registers => match self.program.code.get(warp.pc) {
                Some(Instruction::Hopper(op)) => match **op {
                    LoweredOp::SetMaxRegisters { count, .. } => {
                        format!("wait {}", block.hopper.register_wait(warp.index, count))
                    }
                    _ => String::new(),
                },
                _ => String::new(),
            },
            State::Cluster => "wait at the barrier of the cluster, where not all of its threads arrive".into(),
            State::Converge => {
                format!(
                    "wait with lanes {:#010x} at a warp-wide instruction that the other lanes never reach",
                    warp.mask
                )
            }
            State::Spinning => "repeat a loop without any change of state".into(),
            _ => "wait for an element of memory that no thread changes".into(),
        }
    }

    fn outcome(&self, mut partial: PartialOutcome) -> Outcome {
        if self.config.races && !self.cooperative {
            self.report_block_races(&mut partial);
            self.report_redundant_barriers(&mut partial);
        }
        let (counters, lines) = summarize(&self.program, &partial.instruction_counts);
        let mut findings = partial.findings.into_vec();
        findings.sort_by_key(|f| f.severity() == Severity::Note);
        let lines = lines.into_iter().map(|(site, counters)| (self.kernel.site(site), counters)).collect();
        Outcome { findings, counters, lines, grid: self.grid, blocks: partial.blocks }
    }
}

fn reborrow<'o>(observer: &'o mut Option<&mut dyn Observer>) -> Option<&'o mut dyn Observer> {
    match observer {
        Some(observer) => Some(&mut **observer),
        None => None,
    }
}
