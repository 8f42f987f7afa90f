//! Kernels with a mistake to mend, in rising order: each is a file that says what is wrong, and `tegula check exercise-1` … says when it
//! is right.
//!
//! Here is what the command line needs to know of them; what a kernel has to do is held against it in `tegula-cli`.

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

/// A kernel to mend. It takes matrices a, b and c of f32, row-major, and makes c = a·b.
#[derive(Clone, Copy, Debug)]
pub struct Exercise {
    /// The name on the command line.
    pub name: &'static str,
    /// What it is about, in a few words that do not give it away.
    pub title: &'static str,
    /// The file to mend, seen from the root of the repository.
    pub file: &'static str,
    /// Builds the kernel.
    pub build: fn() -> Kernel,
    /// m, n and k to try, one after the other.
    pub sizes: [[usize; 3]; 3],
    /// What a line of the source may cost, where it is not enough that C is right.
    pub bound: Option<Bound>,
}

/// What each line of a kernel's source may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Sectors of global memory that a request may touch, on average.
    Sectors(u64),
    /// Passes over the banks of shared memory that conflicts may add, in all.
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

/// What is asked for, in words.
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
    /// What goes beyond it, as findings are named.
    pub const fn kind(self) -> &'static str {
        match self {
            Bound::Sectors(_) => "uncoalesced",
            Bound::BankConflicts(_) => "bank-conflict",
        }
    }

    /// What a line costs, in words, where that is more than it may.
    pub fn exceeded(self, line: &Counters) -> Option<String> {
        match self {
            Bound::Sectors(most) => {
                let requests = line.global_load_requests + line.global_store_requests;
                let sectors = line.global_load_sectors + line.global_store_sectors;
                let each = sectors as f64 / requests as f64;
                (sectors > most.saturating_mul(requests)).then(|| {
                    format!("{each:.1} sectors a request of global memory, {sectors} in {requests}; the goal is {most}")
                })
            }
            Bound::BankConflicts(most) => {
                let requests = line.shared_load_requests + line.shared_store_requests;
                let wavefronts = line.shared_load_wavefronts + line.shared_store_wavefronts;
                let conflicts = line.shared_bank_conflicts;
                (conflicts > most).then(|| {
                    format!("{wavefronts} wavefronts for {requests} requests, {conflicts} due to conflicts; the goal is {most}")
                })
            }
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Sectors(most) => write!(f, "at most {most} sectors a request of global memory on any line"),
            Bound::BankConflicts(0) => f.write_str("no bank conflicts on any line"),
            Bound::BankConflicts(most) => write!(f, "at most {most} bank conflicts on any line"),
        }
    }
}
