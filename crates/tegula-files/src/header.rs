//! The header of a `.npy` file: which numbers, how many, in which order.
//!
//! The dictionary is a Python literal and is parsed as one; whatever it claims is checked here before anybody allocates by it.
//! A refusal is the half of a sentence that follows the file's name.

use std::io::Read;

use tegula_core::nd;

use crate::Refusal;
use crate::dtype::Dtype;
use crate::literal::Value;
use crate::reading::read_up_to;
use crate::text::quoted;

const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy itself reads no longer header unless it is told to trust the file.
const LONGEST: usize = 10_000;
/// NumPy itself knows no more dimensions.
const MOST_DIMENSIONS: usize = 64;
const TAKES: &str =
    "Tegula takes float64, float32, float16, integers of 8 to 64 bits, bool, and bfloat16 stored as '<V2'";

/// What a header says about an array.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    pub dtype: Dtype,
    pub big_endian: bool,
    pub fortran: bool,
    pub shape: Vec<usize>,
    /// Elements.
    pub len: usize,
}

impl Header {
    /// Reads a header and stops at the first byte after it. Also says how many bytes that were.
    pub fn read(source: &mut dyn Read) -> Result<(Header, u64), Refusal> {
        let text_len = read_prelude(source)?;
        let mut text = vec![0; text_len.value];
        let found = read_up_to(source, &mut text)?;
        if found < text.len() {
            return Err(format!("is truncated: its header takes {} bytes, {found} are there", text.len()));
        }
        let header = Header::parse(&String::from_utf8_lossy(&text))?;
        Ok((header, (text_len.ends_at + text.len()) as u64))
    }

    /// Reads the dictionary.
    fn parse(text: &str) -> Result<Header, Refusal> {
        let dict = parse_dict(text)?;
        let (dtype, big_endian) = parse_descr(field(&dict, "descr")?)?;
        let fortran = match field(&dict, "fortran_order")? {
            Value::Boolean(fortran) => *fortran,
            _ => return Err(damaged("'fortran_order' is neither True nor False")),
        };
        let shape = parse_shape(field(&dict, "shape")?)?;
        let len =
            nd::len(&shape).ok().filter(|len| len.checked_mul(dtype.size()).is_some_and(|x| x <= isize::MAX as usize));
        let claimed = nd::display(&shape);
        let len = len.ok_or_else(|| damaged(&format!("it claims {claimed} elements, more than can be addressed")))?;
        Ok(Header { dtype, big_endian, fortran, shape, len })
    }

    /// Bytes that the elements take.
    pub fn bytes(&self) -> u64 {
        // The product was checked when the header was parsed.
        (self.len * self.dtype.size()) as u64
    }

    /// The bytes of a version 1 header for an array in C order, with which the data starts at a multiple of 64, or `None` where
    /// NumPy has no such type.
    pub fn print(dtype: Dtype, shape: &[usize]) -> Option<Vec<u8>> {
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

/// How long the dictionary is and how many bytes precede it.
struct TextLen {
    value: usize,
    ends_at: usize,
}

fn read_prelude(source: &mut dyn Read) -> Result<TextLen, Refusal> {
    let mut start = [0; 8];
    let found = read_up_to(source, &mut start)?;
    let magic = found.min(MAGIC.len());
    if found == 0 {
        return Err("is empty; give a .npy file, as np.save writes it".into());
    }
    if start[..magic] != MAGIC[..magic] {
        return Err("is not a .npy file (it does not start with \\x93NUMPY); save the array with np.save".into());
    }
    let wide = match (found, start[6], start[7]) {
        (8, 1, 0) => 2,
        (8, 2 | 3, 0) => 4,
        (8, major, minor) => {
            return Err(format!(
                "has .npy version {major}.{minor}, which is unknown; save it again as version 1, 2 or 3"
            ));
        }
        _ => return Err(format!("is truncated: it ends after {found} bytes, within its header")),
    };
    let mut len = [0; 4];
    if read_up_to(source, &mut len[..wide])? < wide {
        return Err("is truncated: it ends within its header".into());
    }
    let value = u32::from_le_bytes(len) as usize;
    if value > LONGEST {
        return Err(format!(
            "has a header of {value} bytes, far more than an array of numbers needs; save it again with np.save"
        ));
    }
    Ok(TextLen { value, ends_at: start.len() + wide })
}

fn parse_dict(text: &str) -> Result<Vec<(Value, Value)>, Refusal> {
    match Value::parse(text) {
        Some(Value::Dict(dict)) => Ok(dict),
        _ => Err(damaged("its header is not a dictionary as NumPy writes it")),
    }
}

fn field<'a>(dict: &'a [(Value, Value)], name: &str) -> Result<&'a Value, Refusal> {
    let named = |key: &Value| matches!(key, Value::String(key) if key == name);
    let found = dict.iter().find(|(key, _)| named(key));
    found.map(|(_, value)| value).ok_or_else(|| damaged(&format!("its header has no '{name}'")))
}

