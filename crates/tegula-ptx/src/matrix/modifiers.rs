//! The modifiers of a matrix instruction.
//!
//! Each is recognized by its name, so any order is accepted: the layout is before or after the
//! shape, and the position of the f64 rounding differs, depending on the PTX version.

use crate::ast::StateSpace;

use super::element::Element;

/// The order of the elements of a matrix in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Row,
    Col,
}

/// Rounding of f64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
}

/// The bit operation that replaces the multiplication for `b1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BitOperation {
    Xor,
    And,
}

/// The modifiers that `mma` and `wmma` share.
#[derive(Debug, Default)]
pub(super) struct Modifiers {
    /// m, n and k.
    pub shape: [u32; 3],
    /// In the order in which they are written.
    pub layouts: Vec<Layout>,
    /// In the order in which they are written.
    pub elements: Vec<Element>,
    pub space: Option<StateSpace>,
    pub saturating: bool,
    pub rounding: Option<Rounding>,
    pub bit_operation: Option<BitOperation>,
}

impl Modifiers {
    /// # Errors
    /// The modifier that is unknown, unsupported or missing.
    pub fn parse(modifiers: &[String]) -> Result<Self, String> {
        let mut parsed = Modifiers::default();
        let mut synchronizes = false;
        for name in modifiers.iter().map(String::as_str) {
            match name {
                "sync" => synchronizes = true,
                "aligned" | "popc" => {}
                "row" => parsed.layouts.push(Layout::Row),
                "col" => parsed.layouts.push(Layout::Col),
                "global" => parsed.space = Some(StateSpace::Global),
                "shared" | "shared::cta" => parsed.space = Some(StateSpace::Shared),
                "satfinite" => parsed.saturating = true,
                "rn" => parsed.rounding = Some(Rounding::Nearest),
                "rz" => parsed.rounding = Some(Rounding::Zero),
                "rm" => parsed.rounding = Some(Rounding::Down),
                "rp" => parsed.rounding = Some(Rounding::Up),
                "xor" => parsed.bit_operation = Some(BitOperation::Xor),
                "and" => parsed.bit_operation = Some(BitOperation::And),
                _ => match (Element::from_name(name), shape(name)) {
                    (Some(element), _) => parsed.elements.push(element),
                    (None, Some(shape)) => parsed.shape = shape,
                    (None, None) => return Err(format!(".{name} is not supported")),
                },
            }
        }
        match (synchronizes, parsed.shape) {
            (false, _) => Err(".sync is missing".into()),
            (true, [0, ..]) => Err("the shape is missing, such as .m16n8k16".into()),
            _ => Ok(parsed),
        }
    }
}

/// Parses a shape such as `m16n8k16`.
fn shape(name: &str) -> Option<[u32; 3]> {
    let (m, rest) = name.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    // At most three digits, so products of extents do not overflow.
    let extent = |digits: &str| if digits.len() > 3 { None } else { digits.parse().ok() };
    Some([extent(m)?, extent(n)?, extent(k)?])
}

/// The name of a shape in PTX, without the dot.
pub(super) fn shape_name([m, n, k]: [u32; 3]) -> String {
    format!("m{m}n{n}k{k}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Modifiers, String> {
        Modifiers::parse(&text.split('.').map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn modifiers_are_found_in_any_order() {
        for text in ["sync.aligned.row.m16n16k16.shared::cta.f16", "sync.aligned.m16n16k16.shared.row.f16"] {
            let parsed = parse(text).unwrap();
            assert_eq!(parsed.shape, [16, 16, 16]);
            assert_eq!((parsed.layouts, parsed.elements), (vec![Layout::Row], vec![Element::F16]));
            assert_eq!(parsed.space, Some(StateSpace::Shared));
        }
    }

    #[test]
    fn modifiers_unknown_or_missing_are_named() {
        assert!(parse("sync.aligned.m16n8k32.row.col.f32.e2m1.e2m1.f32").unwrap_err().contains("e2m1"));
        assert!(parse("aligned.m16n8k16.row.col").unwrap_err().contains("sync"));
        assert!(parse("sync.aligned.row.col.f32").unwrap_err().contains("shape"));
        for text in ["sync.m", "sync.mnk", "sync.m16n8", "sync.m1n99999999999k1", "sync.m16n8k16x", "sync.m-1n8k4"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
