//! The parser of PTX: from text to the syntax tree.
//!
//! It reads the PTX of NVRTC, nvcc, clang, Numba, Triton and Tegula's own printer, ISA 6.0 to 9.x.
//! Directives that change no result, such as debug sections and register limits, are skipped.
//! The time is linear in the length of the text, and the nesting depth is limited.
//! Source: PTX ISA 9.0, "Syntax" and "Directives".

mod constant;
mod cursor;
mod declaration;
mod function;
mod initial;
mod statement;
mod token;

use crate::ast::Module;
use cursor::Cursor;
use token::Kind;

/// A syntax error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// Line in the text, from 1.
    pub line: u32,
    /// Column, from 1, in characters.
    pub column: u32,
    /// What was expected, and what was found.
    pub message: String,
}

type Result<T> = std::result::Result<T, ParseError>;

/// Parses the text of a module.
///
/// # Errors
/// The first syntax error, with its line and column.
pub fn module(text: &str) -> Result<Module> {
    let mut cursor = Cursor::new(text);
    let mut module = Module::default();
    if !(cursor.is(Kind::Dotted) && cursor.token().text == "version") {
        return Err(cursor.unexpected(".version, the first directive of PTX"));
    }
    while !cursor.is(Kind::End) {
        cursor.directive(&mut module)?;
    }
    module.files = cursor.files;
    Ok(module)
}

