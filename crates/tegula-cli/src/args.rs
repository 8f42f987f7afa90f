//! The command line: its grammar, its validation, and one-line messages for usage errors.

mod check_file;
mod explain;
mod explain_file;
mod products;
mod tune;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use check_file::{FileOptions, Output};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{ArgAction, Args, Parser, Subcommand, ValueHint};
pub use explain::ExplainArgs;
pub use explain_file::ExplainFileArgs;
pub use products::{ProductCase, ProductsArgs};
use tegula::Accuracy;
use tegula::element::Type;
use tegula::epilogue::{Activation, BiasShape, Epilogue};
use tegula_bench::Blas;
use tegula_files::{ArrayPath, Dtype};
use tegula_ir::Order2d;
use tegula_kernels::plan::{OperandLayout, Recipe};
use tegula_kernels::{INJECTED_BUGS, Mapping, NameSyntax, Plain, Variant};
pub use tune::TuneArgs;

use crate::check_target::{CheckTarget, CheckTargetParser, is_source_file};
use crate::failure::Failure;
use crate::interpreter_options::InterpreterOptions;
use crate::kernel::{KernelArg, KernelParser, Problem, bug_help, default_configuration};
use crate::whole_number::whole;

/// Tiled matrix multiplication on GPU and CPU.
#[derive(Debug, Parser)]
#[command(name = "tegula", version, about, after_help = EXAMPLES, max_term_width = 120)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Options for output besides results and errors.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct OutputOptions {
    /// Print results and errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Log to standard error in place of the progress bar; -vv logs more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
}

const EXAMPLES: &str = "\
Examples:
  tegula mul a.npy b.npy -o c.npy                   C = A·B on the best device
  tegula mul digits.npy digits.npy --tb --verify    a Gram matrix, verified
  tegula check tiled --inject missing-first-barrier find a race without a GPU
  tegula explain a.npy b.npy                        watch it, step by step
  tegula bench --m 1024:4096:1024 --vs cublaslt     compare with a peer library
  tegula tune --shapes model.txt                    autotune the kernels
  tegula kernels K6 --cuda                          print a kernel as CUDA C++
  tegula doctor                                     what works, what is missing

Environment: CUDA_CACHE_PATH is the driver's cache of assembled kernels. TEGULA_CACHE_DIR is the \
tuning cache, in place of $XDG_CACHE_HOME/tegula or ~/.cache/tegula. \
TEGULA_CPU=portable|avx2|avx512|vnni|avx512bf16|amx limits the CPU to an instruction set. \
TEGULA_LOG is a log filter in place of --verbose. NO_COLOR turns colors off.

Exit codes: 0 success; 1 failure; 2 usage: an unknown option or an invalid value.";

const MUL_EXAMPLES: &str = "\
Examples:
  tegula mul a.npy b.npy                            preview a corner of A·B
  tegula mul a.npy b.npy -o c.npy --verify          write C if it is correct
  tegula mul x.npy x.npy --ta -o xtx.npy            C = Xᵀ·X
  tegula mul a.npy b.npy --beta -1 --c c0.npy       C = A·B - C0
  tegula mul m.safetensors:w x.npy --cast f32       a matrix of a model
  tegula mul x.npy w.npy --bias b.npy               a layer; see --activation
  tegula mul a.mtx b.csv -o - > c.npy               formats mix; - is a pipe
  tegula mul a.npy b.npy --explain-plan             copies and their reasons

A, B, C0 and the bias are .npy, .npz (file.npz:name), .safetensors (file.safetensors:name), .mtx or \
.csv files with any number of axes: vectors and stacks multiply as in numpy.matmul. C is written in \
the format of its extension. Products are computed for f64, f32, f16, bf16, \
i32 (wrapping) and i8 (product in i32); other types are read for --cast.

--cast rounds floats to nearest, ties to even. Conversion to integers truncates fractions, clamps \
values out of range, and maps NaN to 0. A single - for both A and B is one array.

gelu is the tanh form, 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), which PyTorch calls \
approximate='tanh'. PyTorch's default is the erf form, which differs by up to 5e-4.

The object of --json has m, n, k, batch, shapes, dtype, result_dtype, accuracy, epilogue (none, or \
such as bias+gelu), gelu_form (tanh, or null without GELU), device, kernel, seconds and gflops (null \
for an empty product). With --verify it also has r, the largest error in units of \
u·(|alpha||A||B| + |beta||C0| + |bias|) times the greatest slope of the activation, where u is the \
unit roundoff of C's type, or of tf32, 2^-11, with --accuracy tf32; bound, the limit of r; worst, \
the index of r; and ok. r is null where no number measures the error, such as for an inexact \
integer; ok is then false.";

const CHECK_EXAMPLES: &str = "\
Examples:
  tegula check tiled --m 256 --n 256 --k 256        a product of your size
  tegula check K3 --json                            cost of uncoalesced loads
  tegula check tiled --inject no-guards             see an injected bug found
  tegula check K6 --seeds 64                        more inputs, warp orders
  tegula check register                             a family's default kernel
  tegula check limbs_64x32x32_warp32x16_thread16x8_stages3:4    with split-K
  tegula check K6 --metrics                         Nsight Compute's metrics
  tegula check K6 --assembled                       shared memory as assembled
  tegula check exercise-1                           is the exercise solved?
  tegula check exercises                            which exercises are solved
  tegula check my.cu --grid 4 --block 256 --arg x=f32[1000] --arg n=1000

