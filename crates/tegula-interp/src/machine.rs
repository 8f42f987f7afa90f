//! A kernel with its arguments, ready to run.

use std::sync::atomic::AtomicU64;

use rustc_hash::FxHashMap;
use tegula_core::error::Result;
use tegula_core::progress::Meter;
use tegula_ir::launch::Bound;
use tegula_ir::{Access, Checked, Holds, Kernel, Order, ParamKind, Scope, Site, SiteId};

use super::agent::{Agents, part_elements};
use super::launch::{Arg, Config};
use super::lower::lower;
use super::owners::Owners;
use super::program::{Act, At, Code, Program};

/// A kernel with its arguments, ready to run.
pub(super) struct Machine<'a> {
    pub kernel: &'a Kernel,
    pub program: Program,
    pub args: &'a [Arg<'a>],
    pub config: &'a Config,
    pub grid: [u32; 3],
    /// For each parameter that may be written: which block wrote and which blocks read each
    /// element, for kernels whose blocks run independently.
    pub owners: Vec<Option<Owners>>,
    /// Whether every reader must be remembered, not only three an element.
    pub every_reader: bool,
    /// Whether blocks may wait for each other.
    pub cooperative: bool,
    /// Whether there is anything that only Hopper has, and who works beside the threads then.
    pub hopper: bool,
    pub agents: Agents,
    /// For each parameter the first that is bound to the same memory.
    pub memory: Vec<usize>,
    /// For each parameter, whether it is printed as read-only and bound to memory that may be
    /// written.
    pub read_only: Vec<bool>,
    /// The scope of each ordered access, and whether it is atomic.
    pub ordered: FxHashMap<SiteId, (Scope, bool)>,
    /// Elements of each shared array that are remembered together: those of eight rows where only
    /// copies and matrix instructions touch them.
    pub granules: Vec<usize>,
    /// Who is told of finished blocks, and how many there are.
    pub meter: Option<(&'a Meter<'a>, AtomicU64)>,
}

