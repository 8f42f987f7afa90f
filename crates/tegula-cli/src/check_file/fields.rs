//! Structures by value: parses their fields from JSON, and packs them in the layout of C++.

use std::collections::BTreeMap;
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
    /// Parses a JSON value. The names of an object's fields are ignored; their order matters.
    ///
    /// # Errors
    /// The position and the reason.
    pub fn parse(json: &str) -> Result<Field, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    /// The integers of a list; `None` if it has other elements.
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

/// The types that a kernel loads from a structure, by offset in bytes.
pub type Loads = BTreeMap<usize, ScalarType>;

/// The bytes of a structure. A field has the type that the kernel loads, if it loads one there;
/// otherwise integers are `i32`, or `i64` beyond its range, and other numbers are `f32`. `true` and
/// `false` are one byte. A field is aligned to its size, a structure to its largest field.
///
/// # Errors
/// A value that its type does not have.
pub fn pack(fields: &[Field], loads: &Loads) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let align = append(fields, loads, &mut bytes)?;
    bytes.resize(bytes.len().next_multiple_of(align), 0);
    Ok(bytes)
}

/// Appends the fields of a structure to the bytes before it; returns its alignment.
fn append(fields: &[Field], loads: &Loads, bytes: &mut Vec<u8>) -> Result<usize, String> {
    let mut align = 1;
    for field in fields {
        let (number, ty) = match field {
            Field::Group(fields) => {
                align = align.max(append_group(fields, loads, bytes)?);
                continue;
            }
            Field::Bool(value) => (Number::Integer((*value).into()), ScalarType::U8),
            Field::Typed(ty, number) => (*number, *ty),
            Field::Number(number) => match load_at(loads, bytes.len()) {
                Some(ty) if ty.is_float() => (*number, ty),
                Some(ty) => (number.whole(None)?, element::untyped(ty)),
                None => (*number, default_type(*number)),
            },
        };
        let size = ty.size() as usize;
        bytes.resize(bytes.len().next_multiple_of(size), 0);
        bytes.extend(number.encode(ty)?);
        align = align.max(size);
    }
    Ok(align)
}

fn append_group(fields: &[Field], loads: &Loads, bytes: &mut Vec<u8>) -> Result<usize, String> {
    let start = bytes.len();
    // The offset of the group depends on its alignment, and the loaded types depend on the offset.
    let mut align = 1;
    loop {
        bytes.truncate(start);
        bytes.resize(start.next_multiple_of(align), 0);
        let found = append(fields, loads, bytes)?;
        if found <= align {
            bytes.resize(bytes.len().next_multiple_of(align), 0);
            return Ok(align);
        }
        align = found;
    }
}

/// The type that is loaded from the next field.
fn load_at(loads: &Loads, at: usize) -> Option<ScalarType> {
    let (&offset, &ty) = loads.range(at..).next()?;
    let untyped = matches!(ty, ScalarType::B8 | ScalarType::B16 | ScalarType::B32 | ScalarType::B64 | ScalarType::B128);
    (offset == at.next_multiple_of(ty.size() as usize) && !untyped).then_some(ty)
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

/// A visitor that keeps the order of fields, unlike a map of `serde_json`.
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
            Field::Group(fields) => pack(&fields, &Loads::new()),
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
    fn fields_have_the_types_that_the_kernel_loads() {
        use ScalarType::{B32, F32, F64, U32, U64};
        let loads = Loads::from([(0, F32), (4, U32), (8, F64), (16, U64), (24, B32)]);
        let Ok(Field::Group(fields)) = Field::parse("[1, -2, 3, [4, 5]]") else { panic!("not a list") };
        let expected = [
            &1f32.to_le_bytes()[..],
            &(-2i32).to_le_bytes(),
            &3f64.to_le_bytes(),
            &4u64.to_le_bytes(),
            &5u64.to_le_bytes()[..8],
        ];
        assert_eq!(pack(&fields, &loads).unwrap(), expected.concat());
        let Ok(Field::Group(fields)) = Field::parse("[1, 2.5]") else { panic!("not a list") };
        assert!(pack(&fields, &loads).unwrap_err().contains("not a whole number"));
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
