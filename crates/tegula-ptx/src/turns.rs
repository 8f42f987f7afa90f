//! The turns of warps in long loops: how long each runs before the next.
//!
//! Warps in endless loops take turns, since one may wait for another. With equal turns, n of them
//! would reach the step limit after n times the instructions of one. So the warp that is ahead has
//! turns half as long as those of all other warps together: it reaches the limit after three times
//! the instructions of one warp. Longer turns would end kernels too early in which one warp polls
//! while the others work.

/// The instructions of other warps for each instruction of the warp that is ahead.
const OTHERS: u64 = 2;

/// The turns of the warps on one core of the host.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Instructions of the warp that is ahead.
    most: u64,
    /// Instructions that other warps ran since the last turn of the warp that is ahead.
    others: u64,
}

impl Turns {
    /// Whether the turn of a warp ends that has run `steps` instructions, `turn` of them now.
    pub fn end(&mut self, steps: u64, turn: u64) -> bool {
        if steps <= self.most {
            self.others += turn;
            return true;
        }
        self.most = steps;
        if turn < self.others / OTHERS {
            return false;
        }
        self.others = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs endless warps in turn until one reaches a limit; returns the instructions of each.
    fn run(warps: usize, limit: u64) -> Vec<u64> {
        const JUMPS: u64 = 100;
        let (mut turns, mut steps) = (Turns::default(), vec![0; warps]);
        loop {
            for at in 0..warps {
                let mut turn = JUMPS;
                while !turns.end(steps[at] + turn, turn) {
                    turn += 1;
                }
                steps[at] += turn;
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
