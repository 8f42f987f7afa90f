//! Kernels and functions: their names, parameters and directives.

use crate::ast::Function;

use super::Result;
use super::cursor::Cursor;
use super::token::Kind;

impl Cursor<'_> {
    /// Parses a kernel or a function, after `.entry` or `.func`.
    pub fn function(&mut self, entry: bool) -> Result<Function> {
        let line = self.token().line;
        let mut function = Function {
            name: String::new(),
            entry,
            returns: Vec::new(),
            params: Vec::new(),
            max_block: None,
            required_block: None,
            body: None,
            line,
        };
        self.function_directives(&mut function)?;
        if !entry {
            function.returns = self.parameters()?;
        }
        function.name = self.word("the name of a function")?.into();
        function.params = self.parameters()?;
        self.function_directives(&mut function)?;
        if self.is_symbol("{") {
            function.body = Some(self.block(0)?);
        } else {
            self.expect_as(";", " or the body of the function")?;
        }
        Ok(function)
    }

    /// Parses directives before the name of a function, or between its parameters and its body.
    /// Directives that only limit resources are skipped.
    fn function_directives(&mut self, function: &mut Function) -> Result<()> {
        while self.is(Kind::Dotted) {
            let word = self.token();
            self.advance();
            match word.text {
                "maxntid" => function.max_block = Some(self.extents()?),
                "reqntid" => function.required_block = Some(self.extents()?),
                "minnctapersm"
                | "maxnctapersm"
                | "maxnreg"
                | "maxclusterrank"
                | "reqnctapercluster"
                | "abi_preserve"
                | "abi_preserve_control" => {
                    self.extents()?;
                }
                "noreturn" | "explicitcluster" | "blocksareclusters" | "unique" => {}
                "attribute" => self.skip_brackets("(", ")")?,
                "pragma" => self.skip_to_semicolon()?,
                _ => return Err(self.unknown_directive(word)),
            }
        }
        Ok(())
    }

    /// Parses one to three extents; omitted ones are 1.
    fn extents(&mut self) -> Result<[u32; 3]> {
        let mut extents = [1; 3];
        for (axis, extent) in extents.iter_mut().enumerate() {
            if axis > 0 && !self.eat(",") {
                break;
            }
            *extent = self.unsigned("a number")?;
        }
        Ok(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(text: &str) -> Result<Function> {
        Cursor::new(text).function(text.contains("kernel"))
    }

    #[test]
    fn function_forms_are_read() {
        let none = function("f;").unwrap();
        assert_eq!((none.returns.len(), none.params.len(), none.body), (0, 0, None));
        let empty = function("f () { }").unwrap();
        assert_eq!(empty.body, Some(Vec::new()));
        let full = function(".noreturn (.param .b32 r) f (.param .b64 a, .reg .f32 b) { ret; }").unwrap();
        assert_eq!((full.name.as_str(), full.returns.len(), full.params.len()), ("f", 1, 2));
        assert_eq!(full.body.map(|body| body.len()), Some(1));
    }

    #[test]
    fn kernel_directives_are_read_or_skipped() {
        let text = "kernel(.param .u64 p) .maxntid 256, 1, 1 .minnctapersm 2 .maxnreg 64 .reqntid 32, 4
            .explicitcluster .reqnctapercluster 2, 1, 1 .maxclusterrank 8 .pragma \"nounroll\"; { ret; }";
        let kernel = function(text).unwrap();
        assert_eq!((kernel.max_block, kernel.required_block), (Some([256, 1, 1]), Some([32, 4, 1])));
    }

    #[test]
    fn functions_that_are_malformed_are_rejected() {
        for (text, message) in [
            ("kernel() .maxntid x {}", "expected a number, found \"x\""),
            ("kernel() .maxthreads 5 {}", "directive .maxthreads is not supported"),
            ("kernel() ret; }", "expected \";\" or the body of the function, found \"ret\""),
            ("(.param .b32 r", "expected \",\" or \")\", found the end of the text"),
            ("(.param .b32 r) ;", "expected the name of a function, found \";\""),
        ] {
            assert_eq!(function(text).unwrap_err().message, message, "{text}");
        }
    }
}
