//! Scheduling: the blocks of a grid, and the warps of a block.
//!
//! Independent blocks run in parallel on the cores of the host, each block on one core. If the
//! kernel has atomic operations or strong accesses in global memory, its blocks run interleaved on
//! one core, at most as many as are resident on the modeled GPU.

use std::sync::atomic::Ordering::Relaxed;

use rayon::prelude::*;
use tegula_interp::rules::{GlobalShadow, mix, shuffle};

use crate::block::Block;
use crate::launch::{Buffer, Config, Launch, LaunchError, Outcome};
use crate::lower::ModuleVariable;
use crate::machine::{MAX_SHARED, Machine};
use crate::partial::Partial;
use crate::program::Program;
use crate::record;
use crate::report;
use crate::run::Run;
use crate::time_slice::TimeSlices;
use crate::trace::{Trace, TraceFilter};

/// Maximum numbers of resident threads and blocks of an SM (compute capability 9.0).
const MAX_RESIDENT_THREADS: u32 = 2048;
const MAX_RESIDENT_BLOCKS: u32 = 32;
/// Initial number of interleaved blocks. It is doubled when all of them wait.
const INTERLEAVED: usize = 16;

/// Runs a launch, and writes its results to the buffers.
pub(crate) fn run(
    (program, variables): (&Program, &[ModuleVariable]),
    launch: &Launch,
    buffers: &mut [Buffer],
    config: &Config,
    filter: Option<&TraceFilter>,
) -> Result<(Outcome, Option<Trace>), LaunchError> {
    let mut written: Vec<bool> =
        variables.iter().map(|_| false).chain(buffers.iter().map(|buffer| !buffer.initialized)).collect();
    loop {
        let machine = Machine::new((program, variables), launch, buffers, config, &written)?;
        let partial = machine.run_blocks(filter);
        match machine.untracked_write.load(Relaxed) {
            0 => {
                for (buffer, allocation) in buffers.iter_mut().zip(&machine.allocations[variables.len()..]) {
                    buffer.bytes = allocation.storage.bytes();
                }
                let (outcome, trace) = machine.outcome(partial);
                let atomic_sums = outcome.atomic_sums.of_buffers(variables.len());
                return Ok((Outcome { atomic_sums, ..outcome }, trace));
            }
            allocation => written[allocation - 1] = true,
        }
    }
}

