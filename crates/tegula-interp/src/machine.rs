//! A kernel with its arguments, ready to run.

use std::sync::atomic::AtomicU64;

use rustc_hash::FxHashMap;
use tegula_core::error::Result;
use tegula_core::progress::ProgressMeter;
use tegula_ir::launch::BoundArgument;
use tegula_ir::{Access, ArrayContents, Checked, Kernel, MemoryOrder, ParamKind, Scope, Site, SiteId};

use super::access_summary::AccessSummary;
use super::agent::{AsyncAgents, copy_unit_elements};
use super::launch::{Arg, Config};
use super::lower::lower;
use super::program::{ElementAddress, Instruction, LoweredOp, Program};

/// A kernel with its arguments, ready to run.
pub(super) struct Machine<'a> {
    pub kernel: &'a Kernel,
    pub program: Program,
    pub args: &'a [Arg<'a>],
    pub config: &'a Config,
    pub grid: [u32; 3],
    /// For each writable parameter, the accesses to its elements, if blocks are independent.
    pub access_summaries: Vec<Option<AccessSummary>>,
    /// Whether shadow memory records every reader, not only three for each element.
    pub track_all_readers: bool,
    /// Whether blocks may wait for each other.
    pub cooperative: bool,
    /// Whether the program has operations that only Hopper has.
    pub uses_hopper: bool,
    pub agents: AsyncAgents,
    /// For each parameter, the first parameter bound to the same memory.
    pub allocations: Vec<usize>,
    /// For each parameter, whether it is read-only in the kernel and bound to writable memory.
    pub read_only: Vec<bool>,
    /// The scope of each strong access, and whether it is atomic.
    pub strong_accesses: FxHashMap<SiteId, (Scope, bool)>,
    /// Elements of each shared array that share a shadow cell.
    ///
    /// Eight rows, where only bulk copies and matrix instructions access them.
    pub granules: Vec<usize>,
    /// Receiver of progress reports, and the number of finished blocks.
    pub meter: Option<(&'a ProgressMeter<'a>, AtomicU64)>,
}