An exercise is a kernel with a bug, in a file of exercises/ in Tegula's repository. Correct it \
there and run 'cargo exercise 1', which rebuilds that kernel alone and reports as 'check' does. The \
JSON object of an exercise also has goal: text, met, file, and next once it is met.

A kernel that is correct only at some sizes, such as K4, has a note with a check that fails; the \
JSON object then has caveat: text and command.

A sector is 32 bytes of global memory. A wavefront is one pass over the 32 banks of shared memory. \
fma counts multiply-adds of single threads; Nsight Compute counts those of f64 as dfma. The \
assembler merges adjacent loads into a wide one, which takes fewer wavefronts: the GPU counts as \
--assembled does. The JSON object then has assembled: gpu, and requests, wavefronts and conflicts \
of shared memory.

A .cu file is compiled by NVRTC, nvcc or clang, without its host code. The first launch in the \
host code with a constant grid and block is the default. --arg gives a parameter a value, by its \
name or by its number from 0:
  100  0x1f  1e-3  true  f64:2    a number
  f32[100,70]                     memory with normal random numbers; for integer
                                  types, random integers of 8 bits
  out:f32[9]                      uninitialized memory
  int:f32[9]  zero:f32[9]  one:f32[9]  range:f32[9]
                                  integers from -8 to 8, zeros, ones, 0 1 2 …
  f32:[1,2.5]                     elements
  a.npy  a.npz:x  f32:a.csv       a file, as for mul; with a type, converted
  @A                              the memory of the argument A
  {\"a\":2.5,\"n\":500}  [2.5,500]    a structure: its fields in order, with the
                                  types that the kernel loads, or \"f64:2.5\"
  hex:0000803f                    bytes
An element type can be omitted if the source declares it, as in out:[9]. Types are f64, f32, f16, \
bf16, i8 to i64, and u8 to u64.

--expect takes a formula such as 'C = A @ B.T + 2 * D', with the values of arguments before the \
launch: + - * /, @ (matrix product), .T, numbers, file:c.npy, abs, cumsum or scan, dot, exp, \
histogram(x, bins), log, max, maximum, mean, min, minimum, relu, softmax, sort, sqrt, sum, tanh and \
transpose. Shapes broadcast as in NumPy. max, mean, min and sum reduce all elements or an axis: \
sum(x, 0). cumsum, softmax and sort work along the last axis or the given one. A result may differ \
by the rounding errors that f32 arithmetic (for f64, f64 arithmetic) can make; integers wrap and \
must be equal.

The JSON object of a file has no m, n and k, but file, grid, block, shared, launch_line, \
thread_instructions, completed, compiler, approximate, seed_dependent, output, lines (file, line, \
inlined_at and counters), improvements (file, line, what, of, saved, message) and compared.

Exit code 1 also where the kernel is wrong or cannot be built, such as with --tile 33.";

const BENCH_EXAMPLES: &str = "\
Examples:
  tegula bench --m 512:4096:512 --dtype f32,f64     cubes, a row for each type
  tegula bench --m 4096 --n 1,16,64 --k 4096        skinny products
  tegula bench --shapes model.txt --vs cublaslt     against all of cublasLt
  tegula bench --m 4096 --layout nn,nt --json r.json --html r.html
  tegula bench --device cpu --threads 1 --vs mkl,openblas,onednn

SIZES are sizes and ranges START:END:STEP with END included: 512,1024:4096:1024. The lists of m, n, \
k and batch are zipped: each has the same number of sizes, or one for all; n and k default to m. A \
file of --shapes has a line per product, m n k or m n k batch, also as MxNxKxBATCH; # starts a \
comment.

Inputs are normal random numbers, in enough sets to exceed the GPU's cache. All candidates of a \
peer library are timed and the fastest is kept; then Tegula and the peer are timed interleaved in \
the same run. ratio is the peer's median time over Tegula's: above 1 Tegula is faster. spread is \
the noise floor, Tegula against itself in that run; a ratio closer to 1 than that is noise. r is \
the largest error, as for mul --verify; of large results, in a sample of their rows. cublasLt is \
measured with the same epilogue for f32, f16 and bf16, except SiLU; elsewhere an epilogue has no \
peer. gelu is the tanh form, PyTorch's approximate='tanh', not its default erf form.

The CPU has one set of inputs, and a sample counts where a loop of multiply-adds runs at full \
clock rate before and after it; discarded counts the others. --time includes warm-up and discarded \
samples. Libraries have Tegula's number of threads and layouts of A and B; their setup per problem \
is not timed. A function that keeps over 10 % more processors busy than Tegula has threads is not \
timed, and listed as excluded. Short types are computed by MKL (bf16 and f16 with a C of f32, \
rounded only to find r; i8 with A shifted to u8 beforehand, exact) and by oneDNN's matmul, i8 and \
matmul only with the default alpha and beta; no library computes i32. A library without the type is \
skipped; a row that no library computes has no peer.

The object of --json has machine, driver, version, peer, seed, command, copy_gbs, ceilings and \
rows. A row has dtype (tf32 for f32 with --accuracy tf32), layout, m, n, k, batch, epilogue, \
kernel, tflops, us, p20_us, p80_us, gbs, peer, peer_tflops, peer_us, peer_p20_us, peer_p80_us, \
candidates, ratio, spread, r, peer_r, bound, ok, rows_checked, input_sets, calls, rounds, \
segments, discarded, threads (of the CPU), others (the libraries' other candidates, each with peer \
and us), excluded (functions on too many threads, each with peer and processors), intensity, \
error, command and gelu_form (tanh, or null without GELU). Times are microseconds per call; \
missing values are null. --csv has the same columns. Files are replaced atomically after each row.

Environment: TEGULA_CUBLASLT, TEGULA_MKL, TEGULA_OPENBLAS, TEGULA_BLIS and TEGULA_ONEDNN are paths \
of the libraries. Exit code 1 also where a row could not be measured or its result is wrong.";

const KERNELS_EXAMPLES: &str = "\
Examples:
  tegula kernels                                    all kernels
  tegula kernels K3 --tile 32                       block, shared memory
  tegula kernels K6 --cuda                          as CUDA C++
  tegula kernels K6 --sass                          as machine code
  tegula kernels tiled --dtype f16 --ptx            as PTX
  tegula kernels mma                                the family's configurations
  tegula kernels mma_64x64x32_warp32x32_thread16x8_stages3      one of your own";

const DEVICES_EXAMPLES: &str = "\
Examples:
  tegula devices                                    what 'mul --device' takes
  tegula devices --json | jq '.devices[] | select(.usable).name'";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  tegula doctor                                     what works, what is missing
  tegula doctor --json | jq .device                 where products run

Exit codes: 0 where products can run, if only on the CPU; 1 where they cannot.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  tegula completions bash > ~/.local/share/bash-completion/completions/tegula
  tegula completions zsh > ~/.zfunc/_tegula         a folder that $fpath names
  tegula completions fish > ~/.config/fish/completions/tegula.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  tegula man | man -l -                             the page of the program
  tegula man check | man -l -                       the page of a command
  tegula man mul > ~/.local/share/man/man1/tegula-mul.1";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Multiply two matrices in files: C = act(alpha·A·B + beta·C0 + bias)
    #[command(after_help = MUL_EXAMPLES)]
    Mul(MulArgs),
    /// Run a kernel in the interpreter: find races, out-of-bounds accesses and wrong results, and
    /// count costs
    #[command(after_help = CHECK_EXAMPLES)]
    Check(Box<CheckArgs>),
    /// Show how a kernel computes a product, step by step and thread by thread
    #[command(after_help = explain::EXAMPLES)]
    Explain(Box<ExplainArgs>),
    /// Show how a kernel of a .cu or .ptx file runs, source line by source line
    #[command(hide = true, override_usage = explain_file::USAGE, after_help = explain_file::EXAMPLES)]
    ExplainFile(Box<ExplainFileArgs>),
    /// Time products, against a peer library in the same run
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(Box<BenchArgs>),
    /// Autotune: time the kernels for each product and cache the fastest
    #[command(after_help = tune::EXAMPLES)]
    Tune(Box<TuneArgs>),
    /// List the kernels, describe one, or print it as CUDA C++ or PTX
    #[command(after_help = KERNELS_EXAMPLES)]
    Kernels(KernelsArgs),
    /// List the devices that products can run on
    #[command(after_help = DEVICES_EXAMPLES)]
    Devices(DevicesArgs),
    /// Report the devices and tools found here, and what to do about missing ones
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Print a shell completion script
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Print a manual page
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub struct MulArgs {
    /// A: a .npy, .npz:name, .safetensors:name, .mtx or .csv file, or - for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub a: PathBuf,
    /// B, likewise; may be the same as A
    #[arg(value_hint = ValueHint::FilePath)]
    pub b: PathBuf,
    /// Write C to this file, in the format of its extension, or to - (.npy) [default: preview a
    /// corner of C]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Transpose A, its last two axes
    #[arg(long)]
    pub ta: bool,
    /// Transpose B, its last two axes
    #[arg(long)]
    pub tb: bool,
    /// Scalar that multiplies A·B
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_hyphen_values = true, value_parser = real)]
    pub alpha: f64,
    /// Scalar that multiplies C0
    #[arg(long, value_name = "Y", default_value_t = 0.0, allow_hyphen_values = true, value_parser = real)]
    pub beta: f64,
    /// C0, an array of the shape and type of C
    #[arg(long, value_name = "FILE", requires = "beta", value_hint = ValueHint::FilePath)]
    pub c: Option<PathBuf>,
    /// Bias to add, of the type of C: n elements for every row, m×1 for every column, or an array
    /// that broadcasts so
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub bias: Option<PathBuf>,
    /// Activation function, applied last; gelu is the tanh form, not PyTorch's default erf form
    #[arg(long, value_name = "NAME", default_value = "none", value_parser = activation_parser())]
    pub activation: Activation,
    /// Convert A and B to this type, and C0 and the bias to that of C
    #[arg(long, value_name = "TYPE", value_parser = type_parser().map(Dtype::from))]
    pub cast: Option<Dtype>,
    /// auto, cpu, cuda:N or interp
    #[arg(long, default_value = "auto", value_hint = ValueHint::Other)]
    pub device: DeviceChoice,
    /// Accuracy: with tf32, elements of f32 may be rounded to 10 fraction bits before they are
    /// multiplied
    #[arg(long, value_name = "HOW", default_value = "full", value_parser = accuracy_parser())]
    pub accuracy: Accuracy,
    /// Compute bits of a row of C that do not depend on the other rows, on the batch, or on strides
    #[arg(long)]
    pub batch_invariant: bool,
    /// Compare with a more exact product; fail where the error exceeds the bound for k
    #[arg(long)]
    pub verify: bool,
    /// Read A and B and print the plan without running it: kernel, copies with reasons, memory
    #[arg(long)]
    pub explain_plan: bool,
    /// Print the figures as one JSON object
    #[arg(long)]
    pub json: bool,
}

