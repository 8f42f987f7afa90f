//! Declarations of variables, parameters and registers.

use crate::ast::{PointerAttribute, ScalarType, StateSpace, Variable};

use super::Result;
use super::cursor::Cursor;
use super::token::Kind;

/// Largest number of extents of an array.
const MAX_DIMS: usize = 16;
/// Largest number of registers of a declaration such as `%r<n>`.
const MAX_REGISTERS: u32 = 1 << 24;

const STATE_SPACES: [(&str, StateSpace); 6] = [
    ("reg", StateSpace::Register),
    ("param", StateSpace::Param),
    ("global", StateSpace::Global),
    ("shared", StateSpace::Shared),
    ("local", StateSpace::Local),
    ("const", StateSpace::Const),
];

fn state_space(word: &str) -> Option<StateSpace> {
    let word = word.split("::").next()?;
    STATE_SPACES.iter().find(|(name, _)| *name == word).map(|&(_, space)| space)
}

impl Cursor<'_> {
    /// Consumes `.extern`, `.visible`, `.weak` and `.common`; returns whether `.extern` is one.
    pub fn linkage(&mut self) -> bool {
        let mut external = false;
        while self.is(Kind::Dotted) && matches!(self.token().text, "extern" | "visible" | "weak" | "common") {
            external |= self.advance().text == "extern";
        }
        external
    }

    /// Parses declarations up to the semicolon: `.reg .b32 a, %r<4>;`.
    pub fn variables(&mut self, external: bool) -> Result<Vec<Variable>> {
        let declared = self.declared(external)?;
        let mut variables = Vec::new();
        loop {
            self.word_ahead()?;
            variables.push(self.declarator(declared.clone())?);
            if !self.eat(",") {
                break;
            }
        }
        self.expect_as(";", " after the declaration")?;
        Ok(variables)
    }

    /// Parses an optional list of parameters in parentheses. Their names may be omitted.
    pub fn parameters(&mut self) -> Result<Vec<Variable>> {
        if !self.eat("(") {
            return Ok(Vec::new());
        }
        self.list_until(")", |cursor| {
            let declared = cursor.declared(false)?;
            cursor.declarator(declared)
        })
    }

    /// Parses a declaration up to its names: state space, type and attributes.
    fn declared(&mut self, external: bool) -> Result<Variable> {
        let start = self.token();
        let (mut space, mut ty, mut vector, mut align, mut pointer) = (None, None, 1, None, None::<PointerAttribute>);
        while self.is(Kind::Dotted) {
            let word = self.token();
            self.advance();
            match word.text {
                "v2" => vector = 2,
                "v4" => vector = 4,
                "ptr" => pointer = Some(PointerAttribute { space: None, align: 4 }),
                "align" => {
                    let number = self.token();
                    let bytes = self.unsigned("an alignment in bytes")?;
                    if !bytes.is_power_of_two() {
                        return Err(self.error_at(number, "an alignment must be a power of two"));
                    }
                    match &mut pointer {
                        Some(pointer) => pointer.align = bytes,
                        None => align = Some(bytes),
                    }
                }
                "attribute" => self.skip_brackets("(", ")")?,
                text => match (state_space(text), ScalarType::from_name(text), &mut pointer) {
                    (Some(target), _, Some(pointer)) => pointer.space = Some(target),
                    (Some(found), _, None) => space = Some(found),
                    (None, Some(found), _) => ty = Some(found),
                    _ => return Err(self.unknown_directive(word)),
                },
            }
        }
        let space = space.ok_or_else(|| self.error_at(start, "expected a state space such as .reg"))?;
        let ty = ty.ok_or_else(|| self.unexpected("a type such as .f32"))?;
        Ok(Variable {
            name: String::new(),
            count: None,
            space,
            ty,
            vector,
            align,
            dims: Vec::new(),
            init: Vec::new(),
            external,
            pointer,
            line: start.line,
        })
    }

    /// Parses an optional name, with its extents and its initial value.
    fn declarator(&mut self, mut variable: Variable) -> Result<Variable> {
        if self.is(Kind::Word) {
            variable.name = self.advance().text.into();
        }
        variable.count = self.count(MAX_REGISTERS)?;
        while self.is_symbol("[") {
            if variable.dims.len() == MAX_DIMS {
                return Err(self.error(format!("an array has at most {MAX_DIMS} extents")));
            }
            self.advance();
            let is_open = variable.dims.is_empty() && self.is_symbol("]");
            let extent = if is_open { 0 } else { self.extent(variable.dims.is_empty())? };
            variable.dims.push(extent);
            self.expect("]")?;
        }
        if self.eat("=") {
            self.initial_value(&mut variable)?;
        }
        Ok(variable)
    }

    /// Parses an optional `<n>`; n is at most `limit`.
    pub fn count(&mut self, limit: u32) -> Result<Option<u32>> {
        if !self.eat("<") {
            return Ok(None);
        }
        let number = self.token();
        let count = self.unsigned("a number of names")?;
        if count > limit {
            return Err(self.error_at(number, format!("{count} names; the limit is {limit}")));
        }
        self.expect(">")?;
        Ok(Some(count))
    }

    /// Parses an extent of an array. Only the outermost extent may be zero.
    fn extent(&mut self, outermost: bool) -> Result<u64> {
        let start = self.token();
        let extent = self.integer_constant("an extent")?;
        let extent = u64::try_from(extent).ok().filter(|&extent| outermost || extent > 0);
        extent.ok_or_else(|| self.error_at(start, "an extent must be positive"))
    }

    fn word_ahead(&self) -> Result<()> {
        if self.is(Kind::Word) { Ok(()) } else { Err(self.unexpected("the name of a variable")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Variable {
        let mut variables = Cursor::new(text).variables(false).unwrap();
        assert_eq!(variables.len(), 1, "{text}");
        variables.remove(0)
    }

    #[test]
    fn declaration_of_several_names_gives_each_its_own_extents() {
        let variables =
            Cursor::new(".shared .align 8 .v2 .f32 a, b[WARP_SZ / 2][3], %c<44>;").variables(false).unwrap();
        let [a, b, c] = &variables[..] else { panic!("{variables:?}") };
        assert_eq!(
            (a.name.as_str(), a.space, a.ty, a.vector, a.align),
            ("a", StateSpace::Shared, ScalarType::F32, 2, Some(8))
        );
        assert_eq!((b.dims.as_slice(), b.bytes(), b.count), ([16, 3].as_slice(), 384, None));
        assert_eq!((c.name.as_str(), c.count, c.dims.len()), ("%c", Some(44), 0));
    }

    #[test]
    fn parameters_keep_their_pointer_attributes() {
        let text = "(.param .u64 .ptr .global .align 16 a, .param .u64 .ptr b, .param .align 8 .b8 c[24], .param .b64)";
        let parameters = Cursor::new(text).parameters().unwrap();
        let pointer = |at: usize| parameters[at].pointer.map(|pointer| (pointer.space, pointer.align));
        assert_eq!((pointer(0), parameters[0].align), (Some((Some(StateSpace::Global), 16)), None));
        assert_eq!((pointer(1), pointer(2)), (Some((None, 4)), None));
        assert_eq!((parameters[2].bytes(), parameters[2].alignment()), (24, 8));
        assert_eq!(parameters[3].name, "");
    }

    #[test]
    fn attributes_that_change_nothing_are_skipped() {
        assert_eq!(one(".global .attribute(.unified(19, 95)) .attribute(.managed) .u32 a;").name, "a");
        assert_eq!(one(".shared::cta .b8 a[];").space, StateSpace::Shared);
    }

    #[test]
    fn declarations_that_are_malformed_are_rejected() {
        for (text, message) in [
            (".b32 a;", "expected a state space such as .reg"),
            (".global a;", "expected a type such as .f32, found \"a\""),
            (".global .texref a;", "directive .texref is not supported"),
            (".global .align 3 .b8 a;", "an alignment must be a power of two"),
            (".global .b8 a[2][];", "expected a number, found \"]\""),
            (".global .b8 a[-1];", "an extent must be positive"),
            (".global .b8 a[2][0];", "an extent must be positive"),
            (".global .b8 a[1.5];", "an extent must be an integer"),
            (".reg .b32 %r<99999999>;", "99999999 names; the limit is 16777216"),
            (".reg .b32 ;", "expected the name of a variable, found \";\""),
            (".reg .b32 a b;", "expected \";\" after the declaration, found \"b\""),
        ] {
            assert_eq!(Cursor::new(text).variables(false).unwrap_err().message, message, "{text}");
        }
        let nested = format!(".global .b8 a{};", "[1]".repeat(10_000));
        assert!(Cursor::new(&nested).variables(false).is_err());
    }
}
