//! Errors of reading and lowering PTX.

use crate::ast::Instruction;

/// An error in PTX that is syntactically correct: an undefined name or an unsupported construct.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{message}", if *line == 0 { String::new() } else { format!("line {line}: ") },
    instruction.as_ref().map_or(String::new(), |text| format!("`{text}`: ")))]
pub struct LowerError {
    /// Line in the PTX text, from 1; 0 if unknown.
    pub line: u32,
    /// The instruction, if the error is about one.
    pub instruction: Option<String>,
    /// The reason.
    pub message: String,
}

impl LowerError {
    pub(crate) fn at(line: u32, message: String) -> Self {
        LowerError { line, instruction: None, message }
    }

    pub(crate) fn of(instruction: &Instruction, message: String) -> Self {
        LowerError { line: instruction.line, instruction: Some(instruction.to_string()), message }
    }
}

/// An error of a PTX module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PtxError {
    /// A syntax error.
    #[error(transparent)]
    Parse(#[from] crate::parse::ParseError),
    /// An undefined name or an unsupported construct.
    #[error(transparent)]
    Lower(LowerError),
    /// The module has no kernel of this name.
    #[error("the module has no kernel {name}; it has {}", if kernels.is_empty() { "none".into() } else { kernels.join(", ") })]
    NoKernel {
        /// The requested name.
        name: String,
        /// The kernels of the module.
        kernels: Vec<String>,
    },
}
