//! Kernels with a bug to correct, in rising order of difficulty.
//!
//! Each is a file that describes its bug. `cargo exercise 1` … checks one and rebuilds this crate
//! alone; `tegula check exercise-1` … reports the same. The crate depends on the interpreter, not
//! on the program.

pub mod check;
mod e1_wrong_numbers;
mod e2_over_the_edge;
mod e3_too_early;
mod e4_too_late;
mod e5_short_sums;
mod e6_scattered;
mod e7_one_bank;
mod e8_in_flight;

use std::fmt;

use tegula_interp::Counters;
use tegula_ir::Kernel;

/// A kernel to correct. It takes row-major f32 matrices a, b and c, and computes c = a·b.
#[derive(Clone, Copy, Debug)]
pub struct Exercise {
    /// The name on the command line.
    pub name: &'static str,
    /// The title, which does not give the bug away.
    pub title: &'static str,
    /// The file to correct, relative to the root of the repository.
    pub file: &'static str,
    /// Builds the kernel.
    pub build: fn() -> Kernel,
    /// m, n and k to try, one after the other.
    pub sizes: [[usize; 3]; 3],
    /// The limit on the cost of a source line, where a correct C is not enough.
    pub bound: Option<Bound>,
}

/// A limit on the cost of each source line of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Sectors per request to global memory, on average.
    Sectors(u64),
    /// Wavefronts to shared memory added by bank conflicts, in all.
    BankConflicts(u64),
}

/// All exercises, the easiest first.
pub static EXERCISES: [Exercise; 8] = [
    Exercise {
        name: "exercise-1",
        title: "Wrong numbers",
        file: "exercises/src/e1_wrong_numbers.rs",
        build: e1_wrong_numbers::product,
        sizes: [[8, 8, 8], [16, 24, 8], [5, 11, 3]],
        bound: None,
    },
    Exercise {
        name: "exercise-2",
        title: "Over the edge",
        file: "exercises/src/e2_over_the_edge.rs",
        build: e2_over_the_edge::product,
        sizes: [[8, 8, 8], [16, 24, 8], [11, 9, 13]],
        bound: None,
    },
    Exercise {
        name: "exercise-3",
        title: "Too early",
        file: "exercises/src/e3_too_early.rs",
        build: e3_too_early::product,
        sizes: [[16, 16, 32], [32, 16, 48], [20, 35, 50]],
        bound: None,
    },
    Exercise {
        name: "exercise-4",
        title: "Too late",
        file: "exercises/src/e4_too_late.rs",
        build: e4_too_late::product,
        sizes: [[16, 16, 16], [16, 16, 32], [20, 35, 50]],
        bound: None,
    },
    Exercise {
        name: "exercise-5",
        title: "Short sums",
        file: "exercises/src/e5_short_sums.rs",
        build: e5_short_sums::product,
        sizes: [[20, 35, 16], [16, 16, 32], [16, 16, 40]],
        bound: None,
    },
    Exercise {
        name: "exercise-6",
        title: "Scattered",
        file: "exercises/src/e6_scattered.rs",
        build: e6_scattered::product,
        // Rows that start where a sector does, so that the bound is the same everywhere.
        sizes: [[32, 32, 32], [16, 48, 32], [35, 40, 24]],
        bound: Some(Bound::Sectors(4)),
    },
    Exercise {
        name: "exercise-7",
        title: "One bank",
        file: "exercises/src/e7_one_bank.rs",
        build: e7_one_bank::product,
        sizes: [[32, 32, 64], [64, 32, 64], [35, 41, 70]],
        bound: Some(Bound::BankConflicts(0)),
    },
    Exercise {
        name: "exercise-8",
        title: "In flight",
        file: "exercises/src/e8_in_flight.rs",
        build: e8_in_flight::product,
        sizes: [[16, 16, 32], [32, 16, 48], [20, 35, 50]],
        bound: None,
    },
];

/// The exercise after this one, with its file and the command that checks it.
pub fn next(exercise: &Exercise) -> String {
    let mut rest = EXERCISES.iter().skip_while(|other| other.name != exercise.name).skip(1);
    match rest.next() {
        Some(Exercise { name, title, file, .. }) => {
            let number = name.trim_start_matches("exercise-");
            format!("{name}, {title}: edit {file}, then run 'cargo exercise {number}'")
        }
        None => "nothing; this was the last exercise. 'cargo exercise' lists all".to_owned(),
    }
}

/// The goal as a text.
impl fmt::Display for Exercise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third] = self.sizes.map(|[m, n, k]| format!("{m}×{n}×{k}"));
        write!(f, "no errors, and C = A·B at m×n×k of {first}, {second} and {third}")?;
        match self.bound {
            Some(bound) => write!(f, "; {bound}"),
            None => Ok(()),
        }
    }
}

impl Bound {
    /// The kind of a finding above the limit.
    pub const fn kind(self) -> &'static str {
        match self {
            Bound::Sectors(_) => "uncoalesced",
            Bound::BankConflicts(_) => "bank-conflict",
        }
    }

    /// The cost of a line as a text, where it is above the limit.
    pub fn exceeded(self, line: &Counters) -> Option<String> {
        match self {
            Bound::Sectors(most) => {
                let requests = line.global_load_requests + line.global_store_requests;
                let sectors = line.global_load_sectors + line.global_store_sectors;
                let each = sectors as f64 / requests as f64;
                (sectors > most.saturating_mul(requests)).then(|| {
                    format!("{each:.1} sectors per global memory request, {sectors} in {requests}; the limit is {most}")
                })
            }
            Bound::BankConflicts(most) => {
                let requests = line.shared_load_requests + line.shared_store_requests;
                let wavefronts = line.shared_load_wavefronts + line.shared_store_wavefronts;
                let conflicts = line.shared_bank_conflicts;
                (conflicts > most).then(|| {
                    format!("{wavefronts} wavefronts for {requests} requests, {conflicts} due to conflicts; the limit is {most}")
                })
            }
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Sectors(most) => write!(f, "at most {most} sectors per global memory request on any line"),
            Bound::BankConflicts(0) => f.write_str("no bank conflicts on any line"),
            Bound::BankConflicts(most) => write!(f, "at most {most} bank conflicts on any line"),
        }
    }
}
