//! Types and extents of shared arrays, read from the source. PTX declares these arrays as bytes.

use std::collections::BTreeMap;

use tegula_ptx::ast::ScalarType;

/// Largest value that is tried for one unknown constant, such as a template parameter.
const LARGEST: i64 = 1024;

/// Types by their names in CUDA C++.
const TYPES: [(&str, ScalarType); 14] = [
    ("float", ScalarType::F32),
    ("double", ScalarType::F64),
    ("int", ScalarType::S32),
    ("unsigned", ScalarType::U32),
    ("half", ScalarType::F16),
    ("__half", ScalarType::F16),
    ("__nv_bfloat16", ScalarType::Bf16),
    ("nv_bfloat16", ScalarType::Bf16),
    ("int32_t", ScalarType::S32),
    ("uint32_t", ScalarType::U32),
    ("int8_t", ScalarType::S8),
    ("uint8_t", ScalarType::U8),
    ("short", ScalarType::S16),
    ("char", ScalarType::S8),
];

/// Declarations of arrays in shared memory, and constants.
#[derive(Debug, Default)]
pub struct Declarations {
    /// By name: type, and the expression of each extent.
    arrays: BTreeMap<String, (Option<ScalarType>, Vec<String>)>,
    constants: BTreeMap<String, i64>,
}

impl Declarations {
    /// Reads the declarations of a source. `defines` are macros of the command line, `NAME=VALUE`.
    pub fn of(source: &str, defines: &[String]) -> Declarations {
        let mut known = Declarations::default();
        let number = |text: &str| text.trim().trim_end_matches(['u', 'U', 'l', 'L']).parse::<i64>().ok();
        for define in defines {
            if let Some((name, value)) = define.split_once('=') {
                known.constants.extend(number(value).map(|value| (name.into(), value)));
            }
        }
        for line in source.lines() {
            let line = line.split("//").next().unwrap_or_default().trim();
            let pair = match line.strip_prefix("#define ") {
                Some(define) => define.trim().split_once(char::is_whitespace),
                None if line.contains("const") => line.split_once('='),
                None => None,
            };
            let Some((name, value)) = pair else { continue };
            let name = name.trim().rsplit([' ', '*']).next().unwrap_or_default();
            if let Some(value) = known.value(value.trim().trim_end_matches(';'), None) {
                known.constants.entry(name.into()).or_insert(value);
            }
        }
        for declaration in source.split("__shared__").skip(1) {
            known.add(declaration.split([';', '=']).next().unwrap_or_default());
        }
        known
    }

    /// Parses and adds a declaration such as `float a[16][17], b[4]`.
    fn add(&mut self, declaration: &str) {
        let before = declaration.split('[').next().unwrap_or_default();
        let mut words: Vec<&str> = before.split_whitespace().collect();
        words.pop();
        let ty = words.iter().find_map(|word| TYPES.iter().find(|(name, _)| name == word)).map(|&(_, ty)| ty);
        for declarator in declaration.split(',') {
            let (name, extents) = declarator.split_once('[').unwrap_or((declarator, ""));
            let name = name.trim().rsplit([' ', '*', '&']).next().unwrap_or_default();
            let extents = extents.split('[').filter_map(|extent| Some(extent.split(']').next()?.trim().to_owned()));
            let extents = extents.filter(|extent| !extent.is_empty()).collect();
            self.arrays.entry(name.into()).or_insert((ty, extents));
        }
    }

    /// Type and extents of an array of `bytes` bytes; no extents if they are unknown.
    pub fn find(&self, name: &str, bytes: u64) -> Option<(Option<ScalarType>, Vec<u64>)> {
        let (ty, extents) = self.arrays.get(name)?;
        let elements = bytes / u64::from(ty.map_or(4, ScalarType::size));
        let all = |unknown: Option<i64>| -> Option<Vec<u64>> {
            let values = extents.iter().map(|extent| self.value(extent, unknown).and_then(|n| u64::try_from(n).ok()));
            values.collect::<Option<Vec<u64>>>().filter(|values| {
                !values.is_empty() && values.iter().try_fold(1u64, |n, &extent| n.checked_mul(extent)) == Some(elements)
            })
        };
        let found = all(None).or_else(|| (1..=LARGEST).find_map(|unknown| all(Some(unknown))));
        Some((*ty, found.unwrap_or_default()))
    }

    /// Evaluates an expression of numbers and constants with `+ - * /` and parentheses. Unknown
    /// names have the value `unknown`.
    fn value(&self, text: &str, unknown: Option<i64>) -> Option<i64> {
        let mut parser = Parser { rest: text.trim(), known: self, unknown };
        let value = parser.sum(0)?;
        parser.rest.is_empty().then_some(value)
    }
}

struct Parser<'a> {
    rest: &'a str,
    known: &'a Declarations,
    unknown: Option<i64>,
}

impl Parser<'_> {
    fn take(&mut self, of: &[char]) -> Option<char> {
        let first = self.rest.chars().next().filter(|c| of.contains(c))?;
        self.rest = self.rest[first.len_utf8()..].trim_start();
        Some(first)
    }

    fn sum(&mut self, depth: u32) -> Option<i64> {
        let mut value = self.product(depth)?;
        while let Some(sign) = self.take(&['+', '-']) {
            let other = self.product(depth)?;
            value = if sign == '+' { value.checked_add(other)? } else { value.checked_sub(other)? };
        }
        Some(value)
    }

    fn product(&mut self, depth: u32) -> Option<i64> {
        let mut value = self.factor(depth)?;
        while let Some(sign) = self.take(&['*', '/']) {
            let other = self.factor(depth)?;
            value = if sign == '*' { value.checked_mul(other)? } else { value.checked_div(other)? };
        }
        Some(value)
    }

    fn factor(&mut self, depth: u32) -> Option<i64> {
        if depth > 16 {
            return None;
        }
        if self.take(&['(']).is_some() {
            let value = self.sum(depth + 1)?;
            return self.take(&[')']).map(|_| value);
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        match word.bytes().next()? {
            b'0'..=b'9' => word.trim_end_matches(['u', 'U', 'l', 'L']).parse().ok(),
            _ => self.known.constants.get(word).copied().or(self.unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
constexpr int ROWS = 8; // rows
#define COLS (2 * ROWS)
template <int TILE> __global__ void f() {
    __shared__ float As[TILE][TILE + 1], flat[COLS];
    __shared__ half h[ROWS][COLS];
    extern __shared__ double rest[];
    __shared__ int count;
}";

    #[test]
    fn extents_are_those_of_the_source() {
        let known = Declarations::of(SOURCE, &[]);
        assert_eq!(known.find("As", 16 * 17 * 4), Some((Some(ScalarType::F32), vec![16, 17])));
        assert_eq!(known.find("flat", 64), Some((Some(ScalarType::F32), vec![16])));
        assert_eq!(known.find("h", 256), Some((Some(ScalarType::F16), vec![8, 16])));
        assert_eq!(known.find("rest", 64), Some((Some(ScalarType::F64), vec![])));
        assert_eq!(known.find("count", 4), Some((Some(ScalarType::S32), vec![])));
        assert_eq!(known.find("other", 4), None);
        assert_eq!(known.find("As", 1000), Some((Some(ScalarType::F32), vec![])), "of no square");
    }

    #[test]
    fn macros_of_the_command_line_come_first() {
        let known = Declarations::of("#define N 4\n__shared__ int a[N][2];", &["N=8".into()]);
        assert_eq!(known.find("a", 64), Some((Some(ScalarType::S32), vec![8, 2])));
    }
}
