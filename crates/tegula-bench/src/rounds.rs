//! Who is timed when. Two programs that take turns on one machine meet the same clocks, temperatures and neighbours, so their ratio is
//! worth more than either time.
//!
//! Short calls take turns every few milliseconds. Long ones, and those that draw as much power as the machine has, take turns in
//! segments: a power budget that is shared finely would lend the hungrier program what the other saves. The start of a segment, when
//! clocks still settle from the one before, is dropped.
//!
//! It knows a clock and calls; neither devices nor products.

use tegula::error::Result;

use super::stats::median;

/// Seconds of a sample of short calls: events tell half a microsecond.
const SAMPLE: f64 = 1e-3;
/// Seconds of a turn of short calls.
const TURN: f64 = 5e-3;
/// Calls that take so many seconds are long.
const LONG: f64 = 5e-3;
/// Seconds of a segment, and of its start that is dropped.
const SEGMENT: (f64, f64) = (0.2, 0.05);
/// Seconds of work before anything counts, for clocks that rise from idle.
const WARM: f64 = 0.1;
/// Rounds that there are at least, however long they take.
const LEAST: usize = 3;
/// Most calls of a sample; beyond, a call takes no time that could be told.
const MOST_CALLS: usize = 1 << 14;
/// Seconds of each sample in which a candidate shows whether it is worth a closer look.
const GLANCE: f64 = 3e-4;
/// Candidates that get the closer look.
const FINALISTS: usize = 4;

/// Something that can be done again and again, with a clock.
pub trait Timed {
    /// Makes successive samples of `calls` calls each, back to back and without waiting in between, and gives for each the seconds of a
    /// call. Work of the same kind that is not counted comes before the first.
    ///
    /// # Errors
    /// What the calls and the clock say.
    fn time(&mut self, samples: usize, calls: usize) -> Result<Vec<f64>>;
}

/// How long a side is at work before the other has its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Calls of a sample.
    pub calls: usize,
    /// Samples of a turn.
    pub samples: usize,
    /// Samples at the start of a turn that do not count.
    pub dropped: usize,
    /// Whether a turn is a segment.
    pub segments: bool,
}

impl Pace {
    /// For calls of so many seconds that go round `sets` sets of inputs; `hungry` ones may reach the limit of power.
    pub fn of(call: f64, sets: usize, hungry: bool) -> Pace {
        let call = call.max(1e-9);
        let sets = sets.max(1);
        let wanted = (SAMPLE / call).ceil() as usize;
        let calls = wanted.clamp(1, MOST_CALLS).next_multiple_of(sets);
        let sample = call * calls as f64;
        let count = |seconds: f64| (seconds / sample).ceil() as usize;
        if call < LONG && !hungry {
            return Pace { calls, samples: count(TURN).max(1), dropped: 0, segments: false };
        }
        // One sample more is not counted to begin with.
        let (whole, start) = SEGMENT;
        let dropped = count(start).saturating_sub(1);
        Pace { calls, samples: (count(whole) - 1).max(dropped + 2), dropped, segments: true }
    }

    /// For many sides that are to be told apart within a second: turns of a sample or two, however long a call is.
    pub fn brief(call: f64, sets: usize) -> Pace {
        let Pace { calls, .. } = Pace::of(call, sets, false);
        let samples = (TURN / (2.0 * call.max(1e-9) * calls as f64)).ceil().max(1.0) as usize;
        Pace { calls, samples, dropped: 0, segments: false }
    }

    /// A turn: what counts of it, and its seconds altogether.
    fn turn(self, side: &mut dyn Timed) -> Result<(Vec<f64>, f64)> {
        let mut samples = side.time(self.samples, self.calls)?;
        let seconds = self.calls as f64 * samples.iter().sum::<f64>();
        samples.drain(..self.dropped.min(samples.len()));
        Ok((samples, seconds))
    }
}

