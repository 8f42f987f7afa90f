//! The header of a `.npy` file: which numbers, how many, in which order.
//!
//! The dictionary is a Python literal and is parsed as one; whatever it claims is checked here before anybody allocates by it.
//! A refusal is the half of a sentence that follows the file's name.

use std::io::Read;

use py_literal::Value;
use tegula::element::Type;

use crate::Refusal;

const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy itself reads no more than 10,000 characters unless it is told to trust the file.
const LONGEST: usize = 1 << 16;
const TAKES: &str = "Tegula takes float64, float32, float16, int32, int8, and bfloat16 stored as '<V2'";

/// What a header says about a matrix.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    pub ty: Type,
    pub big_endian: bool,
    pub fortran: bool,
    pub rows: usize,
    pub cols: usize,
    /// Elements.
    pub len: usize,
}

impl Header {
    /// Reads a header and stops at the first byte after it. Also says how many bytes that were.
    pub fn read(source: &mut impl Read) -> Result<(Header, u64), Refusal> {
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
        let (ty, big_endian) = parse_descr(field(&dict, "descr")?)?;
        let fortran = match field(&dict, "fortran_order")? {
            Value::Boolean(fortran) => *fortran,
            _ => return Err(damaged("'fortran_order' is neither True nor False")),
        };
        let [rows, cols] = parse_shape(field(&dict, "shape")?)?;
        let len =
            rows.checked_mul(cols).filter(|len| len.checked_mul(ty.size()).is_some_and(|x| x <= isize::MAX as usize));
        let len =
            len.ok_or_else(|| damaged(&format!("it claims {rows}×{cols} elements, more than can be addressed")))?;
        Ok(Header { ty, big_endian, fortran, rows, cols, len })
    }

    /// The bytes of a version 1 header for a matrix in C order, with which the data starts at a multiple of 64.
    pub fn print(ty: Type, rows: usize, cols: usize) -> Vec<u8> {
        let dict = format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({rows}, {cols}), }}", descr(ty));
        let unpadded = MAGIC.len() + 4 + dict.len() + 1;
        let padding = unpadded.next_multiple_of(64) - unpadded;
        let text = format!("{dict}{:padding$}\n", "");
        let len = u16::try_from(text.len()).expect("two numbers and a type name are short");
        [MAGIC, &[1, 0], &len.to_le_bytes(), text.as_bytes()].concat()
    }
}

/// How long the dictionary is and how many bytes precede it.
struct TextLen {
    value: usize,
    ends_at: usize,
}

fn read_prelude(source: &mut impl Read) -> Result<TextLen, Refusal> {
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
            "has a header of {value} bytes, far more than a matrix needs; give a 2-D array of numbers"
        ));
    }
    Ok(TextLen { value, ends_at: start.len() + wide })
}

fn parse_dict(text: &str) -> Result<Vec<(Value, Value)>, Refusal> {
    let no_dict = || damaged("its header is not a dictionary as NumPy writes it");
    // The parser recurses; what NumPy writes for a plain array is two levels deep.
    let depth = text.bytes().scan(0i32, |depth, byte| {
        *depth += i32::from(b"([{".contains(&byte)) - i32::from(b")]}".contains(&byte));
        Some(*depth)
    });
    if depth.max().unwrap_or(0) > 16 {
        return Err(no_dict());
    }
    match text.trim().parse() {
        Ok(Value::Dict(dict)) => Ok(dict),
        _ => Err(no_dict()),
    }
}

fn field<'a>(dict: &'a [(Value, Value)], name: &str) -> Result<&'a Value, Refusal> {
    let named = |key: &Value| matches!(key, Value::String(key) if key == name);
    let found = dict.iter().find(|(key, _)| named(key));
    found.map(|(_, value)| value).ok_or_else(|| damaged(&format!("its header has no '{name}'")))
}

fn parse_descr(value: &Value) -> Result<(Type, bool), Refusal> {
    let Value::String(descr) = value else {
        return Err("holds a structured array; give one field of it, for example np.save(file, a['name'])".into());
    };
    let (order, code) = split_first(descr);
    let ty = match code {
        "f8" => Type::F64,
        "f4" => Type::F32,
        "f2" => Type::F16,
        "V2" => Type::BF16,
        "i4" => Type::I32,
        "i1" => Type::I8,
        "O" => return Err("holds Python objects; save numbers instead, for example a.astype(np.float64)".into()),
        code => return Err(unknown_type(descr, code)),
    };
    match order {
        ">" => Ok((ty, true)),
        "<" => Ok((ty, false)),
        "|" if matches!(ty, Type::I8 | Type::BF16) => Ok((ty, false)),
        _ => Err(damaged(&format!("its number type '{}' has no byte order", descr.escape_debug()))),
    }
}

