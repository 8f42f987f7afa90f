//! Timing products so that the figures are hard to fool, see [`measure`].
//!
//! `rounds` says who is timed when and `stats` what is made of the times, for anything that has a clock; `data` makes inputs and
//! `accuracy` judges results; `tune` looks for the fastest recipe, see [`tune()`]. `cpu` and `gpu` are where products and clocks are real. No file is written and nothing is printed here.

mod accuracy;
mod cpu;
#[cfg(feature = "cuda")]
pub mod cublaslt;
mod data;
#[cfg(feature = "cuda")]
mod gpu;
mod limits;
pub mod nd;
pub mod oracle;
pub mod peer;
#[cfg(feature = "cuda")]
pub mod repeat;
mod rounds;
mod stats;
mod tune;

pub use data::uniform;
pub use limits::{Ceiling, Limits, limits};
pub use rounds::{Pace, Timed, Turns, alternate, compare, glances, pilot, ranked, ranked_by_turns};
pub use stats::{Quantiles, median, spread};
use tegula::Device;
use tegula::element::{Accuracy, Element, Scalar};
use tegula::epilogue::{Along, Epilogue, Finish};
use tegula::error::{Error, Result};
use tegula::matrix::{Matrix, Shape, View};
use tegula_kernels::plan::Plan;
pub use tune::{Effort, Timing, Tuning};

#[cfg(feature = "cuda")]
use crate::cublaslt::CublasLt;
pub use crate::peer::Blas;

/// A product to be timed: C = act(alpha·A·B + beta·C + bias), A m×k, B k×n, C m×n, batches of `batch` each.
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
    /// Whether A lies as k×m and B as n×k, row-major, and is transposed by its strides.
    pub transposed: [bool; 2],
    /// Factor of A·B.
    pub alpha: T::Acc,
    /// Factor of C. Unless it is 0 the calls that are timed feed on each other's results.
    pub beta: T::Acc,
    /// How exact the product has to be; the peer's is made in the same way, and r of both is in its units.
    pub accuracy: Accuracy,
    /// What happens to sums on their way to C; a bias is one for the whole batch. [`tune()`] leaves it out: it is the same for every kernel.
    pub epilogue: Epilogue,
}

impl<T: Element> Case<T> {
    /// What r may be, see [`oracle::bound_of`].
    pub fn bound(&self) -> f64 {
        oracle::bound_of::<T>(self.accuracy.of(T::TYPE), self.k, self.epilogue)
    }

    /// Operations of one call, a multiply-add being two.
    pub fn flops(&self) -> f64 {
        2.0 * self.batch as f64 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// Bytes that a call has to move at the least: A, B and the bias once, C once or where it is also read, twice.
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

    /// A, B and C as they lie in memory.
    fn stored(&self) -> [Shape; 3] {
        let shape = |rows, cols, transposed| match transposed {
            true => Shape { batches: self.batch, rows: cols, cols: rows },
            false => Shape { batches: self.batch, rows, cols },
        };
        let [a, b] = self.transposed;
        [shape(self.m, self.k, a), shape(self.k, self.n, b), shape(self.m, self.n, false)]
    }

    /// The bias: a row or a column.
    fn bias(&self) -> Option<Shape> {
        self.epilogue.bias.map(|along| match along {
            Along::Rows => Shape::new(1, self.n),
            Along::Columns => Shape::new(self.m, 1),
        })
    }

    fn refuse_empty(&self) -> Result<()> {
        let sizes = [self.m, self.n, self.k, self.batch];
        if sizes.contains(&0) {
            return Err(Error::Shape("a product of nothing takes no time; give sizes from 1 on".into()));
        }
        Ok(())
    }
}

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Where the inputs come from.
    pub seed: u64,
    /// Seconds in which the sides take turns; long calls take what they need for a few rounds.
    pub seconds: f64,
    /// A kernel in place of the one that a plan would choose.
    pub plan: Option<Plan>,
}

/// Whom to measure against.
#[derive(Debug)]
pub struct Peer(Kind);

#[derive(Debug)]
enum Kind {
    None,
    #[cfg(feature = "cuda")]
    CublasLt(CublasLt),
    Host(Vec<crate::peer::Peer>),
}

impl Peer {
    /// Nobody.
    pub const fn none() -> Peer {
        Peer(Kind::None)
    }

