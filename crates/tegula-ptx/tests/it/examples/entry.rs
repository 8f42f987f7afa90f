//! A launch from a JSON file: its fields, its arguments, and the values of its buffers.

use std::collections::BTreeMap;

use half::{bf16, f16};
use serde::Deserialize;
use tegula_ptx::ast::ScalarType;
use tegula_ptx::{Argument, Buffer, Kernel, Launch, VariableValue};

/// Byte that fills outputs before a launch: an element of it was never stored.
const UNWRITTEN: u8 = 0xa5;

/// A launch, and what the checker must report. `examples/README.md` describes the fields.
#[derive(Debug, Deserialize)]
pub struct Entry {
    pub file: String,
    pub kernel: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub args: Vec<String>,
    pub expect: Option<String>,
    #[serde(default)]
    pub tolerance: f64,
    #[serde(default)]
    pub findings: Vec<Expected>,
    #[serde(default)]
    pub allowed: Vec<String>,
    #[serde(default)]
    pub cost: Vec<Cost>,
    pub prints: Option<String>,
    /// Names of formulas by the number of the argument.
    #[serde(default)]
    pub names: BTreeMap<String, usize>,
    /// Buffers with given elements, by the name of the argument.
    #[serde(default)]
    pub arrays: BTreeMap<String, Elements>,
}

/// A diagnostic that must be reported.
#[derive(Debug, Deserialize)]
pub struct Expected {
    pub kind: String,
    pub lines: Vec<u32>,
    /// Alternatives.
    #[serde(default)]
    pub or: Vec<Expected>,
}

/// Counters of a line.
#[derive(Debug, Deserialize)]
pub struct Cost {
    pub line: u32,
    pub sectors_per_request: Option<u64>,
    pub shared_wavefronts_per_request: Option<u64>,
}

/// Elements of a buffer.
#[derive(Debug, Deserialize)]
pub struct Elements {
    #[serde(rename = "type")]
    ty: String,
    values: Vec<f64>,
}

/// A launch with its buffers.
pub struct Prepared {
    pub launch: Launch,
    pub buffers: Vec<Buffer>,
    /// Initial values by name, of arguments and of variables.
    pub values: BTreeMap<String, Array>,
}

/// Values of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub shape: Vec<u64>,
    pub values: Vec<f64>,
}

impl Entry {
    /// The launch as text, for messages.
    pub fn title(&self) -> String {
        let extents = |[x, y, z]: [u32; 3]| format!("{x}x{y}x{z}");
        format!("{} {} {} {}", self.file, self.kernel, extents(self.grid), extents(self.block))
    }

    /// Creates the buffers and arguments for a kernel.
    pub fn prepare(&self, kernel: &Kernel) -> Result<Prepared, String> {
        let mut launch = Launch::new(self.grid, self.block, Vec::new());
        launch.shared = self.shared;
        let mut prepared = Prepared { launch, buffers: Vec::new(), values: BTreeMap::new() };
        let params = kernel.params();
        for (number, text) in self.args.iter().enumerate() {
            let (name, value) = text.split_once('=').ok_or(format!("{text}: no value"))?;
            let alias = self.names.iter().find(|(_, at)| **at == number).map_or(name, |(alias, _)| alias);
            if let Some(buffer) = self.buffer(alias, name, value)? {
                prepared.values.insert(alias.to_owned(), Array::of(&buffer));
                if kernel.variables().any(|(variable, ..)| variable == name) {
                    let value = VariableValue { name: name.to_owned(), bytes: buffer.bytes };
                    prepared.launch.variables.push(value);
                } else {
                    prepared.launch.arguments.push(Argument::buffer(prepared.buffers.len()));
                    prepared.buffers.push(buffer);
                }
                continue;
            }
            let param = params.get(prepared.launch.arguments.len()).ok_or(format!("{name}: no such parameter"))?;
            let bytes = match value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                Some(fields) => structure(fields)?,
                None => scalar(value, param.ty, param.bytes)?,
            };
            prepared.launch.arguments.push(Argument::Value(bytes));
        }
        Ok(prepared)
    }

    /// The buffer of an argument; `None` if it is no array.
    fn buffer(&self, alias: &str, name: &str, value: &str) -> Result<Option<Buffer>, String> {
        if let Some(elements) = self.arrays.get(name) {
            let ty = scalar_type(&elements.ty)?;
            let bytes = elements.values.iter().flat_map(|&value| encode(value, ty)).collect();
            return Ok(Some(Buffer::new(alias, ty, [elements.values.len() as u64], bytes)));
        }
        let (fill, array) = match value.split_once(':') {
            Some((fill @ ("out" | "zero"), array)) => (fill, array),
            _ => ("", value),
        };
        let Some((ty, shape)) = array.strip_suffix(']').and_then(|array| array.split_once('[')) else {
            return Ok(None);
        };
        let ty = scalar_type(ty)?;
        let shape: Result<Vec<u64>, _> = shape.split(',').map(str::parse).collect();
        let shape = shape.map_err(|error| format!("{value}: {error}"))?;
        let elements = shape.iter().product::<u64>() as usize;
        let buffer = match fill {
            "out" => {
                let blank = Buffer::uninitialized(alias, ty, shape);
                Buffer { bytes: vec![UNWRITTEN; blank.bytes.len()], ..blank }
            }
            "zero" => Buffer::new(alias, ty, shape, vec![0; elements * ty.size() as usize]),
            _ => Buffer::new(alias, ty, shape, random(alias, ty, elements)),
        };
        Ok(Some(buffer))
    }
}

