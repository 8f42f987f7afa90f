//! Operations in the order of the program, whatever the order in which warps ran, and the acts they make up.

use std::collections::HashMap;

use super::{Act, Acts, Does, Moment, Operation};

/// A moment as it is met: where it stands in the program, as numbers that are compared one after the other.
pub(super) type Path = Vec<u32>;

/// Moments by where they stand.
#[derive(Debug, Default)]
pub(super) struct Moments {
    met: HashMap<Path, u32>,
    moments: Vec<(Path, Moment)>,
}

impl Moments {
    /// The number of the moment at this place, by when it was first met.
    pub fn at(&mut self, path: &[u32], moment: impl FnOnce() -> Moment) -> u32 {
        if let Some(&number) = self.met.get(path) {
            return number;
        }
        let number = self.moments.len() as u32;
        self.met.insert(path.to_vec(), number);
        self.moments.push((path.to_vec(), moment()));
        number
    }

    /// The moments in the order of the program, and for each by when it was first met its place in that order.
    pub fn sorted(self) -> (Vec<Moment>, Vec<u32>) {
        let mut by_place: Vec<(usize, (Path, Moment))> = self.moments.into_iter().enumerate().collect();
        by_place.sort_by(|(_, (one, _)), (_, (other, _))| one.cmp(other));
        let mut places = vec![0; by_place.len()];
        for (place, (met, _)) in by_place.iter().enumerate() {
            places[*met] = place as u32;
        }
        (by_place.into_iter().map(|(_, (_, moment))| moment).collect(), places)
    }
}

/// The acts of moments in their order.
pub(super) fn acts(moments: &[Moment], operations: &[Operation]) -> Vec<Act> {
    let mut acts: Vec<Act> = Vec::new();
    let mut slid = None;
    for (at, moment) in (0..).zip(moments) {
        let does = match (operations[moment.operation as usize].does, moment.step) {
            (Does::Barrier | Does::Wait, _) => Acts::Wait,
            // After the last step there is nothing but the way to C.
            (_, None) if slid.is_some() => Acts::Store,
            (Does::GlobalStore, _) => Acts::Store,
            (Does::GlobalLoad | Does::SharedStore, _) => Acts::Load,
            (Does::SharedLoad | Does::MulAdd | Does::Matrix | Does::Arithmetic, _) => Acts::Multiply,
        };
        if let (Some(last), Some(step)) = (slid, moment.step)
            && last != step
        {
            acts.push(Act { does: Acts::Slide, step: Some(step), moments: [at, at] });
        }
        slid = moment.step.or(slid);
        match acts.last_mut() {
            Some(act) if act.does == does && act.step == moment.step => act.moments[1] = at + 1,
            _ => acts.push(Act { does, step: moment.step, moments: [at, at + 1] }),
        }
    }
    acts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_stand_as_in_the_program() {
        let mut moments = Moments::default();
        let step = |step| move || Moment { operation: 0, step: Some(step) };
        // A loop at 2 with an operation at 3: second turn met before the first; then what stands after and before the loop.
        let met: Vec<u32> = [[2, 1, 3], [2, 0, 3], [7, 0, 0], [1, 0, 0], [2, 1, 3]]
            .iter()
            .zip(0..)
            .map(|(p, s)| moments.at(p, step(s)))
            .collect();
        assert_eq!(met, [0, 1, 2, 3, 0]);
        let (sorted, places) = moments.sorted();
        assert_eq!(places, [2, 1, 3, 0]);
        assert_eq!(sorted.iter().map(|m| m.step.unwrap()).collect::<Vec<_>>(), [3, 1, 0, 2]);
    }

    #[test]
    fn acts_are_told_as_one_thing() {
        let all =
            [Does::GlobalLoad, Does::SharedStore, Does::Barrier, Does::SharedLoad, Does::MulAdd, Does::GlobalStore];
        let operations = all.map(|does| Operation { does, site: 0, memory: 0, ty: None, name: String::new() });
        let in_step = |step| [0, 1, 2, 3, 4, 2].map(move |operation| Moment { operation, step: Some(step) });
        let end = [0, 5].map(|operation| Moment { operation, step: None });
        let moments: Vec<Moment> = in_step(0).into_iter().chain(in_step(1)).chain(end).collect();
        let told = acts(&moments, &operations);
        use Acts::{Load, Multiply, Slide, Store, Wait};
        let names: Vec<Acts> = told.iter().map(|act| act.does).collect();
        assert_eq!(names, [Load, Wait, Multiply, Wait, Slide, Load, Wait, Multiply, Wait, Store]);
        assert_eq!(told[5], Act { does: Load, step: Some(1), moments: [6, 8] });
        assert_eq!(told[9], Act { does: Store, step: None, moments: [12, 14] });
    }
}