impl MulArgs {
    /// The path of A.
    pub fn a(&self) -> ArrayPath {
        ArrayPath::parse(&self.a)
    }

    /// The path of B.
    pub fn b(&self) -> ArrayPath {
        ArrayPath::parse(&self.b)
    }

    /// The path of C0.
    pub fn c(&self) -> Option<ArrayPath> {
        self.c.as_ref().map(ArrayPath::parse)
    }

    /// The path of the bias.
    pub fn bias(&self) -> Option<ArrayPath> {
        self.bias.as_ref().map(ArrayPath::parse)
    }

    /// Refuses combinations of options that exclude each other.
    pub fn check(&self) -> Result<(), Failure> {
        if self.beta != 0.0 && self.c.is_none() {
            return Err(Failure::Usage(format!("--beta {} needs C0: add --c FILE", short(self.beta))));
        }
        let standard = is_standard;
        let factors = standard(Some(&self.a)) || standard(Some(&self.b));
        if standard(self.c.as_ref()) && factors {
            return Err(Failure::Usage("standard input holds one array; read A and B, or --c, from a file".into()));
        }
        if standard(self.bias.as_ref()) && (factors || standard(self.c.as_ref())) {
            return Err(Failure::Usage("standard input holds one array; read --bias from a file".into()));
        }
        if self.json && standard(self.output.as_ref()) {
            return Err(both_standard("--json", "-o"));
        }
        Ok(())
    }
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// naive, tiled, a preset K1 to K6, a family for its default configuration, or a configuration
    /// such as mma_64x64x32_warp32x32_thread16x8_stages3; ':4' after it is split-K in 4 parts,
    /// ':w4' stream-K with 4 blocks; an exercise, or all exercises; or a .cu or .ptx file
    #[arg(ignore_case = true, value_parser = CheckTargetParser)]
    pub kernel: CheckTarget,
    /// Rows of A and C [default: 64; K5: 4; a tile of other kernels]
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<usize>(0))]
    pub m: Option<usize>,
    /// Columns of B and C [default: 64; K5: 4; a tile of other kernels]
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<usize>(0))]
    pub n: Option<usize>,
    /// Columns of A, rows of B [default: 64; K5: 4; a few steps of other kernels]
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<usize>(0))]
    pub k: Option<usize>,
    #[command(flatten)]
    pub options: VariantArgs,
    #[command(flatten)]
    pub interpreter: InterpreterOptions,
    /// Also count shared memory wavefronts as assembled for a GPU [default: sm_90]; needs ptxas and
    /// nvdisasm
    #[arg(long, value_name = "GPU", num_args = 0..=1, require_equals = true, default_missing_value = "sm_90")]
    pub assembled: Option<String>,
    /// Print the Nsight Compute metric beside each counter
    #[arg(long)]
    pub metrics: bool,
    /// Print findings and counters as one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub file: FileOptions,
}

