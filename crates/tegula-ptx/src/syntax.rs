//! The parser of PTX: from text to the syntax tree.
//!
//! It reads what NVRTC, nvcc, clang, Numba, Triton and Tegula's own printer write, in ISA 6.0 to
//! 9.x. Directives that change no result, such as debug sections and register limits, are skipped.
//! Source: PTX ISA 9.0, "Syntax" and "Directives".

mod constant;
mod cursor;
mod declaration;
mod statement;

use crate::ast::{Function, Module};
use cursor::Cursor;

/// A syntax error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// Line in the text, from 1.
    pub line: u32,
    /// Column, from 1.
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
    while !cursor.is_at_end() {
        cursor.directive(&mut module)?;
    }
    if module.version == (0, 0) {
        return Err(cursor.error("the text has no .version: it is not PTX"));
    }
    Ok(module)
}

/// Linkage of a declaration.
#[derive(Clone, Copy, Default)]
struct Linkage {
    external: bool,
}

impl Cursor<'_> {
    /// Parses a directive at module scope.
    fn directive(&mut self, module: &mut Module) -> Result<()> {
        let start = self.position();
        if !self.eat(".") {
            return Err(self.expected("a directive such as .entry"));
        }
        let name = self.word()?;
        match name {
            "version" => {
                let major = self.integer()?;
                self.expect(".")?;
                module.version = (major as u32, self.integer()? as u32);
                Ok(())
            }
            "target" => {
                module.target = self.word()?.into();
                while self.eat(",") {
                    self.word()?;
                }
                Ok(())
            }
            "address_size" => match self.integer()? {
                64 => Ok(()),
                size => Err(self.error(&format!("addresses of {size} bits are not supported; compile for 64 bits"))),
            },
            "file" => {
                let file = self.file()?;
                module.files.push(file);
                Ok(())
            }
            "section" => self.skip_section(),
            "loc" => self.loc().map(|_| ()),
            "pragma" | "alias" => self.skip_to_semicolon(),
            _ => {
                self.reset(start);
                self.declaration(module)
            }
        }
    }

    /// Parses a function, a kernel, or a variable at module scope.
    fn declaration(&mut self, module: &mut Module) -> Result<()> {
        let linkage = self.linkage()?;
        let start = self.position();
        self.expect(".")?;
        match self.word()? {
            "entry" => {
                let function = self.function(true)?;
                module.functions.push(function);
            }
            "func" => {
                let function = self.function(false)?;
                module.functions.push(function);
            }
            _ => {
                self.reset(start);
                let variables = self.variables(linkage)?;
                module.variables.extend(variables);
            }
        }
        Ok(())
    }

    fn linkage(&mut self) -> Result<Linkage> {
        let mut linkage = Linkage::default();
        loop {
            let start = self.position();
            let word = if self.eat(".") { self.word()? } else { "" };
            match word {
                "extern" => linkage.external = true,
                "visible" | "weak" | "common" => {}
                _ => {
                    self.reset(start);
                    return Ok(linkage);
                }
            }
        }
    }

    fn function(&mut self, entry: bool) -> Result<Function> {
        let line = self.line();
        while self.eat(".") {
            // `.func .attribute(…)`, `.func .noreturn`
            self.word()?;
            if self.peek() == Some(b'(') {
                self.skip_parentheses()?;
            }
        }
        let returns = if !entry && self.peek() == Some(b'(') { self.parameters()? } else { Vec::new() };
        let name = self.word()?.to_string();
        let params = if self.peek() == Some(b'(') { self.parameters()? } else { Vec::new() };
        let mut function =
            Function { name, entry, returns, params, max_block: None, required_block: None, body: None, line };
        while self.eat(".") {
            let directive = self.word()?;
            match directive {
                "maxntid" => function.max_block = Some(self.extents()?),
                "reqntid" => function.required_block = Some(self.extents()?),
                "noreturn" | "explicitcluster" | "blocksareclusters" => {}
                "minnctapersm" | "maxnctapersm" | "maxnreg" | "maxclusterrank" | "reqnctapercluster" => {
                    self.extents()?;
                }
                "pragma" => self.skip_to_semicolon()?,
                "attribute" | "abi_preserve" | "abi_preserve_control" | "unique" => {
                    if self.peek() == Some(b'(') { self.skip_parentheses()? } else { self.integer().map(|_| ())? }
                }
                other => return Err(self.error(&format!("directive .{other} is not supported"))),
            }
        }
        if !self.eat(";") {
            function.body = Some(self.body()?);
        }
        Ok(function)
    }

    /// One to three extents.
    fn extents(&mut self) -> Result<[u32; 3]> {
        let mut extents = [1; 3];
        extents[0] = self.integer()? as u32;
        for extent in &mut extents[1..] {
            if !self.eat(",") {
                break;
            }
            *extent = self.integer()? as u32;
        }
        Ok(extents)
    }

    /// `.file number "name" [, time, size]`, after the word.
    fn file(&mut self) -> Result<(u32, String)> {
        let number = self.integer()? as u32;
        let name = self.string()?;
        while self.eat(",") {
            self.integer()?;
        }
        Ok((number, name))
    }

    /// `.section name { … }`, which holds debug data.
    fn skip_section(&mut self) -> Result<()> {
        while !matches!(self.peek(), Some(b'{') | None) {
            self.bump();
        }
        self.skip_braces()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::{Initializer, Operand, Statement};

    const TEXT: &str = "
        // A comment
        .version 8.5
        .target sm_90a, debug
        .address_size 64
        .global .align 4 .b8 text[4] = {72, 105, 33};
        .const .f32 weights[2][2] = {{0f3F800000, 0f40000000}, {0f40400000}};
        .global .u64 pointer = generic(text)+2;
        .extern .shared .align 16 .b8 buffer[];
        .extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
        .visible .entry k(.param .u64 .ptr .global .align 16 a, .param .align 8 .b8 s[24])
        .maxntid 256, 1, 1
        {
            .reg .pred %p<3>;
            .reg .b32 %r<9>, x;
            .loc 1 7 3
            mov.u32 %r1, %tid.x; /* inline */
            @!%p1 bra $L_1;
            ld.global.L2::128B.v2.f32 {%f1, _}, [%rd1+-8];
            { .reg .b32 t; add.s32 t, x, -0x10; }
            setp.lt.and.s32 %p1|%p2, %r1, 5, !%p2;
            call.uni (r0), vprintf, (a0, a1);
        $L_1:
            .loc 1 9 5, function_name $L_info+4, inlined_at 1 12 3
            ret;
        }
        .file 1 \"a \\\"b\\\".cu\", 12, 34
        .section .debug_str { .b8 1,2 }
    ";

    #[test]
    fn module_of_every_construct_is_parsed() {
        let module = module(TEXT).unwrap();
        assert_eq!((module.version, module.target.as_str()), ((8, 5), "sm_90a"));
        assert_eq!(module.files, [(1, "a \"b\".cu".to_string())]);
        let [text, weights, pointer, buffer] = &module.variables[..] else { panic!("{:?}", module.variables) };
        assert_eq!((text.bytes(), text.init.len()), (4, 3));
        assert_eq!(weights.init[3], Initializer::Bits(0));
        assert_eq!((weights.init.len(), &weights.init[1]), (4, &Initializer::Bits(0x4000_0000)));
        assert!(matches!(&pointer.init[..], [Initializer::Address { generic: true, offset: 2, .. }]));
        assert!(buffer.external && buffer.bytes() == 0);
        let kernel = &module.functions[1];
        assert_eq!((kernel.params.len(), kernel.max_block), (2, Some([256, 1, 1])));
        let body = kernel.body.as_ref().unwrap();
        let instructions: Vec<_> = body
            .iter()
            .filter_map(|statement| match statement {
                Statement::Instruction(instruction) => Some(instruction.to_string()),
                _ => None,
            })
            .collect();
        assert_eq!(
            instructions,
            [
                "mov.u32 %r1, %tid.x",
                "@!%p1 bra $L_1",
                "ld.global.L2::128B.v2.f32 {%f1, _}, [%rd1-8]",
                "setp.lt.and.s32 %p1|%p2, %r1, 5, !%p2",
                "call.uni (r0), vprintf, (a0, a1)",
                "ret"
            ]
        );
        assert!(body.iter().any(|statement| matches!(statement, Statement::Loc(loc) if loc.inlined_at == Some((1, 12, 3)))));
        let Some(Statement::Block(block)) = body.iter().find(|statement| matches!(statement, Statement::Block(_))) else {
            panic!("no block");
        };
        let Statement::Instruction(add) = &block[1] else { panic!("{block:?}") };
        assert_eq!(add.operands[2], Operand::Integer(-16));
    }

    #[test]
    fn errors_name_line_and_column() {
        let error = module(".version 8.0\n.target sm_80\n.entry k() { add.s32 %r1 %r2; }").unwrap_err();
        assert_eq!(error.to_string(), "line 3, column 26: expected \";\" after the instruction, found \"%\"");
        assert!(module("hello").is_err() && module("").is_err());
        assert!(module(".version 8.0 .target sm_80 .address_size 32").unwrap_err().message.contains("32 bits"));
    }

    #[test]
    fn any_prefix_or_changed_byte_does_not_panic() {
        for end in 0..TEXT.len() {
            let _ = module(&TEXT[..end]);
        }
        for at in (0..TEXT.len()).filter(|&at| TEXT.is_char_boundary(at)) {
            for byte in ["{", "}", ";", "\"", "(", "-", "0", "."] {
                let _ = module(&format!("{}{byte}{}", &TEXT[..at], &TEXT[at + 1..]));
            }
        }
        let _ = module(&format!(".version 8.0 .target sm_80 .entry k() {}", "{".repeat(100_000)));
        let _ = module(&format!(".version 8.0 .target sm_80 .global .u32 a = {};", "(".repeat(100_000)));
    }
}
