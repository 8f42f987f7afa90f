//! Splits lines into code and prose: enough of Rust's and Markdown's syntax to tell comments and
//! strings from code.

/// A line, by what its characters are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Code.
    pub code: String,
    /// Text of comments and strings, or of a document.
    pub prose: String,
    /// Whether the line can be wrapped: a comment on a line of its own, or text of a document.
    pub wraps: bool,
}

/// Where the scanner is.
enum State {
    Code,
    /// In comments `/* */`, which nest.
    Comment(usize),
    /// In a string that ends with `"` and this many `#`; `None` where backslashes escape.
    String(Option<usize>),
}

/// Splits the lines of a Rust source.
pub fn rust(text: &str) -> Vec<Parts> {
    let mut state = State::Code;
    text.lines().map(|line| rust_line(line, &mut state)).collect()
}

fn rust_line(line: &str, state: &mut State) -> Parts {
    let comment = line.trim_start().strip_prefix("//");
    // Tables cannot be wrapped.
    let wraps = comment.is_some_and(|text| !text.trim_start_matches(['/', '!', ' ']).starts_with('|'));
    let mut parts = Parts { wraps, ..Parts::default() };
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let length = match state {
            State::Comment(depth) => match rest.get(..2) {
                Some("/*") => {
                    *depth += 1;
                    2
                }
                Some("*/") => {
                    *depth -= 1;
                    if *depth == 0 {
                        *state = State::Code;
                    }
                    2
                }
                _ => {
                    parts.prose.push(c);
                    c.len_utf8()
                }
            },
            State::String(None) if c == '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            State::String(hashes) => {
                let end = format!("\"{}", "#".repeat(hashes.unwrap_or(0)));
                if rest.starts_with(&end) {
                    *state = State::Code;
                    parts.prose.push(' ');
                    end.len()
                } else {
                    parts.prose.push(c);
                    c.len_utf8()
                }
            }
            State::Code if rest.starts_with("//") => {
                parts.prose.push_str(rest);
                rest.len()
            }
            State::Code => match opening(rest, &parts.code) {
                Some((opened, length)) => {
                    *state = opened;
                    // What comes before and after does not join to one word.
                    parts.code.push(' ');
                    length
                }
                None if c == '\'' => {
                    parts.code.push(' ');
                    character(rest)
                }
                None => {
                    parts.code.push(c);
                    c.len_utf8()
                }
            },
        };
        rest = &rest[length..];
    }
    parts
}

/// The string or comment that opens here, and the length of its opening.
fn opening(rest: &str, before: &str) -> Option<(State, usize)> {
    if rest.starts_with("/*") {
        return Some((State::Comment(1), 2));
    }
    if rest.starts_with('"') {
        return Some((State::String(None), 1));
    }
    // `r"`, `br#"`, `cr"`: not the end of an identifier.
    if before.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let raw = ["r", "br", "cr"]
        .iter()
        .find(|prefix| rest.strip_prefix(**prefix).is_some_and(|rest| rest.trim_start_matches('#').starts_with('"')))?;
    let hashes = rest[raw.len()..].chars().take_while(|c| *c == '#').count();
    Some((State::String(Some(hashes)), raw.len() + hashes + 1))
}

/// The length of a character literal; of a lifetime, that of its quote.
fn character(rest: &str) -> usize {
    let inner = &rest[1..];
    let Some(c) = inner.chars().next() else { return 1 };
    if c == '\\' {
        // `'\''` and `'\\'` end at the third character or later.
        return inner[2.min(inner.len())..].find('\'').map_or(rest.len(), |at| at + 4);
    }
    if inner[c.len_utf8()..].starts_with('\'') { c.len_utf8() + 2 } else { 1 }
}

/// Splits the lines of a Markdown document. Code in it is neither code to check nor prose.
pub fn markdown(text: &str) -> Vec<Parts> {
    let mut fenced = false;
    let line = |line: &str| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        if fenced || is_fence {
            return Parts::default();
        }
        // Every second piece stands between backquotes.
        let prose = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        Parts { code: String::new(), prose, wraps: !line.trim_start().starts_with('|') }
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Vec<String> {
        rust(text).into_iter().map(|parts| parts.code.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn strings_and_comments_are_no_code() {
        assert_eq!(code("a \"b\" c // d"), ["a c"]);
        assert_eq!(code("a r#\"b \" c\"# d"), ["a d"]);
        assert_eq!(code("a /* b /* c */ d */ e"), ["a e"]);
        assert_eq!(code("a \"b\nc\" d"), ["a", "d"]);
        assert_eq!(code(r#"a "\"b" c"#), ["a c"]);
    }

    #[test]
    fn quotes_of_characters_and_lifetimes_open_no_string() {
        assert_eq!(code("f('\"') g"), ["f( ) g"]);
        assert_eq!(code("f('\\'') g"), ["f( ) g"]);
        assert_eq!(code("f('\\u{1F600}') g"), ["f( ) g"]);
        assert_eq!(code("fn f<'a>(x: &'a str) {}"), ["fn f< a>(x: & a str) {}"]);
    }

    #[test]
    fn code_in_markdown_is_left_out() {
        let parts = markdown("a `b` c\n```\nd\n```\ne");
        assert_eq!(parts.iter().map(|parts| parts.prose.as_str()).collect::<Vec<_>>(), ["a   c", "", "", "", "e"]);
    }
}
