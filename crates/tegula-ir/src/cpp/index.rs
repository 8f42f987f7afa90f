//! Index analysis: upper bounds of indices, and their decomposition into affine sums.

use crate::bounds::Bounds;
use crate::{Binary, Inst, Kernel, MemoryRef, Op, Operand, SharedId, ValId};

/// A sum of values multiplied by constants, modulo 2³².
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AffineSum {
    pub terms: Vec<(ValId, u32)>,
    pub constant: u32,
}

/// The definitions and bounds of values.
pub(super) struct Indices<'a> {
    definitions: Vec<Option<&'a Inst>>,
    bounds: Bounds,
    /// The extents by which each shared array is indexed.
    ///
    /// These are the declared extents, or only their product where a coordinate may exceed its
    /// extent.
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
        let mut references = Vec::new();
        shared_references(kernel.body(), &mut references);
        for reference in references {
            let MemoryRef::Shared { array, .. } = *reference else { continue };
            let in_bounds = indices
                .coordinates(reference)
                .iter()
                .zip(&indices.dims[array.index()])
                .all(|(coordinate, &dim)| indices.max_of_sum(coordinate) < u64::from(dim));
            if !in_bounds {
                indices.dims[array.index()] = vec![kernel.shared()[array.index()].len() as u32];
            }
        }
        indices
    }

    /// Collects the definitions, in order of definition.
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

    /// The upper bound of a `u32` operand.
    pub fn max(&self, operand: Operand) -> u64 {
        self.bounds.max(operand)
    }

    fn max_of_sum(&self, sum: &AffineSum) -> u64 {
        let max = |(value, by): &(ValId, u32)| self.max(Operand::Val(*value)).saturating_mul((*by).into());
        sum.terms.iter().map(max).fold(sum.constant.into(), u64::saturating_add)
    }

    /// Adds an index times `by` to a sum.
    fn add_terms(&self, operand: Operand, by: u32, sum: &mut AffineSum) {
        let value = match operand {
            Operand::Const(_, bits) => {
                sum.constant = sum.constant.wrapping_add((bits as u32).wrapping_mul(by));
                return;
            }
            Operand::Val(value) => value,
        };
        match self.definitions[value.index()].map(|inst| &inst.op) {
            Some(&Op::Binary(Binary::Add, a, b)) => {
                self.add_terms(a, by, sum);
                self.add_terms(b, by, sum);
            }
            Some(&Op::Binary(Binary::Shl, a, Operand::Const(_, count))) if count < 32 => {
                self.add_terms(a, by.wrapping_mul(1 << count), sum);
            }
            Some(&Op::Binary(Binary::Mul, a, Operand::Const(_, times))) => {
                self.add_terms(a, by.wrapping_mul(times as u32), sum);
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

    /// The coordinates of an element of a shared array.
    ///
    /// Each term belongs to the outermost axis whose stride divides it.
    pub fn coordinates(&self, reference: &MemoryRef) -> Vec<AffineSum> {
        let MemoryRef::Shared { array, index, offset, .. } = *reference else { return Vec::new() };
        let mut rest = AffineSum { constant: offset, ..AffineSum::default() };
        self.add_terms(index, 1, &mut rest);
        let dims = self.dims(array);
        let mut coordinates = Vec::new();
        for axis in 0..dims.len() {
            let stride = dims[axis + 1..].iter().fold(1, |stride: u32, &dim| stride.wrapping_mul(dim)).max(1);
            let (here, inner): (Vec<_>, Vec<_>) = rest.terms.iter().partition(|(_, by)| by.is_multiple_of(stride));
            let terms = here.into_iter().map(|(value, by)| (value, by / stride)).collect();
            coordinates.push(AffineSum { terms, constant: rest.constant / stride });
            rest = AffineSum { terms: inner, constant: rest.constant % stride };
        }
        coordinates
    }
}

fn shared_references<'a>(insts: &'a [Inst], references: &mut Vec<&'a MemoryRef>) {
    for inst in insts {
        match &inst.op {
            Op::Load { from: reference, .. } | Op::Store { to: reference, .. } => references.push(reference),
            _ => {}
        }
        inst.op.bodies().for_each(|body| shared_references(body, references));
    }
}