impl Array {
    /// The elements of a buffer.
    pub fn of(buffer: &Buffer) -> Self {
        let values = buffer.bytes.chunks_exact(buffer.ty.size() as usize).map(|bytes| decode(bytes, buffer.ty));
        Array { shape: buffer.shape.clone(), values: values.collect() }
    }
}

/// The number of elements of an output that the launch did not store.
pub fn unwritten(buffer: &Buffer) -> usize {
    let elements = buffer.bytes.chunks_exact(buffer.ty.size() as usize);
    if buffer.initialized { 0 } else { elements.filter(|bytes| bytes.iter().all(|&byte| byte == UNWRITTEN)).count() }
}

const TYPES: [(&str, ScalarType); 12] = [
    ("u8", ScalarType::U8),
    ("i8", ScalarType::S8),
    ("u16", ScalarType::U16),
    ("i16", ScalarType::S16),
    ("u32", ScalarType::U32),
    ("i32", ScalarType::S32),
    ("u64", ScalarType::U64),
    ("i64", ScalarType::S64),
    ("f16", ScalarType::F16),
    ("bf16", ScalarType::Bf16),
    ("f32", ScalarType::F32),
    ("f64", ScalarType::F64),
];

fn scalar_type(name: &str) -> Result<ScalarType, String> {
    let found = TYPES.iter().find(|(known, _)| *known == name);
    found.map(|(_, ty)| *ty).ok_or_else(|| format!("{name}: unknown type"))
}

/// Bytes of a value of a type.
pub fn encode(value: f64, ty: ScalarType) -> Vec<u8> {
    match ty {
        ScalarType::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
        ScalarType::Bf16 => bf16::from_f64(value).to_le_bytes().to_vec(),
        ScalarType::F32 => (value as f32).to_le_bytes().to_vec(),
        ScalarType::F64 => value.to_le_bytes().to_vec(),
        // Integers of all types have the low bytes of a wider one.
        _ => (value as i128).to_le_bytes()[..ty.size() as usize].to_vec(),
    }
}

fn decode(bytes: &[u8], ty: ScalarType) -> f64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    match ty {
        ScalarType::F16 => f16::from_bits(bits as u16).to_f64(),
        ScalarType::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        ScalarType::F32 => f32::from_bits(bits as u32).into(),
        ScalarType::F64 => f64::from_bits(bits),
        ScalarType::S8 => (bits as i8).into(),
        ScalarType::S16 => (bits as i16).into(),
        ScalarType::S32 => (bits as i32).into(),
        ScalarType::S64 => bits as i64 as f64,
        _ => bits as f64,
    }
}

/// Bytes of a scalar argument; a parameter without a sign or float type holds an integer.
fn scalar(text: &str, ty: ScalarType, bytes: u32) -> Result<Vec<u8>, String> {
    let value: f64 = text.parse().map_err(|error| format!("{text}: {error}"))?;
    let mut encoded = encode(value, ty);
    if !matches!(ty, ScalarType::F16 | ScalarType::Bf16 | ScalarType::F32 | ScalarType::F64) {
        encoded = (value as i128).to_le_bytes()[..bytes as usize].to_vec();
    }
    Ok(encoded)
}

/// Bytes of a structure: `"a":2.5,"n":"u64:3"`. Numbers without a type are `i32` or `f32`.
fn structure(fields: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut largest = 1;
    for field in fields.split(',') {
        let (_, value) = field.split_once(':').ok_or(format!("{field}: no value"))?;
        let value = value.trim_matches('"');
        let (ty, value) = match value.split_once(':') {
            Some((ty, value)) => (scalar_type(ty)?, value),
            None if value.contains('.') => (ScalarType::F32, value),
            None => (ScalarType::S32, value),
        };
        let value: f64 = value.parse().map_err(|error| format!("{field}: {error}"))?;
        let size = ty.size() as usize;
        bytes.resize(bytes.len().next_multiple_of(size), 0);
        bytes.extend(encode(value, ty));
        largest = largest.max(size);
    }
    bytes.resize(bytes.len().next_multiple_of(largest), 0);
    Ok(bytes)
}

/// Random elements: floats near a normal distribution, small signed and all unsigned integers.
fn random(name: &str, ty: ScalarType, elements: usize) -> Vec<u8> {
    let mut state = name
        .bytes()
        .fold(0x9e37_79b9_7f4a_7c15u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut element = || {
        let bits = next();
        match ty {
            ScalarType::S32 | ScalarType::S64 => encode((bits % 101) as f64 - 50.0, ty),
            ScalarType::F16 | ScalarType::Bf16 | ScalarType::F32 | ScalarType::F64 => {
                // The sum of four uniform numbers.
                let sum: u64 = (0..4).map(|part| bits >> (16 * part) & 0xffff).sum();
                encode(sum as f64 / 32768.0 - 4.0, ty)
            }
            _ => bits.to_le_bytes()[..ty.size() as usize].to_vec(),
        }
    };
    (0..elements).flat_map(|_| element()).collect()
}
