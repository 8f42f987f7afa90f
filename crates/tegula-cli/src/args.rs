//! The command line: what may be said, and the one-line form of what may not.

mod explain;
mod products;
mod tune;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{ArgAction, Args, Parser, Subcommand, ValueHint};
pub use explain::ExplainArgs;
pub use products::{Asked, ProductsArgs};
use tegula::Accuracy;
use tegula::element::Type;
use tegula::epilogue::{Activation, Along, Epilogue};
use tegula_bench::Blas;
use tegula_files::{Dtype, Place};
use tegula_ir::Order2d;
use tegula_kernels::plan::{Lie, Recipe};
use tegula_kernels::{Form, Mapping, PLANTS, Plain, Variant};
pub use tune::TuneArgs;

use crate::effort::Effort;
use crate::failure::Failure;
use crate::kernel::{Named, Names, Problem, plant_help};
use crate::number::whole;
use crate::subject::{Subject, Subjects};

/// Tiled matrix multiplication on GPU and CPU.
#[derive(Debug, Parser)]
#[command(name = "tegula", version, about, after_help = EXAMPLES, max_term_width = 120)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub talk: Talk,
}

/// How much is said besides results and errors.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Talk {
    /// Say nothing but results and errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Tell on standard error what is done, in place of the progress bar; -vv tells more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
}

const EXAMPLES: &str = "\
Examples:
  tegula mul a.npy b.npy -o c.npy                   C = A·B on the best device
  tegula mul digits.npy digits.npy --tb --verify    a Gram matrix, verified
  tegula check tiled --plant missing-first-barrier  find a race without a GPU
  tegula explain a.npy b.npy                        watch it, step by step
  tegula bench --m 1024:4096:1024 --vs cublaslt     how fast, beside a peer
  tegula tune --shapes model.txt                    let measurements choose kernels
  tegula kernels K6 --cuda                          read a kernel as CUDA C++
  tegula doctor                                     what works, what is missing

Environment: CUDA_CACHE_PATH is where the driver keeps assembled kernels; TEGULA_CACHE_DIR is where tune keeps winners, in place of \
$XDG_CACHE_HOME/tegula or ~/.cache/tegula; TEGULA_CPU=portable|avx2|avx512|vnni|amx holds the processor to an \
instruction set; TEGULA_LOG is a filter in place of --verbose; NO_COLOR.

Exit codes: 0 done; 1 failed; 2 wrong usage: an option that is unknown or whose value can never be right.";

const MUL_EXAMPLES: &str = "\
Examples:
  tegula mul a.npy b.npy                            look at the corner of A·B
  tegula mul a.npy b.npy -o c.npy --verify          write it if it is right
  tegula mul x.npy x.npy --ta -o xtx.npy            C = Xᵀ·X
  tegula mul a.npy b.npy --beta -1 --c c0.npy       C = A·B - C0
  tegula mul m.safetensors:w x.npy --cast f32       a matrix of a model
  tegula mul x.npy w.npy --bias b.npy               a layer; see --activation
  tegula mul a.mtx b.csv -o - > c.npy               formats mix; - is a pipe
  tegula mul a.npy b.npy --explain-plan             what is copied, and why

A, B, C0 and the bias may be .npy, .npz (file.npz:name), .safetensors (file.safetensors:name), .mtx or .csv files, of any number of axes: \
vectors and stacks multiply as with numpy.matmul. C is written in the format of its name. Products are made of f64, f32, f16, bf16, \
i32 (wrapping) and i8 (product in i32); other types are read for --cast.

--cast rounds floats to nearest, ties to even; on the way to integers fractions are cut off, values out of range become the nearest \
end of it, and NaN becomes 0. A lone - for both A and B is one array.

The object of --json has m, n, k, batch, shapes, dtype, result_dtype, accuracy, epilogue (none, or such as bias+gelu), device, kernel, seconds and gflops (null where nothing is multiplied). \
With --verify also r, the largest error in units of u·(|alpha||A||B| + |beta||C0| + |bias|), times how steep the activation is at most, u being that of C's type or with --accuracy tf32 of tf32, 2^-11; bound, what r may be; worst, the indices of r; and ok. r is null where no number says how wrong the product is, as for an integer that is not exact; then ok is \
false.";

