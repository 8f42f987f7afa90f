//! Calibration: the description of a GPU by which the cost models predict the times measured on it.
//!
//! A calibration fits three properties to measured times: the bandwidth of memory, the clock of the
//! SMs under load, and the power limit. Each timed product is limited by one of them. A coordinate
//! search on a logarithmic scale minimizes the mean error of the predicted times. The error of one
//! time is bounded, since the models do not describe every kernel well.

use tegula_core::element::{Accuracy, Type};
use tegula_ir::Order2d;

use super::device::GpuDescription;
use super::legalize::{Candidate, Recipe};
use super::problem::{OperandLayout, Problem};
use crate::registry::GemmKernel;

/// Products to time, in the order of their use: B contiguous along k (as the weights of a model) or
/// along n, and m, n, k.
///
/// Few rows are limited by the bandwidth of memory, middle sizes by the clock, and large products
/// by the power limit.
const PRODUCTS: [(Type, bool, [usize; 3]); 16] = [
    (Type::BF16, true, [8, 16384, 8192]),
    (Type::BF16, true, [1024, 1024, 1024]),
    (Type::BF16, true, [8192, 8192, 8192]),
    (Type::F32, false, [1, 16384, 8192]),
    (Type::F32, false, [2048, 2048, 2048]),
    (Type::BF16, false, [4, 8192, 16384]),
    (Type::BF16, true, [512, 4096, 4096]),
    (Type::BF16, false, [4096, 8192, 8192]),
    (Type::BF16, true, [64, 14336, 4096]),
    (Type::F32, false, [1024, 1024, 1024]),
    (Type::BF16, false, [2048, 2048, 2048]),
    (Type::BF16, true, [8192, 4096, 14336]),
    (Type::BF16, true, [32, 28672, 8192]),
    (Type::F64, false, [1024, 1024, 1024]),
    (Type::BF16, false, [768, 3072, 1536]),
    (Type::F32, false, [512, 4096, 4096]),
];
/// The kernels of each family that are timed for a product: those predicted to be the fastest.
const KERNELS: usize = 2;
/// Families with a predicted time beyond this factor of the fastest are not timed.
const SLOW: f64 = 4.0;
/// The bound of the error of a time, as a natural logarithm.
const MAX_ERROR: f64 = 0.3;
/// The bound in a first search: far from the properties of the GPU, all errors exceed the other.
const LOOSE_MAX_ERROR: f64 = 3.0;
/// The first step of the search as a factor, and the step at which it ends.
const STEPS: [f64; 2] = [1.25, 1.002];
/// The factor by which a property may differ from that of the initial description.
const MAX_FACTOR: f64 = 16.0;
/// The fewest times that a description is fitted to.
const MIN_TIMES: usize = 6;

/// A measured time.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredTime {
    /// The problem.
    pub problem: Problem,
    /// The recipe.
    pub recipe: Recipe,
    /// Microseconds of a call.
    pub microseconds: f64,
}

/// The result of a calibration.
#[derive(Clone, Copy, Debug)]
pub struct Calibration {
    /// The description that predicts the times best.
    pub description: GpuDescription,
    /// The mean error of the predictions by the initial description and by this one, as fractions.
    /// Errors of more than 35 % count as 35 %.
    pub errors: [f64; 2],
}

/// The problems to time.
pub fn problems() -> impl Iterator<Item = Problem> {
    PRODUCTS.into_iter().map(|(ty, along_k, [m, n, k])| {
        let b = if along_k { Order2d::ColMajor } else { Order2d::RowMajor };
        let layouts = [Order2d::RowMajor, b, Order2d::RowMajor].map(|order| OperandLayout::new(order, true));
        Problem { ty, accuracy: Accuracy::Full, m, n, k, batches: 1, layouts }
    })
}

