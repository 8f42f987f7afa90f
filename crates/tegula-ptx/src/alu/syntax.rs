//! The syntax of arithmetic instructions: the valid combinations of modifiers.
//!
//! A family of instructions lists its [`Form`]s as the PTX ISA does, such as
//! `("add sub", "rnd? ftz? sat? f32")`. Like the assembler, the decoder accepts modifiers in any
//! order. Only the order of types is significant.

use super::Arithmetic;

/// A form of one or more instructions: opcodes with the same modifiers.
pub(super) struct Form {
    /// The opcodes, separated by spaces.
    opcodes: &'static str,
    /// The modifiers, separated by spaces. Each is a list of alternatives separated by `|`, or the
    /// name of a [group](GROUPS). A modifier that ends with `?` is optional.
    modifiers: &'static str,
    /// Builds the instruction from matching modifiers.
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

    /// Whether the form has each given modifier, and each required modifier is given.
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

/// Named lists of alternatives.
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

/// The alternatives of one modifier of a form.
fn alternatives(place: &'static str) -> impl Iterator<Item = &'static str> {
    let name = place.trim_end_matches('?');
    let group = GROUPS.iter().find(|(group, _)| *group == name);
    group.map_or(name, |(_, alternatives)| alternatives).split('|')
}

/// An instruction to decode.
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

    /// The value of the first modifier that is in the table.
    pub fn pick<T: Copy>(&self, table: &[(&str, T)]) -> Option<T> {
        self.pick_all(table).next()
    }

    /// The values of all modifiers that are in the table, in order.
    pub fn pick_all<T: Copy>(&self, table: &[(&str, T)]) -> impl Iterator<Item = T> {
        let value = |word: &String| table.iter().find(|(name, _)| name == word).map(|&(_, value)| value);
        self.modifiers.iter().filter_map(value)
    }

    /// The error message for an unsupported combination of modifiers.
    pub fn unsupported(&self) -> String {
        format!("unsupported combination of modifiers \".{}\"", self.modifiers.join("."))
    }
}

/// Decodes an instruction by its matching form.
///
/// `None` if no form has the opcode; an error message if none has the modifiers.
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

/// Every combination of modifiers of every form, as opcode and modifiers.
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

#[cfg(test)]
mod tests {
    use super::super::compiled::COMPILED;
    use super::super::testing::{Random, decode};
    use super::super::{Arithmetic, FORMS, Lanes};
    use super::spellings;

    #[test]
    fn spellings_of_all_forms_evaluate() {
        // Operands at the ends of all types; evaluation of any of them must not panic.
        let edges =
            [0, 1, 0x7f, 0x80, 0x7fff, 0x8000, 0x7c01, 0x7fff_ffff, 0x8000_0000, 0x7f80_0001, u64::MAX, 1 << 63];
        let mut random = Random(3);
        let mut decoded = 0;
        // A third of them, for time.
        for (opcode, modifiers) in spellings(&FORMS).into_iter().step_by(3) {
            let attempts = (1..=5).filter_map(|sources| match Arithmetic::decode(opcode, &modifiers, sources) {
                Some(Ok(instruction)) => Some((instruction, sources)),
                Some(Err(reason)) => {
                    assert!(!reason.is_empty());
                    None
                }
                None => panic!("{opcode} {modifiers:?} is unknown"),
            });
            for (instruction, sources) in attempts.collect::<Vec<_>>() {
                let signature = instruction.signature();
                assert_eq!(signature.sources.len(), sources);
                let mut operand = || edges[random.next() as usize % edges.len()] ^ (random.next() % 2);
                let lanes: Vec<Lanes> = (0..sources).map(|_| std::array::from_fn(|_| operand())).collect();
                let mut values = [[u64::MAX; 32]; 2];
                instruction.eval(&lanes.iter().collect::<Vec<_>>(), 0x5555_5555, u32::MAX, &mut values);
                for (values, ty) in values.iter().zip(&signature.destinations) {
                    let limit = if *ty == crate::ast::ScalarType::Pred { 1 } else { u64::MAX >> (64 - 8 * ty.size()) };
                    assert!(values.iter().all(|&value| value <= limit), "{opcode} {modifiers:?}: {values:x?}");
                }
                decoded += 1;
            }
        }
        assert!(decoded > 1500, "{decoded}");
    }

    #[test]
    fn spellings_of_compilers_are_decoded() {
        for &(sources, spellings) in COMPILED {
            for spelling in spellings.split_whitespace() {
                match decode(spelling, sources) {
                    Some(Ok(_)) => {}
                    other => panic!("{spelling}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn other_opcodes_are_not_arithmetic() {
        for spelling in ["ld.global.u32", "bra.uni", "cvta.to.global.u64", "vadd.u32.u32.u32", "mov.b128", "mov.v2.b32"]
        {
            assert!(decode(spelling, 2).is_none(), "{spelling}");
        }
        assert!(decode("mov.pred", 1).is_some());
    }

    #[test]
    fn leftover_modifiers_are_named() {
        let reason = |spelling, sources| decode(spelling, sources).unwrap().unwrap_err();
        assert_eq!(reason("add.foo.f32", 2), "unsupported modifier \".foo\"");
        assert_eq!(reason("add.sat.u32", 2), "unsupported combination of modifiers \".sat.u32\"");
        assert_eq!(reason("add.rn.rz.f32", 2), "unsupported combination of modifiers \".rn.rz.f32\"");
        assert_eq!(reason("fma.f32", 3), "unsupported combination of modifiers \".f32\"");
        assert_eq!(reason("mul.s32", 2), "unsupported combination of modifiers \".s32\"");
        assert_eq!(reason("add.f32", 3), "2 source operands are expected, not 3");
        assert_eq!(reason("setp.lt.and.s32", 2), "3 source operands are expected, not 2");
    }

    #[test]
    fn modifiers_are_taken_in_any_order() {
        for spelling in ["add.rz.f32.bf16.sat", "cvt.f64.bf16.rp", "max.s16x2.relu", "prmt.f4e.b32", "add.ftz.rn.f32"] {
            let sources = if spelling.starts_with("cvt") { 1 } else { 2 + usize::from(spelling.starts_with("prmt")) };
            assert!(decode(spelling, sources).unwrap().is_ok(), "{spelling}");
        }
    }
}
