//! Values on the command line, `NAME=VALUE`, before the types of parameters are known.

use tegula_files::ArrayPath;
use tegula_ptx::ast::ScalarType;

use super::element::{self, Number};
use super::fields::Field;

/// `NAME=VALUE`.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedValue {
    pub name: String,
    pub value: Value,
    /// The value as given, for messages.
    pub text: String,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `3`, `1e-3`, `f64:2`.
    Number(Option<ScalarType>, Number),
    /// `f32[100,70]`, `out:f32[100,50]`; the type can be omitted after a fill.
    Array(Fill, Option<ScalarType>, Vec<u64>),
    /// `[100,70]`: extents of an array, or the fields of a structure.
    List(Vec<Field>),
    /// `f32:[1,2,3]`: elements.
    Elements(ScalarType, Vec<Field>),
    /// `{"a": 2.5, "n": 500}`: the fields of a structure.
    Fields(Vec<Field>),
    /// `a.npy`, `f32:a.csv`: a file, converted to a type if one is given.
    File(Option<ScalarType>, ArrayPath),
    /// `@A`: the memory of another argument.
    Same(String),
    /// `hex:0102`: bytes.
    Bytes(Vec<u8>),
}

/// The initial elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Random normal numbers; integers of 8 bits for integer types.
    Random,
    /// Random integers from -8 to 8, also for floats.
    Integers,
    Zeros,
    Ones,
    /// 0, 1, 2, …
    Range,
    /// Nothing: a read before a write is an error.
    Uninitialized,
}

/// Fills by prefix.
const FILLS: [(&str, Fill); 5] = [
    ("out", Fill::Uninitialized),
    ("zero", Fill::Zeros),
    ("one", Fill::Ones),
    ("range", Fill::Range),
    ("int", Fill::Integers),
];

impl NamedValue {
    /// Parses `NAME=VALUE`.
    ///
    /// # Errors
    /// What is wrong, for a usage message.
    pub fn parse(text: &str) -> Result<NamedValue, String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err("give NAME=VALUE, such as n=100 or A=f32[100,70]".into());
        };
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() {
            return Err("the name before '=' is empty".into());
        }
        Ok(NamedValue { name: name.into(), value: Value::parse(value)?, text: value.into() })
    }
}

impl Value {
    fn parse(text: &str) -> Result<Value, String> {
        let json = |text: &str| match Field::parse(text)? {
            Field::Group(fields) => Ok(fields),
            _ => Err("not a list".to_owned()),
        };
        match text.as_bytes() {
            [] => return Err("the value after '=' is empty".into()),
            [b'@', ..] => return Ok(Value::Same(text[1..].into())),
            [b'[', ..] => return json(text).map(Value::List),
            [b'{', ..] => return json(text).map(Value::Fields),
            _ => {}
        }
        let prefixed = text.split_once(':');
        if let Some(("hex", digits)) = prefixed {
            return bytes(digits).map(Value::Bytes);
        }
        if let Some((prefix, array)) = prefixed
            && let Some(&(_, fill)) = FILLS.iter().find(|(name, _)| *name == prefix)
        {
            let (ty, shape) =
                array_of(array).ok_or(format!("give an array after '{prefix}:', such as {prefix}:f32[100,70]"))?;
            return Ok(Value::Array(fill, ty?, shape?));
        }
        if let Some((prefix, rest)) = prefixed
            && let Some(ty) = element::named(prefix)
        {
            return match Number::parse(rest) {
                Some(number) => Ok(Value::Number(Some(ty), number)),
                None if rest.starts_with('[') => Ok(Value::Elements(ty, json(rest)?)),
                None if rest.is_empty() => Err(format!("nothing follows '{prefix}:'; give a number, a list or a file")),
                None => Ok(Value::File(Some(ty), ArrayPath::parse(rest))),
            };
        }
        if let Some((ty, shape)) = array_of(text) {
            return Ok(Value::Array(Fill::Random, ty?, shape?));
        }
        Ok(match Number::parse(text) {
            Some(number) => Value::Number(None, number),
            None => Value::File(None, ArrayPath::parse(text)),
        })
    }
}

type Parsed<T> = Result<T, String>;

