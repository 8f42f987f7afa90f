//! Header of a `.npy` file: dtype, byte order, memory order and shape.
//!
//! The dictionary is parsed as a Python literal. Its claims are checked before memory is allocated.

use std::io::Read;

use tegula_core::nd;

use crate::ErrorMessage;
use crate::dtype::Dtype;
use crate::literal::Value;
use crate::options::read_up_to;
use crate::text::quoted;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Limit of NumPy for headers of untrusted files.
const MAX_HEADER_BYTES: usize = 10_000;
/// Limit of NumPy.
const MAX_DIMENSIONS: usize = 64;
const SUPPORTED: &str =
    "supported: float64, float32, float16, integers of 8 to 64 bits, bool, and bfloat16 stored as '<V2'";

/// Header of an array.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    pub dtype: Dtype,
    pub big_endian: bool,
    pub fortran: bool,
    pub shape: Vec<usize>,
    /// Number of elements.
    pub len: usize,
}

impl Header {
    /// Reads a header, up to the first byte after it. Returns its number of bytes as well.
    pub fn read(source: &mut dyn Read) -> Result<(Header, u64), ErrorMessage> {
        let text_len = read_prelude(source)?;
        let mut text = vec![0; text_len.value];
        let found = read_up_to(source, &mut text)?;
        if found < text.len() {
            return Err(format!("header is truncated: {} bytes are needed, found {found}", text.len()));
        }
        let header = Header::parse(&String::from_utf8_lossy(&text))?;
        Ok((header, (text_len.ends_at + text.len()) as u64))
    }

    /// Parses the dictionary.
    fn parse(text: &str) -> Result<Header, ErrorMessage> {
        let dict = parse_dict(text)?;
        let (dtype, big_endian) = parse_descr(field(&dict, "descr")?)?;
        let fortran = match field(&dict, "fortran_order")? {
            Value::Boolean(fortran) => *fortran,
            _ => return Err(corrupt("'fortran_order' is not True or False")),
        };
        let shape = parse_shape(field(&dict, "shape")?)?;
        let len =
            nd::len(&shape).ok().filter(|len| len.checked_mul(dtype.size()).is_some_and(|x| x <= isize::MAX as usize));
        let claimed = nd::display(&shape);
        let len = len.ok_or_else(|| corrupt(&format!("shape {claimed} exceeds the address space")))?;
        Ok(Header { dtype, big_endian, fortran, shape, len })
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> u64 {
        // The product was checked by `parse`.
        (self.len * self.dtype.size()) as u64
    }

    /// Formats a version 1 header for C order, padded to a multiple of 64 bytes.
    ///
    /// `None` for dtypes that NumPy lacks.
    pub fn format(dtype: Dtype, shape: &[usize]) -> Option<Vec<u8>> {
        let descr = descr(dtype)?;
        let extents = match shape {
            [extent] => format!("{extent},"),
            _ => shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
        };
        let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({extents}), }}");
        let unpadded = MAGIC.len() + 4 + dict.len() + 1;
        let padding = unpadded.next_multiple_of(64) - unpadded;
        let text = format!("{dict}{:padding$}\n", "");
        let len = u16::try_from(text.len()).ok()?;
        Some([MAGIC, &[1, 0], &len.to_le_bytes(), text.as_bytes()].concat())
    }
}

/// Length of the dictionary, and number of bytes before it.
struct TextLen {
    value: usize,
    ends_at: usize,
}

fn read_prelude(source: &mut dyn Read) -> Result<TextLen, ErrorMessage> {
    let mut start = [0; 8];
    let found = read_up_to(source, &mut start)?;
    let magic = found.min(MAGIC.len());
    if found == 0 {
        return Err("file is empty; use a .npy file as written by np.save".into());
    }
    if start[..magic] != MAGIC[..magic] {
        return Err("not a .npy file: it does not start with \\x93NUMPY; save the array with np.save".into());
    }
    let wide = match (found, start[6], start[7]) {
        (8, 1, 0) => 2,
        (8, 2 | 3, 0) => 4,
        (8, major, minor) => {
            return Err(format!("unsupported .npy version {major}.{minor}; save the array as version 1, 2 or 3"));
        }
        _ => return Err(format!("header is truncated: found {found} bytes")),
    };
    let mut len = [0; 4];
    if read_up_to(source, &mut len[..wide])? < wide {
        return Err("header is truncated".into());
    }
    let value = u32::from_le_bytes(len) as usize;
    if value > MAX_HEADER_BYTES {
        return Err(format!(
            "header of {value} bytes exceeds the limit of {MAX_HEADER_BYTES}; save the array again with np.save"
        ));
    }
    Ok(TextLen { value, ends_at: start.len() + wide })
}

