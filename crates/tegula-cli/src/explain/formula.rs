//! The dot product that makes an element of C, with names and with values.

use tegula_explain::formula::{Element, Term};

use super::trace_view::TraceView;

/// One product of the dot product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    /// `a00·b00`.
    pub names: String,
    /// `1·1`.
    pub numbers: String,
    pub tick: u32,
    pub step: Option<u32>,
    /// The accumulator after it.
    pub sum: String,
}

/// The dot product of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formula {
    /// Name of the element, `c00`; `None` where the thread writes nothing.
    pub name: Option<String>,
    pub products: Vec<Product>,
    /// The stored value, and its tick.
    pub stored: Option<(String, u32)>,
}

impl Formula {
    /// The formula of the first element that a thread writes.
    pub fn of(view: &TraceView, block: [u32; 3], thread: [u32; 3]) -> Formula {
        let (stored, terms) = view.sum_of(block, thread);
        let mut before = None;
        let products = terms
            .iter()
            .map(|term| {
                // An operand that copies no element and changes nothing is zero fill.
                let other = if before.is_none_or(|sum| sum == term.accumulator) { "0" } else { "?" };
                before = Some(term.accumulator);
                product(view, term, other)
            })
            .collect();
        Formula {
            name: stored.as_ref().map(|stored| view.name(stored.element)),
            products,
            stored: stored.map(|stored| (view.shown(stored.tick, stored.bits), stored.tick)),
        }
    }

    /// The products in at most `width` characters, with values up to tick `done` and names after
    /// it; products in the middle are left out.
    pub fn so_far(&self, done: u32, width: usize) -> String {
        let added = self.products.iter().take_while(|product| product.tick < done).count();
        let parts: Vec<&str> = self
            .products
            .iter()
            .enumerate()
            .map(|(at, product)| if at < added { product.numbers.as_str() } else { product.names.as_str() })
            .collect();
        joined(&parts, added, width)
    }

    /// The accumulator after `done` ticks.
    pub fn sum(&self, done: u32) -> Option<&str> {
        self.products.iter().take_while(|product| product.tick < done).last().map(|product| product.sum.as_str())
    }

    /// The products of each step along k.
    pub fn steps(&self) -> Vec<(Option<u32>, &[Product])> {
        self.products.chunk_by(|one, other| one.step == other.step).map(|chunk| (chunk[0].step, chunk)).collect()
    }
}

fn product(view: &TraceView, term: &Term, other: &str) -> Product {
    let number = |element: Element| view.number(element.matrix, view.position(element)).unwrap_or_else(|| "?".into());
    let factors = |of: &dyn Fn(Element) -> String| {
        let [a, b] = term.operands.map(|factor| factor.map_or_else(|| other.to_owned(), of));
        format!("{a}·{b}")
    };
    Product {
        names: factors(&|element| view.name(element)),
        numbers: factors(&number),
        tick: term.tick,
        step: term.step,
        sum: view.shown(term.tick, term.accumulator),
    }
}

/// Joins parts by plus signs in at most `width` characters: all, else the first, those around
/// `center`, and the last.
pub fn joined(parts: &[&str], center: usize, width: usize) -> String {
    let text = |chosen: &[bool]| {
        let mut text = String::new();
        let mut left_out = false;
        for (part, chosen) in parts.iter().zip(chosen) {
            if !chosen {
                left_out = true;
                continue;
            }
            if !text.is_empty() {
                text += " + ";
            }
            if left_out {
                text += "… + ";
                left_out = false;
            }
            text += part;
        }
        text
    };
    let whole = parts.iter().map(|part| part.chars().count() + 3).sum::<usize>();
    if whole <= width + 3 {
        return parts.join(" + ");
    }
    // The first and the last, then those nearest to the center, as long as they fit.
    let mut chosen = vec![false; parts.len()];
    let center = center.min(parts.len() - 1);
    let near = (0..parts.len()).flat_map(|far| [center.checked_sub(far), center.checked_add(far)]).flatten();
    let mut best = String::from("…");
    for at in [0, parts.len() - 1].into_iter().chain(near.filter(|&at| at < parts.len()).take(64)) {
        chosen[at] = true;
        let longer = text(&chosen);
        if longer.chars().count() > width {
            break;
        }
        best = longer;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sums_keep_their_ends_and_the_center() {
        let parts: Vec<String> = (0..20).map(|at| format!("p{at:02}")).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        assert_eq!(joined(&parts[..3], 0, 15), "p00 + p01 + p02");
        assert_eq!(joined(&parts, 10, 40), "p00 + … + p09 + p10 + p11 + … + p19");
        assert_eq!(joined(&parts, 0, 40), "p00 + p01 + p02 + p03 + p04 + … + p19");
        assert_eq!(joined(&parts, 20, 30), "p00 + … + p17 + p18 + p19");
        assert!((0..40).all(|width| joined(&parts, 7, width).chars().count() <= width.max(1)));
    }
}
