//! Source names of PTX symbols, and suggestions for unknown names.

/// The name in the source of a C++ symbol, such as `weights` of `_ZN3net7weightsE`, without
/// namespaces, template arguments and parameters; other names as they are.
///
/// Source: Itanium C++ ABI, "External Names".
pub fn source_name(symbol: &str) -> &str {
    let name = symbol.strip_prefix("_Z").and_then(|rest| match rest.strip_prefix('Z') {
        Some(local) => local_name(local),
        None => encoded_name(rest),
    });
    name.unwrap_or(symbol)
}

/// Replaces the C++ symbols in a text by their source names.
pub fn readable(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("_Z") {
        let in_word = rest[..start].ends_with(is_word);
        let end = rest[start..].find(|c| !is_word(c)).map_or(rest.len(), |len| start + len);
        out += &rest[..start];
        out += if in_word { &rest[start..end] } else { source_name(&rest[start..end]) };
        rest = &rest[end..];
    }
    out + rest
}

/// The candidate that is most similar to an unknown name.
pub fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let near = candidates.into_iter().map(|candidate| (distance(&lower, &candidate.to_lowercase()), candidate));
    near.filter(|&(distance, _)| distance <= name.chars().count().div_ceil(3))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name)
}

/// The edit distance (Levenshtein) of two texts.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, c) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &d) in other.iter().enumerate() {
            let exchanged = diagonal + usize::from(c != d);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

/// The name of an entity of a function: `As` of `4kernPfE2As`.
fn local_name(symbol: &str) -> Option<&str> {
    let ends = symbol.match_indices('E').rev();
    ends.filter_map(|(at, _)| sized(&symbol[at + 1..]))
        .find(|(_, rest)| rest.is_empty() || rest.starts_with('_'))
        .map(|(name, _)| name)
}

/// The last component of a plain or nested name.
fn encoded_name(symbol: &str) -> Option<&str> {
    let Some(nested) = symbol.strip_prefix('N') else {
        return sized(symbol.strip_prefix('L').unwrap_or(symbol)).map(|(name, _)| name);
    };
    let mut rest = nested.trim_start_matches(['r', 'V', 'K']);
    let mut last = None;
    loop {
        rest = match rest.as_bytes().first()? {
            b'E' => return last,
            b'I' => arguments(&rest[1..])?,
            b'L' => &rest[1..],
            _ => {
                let (name, after) = sized(rest)?;
                last = Some(name);
                after
            }
        };
    }
}

/// Skips the template arguments at the start, up to the matching `E`.
fn arguments(mut rest: &str) -> Option<&str> {
    let mut depth = 1;
    while depth > 0 {
        let first = *rest.as_bytes().first()?;
        rest = match first {
            b'0'..=b'9' => sized(rest)?.1,
            // A literal, such as `Li16E`.
            b'L' if rest.as_bytes().get(1).is_some_and(u8::is_ascii_lowercase) => rest.split_once('E')?.1,
            _ => {
                depth += match first {
                    b'I' | b'N' | b'J' | b'X' | b'F' | b'L' => 1,
                    b'E' => -1,
                    _ => 0,
                };
                rest.get(1..)?
            }
        };
    }
    Some(rest)
}

/// A name after its length: `7weights`.
fn sized(text: &str) -> Option<(&str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (len, rest) = text.split_at(digits);
    let len = len.parse().ok().filter(|&len| len > 0)?;
    Some((rest.get(..len)?, rest.get(len..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_names_are_found_in_symbols() {
        for (symbol, name) in [
            ("weights", "weights"),
            ("_Z12matmul_naivePKfS0_Pfiii", "matmul_naive"),
            ("_ZL7weights", "weights"),
            ("_ZN3net7weightsE", "weights"),
            ("_ZN3net5layerIfLi16EN2ab1cEE7forwardEPf", "forward"),
            ("_Z12matmul_tiledILi16EEvPKfS1_Pfiii", "matmul_tiled"),
            ("_ZZ12matmul_tiledILi16EEvPKfS1_PfiiiE2As", "As"),
            ("_ZZ1fPfE4tile_0", "tile"),
            ("_ZN12_GLOBAL__N_17counterE", "counter"),
            ("_Z", "_Z"),
            ("_ZN3ab", "_ZN3ab"),
            ("_Z99short", "_Z99short"),
            ("_ZNI1", "_ZNI1"),
        ] {
            assert_eq!(source_name(symbol), name, "{symbol}");
        }
    }

    #[test]
    fn readable_text_has_source_names() {
        assert_eq!(readable("reads _ZZ1fPfE2As[3], then x_Z1f and _Z1gv."), "reads As[3], then x_Z1f and g.");
        assert_eq!(readable("plain"), "plain");
    }

    #[test]
    fn closest_name_is_suggested() {
        assert_eq!(closest("kk", ["A", "k"]), Some("k"));
        assert_eq!(closest("Counst", ["counts", "data"]), Some("counts"));
        assert_eq!(closest("x", ["rows", "cols"]), None);
    }
}