const CHECK_EXAMPLES: &str = "\
Examples:
  tegula check tiled --m 256 --n 256 --k 256        a product of your size
  tegula check K3 --json                            what uncoalesced loads cost
  tegula check tiled --plant no-guards              what a mistake looks like
  tegula check K6 --seeds 64                        more inputs, orders of warps
  tegula check limbs_64x32x32_32x16_16x8_3_1_1:4    i32 on matrix units, 4 parts
  tegula check K6 --assembled                       as the assembler loads, too
  tegula check exercise-1                           is the kernel mended?
  tegula check exercises                            which ones are

An exercise is a kernel with a mistake, in a file of the folder exercises/ of Tegula's repository. Mend it there, and run 'cargo run --release -- check exercise-1' to hear whether it is right. Its object also has goal: text, met, and the file.

A sector is 32 bytes of global memory, a wavefront a pass over the 32 banks of shared memory, fma a multiply-add of one thread. Beside counters stand the names \
that Nsight Compute has for them; of f64, fma is its dfma. The assembler makes one wide load of neighbours that a kernel loads one by one, which takes fewer wavefronts: \
the GPU counts as --assembled does. Its object also has assembled: gpu, and requests, wavefronts and conflicts of shared memory.

Exit code 1 also where the kernel is wrong, or cannot be built, as with --tile 33.";

const BENCH_EXAMPLES: &str = "\
Examples:
  tegula bench --m 512:4096:512 --dtype f32,f64     cubes, a row for each type
  tegula bench --m 4096 --n 1,16,64 --k 4096        thin products
  tegula bench --shapes model.txt --vs cublaslt     against all of cublasLt
  tegula bench --m 4096 --layout nn,nt --json r.json --html r.html
  tegula bench --device cpu --threads 1 --vs mkl,openblas,onednn

SIZES are sizes and ranges START:END:STEP, whose end counts: 512,1024:4096:1024. The lists of m, n, k and batch are read side by side, so \
they have as many sizes each, or one for all; without --n or --k these are m. A file of --shapes has m n k or m n k batch on a line, also as \
MxNxKxBATCH; what follows a # is a comment.

Inputs are normal random numbers, in as many sets as the GPU's cache does not hold together. Against a peer, all of its candidates are timed \
and the best is kept; then both sides take turns in the same run. ratio is the peer's median time by ours, so above 1 ours is faster; \
spread is how far ours is from itself in that run, and a ratio that is nearer to 1 says nothing. r is the largest error, as for mul \
--verify; of large results, in a sample of their rows. An epilogue is the peer's as well where cublasLt has it: of f32, f16 and bf16 all but SiLU; \
elsewhere there is no peer.

On the processor there is one set of inputs, and a sample counts where a loop of multiply-adds is at full speed before and after it; discarded is how many were \
not. Libraries have as many threads as ours, A and B as they lie, and what they do once for a product is not timed. Short products are made by MKL \
(bf16 and f16 with a C of f32, which is rounded only to find r; i8 with A shifted to u8 beforehand, exact) and by oneDNN's matmul, i8 and matmul only with the usual alpha and beta; i32 by none. A library without \
a product leaves it to the others, and a row that none of them has is without a peer.

