//! Declarations of variables, parameters and registers.

use crate::ast::{Initializer, PointerAttribute, ScalarType, StateSpace, Variable};

use super::constant::Constant;
use super::cursor::Cursor;
use super::{Linkage, Result};

/// Largest number of elements of an initial value.
const MAX_INITIALIZERS: usize = 1 << 26;
/// Largest number of registers of a declaration such as `%r<n>`.
const MAX_REGISTERS: u64 = 1 << 20;

fn state_space(word: &str) -> Option<StateSpace> {
    Some(match word.split("::").next()? {
        "reg" => StateSpace::Register,
        "param" => StateSpace::Param,
        "global" => StateSpace::Global,
        "shared" => StateSpace::Shared,
        "local" => StateSpace::Local,
        "const" => StateSpace::Const,
        _ => return None,
    })
}

impl Cursor<'_> {
    /// Declarations up to the semicolon: `.reg .b32 a, %r<4>;`.
    pub fn variables(&mut self, linkage: Linkage) -> Result<Vec<Variable>> {
        let first = self.variable(linkage)?;
        let mut variables = vec![first];
        while self.eat(",") {
            let next = self.declarator(Variable { init: Vec::new(), ..variables[0].clone() })?;
            variables.push(next);
        }
        self.expect(";")?;
        Ok(variables)
    }

    /// A parenthesized list of parameters.
    pub fn parameters(&mut self) -> Result<Vec<Variable>> {
        self.expect("(")?;
        let mut parameters = Vec::new();
        while !self.eat(")") {
            if !parameters.is_empty() {
                self.expect(",")?;
            }
            parameters.push(self.variable(Linkage::default())?);
        }
        Ok(parameters)
    }

    /// A declaration with its type.
    fn variable(&mut self, linkage: Linkage) -> Result<Variable> {
        let line = self.line();
        let (mut space, mut ty) = (None, None);
        let (mut vector, mut align, mut pointer) = (1, None, None);
        while self.peek() == Some(b'.') {
            let words = self.modifiers();
            if words.is_empty() {
                return Err(self.expected("a directive"));
            }
            for word in words {
                match word.as_str() {
                    "v2" => vector = 2,
                    "v4" => vector = 4,
                    "v8" => vector = 8,
                    "align" => {
                        let bytes = self.integer()? as u32;
                        match &mut pointer {
                            None => align = Some(bytes),
                            Some(PointerAttribute { align, .. }) => *align = bytes,
                        }
                    }
                    "ptr" => pointer = Some(PointerAttribute { space: None, align: 4 }),
                    "attribute" => self.skip_parentheses()?,
                    "managed" | "unified" => {}
                    word => match (state_space(word), ScalarType::from_name(word), &mut pointer) {
                        (Some(found), _, Some(pointer)) if pointer.space.is_none() => pointer.space = Some(found),
                        (Some(found), _, _) => space = Some(found),
                        (_, Some(found), _) => ty = Some(found),
                        _ => return Err(self.error(&format!("directive .{word} is not supported"))),
                    },
                }
            }
        }
        let space = space.ok_or_else(|| self.error("the declaration has no state space such as .reg"))?;
        let ty = ty.ok_or_else(|| self.error("the declaration has no type that is supported"))?;
        self.declarator(Variable {
            name: String::new(),
            count: None,
            space,
            ty,
            vector,
            align,
            dims: Vec::new(),
            init: Vec::new(),
            external: linkage.external,
            pointer,
            line,
        })
    }

    /// A name with its extents and initial value.
    fn declarator(&mut self, mut variable: Variable) -> Result<Variable> {
        // A prototype may have `_` or no name at all.
        let named = !matches!(self.peek(), Some(b',' | b')' | b';' | b'['));
        variable.name = if named { self.word()?.into() } else { String::new() };
        (variable.count, variable.dims) = (None, Vec::new());
        if self.eat("<") {
            let count = self.integer()?;
            if count > MAX_REGISTERS {
                return Err(self.error(&format!("{count} registers; the limit is {MAX_REGISTERS}")));
            }
            variable.count = Some(count as u32);
            self.expect(">")?;
        }
        while self.eat("[") {
            let extent = if self.peek() == Some(b']') { Constant::Integer(0) } else { self.constant()? };
            let Constant::Integer(extent) = extent else { return Err(self.error("an extent must be an integer")) };
            variable.dims.push(extent.max(0) as u64);
            self.expect("]")?;
        }
        if self.eat("=") {
            let dims = variable.dims.clone();
            self.initializer(&dims, variable.ty, &mut variable.init)?;
        }
        // `[]` takes its extent from the initial value.
        if let [0, ..] = variable.dims[..]
            && !variable.init.is_empty()
        {
            let inner: u64 = variable.dims[1..].iter().product::<u64>().max(1);
            variable.dims[0] = (variable.init.len() as u64).div_ceil(inner);
        }
        Ok(variable)
    }

    /// An initial value; missing elements of inner arrays are zero.
    fn initializer(&mut self, dims: &[u64], ty: ScalarType, to: &mut Vec<Initializer>) -> Result<()> {
        if to.len() > MAX_INITIALIZERS {
            return Err(self.error("an initial value has too many elements"));
        }
        if !self.eat("{") {
            let value = self.initial_element(ty)?;
            to.push(value);
            return Ok(());
        }
        let Some((_, inner)) = dims.split_first() else {
            // A vector type, or a scalar in braces.
            return self.elements_until_brace(&[], 1, ty, to);
        };
        let size = inner.iter().fold(1u64, |n, &extent| n.saturating_mul(extent)).min(1 << 26) as usize;
        self.elements_until_brace(inner, size, ty, to)
    }

    fn elements_until_brace(
        &mut self,
        inner: &[u64],
        size: usize,
        ty: ScalarType,
        to: &mut Vec<Initializer>,
    ) -> Result<()> {
        let mut first = true;
        while !self.eat("}") {
            if !first {
                self.expect(",")?;
                if self.eat("}") {
                    break;
                }
            }
            first = false;
            let start = to.len();
            let nested = self.peek() == Some(b'{');
            if nested && inner.is_empty() {
                return Err(self.error("an initial value is nested deeper than its variable"));
            }
            self.initializer(inner, ty, to)?;
            if nested {
                to.resize((start + size).max(to.len()), Initializer::Bits(0));
            }
        }
        Ok(())
    }

    /// A number, or the address of a symbol: `a`, `a+8`, `generic(a)+8`, `0xFF(a)`.
    fn initial_element(&mut self, ty: ScalarType) -> Result<Initializer> {
        let start = self.position();
        if self.peek().is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%')) {
            let name = self.word()?;
            if name == "generic" && self.eat("(") {
                let symbol = self.word()?.to_string();
                self.expect(")")?;
                return Ok(Initializer::Address { symbol, offset: self.sum()?, generic: true, shift: None });
            }
            if name != "WARP_SZ" {
                return Ok(Initializer::Address { symbol: name.into(), offset: self.sum()?, generic: false, shift: None });
            }
            self.reset(start);
        }
        let value = self.constant()?;
        if let (Constant::Integer(mask), true) = (value, self.eat("(")) {
            let generic = {
                let start = self.position();
                let found = self.word()? == "generic" && self.eat("(");
                if !found {
                    self.reset(start);
                }
                found
            };
            let symbol = self.word()?.to_string();
            if generic {
                self.expect(")")?;
            }
            let offset = self.sum()?;
            self.expect(")")?;
            let shift = Some(mask.trailing_zeros());
            return Ok(Initializer::Address { symbol, offset, generic, shift });
        }
        Ok(Initializer::Bits(match (value, ty) {
            (Constant::Integer(value), ScalarType::F32) => u64::from((value as f32).to_bits()),
            (Constant::Integer(value), ScalarType::F64) => (value as f64).to_bits(),
            (Constant::Integer(value), _) => value as u64,
            (Constant::F32(bits), ScalarType::F64) => f64::from(f32::from_bits(bits)).to_bits(),
            (Constant::F32(bits), _) => u64::from(bits),
            (Constant::F64(bits), ScalarType::F32) => u64::from((f64::from_bits(bits) as f32).to_bits()),
            (Constant::F64(bits), _) => bits,
        }))
    }

    /// `+ n` or `- n`, or nothing.
    fn sum(&mut self) -> Result<i64> {
        let mut sum = 0i64;
        loop {
            let sign = match (self.eat("+"), self.peek()) {
                (true, _) => 1,
                (false, Some(b'-')) => {
                    self.expect("-")?;
                    -1
                }
                _ => return Ok(sum),
            };
            let Constant::Integer(value) = self.constant()? else { return Err(self.error("an offset must be an integer")) };
            sum = sum.wrapping_add(value.wrapping_mul(sign));
        }
    }
}
