//! Benchmarks of matrix products against peer libraries.
//!
//! [`measure`] times a product and the best candidate of a peer library in the same run.
//!
//! - `accuracy` checks results against [`oracle`];
//! - `cpu` and `gpu` measure on a device, with the samples, statistics and random inputs of
//!   [`tegula::tune`].
//!
//! The crate writes no files and prints nothing.

mod accuracy;
mod cpu;
#[cfg(feature = "cuda")]
pub mod cublaslt;
#[cfg(feature = "cuda")]
mod gpu;
mod limits;
pub mod nd;
pub mod oracle;
pub mod peer;

pub use limits::{Ceiling, Limits, limits};
use tegula::Device;
use tegula::element::{Accuracy, Element, Scalar};
use tegula::epilogue::{BiasShape, Epilogue, EpilogueOperands};
use tegula::error::{Error, Result};
use tegula::matrix::{Matrix, Shape, View};
use tegula::tune::data;
use tegula::tune::interleave::{InterleavedTimes, SamplingPlan, Timed, estimate_call_time, interleave, settle};
use tegula::tune::stats::{Quantiles, noise_floor};
use tegula_core::element::for_each_operand_type;
use tegula_kernels::plan::{Caps, Plan};

#[cfg(feature = "cuda")]
use crate::cublaslt::CublasLt;
pub use crate::peer::Blas;
use crate::peer::PeerLibrary;

/// A benchmark case: C = act(alpha·A·B + beta·C + bias) for `batch` matrices each.
///
/// A is m×k, B is k×n, C is m×n.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case<T: Element> {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Matrices in the batch.
    pub batch: usize,
    /// Whether A is stored as k×m and B as n×k, row-major, and read as its transpose.
    pub transposed: [bool; 2],
    /// Scalar of A·B.
    pub alpha: T::Acc,
    /// Scalar of C. Unless it is 0, each timed call reads the result of the previous one.
    pub beta: T::Acc,
    /// Required accuracy. The peer library computes at the same one; r of both is in its units.
    pub accuracy: Accuracy,
    /// Epilogue; the batch shares one bias.
    pub epilogue: Epilogue,
}

impl<T: Element> Case<T> {
    /// Error bound of r, see [`oracle::bound_with_epilogue`].
    pub fn bound(&self) -> f64 {
        oracle::bound_with_epilogue::<T>(self.accuracy.of(T::TYPE), self.k, self.epilogue)
    }

    /// Floating-point operations of one call; a multiply-add counts as two.
    pub fn flops(&self) -> f64 {
        2.0 * self.batch as f64 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// Minimum memory traffic of a call in bytes: A, B and bias once, C once, or twice if read.
    pub fn traffic(&self) -> f64 {
        let [a, b, c] = self.bytes();
        let bias = self.bias().map_or(0.0, |bias| (bias.rows * bias.cols * <T::Out as Scalar>::TYPE.size()) as f64);
        (a + b) as f64 + bias + if self.beta == T::Acc::ZERO { c as f64 } else { 2.0 * c as f64 }
    }

    /// Bytes of A, B and C.
    fn bytes(&self) -> [u128; 3] {
        let (input, output) = (T::TYPE.size(), <T::Out as Scalar>::TYPE.size());
        let bytes = |shape: Shape, size: usize| {
            let extents = [shape.batches, shape.rows, shape.cols, size];
            extents.into_iter().fold(1, |bytes: u128, extent| bytes.saturating_mul(extent as u128))
        };
        let [a, b, c] = self.stored();
        [bytes(a, input), bytes(b, input), bytes(c, output)]
    }

    /// Shapes of A, B and C in memory.
    fn stored(&self) -> [Shape; 3] {
        let shape = |rows, cols, transposed| match transposed {
            true => Shape { batches: self.batch, rows: cols, cols: rows },
            false => Shape { batches: self.batch, rows, cols },
        };
        let [a, b] = self.transposed;
        [shape(self.m, self.k, a), shape(self.k, self.n, b), shape(self.m, self.n, false)]
    }

    /// Shape of the bias: a row or a column.
    fn bias(&self) -> Option<Shape> {
        self.epilogue.bias.map(|bias_shape| match bias_shape {
            BiasShape::Row => Shape::new(1, self.n),
            BiasShape::Column => Shape::new(self.m, 1),
        })
    }

    fn reject_empty(&self) -> Result<()> {
        let sizes = [self.m, self.n, self.k, self.batch];
        if sizes.contains(&0) {
            return Err(Error::Shape("an empty product has no run time; use sizes of at least 1".into()));
        }
        Ok(())
    }
}

/// Settings of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Seed of the random inputs.
    pub seed: u64,
    /// Seconds of interleaved sampling; long calls exceed it to complete the minimum of rounds.
    pub seconds: f64,
    /// Plan to run instead of the heuristic's choice.
    pub plan: Option<Plan>,
    /// Whether the product is batch-invariant ([`Gemm::batch_invariant`](tegula::Gemm)).
    pub batch_invariant: bool,
}