The object of --json has machine, driver, version, peer, seed, command, copy_gbs, ceilings and rows; a row has dtype (tf32 of f32 with --accuracy tf32), layout, m, n, k, batch, epilogue, \
kernel, tflops, us, p20_us, p80_us, gbs, peer, peer_tflops, peer_us, peer_p20_us, peer_p80_us, candidates, ratio, spread, r, peer_r, bound, \
ok, rows_checked, input_sets, calls, rounds, segments, discarded, threads (of the processor), others (the libraries' other candidates, each with peer and us), \
intensity, error and command. Times are microseconds of a call; what there is not is null. The columns of --csv are the same. Files are written anew after each row, always whole.

Environment: TEGULA_CUBLASLT, TEGULA_MKL, TEGULA_OPENBLAS, TEGULA_BLIS and TEGULA_ONEDNN are the libraries to use. Exit code 1 also where a row could not be measured or its result is wrong.";

const KERNELS_EXAMPLES: &str = "\
Examples:
  tegula kernels                                    what there is
  tegula kernels K3 --tile 32                       block, shared memory
  tegula kernels K6 --cuda                          read it as CUDA C++
  tegula kernels K6 --sass                          as machine code
  tegula kernels tiled --dtype f16 --ptx            what the driver assembles
  tegula kernels mma                                tiles that plans choose from
  tegula kernels mma_64x64x32_32x32_16x8_3_1_1      one of your own";

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
    /// Run a kernel in the interpreter: races, bounds, wrong results, and what it costs
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Show how a tiled product is made, step by step, and what each thread does
    #[command(after_help = explain::EXAMPLES)]
    Explain(Box<ExplainArgs>),
    /// Time products, against a peer in the same run
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(Box<BenchArgs>),
    /// Find the fastest kernel for each product by timing, and keep it for products to come
    #[command(after_help = tune::EXAMPLES)]
    Tune(Box<TuneArgs>),
    /// List the kernels, describe one, or print it as CUDA C++ or PTX
    #[command(after_help = KERNELS_EXAMPLES)]
    Kernels(KernelsArgs),
    /// List what products can run on
    #[command(after_help = DEVICES_EXAMPLES)]
    Devices(DevicesArgs),
    /// Tell what products run on here, and what to do about what is missing
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Print a script that completes commands and options in a shell
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
    /// Write C to this file, in the format of its extension, or to - (.npy); without it the corner of C is shown
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Transpose A, its last two axes
    #[arg(long)]
    pub ta: bool,
    /// Transpose B, its last two axes
    #[arg(long)]
    pub tb: bool,
    /// Factor of the product
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_hyphen_values = true, value_parser = real)]
    pub alpha: f64,
    /// Factor of C0
    #[arg(long, value_name = "Y", default_value_t = 0.0, allow_hyphen_values = true, value_parser = real)]
    pub beta: f64,
    /// C0, an array of the shape and type of C
    #[arg(long, value_name = "FILE", requires = "beta", value_hint = ValueHint::FilePath)]
    pub c: Option<PathBuf>,
    /// A bias to add, of the type of C: n numbers to every row, m×1 to every column, or any array that broadcasts to C so
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub bias: Option<PathBuf>,
    /// The function that is applied last
    #[arg(long, value_name = "NAME", default_value = "none", value_parser = activation_parser())]
    pub activation: Activation,
    /// Convert A and B to this type first, and C0 and the bias to that of C
    #[arg(long, value_name = "TYPE", value_parser = type_parser().map(Dtype::from))]
    pub cast: Option<Dtype>,
    /// auto, cpu, cuda:N or interp
    #[arg(long, default_value = "auto", value_hint = ValueHint::Other)]
    pub device: DeviceChoice,
    /// How exact the product has to be; with tf32, f32 may be rounded to 10 bits behind the point before it is multiplied
    #[arg(long, value_name = "HOW", default_value = "full", value_parser = accuracy_parser())]
    pub accuracy: Accuracy,
    /// Compare with a more exact product; fail where the error is above what the sum's length allows
    #[arg(long)]
    pub verify: bool,
    /// Read A and B, then tell what would be done instead of doing it: kernel, copies and why, memory
    #[arg(long)]
    pub explain_plan: bool,
    /// Print figures as one JSON object
    #[arg(long)]
    pub json: bool,
}

impl MulArgs {
    /// Where A is.
    pub fn a(&self) -> Place {
        Place::parse(&self.a)
    }

    /// Where B is.
    pub fn b(&self) -> Place {
        Place::parse(&self.b)
    }

    /// Where C0 is.
    pub fn c(&self) -> Option<Place> {
        self.c.as_ref().map(Place::parse)
    }

    /// Where the bias is.
    pub fn bias(&self) -> Option<Place> {
        self.bias.as_ref().map(Place::parse)
    }

