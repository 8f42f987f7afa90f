//! A launch that is ready to run: memory, parameters, and the schedule of its blocks.
//!
//! Independent blocks run one after the other on each core of the host. Blocks of a kernel with
//! atomic operations or ordered accesses on global memory run interleaved, as many as are resident.
//!
//! Accesses to a buffer are recorded for the race detector once the launch is known to write it: a
//! launch starts with the buffers that are uninitialized, and starts again when it writes another
//! one. So the inputs of a kernel, which are most of its accesses, cost nothing.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use rayon::prelude::*;
use tegula_interp::rules::{AccessSummary, GlobalShadow, mix, shuffle};

use crate::address::allocation_address;
use crate::ast::ScalarType;
use crate::block::Block;
use crate::launch::{Argument, Buffer, Config, Launch, LaunchError, Outcome};
use crate::lower::ModuleVariable;
use crate::memory::Storage;
use crate::partial::Partial;
use crate::program::{MbarrierOp, Op, Program};
use crate::report;
use crate::sizes;

/// Largest number of threads of a block, and of blocks along y and z.
const MAX_THREADS: u32 = 1024;
const MAX_BLOCKS_YZ: u32 = 65_535;
/// Largest shared memory of a block, in bytes: that of Hopper.
pub(crate) const MAX_SHARED: u32 = 232_448;

/// Threads and blocks that a multiprocessor holds.
const MAX_RESIDENT_THREADS: u32 = 2048;
const MAX_RESIDENT_BLOCKS: u32 = 32;
/// Blocks that run at a time before any of them waits for another.
const INTERLEAVED: usize = 16;

/// A piece of global memory: a variable of the module, or a buffer.
pub(crate) struct Allocation {
    pub name: String,
    pub ty: ScalarType,
    pub shape: Vec<u64>,
    pub storage: Storage,
    /// Whether the accesses to it are recorded.
    pub tracked: bool,
    pub constant: bool,
    /// The accesses of each block, if blocks are independent.
    pub summary: Option<AccessSummary>,
}

/// A launch that is ready to run.
pub(crate) struct Machine<'a> {
    pub program: &'a Program,
    pub launch: &'a Launch,
    pub config: &'a Config,
    pub allocations: Vec<Allocation>,
    /// The parameters of the kernel.
    pub params: Vec<u8>,
    pub threads: u32,
    pub shared_bytes: u32,
    /// Whether the program has strong accesses of different sizes.
    pub mixes_sizes: bool,
    /// Whether completions of `cp.async` copies arrive at mbarriers.
    pub copies_arrive: bool,
    /// An allocation that was written and is not tracked, plus one: the launch starts again.
    pub untracked_write: AtomicUsize,
}

/// Runs a launch; results are in the buffers afterwards.
pub(crate) fn run(
    (program, variables): (&Program, &[ModuleVariable]),
    launch: &Launch,
    buffers: &mut [Buffer],
    config: &Config,
) -> Result<Outcome, LaunchError> {
    let mut written: Vec<bool> =
        variables.iter().map(|_| false).chain(buffers.iter().map(|buffer| !buffer.initialized)).collect();
    loop {
        let machine = Machine::new((program, variables), launch, buffers, config, &written)?;
        let partial = machine.run_blocks();
        match machine.untracked_write.load(Relaxed) {
            0 => {
                for (buffer, allocation) in buffers.iter_mut().zip(&machine.allocations[variables.len()..]) {
                    buffer.bytes = allocation.storage.bytes();
                }
                return Ok(machine.outcome(partial));
            }
            allocation => written[allocation - 1] = true,
        }
    }
}