impl CheckArgs {
    /// Refuses combinations of options that exclude each other.
    pub fn check(&self) -> Result<(), Failure> {
        let sizes = [("--m", self.m), ("--n", self.n), ("--k", self.k)];
        let sizes = sizes.into_iter().filter_map(|(option, size)| size.map(|_| option));
        let assembled = self.assembled.as_ref().map(|_| "--assembled");
        let of_kernels = sizes.chain(self.options.given()).chain(assembled).next();
        match (&self.kernel, of_kernels, self.file.given().next()) {
            (CheckTarget::File(_), Some(option), _) => {
                Err(Failure::Usage(format!("{option} applies to Tegula's kernels, not to a file; leave it out")))
            }
            (CheckTarget::File(_), None, _) => self.file.check(),
            (_, _, Some(option)) => {
                Err(Failure::Usage(format!("{option} applies to a .cu or .ptx file, not to {}", self.kernel.text())))
            }
            (CheckTarget::Exercise(_) | CheckTarget::Exercises, Some(option), _) => Err(Failure::Usage(format!(
                "an exercise has fixed sizes and a fixed configuration; leave out {option}"
            ))),
            _ => Ok(()),
        }
    }

    /// The problem of a kernel.
    pub fn problem(&self, kernel: &KernelArg) -> tegula::Result<Problem> {
        let recipe = self.options.recipe(kernel)?;
        let [m, n, k] = kernel.sizes(&recipe.kernel);
        Problem::new(recipe, [self.m.unwrap_or(m), self.n.unwrap_or(n), self.k.unwrap_or(k)], self.interpreter)
    }
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    pub products: ProductsArgs,
    /// Scalar that multiplies A·B
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_hyphen_values = true, value_parser = real)]
    pub alpha: f64,
    /// Scalar that multiplies C, which each call updates in place
    #[arg(long, value_name = "Y", default_value_t = 0.0, allow_hyphen_values = true, value_parser = real)]
    pub beta: f64,
    /// Epilogue; a bias has an element for each column, and gelu is the tanh form
    #[arg(long, value_name = "WHAT", default_value = "none", value_parser = epilogue_parser())]
    pub epilogue: Epilogue,
    /// auto, cpu or cuda:N
    #[arg(long, default_value = "auto", value_hint = ValueHint::Other)]
    pub device: DeviceChoice,
    /// Peer library; of several, such as mkl,openblas, the fastest in each row
    #[arg(long, value_name = "PEERS", value_delimiter = ',', default_value = "none")]
    pub vs: Vec<PeerName>,
    /// Threads on the CPU, for Tegula and the peer [default: one per logical processor]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>(1))]
    pub threads: Option<usize>,
    /// Use this kernel in place of the planned one: its name in a report without type and layouts,
    /// with ':' and the number of parts for split-K, such as
    /// register_64x64x16_warp32x32_thread8x4_stages4_slices2_blocks2:4
    #[arg(long, value_name = "NAME", ignore_case = true)]
    pub kernel: Option<String>,
    /// Time batch-invariant products; see 'mul --help'. '--vs default' shows what that costs
    #[arg(long)]
    pub batch_invariant: bool,
    /// Seed of the random inputs
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, value_parser = whole::<u64>(0))]
    pub seed: u64,
    /// Seconds to spend on a row; three rounds run in any case
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, allow_hyphen_values = true, value_parser = seconds)]
    pub time: f64,
    /// Write one JSON object to this file, or - for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Keep the rows that the file of --json holds already, and measure the others
    #[arg(long, requires = "json")]
    pub resume: bool,
    /// Write the rows to this file, or - for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub csv: Option<PathBuf>,
    /// Write an HTML page with plots to this file, or - for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
}

