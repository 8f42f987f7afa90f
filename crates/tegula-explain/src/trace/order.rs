//! Program order of ticks, whatever the order in which warps ran, and their phases.

use std::collections::HashMap;

use super::{Operation, OperationKind, Phase, PhaseKind, Tick};

/// A tick's position in the program: loop and iteration numbers, compared lexicographically.
pub(super) type Path = Vec<u32>;

/// Ticks by position in the program.
#[derive(Debug, Default)]
pub(super) struct Ticks {
    numbers: HashMap<Path, u32>,
    ticks: Vec<(Path, Tick)>,
}

impl Ticks {
    /// The number of the tick at this position; ticks are numbered in the order of first use.
    pub fn at(&mut self, path: &[u32], tick: impl FnOnce() -> Tick) -> u32 {
        if let Some(&number) = self.numbers.get(path) {
            return number;
        }
        let number = self.ticks.len() as u32;
        self.numbers.insert(path.to_vec(), number);
        self.ticks.push((path.to_vec(), tick()));
        number
    }

    /// The ticks in program order, and for each number its position in that order.
    pub fn sorted(self) -> (Vec<Tick>, Vec<u32>) {
        let mut sorted: Vec<(usize, (Path, Tick))> = self.ticks.into_iter().enumerate().collect();
        sorted.sort_by(|(_, (one, _)), (_, (other, _))| one.cmp(other));
        let mut positions = vec![0; sorted.len()];
        for (position, (number, _)) in sorted.iter().enumerate() {
            positions[*number] = position as u32;
        }
        (sorted.into_iter().map(|(_, (_, tick))| tick).collect(), positions)
    }
}

/// Groups ticks in program order into phases.
pub(super) fn phases(ticks: &[Tick], operations: &[Operation]) -> Vec<Phase> {
    let mut phases: Vec<Phase> = Vec::new();
    let mut last_step = None;
    for (at, tick) in (0..).zip(ticks) {
        let kind = match (operations[tick.operation as usize].kind, tick.step) {
            (OperationKind::Barrier | OperationKind::Wait, _) => PhaseKind::Wait,
            // After the last k-step only the epilogue is left.
            (_, None) if last_step.is_some() => PhaseKind::Store,
            (OperationKind::GlobalStore, _) => PhaseKind::Store,
            (OperationKind::GlobalLoad | OperationKind::SharedStore, _) => PhaseKind::Load,
            (
                OperationKind::SharedLoad | OperationKind::MulAdd | OperationKind::Matrix | OperationKind::Arithmetic,
                _,
            ) => PhaseKind::Multiply,
        };
        if let (Some(last), Some(step)) = (last_step, tick.step)
            && last != step
        {
            phases.push(Phase { kind: PhaseKind::Slide, step: Some(step), ticks: [at, at] });
        }
        last_step = tick.step.or(last_step);
        match phases.last_mut() {
            Some(phase) if phase.kind == kind && phase.step == tick.step => phase.ticks[1] = at + 1,
            _ => phases.push(Phase { kind, step: tick.step, ticks: [at, at + 1] }),
        }
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_recorded_in_any_order_are_sorted_by_program_order() {
        let mut ticks = Ticks::default();
        let step = |step| move || Tick { operation: 0, step: Some(step) };
        // A loop at 2 with an operation at 3, its second iteration recorded before the first; then
        // operations after and before the loop.
        let numbers: Vec<u32> = [[2, 1, 3], [2, 0, 3], [7, 0, 0], [1, 0, 0], [2, 1, 3]]
            .iter()
            .zip(0..)
            .map(|(p, s)| ticks.at(p, step(s)))
            .collect();
        assert_eq!(numbers, [0, 1, 2, 3, 0]);
        let (sorted, positions) = ticks.sorted();
        assert_eq!(positions, [2, 1, 3, 0]);
        assert_eq!(sorted.iter().map(|m| m.step.unwrap()).collect::<Vec<_>>(), [3, 1, 0, 2]);
    }

    #[test]
    fn phases_of_two_steps_load_wait_multiply_wait_slide_and_store() {
        let kinds = [
            OperationKind::GlobalLoad,
            OperationKind::SharedStore,
            OperationKind::Barrier,
            OperationKind::SharedLoad,
            OperationKind::MulAdd,
            OperationKind::GlobalStore,
        ];
        let operations = kinds.map(|kind| Operation { kind, site: 0, memory: 0, ty: None, name: String::new() });
        let in_step = |step| [0, 1, 2, 3, 4, 2].map(move |operation| Tick { operation, step: Some(step) });
        let end = [0, 5].map(|operation| Tick { operation, step: None });
        let ticks: Vec<Tick> = in_step(0).into_iter().chain(in_step(1)).chain(end).collect();
        let phases = phases(&ticks, &operations);
        use PhaseKind::{Load, Multiply, Slide, Store, Wait};
        let kinds: Vec<PhaseKind> = phases.iter().map(|phase| phase.kind).collect();
        assert_eq!(kinds, [Load, Wait, Multiply, Wait, Slide, Load, Wait, Multiply, Wait, Store]);
        assert_eq!(phases[5], Phase { kind: Load, step: Some(1), ticks: [6, 8] });
        assert_eq!(phases[9], Phase { kind: Store, step: None, ticks: [12, 14] });
    }
}
