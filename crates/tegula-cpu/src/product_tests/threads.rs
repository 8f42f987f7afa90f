//! Random problems on 1 to 64 threads: the bits of the result are the same.

use super::*;
use crate::accumulation::Accumulation;
use crate::blocking::BlockingPlan;
use crate::problem::BlockingProblem;

/// A random problem, large enough that threads share it.
struct Problem {
    ty: Type,
    isa: Isa,
    batches: usize,
    /// m, n and k.
    sizes: [usize; 3],
    /// Layout styles of A, B and C.
    styles: [Style; 3],
    /// Whether alpha is 1 and beta is 0, as for accumulation in C itself.
    exact: bool,
    seed: u64,
}

impl Problem {
    fn random(random: &mut Random, isas: &[Isa]) -> Problem {
        let mut below = |limit: u64| random.bits() % limit;
        // Of all proportions: 2^a rows, 2^b columns, and a long k where both are few.
        let mut side = |bits| (1usize << below(bits)) + below(1 << (bits - 2)) as usize;
        let (m, n) = (side(10), side(11));
        let batches = if below(8) == 0 { 3 } else { 1 };
        let k = ((1 << 21) + below(1 << 22) as usize) / (m * n);
        let styles = std::array::from_fn(|_| Style {
            transposed: below(2) == 0,
            reversed: [below(8) == 0, below(8) == 0],
            spacing: below(3) as usize,
            shift: below(17) as usize,
            ..Style::default()
        });
        Problem {
            ty: Type::OPERANDS[below(Type::OPERANDS.len() as u64) as usize],
            isa: isas[below(isas.len() as u64) as usize],
            batches,
            sizes: [m, n, k.clamp(1, 9000)],
            styles,
            exact: below(2) == 0,
            seed: below(u64::MAX),
        }
    }

    /// Layouts of A, B and C, and their lengths in elements.
    fn layouts(&self) -> [(Layout, usize); 3] {
        let [m, n, k] = self.sizes;
        let shapes = [(m, k), (k, n), (m, n)].map(|(rows, cols)| Shape { batches: self.batches, rows, cols });
        std::array::from_fn(|i| self.styles[i].layout(shapes[i]))
    }

    /// The bits of C, on the threads of the current pool.
    fn bits(&self) -> Vec<u64> {
        with_operand_type!(self.ty, T => self.bits_as::<T>(), _ => unreachable!("a type of operands"))
    }

    fn bits_as<T: Element>(&self) -> Vec<u64> {
        let (random, [(a, a_len), (b, b_len), (c, c_len)]) = (&mut Random(self.seed), self.layouts());
        let (a_data, b_data, mut c_data) = (random.vec::<T>(a_len), random.vec::<T>(b_len), random.vec(c_len));
        let (a, b) = (View::strided(&a_data, a).unwrap(), View::strided(&b_data, b).unwrap());
        let c = ViewMut::strided(&mut c_data, c).unwrap();
        let (alpha, beta) = if self.exact { (T::Acc::ONE, T::Acc::ZERO) } else { (random.scalar(), random.scalar()) };
        gemm_with_options::<T>(self.isa, alpha, a, b, beta, c, EpilogueOperands::default(), None, None, false).unwrap();
        c_data.into_iter().map(<T::Out as Scalar>::to_bits).collect()
    }

    /// The threads that share it, of `threads`.
    fn threads_used(&self, threads: usize) -> usize {
        let [a, b, c] = self.layouts().map(|(layout, _)| layout.strides);
        // A transposed C exchanges A and B.
        let [m, n, k] = self.sizes;
        let (sizes, a, b, c_col) = if c[1] == 1 && c[2] != 1 {
            ([n, m, k], [b[2], b[1]], [a[1], a[2]], c[1])
        } else {
            ([m, n, k], [a[1], a[2]], [b[2], b[1]], c[2])
        };
        fn plan<T: CpuElement>(
            isa: Isa,
            exact: bool,
            problem: impl Fn([T::Acc; 2]) -> BlockingProblem<T::Acc>,
        ) -> usize {
            let scalars = if exact { [T::Acc::ONE, T::Acc::ZERO] } else { [T::Acc::ONE; 2] };
            let (kernel, problem) = (T::micro_kernel(isa), problem(scalars));
            BlockingPlan::new(kernel, &problem, Accumulation::new(kernel, &problem)).grid.threads
        }
        with_operand_type!(
            self.ty,
            T => plan::<T>(self.isa, self.exact, |scalars| BlockingProblem {
                sizes, scalars, a, b, c_col, prepacked: false, threads, batch_invariant: false,
            }),
            _ => unreachable!("a type of operands")
        )
    }
}