impl BenchArgs {
    /// Refuses combinations of options that exclude each other.
    pub fn check(&self) -> Result<(), Failure> {
        if self.device == DeviceChoice::Interp {
            return Err(Failure::Usage("--device interp cannot be timed; choose auto, cpu or cuda:N".into()));
        }
        for &ty in &self.products.dtype {
            self.epilogue.check(ty).map_err(|why| Failure::Usage(format!("--epilogue {}: {why}", self.epilogue)))?;
        }
        let alone = [PeerName::None, PeerName::Cublaslt, PeerName::Default];
        if let (Some(name), 2..) = (self.vs.iter().find(|name| alone.contains(name)), self.vs.len()) {
            return Err(Failure::Usage(format!(
                "--vs {} excludes other peers; list only libraries of the CPU together",
                name.text()
            )));
        }
        let files = [("--json", &self.json), ("--csv", &self.csv), ("--html", &self.html)];
        let standard: Vec<_> =
            files.iter().filter(|(_, path)| is_standard(path.as_ref())).map(|(flag, _)| *flag).collect();
        if let [one, other, ..] = standard.as_slice() {
            return Err(both_standard(one, other));
        }
        if self.resume && is_standard(self.json.as_ref()) {
            return Err(Failure::Usage("--resume needs a file of earlier rows, and --json is standard output".into()));
        }
        self.products.check()
    }

    /// The command that repeats this run, without its output files. Input files have their names
    /// only.
    pub fn command(&self) -> String {
        format!("tegula bench {}{}", self.products, self.rest(&self.device.to_string()))
    }

    /// The command that measures one row.
    pub fn row_command(&self, device: &str, product: &ProductCase) -> String {
        format!("tegula bench {}{}", product.options(), self.rest(device))
    }

    /// The options common to all rows.
    fn rest(&self, device: &str) -> String {
        let mut rest = format!(" --device {device}");
        let factors = [("alpha", self.alpha, 1.0), ("beta", self.beta, 0.0)];
        for (name, factor, _) in factors.into_iter().filter(|(_, factor, usual)| factor != usual) {
            rest += &format!(" --{name} {}", short(factor));
        }
        if !self.epilogue.is_none() {
            rest += &format!(" --epilogue {}", self.epilogue);
        }
        if self.vs != [PeerName::None] {
            rest += &format!(" --vs {}", self.vs.iter().map(PeerName::text).collect::<Vec<_>>().join(","));
        }
        if let Some(threads) = self.threads {
            rest += &format!(" --threads {threads}");
        }
        if let Some(kernel) = &self.kernel {
            rest += &format!(" --kernel {kernel}");
        }
        if self.batch_invariant {
            rest += " --batch-invariant";
        }
        rest + &format!(" --seed {} --time {}", self.seed, short(self.time))
    }
}

/// A peer library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PeerName {
    /// No peer
    None,
    /// NVIDIA cuBLASLt, the fastest of its candidates; GPU
    Cublaslt,
    /// Tegula with its default plan; GPU
    Default,
    /// Intel MKL; CPU; TEGULA_MKL is its path
    Mkl,
    /// OpenBLAS; CPU; TEGULA_OPENBLAS is its path
    Openblas,
    /// BLIS; CPU; TEGULA_BLIS is its path
    Blis,
    /// oneDNN; CPU; TEGULA_ONEDNN is its path
    Onednn,
    /// The crate gemm; CPU; needs a build with '--features peers'
    Gemm,
    /// The crate matrixmultiply; CPU, one thread; needs '--features peers'
    Matrixmultiply,
}