/// The recipes to time for a problem: of each family that may be the fastest, the best predicted.
pub fn recipes(problem: &Problem, gpu: &GpuDescription) -> Vec<Recipe> {
    let mut all = GemmKernel::candidates(problem, gpu);
    all.sort_by(|a, b| a.time().total_cmp(&b.time()));
    let slowest = all.first().map_or(0.0, |fastest| SLOW * fastest.time());
    let mut chosen: Vec<Recipe> = Vec::new();
    for candidate in all.iter().filter(|candidate| candidate.time() <= slowest) {
        let Candidate { recipe, .. } = candidate;
        let of_family = chosen.iter().filter(|one| is_same_family(&one.kernel, &recipe.kernel)).count();
        if of_family < KERNELS && candidate.time().is_finite() {
            chosen.push(*recipe);
        }
    }
    chosen
}

fn is_same_family(a: &GemmKernel, b: &GemmKernel) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// The description that predicts the times best, or `None` for too few times.
pub fn calibrate(start: GpuDescription, times: &[MeasuredTime]) -> Option<Calibration> {
    if times.len() < MIN_TIMES {
        return None;
    }
    let error = |factors, bound| mean_error(&scaled(start, factors), times, bound);
    let mut factors = [1.0; 3];
    for bound in [LOOSE_MAX_ERROR, MAX_ERROR] {
        factors = search(factors, |factors| error(factors, bound));
    }
    let errors = [[1.0; 3], factors].map(|factors| error(factors, MAX_ERROR).exp() - 1.0);
    Some(Calibration { description: scaled(start, factors), errors })
}

/// The factors near the initial ones that minimize an error.
fn search(initial: [f64; 3], error: impl Fn([f64; 3]) -> f64) -> [f64; 3] {
    let (mut factors, mut least, mut step) = (initial, error(initial), STEPS[0]);
    while step > STEPS[1] {
        let mut improved = false;
        for property in 0..factors.len() {
            for change in [step, 1.0 / step] {
                let mut changed = factors;
                changed[property] = (changed[property] * change).clamp(1.0 / MAX_FACTOR, MAX_FACTOR);
                let changed_error = error(changed);
                // A property that decides none of the times stays as it is.
                if changed_error < least {
                    (factors, least, improved) = (changed, changed_error, true);
                }
            }
        }
        if !improved {
            step = step.sqrt();
        }
    }
    factors
}

/// The description with its bandwidth, clock and power times these factors.
fn scaled(start: GpuDescription, [memory, clock, power]: [f64; 3]) -> GpuDescription {
    // The conversion saturates.
    let scaled = |value: u32, factor: f64| ((f64::from(value) * factor).round() as u32).max(1);
    GpuDescription {
        memory_bandwidth: scaled(start.memory_bandwidth, memory),
        clock: scaled(start.clock, clock),
        power_limited_gflops: scaled(start.power_limited_gflops, power),
        ..start
    }
}

