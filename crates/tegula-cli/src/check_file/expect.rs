//! Compares a buffer with the value of a formula.

use tegula_ptx::Buffer;
use tegula_ptx::ast::ScalarType;

use super::arguments::{Arguments, Array, Operand, read};
use super::element::{self, Number};
use super::evaluate::Evaluator;
use super::formula::{Expression, Formula};
use super::tensor::{Elements, Real, Tensor};
use crate::failure::{Failure, Result};
use crate::progress::ProgressDisplay;
use crate::report::check::Finding;

/// Maximum number of elements in a message.
const NAMED: usize = 3;

/// The expected elements of a buffer.
#[derive(Debug)]
pub struct Expected {
    name: String,
    /// Index of the buffer in the launch.
    buffer: usize,
    elements: Elements,
    /// `--tolerance`: allowed error in units of 1 + |expected|, instead of the error bound.
    tolerance: Option<f64>,
}

impl Expected {
    /// Evaluates a formula over the values of arguments before the launch.
    ///
    /// # Errors
    /// Unknown names, and incompatible shapes.
    pub fn new(
        formula: &Formula,
        tolerance: Option<f64>,
        arguments: &Arguments,
        progress: &ProgressDisplay,
    ) -> Result<Expected> {
        let option = format!("--expect '{}'", formula.text);
        let index = arguments.buffer(&option, &formula.name)?;
        let buffer = &arguments.buffers[index];
        let leaf = |leaf: &Expression| match leaf {
            Expression::File(path) => {
                read(path, None, progress).map(|array| tensor(&array)).map_err(|why| why.to_string())
            }
            Expression::Name(name) => named(name, arguments),
            _ => Err("not a name".into()),
        };
        let evaluator = Evaluator { roundoff: computed_roundoff(buffer.ty), leaf: &leaf };
        let wrong = |why: String| Failure::new(format!("{option}: {why}"));
        let value = evaluator.evaluate(&formula.expression).map_err(wrong)?;
        let shape: Vec<usize> = buffer.shape.iter().map(|&extent| extent as usize).collect();
        let len = buffer.bytes.len() / buffer.ty.size() as usize;
        // A result with the same number of elements is reshaped, otherwise broadcast.
        let value = if value.len() == len { Some(value) } else { value.broadcast(&shape) };
        let Some(value) = value else {
            let (name, shape) = (&buffer.name, tegula_core::nd::display(&shape));
            return Err(wrong(format!("the result does not have the shape of {name}, {shape}")));
        };
        Ok(Expected { name: buffer.name.clone(), buffer: index, elements: value.elements, tolerance })
    }

    /// Fills an uninitialized buffer with wrong values, to detect elements that are never written.
    pub fn mark_unwritten(&self, buffers: &mut [Buffer]) {
        let Some(buffer) = buffers.get_mut(self.buffer).filter(|buffer| !buffer.initialized) else { return };
        let (ty, size) = (buffer.ty, buffer.ty.size() as usize);
        for (position, bytes) in buffer.bytes.chunks_exact_mut(size).enumerate() {
            bytes.copy_from_slice(&self.mark(ty, position)[..size]);
        }
    }

    /// The fill value of an element: bits that differ from the expected value.
    fn mark(&self, ty: ScalarType, position: usize) -> [u8; 8] {
        let expected = self.expected(ty, position);
        match (ty.is_float(), expected) {
            (true, Number::Real(value)) if !value.is_nan() => [0xff; 8],
            (true, _) => [0; 8],
            (false, Number::Integer(value)) => (!value as u64).to_le_bytes(),
            (false, Number::Real(_)) => [0xff; 8],
        }
    }

    /// The expected element, rounded or wrapped to a type.
    fn expected(&self, ty: ScalarType, position: usize) -> Number {
        let number = match &self.elements {
            Elements::Integers(all) => Number::Integer(all[position].into()),
            Elements::Reals(all) => Number::Real(all[position].value),
        };
        let size = ty.size() as usize;
        match number {
            Number::Integer(value) if !ty.is_float() => Number::decode(ty, &(value as i64).to_le_bytes()[..size]),
            // Truncated, as a conversion in C++.
            Number::Real(value) if !ty.is_float() => Number::decode(ty, &(value as i64).to_le_bytes()[..size]),
            number => number.encode(ty).map_or(number, |bytes| Number::decode(ty, &bytes)),
        }
    }