impl PeerName {
    pub fn text(&self) -> String {
        clap::ValueEnum::to_possible_value(self).map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The CPU library; `None` for others.
    pub fn blas(&self) -> Option<Blas> {
        match self {
            PeerName::None | PeerName::Cublaslt | PeerName::Default => None,
            PeerName::Mkl => Some(Blas::Mkl),
            PeerName::Openblas => Some(Blas::OpenBlas),
            PeerName::Blis => Some(Blas::Blis),
            PeerName::Onednn => Some(Blas::OneDnn),
            PeerName::Gemm => Some(Blas::Gemm),
            PeerName::Matrixmultiply => Some(Blas::Matrixmultiply),
        }
    }
}

#[derive(Debug, Args)]
pub struct KernelsArgs {
    /// naive, tiled, a preset K1 to K6, a family, or one of its configurations [default: list all]
    #[arg(ignore_case = true, value_parser = KernelParser::ALL)]
    pub name: Option<KernelArg>,
    /// Print the kernel as PTX
    #[arg(long, requires = "name")]
    pub ptx: bool,
    /// Print the kernel as CUDA C++, for naive and tiled
    #[arg(long, requires = "name", conflicts_with = "ptx")]
    pub cuda: bool,
    /// Print the kernel as machine code of a GPU [default: sm_90]; needs ptxas and nvdisasm
    #[arg(long, value_name = "GPU", num_args = 0..=1, require_equals = true, default_missing_value = "sm_90", requires = "name", conflicts_with_all = ["ptx", "cuda"])]
    pub sass: Option<String>,
    #[command(flatten)]
    pub options: VariantArgs,
}

impl KernelsArgs {
    /// Refuses combinations of options that exclude each other.
    pub fn check(&self) -> Result<(), Failure> {
        match (&self.name, self.options.given().next()) {
            (None, Some(option)) => Err(Failure::Usage(format!(
                "{option} needs a kernel, such as 'tegula kernels tiled {option} …'; see --help"
            ))),
            _ => Ok(()),
        }
    }
}

/// Options of a kernel's configuration; a preset sets those not given.
#[derive(Clone, Debug, Args)]
pub struct VariantArgs {
    /// Side of the tile and of the thread block, for naive and tiled [default: 16; K5: 2; K6: 32]
    #[arg(long, value_name = "SIDE", allow_negative_numbers = true, value_parser = whole::<u32>(1))]
    pub tile: Option<u32>,
    /// Index of C that a thread's x selects, for naive and tiled [default: x-col; K3: x-row]
    #[arg(long, value_parser = mapping_parser())]
    pub mapping: Option<Mapping>,
    /// Type of A and B [default: f32; K2: f64; K3: i32; dmma: f64; mma: f16; limbs: i32]
    #[arg(long, value_name = "TYPE", value_parser = type_parser())]
    pub dtype: Option<Type>,
    /// Inject a bug into naive or tiled; repeat the option for more than one
    #[arg(long, visible_alias = "inject", value_name = "BUG", value_parser = bug_parser())]
    pub plant: Vec<String>,
}

impl VariantArgs {
    /// The options given.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("--tile", self.tile.is_some()),
            ("--mapping", self.mapping.is_some()),
            ("--dtype", self.dtype.is_some()),
            ("--plant", !self.plant.is_empty()),
        ];
        given.into_iter().filter_map(|(option, given)| given.then_some(option))
    }

    /// The options as they would be given again, each after a space.
    pub fn text(&self) -> String {
        let mapping = self.mapping.map(|mapping| match mapping {
            Mapping::XCol => " --mapping x-col",
            Mapping::XRow => " --mapping x-row",
        });
        let tile = self.tile.map(|tile| format!(" --tile {tile}"));
        let dtype = self.dtype.map(|ty| format!(" --dtype {ty}"));
        let plants = self.plant.iter().map(|plant| format!(" --plant {plant}"));
        tile.into_iter().chain(mapping.map(String::from)).chain(dtype).chain(plants).collect()
    }

    /// The kernel of that name with these options, and how its work is split. A family's name alone
    /// stands for its default configuration.
    pub fn recipe(&self, name: &KernelArg) -> tegula::Result<Recipe> {
        let text = name.text();
        if name.takes_options() {
            return Ok(self.plain(Plain::named(text)?)?.into());
        }
        self.refuse_shapes(text)?;
        let ty = self.dtype.unwrap_or(name.entry.ty);
        let recipe = match name.is_family() {
            true => Recipe::named(&default_configuration(&name.entry, ty)?, ty)?,
            false => Recipe::named(text, ty)?,
        };
        // `check` and `explain` take row-major matrices, C as well.
        if recipe.swapped {
            let why =
                format!("{text} computes the transpose from transposed operands; leave out ':s' and exchange m and n");
            return Err(tegula::Error::KernelOption(why));
        }
        Ok(recipe)
    }

    /// The kernel of that name with these options, for row-major matrices with aligned rows.
    pub fn variant(&self, name: &KernelArg) -> tegula::Result<Variant> {
        if name.entry.syntax == NameSyntax::Helper {
            self.refuse_shapes(name.text())?;
            return Variant::named(name.text(), self.dtype.unwrap_or(name.entry.ty));
        }
        Ok(self.recipe(name)?.legalize([OperandLayout::new(Order2d::RowMajor, true); 3]).kernel.into())
    }

    /// Refuses options other than the type for a name that sets the whole configuration.
    fn refuse_shapes(&self, name: &str) -> tegula::Result<()> {
        match self.given().find(|option| *option != "--dtype") {
            Some(option) => {
                Err(tegula::Error::KernelOption(format!("{option} applies to naive and tiled, not to {name}")))
            }
            None => Ok(()),
        }
    }

    fn plain(&self, preset: Plain) -> tegula::Result<Plain> {
        let asked = Plain {
            tile: self.tile.unwrap_or(preset.tile),
            mapping: self.mapping.unwrap_or(preset.mapping),
            ty: self.dtype.unwrap_or(preset.ty),
            ..preset
        };
        let injected = self.plant.iter().try_fold(asked, |kernel, plant| kernel.with_bug(plant))?;
        // A bug of the same sort replaces the one before, which the user cannot have meant.
        for plant in &self.plant {
            if injected.with_bug(plant)? != injected {
                let all = self.plant.join(", ");
                return Err(tegula::Error::KernelOption(format!("these bugs exclude each other: {all}")));
            }
        }
        Ok(injected)
    }
}

