//! CUDA C++: from a `.cu` file, with its host program in it, to PTX and the signatures of kernels.
//!
//! [`compile`] needs a compiler: NVRTC, nvcc or clang. [`kernels`] only reads text.

// Without compilers, what prepares text for them is not used.
#![cfg_attr(target_arch = "wasm32", allow(dead_code))]

mod blank;
mod calls;
mod constant;
mod declaration;
mod environment;
mod headers;
mod launch;
mod mangle;
mod preprocess;
mod signature;
mod source;
mod token;
mod types;

#[cfg(not(target_arch = "wasm32"))]
mod driver;
#[cfg(not(target_arch = "wasm32"))]
mod find;
#[cfg(not(target_arch = "wasm32"))]
mod nvrtc;
#[cfg(not(target_arch = "wasm32"))]
mod symbols;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::ast::ScalarType;

/// How to compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileOptions {
    /// `-D`: `NAME` or `NAME=VALUE`.
    pub defines: Vec<String>,
    /// `-I`: folders of headers.
    pub includes: Vec<PathBuf>,
    /// The architecture, such as `sm_80`.
    pub arch: String,
    /// The C++ standard, such as `c++17`; the compiler's default without one.
    pub standard: Option<String>,
    /// A kernel that has to be there: a name, or an instance of a template such as `tiled<16>`.
    pub kernel: Option<String>,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self { defines: Vec::new(), includes: Vec::new(), arch: "sm_80".to_owned(), standard: None, kernel: None }
    }
}

/// A compiled program.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// The PTX, with source lines.
    pub ptx: String,
    /// The kernels, in the order of the source.
    pub kernels: Vec<KernelSource>,
    /// The compiler, such as `NVRTC 13.5`.
    pub compiler: String,
    /// Warnings; empty if there are none.
    pub log: String,
}

/// A kernel, or an instance of a template.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelSource {
    /// The name as in the source, with namespaces and arguments: `ns::tiled<16>`.
    pub name: String,
    /// The `.entry` in the PTX; `None` for a template without instances.
    pub symbol: Option<String>,
    /// The file, if a header of the program has the kernel: its path is relative as the program's.
    pub file: PathBuf,
    /// The line of its name, from 1.
    pub line: u32,
    /// The line of its end.
    pub last_line: u32,
    /// The parameters.
    pub params: Vec<Param>,
    /// Parameters of the template, as written; empty if it is none.
    pub template_params: Vec<String>,
    /// Launches in the program's host code.
    pub launches: Vec<ProposedLaunch>,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name; `arg0` for the first if it has none.
    pub name: String,
    /// Its type.
    pub ty: ParamType,
    /// Whether it is a pointer to constants.
    pub is_const: bool,
    /// The type as written.
    pub text: String,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamType {
    /// A pointer and its element. Vectors count as their elements: `float4*` is a pointer to `f32`.
    /// `None` if the element is not known, such as a structure.
    Pointer(Option<ScalarType>),
    /// A number; `bool` is `u8`, an enumeration its integer.
    Scalar(ScalarType),
    /// A structure (also a vector) by value, or a type that is not known.
    Unknown,
}

/// A launch in host code. What is not constant is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct ProposedLaunch {
    /// Blocks along x, y and z.
    pub grid: Option<[u32; 3]>,
    /// Threads along x, y and z.
    pub block: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory.
    pub shared: Option<u32>,
    /// The kernel's arguments; empty if they are passed as an array.
    pub arguments: Vec<LaunchArgument>,
    /// The line of the launch, from 1.
    pub line: u32,
    /// The configuration as written, such as `<<<grid, block>>>`.
    pub text: String,
}

/// An argument of a launch in host code.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchArgument {
    /// As written.
    pub text: String,
    /// Its value, if it is a constant.
    pub value: Option<f64>,
}

