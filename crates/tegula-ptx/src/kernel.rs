//! A kernel of a module, ready to be launched.

use std::collections::BTreeMap;

use tegula_core::diagnostic::FindingKind;

use crate::ast::{self, ScalarType};
use crate::error::{LowerError, PtxError};
use crate::launch::{Buffer, Config, Diagnostic, Launch, LaunchError, Outcome, SourceLine};
use crate::lower::{ModuleVariable, lower};
use crate::program::Program;
use crate::schedule;
use crate::trace::{Trace, TraceFilter};

/// A PTX module.
///
/// ```
/// use tegula_ptx::{Argument, Buffer, Config, Launch, Module};
///
/// let ptx = "
///     .version 8.0
///     .target sm_80
///     .address_size 64
///     .visible .entry double(.param .u64 values)
///     {
///         .reg .b32 %r<2>;
///         .reg .f32 %f<3>;
///         .reg .b64 %rd<4>;
///         ld.param.u64 %rd1, [values];
///         mov.u32 %r1, %tid.x;
///         mul.wide.u32 %rd2, %r1, 4;
///         add.s64 %rd3, %rd1, %rd2;
///         ld.global.f32 %f1, [%rd3];
///         add.rn.f32 %f2, %f1, %f1;
///         st.global.f32 [%rd3], %f2;
///         ret;
///     }";
/// let module = Module::parse(ptx)?;
/// let kernel = module.kernel("double")?;
/// let mut buffers = [Buffer::f32("values", &[1.0, 2.0, 3.0])];
/// let launch = Launch::new([1, 1, 1], [3, 1, 1], vec![Argument::buffer(0)]);
/// let outcome = kernel.run(&launch, &mut buffers, &Config::default())?;
/// assert!(outcome.error().is_none());
/// assert_eq!(buffers[0].to_f32().unwrap(), [2.0, 4.0, 6.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Module {
    ast: ast::Module,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelParam {
    /// Name in the PTX.
    pub name: String,
    /// Type; `B8` for a structure.
    pub ty: ScalarType,
    /// Size in bytes.
    pub bytes: u32,
}

impl Module {
    /// Parses the text of a module.
    ///
    /// # Errors
    /// [`PtxError::Parse`] with line and column.
    pub fn parse(text: &str) -> Result<Self, PtxError> {
        Ok(Module { ast: crate::parse::module(text)? })
    }

    /// The syntax tree.
    pub fn ast(&self) -> &ast::Module {
        &self.ast
    }

    /// The names of the kernels, in source order.
    pub fn kernels(&self) -> Vec<&str> {
        let kernels = self.ast.functions.iter().filter(|function| function.entry && function.body.is_some());
        kernels.map(|function| function.name.as_str()).collect()
    }

    /// Lowers a kernel, with the functions that it calls.
    ///
    /// # Errors
    /// [`PtxError::NoKernel`] if the module has no kernel of this name, and [`PtxError::Lower`] for
    /// an instruction that is not supported, with its line.
    pub fn kernel(&self, name: &str) -> Result<Kernel, PtxError> {
        if !self.kernels().contains(&name) {
            let kernels = self.kernels().into_iter().map(String::from).collect();
            return Err(PtxError::NoKernel { name: name.into(), kernels });
        }
        let (program, variables) = lower(&self.ast, name)?;
        Ok(Kernel { program, variables })
    }
}

/// A kernel that is ready to be launched.
#[derive(Debug)]
pub struct Kernel {
    program: Program,
    variables: Vec<ModuleVariable>,
}

impl Kernel {
    /// Its name in the PTX.
    pub fn name(&self) -> &str {
        &self.program.kernel.name
    }

    /// Its parameters.
    pub fn params(&self) -> Vec<KernelParam> {
        let params = self.program.kernel.params.iter();
        params.map(|p| KernelParam { name: p.name.clone(), ty: p.ty, bytes: p.bytes }).collect()
    }

    /// The variables of its module in global and constant memory: name, type, and bytes.
    pub fn variables(&self) -> impl Iterator<Item = (&str, ScalarType, usize)> {
        self.variables.iter().map(|variable| (variable.name.as_str(), variable.ty, variable.bytes.len()))
    }