    /// What no single option can tell is wrong.
    pub fn check(&self) -> Result<(), Failure> {
        if self.beta != 0.0 && self.c.is_none() {
            return Err(Failure::Usage(format!("--beta {} needs a matrix to scale: give --c FILE", short(self.beta))));
        }
        let standard = is_standard;
        let factors = standard(Some(&self.a)) || standard(Some(&self.b));
        if standard(self.c.as_ref()) && factors {
            return Err(Failure::Usage("standard input holds one array; give a file for A and B, or for --c".into()));
        }
        if standard(self.bias.as_ref()) && (factors || standard(self.c.as_ref())) {
            return Err(Failure::Usage("standard input holds one array; give a file for --bias".into()));
        }
        if self.json && standard(self.output.as_ref()) {
            return Err(both_standard("--json", "-o"));
        }
        Ok(())
    }
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// naive, tiled, a preset K1 to K6, or a kernel with its shape in its name, as in mma_64x64x32_32x32_16x8_3_1_1; ':4' after it splits
    /// sums along k in 4 parts, ':w4' shares tiles among 4 blocks; or an exercise, or all exercises
    #[arg(ignore_case = true, value_parser = Subjects)]
    pub kernel: Subject,
    /// Rows of A and C [default: 64; K5: 4; of other kernels a tile]
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<usize>(0))]
    pub m: Option<usize>,
    /// Columns of B and C [default: 64; K5: 4; of other kernels a tile]
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<usize>(0))]
    pub n: Option<usize>,
    /// Columns of A, rows of B [default: 64; K5: 4; of other kernels a few steps]
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<usize>(0))]
    pub k: Option<usize>,
    #[command(flatten)]
    pub options: VariantArgs,
    #[command(flatten)]
    pub effort: Effort,
    /// Count shared memory's wavefronts as assembled for a GPU, too [default: sm_90]; takes ptxas and nvdisasm of a CUDA toolkit
    #[arg(long, value_name = "GPU", num_args = 0..=1, require_equals = true, default_missing_value = "sm_90")]
    pub assembled: Option<String>,
    /// Print findings and counters as one JSON object
    #[arg(long)]
    pub json: bool,
}

impl CheckArgs {
    /// What no single option can tell is wrong.
    pub fn check(&self) -> Result<(), Failure> {
        let sizes = [("--m", self.m), ("--n", self.n), ("--k", self.k)];
        let sizes = sizes.into_iter().filter_map(|(option, size)| size.map(|_| option));
        let assembled = self.assembled.as_ref().map(|_| "--assembled");
        match (&self.kernel, sizes.chain(self.options.given()).chain(assembled).next()) {
            (Subject::Exercise(_) | Subject::Exercises, Some(option)) => {
                Err(Failure::Usage(format!("an exercise has its own sizes and shape; leave out {option}")))
            }
            _ => Ok(()),
        }
    }

    /// The problem asked for, where it is a kernel's.
    pub fn problem(&self, kernel: &Named) -> tegula::Result<Problem> {
        let recipe = self.options.recipe(kernel)?;
        let [m, n, k] = kernel.sizes(&recipe.kernel);
        Problem::new(recipe, [self.m.unwrap_or(m), self.n.unwrap_or(n), self.k.unwrap_or(k)], self.effort)
    }
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    pub products: ProductsArgs,
    /// Factor of the product
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_hyphen_values = true, value_parser = real)]
    pub alpha: f64,
    /// Factor of C, which then feeds on itself from call to call
    #[arg(long, value_name = "Y", default_value_t = 0.0, allow_hyphen_values = true, value_parser = real)]
    pub beta: f64,
    /// What happens to sums on their way to C; a bias is a number for each column
    #[arg(long, value_name = "WHAT", default_value = "none", value_parser = epilogue_parser())]
    pub epilogue: Epilogue,
    /// auto, cpu or cuda:N
    #[arg(long, default_value = "auto", value_hint = ValueHint::Other)]
    pub device: DeviceChoice,
    /// The library to measure against; of several, as in mkl,openblas, the fastest in each row
    #[arg(long, value_name = "PEERS", value_delimiter = ',', default_value = "none")]
    pub vs: Vec<PeerName>,
    /// Threads of products on the processor, ours and the peer's [default: one for each processor]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>(1))]
    pub threads: Option<usize>,
    /// Use this kernel in place of the one that would be chosen: as a report names it, without type and layouts, and where sums
    /// along k are split ':' and in how many parts, as in register_64x64x16_32x32_8x4_4_2_2:4
    #[arg(long, value_name = "NAME", ignore_case = true)]
    pub kernel: Option<String>,
    /// Where the inputs come from
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, value_parser = whole::<u64>(0))]
    pub seed: u64,
    /// Time for the turns of a row; long calls take what a few rounds need
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, allow_hyphen_values = true, value_parser = seconds)]
    pub time: f64,
    /// Write one JSON object to this file, or - for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write the rows to this file, or - for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub csv: Option<PathBuf>,
    /// Write a page with plots to this file, or - for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
}

