//! What is known of indices: how large they can be, and of which terms they are sums.

use crate::bounds::Bounds;
use crate::{Binary, Inst, Kernel, Op, Operand, Place, SharedId, ValId};

/// A sum of products with constants, modulo 2³².
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub terms: Vec<(ValId, u32)>,
    pub constant: u32,
}

/// The operations behind values.
pub(super) struct Indices<'a> {
    definitions: Vec<Option<&'a Inst>>,
    bounds: Bounds,
    /// The extents by which each shared array is indexed: its own, or only their product where a coordinate is not known to stay within.
    dims: Vec<Vec<u32>>,
}

impl<'a> Indices<'a> {
    pub fn new(kernel: &'a Kernel) -> Self {
        let mut indices = Indices {
            definitions: Vec::new(),
            bounds: Bounds::of(kernel),
            dims: kernel.shared().iter().map(|array| array.dims.clone()).collect(),
        };
        indices.collect(kernel.body());
        let mut places = Vec::new();
        shared_places(kernel.body(), &mut places);
        for place in places {
            let Place::Shared { array, .. } = *place else { continue };
            let inside = indices
                .coordinates(place)
                .iter()
                .zip(&indices.dims[array.index()])
                .all(|(coordinate, &dim)| indices.most_of_sum(coordinate) < u64::from(dim));
            if !inside {
                indices.dims[array.index()] = vec![kernel.shared()[array.index()].len() as u32];
            }
        }
        indices
    }

    /// Definitions, in the order in which values are defined.
    fn collect(&mut self, insts: &'a [Inst]) {
        for inst in insts {
            for result in &inst.results {
                let index = result.index();
                if self.definitions.len() <= index {
                    self.definitions.resize(index + 1, None);
                }
                self.definitions[index] = Some(inst);
            }
            inst.op.bodies().for_each(|body| self.collect(body));
        }
    }

    /// How large a `u32` can be.
    pub fn most(&self, operand: Operand) -> u64 {
        self.bounds.most(operand)
    }

    fn most_of_sum(&self, sum: &Sum) -> u64 {
        let most = |(value, by): &(ValId, u32)| self.most(Operand::Val(*value)).saturating_mul((*by).into());
        sum.terms.iter().map(most).fold(sum.constant.into(), u64::saturating_add)
    }

    /// An index as a sum.
    fn sum(&self, operand: Operand, by: u32, sum: &mut Sum) {
        let value = match operand {
            Operand::Const(_, bits) => {
                sum.constant = sum.constant.wrapping_add((bits as u32).wrapping_mul(by));
                return;
            }
            Operand::Val(value) => value,
        };
        match self.definitions[value.index()].map(|inst| &inst.op) {
            Some(&Op::Binary(Binary::Add, a, b)) => {
                self.sum(a, by, sum);
                self.sum(b, by, sum);
            }
            Some(&Op::Binary(Binary::Shl, a, Operand::Const(_, count))) if count < 32 => {
                self.sum(a, by.wrapping_mul(1 << count), sum);
            }
            Some(&Op::Binary(Binary::Mul, a, Operand::Const(_, times))) => {
                self.sum(a, by.wrapping_mul(times as u32), sum);
            }
            _ => match sum.terms.iter_mut().find(|(other, _)| *other == value) {
                Some((_, times)) => *times = times.wrapping_add(by),
                None => sum.terms.push((value, by)),
            },
        }
    }

    /// The extents by which an array is indexed.
    pub fn dims(&self, array: SharedId) -> &[u32] {
        &self.dims[array.index()]
    }

    /// The coordinates of an element of a shared array. Each term goes to the outermost axis whose stride divides it.
    pub fn coordinates(&self, place: &Place) -> Vec<Sum> {
        let Place::Shared { array, index, offset, .. } = *place else { return Vec::new() };
        let mut whole = Sum { constant: offset, ..Sum::default() };
        self.sum(index, 1, &mut whole);
        let dims = self.dims(array);
        let mut coordinates = Vec::new();
        for axis in 0..dims.len() {
            let stride = dims[axis + 1..].iter().fold(1, |stride: u32, &dim| stride.wrapping_mul(dim)).max(1);
            let (here, further): (Vec<_>, Vec<_>) = whole.terms.iter().partition(|(_, by)| by.is_multiple_of(stride));
            let terms = here.into_iter().map(|(value, by)| (value, by / stride)).collect();
            coordinates.push(Sum { terms, constant: whole.constant / stride });
            whole = Sum { terms: further, constant: whole.constant % stride };
        }
        coordinates
    }
}

fn shared_places<'a>(insts: &'a [Inst], places: &mut Vec<&'a Place>) {
    for inst in insts {
        match &inst.op {
            Op::Load { from: place, .. } | Op::Store { to: place, .. } => places.push(place),
            _ => {}
        }
        inst.op.bodies().for_each(|body| shared_places(body, places));
    }
}
