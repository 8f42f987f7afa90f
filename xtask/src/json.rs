//! JSON as a tree: enough to read result files without a dependency.

use std::iter::Peekable;
use std::str::Chars;

/// A JSON value. Objects keep their order.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses a whole text.
    ///
    /// # Errors
    /// Anything but one JSON value, with the character at which parsing stopped.
    pub fn parse(text: &str) -> Result<Json, String> {
        let mut chars = text.chars().peekable();
        let value = value(&mut chars);
        let rest = chars.clone().count();
        match value {
            Some(value) if rest == 0 => Ok(value),
            _ => Err(format!("not JSON at character {}", text.chars().count() - rest)),
        }
    }

    /// The value under a key of an object.
    pub fn get(&self, key: &str) -> Option<&Json> {
        let Json::Object(entries) = self else { return None };
        entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub fn number(&self, key: &str) -> Option<f64> {
        let Some(Json::Number(number)) = self.get(key) else { return None };
        Some(*number)
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        let Some(Json::Text(text)) = self.get(key) else { return None };
        Some(text)
    }

    /// The elements under a key, none if it holds no array.
    pub fn array(&self, key: &str) -> &[Json] {
        let Some(Json::Array(elements)) = self.get(key) else { return &[] };
        elements
    }
}

fn value(chars: &mut Peekable<Chars<'_>>) -> Option<Json> {
    skip_space(chars);
    let value = match chars.peek()? {
        '{' => Json::Object(list(chars, '}', |chars| {
            let Json::Text(key) = value(chars)? else { return None };
            (chars.next()? == ':').then_some(())?;
            Some((key, value(chars)?))
        })?),
        '[' => Json::Array(list(chars, ']', value)?),
        '"' => Json::Text(string(chars)?),
        _ => {
            let mut word = String::new();
            while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || "+-.".contains(*c)) {
                word.push(c);
            }
            match word.as_str() {
                "null" => Json::Null,
                "true" => Json::Bool(true),
                "false" => Json::Bool(false),
                number => Json::Number(number.parse().ok()?),
            }
        }
    };
    skip_space(chars);
    Some(value)
}

fn list<T>(
    chars: &mut Peekable<Chars<'_>>,
    close: char,
    mut element: impl FnMut(&mut Peekable<Chars<'_>>) -> Option<T>,
) -> Option<Vec<T>> {
    chars.next();
    skip_space(chars);
    let mut elements = Vec::new();
    if chars.next_if_eq(&close).is_some() {
        return Some(elements);
    }
    loop {
        elements.push(element(chars)?);
        match chars.next()? {
            ',' => skip_space(chars),
            end => return (end == close).then_some(elements),
        }
    }
}

fn string(chars: &mut Peekable<Chars<'_>>) -> Option<String> {
    chars.next();
    let mut text = String::new();
    loop {
        text.push(match chars.next()? {
            '"' => return Some(text),
            '\\' => match chars.next()? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'u' => {
                    let digits: String = chars.by_ref().take(4).collect();
                    char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?
                }
                escaped => escaped,
            },
            plain => plain,
        });
    }
}

fn skip_space(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_text_is_parsed_to_a_tree() {
        let json = Json::parse(r#" {"a": [1, -2.5e3, {}], "b": "\u00e9\n", "c": null, "d": true} "#).unwrap();
        assert_eq!(json.array("a")[1], Json::Number(-2500.0));
        assert_eq!((json.text("b"), json.get("c"), json.number("d")), (Some("é\n"), Some(&Json::Null), None));
        for wrong in ["", "{", "[1,]", "[1 2]", "{\"a\" 1}", "\"", "1 2", "nul", "[}"] {
            assert!(Json::parse(wrong).is_err(), "{wrong}");
        }
    }
}