impl<'a> Machine<'a> {
    pub fn new(kernel: &'a Checked<Kernel>, args: &'a [Arg<'a>], config: &'a Config) -> Result<Self> {
        let bound: Vec<BoundArgument> = args
            .iter()
            .map(|arg| match *arg {
                Arg::Matrix(buffer) => buffer.bound(),
                Arg::Scalar { ty, bits } => BoundArgument::Scalar { ty, bits },
            })
            .collect();
        let grid = kernel.bind(&bound, &config.device)?;
        for (param, arg) in kernel.params().iter().zip(args) {
            let written = matches!(param.kind, ParamKind::Matrix { access, .. } if access != Access::Read);
            if written && matches!(arg, Arg::Matrix(buffer) if !buffer.is_writable()) {
                let why = format!("parameter {} is written; bind it to Buffer::output or Buffer::in_out", param.name);
                return Err(tegula_core::Error::Launch { kernel: kernel.name().into(), why });
            }
        }
        let program = lower(kernel);
        let cooperative = program.code.iter().any(orders_blocks);
        let uses_hopper = program.code.iter().any(|code| matches!(code, Instruction::Hopper(_)));
        let track_all_readers = cooperative || uses_hopper || program.code.iter().any(synchronizes_finely);
        let granules = granules(kernel, &program);
        let allocations: Vec<_> =
            args.iter().map(|arg| args.iter().position(|first| first.is_same(arg)).unwrap_or(0)).collect();
        let access_summaries = args.iter().zip(&allocations).enumerate().map(|(param, (arg, &first))| match arg {
            Arg::Matrix(buffer) if config.races && !cooperative && buffer.is_writable() && param == first => {
                Some(AccessSummary::new(buffer.layout().shape.len().unwrap_or(0)))
            }
            _ => None,
        });
        let read_only = kernel.params().iter().zip(args).map(|(param, arg)| {
            let read = matches!(param.kind, ParamKind::Matrix { access: Access::Read, .. });
            let written = matches!(arg, Arg::Matrix(buffer) if buffer.is_writable());
            config.races && read && written && !kernel.uses_griddep_wait()
        });
        Ok(Machine {
            read_only: read_only.collect(),
            kernel,
            args,
            config,
            grid,
            access_summaries: access_summaries.collect(),
            track_all_readers,
            cooperative,
            uses_hopper,
            agents: AsyncAgents::of(kernel),
            allocations,
            strong_accesses: collect_strong_accesses(&program),
            granules,
            program,
            meter: None,
        })
    }

    pub fn with_progress(self, meter: Option<&'a ProgressMeter<'a>>) -> Self {
        Machine { meter: meter.map(|meter| (meter, AtomicU64::new(0))), ..self }
    }

    pub fn site(&self, pc: usize) -> Site {
        self.kernel.site(self.program.sites[pc])
    }

    /// Coordinates of a thread in its block.
    pub fn thread(&self, linear: u32) -> [u32; 3] {
        let [x, y, _] = self.kernel.block();
        [linear % x, linear / x % y, linear / x / y]
    }

    /// Coordinates of a block in the grid.
    pub fn block_id(&self, linear: u32) -> [u32; 3] {
        let [x, y, _] = self.grid;
        [linear % x, linear / x % y, linear / x / y]
    }

    /// Records an access of a block to an element of a matrix.
    pub fn record_access(&self, param: usize, index: usize, block: u64, lane: u16, site: SiteId, write: bool) {
        let Some(access_summaries) = &self.access_summaries[self.allocations[param]] else { return };
        access_summaries.record(index, block, lane, site, write);
    }
}

fn orders_blocks(code: &Instruction) -> bool {
    use ElementAddress::Global;
    matches!(code, Instruction::Atomic { at: Global { .. }, .. } | Instruction::WaitUntil { at: Global { .. }, .. })
        || matches!(code, Instruction::Load { at: Global { .. }, order, .. } | Instruction::Store { at: Global { .. }, order, .. }
            if *order != MemoryOrder::Weak)
}

/// Collects the scope of each strong access, and whether it is atomic.
fn collect_strong_accesses(program: &Program) -> FxHashMap<SiteId, (Scope, bool)> {
    let accesses = program.code.iter().zip(&program.sites).filter_map(|(code, &site)| match *code {
        Instruction::Atomic { scope, .. } => Some((site, (scope, true))),
        Instruction::Load { order, scope, .. } | Instruction::Store { order, scope, .. }
            if order != MemoryOrder::Weak =>
        {
            Some((site, (scope, false)))
        }
        Instruction::WaitUntil { scope, .. } => Some((site, (scope, false))),
        _ => None,
    });
    accesses.collect()
}

fn synchronizes_finely(code: &Instruction) -> bool {
    match code {
        Instruction::NamedBarrier { .. }
        | Instruction::Fence { .. }
        | Instruction::Atomic { .. }
        | Instruction::WaitUntil { .. } => true,
        Instruction::SyncWarp { mask } => *mask != u32::MAX,
        Instruction::Load { order, .. } | Instruction::Store { order, .. } => *order != MemoryOrder::Weak,
        _ => false,
    }
}

/// Number of elements of each shared array that share a shadow cell.
fn granules(kernel: &Kernel, program: &Program) -> Vec<usize> {
    let mut granules: Vec<_> = kernel
        .shared()
        .iter()
        .map(|array| match (array.contents, &array.dims[..]) {
            (ArrayContents::Tiles(_), &[_, rows, _]) if rows % 8 == 0 => copy_unit_elements(array) as usize,
            _ => 1,
        })
        .collect();
    for code in &program.code {
        let at = match code {
            Instruction::Load { at, .. }
            | Instruction::Store { at, .. }
            | Instruction::Atomic { at, .. }
            | Instruction::WaitUntil { at, .. } => at,
            Instruction::CopyAsync { to, .. } => to,
            Instruction::LoadMatrix { at, .. } => at,
            Instruction::Hopper(op) => match &**op {
                LoweredOp::StoreMatrix { to, .. } => to,
                _ => continue,
            },
            _ => continue,
        };
        if let ElementAddress::Shared { array, .. } = at {
            granules[array.index()] = 1;
        }
    }
    granules
}
