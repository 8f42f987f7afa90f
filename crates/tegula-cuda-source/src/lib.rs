//! CUDA C++: compiles a `.cu` file, which may contain host code, to PTX, and reads its kernels.
//!
//! [`compile`] runs NVRTC, nvcc or clang. [`kernels`] parses the source without a compiler.

// Without a compiler, the code that prepares its input is unused.
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
mod scalar_type;
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

pub use scalar_type::ScalarType;

/// Options of a compilation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileOptions {
    /// `-D`: `NAME` or `NAME=VALUE`.
    pub defines: Vec<String>,
    /// `-I`: folders of headers.
    pub includes: Vec<PathBuf>,
    /// The architecture, such as `sm_80`.
    pub arch: String,
    /// The C++ standard, such as `c++17`; `None` for the default of the compiler.
    pub standard: Option<String>,
    /// The required kernel: a name, or an instance of a template such as `tiled<16>`, which is then
    /// instantiated.
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
    /// The PTX, with the source line of each instruction (`.loc`).
    pub ptx: String,
    /// The kernels, in the order of the source.
    pub kernels: Vec<KernelSource>,
    /// The compiler, such as `NVRTC 13.5`.
    pub compiler: String,
    /// Warnings of the compiler; empty without warnings.
    pub log: String,
}

/// A kernel, or an instance of a template.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelSource {
    /// The C++ name, with namespaces and template arguments: `ns::tiled<16>`.
    pub name: String,
    /// The name of the `.entry` in the PTX; `None` for a template without instances.
    pub symbol: Option<String>,
    /// The file that defines it: the program, or a header beside it.
    pub file: PathBuf,
    /// The line of its name, from 1.
    pub line: u32,
    /// The last line of its definition.
    pub last_line: u32,
    /// The parameters.
    pub params: Vec<Param>,
    /// Template parameters, as written; empty if it is not a template.
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
    /// Whether it is a pointer to `const`.
    pub is_const: bool,
    /// The type as written.
    pub text: String,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamType {
    /// A pointer to elements of this type. A vector type is replaced by its component: `float4*` is
    /// a pointer to `f32`. `None` for other types, such as structures.
    Pointer(Option<ScalarType>),
    /// A number; `bool` is `u8`, an enumeration is its underlying type.
    Scalar(ScalarType),
    /// A structure or vector by value, or an unknown type.
    Unknown,
}

/// A launch in host code. Values that are not compile-time constants are `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct ProposedLaunch {
    /// Blocks along x, y and z.
    pub grid: Option<[u32; 3]>,
    /// Threads of a block along x, y and z.
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
    /// `TEGULA_NVRTC` does not name NVRTC.
    #[error("TEGULA_NVRTC={}: {reason}; set it to libnvrtc or its folder", path.display())]
    Named {
        /// Its value.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// NVRTC was found but cannot be loaded, and no other compiler was found.
    #[error("{}: {reason}; install it again, or set TEGULA_NVRTC to another libnvrtc", path.display())]
    Library {
        /// The library.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The compiler does not support the architecture.
    #[error("{arch}: {compiler} has {}; choose one of them", known.join(", "))]
    Architecture {
        /// The architecture.
        arch: String,
        /// The compiler.
        compiler: String,
        /// The supported architectures.
        known: Vec<String>,
    },
    /// The compiler reported errors.
    #[error("{log}{}", notes.iter().map(|note| format!("\nnote: {note}")).collect::<String>())]
    Rejected {
        /// The compiler's messages.
        log: String,
        /// Advice on how to fix them.
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
    /// The compiler failed for another reason than an error in the program.
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
    /// No kernel has this name.
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
    /// The name of a template without arguments, if the program does not have exactly one instance.
    #[error("{name} is a template<{params}>; name an instance, such as --kernel '{example}'")]
    Template {
        /// The kernel.
        name: String,
        /// Its parameters.
        params: String,
        /// An instance.
        example: String,
    },
    /// Invalid template arguments.
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
    /// Several kernels match, or no name was given.
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
/// `text` is the content of `path`. Headers are searched beside `path`. Host code is removed first.
///
/// # Errors
/// If no compiler is found, if it reports errors, or if the kernel of the options does not exist.
#[cfg(not(target_arch = "wasm32"))]
pub fn compile(path: &Path, text: &str, options: &CompileOptions) -> Result<Compiled, CompileError> {
    driver::compile(find::compiler()?, path, text, options)
}

/// Reads the kernels of a program without a compiler, so they have no symbols.
///
/// # Errors
/// If the program has no kernels, or if the kernel of the options does not exist.
pub fn kernels(path: &Path, text: &str, options: &CompileOptions) -> Result<Vec<KernelSource>, CompileError> {
    let source = source::Source::read(path, text, options, &source::Target::default());
    let requested = source.request(options.kernel.as_deref())?;
    Ok(source.list(requested.as_ref(), &mut |_, _| None))
}

/// Chooses a kernel from a list: by its name; without a name, the only one.
///
/// Namespaces can be omitted, and template arguments if the template has one instance. The name can
/// also be the symbol.
///
/// # Errors
/// If no kernel matches, or if several do.
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

/// The C++ name of a symbol in PTX: `ns::tiled<16>` for `_ZN2ns5tiledILi16EEEvPf`.
///
/// `None` if it is not mangled.
pub fn demangle(symbol: &str) -> Option<String> {
    mangle::demangle(symbol).map(|name| name.to_string())
}
