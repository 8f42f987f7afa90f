//! Statements and operands of a function.

use crate::ast::{Guard, Instruction, Loc, Operand, Statement};

use super::constant::Constant;
use super::cursor::Cursor;
use super::{Linkage, Result};

/// Largest depth of nested scopes.
const MAX_DEPTH: u32 = 64;

impl Cursor<'_> {
    /// The body of a function.
    pub fn body(&mut self) -> Result<Vec<Statement>> {
        self.block(0)
    }

    fn block(&mut self, depth: u32) -> Result<Vec<Statement>> {
        if depth > MAX_DEPTH {
            return Err(self.error(&format!("scopes are nested deeper than {MAX_DEPTH}")));
        }
        self.expect("{")?;
        let mut statements = Vec::new();
        while !self.eat("}") {
            self.statement(depth, &mut statements)?;
        }
        Ok(statements)
    }

    fn statement(&mut self, depth: u32, to: &mut Vec<Statement>) -> Result<()> {
        match self.peek() {
            Some(b'{') => {
                let block = self.block(depth + 1)?;
                to.push(Statement::Block(block));
            }
            Some(b'.') => self.directive_in_function(to)?,
            Some(b';') => self.bump(),
            Some(b'@') => {
                let guard = self.guard()?;
                let instruction = self.instruction(Some(guard))?;
                to.push(Statement::Instruction(instruction));
            }
            _ => {
                let start = self.position();
                let word = self.word()?;
                if self.peek() == Some(b':') && self.eat(":") {
                    self.label(word.to_string(), to)?;
                } else {
                    self.reset(start);
                    let instruction = self.instruction(None)?;
                    to.push(Statement::Instruction(instruction));
                }
            }
        }
        Ok(())
    }

    fn directive_in_function(&mut self, to: &mut Vec<Statement>) -> Result<()> {
        let start = self.position();
        self.expect(".")?;
        match self.word()? {
            "loc" => {
                let loc = self.loc()?;
                to.push(Statement::Loc(loc));
            }
            "pragma" => self.skip_to_semicolon()?,
            "file" => self.skip_file()?,
            "maxnreg" | "minnctapersm" => {
                self.integer()?;
            }
            _ => {
                self.reset(start);
                let external = self.eat_linkage()?;
                let variables = self.variables(Linkage { external })?;
                to.extend(variables.into_iter().map(Statement::Variable));
            }
        }
        Ok(())
    }

    /// `.extern` and its like before a declaration; returns whether it is external.
    fn eat_linkage(&mut self) -> Result<bool> {
        let mut external = false;
        loop {
            let start = self.position();
            match if self.eat(".") { self.word()? } else { "" } {
                "extern" => external = true,
                "visible" | "weak" => {}
                _ => {
                    self.reset(start);
                    return Ok(external);
                }
            }
        }
    }

    fn skip_file(&mut self) -> Result<()> {
        self.integer()?;
        self.string()?;
        while self.eat(",") {
            self.integer()?;
        }
        Ok(())
    }

    /// `.loc file line column [, function_name label, inlined_at file line column]`, after the word.
    pub fn loc(&mut self) -> Result<Loc> {
        let place = |cursor: &mut Self| -> Result<(u32, u32, u32)> {
            Ok((cursor.integer()? as u32, cursor.integer()? as u32, cursor.integer()? as u32))
        };
        let (file, line, column) = place(self)?;
        let mut inlined_at = None;
        while self.eat(",") {
            match self.word()? {
                "function_name" => {
                    self.word()?;
                    if self.eat("+") {
                        self.integer()?;
                    }
                }
                "inlined_at" => inlined_at = Some(place(self)?),
                other => return Err(self.error(&format!("{other} in .loc is not supported"))),
            }
        }
        Ok(Loc { file, line, column, inlined_at })
    }

    /// What follows `name:`.
    fn label(&mut self, name: String, to: &mut Vec<Statement>) -> Result<()> {
        let start = self.position();
        let word = if self.eat(".") { self.word()? } else { "" };
        match word {
            "branchtargets" | "calltargets" => {
                let mut targets = Vec::new();
                loop {
                    targets.push(self.word()?.to_string());
                    if !self.eat(",") {
                        break;
                    }
                }
                self.expect(";")?;
                to.push(Statement::Targets { name, targets });
            }
            "callprototype" => {
                let returns = if self.peek() == Some(b'(') { self.parameters()? } else { Vec::new() };
                self.word()?;
                let params = if self.peek() == Some(b'(') { self.parameters()? } else { Vec::new() };
                self.skip_to_semicolon()?;
                to.push(Statement::Prototype { name, returns, params });
            }
            _ => {
                self.reset(start);
                to.push(Statement::Label(name));
            }
        }
        Ok(())
    }

    fn guard(&mut self) -> Result<Guard> {
        self.expect("@")?;
        let negated = self.eat("!");
        Ok(Guard { register: self.word()?.to_string(), negated })
    }

    fn instruction(&mut self, guard: Option<Guard>) -> Result<Instruction> {
        let line = self.line();
        let opcode = self.opcode()?.to_string();
        let modifiers = self.modifiers();
        let mut operands = Vec::new();
        if !self.eat(";") {
            loop {
                let operand = self.operand(0)?;
                operands.push(operand);
                if !self.eat(",") {
                    break;
                }
            }
            if !self.eat(";") {
                return Err(self.expected("\";\" after the instruction"));
            }
        }
        Ok(Instruction { guard, opcode, modifiers, operands, line })
    }

    fn operand(&mut self, depth: u32) -> Result<Operand> {
        if depth > 4 {
            return Err(self.error("operands are nested too deeply"));
        }
        match self.peek() {
            Some(b'{') => {
                self.expect("{")?;
                self.list(depth, "}").map(Operand::Vector)
            }
            Some(b'(') => {
                let start = self.position();
                self.expect("(")?;
                if self.peek().is_some_and(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'~')) {
                    // A constant expression, or a list that begins with a literal.
                    self.reset(start);
                    if let Ok(value) = self.clone().constant() {
                        self.constant()?;
                        return Ok(operand_of(value));
                    }
                    self.expect("(")?;
                }
                self.list(depth, ")").map(Operand::List)
            }
            Some(b'[') => self.address(),
            Some(b'!') => {
                self.expect("!")?;
                if self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                    let Constant::Integer(value) = self.constant()? else { return Err(self.expected("an integer")) };
                    return Ok(Operand::Integer(i64::from(value == 0)));
                }
                Ok(Operand::Negated(self.word()?.to_string()))
            }
            Some(byte) if byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'~') => {
                self.constant().map(operand_of)
            }
            _ => self.name(),
        }
    }

    fn name(&mut self) -> Result<Operand> {
        let name = self.dotted_word()?.to_string();
        if self.eat("|") {
            let second = Operand::Name(self.dotted_word()?.to_string());
            return Ok(Operand::Pair(Box::new(Operand::Name(name)), Box::new(second)));
        }
        if matches!(self.peek(), Some(b'+' | b'-')) {
            let Constant::Integer(offset) = self.signed_constant()? else {
                return Err(self.error("an offset must be an integer"));
            };
            return Ok(Operand::NameOffset(name, offset));
        }
        Ok(Operand::Name(name))
    }

    /// A constant after `+` or `-`, whose sign is part of it.
    fn signed_constant(&mut self) -> Result<Constant> {
        self.eat("+");
        self.constant()
    }

    fn list(&mut self, depth: u32, close: &str) -> Result<Vec<Operand>> {
        let mut items = Vec::new();
        while !self.eat(close) {
            if !items.is_empty() {
                self.expect(",")?;
            }
            let item = self.operand(depth + 1)?;
            items.push(item);
        }
        Ok(items)
    }

    /// `[base+offset]`.
    fn address(&mut self) -> Result<Operand> {
        self.expect("[")?;
        let is_name = self.peek().is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%'));
        let base = if is_name { Some(self.dotted_word()?.to_string()) } else { None };
        let mut offset = 0;
        if base.is_none() || matches!(self.peek(), Some(b'+' | b'-')) {
            let Constant::Integer(value) = self.signed_constant()? else {
                return Err(self.error("an address must be an integer"));
            };
            offset = value;
        }
        if self.peek() == Some(b',') {
            return Err(self.error("addresses of textures and tensors are not supported"));
        }
        self.expect("]")?;
        Ok(Operand::Address { base, offset })
    }
}

fn operand_of(value: Constant) -> Operand {
    match value {
        Constant::Integer(value) => Operand::Integer(value),
        Constant::F32(bits) => Operand::F32(bits),
        Constant::F64(bits) => Operand::F64(bits),
    }
}