impl<'a> Machine<'a> {
    fn new(
        (program, variables): (&'a Program, &[ModuleVariable]),
        launch: &'a Launch,
        buffers: &[Buffer],
        config: &'a Config,
        written: &[bool],
    ) -> Result<Self, LaunchError> {
        let error = |message: String| LaunchError { kernel: program.kernel.name.clone(), message };
        let threads = check_limits(program, launch).map_err(error)?;
        let mut allocations = Vec::with_capacity(variables.len() + buffers.len());
        let short = |name: &str| error(format!("memory is short for {name}"));
        for variable in variables {
            let mut bytes = variable.bytes.clone();
            for value in launch.variables.iter().filter(|value| value.name == variable.name) {
                let Some(front) = bytes.get_mut(..value.bytes.len()) else {
                    let message = format!("{} bytes for {}, which has {}", value.bytes.len(), value.name, bytes.len());
                    return Err(error(message));
                };
                front.copy_from_slice(&value.bytes);
            }
            let storage = Storage::new(&bytes, true).ok_or_else(|| short(&variable.name))?;
            let shape = vec![bytes.len() as u64 / u64::from(variable.ty.size())];
            let constant = variable.space == crate::ast::StateSpace::Const;
            let (name, ty) = (variable.name.clone(), variable.ty);
            allocations.push(Allocation { name, ty, shape, storage, tracked: false, constant, summary: None });
        }
        if let Some(value) = launch.variables.iter().find(|v| variables.iter().all(|known| known.name != v.name)) {
            return Err(error(format!("the module has no variable {}", value.name)));
        }
        for buffer in buffers {
            let storage = Storage::new(&buffer.bytes, buffer.initialized).ok_or_else(|| short(&buffer.name))?;
            let (name, ty, shape) = (buffer.name.clone(), buffer.ty, buffer.shape.clone());
            allocations.push(Allocation { name, ty, shape, storage, tracked: false, constant: false, summary: None });
        }
        let granule = u64::from(program.granules[1]);
        for (allocation, &written) in allocations.iter_mut().zip(written) {
            allocation.tracked = config.checks && written;
            if allocation.tracked && !program.orders_blocks {
                allocation.summary = Some(AccessSummary::new(allocation.storage.len.div_ceil(granule) as usize));
            }
        }
        Ok(Machine {
            program,
            launch,
            config,
            params: parameters(program, launch, variables.len()).map_err(error)?,
            allocations,
            threads,
            shared_bytes: shared_bytes(program, launch),
            mixes_sizes: sizes::are_mixed(&program.code),
            copies_arrive: program.code.iter().any(|instruction| {
                matches!(instruction.op, Op::Mbarrier { op: MbarrierOp::CopyArrive { .. }, .. })
            }),
            untracked_write: AtomicUsize::new(0),
        })
    }

    fn run_blocks(&self) -> Partial {
        let blocks = self.launch.grid.iter().map(|&n| u64::from(n)).product::<u64>();
        let order: Vec<u64> = (0..blocks).collect();
        if self.program.orders_blocks {
            return self.run_interleaved(&order);
        }
        let empty = || Partial::new(self.program.code.len());
        let one = |mut partial: Partial, &block: &u64| {
            if !partial.stopped {
                self.run_block(block, &mut partial);
            }
            partial
        };
        if self.config.parallel && blocks > 1 && tegula_core::threads::count() > 1 {
            order.par_iter().fold(empty, one).reduce(empty, Partial::merge)
        } else {
            order.iter().fold(empty(), one)
        }
    }

    fn run_block(&self, linear: u64, partial: &mut Partial) {
        let mut block = Block::new(self, linear);
        let mut global = GlobalShadow::default();
        loop {
            let progress = self.advance(&mut block, &mut global, partial);
            if partial.stopped {
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
    /// A few run at a time; if all of them wait, more are started, as many as a GPU can hold.
    fn run_interleaved(&self, order: &[u64]) -> Partial {
        let mut partial = Partial::new(self.program.code.len());
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

    /// Number of blocks that the modeled GPU holds at a time.
    fn resident(&self) -> usize {
        let by_threads = MAX_RESIDENT_THREADS / self.threads.next_multiple_of(32).max(32);
        let by_shared = MAX_SHARED.checked_div(self.shared_bytes).unwrap_or(MAX_RESIDENT_BLOCKS);
        let per_multiprocessor = by_threads.min(by_shared).clamp(1, MAX_RESIDENT_BLOCKS);
        (self.config.multiprocessors.max(1) * per_multiprocessor) as usize
    }

    /// Coordinates of a thread in its block.
    pub fn thread(&self, linear: u32) -> [u32; 3] {
        let [x, y, _] = self.launch.block;
        [linear % x, linear / x % y, linear / x / y]
    }

    /// Coordinates of a block in the grid.
    pub fn block_id(&self, linear: u64) -> [u32; 3] {
        let [x, y, _] = self.launch.grid.map(u64::from);
        [linear % x, linear / x % y, linear / x / y].map(|i| i as u32)
    }

    fn outcome(&self, mut partial: Partial) -> Outcome {
        report::races_between_blocks(self, &mut partial);
        report::redundant_barriers(self, &mut partial);
        let (counters, lines, thread_instructions) = partial.summarize(self.program);
        let lines = lines.into_iter().map(|(site, counters)| (report::line(self.program, site), counters));
        let mut by_line: std::collections::BTreeMap<_, tegula_interp::Counters> = Default::default();
        for (line, counters) in lines {
            *by_line.entry(line).or_default() += counters;
        }
        let mut diagnostics = partial.findings.into_vec();
        diagnostics.sort_by_key(|diagnostic| diagnostic.severity() != tegula_core::diagnostic::Severity::Error);
        Outcome {
            diagnostics,
            counters,
            lines: by_line.into_iter().collect(),
            output: partial.output.into_values().collect(),
            thread_instructions,
            completed: partial.completed,
            seed_dependent: None,
            approximate: self.program.approximate.clone(),
        }
    }
}

/// Checks grid, block and shared memory against the limits; returns the threads of a block.
fn check_limits(program: &Program, launch: &Launch) -> Result<u32, String> {
    let [x, y, z] = launch.block.map(u64::from);
    let threads = x * y * z;
    if threads == 0 || launch.grid.contains(&0) {
        return Err(format!("grid {:?} and block {:?} must have at least one thread", launch.grid, launch.block));
    }
    if threads > u64::from(MAX_THREADS) || z > 64 {
        let limit = if z > 64 { "64 along z".into() } else { format!("{MAX_THREADS}") };
        return Err(format!("a block of {:?} has {threads} threads; the limit is {limit}", launch.block));
    }
    let [grid_x, grid_y, grid_z] = launch.grid;
    if grid_y > MAX_BLOCKS_YZ || grid_z > MAX_BLOCKS_YZ || grid_x > i32::MAX as u32 {
        return Err(format!("a grid of {:?} blocks; the limits are 2147483647, 65535 and 65535", launch.grid));
    }
    if u64::from(grid_x) * u64::from(grid_y) * u64::from(grid_z) > 1 << 31 {
        return Err(format!("a grid of {:?} has more than 2147483648 blocks", launch.grid));
    }
    let kernel = &program.kernel;
    if let Some(required) = kernel.required_block.filter(|&required| required != launch.block) {
        return Err(format!("a block of {:?}, where the kernel requires {required:?}", launch.block));
    }
    if let Some(max) = kernel.max_block.filter(|max| max.iter().map(|&n| u64::from(n)).product::<u64>() < threads) {
        return Err(format!("a block of {:?}, where the kernel allows {max:?} (`__launch_bounds__`)", launch.block));
    }
    let shared = shared_bytes(program, launch);
    if shared > MAX_SHARED {
        return Err(format!("{shared} bytes of shared memory; the limit is {MAX_SHARED}"));
    }
    Ok(threads as u32)
}

/// Bytes of shared memory of a block: static, then dynamic.
fn shared_bytes(program: &Program, launch: &Launch) -> u32 {
    let dynamic = program.shared.iter().skip(1).filter(|symbol| symbol.bytes.is_none());
    let start = dynamic.map(|symbol| symbol.offset).max().unwrap_or(program.static_shared);
    start.saturating_add(launch.shared)
}

/// The bytes of the parameters of the kernel.
fn parameters(program: &Program, launch: &Launch, first_buffer: usize) -> Result<Vec<u8>, String> {
    let params = &program.kernel.params;
    if params.len() != launch.arguments.len() {
        return Err(format!("{} arguments, where the kernel has {} parameters", launch.arguments.len(), params.len()));
    }
    let end = params.last().map_or(0, |last| last.offset + last.bytes);
    let mut bytes = vec![0; end as usize];
    for (number, (param, argument)) in params.iter().zip(&launch.arguments).enumerate() {
        let value = match argument {
            Argument::Buffer { index, offset } => {
                let address = allocation_address((first_buffer + index) as u32).wrapping_add_signed(*offset);
                address.to_le_bytes().to_vec()
            }
            Argument::Value(value) => value.clone(),
        };
        if value.len() != param.bytes as usize {
            let message = format!("argument {number} has {} bytes, where the parameter has {}", value.len(), param.bytes);
            return Err(message);
        }
        bytes[param.offset as usize..][..value.len()].copy_from_slice(&value);
    }
    Ok(bytes)
}