impl Machine<'_> {
    fn run_blocks(&self, filter: Option<&TraceFilter>) -> Partial {
        let blocks = self.launch.grid.iter().map(|&n| u64::from(n)).product::<u64>();
        let order: Vec<u64> = (0..blocks).collect();
        if self.program.orders_blocks {
            return self.run_interleaved(&order, self.recording(filter));
        }
        let empty = || Partial::new(self.program.code.len());
        let one = |mut partial: Partial, &block: &u64| {
            if !partial.stopped && self.runs(block) {
                self.run_block(block, &mut partial);
            }
            partial
        };
        if filter.is_some() {
            return order.iter().fold(self.recording(filter), one);
        }
        if self.config.parallel && blocks > 1 && tegula_core::threads::count() > 1 {
            order.par_iter().fold(empty, one).reduce(empty, Partial::merge)
        } else {
            order.iter().fold(empty(), one)
        }
    }

    /// Empty counts and findings, with a recorder if a block is to be traced.
    fn recording(&self, filter: Option<&TraceFilter>) -> Partial {
        let mut partial = Partial::new(self.program.code.len());
        if let Some(filter) = filter {
            let recorder = record::start(self, filter);
            partial.findings.recorded = Some((recorder.block, Vec::new()));
            partial.recorder = Some(Box::new(recorder));
        }
        partial
    }

    /// Whether an independent block may run: no block before it exceeded the step limit.
    fn runs(&self, linear: u64) -> bool {
        linear < self.endless.load(Relaxed)
    }

    fn run_block(&self, linear: u64, partial: &mut Partial) {
        let mut block = Block::new(self, linear);
        let mut global = GlobalShadow::default();
        partial.slices = TimeSlices::default();
        loop {
            let progress = self.advance(&mut block, &mut global, partial);
            if partial.stopped || !self.runs(linear) {
                return;
            }
            if block.is_done() {
                break;
            }
            if !progress && !self.unblock(std::slice::from_mut(&mut block), partial) {
                report::stuck(self, &block, partial);
                partial.completed = false;
                break;
            }
        }
        block.finish(self, partial);
    }

    /// Runs blocks that may wait for each other, interleaved.
    ///
    /// The first 16 blocks run until all of them wait. Then more are started, up to the number of
    /// blocks that can be resident.
    fn run_interleaved(&self, order: &[u64], mut partial: Partial) -> Partial {
        let mut global = GlobalShadow::default();
        let mut waiting = order.iter();
        let mut resident: Vec<Block> = Vec::new();
        let (mut random, mut limit) = (mix(self.config.seed), INTERLEAVED.min(self.resident()));
        loop {
            while resident.len() < limit {
                let Some(&next) = waiting.next() else { break };
                resident.push(Block::new(self, next));
            }
            if resident.is_empty() {
                return partial;
            }
            if self.config.seed != 0 {
                shuffle(&mut resident, &mut random);
            }
            let mut progress = false;
            for block in &mut resident {
                progress |= self.advance(block, &mut global, &mut partial);
                if partial.stopped {
                    return partial;
                }
            }
            let before = resident.len();
            resident.retain_mut(|block| {
                let done = block.is_done();
                if done {
                    block.finish(self, &mut partial);
                }
                !done
            });
            if progress || resident.len() != before {
                continue;
            }
            if limit < self.resident() && !waiting.as_slice().is_empty() {
                limit = (2 * limit).min(self.resident());
            } else if !self.unblock(&mut resident, &mut partial) {
                resident.iter_mut().for_each(|block| report::stuck(self, block, &mut partial));
                partial.completed = false;
                return partial;
            }
        }
    }

    /// Number of resident blocks of the modeled GPU.
    fn resident(&self) -> usize {
        let by_threads = MAX_RESIDENT_THREADS / self.threads.next_multiple_of(32).max(32);
        let by_shared = MAX_SHARED.checked_div(self.shared_bytes).unwrap_or(MAX_RESIDENT_BLOCKS);
        let per_multiprocessor = by_threads.min(by_shared).clamp(1, MAX_RESIDENT_BLOCKS);
        (self.config.multiprocessors.max(1) * per_multiprocessor) as usize
    }

    /// Releases a wait when no warp can run; returns false on a deadlock.
    ///
    /// First it releases lanes at a join whose missing lanes spin in a loop: the loop may wait for
    /// the lanes at the join. Then it tries partial barriers, then all other joins.
    fn unblock(&self, blocks: &mut [Block], partial: &mut Partial) -> bool {
        blocks.iter_mut().any(|block| block.release_join(true))
            || blocks.iter_mut().any(|block| block.force_barrier(self, partial))
            || blocks.iter_mut().any(|block| block.release_join(false))
    }

    /// Runs every warp of a block until it must wait; returns whether anything changed.
    pub fn advance(&self, block: &mut Block, global: &mut GlobalShadow, partial: &mut Partial) -> bool {
        let mut order: Vec<usize> = (0..block.warps.len()).collect();
        block.permute(&mut order);
        let mut progress = false;
        for at in order {
            if block.warps[at].is_done() {
                continue;
            }
            // A running warp is moved out of its block, so that both can be borrowed mutably.
            let placeholder = block.warps[at].placeholder();
            let mut warp = std::mem::replace(&mut block.warps[at], placeholder);
            progress |= Run::new(self, block, global, partial, &mut warp).run();
            block.warps[at] = warp;
            if partial.stopped {
                return false;
            }
        }
        progress | block.complete_barriers(self, partial)
    }

    fn outcome(&self, mut partial: Partial) -> (Outcome, Option<Trace>) {
        report::races_between_blocks(self, &mut partial);
        report::redundant_barriers(self, &mut partial);
        let (counters, lines, thread_instructions) = partial.summarize(self.program);
        let lines = lines.into_iter().map(|(site, counters)| (report::line(self.program, site), counters));
        let mut by_line: std::collections::BTreeMap<_, tegula_interp::Counters> = Default::default();
        for (line, counters) in lines {
            *by_line.entry(line).or_default() += counters;
        }
        let recorder = partial.recorder.take().map(|mut recorder| {
            recorder.unplaced.extend(partial.findings.recorded.take().into_iter().flat_map(|(_, recent)| recent));
            *recorder
        });
        let mut diagnostics = partial.findings.into_vec();
        diagnostics.sort_by_key(|diagnostic| diagnostic.severity() != tegula_core::diagnostic::Severity::Error);
        let trace = recorder.map(|recorder| record::finish(self, recorder, &diagnostics));
        let outcome = Outcome {
            diagnostics,
            counters,
            lines: by_line.into_iter().collect(),
            output: partial.output.into_values().collect(),
            thread_instructions,
            completed: partial.completed,
            seed_dependent: None,
            atomic_sums: partial.atomic_sums,
            approximate: self.program.approximate.clone(),
        };
        (outcome, trace)
    }
}
