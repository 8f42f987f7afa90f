//! Documents whose numbers and figures come from running the kernels that they describe.
//!
//! A template is Markdown with directives in double braces. A *subject* is a launch, loop nest,
//! instruction or results file; its *facts* are named numbers and texts.
//!
//! | directive | |
//! |---|---|
//! | `{{let NAME = SUBJECT}}` | names a subject |
//! | `{{NAME.FACT}}` | the fact: a number or a text |
//! | `{{EXPRESSION}}` | arithmetic on facts and numbers: `+ - * /` and parentheses |
//! | `{{EXPRESSION : 2}}` | the same with 2 decimals; the default is three digits |
//! | `{{each NAME in A B C}}`, `{{end}}` | repeats the lines between them, with each word for `$NAME` |
//! | `{{figure FILE = KIND ..}}` | draws and embeds `FILE.svg`; kinds in [`figure`] |
//!
//! | subject | its facts |
//! |---|---|
//! | `kernel NAME TYPE MxNxK [tile T] [x-row] [inject BUG]` | a launch: [`facts::LaunchFacts`] |
//! | `nest NAME TYPE MxNxK [tile T]` | a loop nest with a cache model: [`facts::NestFacts`] |
//! | `mma TYPE:MxNxK` | a matrix instruction: its shape, multiply-adds and registers |
//! | `file NAME.json [PATH]` | the fields of an object; PATH as in `rows[dtype=f32,m=4096]` |
//! | `file NAME.txt HEADING ROW` | the words, by position from 0, of a line |
//!
//! The facts of an `mma` are `name`, `m`, `n`, `k`, `multiply_adds`, and for a lane `a_registers`,
//! `b_registers` and `accumulator_registers`. The line of a text file is the first one that starts
//! with the word ROW after a line that contains HEADING. Integers have all digits by default.
//! `let`, `each`, `end` and `figure` must be alone on their line.
//!
//! This module reads no files: the caller of [`evaluate`] supplies the contents of results files.
//!
//! | file | |
//! |---|---|
//! | `template` | lines, directives, repetition |
//! | `expression` | arithmetic and number formats |
//! | `facts` | subjects and their facts |
//! | `figure` | figures |

mod expression;
pub mod facts;
pub mod figure;
mod template;

use std::borrow::Cow;

pub use template::{Guide, evaluate};

/// An error in a template, with its line.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the template: {kind}")]
pub struct Error {
    /// The line, from 1.
    pub line: usize,
    /// The error.
    pub kind: ErrorKind,
}

/// An error in a directive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A directive, subject or figure with invalid syntax.
    #[error("invalid syntax {text:?}; {expected}")]
    Syntax {
        /// The text.
        text: String,
        /// The valid syntax.
        expected: Cow<'static, str>,
    },
    /// A name without a preceding `let`.
    #[error("unknown subject {0:?}; define it by `let` first")]
    UnknownName(String),
    /// A fact that the subject does not have.
    #[error("{subject}: unknown fact {fact:?}; known: {known}")]
    UnknownFact {
        /// The subject's name.
        subject: String,
        /// The fact.
        fact: String,
        /// The names of the subject's facts.
        known: String,
    },
    /// A text in arithmetic, or a result that is not finite.
    #[error("{0}: not a finite number")]
    NotANumber(String),
    /// A missing results file, or one without the requested entry.
    #[error("{file}: {reason}")]
    File {
        /// The name.
        file: String,
        /// The error.
        reason: String,
    },
    /// A subject that a kind of figure does not support.
    #[error("{subject}: unsupported figure: {reason}")]
    UnsupportedFigure {
        /// The subject's name.
        subject: String,
        /// The reason.
        reason: String,
    },
    /// A kernel that cannot be built or run.
    #[error(transparent)]
    Kernel(#[from] crate::Error),
}

impl From<tegula_core::Error> for ErrorKind {
    fn from(error: tegula_core::Error) -> Self {
        ErrorKind::Kernel(error.into())
    }
}

type Result<T> = std::result::Result<T, ErrorKind>;

/// A syntax error.
fn syntax<T>(text: &str, expected: impl Into<Cow<'static, str>>) -> Result<T> {
    Err(ErrorKind::Syntax { text: text.into(), expected: expected.into() })
}