/// The name of Tegula with the default plan, as a peer.
const DEFAULT_PLAN: &str = "default plan";

/// The peer libraries of a measurement.
#[derive(Debug)]
pub struct Peer(PeerKind);

#[derive(Debug)]
enum PeerKind {
    None,
    #[cfg(feature = "cuda")]
    CublasLt(CublasLt),
    Host(Vec<PeerLibrary>),
    /// Tegula with the default plan.
    Default,
}

impl Peer {
    /// No peer library.
    pub const fn none() -> Peer {
        Peer(PeerKind::None)
    }

    /// The fastest candidate of cublasLt on a GPU.
    ///
    /// # Errors
    /// [`Error::PeerUnavailable`] if the library is not found or the device is not a GPU.
    pub fn cublaslt(device: &Device) -> Result<Peer> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = device.gpu() {
            return CublasLt::open(gpu).map(|lt| Peer(PeerKind::CublasLt(lt)));
        }
        let why = format!("it runs on GPUs, not on {}", device.name());
        Err(Error::PeerUnavailable { library: "cublasLt", why, advice: "choose --device cuda:0, or leave out --vs" })
    }

    /// The fastest candidate of several CPU libraries.
    ///
    /// # Errors
    /// [`Error::PeerUnavailable`] if a library is not found or the device is not the CPU.
    pub fn host(which: &[Blas], device: &Device) -> Result<Peer> {
        if device.name() != "cpu" {
            let why = format!("it runs on the CPU, not on {}", device.name());
            return Err(Error::PeerUnavailable {
                library: "a CPU library",
                why,
                advice: "choose --device cpu, or leave out --vs",
            });
        }
        let libraries: Result<Vec<_>> = which.iter().map(|&which| PeerLibrary::open(which)).collect();
        libraries.map(|libraries| Peer(PeerKind::Host(libraries)))
    }

    /// Tegula with the default plan, on a GPU.
    ///
    /// # Errors
    /// [`Error::PeerUnavailable`] if the device is not a GPU.
    pub fn default_plan(device: &Device) -> Result<Peer> {
        match device.caps() {
            Caps::Gpu(_) => Ok(Peer(PeerKind::Default)),
            _ => Err(Error::PeerUnavailable {
                library: "the default plan",
                why: format!("it is timed on GPUs, not on {}", device.name()),
                advice: "choose --device cuda:0, or leave out --vs",
            }),
        }
    }

    /// Names and versions, separated by commas; `None` without a peer library.
    pub fn name(&self) -> Option<String> {
        match &self.0 {
            PeerKind::None => None,
            #[cfg(feature = "cuda")]
            PeerKind::CublasLt(lt) => Some(format!("cublasLt {}", lt.version())),
            PeerKind::Host(libraries) => Some(libraries.iter().map(PeerLibrary::name).collect::<Vec<_>>().join(", ")),
            PeerKind::Default => Some(DEFAULT_PLAN.into()),
        }
    }
}

