//! `mma.sync`: the product of fragments.

use tegula_core::element::Type;
use tegula_interp::{TensorCore, tensor_core};

use crate::alu::Lanes;
use crate::ast::ScalarType;

use super::element::Element;
use super::fragment::{Fragment, Tiling};
use super::modifiers::{Layout, Modifiers, Rounding, shape_name};
use super::product::{Arithmetic, Blocks, Product};

/// The registers of a fragment in each lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Their number.
    pub count: u32,
    /// Their type: `b32` where elements are packed, and for tf32.
    pub ty: ScalarType,
}

/// A product of fragments, D = A·B + C: `mma.sync` or `wmma.mma`.
#[derive(Clone, Debug)]
pub struct Mma {
    product: Product,
    /// Of A, B, C and D.
    fragments: [Fragment; 4],
}

/// A list of element types of A and B, and the shapes m, n, k that they support.
pub(super) type Shapes = (&'static [Element], &'static [[u32; 3]]);

const SHAPES: [Shapes; 8] = [
    (&[Element::F64], &[[8, 8, 4], [16, 8, 4], [16, 8, 8], [16, 8, 16]]),
    (&[Element::F16], &[[8, 8, 4], [16, 8, 8], [16, 8, 16]]),
    (&[Element::Bf16], &[[16, 8, 8], [16, 8, 16]]),
    (&[Element::Tf32], &[[16, 8, 4], [16, 8, 8]]),
    (&[Element::E4m3, Element::E5m2], &[[16, 8, 16], [16, 8, 32]]),
    (&[Element::S8, Element::U8], &[[8, 8, 16], [16, 8, 16], [16, 8, 32]]),
    (&[Element::S4, Element::U4], &[[8, 8, 32], [16, 8, 32], [16, 8, 64]]),
    (&[Element::B1], &[[8, 8, 128], [16, 8, 128], [16, 8, 256]]),
];

/// Checks that a shape exists for the types of A and B.
pub(super) fn check_shape(shapes: &[Shapes], shape: [u32; 3], a: Element, b: Element) -> Result<(), String> {
    let known = shapes.iter().find(|(elements, _)| elements.contains(&a) && elements.contains(&b));
    let Some((_, known)) = known else {
        return Err(format!("operands .{} and .{} are not supported", a.name(), b.name()));
    };
    if known.contains(&shape) {
        return Ok(());
    }
    let known: Vec<_> = known.iter().map(|&shape| format!(".{}", shape_name(shape))).collect();
    Err(format!(".{} is not supported for .{}; use {}", shape_name(shape), a.name(), known.join(", ")))
}

/// Checks that accumulators of C and D exist for the type of A.
pub(super) fn check_accumulators(a: Element, c: Element, d: Element) -> Result<(), String> {
    let allowed: &[Element] = match a {
        Element::F64 => &[Element::F64],
        Element::F16 | Element::E4m3 | Element::E5m2 => &[Element::F16, Element::F32],
        Element::Bf16 | Element::Tf32 => &[Element::F32],
        _ => &[Element::S32],
    };
    match [c, d].into_iter().find(|element| !allowed.contains(element)) {
        None => Ok(()),
        Some(element) => Err(format!("accumulators .{} are not supported for .{}", element.name(), a.name())),
    }
}