    /// The best of all candidates of cublasLt, on the GPU that a device is.
    ///
    /// # Errors
    /// [`Error::NoPeer`] where the library is not here or the device is no GPU.
    pub fn cublaslt(device: &Device) -> Result<Peer> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = device.gpu() {
            return CublasLt::open(gpu).map(|lt| Peer(Kind::CublasLt(lt)));
        }
        let why = format!("it multiplies on GPUs, and the device is {}", device.name());
        Err(Error::NoPeer { library: "cublasLt", why, advice: "choose --device cuda:0, or leave out --vs" })
    }

    /// Libraries of the processor: the fastest of all that they have.
    ///
    /// # Errors
    /// [`Error::NoPeer`] where one of them is not here or the device is no processor.
    pub fn host(which: &[Blas], device: &Device) -> Result<Peer> {
        if device.name() != "cpu" {
            let why = format!("it multiplies on the processor, and the device is {}", device.name());
            return Err(Error::NoPeer {
                library: "such a library",
                why,
                advice: "choose --device cpu, or leave out --vs",
            });
        }
        let libraries: Result<Vec<_>> = which.iter().map(|&which| crate::peer::Peer::open(which)).collect();
        libraries.map(|libraries| Peer(Kind::Host(libraries)))
    }

    /// Its name and version, or those of several; `None` of nobody.
    pub fn name(&self) -> Option<String> {
        match &self.0 {
            Kind::None => None,
            #[cfg(feature = "cuda")]
            Kind::CublasLt(lt) => Some(format!("cublasLt {}", lt.version())),
            Kind::Host(libraries) => Some(libraries.iter().map(crate::peer::Peer::name).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// One side of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// Seconds of a call.
    pub call: Quantiles,
    /// The largest error, in the units of [`oracle`]; infinite where no number tells how wrong it is.
    pub r: f64,
}

/// The side that ours is measured against.
#[derive(Clone, Debug, PartialEq)]
pub struct Rival {
    /// The library and which of its candidates.
    pub name: String,
    /// How many candidates were timed.
    pub candidates: usize,
    /// Its figures.
    pub side: Side,
    /// The other candidates of libraries of the processor, and about how many seconds a call of each takes, the fastest first.
    pub others: Vec<(String, f64)>,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Our kernel.
    pub kernel: String,
    /// Our figures.
    pub ours: Side,
    /// The peer's; `None` without a peer or where it has no such product.
    pub rival: Option<Rival>,
    /// How far ours is from itself, see [`spread`].
    pub spread: f64,
    /// Rows of C, over the whole batch, that r was looked for in.
    pub rows_checked: usize,
    /// Sets of inputs that the calls went round, so that none was found in a cache.
    pub input_sets: usize,
    /// How the sides took turns.
    pub pace: Pace,
    /// How often.
    pub rounds: usize,
    /// Samples that did not count, since the processor ran at less than full speed.
    pub discarded: usize,
    /// Threads that products on the processor had; `None` of other devices.
    pub threads: Option<usize>,
}

impl Measured {
    /// The peer's median time by ours: above 1, ours is faster.
    pub fn ratio(&self) -> Option<f64> {
        let rival = self.rival.as_ref()?;
        Some(rival.side.call.median / self.ours.call.median).filter(|ratio| ratio.is_finite())
    }
}

/// Times a product on a device, against a peer in the same run, and judges both results.
///
/// Inputs are normal numbers from the seed, in as many sets as no cache holds together. Every candidate of the peer is timed and the best
/// kept; then ours and the peer take turns, ours twice in each round, so that the row tells how far the same program is from itself.
/// On a GPU calls are queued ahead as graphs and timed by events. The result that is judged is that of a call of the same kind.
///
/// # Errors
/// [`Error::OutOfMemory`] where a row does not fit, [`Error::Shape`] for empty products, and what the device and the peer say.
pub fn measure<T: Element>(device: &Device, case: &Case<T>, settings: &Settings, peer: &Peer) -> Result<Measured> {
    case.refuse_empty()?;
    let inputs = Inputs::new(case, settings.seed)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = device.gpu() {
        return gpu::measure(gpu, &inputs, settings, peer);
    }
    let libraries = match &peer.0 {
        Kind::Host(libraries) => libraries.as_slice(),
        _ => &[],
    };
    cpu::measure(device, &inputs, settings, libraries)
}

/// Looks for the fastest recipe for a product on a GPU, by timing those that may make it.
///
/// What the cost model thinks more than twice as slow as its best is left out, unless [`Effort::all`] says otherwise. The others are
/// glanced at, then the few that looked fastest and the cost model's choice take turns. Inputs are those of [`measure`]. Results are not judged:
/// every recipe is of kernels that are tested.
///
/// # Errors
/// [`Error::Unsupported`] where the device is no GPU; else as [`measure`].
pub fn tune<T: Element>(device: &Device, case: &Case<T>, effort: &Effort) -> Result<Tuning> {
    case.refuse_empty()?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = device.gpu() {
        return gpu::tune(gpu, &Inputs::new(case, effort.seed)?, effort);
    }
    let _ = effort;
    Err(Error::Unsupported { what: "a choice of kernels to tune".into(), ty: T::TYPE, device: device.name() })
}

/// Operands on the host, as they are stored.
struct Inputs<T: Element> {
    case: Case<T>,
    a: Matrix<T>,
    b: Matrix<T>,
    /// C before the product, where that counts.
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
        turned(self.a.view(), self.case.transposed[0])
    }

    fn b(&self) -> View<'_, T> {
        turned(self.b.view(), self.case.transposed[1])
    }

    /// What is done last.
    fn finish(&self) -> Finish<'_, T::Out> {
        Finish { bias: self.bias.as_ref().map(Matrix::view), activation: self.case.epilogue.activation }
    }

    /// C as it has to be before a product that is judged: what beta scales, or what every element has to be written over.
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