/// Time and error of one implementation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Seconds per call.
    pub time: Quantiles,
    /// The largest error in the units of [`oracle`]; infinite for a wrong NaN, infinity or integer.
    pub r: f64,
}

/// Measurement of the fastest candidate of the peer libraries.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerMeasurement {
    /// The library and the candidate.
    pub name: String,
    /// Number of timed candidates.
    pub candidates: usize,
    /// Its time and error.
    pub measurement: Measurement,
    /// The other candidates of CPU libraries with estimated seconds per call, fastest first.
    pub other_candidates: Vec<(String, f64)>,
}

/// A candidate of a CPU library that uses more processors than Tegula's number of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct ExcludedPeer {
    /// The library and the candidate.
    pub name: String,
    /// Processors that its calls keep busy.
    pub processors: f64,
}

/// Result of [`measure`].
#[derive(Clone, Debug, PartialEq)]
pub struct BenchReport {
    /// Tegula's kernel.
    pub kernel: String,
    /// Tegula's time and error.
    pub ours: Measurement,
    /// The peer library's; `None` without one or if it does not support the product.
    pub peer: Option<PeerMeasurement>,
    /// Noise floor of the run, see [`noise_floor`].
    pub noise_floor: f64,
    /// Rows of C, over the whole batch, that were checked for errors.
    pub rows_checked: usize,
    /// Sets of inputs that calls rotate through, so that inputs are never cache-resident.
    pub input_sets: usize,
    /// Sampling of the interleaved run.
    pub sampling: SamplingPlan,
    /// Interleaved rounds.
    pub rounds: usize,
    /// Samples discarded because the CPU clock was below its full frequency.
    pub discarded: usize,
    /// Threads of a CPU product; `None` on other devices.
    pub threads: Option<usize>,
    /// Candidates of CPU libraries that were not timed.
    pub excluded: Vec<ExcludedPeer>,
}

impl BenchReport {
    /// Speedup over the peer library: its median time divided by Tegula's.
    pub fn speedup(&self) -> Option<f64> {
        let peer = self.peer.as_ref()?;
        Some(peer.measurement.time.median / self.ours.time.median).filter(|ratio| ratio.is_finite())
    }
}

/// Times a product on a device, interleaved with a peer library, and checks both results.
///
/// Inputs are normally distributed, in more sets than caches hold. All candidates of the peer
/// library are timed. Then Tegula and the fastest candidate alternate; Tegula runs twice per round,
/// which yields the noise floor. GPU calls are captured as graphs and timed by events. Results are
/// checked on a call of the same kind.
///
/// # Errors
/// [`Error::OutOfMemory`] if the case does not fit, [`Error::Shape`] for empty products, and errors
/// of the device and the peer library.
pub fn measure<T: Measured>(device: &Device, case: &Case<T>, settings: &Settings, peer: &Peer) -> Result<BenchReport> {
    T::measure(device, case, settings, peer)
}

/// An element type with products that can be measured.
///
/// Generic code is compiled in the crate that names its types. The program `tegula` is hardly
/// optimized, and a short call would take twice as long there.
pub trait Measured: Element {
    /// [`measure`].
    ///
    /// # Errors
    /// Those of [`measure`].
    fn measure(device: &Device, case: &Case<Self>, settings: &Settings, peer: &Peer) -> Result<BenchReport>;
}

macro_rules! measured {
    ($($t:ty;)*) => {$(impl Measured for $t {
        // Inlined into another crate, it would be compiled there.
        #[inline(never)]
        fn measure(device: &Device, case: &Case<$t>, settings: &Settings, peer: &Peer) -> Result<BenchReport> {
            measure_inputs(device, case, settings, peer)
        }
    })*};
}
for_each_operand_type!(measured);

fn measure_inputs<T: Element>(
    device: &Device,
    case: &Case<T>,
    settings: &Settings,
    peer: &Peer,
) -> Result<BenchReport> {
    case.reject_empty()?;
    let inputs = Inputs::new(case, settings.seed)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = device.gpu() {
        return gpu::measure(gpu, &inputs, settings, peer);
    }
    let libraries = match &peer.0 {
        PeerKind::Host(libraries) => libraries.as_slice(),
        _ => &[],
    };
    cpu::measure(device, &inputs, settings, libraries)
}