    /// Reports elements that were never written, and wrong ones. Sets unwritten elements to zero.
    pub fn compare(&self, buffers: &mut [Buffer]) -> Vec<Finding> {
        let Some(buffer) = buffers.get_mut(self.buffer) else { return Vec::new() };
        let (ty, size) = (buffer.ty, buffer.ty.size() as usize);
        let uninitialized = !buffer.initialized;
        let (mut unwritten, mut wrong) = (Vec::new(), Vec::new());
        for (position, bytes) in buffer.bytes.chunks_exact_mut(size).enumerate() {
            let got = Number::decode(ty, bytes);
            if self.is_right(ty, position, got) {
                continue;
            }
            if uninitialized && *bytes == self.mark(ty, position)[..size] {
                bytes.fill(0);
                unwritten.push(position);
            } else {
                wrong.push((position, got));
            }
        }
        let all = buffer.bytes.len() / size;
        let name = &self.name;
        let at = |position: usize| index(&buffer.shape, position);
        let more = |len: usize| if len > NAMED { ", …" } else { "" };
        let finding = |kind: &str, position: usize, message: String| Finding {
            name: Some(name.clone()),
            index: Some(at(position)),
            counted: "results",
            ..Finding::of_result(kind, [0, 0], message)
        };
        let mut findings = Vec::new();
        if let Some(&first) = unwritten.first() {
            let named: Vec<_> =
                unwritten.iter().take(NAMED).map(|&position| element_text(name, &at(position))).collect();
            let (count, more) = (unwritten.len(), more(unwritten.len()));
            let message = format!("{count} of {all} elements of {name} are never written: {}{more}", named.join(", "));
            findings.push(finding("unwritten", first, message));
        }
        if let Some(&(first, _)) = wrong.first() {
            let text = |&(position, got): &(usize, Number)| {
                let expected = display(ty, self.expected(ty, position));
                format!("{} is {} and should be {expected}", element_text(name, &at(position)), display(ty, got))
            };
            let named: Vec<_> = wrong.iter().take(NAMED).map(text).collect();
            let (count, more) = (wrong.len(), more(wrong.len()));
            let message = format!("{count} of {all} elements of {name} are wrong: {}{more}", named.join("; "));
            findings.push(finding("wrong-result", first, message));
        }
        findings
    }

    fn is_right(&self, ty: ScalarType, position: usize, got: Number) -> bool {
        let expected = self.expected(ty, position);
        let (Number::Real(got), Number::Real(rounded)) = (got, expected) else {
            // Integers must be equal, unless a tolerance is given.
            let difference = (got.to_f64() - expected.to_f64()).abs();
            return got == expected
                || self.tolerance.is_some_and(|t| difference <= t * (1.0 + expected.to_f64().abs()));
        };
        let exact = match &self.elements {
            Elements::Integers(all) => Real { value: all[position] as f64, error: 0.0 },
            Elements::Reals(all) => all[position],
        };
        if !rounded.is_finite() || !exact.value.is_finite() {
            return got == rounded || got.is_nan() && rounded.is_nan();
        }
        let (unit, smallest) = format(ty);
        let bound = match self.tolerance {
            Some(tolerance) => tolerance * (1.0 + exact.value.abs()),
            None => exact.error + unit * exact.value.abs() + smallest,
        };
        (got - exact.value).abs() <= bound
    }
}

/// The value of an argument before the launch.
fn named(name: &str, arguments: &Arguments) -> std::result::Result<Tensor, String> {
    match arguments.find(name).map(|named| &named.operand) {
        Some(Operand::Constant(array)) => Ok(tensor(array)),
        Some(Operand::Buffer(index)) => {
            let Buffer { ty, shape, bytes, initialized, .. } = arguments.buffers[*index].clone();
            if !initialized {
                return Err(format!("{name} is uninitialized before the launch"));
            }
            Ok(tensor(&Array { ty, shape, bytes, initialized }))
        }
        None => {
            let names: Vec<_> = arguments.names.iter().map(|named| named.name.as_str()).collect();
            Err(format!("no argument '{name}'; arguments are {}", names.join(", ")))
        }
    }
}

fn tensor(array: &Array) -> Tensor {
    let ty = array.ty;
    let each = array.bytes.chunks_exact(ty.size() as usize).map(|bytes| Number::decode(ty, bytes));
    let elements = if ty.is_float() {
        Elements::Reals(each.map(|x| Real { value: x.to_f64(), error: 0.0 }).collect())
    } else {
        // Integers outside of the range of i64 wrap, as integer arithmetic does.
        let integer = |x| if let Number::Integer(value) = x { value as i64 } else { 0 };
        Elements::Integers(each.map(integer).collect())
    };
    let shape = array.shape.iter().map(|&extent| extent as usize).collect();
    Tensor { shape, elements, half: matches!(ty, ScalarType::F16 | ScalarType::Bf16) }
}