impl BenchArgs {
    /// What no single option can tell is wrong.
    pub fn check(&self) -> Result<(), Failure> {
        if self.device == DeviceChoice::Interp {
            return Err(Failure::Usage("the interpreter is no device to time; choose auto, cpu or cuda:N".into()));
        }
        for &ty in &self.products.dtype {
            self.epilogue.check(ty).map_err(|why| Failure::Usage(format!("--epilogue {}: {why}", self.epilogue)))?;
        }
        let alone = [PeerName::None, PeerName::Cublaslt];
        if let (Some(name), 2..) = (self.vs.iter().find(|name| alone.contains(name)), self.vs.len()) {
            return Err(Failure::Usage(format!("--vs {} stands alone; others may stand side by side", name.text())));
        }
        let files = [("--json", &self.json), ("--csv", &self.csv), ("--html", &self.html)];
        let standard: Vec<_> =
            files.iter().filter(|(_, path)| is_standard(path.as_ref())).map(|(flag, _)| *flag).collect();
        if let [one, other, ..] = standard.as_slice() {
            return Err(both_standard(one, other));
        }
        self.products.check()
    }

    /// The line that says this run again, but for the files that it writes. Of files only names are told.
    pub fn command(&self) -> String {
        format!("tegula bench {}{}", self.products, self.rest(&self.device.to_string()))
    }

    /// The line that measures one row again.
    pub fn row_command(&self, device: &str, asked: &Asked) -> String {
        format!("tegula bench {}{}", asked.options(), self.rest(device))
    }

    /// What is the same in each row.
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
        rest + &format!(" --seed {} --time {}", self.seed, short(self.time))
    }
}

/// A library to measure against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PeerName {
    /// Nobody
    None,
    /// The fastest of all candidates of NVIDIA's library, on GPUs
    Cublaslt,
    /// Intel's library, on processors; TEGULA_MKL names it
    Mkl,
    /// OpenBLAS, on processors; TEGULA_OPENBLAS names it
    Openblas,
    /// BLIS, on processors; TEGULA_BLIS names it
    Blis,
    /// oneDNN, on processors; TEGULA_ONEDNN names it
    Onednn,
    /// The crate gemm, on processors, where Tegula was built with '--features peers'
    Gemm,
    /// The crate matrixmultiply, on one thread of a processor; likewise
    Matrixmultiply,
}