/// Operands of a case on the host, as stored.
struct Inputs<T: Element> {
    case: Case<T>,
    a: Matrix<T>,
    b: Matrix<T>,
    /// Initial C, if beta is not 0.
    c: Option<Matrix<T::Out>>,
    bias: Option<Matrix<T::Out>>,
}

impl<T: Element> Inputs<T> {
    fn new(case: &Case<T>, seed: u64) -> Result<Self> {
        let [a, b, c] = case.stored();
        let seed = |which| seed.wrapping_mul(3).wrapping_add(which);
        let reads_c = case.beta != T::Acc::ZERO;
        Ok(Inputs {
            case: *case,
            a: data::normal(a, seed(0))?,
            b: data::normal(b, seed(1))?,
            c: reads_c.then(|| data::normal(c, seed(2))).transpose()?,
            bias: case.bias().map(|bias| data::normal(bias, seed(3))).transpose()?,
        })
    }

    fn a(&self) -> View<'_, T> {
        transpose_if(self.a.view(), self.case.transposed[0])
    }

    fn b(&self) -> View<'_, T> {
        transpose_if(self.b.view(), self.case.transposed[1])
    }

    /// Operands of the epilogue.
    fn epilogue_operands(&self) -> EpilogueOperands<'_, T::Out> {
        EpilogueOperands { bias: self.bias.as_ref().map(Matrix::view), activation: self.case.epilogue.activation }
    }

    /// C before a checked product: the input of beta·C, or NaN that the product must overwrite.
    fn c_before(&self) -> Result<Matrix<T::Out>> {
        match &self.c {
            Some(c) => Matrix::from_view(c.view()),
            None => {
                let [.., c] = self.case.stored();
                let mut before = Matrix::zeros_of_shape(c)?;
                before.as_mut_slice().fill(T::Out::from_bits(u64::MAX));
                Ok(before)
            }
        }
    }
}

