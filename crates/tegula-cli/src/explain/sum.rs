//! The sum that makes an element of C, with names and with numbers.

use tegula_explain::formula::{Element, Term};

use super::stage::Stage;

/// One product of the sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    /// `a00·b00`.
    pub names: String,
    /// `1·1`.
    pub numbers: String,
    pub moment: u32,
    pub step: Option<u32>,
    /// The sum with it.
    pub sum: String,
}

/// What makes an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formula {
    /// `c00`; `None` where the thread writes nothing.
    pub name: Option<String>,
    pub products: Vec<Product>,
    /// What was written, and when.
    pub stored: Option<(String, u32)>,
}

impl Formula {
    /// Of the first element that a thread writes.
    pub fn of(stage: &Stage, block: [u32; 3], thread: [u32; 3]) -> Formula {
        let (stored, terms) = stage.sum_of(block, thread);
        let mut before = None;
        let products = terms
            .iter()
            .map(|term| {
                // What is no element's copy and changes nothing is the zero beyond an edge.
                let other = if before.is_none_or(|sum| sum == term.sum) { "0" } else { "?" };
                before = Some(term.sum);
                product(stage, term, other)
            })
            .collect();
        Formula {
            name: stored.as_ref().map(|stored| stage.name(stored.element)),
            products,
            stored: stored.map(|stored| (stage.shown(stored.moment, stored.bits), stored.moment)),
        }
    }

    /// The products with their numbers as far as they have been added, in so many characters: those in the middle give way.
    pub fn so_far(&self, done: u32, width: usize) -> String {
        let added = self.products.iter().take_while(|product| product.moment < done).count();
        let parts: Vec<&str> = self
            .products
            .iter()
            .enumerate()
            .map(|(at, product)| if at < added { product.numbers.as_str() } else { product.names.as_str() })
            .collect();
        joined(&parts, added, width)
    }

    /// The sum of what has been added.
    pub fn sum(&self, done: u32) -> Option<&str> {
        self.products.iter().take_while(|product| product.moment < done).last().map(|product| product.sum.as_str())
    }

    /// The products of each step, and the sum after it.
    pub fn steps(&self) -> Vec<(Option<u32>, &[Product])> {
        self.products.chunk_by(|one, other| one.step == other.step).map(|chunk| (chunk[0].step, chunk)).collect()
    }
}

fn product(stage: &Stage, term: &Term, other: &str) -> Product {
    let number = |element: Element| stage.number(element.matrix, stage.position(element)).unwrap_or_else(|| "?".into());
    let factors = |of: &dyn Fn(Element) -> String| {
        let [a, b] = term.factors.map(|factor| factor.map_or_else(|| other.to_owned(), of));
        format!("{a}·{b}")
    };
    Product {
        names: factors(&|element| stage.name(element)),
        numbers: factors(&number),
        moment: term.moment,
        step: term.step,
        sum: stage.shown(term.moment, term.sum),
    }
}

/// Parts with plus signs between, in at most so many characters as far as that goes: of more, the first, those around the one at
/// `centre`, and the last.
pub fn joined(parts: &[&str], centre: usize, width: usize) -> String {
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
    // The first and the last, then what is nearest to the centre, as long as it fits.
    let mut chosen = vec![false; parts.len()];
    let centre = centre.min(parts.len() - 1);
    let near = (0..parts.len()).flat_map(|far| [centre.checked_sub(far), centre.checked_add(far)]).flatten();
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
    fn long_sums_keep_their_ends_and_what_is_looked_at() {
        let parts: Vec<String> = (0..20).map(|at| format!("p{at:02}")).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        assert_eq!(joined(&parts[..3], 0, 15), "p00 + p01 + p02");
        assert_eq!(joined(&parts, 10, 40), "p00 + … + p09 + p10 + p11 + … + p19");
        assert_eq!(joined(&parts, 0, 40), "p00 + p01 + p02 + p03 + p04 + … + p19");
        assert_eq!(joined(&parts, 20, 30), "p00 + … + p17 + p18 + p19");
        assert!((0..40).all(|width| joined(&parts, 7, width).chars().count() <= width.max(1)));
    }
}
