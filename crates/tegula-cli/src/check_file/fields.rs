//! Structures by value: fields as JSON, packed as C++ lays them out.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use tegula_ptx::ast::ScalarType;

use super::element::{self, Number};

/// A field of a structure, or an element of a list.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    Number(Number),
    Bool(bool),
    /// A number with its type, such as `f64:2.5`.
    Typed(ScalarType, Number),
    /// A structure or an array.
    Group(Vec<Field>),
}

impl Field {
    /// Parses a JSON value. The names of an object's fields are for the reader only.
    ///
    /// # Errors
    /// The position and the reason.
    pub fn parse(json: &str) -> Result<Field, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    /// The whole numbers of a list, if it has nothing else.
    pub fn extents(fields: &[Field]) -> Option<Vec<u64>> {
        let extent = |field: &Field| match field {
            Field::Number(Number::Integer(extent)) => u64::try_from(*extent).ok(),
            _ => None,
        };
        fields.iter().map(extent).collect()
    }

    /// The numbers of a list, nested or not, in order.
    pub fn numbers(fields: &[Field]) -> Vec<Number> {
        let each = |field: &Field| match field {
            Field::Number(number) | Field::Typed(_, number) => vec![*number],
            Field::Bool(value) => vec![Number::Integer((*value).into())],
            Field::Group(fields) => Field::numbers(fields),
        };
        fields.iter().flat_map(each).collect()
    }
}

/// The bytes of a structure. Integers are `i32`, or `i64` beyond its range; other numbers are
/// `f32`; `true` and `false` are one byte. A field is aligned to its size, a structure to its
/// largest field.
///
/// # Errors
/// A value that its type does not have.
pub fn pack(fields: &[Field]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let align = append(fields, &mut bytes)?;
    bytes.resize(bytes.len().next_multiple_of(align), 0);
    Ok(bytes)
}

/// Appends the fields of a structure that starts at a multiple of its alignment; returns that.
fn append(fields: &[Field], bytes: &mut Vec<u8>) -> Result<usize, String> {
    let mut align = 1;
    for field in fields {
        let (field, own) = match field {
            Field::Group(fields) => {
                let mut inner = Vec::new();
                let align = append(fields, &mut inner)?;
                inner.resize(inner.len().next_multiple_of(align), 0);
                (inner, align)
            }
            Field::Bool(value) => (vec![u8::from(*value)], 1),
            Field::Number(number) => aligned(*number, default_type(*number))?,
            Field::Typed(ty, number) => aligned(*number, *ty)?,
        };
        bytes.resize(bytes.len().next_multiple_of(own), 0);
        bytes.extend(field);
        align = align.max(own);
    }
    Ok(align)
}

fn aligned(number: Number, ty: ScalarType) -> Result<(Vec<u8>, usize), String> {
    Ok((number.encode(ty)?, ty.size() as usize))
}

fn default_type(number: Number) -> ScalarType {
    match number {
        Number::Integer(value) if i32::try_from(value).is_ok() => ScalarType::S32,
        Number::Integer(value) if u32::try_from(value).is_ok() => ScalarType::U32,
        Number::Integer(_) => ScalarType::S64,
        Number::Real(_) => ScalarType::F32,
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldVisitor)
    }
}

/// Keeps the order of fields, which a map of `serde_json` does not.
struct FieldVisitor;

impl<'de> Visitor<'de> for FieldVisitor {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a text such as \"f64:2.5\", a list or an object")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Field, E> {
        Ok(Field::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Field, E> {
        Ok(Field::Number(Number::Integer(value.into())))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Field, E> {
        Ok(Field::Number(Number::Integer(value.into())))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Field, E> {
        Ok(Field::Number(Number::Real(value)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Field, E> {
        let typed = text.split_once(':').and_then(|(ty, number)| Some((element::named(ty)?, Number::parse(number)?)));
        let (ty, number) =
            typed.ok_or_else(|| E::custom(format!("\"{text}\" is not a typed number such as \"f64:2.5\"")))?;
        Ok(Field::Typed(ty, number))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Field, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = list.next_element()? {
            fields.push(field);
        }
        Ok(Field::Group(fields))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Field, A::Error> {
        let mut fields = Vec::new();
        while let Some((_, field)) = map.next_entry::<String, Field>()? {
            fields.push(field);
        }
        Ok(Field::Group(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(json: &str) -> Result<Vec<u8>, String> {
        match Field::parse(json)? {
            Field::Group(fields) => pack(&fields),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn fields_keep_their_order_and_are_aligned() {
        let bytes = packed(r#"{"z": 1, "a": 2.5, "flag": true, "d": "f64:-1"}"#).unwrap();
        let expected =
            [&1i32.to_le_bytes()[..], &2.5f32.to_le_bytes(), &[1, 0, 0, 0, 0, 0, 0, 0], &(-1f64).to_le_bytes()];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn structure_in_a_structure_has_its_own_alignment() {
        assert_eq!(packed(r#"["u8:1", ["u8:2", "u16:3"], "u8:4"]"#).unwrap(), [1, 0, 2, 0, 3, 0, 4, 0]);
        assert_eq!(packed("[1, [\"i64:2\"]]").unwrap().len(), 16);
        assert_eq!(packed("[3000000000]").unwrap(), 3_000_000_000u32.to_le_bytes());
    }

    #[test]
    fn wrong_fields_are_refused() {
        for wrong in ["[1", "[\"x\"]", "[null]", "[\"u8:256\"]"] {
            assert!(packed(wrong).is_err(), "{wrong}");
        }
        let nested = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Field::parse(&nested).is_err());
    }
}
