//! Imports of a source within its crate.

/// Paths that code names after `crate::` or `super::`, as names from the crate's root.
pub fn of(file: &str, code: &str) -> Vec<Vec<String>> {
    let own = module(file);
    let mut found = Vec::new();
    for (at, prefix) in code.match_indices("crate::") {
        let before = code[..at].chars().next_back();
        if !before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            found.extend(tree(&[], &code[at + prefix.len()..]));
        }
    }
    let mut rest = code;
    while let Some(at) = rest.find("super::") {
        let (mut text, mut up) = (&rest[at..], 0);
        while let Some(next) = text.strip_prefix("super::") {
            (text, up) = (next, up + 1);
        }
        let base = &own[..own.len().saturating_sub(up)];
        found.extend(tree(base, text));
        rest = text;
    }
    found
}

/// Path of the module of a file.
pub fn module(file: &str) -> Vec<String> {
    let mut names: Vec<String> = file.split('/').map(String::from).collect();
    if names.last().is_some_and(|last| last == "mod" || last == "lib" || last == "main") {
        names.pop();
    }
    names
}

/// Paths of a use tree: one, or one per entry of a group.
fn tree(prefix: &[String], text: &str) -> Vec<Vec<String>> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len());
    let (path, rest) = text.split_at(end);
    let mut names = prefix.to_vec();
    names.extend(path.split("::").filter(|name| !name.is_empty()).map(String::from));
    match rest.strip_prefix('{') {
        Some(group) if path.is_empty() || path.ends_with("::") => {
            entries(group).iter().flat_map(|entry| tree(&names, entry.trim())).collect()
        }
        _ => vec![names],
    }
}

/// Entries of a group up to its closing brace.
fn entries(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut entries) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                entries.push(&group[start..at]);
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    entries.retain(|entry| !entry.trim().is_empty());
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(file: &str, code: &str) -> Vec<String> {
        of(file, code).into_iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn of_expands_groups_and_resolves_super() {
        assert_eq!(paths("a/b", "use crate::{c::D, e::{F, G}};"), ["c::D", "e::F", "e::G"]);
        assert_eq!(paths("a/b", "use super::{c::D, E};\nuse super::super::f::G;"), ["a::c::D", "a::E", "f::G"]);
        assert_eq!(paths("lib", "pub(crate) fn f() -> crate::Result<()> {}"), ["Result"]);
        assert_eq!(paths("a/mod", "use super::x::Y;"), ["x::Y"]);
    }
}
