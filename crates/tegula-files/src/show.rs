//! Names from outside, in messages: a file or an array may be called anything, a message has one line.

use std::io;
use std::path::Path;

/// Bytes shown of the start of a long text.
const FRONT: usize = 100;
/// Bytes shown of its end, where a parser says what it expected.
const BACK: usize = 60;

/// A path as messages show it: whole, however long.
pub fn path(path: &Path) -> String {
    path.to_string_lossy().chars().map(character).collect()
}

/// A name or another text from outside as messages show it: with no more of it than its first [`FRONT`] and last [`BACK`] bytes,
/// since a file may hold one as long as itself.
pub fn name(text: &str) -> String {
    /// The first of some characters, as many as are shown in so many bytes.
    fn within(text: impl Iterator<Item = char>, bytes: usize) -> Vec<String> {
        let shown = text.map(character).scan(0, |end, next| {
            *end += next.len();
            (*end <= bytes).then_some(next)
        });
        shown.collect()
    }
    if text.len() <= FRONT + BACK {
        let shown: String = text.chars().map(character).collect();
        if shown.len() <= FRONT + BACK {
            return shown;
        }
    }
    let (front, mut back) = (within(text.chars(), FRONT), within(text.chars().rev(), BACK));
    back.reverse();
    format!("{}…{}", front.concat(), back.concat())
}

/// A character as messages show it: one that breaks or rearranges the line, or cannot be seen, is escaped as in a Rust string.
fn character(c: char) -> String {
    let hidden = c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    if hidden { c.escape_debug().to_string() } else { c.into() }
}

/// Names in a row, the first ten of them.
pub fn names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 10;
    let rest = names.len().saturating_sub(SHOWN);
    let shown = names.take(SHOWN).map(name).collect::<Vec<_>>().join(", ");
    if rest == 0 { shown } else { format!("{shown} and {rest} more") }
}

/// What went wrong with a file, without the number that only the system's manual explains.
pub fn error(error: &io::Error) -> String {
    #[cfg(unix)]
    if error.raw_os_error() == Some(libc::EFAULT) {
        // A system call, unlike the processor, gets an error where a mapped file has become shorter.
        return "an input file shrank while it was read".into();
    }
    match error.kind() {
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::NotADirectory => "part of its path is no directory".into(),
        io::ErrorKind::ReadOnlyFilesystem => "its file system is read-only".into(),
        io::ErrorKind::BrokenPipe => "its reader has gone".into(),
        _ => {
            let text = error.to_string();
            name(text.split(" (os error").next().unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_on_their_line() {
        assert_eq!(name("a b\\c'd\"é€.npy"), "a b\\c'd\"é€.npy");
        assert_eq!(name("a\nb\x1b[2Jc\u{202e}d\u{2028}"), "a\\nb\\u{1b}[2Jc\\u{202e}d\\u{2028}");
        // One that fits is whole; of a longer one, no escape is cut.
        let fits = "é".repeat(80);
        assert_eq!(name(&fits), fits);
        assert_eq!(name(&format!("{fits}.")), format!("{}…{}.", "é".repeat(50), "é".repeat(29)));
        let long = "\x7f".repeat(1000);
        assert_eq!(name(&long), format!("{}…{}", "\\u{7f}".repeat(16), "\\u{7f}".repeat(10)));
        assert_eq!(path(Path::new(&long)), "\\u{7f}".repeat(1000));
        let many: Vec<String> = (0..13).map(|i| i.to_string()).collect();
        assert_eq!(names(many.iter().map(String::as_str)), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 3 more");
    }
}