impl Mma {
    /// Decodes `mma.sync` from its modifiers: what follows the opcode, split at dots.
    ///
    /// # Errors
    /// A message about the unsupported combination of modifiers.
    pub fn decode(modifiers: &[String]) -> Result<Self, String> {
        if modifiers.iter().any(|name| name == "sp" || name.starts_with("sp::")) {
            return Err("sparse products (mma.sp) are not supported".into());
        }
        let modifiers = Modifiers::parse(modifiers)?;
        let &[d, a, b, c] = modifiers.elements.as_slice() else {
            return Err("four types are needed, of D, A, B and C, such as .f32.f16.f16.f32".into());
        };
        let shape = modifiers.shape;
        check_shape(&SHAPES, shape, a, b)?;
        check_accumulators(a, c, d)?;
        let quarters = a == Element::F16 && shape == [8, 8, 4];
        let &[of_a, of_b] = modifiers.layouts.as_slice() else {
            return Err("the layouts of A and B are missing, such as .row.col".into());
        };
        if (of_a, of_b) != (Layout::Row, Layout::Col) && !quarters {
            return Err("the layouts of A and B must be .row.col".into());
        }
        if c != d && !(quarters && d == Element::F32) {
            return Err(format!("C of .{} and D of .{} are not supported together", c.name(), d.name()));
        }
        let arithmetic = arithmetic(&modifiers, a, [c, d])?;
        if quarters {
            return Ok(Self::new(
                Arithmetic::F32 { half: d == Element::F16 },
                shape,
                quarter_fragments([of_a, of_b], c, d),
            ));
        }
        let [m, n, k] = shape;
        let operand = |element, lines, halves| Operand::Multiplicand { element, lines, k, halves };
        let accumulator = |element| Operand::Accumulator { element, rows: m, cols: n, transposed: false };
        let operands = [operand(a, m, m / 8), operand(b, n, 1), accumulator(c), accumulator(d)];
        Ok(Self::new(arithmetic, shape, operands.map(Operand::fragment)))
    }

    /// Creates a product with these fragments of A, B, C and D.
    pub(super) fn new(arithmetic: Arithmetic, [m, n, k]: [u32; 3], fragments: [Fragment; 4]) -> Self {
        let [a, _, c, d] = fragments.each_ref().map(Fragment::element);
        let shape = [m, n, k / a.per_part()].map(|extent| extent as usize);
        Self { product: Product { arithmetic, shape, types: [c, d] }, fragments }
    }

    /// The registers of A, B, C and D.
    pub fn registers(&self) -> [Registers; 4] {
        self.fragments
            .each_ref()
            .map(|fragment| Registers { count: fragment.registers(), ty: fragment.element().register() })
    }

    /// Computes D.
    ///
    /// Each operand has the registers of [`Mma::registers`].
    pub fn eval(&self, core: TensorCore, a: &[&Lanes], b: &[&Lanes], c: &[&Lanes], d: &mut [Lanes]) {
        let [of_a, of_b, of_c, of_d] = &self.fragments;
        let widened =
            |fragment: &Fragment, registers| fragment.gather(registers, |bits| fragment.element().widen(bits));
        let mut accumulators = of_c.gather(c, |bits| bits);
        self.product.eval(core, &widened(of_a, a), &widened(of_b, b), &mut accumulators);
        of_d.scatter(&accumulators, d);
    }

    /// Number of multiply-adds of the warp.
    pub fn multiply_adds(&self) -> u64 {
        let per_part = self.fragments[0].element().per_part();
        self.fragments[2].size() as u64 * self.product.shape[2] as u64 * u64::from(per_part)
    }

    /// Number of floating-point operations of the warp; 0 for integer accumulators.
    pub fn flops(&self) -> u64 {
        if self.fragments[2].element().register().is_float() { 2 * self.multiply_adds() } else { 0 }
    }

    /// Whether results equal those of this GPU bit for bit.
    pub fn is_modeled_exactly(&self, core: TensorCore) -> bool {
        self.product.is_exact(core)
    }
}