/// Type and extents of an array.
type ArrayText = (Parsed<Option<ScalarType>>, Parsed<Vec<u64>>);

/// `f32[100,70]` or `[100,70]`: type and extents; `None` for other forms.
fn array_of(text: &str) -> Option<ArrayText> {
    let (ty, rest) = text.split_once('[')?;
    let extents = rest.strip_suffix(']')?;
    // Other text before the bracket is part of a file name.
    if !ty.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let ty = match (ty, element::named(ty)) {
        ("", _) => Ok(None),
        (_, Some(ty)) => Ok(Some(ty)),
        (unknown, None) => Err(format!("unknown element type '{unknown}'; use one of {}", element::names())),
    };
    let extent = |extent: &str| {
        let extent = extent.trim();
        let wrong = || format!("extent '{extent}' is not a whole number; give extents such as [100,70]");
        extent.parse::<u64>().map_err(|_| wrong())
    };
    Some((ty, extents.split(',').map(extent).collect()))
}

/// The bytes of hexadecimal digits, two each.
fn bytes(digits: &str) -> Result<Vec<u8>, String> {
    let pair = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok().filter(|text| text.len() == 2 && !text.starts_with('+'))?;
        u8::from_str_radix(text, 16).ok()
    };
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(pair).collect();
    bytes.ok_or_else(|| "give two hexadecimal digits for each byte after 'hex:', such as hex:0000803f".into())
}

#[cfg(test)]
mod tests {
    use tegula_ptx::ast::ScalarType::{F16, F32, F64, U8};

    use super::*;

    fn value(text: &str) -> Value {
        NamedValue::parse(&format!("x={text}")).unwrap().value
    }

    #[test]
    fn value_forms_are_parsed() {
        use Number::{Integer, Real};
        let number = |number| Field::Number(number);
        for (text, expected) in [
            ("100", Value::Number(None, Integer(100))),
            ("f64:1e-3", Value::Number(Some(F64), Real(1e-3))),
            ("f32[100,70]", Value::Array(Fill::Random, Some(F32), vec![100, 70])),
            ("out:f16[ 3 ]", Value::Array(Fill::Uninitialized, Some(F16), vec![3])),
            ("out:[3,4]", Value::Array(Fill::Uninitialized, None, vec![3, 4])),
            ("zero:u8[5]", Value::Array(Fill::Zeros, Some(U8), vec![5])),
            ("int:f32[2]", Value::Array(Fill::Integers, Some(F32), vec![2])),
            ("[100,70]", Value::List(vec![number(Integer(100)), number(Integer(70))])),
            ("[1,2.5]", Value::List(vec![number(Integer(1)), number(Real(2.5))])),
            ("f32:[1,2]", Value::Elements(F32, vec![number(Integer(1)), number(Integer(2))])),
            ("{\"b\":1,\"a\":2}", Value::Fields(vec![number(Integer(1)), number(Integer(2))])),
            ("@A", Value::Same("A".into())),
            ("hex:0aFF", Value::Bytes(vec![10, 255])),
            ("a.npz:w", Value::File(None, ArrayPath::parse("a.npz:w"))),
            ("f32:a.csv", Value::File(Some(F32), ArrayPath::parse("a.csv"))),
            ("dir/a[1].npy", Value::File(None, ArrayPath::parse("dir/a[1].npy"))),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn wrong_values_are_refused() {
        for (text, expected) in [
            ("A", "give NAME=VALUE"),
            ("=3", "the name before '=' is empty"),
            ("A=", "the value after '=' is empty"),
            ("A=f31[3]", "unknown element type 'f31'; use one of f64, f32, f16, bf16, i64"),
            ("A=f32[3,x]", "extent 'x' is not a whole number"),
            ("A=f32[]", "extent '' is not a whole number"),
            ("A=out:a.npy", "give an array after 'out:'"),
            ("A=f32:", "nothing follows 'f32:'"),
            ("A=hex:abc", "two hexadecimal digits for each byte"),
            ("A=hex:+1", "two hexadecimal digits for each byte"),
            ("A=[1,", "EOF while parsing"),
        ] {
            let error = NamedValue::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