impl<'a> Machine<'a> {
    pub fn new(kernel: &'a Checked<Kernel>, args: &'a [Arg<'a>], config: &'a Config) -> Result<Self> {
        let bound: Vec<Bound> = args
            .iter()
            .map(|arg| match *arg {
                Arg::Matrix(buffer) => buffer.bound(),
                Arg::Scalar { ty, bits } => Bound::Scalar { ty, bits },
            })
            .collect();
        let grid = kernel.bind(&bound, &config.device)?;
        for (param, arg) in kernel.params().iter().zip(args) {
            let written = matches!(param.kind, ParamKind::Matrix { access, .. } if access != Access::Read);
            if written && matches!(arg, Arg::Matrix(buffer) if !buffer.is_writable()) {
                let why = format!("parameter {} is written; give it Buffer::output or Buffer::in_out", param.name);
                return Err(tegula_core::Error::Launch { kernel: kernel.name().into(), why });
            }
        }
        let program = lower(kernel);
        let cooperative = program.code.iter().any(waits_for_others);
        let hopper = program.code.iter().any(|code| matches!(code, Code::Hopper(_)));
        let every_reader = cooperative || hopper || program.code.iter().any(synchronises_finely);
        let granules = granules(kernel, &program);
        let memory: Vec<_> =
            args.iter().map(|arg| args.iter().position(|first| first.is_same(arg)).unwrap_or(0)).collect();
        let owners = args.iter().zip(&memory).enumerate().map(|(param, (arg, &first))| match arg {
            Arg::Matrix(buffer) if config.races && !cooperative && buffer.is_writable() && param == first => {
                Some(Owners::new(buffer.layout().shape.len().unwrap_or(0)))
            }
            _ => None,
        });
        let read_only = kernel.params().iter().zip(args).map(|(param, arg)| {
            let read = matches!(param.kind, ParamKind::Matrix { access: Access::Read, .. });
            let written = matches!(arg, Arg::Matrix(buffer) if buffer.is_writable());
            config.races && read && written && !kernel.starts_early()
        });
        Ok(Machine {
            read_only: read_only.collect(),
            kernel,
            args,
            config,
            grid,
            owners: owners.collect(),
            every_reader,
            cooperative,
            hopper,
            agents: Agents::of(kernel),
            memory,
            ordered: ordered_accesses(&program),
            granules,
            program,
            meter: None,
        })
    }

    pub fn told_to(self, meter: Option<&'a Meter<'a>>) -> Self {
        Machine { meter: meter.map(|meter| (meter, AtomicU64::new(0))), ..self }
    }

    pub fn site(&self, pc: usize) -> Site {
        self.kernel.site(self.program.sites[pc])
    }

    /// A thread's position in its block.
    pub fn thread(&self, linear: u32) -> [u32; 3] {
        let [x, y, _] = self.kernel.block();
        [linear % x, linear / x % y, linear / x / y]
    }

    /// A block's position in the grid.
    pub fn block_id(&self, linear: u32) -> [u32; 3] {
        let [x, y, _] = self.grid;
        [linear % x, linear / x % y, linear / x / y]
    }

    /// Notes that a block uses an element of a matrix.
    pub fn own(&self, param: usize, index: usize, block: u64, lane: u16, site: SiteId, write: bool) {
        let Some(owners) = &self.owners[self.memory[param]] else { return };
        owners.note(index, block, lane, site, write);
    }
}

fn waits_for_others(code: &Code) -> bool {
    use At::Global;
    matches!(code, Code::Atomic { at: Global { .. }, .. } | Code::WaitUntil { at: Global { .. }, .. })
        || matches!(code, Code::Load { at: Global { .. }, order, .. } | Code::Store { at: Global { .. }, order, .. }
            if *order != Order::Weak)
}

/// The scope of each site with an ordered access, and whether that is atomic.
fn ordered_accesses(program: &Program) -> FxHashMap<SiteId, (Scope, bool)> {
    let accesses = program.code.iter().zip(&program.sites).filter_map(|(code, &site)| match *code {
        Code::Atomic { scope, .. } => Some((site, (scope, true))),
        Code::Load { order, scope, .. } | Code::Store { order, scope, .. } if order != Order::Weak => {
            Some((site, (scope, false)))
        }
        Code::WaitUntil { scope, .. } => Some((site, (scope, false))),
        _ => None,
    });
    accesses.collect()
}

fn synchronises_finely(code: &Code) -> bool {
    match code {
        Code::NamedBarrier { .. } | Code::Fence { .. } | Code::Atomic { .. } | Code::WaitUntil { .. } => true,
        Code::SyncWarp { mask } => *mask != u32::MAX,
        Code::Load { order, .. } | Code::Store { order, .. } => *order != Order::Weak,
        _ => false,
    }
}

/// How many elements of each shared array are remembered together.
fn granules(kernel: &Kernel, program: &Program) -> Vec<usize> {
    let mut granules: Vec<_> = kernel
        .shared()
        .iter()
        .map(|array| match (array.holds, &array.dims[..]) {
            (Holds::Tiles(_), &[_, rows, _]) if rows % 8 == 0 => part_elements(array) as usize,
            _ => 1,
        })
        .collect();
    for code in &program.code {
        let at = match code {
            Code::Load { at, .. } | Code::Store { at, .. } | Code::Atomic { at, .. } | Code::WaitUntil { at, .. } => at,
            Code::CopyAsync { to, .. } => to,
            Code::LoadMatrix { at, .. } => at,
            Code::Hopper(act) => match &**act {
                Act::StoreMatrix { to, .. } => to,
                _ => continue,
            },
            _ => continue,
        };
        if let At::Shared { array, .. } = at {
            granules[array.index()] = 1;
        }
    }
    granules
}
