//! The kernel symbols of a PTX module, to be matched with the kernels of the source.

use super::mangle::{Name, demangle};
use super::source::equal_arguments;

/// A kernel in PTX.
#[derive(Debug)]
struct Entry {
    symbol: String,
    /// The C++ name; `None` for `extern "C"`.
    name: Option<Name>,
    /// Line of the first instruction.
    line: Option<u32>,
}

/// The kernels of a module that are not matched yet.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    entries: Vec<Entry>,
}

impl Symbols {
    /// Reads the kernels of a module.
    pub(super) fn read(ptx: &str) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        for line in ptx.lines() {
            let line = line.trim_start();
            if let Some((_, after)) = line.split_once(".entry ").filter(|_| !line.starts_with("//")) {
                let end = after.find(|c: char| !(c.is_alphanumeric() || "_$%".contains(c))).unwrap_or(after.len());
                let symbol = after.get(..end).unwrap_or(after).to_owned();
                entries.push(Entry { name: demangle(&symbol), symbol, line: None });
            } else if let Some(after) = line.strip_prefix(".loc")
                && let Some(Entry { line: first @ None, .. }) = entries.last_mut()
            {
                *first = after.split_whitespace().nth(1).and_then(|line| line.parse().ok());
            }
        }
        Self { entries }
    }

    /// Removes and returns the symbol of a kernel: among overloads, the one with code in `lines`.
    pub(super) fn take(&mut self, name: &str, arguments: Option<&[String]>, lines: (u32, u32)) -> Option<String> {
        let plain = name.rsplit("::").next().unwrap_or(name);
        let matches = |entry: &Entry| match (&entry.name, arguments) {
            (None, None) => entry.symbol == plain,
            (Some(found), None) => found.name == name && found.arguments.is_none(),
            (Some(found), Some(wanted)) => {
                // The symbol also has the default arguments, after the given ones.
                let given = found.arguments.as_deref().and_then(|own| own.get(..wanted.len()));
                found.name == name && given.is_some_and(|own| equal_arguments(own, wanted))
            }
            (None, Some(_)) => false,
        };
        let within = |entry: &Entry| entry.line.is_some_and(|line| (lines.0..=lines.1).contains(&line));
        let best = self.entries.iter().position(|entry| matches(entry) && within(entry));
        let found = best.or_else(|| self.entries.iter().position(matches))?;
        Some(self.entries.remove(found).symbol)
    }

    /// Removes a symbol.
    pub(super) fn reserve(&mut self, symbol: &str) {
        self.entries.retain(|entry| entry.symbol != symbol);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_matches_names_arguments_and_lines() {
        let ptx = ".visible .entry _Z1kPf(\n.loc 1 3 0\n.loc 1 9 0\n.visible .entry _Z1kPi(\n\t.loc\t1 6 0\n\
                   .entry plain(\n// .entry comment(\n.weak .entry _Z1tILj16EhEvv(\n";
        let mut symbols = Symbols::read(ptx);
        assert_eq!(symbols.take("k", None, (5, 7)).as_deref(), Some("_Z1kPi"));
        assert_eq!(symbols.take("k", None, (2, 4)).as_deref(), Some("_Z1kPf"));
        assert_eq!(symbols.take("k", None, (2, 4)), None);
        assert_eq!(symbols.take("ns::plain", None, (1, 1)).as_deref(), Some("plain"));
        let arguments = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(symbols.take("t", Some(&arguments(&["8"])), (1, 1)), None);
        assert_eq!(
            symbols.take("t", Some(&arguments(&["16", "unsigned char"])), (1, 1)).as_deref(),
            Some("_Z1tILj16EhEvv")
        );
        assert_eq!(symbols.take("comment", None, (1, 1)), None);
    }
}