fn turned<T: Scalar>(view: View<'_, T>, transposed: bool) -> View<'_, T> {
    if transposed { view.t() } else { view }
}

/// Candidates, the best first, and about how many seconds a call of each takes.
type Ranking = Vec<(usize, f64)>;

/// What came of a contest.
struct Contest {
    turns: Turns,
    pace: Pace,
    ranked: Ranking,
}

/// Ours against the best of the candidates, which `rank` finds.
fn contest<P: Timed>(
    ours: &mut dyn Timed,
    candidates: &mut [P],
    rank: fn(&mut [P], Pace) -> Ranking,
    sets: usize,
    hungry: bool,
    seconds: f64,
) -> Result<Contest> {
    let pace = Pace::of(pilot(ours)?, sets, hungry);
    let ranked = rank(candidates, pace);
    let peer = ranked.first().map(|&(best, _)| &mut candidates[best] as &mut dyn Timed);
    let turns = alternate(ours, peer, pace, seconds)?;
    Ok(Contest { turns, pace, ranked })
}

impl Contest {
    /// The candidate that was best.
    fn best(&self) -> Option<usize> {
        self.ranked.first().map(|&(best, _)| best)
    }

    /// Seconds of a call of ours, and of the peer's.
    fn calls(&self) -> (Quantiles, Option<Quantiles>) {
        let none = Quantiles { p20: f64::NAN, median: f64::NAN, p80: f64::NAN };
        (Quantiles::of(&self.turns.ours.concat()).unwrap_or(none), Quantiles::of(&self.turns.peer))
    }

    /// The row, with what only the device knows.
    fn measured(&self, kernel: String, r: f64, rival: Option<Rival>, rows_checked: usize, sets: usize) -> Measured {
        let [first, second] = &self.turns.ours;
        Measured {
            kernel,
            ours: Side { call: self.calls().0, r },
            rival,
            spread: spread(first, second),
            rows_checked,
            input_sets: sets,
            pace: self.pace,
            rounds: self.turns.rounds,
            discarded: 0,
            threads: None,
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

    #[test]
    fn operands_lie_as_the_layout_says() {
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
        for (along, [rows, cols]) in [(Along::Rows, [1, 5]), (Along::Columns, [3, 1])] {
            let biased = Case { epilogue: Epilogue { bias: Some(along), ..Epilogue::NONE }, ..case };
            assert_eq!(biased.traffic() - case.traffic(), 4.0 * (rows * cols) as f64);
            assert_eq!(Inputs::new(&biased, 1).unwrap().finish().bias.unwrap().shape(), Shape::new(rows, cols));
        }
        assert!(inputs.c.is_none() && inputs.c_before().unwrap().as_slice().iter().all(|x| x.is_nan()));
    }

    #[test]
    fn only_a_gpu_has_kernels_to_choose_from() {
        let effort = Effort { seed: 0, seconds: 0.0, all: false };
        for device in [Device::cpu(), Device::interp()] {
            assert!(matches!(tune(&device, &case(3, 5, 7), &effort), Err(Error::Unsupported { .. })));
        }
        assert!(matches!(tune(&Device::cpu(), &case(3, 0, 7), &effort), Err(Error::Shape(_))));
    }

    #[test]
    fn a_product_of_nothing_is_refused() {
        let settings = Settings { seed: 0, seconds: 0.0, plan: None };
        let refused = measure(&Device::cpu(), &case(3, 0, 7), &settings, &Peer::none());
        assert!(matches!(refused, Err(Error::Shape(_))));
    }
}