/// The mean error of the predicted times, as a natural logarithm, each up to `bound`. Candidates
/// are predicted once for consecutive times of a problem.
fn mean_error(gpu: &GpuDescription, times: &[MeasuredTime], bound: f64) -> f64 {
    let mut sum = 0.0;
    for of_problem in times.chunk_by(|a, b| a.problem == b.problem) {
        let candidates = GemmKernel::candidates(&of_problem[0].problem, gpu);
        for time in of_problem {
            let found = candidates.iter().find(|candidate| candidate.recipe == time.recipe);
            let predicted = found.and_then(|candidate| candidate.microseconds);
            let error = predicted.map_or(bound, |predicted| (predicted / time.microseconds).ln().abs());
            sum += error.min(bound);
        }
    }
    sum / times.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Caps, Plan, choose};

    /// The times that the cost models predict for a GPU, each off by up to 6 %.
    fn predicted_times(of: &GpuDescription, start: &GpuDescription) -> Vec<MeasuredTime> {
        let mut times = Vec::new();
        for problem in problems() {
            let candidates = GemmKernel::candidates(&problem, of);
            for recipe in recipes(&problem, start) {
                let found = candidates.iter().find(|candidate| candidate.recipe == recipe).unwrap();
                let noise = 0.94 + 0.02 * (times.len() * 5 % 7) as f64;
                times.push(MeasuredTime { problem, recipe, microseconds: found.microseconds.unwrap() * noise });
            }
        }
        times
    }

    #[test]
    fn calibration_finds_bandwidth_clock_and_power() {
        let start = GpuDescription::of((9, 0), 114, 2_000_000, 50 << 20, 1755);
        assert_eq!(start.clock, 1555);
        for [memory, clock, power] in [[1.0; 3], [1.3, 0.7, 0.2], [0.3, 0.3, 0.1], [0.1, 0.8, 0.1]] {
            let expected = scaled(start, [memory, clock, power]);
            let times = predicted_times(&expected, &start);
            let Calibration { description, errors: [before, after] } = calibrate(start, &times).unwrap();
            let near = |found: u32, expected: u32, tolerance: f64| {
                let ratio = f64::from(found) / f64::from(expected);
                assert!((ratio - 1.0).abs() < tolerance, "{description:?}, expected {expected}");
            };
            near(description.memory_bandwidth, expected.memory_bandwidth, 0.06);
            near(description.clock, expected.clock, 0.06);
            // The limit of the initial description need not bind any time.
            match power < 1.0 {
                true => near(description.power_limited_gflops, expected.power_limited_gflops, 0.08),
                false => assert!(description.power_limited_gflops > start.power_limited_gflops / 2),
            }
            assert!(after <= before && after < 0.06, "{before} and {after}");
            assert_eq!((description.multiprocessors, description.l2_bytes), (114, 50 << 20));
        }
    }

    #[test]
    fn calibration_of_one_wrong_time_is_nearly_the_same() {
        let start = GpuDescription::H200;
        let mut times = predicted_times(&start, &start);
        times[0].microseconds *= 50.0;
        let found = calibrate(start, &times).unwrap().description;
        assert!((f64::from(found.clock) / f64::from(start.clock) - 1.0).abs() < 0.06, "{found:?}");
        assert!(
            (f64::from(found.memory_bandwidth) / f64::from(start.memory_bandwidth) - 1.0).abs() < 0.06,
            "{found:?}"
        );
    }

    /// Long runs at the limit have trees of their own.
    #[test]
    fn measured_power_limit_decides_about_large_products() {
        let problem = problems().find(|problem| problem.m == 8192 && problem.n == 8192).unwrap();
        let problem = Problem { n: 32768, k: 512, ..problem };
        let chosen = |power_limited_gflops| {
            let gpu = GpuDescription { power_limited_gflops, ..GpuDescription::H200 };
            match choose(&problem, &Caps::Gpu(gpu)).unwrap() {
                Plan::Gpu(recipe) => recipe.name(),
                Plan::Cpu => panic!("a GPU runs kernels"),
            }
        };
        assert_ne!(chosen(450_000), chosen(811_000));
    }

    #[test]
    fn calibration_needs_some_times() {
        let times = predicted_times(&GpuDescription::H200, &GpuDescription::H200);
        assert!(calibrate(GpuDescription::H200, &times[..MIN_TIMES - 1]).is_none());
        assert!(calibrate(GpuDescription::H200, &[]).is_none());
    }

    #[test]
    fn timed_recipes_are_of_all_families_that_may_be_the_fastest() {
        let names = |ty, m, gpu: &GpuDescription| -> Vec<String> {
            let problem = problems().find(|problem| problem.ty == ty && problem.m == m).unwrap();
            recipes(&problem, gpu).iter().map(Recipe::name).collect()
        };
        let decoding = names(Type::BF16, 8, &GpuDescription::H200);
        assert!(decoding.iter().any(|name| name.starts_with("hopper_")), "{decoding:?}");
        assert!(decoding.len() > KERNELS, "{decoding:?}");
        let older = GpuDescription { compute: (8, 0), ..GpuDescription::H200 };
        for problem in problems() {
            assert!(!recipes(&problem, &older).is_empty(), "{problem:?}");
        }
        assert!(names(Type::F32, 2048, &older).iter().all(|name| name.starts_with("register_")));
    }
}
