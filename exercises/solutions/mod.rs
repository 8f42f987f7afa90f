//! A solution of each exercise, for the tests of the checker: the shortest one, not the only one.

mod e1_wrong_numbers;
mod e2_over_the_edge;
mod e3_too_early;
mod e4_too_late;
mod e5_short_sums;
mod e6_scattered;
mod e7_one_bank;
mod e8_in_flight;

use tegula_ir::Kernel;

/// The corrected kernels, in the order of the exercises.
pub const SOLUTIONS: [fn() -> Kernel; 8] = [
    e1_wrong_numbers::product,
    e2_over_the_edge::product,
    e3_too_early::product,
    e4_too_late::product,
    e5_short_sums::product,
    e6_scattered::product,
    e7_one_bank::product,
    e8_in_flight::product,
];