/// The first character and the rest.
fn split_first(text: &str) -> (&str, &str) {
    text.split_at(text.chars().next().map_or(0, char::len_utf8))
}

fn unknown_type(descr: &str, code: &str) -> Refusal {
    let bits = |kind: &str, bytes: &str| {
        bytes.parse().map_or(descr.to_string(), |n: u32| format!("{kind}{}", n.saturating_mul(8)))
    };
    let descr = descr.escape_debug();
    let (kind, size) = split_first(code);
    let (name, target) = match kind {
        "i" => (bits("int", size), "int32"),
        "u" => (bits("uint", size), "int32"),
        "f" => (bits("float", size), "float64"),
        "b" => ("bool".into(), "int8"),
        "c" => return format!("holds {}; save its real and imaginary parts apart; {TAKES}", bits("complex", size)),
        "S" | "U" => return format!("holds text ('{descr}'); give an array of numbers; {TAKES}"),
        _ => return format!("holds the type '{descr}'; give an array of numbers; {TAKES}"),
    };
    format!("holds {name}; convert it first, for example np.save(file, a.astype(np.{target})); {TAKES}")
}

fn parse_shape(value: &Value) -> Result<[usize; 2], Refusal> {
    let (Value::Tuple(extents) | Value::List(extents)) = value else {
        return Err(damaged("'shape' is not a tuple"));
    };
    if let [rows, cols] = &extents[..] {
        return Ok([extent(rows)?, extent(cols)?]);
    }
    let listed = extents.iter().map(|x| extent(x).map(|x| x.to_string())).collect::<Result<Vec<_>, _>>()?;
    let hint = match listed.len() {
        1 => "a[np.newaxis, :] for a row, a[:, np.newaxis] for a column",
        _ => "a.reshape(rows, columns), or one matrix of it",
    };
    Err(format!("holds a {}-D array ({}); give a 2-D array: {hint}", listed.len(), listed.join("×")))
}

fn extent(value: &Value) -> Result<usize, Refusal> {
    match value {
        Value::Integer(extent) => {
            usize::try_from(extent).map_err(|_| damaged(&format!("an extent of {extent} cannot be")))
        }
        _ => Err(damaged("an extent is not an integer")),
    }
}

/// Fills as much of the buffer as the source has.
pub fn read_up_to(source: &mut impl Read, buffer: &mut [u8]) -> Result<usize, Refusal> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("cannot be read: {error}")),
        }
    }
    Ok(filled)
}

fn damaged(why: &str) -> Refusal {
    format!("is damaged: {why}; save it again with np.save")
}

const fn descr(ty: Type) -> &'static str {
    match ty {
        Type::F64 => "<f8",
        Type::F32 => "<f4",
        Type::F16 => "<f2",
        Type::BF16 => "<V2",
        Type::I8 => "|i1",
        Type::U8 => "|u1",
        Type::I32 => "<i4",
        Type::U32 => "<u4",
        Type::I64 => "<i8",
        Type::U64 => "<u8",
        Type::Pred => "|b1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_header_is_read_back() {
        for ty in [Type::F64, Type::F32, Type::F16, Type::BF16, Type::I32, Type::I8] {
            let bytes = Header::print(ty, 3, 100_000_000);
            assert_eq!(bytes.len() % 64, 0);
            let (header, end) = Header::read(&mut &bytes[..]).unwrap();
            assert_eq!(end, bytes.len() as u64);
            assert_eq!((header.ty, header.rows, header.cols, header.fortran), (ty, 3, 100_000_000, false));
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
        assert!(parse("'<f8'", "()").contains("0-D"));
        assert!(parse("'<f8'", "(2, 'x')").contains("not an integer"));
        assert!(parse("'=f8'", "(2, 2)").contains("byte order"));
        assert!(parse("'éé'", "(2, 2)").contains("holds the type 'éé'"));
        assert!(parse("''", "(2, 2)").contains("holds the type ''"));
        assert!(parse("'<\\n'", "(2, 2)").contains("holds the type '<\\n'"));
        assert!(parse("'<c16'", "(2, 2)").contains("complex128"));
        assert!(parse(&"[".repeat(60_000), "(2, 2)").contains("not a dictionary"));
        assert!(Header::parse("{}").unwrap_err().contains("no 'descr'"));
    }

    #[test]
    fn no_damaged_byte_makes_a_panic() {
        let good = Header::print(Type::F32, 12, 34);
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