fn parse_dict(text: &str) -> Result<Vec<(Value, Value)>, ErrorMessage> {
    match Value::parse(text) {
        Some(Value::Dict(dict)) => Ok(dict),
        _ => Err(corrupt("not a dictionary")),
    }
}

fn field<'a>(dict: &'a [(Value, Value)], name: &str) -> Result<&'a Value, ErrorMessage> {
    let named = |key: &Value| matches!(key, Value::String(key) if key == name);
    let found = dict.iter().find(|(key, _)| named(key));
    found.map(|(_, value)| value).ok_or_else(|| corrupt(&format!("'{name}' is missing")))
}

fn parse_descr(value: &Value) -> Result<(Dtype, bool), ErrorMessage> {
    let Value::String(descr) = value else {
        return Err("unsupported structured array; save one field, for example np.save(file, a['name'])".into());
    };
    let (order, code) = split_first(descr);
    let dtype = match code {
        "f8" => Dtype::F64,
        "f4" => Dtype::F32,
        "f2" => Dtype::F16,
        "V2" => Dtype::BF16,
        "i8" => Dtype::I64,
        "i4" => Dtype::I32,
        "i2" => Dtype::I16,
        "i1" => Dtype::I8,
        "u8" => Dtype::U64,
        "u4" => Dtype::U32,
        "u2" => Dtype::U16,
        "u1" => Dtype::U8,
        "b1" => Dtype::Bool,
        "O" => return Err("unsupported dtype: Python objects; save numbers, for example a.astype(np.float64)".into()),
        code => return Err(unknown_type(descr, code)),
    };
    match order {
        ">" => Ok((dtype, true)),
        "<" => Ok((dtype, false)),
        "|" if dtype.size() == 1 || dtype == Dtype::BF16 => Ok((dtype, false)),
        _ => Err(corrupt(&format!("dtype {} has no byte order", quoted(descr.as_bytes())))),
    }
}

/// Splits off the first character.
fn split_first(text: &str) -> (&str, &str) {
    text.split_at(text.chars().next().map_or(0, char::len_utf8))
}

fn unknown_type(descr: &str, code: &str) -> ErrorMessage {
    let (kind, size) = split_first(code);
    let descr = quoted(descr.as_bytes());
    let bits = |kind: &str| size.parse().map_or(descr.clone(), |n: u32| format!("{kind}{}", n.saturating_mul(8)));
    match kind {
        "f" | "V" if size == "1" => {
            format!("unsupported dtype {descr}: .npy does not specify the 8-bit float format; use .safetensors")
        }
        "f" => format!(
            "unsupported dtype {}; cast it first, for example np.save(file, a.astype(np.float64)); {SUPPORTED}",
            bits("float")
        ),
        "c" => format!("unsupported dtype {}; save real and imaginary parts separately; {SUPPORTED}", bits("complex")),
        "S" | "U" => format!("unsupported dtype {descr} (text); use an array of numbers; {SUPPORTED}"),
        _ => format!("unsupported dtype {descr}; use an array of numbers; {SUPPORTED}"),
    }
}

fn parse_shape(value: &Value) -> Result<Vec<usize>, ErrorMessage> {
    let Value::Sequence(extents) = value else {
        return Err(corrupt("'shape' is not a tuple"));
    };
    if extents.len() > MAX_DIMENSIONS {
        return Err(corrupt(&format!("{} dimensions exceed the limit of {MAX_DIMENSIONS}", extents.len())));
    }
    extents.iter().map(extent).collect()
}

fn extent(value: &Value) -> Result<usize, ErrorMessage> {
    match value {
        Value::Integer(extent) => {
            extent.parse().map_err(|_| corrupt(&format!("invalid extent {}", quoted(extent.as_bytes()))))
        }
        _ => Err(corrupt("an extent is not an integer")),
    }
}