impl PeerName {
    fn text(&self) -> String {
        clap::ValueEnum::to_possible_value(self).map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The library of the processor, if it is one.
    pub fn blas(&self) -> Option<Blas> {
        match self {
            PeerName::None | PeerName::Cublaslt => None,
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
    /// naive, tiled, a preset K1 to K6, a family, or a kernel of one with its shape in its name; all are told of without it
    #[arg(ignore_case = true, value_parser = Names)]
    pub name: Option<Named>,
    /// Print the kernel as PTX
    #[arg(long, requires = "name")]
    pub ptx: bool,
    /// Print the kernel as CUDA C++; naive and tiled have that form
    #[arg(long, requires = "name", conflicts_with = "ptx")]
    pub cuda: bool,
    /// Print the kernel as machine code of a GPU [default: sm_90]; takes ptxas and nvdisasm of a CUDA toolkit
    #[arg(long, value_name = "GPU", num_args = 0..=1, require_equals = true, default_missing_value = "sm_90", requires = "name", conflicts_with_all = ["ptx", "cuda"])]
    pub sass: Option<String>,
    #[command(flatten)]
    pub options: VariantArgs,
}

impl KernelsArgs {
    /// What no single option can tell is wrong.
    pub fn check(&self) -> Result<(), Failure> {
        match (&self.name, self.options.given().next()) {
            (None, Some(option)) => Err(Failure::Usage(format!(
                "{option} shapes one kernel: name it, for example 'tegula kernels tiled {option} …', or see --help"
            ))),
            (Some(name), _) if (self.ptx || self.cuda || self.sass.is_some()) && name.is_family() => {
                Err(Failure::Usage(format!(
                    "{0} is a family of kernels: 'tegula kernels {0}' tells of those that there are",
                    name.text()
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Options that shape a kernel; a preset sets those that are not given.
#[derive(Clone, Debug, Args)]
pub struct VariantArgs {
    /// Of naive and tiled: side of the tile, and of the block of threads [default: 16; K5: 2; K6: 32]
    #[arg(long, value_name = "SIDE", allow_negative_numbers = true, value_parser = whole::<u32>(1))]
    pub tile: Option<u32>,
    /// Of naive and tiled: what a thread's x chooses [default: x-col; K3: x-row]
    #[arg(long, value_parser = mapping_parser())]
    pub mapping: Option<Mapping>,
    /// Type of A and B [default: f32; K2: f64; K3: i32; dmma: f64; mma: f16; limbs: i32]
    #[arg(long, value_name = "TYPE", value_parser = type_parser())]
    pub dtype: Option<Type>,
    /// Put a mistake into naive or tiled; may be given more than once
    #[arg(long, value_name = "MISTAKE", value_parser = plant_parser())]
    pub plant: Vec<String>,
}

impl VariantArgs {
    /// The options that were given.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("--tile", self.tile.is_some()),
            ("--mapping", self.mapping.is_some()),
            ("--dtype", self.dtype.is_some()),
            ("--plant", !self.plant.is_empty()),
        ];
        given.into_iter().filter_map(|(option, given)| given.then_some(option))
    }

    /// The kernel of that name with these options, and how its work is split.
    pub fn recipe(&self, name: &Named) -> tegula::Result<Recipe> {
        let text = name.text();
        if name.takes_options() {
            return Ok(self.plain(Plain::named(text)?)?.into());
        }
        self.refuse_shapes(text)?;
        let recipe = Recipe::named(text, self.dtype.unwrap_or(name.entry.ty))?;
        // `check` and `explain` take row-major matrices, C as well.
        if recipe.swapped {
            let why =
                format!("{text} makes the transpose of the transposed factors; leave ':s' out and exchange m and n");
            return Err(tegula::Error::KernelOption(why));
        }
        Ok(recipe)
    }

    /// The kernel of that name with these options, for row-major matrices whose rows are aligned.
    pub fn variant(&self, name: &Named) -> tegula::Result<Variant> {
        if name.entry.form == Form::Helper {
            self.refuse_shapes(name.text())?;
            return Variant::named(name.text(), self.dtype.unwrap_or(name.entry.ty));
        }
        Ok(self.recipe(name)?.fit([Lie::new(Order2d::RowMajor, true); 3]).kernel.into())
    }

    /// Refuses options beside a name that says all but the type.
    fn refuse_shapes(&self, name: &str) -> tegula::Result<()> {
        match self.given().find(|option| *option != "--dtype") {
            Some(option) => Err(tegula::Error::KernelOption(format!("{option} shapes naive and tiled, not {name}"))),
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
        let planted = self.plant.iter().try_fold(asked, |kernel, plant| kernel.planted(plant))?;
        // A mistake of the same sort replaces the one before; nobody who asks for both wants that.
        for plant in &self.plant {
            if planted.planted(plant)? != planted {
                let all = self.plant.join(", ");
                return Err(tegula::Error::KernelOption(format!("these mistakes exclude each other: {all}")));
            }
        }
        Ok(planted)
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

/// The commands that have a manual page.
const COMMANDS: [&str; 10] =
    ["mul", "check", "explain", "bench", "tune", "kernels", "devices", "doctor", "completions", "man"];

#[derive(Debug, Args)]
pub struct ManArgs {
    /// The command whose page it is; the program's own without it
    #[arg(value_parser = PossibleValuesParser::new(COMMANDS))]
    pub command: Option<String>,
}

/// Where a product is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU, or the CPU where there is none.
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
    let all = [named(None), named(Some(Along::Rows))].concat();
    PossibleValuesParser::new(all).try_map(|name| name.parse::<Epilogue>())
}

fn mapping_parser() -> impl TypedValueParser<Value = Mapping> {
    let values = [
        PossibleValue::new("x-col").help("x is the column: neighbours in a warp read neighbours in memory"),
        PossibleValue::new("x-row").help("x is the row: neighbours in a warp read a whole row apart"),
    ];
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Mapping>())
}

fn plant_parser() -> PossibleValuesParser {
    PossibleValuesParser::new(PLANTS.map(|plant| PossibleValue::new(plant).help(plant_help(plant))))
}

fn real(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "give a number, such as 2, -0.5 or 1e-3".into())
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|seconds: &f64| (0.0..=86_400.0).contains(seconds));
    number.ok_or("give seconds from 0 to 86400, such as 0.5".into())
}

/// A factor as a person would write it: no hundred zeros.
pub fn short(x: f64) -> String {
    if x == 0.0 || (1e-5..1e16).contains(&x.abs()) { x.to_string() } else { format!("{x:e}") }
}

/// Reads the command line. `None` where it asked for help or the version, which is then printed.
pub fn parse() -> Result<Option<Cli>, Failure> {
    match Cli::try_parse() {
        Ok(cli) => Ok(Some(cli)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            tegula_files::check_standard_output()?;
            error.print()?;
            Ok(None)
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // As clap has it: whoever asks for nothing is shown what there is; a script has made a mistake.
            error.print()?;
            Err(Failure::HelpInstead)
        }
        Err(error) => Err(Failure::Usage(one_line(&error))),
    }
}

/// Whether a path is `-`: standard input or output.
fn is_standard(path: Option<&PathBuf>) -> bool {
    path.is_some_and(|path| Place::parse(path) == Place::Standard)
}

/// Two options that want standard output for themselves.
fn both_standard(one: &str, other: &str) -> Failure {
    Failure::Usage(format!("{one} and {other} cannot both go to standard output; give {other} a file"))
}

/// The message without its heading, its usage and its line breaks.
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
    use clap::CommandFactory;
    use tegula_kernels::{Barriers, Edges};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_lists_the_types_of_the_table() {
        let list = MUL_EXAMPLES.split_once("Products are made of ").and_then(|(_, rest)| rest.split_once("; "));
        let list = list.expect("a list").0.replace(" and ", ", ");
        let listed: Vec<_> = list.split(", ").filter_map(|item| item.split(' ').next()).collect();
        assert_eq!(listed, Type::OPERANDS.map(Type::name));
    }

    #[test]
    fn every_command_has_examples_and_a_page() {
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
    fn numbers_are_parsed() {
        let parse = whole::<u32>(1);
        assert_eq!((parse("1"), parse("0042"), parse("4294967295")), (Ok(1), Ok(42), Ok(u32::MAX)));
        for text in ["", "0", "00", "-3", "+-1", "x", "1.5", " 1", "0x10"] {
            assert_eq!(parse(text), Err("give a whole number from 1 on".into()), "{text}");
        }
        for text in ["4294967296", "99999999999999999999999"] {
            assert_eq!(parse(text), Err("too large".into()), "{text}");
        }
        assert_eq!([0.0, 2.0, -0.5, 1e300, -1e-300].map(short), ["0", "2", "-0.5", "1e300", "-1e-300"]);
    }

    #[test]
    fn devices_are_parsed() {
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        assert_eq!("cuda:12".parse(), Ok(DeviceChoice::Cuda(12)));
        for wrong in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "CPU"] {
            assert!(wrong.parse::<DeviceChoice>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_benchmark_is_said_again_without_its_files() {
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
    fn presets_yield_to_options() {
        let problem = |line: &str| match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Command::Check(args) => match &args.kernel {
                Subject::Kernel(kernel) => args.problem(kernel),
                other => panic!("{} is no kernel", other.text()),
            },
            other => panic!("{other:?}"),
        };
        let k3 = problem("tegula check k3 --tile 32 --plant no-guards").unwrap();
        let expected = Plain { tile: 32, edges: Edges::Unguarded, ..Plain::named("K3").unwrap() };
        assert_eq!((k3.recipe.kernel, k3.m, k3.effort.seeds), (expected.into(), 64, 1));
        let k5 = problem("tegula check K5 --plant missing-first-barrier").unwrap();
        let expected = Plain { barriers: Barriers::NoFirst, ..Plain::named("K5").unwrap() };
        assert_eq!((k5.recipe.kernel, k5.m, k5.n, k5.k), (expected.into(), 4, 4, 4));
        assert_eq!(problem("tegula check K4 --tile 24 --n 5").map(|p| (p.m, p.n, p.k)).unwrap(), (72, 5, 72));
        assert!(problem("tegula check naive --plant extra-barrier").is_err());
        let shaped = problem("tegula check MMA_64x32x64_32x32_16x8_3_1_1:3 --n 7 --dtype i8").unwrap();
        assert_eq!((shaped.m, shaped.n, shaped.k), (64, 7, 256));
        assert_eq!(shaped.recipe.name(), "mma_i8_64x32x64_32x32_16x8_3_1_1_rcr_v110_parts_3_pb");
        for refused in ["--tile 3", "--mapping x-row", "--plant no-guards", "--dtype f64"] {
            let line = format!("tegula check mma_64x32x32_32x32_16x8_3_1_1 {refused}");
            assert!(problem(&line).is_err(), "{line}");
        }
    }
}
