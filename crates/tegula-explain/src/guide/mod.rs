//! A document whose numbers and figures are made by running what it tells of.
//!
//! A template is Markdown with directives in double braces. Subjects are what is measured or counted; facts are what they have to say.
//!
//! | directive | |
//! |---|---|
//! | `{{let NAME = SUBJECT}}` | a line of its own: names a subject |
//! | `{{NAME.FACT}}` | the fact: a number or a text |
//! | `{{EXPRESSION}}` | arithmetic on facts and numbers: `+ - * /` and parentheses |
//! | `{{EXPRESSION : 2}}` | the same with so many decimals; otherwise three digits, or all of an integer |
//! | `{{each NAME in A B C}}`, `{{end}}` | lines of their own: the lines between, once for each word, which stands for `$NAME` |
//! | `{{figure FILE = KIND ..}}` | a line of its own: draws `FILE.svg` and shows it; [`figure`] has the kinds |
//!
//! | subject | its facts |
//! |---|---|
//! | `kernel NAME TYPE MxNxK [tile T] [x-row] [plant MISTAKE]` | a launch in the interpreter: [`facts::Launch`] |
//! | `nest NAME TYPE MxNxK [tile T]` | a loop nest on modelled caches: [`facts::Walk`] |
//! | `mma TYPE:MxNxK` | a matrix instruction: `name`, `m`, `n`, `k`, `products`, and a lane's `a_registers`, `b_registers`, `sum_registers` |
//! | `file NAME.json [PATH]` | an object in a file of results: its fields. A path is keys and picks: `rows[dtype=f32,m=4096]` |
//! | `file NAME.txt HEADING ROW` | the first line that starts with the word ROW after one that holds HEADING: its words, by position from 0 |
//!
//! This module reads no files: whoever evaluates a template hands it what results it may ask for.
//!
//! | file | |
//! |---|---|
//! | `template` | lines, directives, repetitions |
//! | `expression` | arithmetic, and how numbers are shown |
//! | `facts` | subjects and what they have to say |
//! | `figure` | pictures of facts |

mod expression;
pub mod facts;
pub mod figure;
mod template;

use std::borrow::Cow;

pub use template::{Guide, evaluate};

/// What is wrong with a template, and where.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the template: {fault}")]
pub struct Error {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a directive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A directive, subject or figure that is not written as the grammar has it.
    #[error("{what:?} is not understood; {expected}")]
    Syntax {
        /// The text.
        what: String,
        /// What could stand there.
        expected: Cow<'static, str>,
    },
    /// A name that no `let` has given.
    #[error("nothing is called {0:?}; name a subject by `let` before")]
    UnknownName(String),
    /// A fact that the subject does not have.
    #[error("{subject} has no fact {fact:?}; it has {known}")]
    UnknownFact {
        /// The subject's name.
        subject: String,
        /// The fact.
        fact: String,
        /// The facts there are.
        known: String,
    },
    /// A text where a number is needed, or a number that is none.
    #[error("{0} is no finite number")]
    NotANumber(String),
    /// A file that was not handed over, or does not hold what is asked for.
    #[error("{file}: {why}")]
    File {
        /// Its name.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// A subject that a figure of that kind cannot show.
    #[error("{subject} makes no such figure: {why}")]
    NoFigure {
        /// The subject's name.
        subject: String,
        /// Why not.
        why: String,
    },
    /// A kernel that cannot be built or run.
    #[error(transparent)]
    Kernel(#[from] crate::Error),
}

impl From<tegula_core::Error> for Fault {
    fn from(error: tegula_core::Error) -> Self {
        Fault::Kernel(error.into())
    }
}

type Result<T> = std::result::Result<T, Fault>;

/// A refusal of what is not understood.
fn syntax<T>(what: &str, expected: impl Into<Cow<'static, str>>) -> Result<T> {
    Err(Fault::Syntax { what: what.into(), expected: expected.into() })
}