#[derive(Debug, Args)]
pub struct DevicesArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// The commands with a manual page.
const COMMANDS: [&str; 11] =
    ["mul", "check", "explain", "explain-file", "bench", "tune", "kernels", "devices", "doctor", "completions", "man"];

#[derive(Debug, Args)]
pub struct ManArgs {
    /// The command [default: the program itself]
    #[arg(value_parser = PossibleValuesParser::new(COMMANDS))]
    pub command: Option<String>,
}

/// The device that a product runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU, else the CPU.
    Auto,
    Cpu,
    Cuda(usize),
    Interp,
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            DeviceChoice::Interp => f.write_str("interp"),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ordinal = |text: &str| text.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok());
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "cpu" => Ok(DeviceChoice::Cpu),
            "interp" => Ok(DeviceChoice::Interp),
            "cuda" => Ok(DeviceChoice::Cuda(0)),
            other => ordinal(other).map(DeviceChoice::Cuda).ok_or("choose auto, cpu, cuda:N or interp".into()),
        }
    }
}

fn type_parser() -> impl TypedValueParser<Value = Type> {
    let named = |name: String| Type::operand_named(&name).ok_or("no such type");
    PossibleValuesParser::new(Type::OPERANDS.map(Type::name)).try_map(named)
}

fn accuracy_parser() -> impl TypedValueParser<Value = Accuracy> {
    const ALL: [Accuracy; 2] = [Accuracy::Full, Accuracy::Tf32];
    let named = |name: String| ALL.into_iter().find(|one| one.name() == name).ok_or("no such accuracy");
    PossibleValuesParser::new(ALL.map(Accuracy::name)).try_map(named)
}

fn activation_parser() -> impl TypedValueParser<Value = Activation> {
    PossibleValuesParser::new(Activation::ALL.map(Activation::name)).try_map(|name| name.parse::<Activation>())
}

fn epilogue_parser() -> impl TypedValueParser<Value = Epilogue> {
    let named = |bias| Activation::ALL.map(|activation| Epilogue { bias, activation }.to_string());
    let all = [named(None), named(Some(BiasShape::Row))].concat();
    PossibleValuesParser::new(all).try_map(|name| name.parse::<Epilogue>())
}

fn mapping_parser() -> impl TypedValueParser<Value = Mapping> {
    let values = [
        PossibleValue::new("x-col").help("x is the column: adjacent lanes load adjacent elements"),
        PossibleValue::new("x-row").help("x is the row: adjacent lanes load elements a row apart"),
    ];
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Mapping>())
}

fn bug_parser() -> PossibleValuesParser {
    PossibleValuesParser::new(INJECTED_BUGS.map(|plant| PossibleValue::new(plant).help(bug_help(plant))))
}

fn real(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "give a number, such as 2, -0.5 or 1e-3".into())
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|seconds: &f64| (0.0..=86_400.0).contains(seconds));
    number.ok_or("give seconds from 0 to 86400, such as 0.5".into())
}

/// A scalar in its shorter form, decimal or scientific.
pub fn short(x: f64) -> String {
    if x == 0.0 || (1e-5..1e16).contains(&x.abs()) { x.to_string() } else { format!("{x:e}") }
}

/// The arguments, where `explain` with a source file is the command `explain-file`.
fn with_explain_file(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let is_option = |arg: &OsString| arg.as_encoded_bytes().starts_with(b"-");
    let is_source = |arg: &OsString| !arg.as_encoded_bytes().contains(&b'=') && is_source_file(Path::new(arg));
    if let Some(command) = (1..args.len()).find(|&at| !is_option(&args[at]))
        && args[command] == "explain"
        && args[command + 1..].iter().any(|arg| !is_option(arg) && is_source(arg))
    {
        args[command] = "explain-file".into();
    }
    args
}

/// Parses the command line. `None` after help or the version was printed.
pub fn parse() -> Result<Option<Cli>, Failure> {
    match Cli::try_parse_from(with_explain_file(std::env::args_os())) {
        Ok(cli) => Ok(Some(cli)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            tegula_files::check_standard_output()?;
            error.print()?;
            Ok(None)
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // Without a command clap shows help, which a script must not take for success.
            error.print()?;
            Err(Failure::HelpShown)
        }
        Err(error) => Err(Failure::Usage(one_line(&error))),
    }
}

/// Whether a path is `-`: standard input or output.
fn is_standard(path: Option<&PathBuf>) -> bool {
    path.is_some_and(|path| ArrayPath::parse(path) == ArrayPath::Stdio)
}

/// The error for two options that both write to standard output.
fn both_standard(one: &str, other: &str) -> Failure {
    Failure::Usage(format!("{one} and {other} cannot both write to standard output; give {other} a file"))
}