/// An error of reading or compiling CUDA C++.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// Neither NVRTC nor nvcc nor clang was found.
    #[error(
        "no CUDA compiler found; run `pip install nvidia-cuda-nvrtc nvidia-cuda-runtime`, or set TEGULA_NVRTC to the \
         folder of libnvrtc"
    )]
    NoCompiler,
    /// `TEGULA_NVRTC` names something that is not NVRTC.
    #[error("TEGULA_NVRTC={}: {reason}; set it to libnvrtc or its folder", path.display())]
    Named {
        /// Its value.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A library was found but cannot be loaded, and no other compiler is there.
    #[error("{}: {reason}; install it again, or set TEGULA_NVRTC to another libnvrtc", path.display())]
    Library {
        /// The library.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The compiler does not know the architecture.
    #[error("{arch}: {compiler} has {}; choose one of them", known.join(", "))]
    Architecture {
        /// The architecture.
        arch: String,
        /// The compiler.
        compiler: String,
        /// Those that it knows.
        known: Vec<String>,
    },
    /// The compiler found errors; the log has them as they are.
    #[error("{log}{}", notes.iter().map(|note| format!("\nnote: {note}")).collect::<String>())]
    Rejected {
        /// The compiler's messages.
        log: String,
        /// What may help.
        notes: Vec<String>,
    },
    /// A header is missing.
    #[error("{}header {header} not found; {advice}", place.as_ref().map_or(String::new(), |place| format!("{place}: ")))]
    Header {
        /// The header.
        header: String,
        /// The file and line that include it.
        place: Option<String>,
        /// How to get it.
        advice: String,
    },
    /// The compiler itself failed.
    #[error("{compiler}: {reason}")]
    Compiler {
        /// The compiler.
        compiler: String,
        /// The reason.
        reason: String,
    },
    /// The program has no kernels.
    #[error("{}: no kernel found; mark one with __global__", path.display())]
    NoKernels {
        /// The file.
        path: PathBuf,
    },
    /// A name that is not one of the kernels.
    #[error(
        "unknown kernel \"{name}\"{}; {} has {}",
        suggestion.as_ref().map_or(String::new(), |known| format!(" (did you mean {known}?)")),
        path.display(),
        known.join(", ")
    )]
    UnknownKernel {
        /// The name.
        name: String,
        /// The file.
        path: PathBuf,
        /// The kernels.
        known: Vec<String>,
        /// The most similar one.
        suggestion: Option<String>,
    },
    /// A template without arguments, of which the program has no instance or several.
    #[error("{name} is a template<{params}>; name an instance, such as --kernel '{example}'")]
    Template {
        /// The kernel.
        name: String,
        /// Its parameters.
        params: String,
        /// An instance.
        example: String,
    },
    /// Arguments that the template does not take.
    #[error("{name}: {reason}; {kernel} is a template<{params}>")]
    Instance {
        /// The instance.
        name: String,
        /// The kernel.
        kernel: String,
        /// The reason.
        reason: String,
        /// Its parameters.
        params: String,
    },
    /// Several kernels and no name.
    #[error("{}: several kernels; choose one with --kernel: {}", path.display(), known.join(", "))]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// The kernels.
        known: Vec<String>,
    },
}

/// Compiles a program to PTX, with source lines.
///
/// `text` is the content of `path`; headers beside it are read from there. Host code is allowed.
///
/// # Errors
/// If no compiler is there, if it finds errors, or if the kernel of the options does not exist.
#[cfg(not(target_arch = "wasm32"))]
pub fn compile(path: &Path, text: &str, options: &CompileOptions) -> Result<Compiled, CompileError> {
    driver::compile(find::compiler()?, path, text, options)
}

/// Reads the kernels of a program without a compiler: they have no symbols.
///
/// # Errors
/// If it has none, or if the kernel of the options does not exist.
pub fn kernels(path: &Path, text: &str, options: &CompileOptions) -> Result<Vec<KernelSource>, CompileError> {
    let source = source::Source::read(path, text, options, &source::Target::default());
    let requested = source.request(options.kernel.as_deref())?;
    Ok(source.list(requested.as_ref(), &mut |_, _| None))
}

/// Chooses a kernel from a list: the one of a name, or the only one.
///
/// A name may lack its namespaces, or its arguments if the template has one instance. It may also
/// be the symbol.
///
/// # Errors
/// If no kernel has that name, or if none was named and there are several.
pub fn choose<'a>(
    path: &Path,
    kernels: &'a [KernelSource],
    name: Option<&str>,
) -> Result<&'a KernelSource, CompileError> {
    let known = || kernels.iter().map(|kernel| kernel.name.clone()).collect::<Vec<_>>();
    let Some(name) = name else {
        return match kernels {
            [] => Err(CompileError::NoKernels { path: path.to_owned() }),
            [only] => Ok(only),
            _ => Err(CompileError::Ambiguous { path: path.to_owned(), known: known() }),
        };
    };
    let found: Vec<&KernelSource> = kernels.iter().filter(|kernel| source::matches(kernel, name)).collect();
    match found[..] {
        [only] => Ok(only),
        [] => Err(source::unknown(path, name, known())),
        // Overloads have one name and differ in their symbols.
        _ => Err(CompileError::Ambiguous {
            path: path.to_owned(),
            known: found.iter().map(|kernel| kernel.symbol.clone().unwrap_or_else(|| kernel.name.clone())).collect(),
        }),
    }
}

/// The C++ name of a symbol in PTX: `_ZN2ns5tiledILi16EEEvPf` is `ns::tiled<16>`.
///
/// `None` if it is not mangled.
pub fn demangle(symbol: &str) -> Option<String> {
    mangle::demangle(symbol).map(|name| name.to_string())
}