impl Cursor<'_> {
    /// A directive at module scope.
    fn directive(&mut self, module: &mut Module) -> Result<()> {
        let start = self.token();
        if start.kind != Kind::Dotted {
            return Err(self.unexpected("a directive such as .entry"));
        }
        match start.text {
            "version" => {
                self.advance();
                module.version = self.version()?;
            }
            "target" => {
                self.advance();
                module.target = self.word("a target such as sm_80")?.into();
                while self.eat(",") {
                    self.word("a target such as debug")?;
                }
            }
            "address_size" => {
                self.advance();
                let number = self.token();
                match self.unsigned("64")? {
                    64 => {}
                    bits => {
                        let message = format!("addresses of {bits} bits are not supported; compile for 64 bits");
                        return Err(self.error_at(number, message));
                    }
                }
            }
            "file" => {
                self.advance();
                self.file()?;
            }
            "loc" => {
                self.advance();
                self.loc()?;
            }
            "section" => {
                self.advance();
                if self.eat_dotted().is_none() {
                    self.word("the name of a section")?;
                }
                self.skip_brackets("{", "}")?;
            }
            "pragma" => self.skip_to_semicolon()?,
            "alias" => {
                self.advance();
                let alias = self.word("the name of a function")?.into();
                self.expect(",")?;
                let function = self.word("the name of a function")?.into();
                self.expect(";")?;
                module.aliases.push((alias, function));
            }
            _ => {
                let external = self.linkage();
                match self.token().text {
                    text @ ("entry" | "func") if self.is(Kind::Dotted) => {
                        self.advance();
                        module.functions.push(self.function(text == "entry")?);
                    }
                    _ => module.variables.extend(self.variables(external)?),
                }
            }
        }
        Ok(())
    }

    /// `major.minor`
    fn version(&mut self) -> Result<(u32, u32)> {
        let version = if self.is(Kind::Number) { self.token().text.split_once('.') } else { None };
        let version = version.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let version = version.ok_or_else(|| self.unexpected("a version such as 8.5"))?;
        self.advance();
        Ok(version)
    }

    /// `number "name" [, time, size]`
    fn file(&mut self) -> Result<()> {
        let number = self.unsigned("a file number")?;
        let name = self.quoted()?;
        while self.eat(",") {
            self.integer_constant("a time or a size")?;
        }
        self.files.push((number, name));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::{Function, Statement};

    const CONSTRUCTS: &str = include_str!("../tests/ptx/constructs.ptx");

    fn statements(function: &Function) -> &[Statement] {
        function.body.as_deref().unwrap_or(&[])
    }

    #[test]
    fn module_of_every_construct_is_parsed() {
        let module = module(CONSTRUCTS).unwrap();
        assert_eq!((module.version, module.target.as_str()), ((8, 5), "sm_90a"));
        assert_eq!(module.files, [(1, "dir\\a.cu".to_string()), (2, "c.cuh".to_string())]);
        assert_eq!(module.aliases, [("also".to_string(), "twice".to_string())]);
        let names = |names: Vec<&String>| names.into_iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        assert_eq!(
            names(module.variables.iter().map(|variable| &variable.name).collect()),
            "text weights pointer low buffer common managed"
        );
        assert_eq!(
            names(module.functions.iter().map(|function| &function.name).collect()),
            "vprintf also twice kernel last"
        );
        let external = |variable: &&crate::ast::Variable| variable.external;
        assert_eq!(module.variables.iter().filter(external).count(), 1);
        let kernel = &module.functions[3];
        assert_eq!((kernel.entry, kernel.params.len(), kernel.max_block), (true, 2, Some([256, 1, 1])));
        let is_instruction = |statement: &&Statement| matches!(statement, Statement::Instruction(_));
        assert_eq!(statements(kernel).iter().filter(is_instruction).count(), 11);
        assert_eq!(statements(&module.functions[4]).len(), 1);
    }

    #[test]
    fn instructions_know_their_lines() {
        let module =
            module(".version 6.0\n.target sm_70\n.visible .entry k()\n{\n/* two\nlines */ ret;\n@%p bra L;\n}")
                .unwrap();
        let lines: Vec<_> = statements(&module.functions[0])
            .iter()
            .filter_map(|statement| match statement {
                Statement::Instruction(instruction) => Some(instruction.line),
                _ => None,
            })
            .collect();
        assert_eq!((module.functions[0].line, lines), (3, vec![6, 7]));
    }

    #[test]
    fn modules_that_are_malformed_are_rejected_where_they_are() {
        for (text, message) in [
            ("", "line 1, column 1: expected .version, the first directive of PTX, found the end of the text"),
            ("hello", "line 1, column 1: expected .version, the first directive of PTX, found \"hello\""),
            (".version 8", "line 1, column 10: expected a version such as 8.5, found \"8\""),
            (
                ".version 8.0\n.target sm_80\n.entry k() { add.s32 %r1 %r2; }",
                "line 3, column 26: expected \";\" after the instruction, found \"%r2\"",
            ),
            (
                ".version 8.0 .address_size 32",
                "line 1, column 28: addresses of 32 bits are not supported; compile for 64 bits",
            ),
            (".version 8.0\n  .surprise x;", "line 2, column 3: directive .surprise is not supported"),
            (".version 8.0\n.entry k() { é", "line 2, column 14: expected a statement or \"}\", found \"é\""),
            (".version 8.0 \u{1}", "line 1, column 14: expected a directive such as .entry, found \"\\u{1}\""),
            (".version 8.0\n/* é */ .entry k(", "line 2, column 18: expected a state space such as .reg"),
            (
                ".version 8.0 /* no end",
                "line 1, column 14: expected a directive such as .entry, found an unterminated comment or string",
            ),
            (".version 8.0 .section .s {", "line 1, column 27: expected \"}\", found the end of the text"),
            (".version 8.0 .pragma \"a", "line 1, column 22: expected \";\", found an unterminated comment or string"),
        ] {
            assert_eq!(module(text).unwrap_err().to_string(), message, "{text}");
        }
        for start in ["", ".", "5", "\"", ".reg .", ".entry k() {", ".entry k() { @", ".entry k() ."] {
            let error = module(&format!(".version 8.0 {start}{}", "é9".repeat(1000))).unwrap_err();
            let error2 = module(&format!(".version 8.0 {start}{};", "x9".repeat(1000))).unwrap_err();
            assert!(error.message.len() < 160 && error2.message.len() < 160, "{error} {error2}");
        }
    }

    #[test]
    fn every_prefix_is_read_or_rejected() {
        let accepted = (0..CONSTRUCTS.len()).filter(|&end| module(&CONSTRUCTS[..end]).is_ok()).count();
        assert!(accepted < CONSTRUCTS.len() / 10, "{accepted}");
    }

    #[test]
    fn texts_with_one_character_changed_are_read_or_rejected() {
        let mut rejected = 0;
        for at in (0..CONSTRUCTS.len()).step_by(11) {
            for character in ["{", "}", ";", "\"", "(", "[", "-", "0", ".", "%", "/*", "é"] {
                let changed = format!("{}{character}{}", &CONSTRUCTS[..at], &CONSTRUCTS[at + 1..]);
                rejected += usize::from(module(&changed).is_err());
            }
        }
        assert!(rejected > CONSTRUCTS.len() / 3, "{rejected}");
    }
}