/// Unit roundoff and half the smallest positive number of a type.
pub fn format(ty: ScalarType) -> (f64, f64) {
    let (fraction_bits, exponent) = match ty {
        ScalarType::F64 => (52, -1074),
        ScalarType::F16 => (10, -24),
        ScalarType::Bf16 => (7, -133),
        _ => (23, -149),
    };
    (2f64.powi(-fraction_bits - 1), 2f64.powi(exponent))
}

/// The unit roundoff of a kernel's arithmetic: that of f32 for 16-bit results.
fn computed_roundoff(ty: ScalarType) -> f64 {
    format(if ty == ScalarType::F64 { ty } else { ScalarType::F32 }).0
}

/// The index of an element, outermost first.
pub fn index(shape: &[u64], position: usize) -> Vec<u64> {
    let mut rest = position as u64;
    let mut index: Vec<u64> = shape
        .iter()
        .rev()
        .map(|&extent| {
            let i = rest % extent.max(1);
            rest /= extent.max(1);
            i
        })
        .collect();
    index.reverse();
    index
}

/// An element as in the source, such as `C[3][7]`.
pub fn element_text(name: &str, index: &[u64]) -> String {
    index.iter().fold(name.to_owned(), |text, i| text + &format!("[{i}]"))
}

/// Prints a number with as many digits as its type needs.
pub fn display(ty: ScalarType, number: Number) -> String {
    match number {
        Number::Integer(value) => value.to_string(),
        Number::Real(value) if element::of_memory(ty) == ScalarType::F64 => short(value, format!("{value:?}")),
        Number::Real(value) => short(value, format!("{:?}", value as f32)),
    }
}

/// Removes a redundant `.0`.
fn short(value: f64, digits: String) -> String {
    if value.is_finite() { digits.trim_end_matches(".0").to_owned() } else { digits }
}

#[cfg(test)]
mod tests {
    use tegula_ptx::ast::ScalarType::{F32, S32};

    use super::*;

    fn expected(elements: Elements) -> Expected {
        Expected { name: "C".into(), buffer: 0, elements, tolerance: None }
    }

    fn reals(all: &[f64]) -> Elements {
        Elements::Reals(all.iter().map(|&value| Real { value, error: 1e-7 }).collect())
    }

    #[test]
    fn unwritten_and_wrong_elements_are_distinguished() {
        let mut buffers = [Buffer::uninitialized("C", F32, [2, 3])];
        let expected = expected(reals(&[1.0, 2.0, f64::NAN, 4.0, 5.0, 6.0]));
        expected.mark_unwritten(&mut buffers);
        for (i, value) in [(0, 1.0f32), (1, 2.5), (4, 5.000_000_1)] {
            buffers[0].bytes[4 * i..][..4].copy_from_slice(&value.to_le_bytes());
        }
        let findings = expected.compare(&mut buffers);
        let messages: Vec<_> =
            findings.iter().map(|finding| (finding.kind.as_str(), finding.message.as_str())).collect();
        assert_eq!(
            messages,
            [
                ("unwritten", "3 of 6 elements of C are never written: C[0][2], C[1][0], C[1][2]"),
                ("wrong-result", "1 of 6 elements of C are wrong: C[0][1] is 2.5 and should be 2"),
            ]
        );
        assert_eq!(findings[0].index, Some(vec![0, 2]));
        assert_eq!(buffers[0].to_f32().unwrap()[3], 0.0);
    }

    #[test]
    fn integers_wrap_and_are_compared_exactly() {
        let mut buffers = [Buffer::new("C", S32, [2], [1i32, -5].map(i32::to_le_bytes).concat())];
        assert!(expected(Elements::Integers(vec![(1 << 32) + 1, -5])).compare(&mut buffers).is_empty());
        let wrong = expected(Elements::Integers(vec![1, -4])).compare(&mut buffers);
        assert!(wrong[0].message.contains("C[1] is -5 and should be -4"), "{wrong:?}");
        let near = Expected { tolerance: Some(0.5), ..expected(Elements::Integers(vec![1, -4])) };
        assert!(near.compare(&mut buffers).is_empty());
    }

    #[test]
    fn infinities_and_nan_are_values() {
        let values = [f32::INFINITY, f32::NAN, 1.0];
        let mut buffers = [Buffer::f32("C", &values)];
        assert!(expected(reals(&[1e300, f64::NAN, 1.0])).compare(&mut buffers).is_empty());
        let findings = expected(reals(&[1.0, 1.0, f64::INFINITY])).compare(&mut buffers);
        assert!(
            findings[0].message.starts_with("3 of 3 elements of C are wrong: C[0] is inf and should be 1; C[1] is NaN"),
            "{findings:?}"
        );
    }
}
