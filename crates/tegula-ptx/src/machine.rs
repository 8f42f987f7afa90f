//! A launch that is ready to run: memory, parameters, and limits.
//!
//! The race detector tracks only buffers that the launch writes, since reads alone do not race. The
//! first run tracks the uninitialized buffers. A run that writes an untracked buffer is abandoned,
//! and the launch runs again with that buffer tracked. So accesses to inputs need no shadow memory.

use std::sync::atomic::{AtomicU64, AtomicUsize};

use tegula_interp::rules::AccessSummary;

use crate::address::allocation_address;
use crate::ast::ScalarType;
use crate::launch::{Argument, Buffer, Config, Launch, LaunchError};
use crate::lower::ModuleVariable;
use crate::memory::Storage;
use crate::program::Program;
use crate::properties::{are_mixed, copies_arrive};

/// Largest number of threads of a block, and of blocks along y and z.
const MAX_THREADS: u32 = 1024;
const MAX_BLOCKS_YZ: u32 = 65_535;
/// Largest shared memory of a block, in bytes: that of Hopper.
pub(crate) const MAX_SHARED: u32 = 232_448;

/// An allocation of global memory: a variable of the module, or a buffer.
pub(crate) struct Allocation {
    pub name: String,
    pub ty: ScalarType,
    pub shape: Vec<u64>,
    pub storage: Storage,
    /// Whether the race detector tracks its accesses.
    pub tracked: bool,
    pub constant: bool,
    /// A summary of the accesses of each block, if blocks are independent and it is tracked.
    pub summary: Option<AccessSummary>,
}

/// A launch that is ready to run.
pub(crate) struct Machine<'a> {
    pub program: &'a Program,
    pub launch: &'a Launch,
    pub config: &'a Config,
    pub allocations: Vec<Allocation>,
    /// The bytes of the parameters of the kernel.
    pub params: Vec<u8>,
    pub threads: u32,
    pub shared_bytes: u32,
    /// Whether the program has strong accesses of different sizes.
    pub mixes_sizes: bool,
    /// Whether the program has `cp.async.mbarrier.arrive`.
    pub copies_arrive: bool,
    /// An untracked allocation that was written, plus one: the launch must run again. 0 if none.
    pub untracked_write: AtomicUsize,
    /// The lowest block with a warp that exceeded the step limit; `u64::MAX` if none did. Blocks
    /// above it do not run on.
    pub endless: AtomicU64,
}

impl<'a> Machine<'a> {
    pub fn new(
        (program, variables): (&'a Program, &[ModuleVariable]),
        launch: &'a Launch,
        buffers: &[Buffer],
        config: &'a Config,
        written: &[bool],
    ) -> Result<Self, LaunchError> {
        let error = |message: String| LaunchError { kernel: program.kernel.name.clone(), message };
        let threads = check_limits(program, launch).map_err(error)?;
        let mut allocations = Vec::with_capacity(variables.len() + buffers.len());
        let short = |name: &str| error(format!("out of memory for {name}"));
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
            mixes_sizes: are_mixed(&program.code),
            copies_arrive: copies_arrive(&program.code),
            untracked_write: AtomicUsize::new(0),
            endless: AtomicU64::new(u64::MAX),
        })
    }

    /// Coordinates of a thread in its block, from its linear index.
    pub fn thread(&self, linear: u32) -> [u32; 3] {
        let [x, y, _] = self.launch.block;
        [linear % x, linear / x % y, linear / x / y]
    }

    /// Coordinates of a block in the grid, from its linear index.
    pub fn block_id(&self, linear: u64) -> [u32; 3] {
        let [x, y, _] = self.launch.grid.map(u64::from);
        [linear % x, linear / x % y, linear / x / y].map(|i| i as u32)
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

/// The bytes of the parameters of the kernel, from the arguments of the launch.
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
            let message =
                format!("argument {number} has {} bytes, where the parameter has {}", value.len(), param.bytes);
            return Err(message);
        }
        bytes[param.offset as usize..][..value.len()].copy_from_slice(&value);
    }
    Ok(bytes)
}