    /// Bytes of static shared memory.
    pub fn static_shared(&self) -> u32 {
        self.program.static_shared
    }

    /// Runs a launch, and writes its results to the buffers.
    ///
    /// # Errors
    /// [`LaunchError`] for arguments, a grid or a block that the kernel or a GPU does not accept.
    /// Errors of the kernel itself are diagnostics of the [`Outcome`].
    pub fn run(&self, launch: &Launch, buffers: &mut [Buffer], config: &Config) -> Result<Outcome, LaunchError> {
        Ok(schedule::run((&self.program, &self.variables), launch, buffers, config, None)?.0)
    }

    /// Runs a launch, records the steps of one of its blocks, and writes results to the buffers.
    ///
    /// # Errors
    /// Those of [`Kernel::run`], and [`LaunchError`] for a block outside the grid.
    pub fn trace(
        &self,
        launch: &Launch,
        buffers: &mut [Buffer],
        config: &Config,
        filter: &TraceFilter,
    ) -> Result<(Outcome, Trace), LaunchError> {
        if (0..3).any(|axis| filter.block[axis] >= launch.grid[axis]) {
            let message = format!("block {:?} is out of range: the grid is {:?}", filter.block, launch.grid);
            return Err(LaunchError { kernel: self.name().into(), message });
        }
        // A concurrent block could change a value between its access and the recording.
        let config = Config { checks: true, counters: true, parallel: false, ..config.clone() };
        let program = (&self.program, &self.variables[..]);
        let (outcome, trace) = schedule::run(program, launch, buffers, &config, Some(filter))?;
        Ok((outcome, trace.unwrap_or_default()))
    }

    /// Runs a launch with `seeds` consecutive seeds from `config.seed`, and merges the diagnostics.
    ///
    /// Results and counters are those of the first seed. [`Outcome::seed_dependent`] names a buffer
    /// whose bits depend on the seed, such as a floating-point sum of atomic additions. A run that
    /// makes no progress or exceeds the step limit is the last.
    ///
    /// # Errors
    /// Those of [`Kernel::run`].
    pub fn check(
        &self,
        launch: &Launch,
        buffers: &mut [Buffer],
        config: &Config,
        seeds: u64,
    ) -> Result<Outcome, LaunchError> {
        let inputs = buffers.to_vec();
        let mut outcome = self.run(launch, buffers, config)?;
        let mut found: BTreeMap<(FindingKind, Vec<SourceLine>), Diagnostic> = BTreeMap::new();
        let mut diagnostics = std::mem::take(&mut outcome.diagnostics);
        let mut differs = None;
        for seed in 1..seeds.max(1) {
            if !outcome.completed && diagnostics.iter().any(|found| found.kind == FindingKind::NoProgress) {
                break;
            }
            let mut again = inputs.clone();
            let config = Config { seed: config.seed.wrapping_add(seed), counters: false, ..config.clone() };
            let other = self.run(launch, &mut again, &config)?;
            outcome.completed &= other.completed;
            let different = buffers.iter().zip(&again).find(|(one, other)| one.bytes != other.bytes);
            differs = differs.or(different.map(|(buffer, _)| (buffer.name.clone(), seed)));
            diagnostics.extend(other.diagnostics);
        }
        for diagnostic in diagnostics {
            let key = (diagnostic.kind, diagnostic.lines.clone());
            // Diagnostics of the same kind and lines are reported once, as the first seed has them.
            found.entry(key).or_insert(diagnostic);
        }
        outcome.diagnostics = found.into_values().collect();
        outcome.diagnostics.sort_by_key(|diagnostic| {
            std::cmp::Reverse(diagnostic.severity() == tegula_core::diagnostic::Severity::Error)
        });
        outcome.seed_dependent = differs;
        Ok(outcome)
    }
}

impl From<LowerError> for PtxError {
    fn from(error: LowerError) -> Self {
        PtxError::Lower(error)
    }
}
