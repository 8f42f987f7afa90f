//! Names from outside, in messages: a file or an array may be called anything, a message has one line.

use std::io;
use std::path::Path;

/// A path as messages show it.
pub fn path(path: &Path) -> String {
    name(&path.to_string_lossy())
}

/// A name as messages show it: characters that break or rearrange the line, or cannot be seen, are escaped as in a Rust string.
pub fn name(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().map(|c| if hidden(c) { c.escape_debug().to_string() } else { c.to_string() }).collect()
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
        let many: Vec<String> = (0..13).map(|i| i.to_string()).collect();
        assert_eq!(names(many.iter().map(String::as_str)), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 3 more");
    }
}
