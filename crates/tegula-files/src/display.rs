//! Formatting of paths, names and errors for messages of one line.

use std::io;
use std::path::Path;

/// Bytes shown of the start of a long name.
const FRONT: usize = 100;
/// Bytes shown of its end, where parsers report what they expected.
const BACK: usize = 60;

/// Formats a path, without a length limit.
pub fn path(path: &Path) -> String {
    path.to_string_lossy().chars().map(character).collect()
}

/// Formats a name or other text of a file, possibly abbreviated.
///
/// Shown are at most its first [`FRONT`] and last [`BACK`] bytes: it may be as long as the file.
pub fn name(text: &str) -> String {
    /// The first characters that fit in `bytes` bytes.
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

/// Formats a character; control, bidirectional and invisible characters are escaped.
fn character(c: char) -> String {
    let hidden = c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    if hidden { c.escape_debug().to_string() } else { c.into() }
}

/// Formats a list of names, at most ten.
pub fn names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 10;
    let rest = names.len().saturating_sub(SHOWN);
    let shown = names.take(SHOWN).map(name).collect::<Vec<_>>().join(", ");
    if rest == 0 { shown } else { format!("{shown} and {rest} more") }
}

/// Formats an I/O error without its error number.
pub fn error(error: &io::Error) -> String {
    #[cfg(unix)]
    if error.raw_os_error() == Some(libc::EFAULT) {
        // System calls report an error for a truncated map; memory accesses raise a signal.
        return "an input file shrank while it was read".into();
    }
    match error.kind() {
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::NotADirectory => "part of the path is not a directory".into(),
        io::ErrorKind::ReadOnlyFilesystem => "its file system is read-only".into(),
        io::ErrorKind::BrokenPipe => "the reader closed the pipe".into(),
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
    fn name_escapes_control_characters_and_is_short() {
        assert_eq!(name("a b\\c'd\"é€.npy"), "a b\\c'd\"é€.npy");
        assert_eq!(name("a\nb\x1b[2Jc\u{202e}d\u{2028}"), "a\\nb\\u{1b}[2Jc\\u{202e}d\\u{2028}");
        // Short names are complete; in long ones, no escape is cut.
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