/// Problems: 40, or 500 with `TEGULA_FULL=1`. Numbers of threads: three of 2 to 64, or all.
#[test]
#[cfg_attr(miri, ignore = "takes hours")]
fn bits_of_random_products_are_independent_of_the_number_of_threads() {
    let is_full = full();
    let (isas, random) = (instruction_sets(), &mut Random(11));
    let problems: Vec<_> = (0..if is_full { 500 } else { 40 }).map(|_| Problem::random(random, &isas)).collect();
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let alone: Vec<_> = pool(1).install(|| problems.iter().map(Problem::bits).collect());
    let counts: Vec<usize> = if is_full { (2..=64).collect() } else { vec![2, 5, 64] };
    let check = |problem: &Problem, alone: &Vec<u64>, threads: &str| {
        let Problem { ty, isa, batches, sizes, styles, exact, seed } = problem;
        let case = format!("{ty} {isa} {batches} of {sizes:?} {styles:?}, exact: {exact}, seed {seed}");
        assert!(problem.bits() == *alone, "{threads} threads differ from one: {case}");
    };
    for threads in counts {
        pool(threads)
            .install(|| problems.iter().zip(&alone).for_each(|(x, bits)| check(x, bits, &threads.to_string())));
    }
    // A caller outside any pool, whose workers spin and park.
    problems.iter().zip(&alone).for_each(|(problem, bits)| check(problem, bits, "outside"));
    let shared = problems.iter().filter(|problem| problem.threads_used(64) > 1).count();
    assert!(2 * shared > problems.len(), "threads share only {shared} of {} problems", problems.len());
}

/// Fewer rows or columns than the grid has macro tiles for: heights that no micro-tile divides, and
/// the last block of a C with a workspace.
#[test]
#[cfg_attr(miri, ignore = "takes hours")]
fn macro_tiles_without_rows_or_columns_are_skipped() {
    let sizes = [[100, 16, 2000], [60, 16, 4000], [3850, 32, 300], [64, 15_376, 300], [32, 19_216, 300]];
    for (ty, isa) in
        [Type::F32, Type::F16].into_iter().flat_map(|ty| instruction_sets().into_iter().map(move |isa| (ty, isa)))
    {
        for (sizes, exact) in sizes.into_iter().flat_map(|sizes| [(sizes, true), (sizes, false)]) {
            let problem = Problem { ty, isa, batches: 1, sizes, styles: [Style::default(); 3], exact, seed: 3 };
            let bits = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| problem.bits())
            };
            let alone = bits(1);
            for threads in [2, 16, 64] {
                assert!(bits(threads) == alone, "{ty} {isa} {sizes:?} on {threads} threads, exact: {exact}");
            }
        }
    }
}

/// Problems with the bits of their products on one thread.
fn few_problems() -> Vec<(Problem, Vec<u64>)> {
    let (isas, random) = (instruction_sets(), &mut Random(13));
    let problem = |_| {
        let problem = Problem::random(random, &isas);
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let bits = alone.install(|| problem.bits());
        (problem, bits)
    };
    (0..12).map(problem).collect()
}

/// Runs `work` on a thread of its own; fails if it hangs.
fn must_end(work: impl FnOnce() + Send + 'static) {
    let (sender, done) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        _ = sender.send(());
    });
    // Seconds at most; a thread that panicked has dropped its sender.
    let waited = done.recv_timeout(std::time::Duration::from_secs(300));
    assert!(waited != Err(std::sync::mpsc::RecvTimeoutError::Timeout), "products hang");
    thread.join().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "takes hours")]
fn products_of_16_callers_at_once_are_those_of_one() {
    must_end(|| {
        let (problems, start) = (few_problems(), std::sync::Barrier::new(16));
        std::thread::scope(|scope| {
            for caller in 0..16 {
                let (problems, start) = (&problems, &start);
                scope.spawn(move || {
                    start.wait();
                    for i in 0..problems.len() {
                        let (problem, alone) = &problems[(caller + i) % problems.len()];
                        assert!(problem.bits() == *alone, "caller {caller}: {:?}", problem.sizes);
                    }
                });
            }
        });
    });
}

/// Jobs of a pool compute products, which share its threads.
#[test]
#[cfg_attr(miri, ignore = "takes hours")]
fn products_in_rayon_jobs_end_and_are_those_of_one_thread() {
    must_end(|| {
        let problems = few_problems();
        for threads in [1, 2, 4, 16] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let check = |job: usize| {
                let (problem, alone) = &problems[job % problems.len()];
                assert!(problem.bits() == *alone, "job {job} on {threads} threads: {:?}", problem.sizes);
            };
            pool.scope(|scope| (0..32).for_each(|job| scope.spawn(move |_| check(job))));
        }
    });
}