/// Seconds of a call, near enough to choose a pace, after work that warms up.
///
/// # Errors
/// What the side says.
pub fn pilot(side: &mut dyn Timed) -> Result<f64> {
    let (mut calls, mut spent) = (1, 0.0);
    loop {
        let call = median(&side.time(3, calls)?);
        let sample = call * calls as f64;
        spent += 3.0 * sample;
        // So that a clock that stands still, or no clock, is no endless loop.
        if sample < SAMPLE && calls < MOST_CALLS {
            calls = (4 * calls).min(MOST_CALLS);
            continue;
        }
        if sample > 0.0 && spent < WARM {
            side.time(((WARM - spent) / sample) as usize + 1, calls)?;
        }
        return Ok(call);
    }
}

/// Seconds of a call, of each side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turns {
    /// Of ours, its two turns in each round apart.
    pub ours: [Vec<f64>; 2],
    /// Of the peer's; none without a peer.
    pub peer: Vec<f64>,
    /// How many rounds there were.
    pub rounds: usize,
}

/// Lets the sides take turns for so many seconds: ours, the peer, ours again; the two turns of ours change places from round to
/// round.
///
/// # Errors
/// What the sides say.
pub fn alternate(
    ours: &mut dyn Timed,
    mut peer: Option<&mut (dyn Timed + '_)>,
    pace: Pace,
    seconds: f64,
) -> Result<Turns> {
    let (mut turns, mut spent) = (Turns::default(), 0.0);
    while turns.rounds < LEAST || spent < seconds {
        let first = turns.rounds % 2;
        for side in [Some(first), None, Some(1 - first)] {
            let (samples, took) = match (side, &mut peer) {
                (Some(_), _) => pace.turn(ours)?,
                (None, Some(peer)) => pace.turn(*peer)?,
                (None, None) => continue,
            };
            side.map_or(&mut turns.peer, |side| &mut turns.ours[side]).extend(samples);
            spent += took;
        }
        turns.rounds += 1;
        // Clocks that stand still would never get there.
        if spent <= 0.0 && turns.rounds >= LEAST {
            break;
        }
    }
    Ok(turns)
}

/// About how many seconds a call of each candidate takes, the fastest first: a glance at all, then turns among the few that looked fastest,
/// which come before the others. One that fails is out.
pub fn ranked<T: Timed>(candidates: &mut [T], pace: Pace) -> Vec<(usize, f64)> {
    let mut few = glances(candidates);
    if few.len() < 2 {
        return few;
    }
    let others = few.split_off(few.len().min(FINALISTS));
    let few: Vec<_> = few.into_iter().map(|(index, _)| index).collect();
    let mut ranked = compared(candidates, &few, pace);
    ranked.extend(others);
    ranked
}

/// As [`ranked`], by turns among all: where there are few of them, and a glance may meet a moment in which others had the processor.
pub fn ranked_by_turns<T: Timed>(candidates: &mut [T], pace: Pace) -> Vec<(usize, f64)> {
    let all: Vec<_> = (0..candidates.len()).collect();
    compared(candidates, &all, pace)
}

/// What [`compare`] finds in a few rounds, the fastest first.
fn compared<T: Timed>(candidates: &mut [T], some: &[usize], pace: Pace) -> Vec<(usize, f64)> {
    let mut calls = compare(candidates, some, pace, 0.0);
    calls.sort_by(|a, b| a.1.total_cmp(&b.1));
    calls
}

/// About how many seconds a call of each candidate takes, the fastest first. One that fails is out.
pub fn glances<T: Timed>(candidates: &mut [T]) -> Vec<(usize, f64)> {
    let mut glances: Vec<(usize, f64)> = Vec::new();
    for (index, candidate) in candidates.iter_mut().enumerate() {
        let best = glances.iter().map(|(_, call)| *call).fold(f64::INFINITY, f64::min);
        match glance(candidate, best) {
            Ok(call) => glances.push((index, call)),
            Err(why) => tracing::debug!(index, %why, "a candidate is out"),
        }
    }
    glances.sort_by(|a, b| a.1.total_cmp(&b.1));
    glances
}

/// Lets some of the candidates take turns for so many seconds, and for a few rounds at least: the median seconds of a call of each. One
/// without a time is out.
pub fn compare<T: Timed>(candidates: &mut [T], some: &[usize], pace: Pace, seconds: f64) -> Vec<(usize, f64)> {
    let mut times = vec![Vec::new(); some.len()];
    let (mut rounds, mut spent) = (0, 0.0);
    while rounds < LEAST || spent < seconds {
        let before = spent;
        for (&index, times) in some.iter().zip(&mut times) {
            match pace.turn(&mut candidates[index]) {
                Ok((samples, took)) => {
                    times.extend(samples);
                    spent += took;
                }
                Err(why) => tracing::debug!(index, %why, "a candidate is out"),
            }
        }
        rounds += 1;
        // Clocks that stand still would never get there.
        if spent <= before && rounds >= LEAST {
            break;
        }
    }
    let middle = some.iter().zip(&times).map(|(&index, times)| (index, median(times)));
    middle.filter(|(_, call)| !call.is_nan()).collect()
}

/// About how long a call takes. One that is hopeless beside the best gets no second look.
fn glance(candidate: &mut dyn Timed, best: f64) -> Result<f64> {
    let rough = median(&candidate.time(1, 1)?);
    // Nor does one whose calls are long beside what a clock tells.
    if rough > 3.0 * best + 5e-5 || rough >= SAMPLE {
        return Ok(rough);
    }
    let calls = ((GLANCE / rough.max(1e-9)).ceil() as usize).clamp(1, MOST_CALLS);
    Ok(median(&candidate.time(3, calls)?))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tegula::error::Error;

    use super::*;

    /// A device whose calls take known times, and a log of who was at work.
    #[derive(Default)]
    struct Device {
        log: RefCell<Vec<(char, usize)>>,
        now: RefCell<f64>,
    }

    struct Side<'d, F: FnMut(f64) -> f64> {
        name: char,
        device: &'d Device,
        call: F,
    }

    impl Device {
        /// A side whose call takes what `call` says of the time of day.
        fn side<F: FnMut(f64) -> f64>(&self, name: char, call: F) -> Side<'_, F> {
            Side { name, device: self, call }
        }

        fn order(&self) -> String {
            self.log.borrow().iter().map(|(name, _)| *name).collect()
        }
    }

    impl<F: FnMut(f64) -> f64> Timed for Side<'_, F> {
        fn time(&mut self, samples: usize, calls: usize) -> Result<Vec<f64>> {
            self.device.log.borrow_mut().push((self.name, samples * calls));
            let mut sample = || {
                let call = (self.call)(*self.device.now.borrow());
                *self.device.now.borrow_mut() += call * calls as f64;
                call
            };
            if sample().is_nan() {
                return Err(Error::Launch { kernel: "fake".into(), why: "fails".into() });
            }
            Ok((0..samples).map(|_| sample()).collect())
        }
    }

    #[test]
    fn short_calls_fill_a_sample_and_go_round_all_sets() {
        let pace = Pace::of(2e-6, 300, false);
        assert_eq!(pace, Pace { calls: 600, samples: 5, dropped: 0, segments: false });
        // A single call is enough where it is long beside what events tell.
        assert_eq!(Pace::of(3e-3, 1, false), Pace { calls: 1, samples: 2, dropped: 0, segments: false });
        assert_eq!(Pace::of(0.0, 1, false).calls, MOST_CALLS);
    }

    #[test]
    fn long_calls_come_in_segments_with_the_start_dropped() {
        for (call, hungry) in [(5e-3, false), (8e-3, true), (2e-4, true), (0.03, false), (0.07, true), (3.0, false)] {
            let pace = Pace::of(call, 1, hungry);
            let sample = call * pace.calls as f64;
            // The sample that is never counted comes first.
            let (start, whole) = ((pace.dropped + 1) as f64 * sample, (pace.samples + 1) as f64 * sample);
            assert!(pace.segments && start >= 0.05 - 1e-9 && whole >= 0.2 - 1e-9, "{call}: {pace:?}");
            assert!(pace.samples >= pace.dropped + 2, "{call}: {pace:?}");
        }
        assert!(!Pace::of(1e-3, 1, false).segments);
    }

    #[test]
    fn sides_take_turns_and_ours_frames_the_peer() {
        let device = Device::default();
        let (mut ours, mut peer) = (device.side('o', |_| 1e-3), device.side('p', |_| 2e-3));
        let pace = Pace::of(1e-3, 1, false);
        let turns = alternate(&mut ours, Some(&mut peer), pace, 0.0).unwrap();
        assert_eq!((device.order().as_str(), turns.rounds), ("opoopoopo", 3));
        assert_eq!((median(&turns.peer) / median(&turns.ours[0]), turns.ours[0].len()), (2.0, turns.ours[1].len()));
        let device = Device::default();
        let alone = alternate(&mut device.side('o', |_| 1e-3), None, pace, 0.5).unwrap();
        assert!(alone.peer.is_empty() && alone.rounds >= 49, "{} rounds", alone.rounds);
    }

    #[test]
    fn a_drift_that_both_sides_meet_leaves_the_ratio_alone() {
        // The machine slows down to half over the run.
        let slower = |now: f64| 1.0 + now;
        let device = Device::default();
        let (mut ours, mut peer) =
            (device.side('o', |now| 1e-3 * slower(now)), device.side('p', |now| 1.2e-3 * slower(now)));
        let turns = alternate(&mut ours, Some(&mut peer), Pace::of(1e-3, 1, false), 1.0).unwrap();
        let both = turns.ours.concat();
        let ratio = median(&turns.peer) / median(&both);
        assert!((ratio - 1.2).abs() < 0.02, "{ratio}");
        // Neither turn of ours is always the later one.
        let apart = super::super::stats::spread(&turns.ours[0], &turns.ours[1]);
        assert!(apart < 0.004, "{apart}");
    }

    #[test]
    fn what_the_side_before_left_behind_is_dropped() {
        // For 40 ms after a change of sides everything takes twice as long.
        let device = Device::default();
        let settle = RefCell::new((' ', 0.0));
        let call = |name: char, base: f64| {
            let settle = &settle;
            move |now: f64| {
                let mut last = settle.borrow_mut();
                if last.0 != name {
                    *last = (name, now);
                }
                if now - last.1 < 0.04 { 2.0 * base } else { base }
            }
        };
        let (mut ours, mut peer) = (device.side('o', call('o', 8e-3)), device.side('p', call('p', 1e-2)));
        let turns = alternate(&mut ours, Some(&mut peer), Pace::of(8e-3, 1, true), 1.0).unwrap();
        assert!(turns.ours.concat().iter().all(|&call| call == 8e-3), "{turns:?}");
        assert!(turns.peer.iter().all(|&call| call == 1e-2), "{turns:?}");
    }

    #[test]
    fn a_pilot_warms_up_and_finds_the_time_of_a_call() {
        let device = Device::default();
        // Clocks rise in the first 80 ms.
        let call = pilot(&mut device.side('o', |now| if now < 0.001 { 9e-6 } else { 3e-6 })).unwrap();
        assert_eq!(call, 3e-6);
        assert!(*device.now.borrow() >= WARM);
        assert_eq!(pilot(&mut device.side('o', |_| 0.0)).unwrap(), 0.0);
    }

    #[test]
    fn brief_turns_are_a_sample_or_two() {
        for (call, sets, calls, samples) in [(2e-6, 300, 600, 3), (3e-3, 1, 1, 1), (0.2, 2, 2, 1), (1e-3, 1, 1, 3)] {
            let pace = Pace::brief(call, sets);
            assert_eq!(pace, Pace { calls, samples, dropped: 0, segments: false }, "{call}");
        }
    }

    #[test]
    fn those_that_are_compared_take_turns_until_the_time_is_over() {
        fn sides<'d>(device: &'d Device, calls: &[(char, f64)]) -> Vec<Side<'d, impl FnMut(f64) -> f64>> {
            calls.iter().map(|&(name, call)| device.side(name, move |_| call)).collect()
        }
        let device = Device::default();
        let mut all = sides(&device, &[('a', 2e-3), ('b', 1e-3), ('c', f64::NAN), ('d', 3e-3)]);
        let pace = Pace::brief(1e-3, 1);
        assert_eq!(compare(&mut all, &[3, 2, 0], pace, 0.0), [(3, 3e-3), (0, 2e-3)]);
        assert_eq!(device.order(), "dcadcadca");
        let device = Device::default();
        compare(&mut sides(&device, &[('a', 2e-3), ('b', 1e-3)]), &[0, 1], pace, 0.5);
        // A round has 9 ms that count.
        assert_eq!(device.order(), "ab".repeat(56));
        // Clocks that stand still come to an end.
        assert_eq!(compare(&mut sides(&device, &[('x', 0.0)]), &[0], pace, 1.0), [(0, 0.0)]);
    }

    #[test]
    fn the_fastest_is_found_among_noise_and_failures() {
        let device = Device::default();
        // The third looks best at a glance and is not; the fifth fails.
        let glances = RefCell::new(0);
        let calls = [5e-5, 3e-5, 2e-5, 9e-3, f64::NAN, 2.8e-5];
        let mut candidates: Vec<_> = calls
            .iter()
            .enumerate()
            .map(|(i, &call)| {
                let glances = &glances;
                device.side((b'a' + i as u8) as char, move |_| {
                    if i == 2 {
                        *glances.borrow_mut() += 1;
                        return if *glances.borrow() > 6 { 4e-5 } else { call };
                    }
                    call
                })
            })
            .collect();
        let ranks: Vec<_> =
            ranked(&mut candidates, Pace::of(3e-5, 1, false)).into_iter().map(|(which, _)| which).collect();
        assert_eq!(ranks, [5, 1, 2, 0, 3], "those that were compared, then who was not, without who failed");
        let order = device.order();
        assert!("abcdef".chars().all(|name| order.contains(name)), "{order}");
        assert_eq!(order.matches('d').count(), 1, "hopeless, so glanced at once: {order}");
        // By turns, who looks best at a glance has no advantage, and who looks hopeless at one is ranked as it is.
        let mut calls = [0, 0];
        let [slow, stumbles] = &mut calls;
        let first = |seen: &mut i32, first: f64, later: f64| {
            *seen += 1;
            if *seen < 3 { first } else { later }
        };
        let mut two: [Box<dyn FnMut(f64) -> f64>; 2] =
            [Box::new(|_| first(slow, 2e-3, 2e-3)), Box::new(|_| first(stumbles, 8e-2, 1e-3))];
        let mut two: Vec<_> = two.iter_mut().map(|call| device.side('t', call)).collect();
        let order = ranked_by_turns(&mut two, Pace::brief(1e-3, 1));
        assert_eq!(order, [(1, 1e-3), (0, 2e-3)]);
        assert!(ranked_by_turns(&mut [device.side('x', |_| f64::NAN)], Pace::brief(1e-3, 1)).is_empty());
        assert!(ranked(&mut [device.side('x', |_| f64::NAN)], Pace::of(1e-3, 1, false)).is_empty());
        assert_eq!(ranked(&mut [device.side('x', |_| 1e-3)], Pace::of(1e-3, 1, false)), [(0, 1e-3)]);
    }
}
