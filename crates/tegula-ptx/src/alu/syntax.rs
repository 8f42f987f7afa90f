//! The syntax of arithmetic instructions: which modifiers go together.
//!
//! A family of instructions lists its [`Form`]s as the PTX ISA does, such as
//! `("add sub", "rnd? ftz? sat? f32")`. Modifiers are accepted in any order, as the assembler does;
//! types are taken in order.

use super::Arithmetic;

/// A form of some instructions.
pub(super) struct Form {
    /// The opcodes.
    opcodes: &'static str,
    /// The places of modifiers: alternatives separated by `|`, or the name of a [group](GROUPS).
    /// A place that ends with `?` may stay empty.
    modifiers: &'static str,
    /// Makes the instruction from modifiers that fit.
    build: fn(&Words) -> Result<Arithmetic, String>,
}

impl Form {
    pub const fn new(
        opcodes: &'static str,
        modifiers: &'static str,
        build: fn(&Words) -> Result<Arithmetic, String>,
    ) -> Self {
        Self { opcodes, modifiers, build }
    }

    /// Whether each modifier has a place, and each place that needs one a modifier.
    fn fits(&self, words: &Words) -> bool {
        let mut places: Vec<Option<&str>> = self.modifiers.split(' ').map(Some).collect();
        let all_placed = words.modifiers.iter().all(|word| {
            let free =
                places.iter_mut().find(|place| place.is_some_and(|place| alternatives(place).any(|a| a == word)));
            free.map(|place| *place = None).is_some()
        });
        all_placed && places.iter().flatten().all(|place| place.ends_with('?'))
    }
}

/// Names of alternatives that are used often.
const GROUPS: [(&str, &str); 8] = [
    ("rnd", "rn|rz|rm|rp"),
    ("irnd", "rni|rzi|rmi|rpi"),
    ("int", "u16|u32|u64|s16|s32|s64"),
    ("any", "b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64"),
    ("half", "f16|f16x2|bf16|bf16x2"),
    ("compare", "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan"),
    ("boolean", "and|or|xor"),
    ("scalar", "u8|u16|u32|u64|s8|s16|s32|s64|f16|bf16|f32|f64"),
];

/// The modifiers that may stand in a place.
fn alternatives(place: &'static str) -> impl Iterator<Item = &'static str> {
    let name = place.trim_end_matches('?');
    let group = GROUPS.iter().find(|(group, _)| *group == name);
    group.map_or(name, |(_, alternatives)| alternatives).split('|')
}

/// An instruction as written.
pub(super) struct Words<'a> {
    pub opcode: &'a str,
    pub modifiers: &'a [String],
    pub sources: usize,
}

impl Words<'_> {
    /// Whether a modifier is present.
    pub fn has(&self, word: &str) -> bool {
        self.modifiers.iter().any(|modifier| modifier == word)
    }

    /// The value of the first modifier that a table has.
    pub fn pick<T: Copy>(&self, table: &[(&str, T)]) -> Option<T> {
        self.pick_all(table).next()
    }

    /// The values of the modifiers that a table has, in order.
    pub fn pick_all<T: Copy>(&self, table: &[(&str, T)]) -> impl Iterator<Item = T> {
        let value = |word: &String| table.iter().find(|(name, _)| name == word).map(|&(_, value)| value);
        self.modifiers.iter().filter_map(value)
    }

    /// The reason why these modifiers are not supported.
    pub fn unsupported(&self) -> String {
        format!("unsupported combination of modifiers \".{}\"", self.modifiers.join("."))
    }
}

/// Decodes an instruction by the form that it fits.
///
/// `None` if no form has the opcode.
pub(super) fn decode(families: &[&'static [Form]], words: &Words) -> Option<Result<Arithmetic, String>> {
    let of_opcode = |form: &&'static Form| form.opcodes.split(' ').any(|opcode| opcode == words.opcode);
    let forms: Vec<&'static Form> = families.iter().copied().flatten().filter(of_opcode).collect();
    if let Some(form) = forms.iter().find(|form| form.fits(words)) {
        return Some((form.build)(words));
    }
    if forms.is_empty() || words.opcode == "mov" {
        return None;
    }
    let known =
        |word: &str| forms.iter().flat_map(|form| form.modifiers.split(' ')).flat_map(alternatives).any(|a| a == word);
    let unknown = words.modifiers.iter().find(|word| !known(word));
    Some(Err(unknown.map_or_else(|| words.unsupported(), |word| format!("unsupported modifier \".{word}\""))))
}

/// Every spelling of every form, as opcode and modifiers: for tests of decoding.
#[cfg(test)]
pub(super) fn spellings(families: &[&'static [Form]]) -> Vec<(&'static str, Vec<String>)> {
    let mut spellings = Vec::new();
    for form in families.iter().copied().flatten() {
        for opcode in form.opcodes.split(' ') {
            let mut partial: Vec<Vec<String>> = vec![vec![]];
            for place in form.modifiers.split(' ') {
                let mut longer = if place.ends_with('?') { partial.clone() } else { vec![] };
                for alternative in alternatives(place) {
                    longer.extend(partial.iter().map(|words| [words.as_slice(), &[alternative.into()]].concat()));
                }
                partial = longer;
            }
            spellings.extend(partial.into_iter().map(|words| (opcode, words)));
        }
    }
    spellings
}