/// The arithmetic of an instruction, from its modifiers and its types.
pub(super) fn arithmetic(modifiers: &Modifiers, a: Element, [c, d]: [Element; 2]) -> Result<Arithmetic, String> {
    let k = modifiers.shape[2] as usize;
    let blocks =
        Blocks { format: tensor_core::F16, fast: None, k, half: [c, d] == [Element::F16; 2], from_pairs: false };
    if modifiers.saturating && c != Element::S32 {
        return Err(format!(".satfinite is not supported for .{}", a.name()));
    }
    if modifiers.rounding.is_some() && a != Element::F64 {
        return Err(format!("rounding is not supported for .{}", a.name()));
    }
    Ok(match a {
        Element::F64 => Arithmetic::F64(modifiers.rounding.unwrap_or(Rounding::Nearest)),
        Element::F16 => Arithmetic::Blocks(Blocks { fast: Some(Type::F16), ..blocks }),
        Element::Bf16 => Arithmetic::Blocks(Blocks { format: tensor_core::BF16, fast: Some(Type::BF16), ..blocks }),
        Element::Tf32 => Arithmetic::Blocks(Blocks { format: tensor_core::TF32, ..blocks }),
        Element::E4m3 | Element::E5m2 => {
            Arithmetic::Blocks(Blocks { fast: Some(Type::F16), k: k / 2, from_pairs: true, ..blocks })
        }
        Element::B1 => match modifiers.bit_operation {
            Some(operation) => Arithmetic::Bits(operation),
            None => return Err("the operation of .b1 is missing: .xor.popc or .and.popc".into()),
        },
        _ => Arithmetic::Integers { saturating: modifiers.saturating },
    })
}

/// A matrix operand whose fragment is given by a [`Tiling`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    /// A or B; `lines` are the rows of A or the columns of B.
    Multiplicand { element: Element, lines: u32, k: u32, halves: u32 },
    /// C or D; transposed if its columns are the lines.
    Accumulator { element: Element, rows: u32, cols: u32, transposed: bool },
}

impl Operand {
    pub fn element(self) -> Element {
        match self {
            Operand::Multiplicand { element, .. } | Operand::Accumulator { element, .. } => element,
        }
    }

    pub fn tiling(self) -> Tiling {
        match self {
            Operand::Multiplicand { element, lines, k, halves } => Tiling::operand(lines, k, element, halves),
            Operand::Accumulator { rows, cols, transposed: false, .. } => Tiling::accumulator(rows, cols),
            Operand::Accumulator { rows, cols, transposed: true, .. } => Tiling::accumulator(cols, rows),
        }
    }

    /// Rows of A, columns of B and rows of C are contiguous.
    pub fn fragment(self) -> Fragment {
        let tiling = self.tiling();
        let position = |line: u32, depth: u32| match self {
            Operand::Accumulator { cols, transposed: true, .. } => depth * cols + line,
            _ => line * tiling.depth + depth,
        };
        Fragment::tiled(self.element(), tiling, position)
    }
}

/// The fragments of `m8n8k4` with f16: four products, each of 8 lanes.
fn quarter_fragments([of_a, of_b]: [Layout; 2], c: Element, d: Element) -> [Fragment; 4] {
    // Lanes 0–3 and 16–19 compute the first product, lanes 4–7 and 20–23 the second one, and so on.
    let quarter = |lane: u32| lane % 16 / 4;
    let high = |lane: u32| lane / 16 * 4;
    let line_of_lane = |lane: u32| lane % 4 + high(lane);
    // A lane holds a line of 4 elements, or one element of each of 4 lines.
    let operand = |in_lanes: bool| {
        Fragment::new(Element::F16, 4, 4 * 32, move |lane, i| {
            let (line, depth) = if in_lanes { (line_of_lane(lane), i) } else { (i + high(lane), lane % 4) };
            32 * quarter(lane) + 4 * line + depth
        })
    };
    let accumulator = |element| {
        Fragment::new(element, 8, 4 * 64, move |lane, i| {
            let (row, col) = match element {
                Element::F16 => (line_of_lane(lane), i),
                _ => ((lane & 1) + (i & 2) + high(lane), (i & 4) + (lane & 2) + (i & 1)),
            };
            64 * quarter(lane) + 8 * row + col
        })
    };
    [operand(of_a == Layout::Row), operand(of_b == Layout::Col), accumulator(c), accumulator(d)]
}

#[cfg(test)]
mod tests;