fn transpose_if<T: Scalar>(view: View<'_, T>, transposed: bool) -> View<'_, T> {
    if transposed { view.t() } else { view }
}

/// Indices of candidates with estimated seconds per call, fastest first.
type Ranking = Vec<(usize, f64)>;

/// The ranked candidates and the interleaved times of the fastest one.
struct PeerSearch {
    times: InterleavedTimes,
    sampling: SamplingPlan,
    ranking: Ranking,
}

/// Ranks the candidates by `rank` and times the fastest one interleaved with Tegula.
///
/// `power_limited`: whether calls of this many seconds may reach the power limit.
fn search_peers<P: Timed>(
    ours: &mut dyn Timed,
    candidates: &mut [P],
    rank: fn(&mut [P], SamplingPlan) -> Ranking,
    sets: usize,
    power_limited: impl Fn(f64) -> bool,
    seconds: f64,
    max_slot: f64,
) -> Result<PeerSearch> {
    let call = estimate_call_time(ours)?;
    let power_limited = power_limited(call);
    let sampling = SamplingPlan::new(call, sets, power_limited).with_slots_of(call, max_slot);
    let ranking = rank(candidates, sampling);
    if ranking.is_empty() && power_limited {
        settle(ours, call, sampling);
    }
    let peer = ranking.first().map(|&(best, _)| &mut candidates[best] as &mut dyn Timed);
    let times = interleave(ours, peer, sampling, seconds)?;
    Ok(PeerSearch { times, sampling, ranking })
}

impl PeerSearch {
    /// Index of the fastest candidate.
    fn fastest(&self) -> Option<usize> {
        self.ranking.first().map(|&(fastest, _)| fastest)
    }

    /// Seconds per call of Tegula and of the fastest candidate.
    fn call_times(&self) -> (Quantiles, Option<Quantiles>) {
        let none = Quantiles { p20: f64::NAN, median: f64::NAN, p80: f64::NAN };
        (Quantiles::of(&self.times.ours.concat()).unwrap_or(none), Quantiles::of(&self.times.peer))
    }

    /// Completes the report with the kernel, the error and the inputs of the device.
    fn report(
        &self,
        kernel: String,
        r: f64,
        peer: Option<PeerMeasurement>,
        rows_checked: usize,
        sets: usize,
    ) -> BenchReport {
        let [first, second] = &self.times.ours;
        BenchReport {
            kernel,
            ours: Measurement { time: self.call_times().0, r },
            peer,
            noise_floor: noise_floor(first, second),
            rows_checked,
            input_sets: sets,
            sampling: self.sampling,
            rounds: self.times.rounds,
            discarded: 0,
            threads: None,
            excluded: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(m: usize, n: usize, k: usize) -> Case<f32> {
        let (accuracy, epilogue) = (Accuracy::Full, Epilogue::NONE);
        Case { m, n, k, batch: 2, transposed: [true, false], alpha: 1.0, beta: 0.0, accuracy, epilogue }
    }

    /// Calls of a millisecond.
    struct Millisecond(f64);

    impl Timed for Millisecond {
        fn time(&mut self, samples: usize, calls: usize) -> Result<Vec<f64>> {
            self.0 += 1e-3 * ((samples + 1) * calls) as f64;
            Ok(vec![1e-3; samples])
        }
    }

    /// From idle a GPU is faster than it stays at its power limit.
    #[test]
    fn clocks_settle_without_a_peer_too() {
        use tegula::tune::interleave::rank_candidates;

        let seconds = |power_limited: bool| {
            let mut ours = Millisecond(0.0);
            let mut none = [] as [Millisecond; 0];
            let search =
                search_peers(&mut ours, &mut none, rank_candidates, 1, |_| power_limited, 0.0, f64::MAX).unwrap();
            let counted: usize = search.times.ours.iter().map(Vec::len).sum();
            (ours.0, 1e-3 * counted as f64)
        };
        let ((limited, counted), (unlimited, _)) = (seconds(true), seconds(false));
        assert!(limited > counted + 1.3 && unlimited < 0.3, "{limited} s, {counted} s, {unlimited} s");
    }

    #[test]
    fn inputs_have_the_shapes_and_traffic_of_the_case() {
        let case = case(3, 5, 7);
        let inputs = Inputs::new(&case, 1).unwrap();
        assert_eq!(inputs.a.shape(), Shape { batches: 2, rows: 7, cols: 3 });
        assert_eq!(
            (inputs.a().shape(), inputs.b().shape()),
            (Shape { batches: 2, rows: 3, cols: 7 }, Shape { batches: 2, rows: 7, cols: 5 })
        );
        assert_eq!(case.flops(), 2.0 * 2.0 * 105.0);
        assert_eq!(case.traffic(), 4.0 * 2.0 * (21.0 + 35.0 + 15.0));
        assert_eq!(Case { beta: 0.5, ..case }.traffic() - case.traffic(), 4.0 * 2.0 * 15.0);
        for (bias_shape, [rows, cols]) in [(BiasShape::Row, [1, 5]), (BiasShape::Column, [3, 1])] {
            let biased = Case { epilogue: Epilogue { bias: Some(bias_shape), ..Epilogue::NONE }, ..case };
            assert_eq!(biased.traffic() - case.traffic(), 4.0 * (rows * cols) as f64);
            assert_eq!(
                Inputs::new(&biased, 1).unwrap().epilogue_operands().bias.unwrap().shape(),
                Shape::new(rows, cols)
            );
        }
        assert!(inputs.c.is_none() && inputs.c_before().unwrap().as_slice().iter().all(|x| x.is_nan()));
    }

    #[test]
    fn measure_empty_product_is_rejected() {
        let settings = Settings { seed: 0, seconds: 0.0, plan: None, batch_invariant: false };
        let result = measure(&Device::cpu(), &case(3, 0, 7), &settings, &Peer::none());
        assert!(matches!(result, Err(Error::Shape(_))));
    }
}