fn corrupt(message: &str) -> ErrorMessage {
    format!("header is corrupt: {message}; save the array again with np.save")
}

/// Name of a dtype in a header. NumPy cannot read back names of 8-bit floats.
const fn descr(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::F64 => "<f8",
        Dtype::F32 => "<f4",
        Dtype::F16 => "<f2",
        Dtype::BF16 => "<V2",
        Dtype::F8E4M3 | Dtype::F8E5M2 => return None,
        Dtype::I64 => "<i8",
        Dtype::I32 => "<i4",
        Dtype::I16 => "<i2",
        Dtype::I8 => "|i1",
        Dtype::U64 => "<u8",
        Dtype::U32 => "<u4",
        Dtype::U16 => "<u2",
        Dtype::U8 => "|u1",
        Dtype::Bool => "|b1",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn npy_header_round_trips() {
        for &dtype in Dtype::ALL {
            for shape in [&[][..], &[7], &[3, 100_000_000], &[0, 5, 2]] {
                let Some(bytes) = Header::format(dtype, shape) else {
                    assert!(matches!(dtype, Dtype::F8E4M3 | Dtype::F8E5M2));
                    continue;
                };
                assert_eq!(bytes.len() % 64, 0);
                let (header, end) = Header::read(&mut &bytes[..]).unwrap();
                assert_eq!(end, bytes.len() as u64);
                assert_eq!((header.dtype, &header.shape[..], header.fortran), (dtype, shape, false));
            }
        }
    }

    #[test]
    fn npy_invalid_header_is_rejected() {
        let parse = |descr: &str, shape: &str| {
            Header::parse(&format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}")).unwrap_err()
        };
        assert!(parse("'<f8'", "(4294967296, 4294967296)").contains("exceeds the address space"));
        assert!(parse("'<f8'", "(18446744073709551616, 1)").contains("invalid extent"));
        assert!(parse("'<f8'", "(-1, 1)").contains("invalid extent"));
        assert!(parse("'<f8'", &format!("({})", "1,".repeat(65))).contains("65 dimensions exceed"));
        assert!(parse("'<V1'", "(2, 2)").contains("8-bit float format"));
        assert!(parse("'<f8'", "(2, 'x')").contains("not an integer"));
        assert!(parse("'=f8'", "(2, 2)").contains("byte order"));
        assert!(parse("'éé'", "(2, 2)").contains("unsupported dtype 'éé'"));
        assert!(parse("''", "(2, 2)").contains("unsupported dtype ''"));
        assert!(parse("'<\\n'", "(2, 2)").contains("unsupported dtype '<\\n'"));
        assert!(parse("'<c16'", "(2, 2)").contains("complex128"));
        assert!(parse("[('a', [('b', '<f8', (2,))])]", "(2, 2)").contains("structured"));
        for nested in [
            "[".repeat(60_000),
            "{".repeat(15),
            // Strings with brackets.
            format!("{{'{}': {}", ")".repeat(40), "{".repeat(15)),
            format!("{{'\\'{}': {}", ")".repeat(40), "{".repeat(15)),
            format!("{{'\\N{{'}}': {}", "{".repeat(15)),
        ] {
            assert!(parse(&nested, "(2, 2)").contains("not a dictionary"));
            assert!(Header::parse(&nested).unwrap_err().contains("not a dictionary"));
        }
        assert!(parse("'<f8'", &format!("({},)", "9".repeat(10_000))).len() < 200);
        assert!(parse(&format!("'<{}'", "x".repeat(10_000)), "(2, 2)").len() < 400);
        assert!(Header::parse("{}").unwrap_err().contains("'descr' is missing"));
    }

    #[test]
    fn npy_corrupt_byte_does_not_panic() {
        let good = Header::format(Dtype::F32, &[12, 34]).unwrap();
        for position in 0..good.len() {
            for byte in 0..=255 {
                let mut bytes = good.clone();
                bytes[position] = byte;
                if let Err(message) = Header::read(&mut &bytes[..]) {
                    assert!(!message.contains('\n'), "{message}");
                }
            }
        }
    }
}
