//! Time slices of warps in long loops: how long each runs before the next.
//!
//! Warps in endless loops run in slices, since one may wait for another. With equal slices, n of
//! them would reach the step limit after n times the instructions of one. So the warp that is ahead
//! has slices half as long as those of all other warps together: it reaches the limit after three
//! times the instructions of one warp. Longer slices would end kernels too early in which one warp
//! polls while the others work.

/// The instructions of other warps for each instruction of the warp that is ahead.
const OTHERS: u64 = 2;

/// The time slices of the warps on one core of the host.
#[derive(Debug, Default)]
pub(crate) struct TimeSlices {
    /// Instructions of the warp that is ahead.
    most: u64,
    /// Instructions that other warps ran since the last slice of the warp that is ahead.
    others: u64,
}

impl TimeSlices {
    /// Whether the slice of a warp ends that has run `steps` instructions, `slice` of them now.
    pub fn end(&mut self, steps: u64, slice: u64) -> bool {
        if steps <= self.most {
            self.others += slice;
            return true;
        }
        self.most = steps;
        if slice < self.others / OTHERS {
            return false;
        }
        self.others = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs endless warps until one reaches a limit; returns the instructions of each.
    fn run(warps: usize, limit: u64) -> Vec<u64> {
        const JUMPS: u64 = 100;
        let (mut slices, mut steps) = (TimeSlices::default(), vec![0; warps]);
        loop {
            for at in 0..warps {
                let mut slice = JUMPS;
                while !slices.end(steps[at] + slice, slice) {
                    slice += 1;
                }
                steps[at] += slice;
                if steps[at] >= limit {
                    return steps;
                }
            }
        }
    }

    #[test]
    fn endless_warps_do_not_multiply_the_time() {
        for warps in [1, 2, 32] {
            let steps = run(warps, 1_000_000);
            assert!(steps.iter().sum::<u64>() < 3_100_000, "{steps:?}");
            assert!(steps.iter().all(|&steps| steps > 50_000), "{steps:?}");
        }
    }
}
