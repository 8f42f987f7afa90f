//! Compiles CUDA C++, and takes the names and types of parameters from its source.

use std::io::Write;
use std::path::Path;

use tegula_ptx::Module;
use tegula_ptx::cuda::{self, CompileError, CompileOptions, KernelSource, ParamType};

use super::signature::ParameterType;
use super::source::{Declaration, ProposedLaunch, Source};
use crate::args::FileOptions;
use crate::failure::{Failure, Result};

/// Compiles a program and finds the kernel of the options, or the only one.
///
/// # Errors
/// Errors of the compiler, whose messages are printed, and a missing or ambiguous kernel.
pub fn compile(path: &Path, file: String, text: String, options: &FileOptions) -> Result<Source> {
    let name = options.kernel.as_deref();
    let mut compilation = CompileOptions {
        defines: options.defines.clone(),
        includes: options.includes.clone(),
        standard: options.std.clone(),
        kernel: options.kernel.clone(),
        ..CompileOptions::default()
    };
    if let Some(arch) = &options.arch {
        compilation.arch.clone_from(arch);
    }
    let compiled = cuda::compile(path, &text, &compilation).map_err(|error| failure(&file, error))?;
    show(&compiled.log);
    let kernel = cuda::choose(path, &compiled.kernels, name).map_err(|error| failure(&file, error))?;
    let Some(declaration) = declaration(kernel) else {
        let name = &kernel.name;
        let message = format!(
            "{file}: {name} is a template<{}>; name an instance, such as --kernel '{name}<16>'",
            kernel.template_params.join(", ")
        );
        return Err(Failure::new(message));
    };
    let ptx = if path.is_absolute() { compiled.ptx } else { relative(&compiled.ptx) };
    let module =
        Module::parse(&ptx).map_err(|error| Failure::new(format!("{file}: PTX of {}: {error}", compiled.compiler)))?;
    Source::new(file, text, ptx, Some(compiled.compiler), module, declaration)
}

/// Makes the absolute paths of `.file` directives relative to the working directory.
fn relative(ptx: &str) -> String {
    let Ok(directory) = std::env::current_dir() else { return ptx.to_owned() };
    let prefix = format!("\"{}/", directory.display());
    let line = |line: &str| match line.trim_start().starts_with(".file") {
        true => line.replacen(&prefix, "\"", 1),
        false => line.to_owned(),
    };
    ptx.split_inclusive('\n').map(line).collect()
}

/// Prints the compiler's messages, without control characters.
fn show(log: &str) {
    let harmless = |c: char| if c.is_control() && c != '\n' && c != '\t' { '?' } else { c };
    let log: String = log.trim_end().chars().map(harmless).collect();
    if !log.is_empty() {
        let _ = writeln!(anstream::stderr(), "{log}");
    }
}

fn failure(file: &str, error: CompileError) -> Failure {
    match &error {
        CompileError::Rejected { .. } => {
            show(&error.to_string());
            Failure::new(format!("{file}: the compiler found errors"))
        }
        // These messages contain the file already, or do not concern it.
        CompileError::NoKernels { .. }
        | CompileError::UnknownKernel { .. }
        | CompileError::Ambiguous { .. }
        | CompileError::NoCompiler
        | CompileError::Named { .. }
        | CompileError::Library { .. } => Failure::new(error.to_string()),
        _ => Failure::new(format!("{file}: {error}")),
    }
}

/// A kernel as its source declares it; `None` if it has no symbol.
fn declaration(kernel: &KernelSource) -> Option<Declaration> {
    let ty = |ty: ParamType| match ty {
        ParamType::Pointer(element) => ParameterType::Pointer(element),
        ParamType::Scalar(scalar) => ParameterType::Scalar(scalar),
        ParamType::Unknown => ParameterType::Structure,
    };
    let launch = |launch: &cuda::ProposedLaunch| ProposedLaunch {
        grid: launch.grid,
        block: launch.block,
        shared: launch.shared,
        line: launch.line,
    };
    Some(Declaration {
        name: kernel.name.clone(),
        symbol: kernel.symbol.clone()?,
        params: kernel.params.iter().map(|param| (param.name.clone(), ty(param.ty))).collect(),
        launches: kernel.launches.iter().map(launch).collect(),
    })
}