/// The message without heading, usage and line breaks.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let said =
        text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let parts: Vec<_> = said.filter(|line| !line.is_empty()).collect();
    let said = parts.join(" ").replace(" tip: ", "; ");
    format!("{}; see --help", said.trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn mul_help_lists_all_operand_types() {
        let list = MUL_EXAMPLES.split_once("Products are computed for ").and_then(|(_, rest)| rest.split_once("; "));
        let list = list.expect("a list").0.replace(" and ", ", ");
        let listed: Vec<_> = list.split(", ").filter_map(|item| item.split(' ').next()).collect();
        assert_eq!(listed, Type::OPERANDS.map(Type::name));
    }

    #[test]
    fn every_command_has_examples_and_a_manual_page() {
        let commands: Vec<_> = Cli::command().get_subcommands().cloned().collect();
        let names: Vec<_> = commands.iter().map(clap::Command::get_name).collect();
        assert_eq!(names, COMMANDS);
        for command in commands {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Examples:\n  tegula "), "{}: {help}", command.get_name());
            let examples = help.lines().take_while(|line| !line.is_empty());
            assert!(
                examples.into_iter().all(|line| line.chars().count() <= 80),
                "a terminal would break a line: {help}"
            );
        }
    }

    #[test]
    fn explain_of_a_source_file_is_a_command_of_its_own() {
        let command = |line: &str| with_explain_file(line.split(' ').map(OsString::from))[2].clone();
        for line in
            ["tegula -q explain k.cu --grid 1", "tegula -q explain --kernel f K.PTX", "tegula -q explain -D A=1 k.cuh"]
        {
            assert_eq!(command(line), "explain-file", "{line}");
        }
        for line in ["tegula -q explain a.npy b.npy", "tegula -q explain --x=k.cu", "tegula -q check k.cu explain"] {
            assert_ne!(command(line), "explain-file", "{line}");
        }
    }

    #[test]
    fn whole_numbers_are_parsed() {
        let parse = whole::<u32>(1);
        assert_eq!((parse("1"), parse("0042"), parse("4294967295")), (Ok(1), Ok(42), Ok(u32::MAX)));
        for text in ["", "0", "00", "-3", "+-1", "x", "1.5", " 1", "0x10"] {
            assert_eq!(parse(text), Err("not a whole number of at least 1".into()), "{text}");
        }
        for text in ["4294967296", "99999999999999999999999"] {
            assert_eq!(parse(text), Err("too large".into()), "{text}");
        }
        assert_eq!([0.0, 2.0, -0.5, 1e300, -1e-300].map(short), ["0", "2", "-0.5", "1e300", "-1e-300"]);
    }

    #[test]
    fn device_names_are_parsed() {
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        assert_eq!("cuda:12".parse(), Ok(DeviceChoice::Cuda(12)));
        for wrong in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "CPU"] {
            assert!(wrong.parse::<DeviceChoice>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn bench_command_repeats_the_run_without_output_files() {
        let bench = |line: &str| match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Command::Bench(args) => args,
            other => panic!("{other:?}"),
        };
        let line = "tegula bench --m 1:3:1 --k 5 --dtype f32 --layout nt,tn --accuracy tf32 --device cuda:1 --alpha 2 --beta -0.5 --epilogue bias+gelu \
                    --vs cublaslt --kernel K6 --seed 7 --time 0.5";
        let args = bench(&format!("{line} --json /there/r.json"));
        assert_eq!(args.command(), line);
        assert_eq!(
            args.products.layout.iter().map(|of| of.transposed()).collect::<Vec<_>>(),
            [[false, true], [true, false]]
        );
        let shapes: Vec<_> = args.products.shapes().unwrap().iter().map(|shape| [shape.m, shape.n, shape.k]).collect();
        assert_eq!(shapes, [[1, 1, 5], [2, 2, 5], [3, 3, 5]]);
        let usual = bench("tegula bench --shapes /there/model.txt");
        let said = "tegula bench --shapes model.txt --dtype f32 --layout nn --device auto --seed 1 --time 2";
        assert_eq!(usual.command(), said);
        let several =
            "tegula bench --m 8 --dtype f32 --layout nn --device cpu --vs mkl,onednn --threads 2 --seed 1 --time 2";
        assert_eq!(bench(several).command(), several);
    }

    #[test]
    fn options_override_presets() {
        let problem = |line: &str| match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Command::Check(args) => match &args.kernel {
                CheckTarget::Kernel(kernel) => args.problem(kernel),
                other => panic!("{} is no kernel", other.text()),
            },
            other => panic!("{other:?}"),
        };
        let k3 = problem("tegula check k3 --tile 32 --plant no-guards").unwrap();
        let expected = Plain { tile: 32, edges: tegula_kernels::Edges::Unguarded, ..Plain::named("K3").unwrap() };
        assert_eq!((k3.recipe.kernel, k3.m, k3.interpreter.seeds), (expected.into(), 64, 1));
        let k5 = problem("tegula check K5 --plant missing-first-barrier").unwrap();
        let expected = Plain { barriers: tegula_kernels::Barriers::NoFirst, ..Plain::named("K5").unwrap() };
        assert_eq!((k5.recipe.kernel, k5.m, k5.n, k5.k), (expected.into(), 4, 4, 4));
        assert_eq!(problem("tegula check K4 --tile 24 --n 5").map(|p| (p.m, p.n, p.k)).unwrap(), (72, 5, 72));
        assert!(problem("tegula check naive --plant extra-barrier").is_err());
        let shaped = problem("tegula check MMA_64x32x64_32x32_16x8_3_1_1:3 --n 7 --dtype i8").unwrap();
        assert_eq!((shaped.m, shaped.n, shaped.k), (64, 7, 256));
        assert_eq!(shaped.recipe.name(), "mma_i8_64x32x64_warp32x32_thread16x8_stages3_rcr_v110_splitk_3_packb");
        for refused in ["--tile 3", "--mapping x-row", "--plant no-guards", "--dtype f64"] {
            let line = format!("tegula check mma_64x32x32_warp32x32_thread16x8_stages3 {refused}");
            assert!(problem(&line).is_err(), "{line}");
        }
    }
}
