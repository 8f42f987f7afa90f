//! Statements of a function: labels, directives, instructions and their operands.

use crate::ast::{Guard, Instruction, Loc, Operand, Statement};

use super::Result;
use super::constant::Constant;
use super::cursor::Cursor;
use super::token::{Kind, Token};

/// Largest depth of nested scopes.
const MAX_DEPTH: u32 = 64;
/// Largest n of `.branchtargets name<n>`, which lists n labels.
const MAX_TARGETS: u32 = 256;

impl Cursor<'_> {
    /// Parses a scope: `{ … }`.
    pub fn block(&mut self, depth: u32) -> Result<Vec<Statement>> {
        if depth >= MAX_DEPTH {
            return Err(self.error(format!("scopes are nested deeper than {MAX_DEPTH}")));
        }
        self.expect("{")?;
        let mut statements = Vec::new();
        while !self.eat("}") {
            self.statement(depth, &mut statements)?;
        }
        Ok(statements)
    }

    fn statement(&mut self, depth: u32, to: &mut Vec<Statement>) -> Result<()> {
        let start = self.token();
        match (start.kind, start.text) {
            (Kind::Symbol, "{") => to.push(Statement::Block(self.block(depth + 1)?)),
            // An empty statement: inline assembly can end with a second semicolon.
            (Kind::Symbol, ";") => {
                self.advance();
            }
            (Kind::Symbol, "@") => {
                self.advance();
                let negated = self.eat("!");
                let register = self.word("a predicate register")?.into();
                let opcode = self.token();
                self.word("an instruction")?;
                to.push(self.instruction(Some(Guard { register, negated }), start.line, opcode)?);
            }
            (Kind::Dotted, _) => self.directive_of_function(to)?,
            (Kind::Word, _) => {
                self.advance();
                let statement = if self.eat(":") {
                    self.labeled(start.text.into())?
                } else {
                    self.instruction(None, start.line, start)?
                };
                to.push(statement);
            }
            _ => return Err(self.unexpected("a statement or \"}\"")),
        }
        Ok(())
    }

    fn directive_of_function(&mut self, to: &mut Vec<Statement>) -> Result<()> {
        match self.token().text {
            "loc" => {
                self.advance();
                to.push(Statement::Loc(self.loc()?));
            }
            "pragma" => self.skip_to_semicolon()?,
            "file" => {
                self.advance();
                self.file()?;
            }
            _ => {
                let external = self.linkage();
                to.extend(self.variables(external)?.into_iter().map(Statement::Variable));
            }
        }
        Ok(())
    }

    /// `file line column [, function_name label[+n]] [, inlined_at file line column]`
    pub fn loc(&mut self) -> Result<Loc> {
        let (file, line, column) = self.source_position()?;
        let mut inlined_at = None;
        while self.eat(",") {
            match self.token().text {
                "function_name" => {
                    self.advance();
                    self.word("a label")?;
                    self.offset()?;
                }
                "inlined_at" => {
                    self.advance();
                    inlined_at = Some(self.source_position()?);
                }
                _ => return Err(self.unexpected("function_name or inlined_at")),
            }
        }
        Ok(Loc { file, line, column, inlined_at })
    }

    fn source_position(&mut self) -> Result<(u32, u32, u32)> {
        Ok((self.unsigned("a file number")?, self.unsigned("a line number")?, self.unsigned("a column number")?))
    }

    /// Parses the directive after `name:`, if any. Without a directive, the name is a label.
    fn labeled(&mut self, name: String) -> Result<Statement> {
        let directive = if self.is(Kind::Dotted) { self.token().text } else { "" };
        match directive {
            "branchtargets" | "calltargets" => {
                self.advance();
                let mut targets = Vec::new();
                loop {
                    let target = self.word("a label or a function")?;
                    match self.count(MAX_TARGETS)? {
                        Some(count) => targets.extend((0..count).map(|number| format!("{target}{number}"))),
                        None => targets.push(target.into()),
                    }
                    if !self.eat(",") {
                        break;
                    }
                }
                self.expect(";")?;
                Ok(Statement::Targets { name, targets })
            }
            "callprototype" => {
                self.advance();
                let returns = self.parameters()?;
                self.word("\"_\"")?;
                let params = self.parameters()?;
                // `.noreturn` and the like.
                self.skip_to_semicolon()?;
                Ok(Statement::Prototype { name, returns, params })
            }
            _ => Ok(Statement::Label(name)),
        }
    }

    /// Parses the modifiers and operands of an instruction, after its opcode.
    fn instruction(&mut self, guard: Option<Guard>, line: u32, opcode: Token<'_>) -> Result<Statement> {
        if !opcode.text.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return Err(self.unexpected_at(opcode, "an instruction"));
        }
        let mut modifiers = Vec::new();
        while let Some(modifier) = self.eat_dotted() {
            modifiers.push(modifier.into());
        }
        let mut operands = Vec::new();
        if !self.is_symbol(";") && !self.is_symbol("}") {
            operands.push(self.operand(opcode.text)?);
            while self.eat(",") {
                operands.push(self.operand(opcode.text)?);
            }
        }
        self.expect_as(";", " after the instruction")?;
        Ok(Statement::Instruction(Instruction { guard, opcode: opcode.text.into(), modifiers, operands, line }))
    }

    /// Parses an operand, or a pair of operands such as `p|q`.
    fn operand(&mut self, opcode: &str) -> Result<Operand> {
        let first = if self.eat("[") {
            self.address()?
        } else if opcode == "call" && self.eat("(") {
            Operand::List(self.list_until(")", Self::scalar)?)
        } else {
            self.vector_or_scalar()?
        };
        if !self.eat("|") {
            return Ok(first);
        }
        let second = Operand::Name(self.name()?);
        Ok(Operand::Pair(Box::new(first), Box::new(second)))
    }

    fn vector_or_scalar(&mut self) -> Result<Operand> {
        if self.eat("{") { Ok(Operand::Vector(self.list_until("}", Self::scalar)?)) } else { self.scalar() }
    }

    /// Parses a name, a name plus an offset, `!p`, or a constant.
    fn scalar(&mut self) -> Result<Operand> {
        if self.is_name() {
            let name = self.name()?;
            let has_offset = self.is_symbol("+") || self.is_symbol("-");
            return Ok(if has_offset { Operand::NameOffset(name, self.offset()?) } else { Operand::Name(name) });
        }
        if self.is_symbol("!") && self.following().kind == Kind::Word {
            self.advance();
            return Ok(Operand::Negated(self.name()?));
        }
        if !self.begins_constant() {
            return Err(self.unexpected("an operand"));
        }
        Ok(match self.constant()? {
            Constant::Signed(value) => Operand::Integer(value),
            Constant::Unsigned(value) => Operand::Integer(value as i64),
            Constant::F32(bits) => Operand::F32(bits),
            Constant::F64(value) => Operand::F64(value.to_bits()),
        })
    }

    /// Parses a name with an optional component: `%r1`, `%tid.x`, `v.y`.
    fn name(&mut self) -> Result<String> {
        let word = self.word("an operand")?;
        Ok(match self.eat_dotted() {
            Some(component) => format!("{word}.{component}"),
            None => word.into(),
        })
    }

    /// Parses an address after its `[`: a name, a name plus an offset, or a number; then optional
    /// coordinates.
    fn address(&mut self) -> Result<Operand> {
        let start = self.token();
        let first = self.scalar()?;
        if self.is_symbol(",") {
            let mut parts = vec![first];
            while self.eat(",") {
                parts.push(self.vector_or_scalar()?);
            }
            self.expect_as("]", " after the coordinates")?;
            return Ok(Operand::Tensor(parts));
        }
        self.expect_as("]", " after the address")?;
        match first {
            Operand::Name(base) => Ok(Operand::Address { base: Some(base), offset: 0 }),
            Operand::NameOffset(base, offset) => Ok(Operand::Address { base: Some(base), offset }),
            Operand::Integer(offset) => Ok(Operand::Address { base: None, offset }),
            _ => Err(self.error_at(start, "an address must be a name, a name plus an integer, or an integer")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements(text: &str) -> Result<Vec<Statement>> {
        Cursor::new(&format!("{{{text}}}")).block(0)
    }

    fn instruction(text: &str) -> Instruction {
        match statements(text).unwrap().pop() {
            Some(Statement::Instruction(instruction)) => instruction,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn instructions_are_printed_as_they_are_written() {
        for text in [
            "ret",
            "@!%p1 bra.uni $L__BB0_2",
            "ld.global.L1::no_allocate.L2::128B.v2.f32 {%f1, _}, [%rd1+-8]",
            "ld.shared::cta.b32 %r1, [16]",
            "mov.u64 %rd1, sym+8",
            "setp.lt.and.s32 %p1|%p2, %r1, -5, !%p3",
            "shfl.sync.bfly.b32 %r1|%p1, %r2, 16, 31, -1",
            "call.uni (r0), f, (%r1, 5, 0f3F800000)",
            "call (r0), %rd1, (), prototype",
            "call f",
            "vadd.s32.u32.s32 %r1, %r2.b0, %tid.x",
            "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd1, %fd2}, {%fd3}, {%fd4}, {%fd5, %fd6}",
            "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}|%p1, [texture, {%f5, %f6}]",
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4]",
            "mov.f64 %fd1, 0d3FF8000000000000",
        ] {
            assert_eq!(instruction(&format!("{text};")).to_string(), text);
        }
    }

    #[test]
    fn space_between_the_parts_of_an_instruction_changes_nothing() {
        let parsed = instruction("@ ! %p1\nld .global\t.f32 %f1 , [ %rd1 + 4 * 2 ] ;");
        assert_eq!(parsed.to_string(), "@!%p1 ld.global.f32 %f1, [%rd1+8]");
        assert_eq!(parsed.line, 1);
    }

    #[test]
    fn constants_in_operands_are_evaluated() {
        let operands = instruction("x 1 + 2, (3 - 4) * 2, ~0U, !1, WARP_SZ - 1, 1.5, -0x10, {2 * 3};").operands;
        let integers = [3, -2, -1, 0, 31].map(Operand::Integer);
        assert_eq!(operands[..5], integers);
        assert_eq!(operands[5..7], [Operand::F64(1.5f64.to_bits()), Operand::Integer(-16)]);
        assert_eq!(operands[7], Operand::Vector(vec![Operand::Integer(6)]));
    }

    #[test]
    fn labels_scopes_and_lists_of_targets_are_read() {
        let parsed = statements(
            "$L_1: a: { .reg .b32 t; } t: .branchtargets $L_1, l<2>; c: .calltargets f;
            p: .callprototype (.param .b32 _) _ (.param .b64 _, .param .b64 _) .noreturn; ;",
        )
        .unwrap();
        let [Statement::Label(_), Statement::Label(a), Statement::Block(block), targets, calls, prototype] =
            &parsed[..]
        else {
            panic!("{parsed:?}");
        };
        assert_eq!((a.as_str(), block.len()), ("a", 1));
        let list = |name: &str, targets: &[&str]| Statement::Targets {
            name: name.into(),
            targets: targets.iter().map(|target| target.to_string()).collect(),
        };
        assert_eq!((targets, calls), (&list("t", &["$L_1", "l0", "l1"]), &list("c", &["f"])));
        let Statement::Prototype { name, returns, params } = prototype else { panic!("{prototype:?}") };
        assert_eq!((name.as_str(), returns.len(), params.len()), ("p", 1, 2));
    }

    #[test]
    fn source_lines_keep_the_call_that_was_inlined() {
        let parsed = statements(".loc 1 9 5, function_name $L_info+4, inlined_at 2 12 3 .loc 1 0 0").unwrap();
        let loc = Loc { file: 1, line: 9, column: 5, inlined_at: Some((2, 12, 3)) };
        assert_eq!(
            parsed,
            [Statement::Loc(loc), Statement::Loc(Loc { file: 1, line: 0, column: 0, inlined_at: None })]
        );
    }

    #[test]
    fn statements_that_are_malformed_are_rejected_where_they_are() {
        for (text, column, message) in [
            ("add.s32 %r1 %r2;", 14, "expected \";\" after the instruction, found \"%r2\""),
            ("add.s32 %r1, ;", 15, "expected an operand, found \";\""),
            ("ret", 5, "expected \";\" after the instruction, found \"}\""),
            ("ld.b32 %r1, [smem+%r2];", 20, "expected a number, found \"%r2\""),
            ("ld.b32 %r1, [1.5];", 15, "an address must be a name, a name plus an integer, or an integer"),
            ("ld.b32 %r1, [%rd1;", 19, "expected \"]\" after the address, found \";\""),
            ("mov.b64 %rd1, {%r1 %r2};", 21, "expected \",\" or \"}\", found \"%r2\""),
            ("mov.b64 %rd1, {{%r1}};", 17, "expected an operand, found \"{\""),
            ("%r1 = 5;", 2, "expected an instruction, found \"%r1\""),
            ("@5 ret;", 3, "expected a predicate register, found \"5\""),
            (".maxreg 5", 2, "directive .maxreg is not supported"),
            (".loc 1 2", 10, "expected a column number, found \"}\""),
            (".loc 1 2 3, at 4", 14, "expected function_name or inlined_at, found \"at\""),
            ("5;", 2, "expected a statement or \"}\", found \"5\""),
        ] {
            let error = statements(text).unwrap_err();
            assert_eq!((error.column, error.message.as_str()), (column, message), "{text}");
        }
    }

    #[test]
    fn scopes_nested_deeply_are_rejected() {
        assert!(statements(&format!("{}{}", "{".repeat(63), "}".repeat(63))).is_ok());
        let error = statements(&"{".repeat(100_000)).unwrap_err();
        assert_eq!(error.message, "scopes are nested deeper than 64");
    }
}