fn parse_descr(value: &Value) -> Result<(Dtype, bool), Refusal> {
    let Value::String(descr) = value else {
        return Err("holds a structured array; give one field of it, for example np.save(file, a['name'])".into());
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
        "O" => return Err("holds Python objects; save numbers instead, for example a.astype(np.float64)".into()),
        code => return Err(unknown_type(descr, code)),
    };
    match order {
        ">" => Ok((dtype, true)),
        "<" => Ok((dtype, false)),
        "|" if dtype.size() == 1 || dtype == Dtype::BF16 => Ok((dtype, false)),
        _ => Err(damaged(&format!("its number type {} has no byte order", quoted(descr.as_bytes())))),
    }
}

/// The first character and the rest.
fn split_first(text: &str) -> (&str, &str) {
    text.split_at(text.chars().next().map_or(0, char::len_utf8))
}

fn unknown_type(descr: &str, code: &str) -> Refusal {
    let (kind, size) = split_first(code);
    let descr = quoted(descr.as_bytes());
    let bits = |kind: &str| size.parse().map_or(descr.clone(), |n: u32| format!("{kind}{}", n.saturating_mul(8)));
    match kind {
        "f" | "V" if size == "1" => {
            format!("holds 8-bit floats ({descr}), of which .npy does not say the kind; save them as .safetensors")
        }
        "f" => format!(
            "holds {}; convert it first, for example np.save(file, a.astype(np.float64)); {TAKES}",
            bits("float")
        ),
        "c" => format!("holds {}; save its real and imaginary parts apart; {TAKES}", bits("complex")),
        "S" | "U" => format!("holds text ({descr}); give an array of numbers; {TAKES}"),
        _ => format!("holds the type {descr}; give an array of numbers; {TAKES}"),
    }
}

fn parse_shape(value: &Value) -> Result<Vec<usize>, Refusal> {
    let Value::Sequence(extents) = value else {
        return Err(damaged("'shape' is not a tuple"));
    };
    if extents.len() > MOST_DIMENSIONS {
        return Err(damaged(&format!("it claims {} dimensions", extents.len())));
    }
    extents.iter().map(extent).collect()
}

fn extent(value: &Value) -> Result<usize, Refusal> {
    match value {
        Value::Integer(extent) => {
            extent.parse().map_err(|_| damaged(&format!("an extent of {} cannot be", quoted(extent.as_bytes()))))
        }
        _ => Err(damaged("an extent is not an integer")),
    }
}

fn damaged(why: &str) -> Refusal {
    format!("is damaged: {why}; save it again with np.save")
}

/// The type's name in a header. 8-bit floats have none that NumPy reads back.
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
    fn a_printed_header_is_read_back() {
        for &dtype in Dtype::ALL {
            for shape in [&[][..], &[7], &[3, 100_000_000], &[0, 5, 2]] {
                let Some(bytes) = Header::print(dtype, shape) else {
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
    fn claims_are_checked() {
        let parse = |descr: &str, shape: &str| {
            Header::parse(&format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}")).unwrap_err()
        };
        assert!(parse("'<f8'", "(4294967296, 4294967296)").contains("more than can be addressed"));
        assert!(parse("'<f8'", "(18446744073709551616, 1)").contains("cannot be"));
        assert!(parse("'<f8'", "(-1, 1)").contains("cannot be"));
        assert!(parse("'<f8'", &format!("({})", "1,".repeat(65))).contains("65 dimensions"));
        assert!(parse("'<V1'", "(2, 2)").contains("8-bit floats"));
        assert!(parse("'<f8'", "(2, 'x')").contains("not an integer"));
        assert!(parse("'=f8'", "(2, 2)").contains("byte order"));
        assert!(parse("'éé'", "(2, 2)").contains("holds the type 'éé'"));
        assert!(parse("''", "(2, 2)").contains("holds the type ''"));
        assert!(parse("'<\\n'", "(2, 2)").contains("holds the type '<\\n'"));
        assert!(parse("'<c16'", "(2, 2)").contains("complex128"));
        assert!(parse("[('a', [('b', '<f8', (2,))])]", "(2, 2)").contains("structured"));
        for deep in [
            "[".repeat(60_000),
            "{".repeat(15),
            // What looks like closing brackets first.
            format!("{{'{}': {}", ")".repeat(40), "{".repeat(15)),
            format!("{{'\\'{}': {}", ")".repeat(40), "{".repeat(15)),
            format!("{{'\\N{{'}}': {}", "{".repeat(15)),
        ] {
            assert!(parse(&deep, "(2, 2)").contains("not a dictionary"));
            assert!(Header::parse(&deep).unwrap_err().contains("not a dictionary"));
        }
        assert!(parse("'<f8'", &format!("({},)", "9".repeat(10_000))).len() < 200);
        assert!(parse(&format!("'<{}'", "x".repeat(10_000)), "(2, 2)").len() < 400);
        assert!(Header::parse("{}").unwrap_err().contains("no 'descr'"));
    }

    #[test]
    fn no_damaged_byte_makes_a_panic() {
        let good = Header::print(Dtype::F32, &[12, 34]).unwrap();
        for position in 0..good.len() {
            for byte in 0..=255 {
                let mut bytes = good.clone();
                bytes[position] = byte;
                if let Err(why) = Header::read(&mut &bytes[..]) {
                    assert!(!why.contains('\n'), "{why}");
                }
            }
        }
    }
}
