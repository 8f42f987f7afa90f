//! Binds the values of the command line to a kernel's parameters and its module's variables.

use tegula::error::Bytes;
use tegula::tune::data::uniform;
use tegula_files::{AnyArray, ArrayPath, Number as FileNumber};
use tegula_ptx::ast::ScalarType;
use tegula_ptx::{Argument, Buffer, VariableValue};

use super::element::{self, Number};
use super::fields::{self, Field, Loads};
use super::signature::{Parameter, ParameterType, Signature, Variable, number_of};
use super::symbol::closest;
use super::value::{Fill, NamedValue, Value};
use crate::engine;
use crate::failure::{Failure, Result};
use crate::mul;
use crate::progress::ProgressDisplay;

/// The arguments of a launch.
#[derive(Debug, Default)]
pub struct Arguments {
    pub buffers: Vec<Buffer>,
    pub arguments: Vec<Argument>,
    pub variables: Vec<VariableValue>,
    /// The names of arguments and variables, for formulas and outputs.
    pub names: Vec<Named>,
}

/// A parameter or a variable in a formula.
#[derive(Clone, Debug)]
pub struct Named {
    pub name: String,
    /// Position of the parameter, from 0; `None` for a variable.
    position: Option<usize>,
    pub operand: Operand,
}

/// An argument in a formula.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A buffer, by its index in the launch.
    Buffer(usize),
    /// Elements that the kernel does not change.
    Constant(Array),
}

/// Elements in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub ty: ScalarType,
    pub shape: Vec<u64>,
    pub bytes: Vec<u8>,
    pub initialized: bool,
}

impl Arguments {
    /// Finds an argument or variable by its name or by the number of the parameter.
    pub fn find(&self, name: &str) -> Option<&Named> {
        let number = number_of(name);
        let by_number = || self.names.iter().find(|named| named.position.is_some() && named.position == number);
        self.names.iter().find(|named| named.name == name).or_else(by_number)
    }

    /// The buffer of a name; an error lists the buffers.
    ///
    /// # Errors
    /// If no buffer has the name.
    pub fn buffer(&self, option: &str, name: &str) -> Result<usize> {
        let found = match self.find(name).map(|named| &named.operand) {
            Some(Operand::Buffer(index)) => Some(*index),
            _ => None,
        };
        found.ok_or_else(|| {
            let buffers = self.names.iter().filter(|named| matches!(named.operand, Operand::Buffer(_)));
            let buffers: Vec<_> = buffers.map(|named| named.name.as_str()).collect();
            let known = if buffers.is_empty() { "none".into() } else { buffers.join(", ") };
            Failure::new(format!("{option}: no argument '{name}' with memory; arguments with memory are {known}"))
        })
    }
}

/// Binds values to the parameters of a kernel. `set` are values of variables. A value whose name is
/// not a parameter can also be that of a variable.
///
/// # Errors
/// A missing or unknown name, or a value that does not match its parameter.
pub fn bind(
    signature: &Signature,
    values: &[NamedValue],
    set: &[NamedValue],
    progress: &ProgressDisplay,
) -> Result<Arguments> {
    let mut given: Vec<Option<&NamedValue>> = vec![None; signature.parameters.len()];
    let mut set: Vec<&NamedValue> = set.iter().collect();
    for value in values {
        match signature.position(&value.name) {
            Some(position) => {
                if given[position].replace(value).is_some() {
                    return Err(Failure::Usage(format!("--arg {} is given twice", value.name)));
                }
            }
            None if signature.variable(&value.name).is_some() => set.push(value),
            None => return Err(unknown(signature, &value.name)),
        }
    }
    let missing: Vec<_> = signature
        .parameters
        .iter()
        .zip(&given)
        .filter(|(_, given)| given.is_none())
        .map(|(p, _)| p.name.as_str())
        .collect();
    if let Some(first) = missing.first() {
        let names = missing.join(", ");
        return Err(Failure::new(format!(
            "{}: no value of {names}; add --arg {first}=VALUE; {}",
            signature.kernel,
            signature.takes()
        )));
    }
    let named = |position: usize, operand| {
        let name = signature.parameters[position].name.clone();
        Named { name, position: Some(position), operand }
    };
    let mut bound = Arguments::default();
    let given: Vec<&NamedValue> = given.into_iter().flatten().collect();
    for (position, (parameter, value)) in signature.parameters.iter().zip(&given).enumerate() {
        let wrong = |why: String| Failure::new(format!("--arg {}={}: {why}", parameter.name, value.text));
        if let Value::Same(_) = value.value {
            // The argument that it refers to can be a later one, so it is bound at the end.
            bound.arguments.push(Argument::buffer(0));
            continue;
        }
        let seed = position as u64 + 1;
        match parameter_value(parameter, value, seed, progress, &wrong)? {
            Bound::Memory(array) => {
                let index = bound.buffers.len();
                let Array { ty, shape, bytes, initialized } = array;
                bound.buffers.push(Buffer { initialized, ..Buffer::new(parameter.name.clone(), ty, shape, bytes) });
                bound.arguments.push(Argument::buffer(index));
                bound.names.push(named(position, Operand::Buffer(index)));
            }
            Bound::Value(bytes, ty) => {
                if let Some(ty) = ty {
                    let array = Array { ty, shape: Vec::new(), bytes: bytes.clone(), initialized: true };
                    bound.names.push(named(position, Operand::Constant(array)));
                }
                bound.arguments.push(Argument::Value(bytes));
            }
        }
    }
    for (position, (parameter, value)) in signature.parameters.iter().zip(&given).enumerate() {
        let Value::Same(other) = &value.value else { continue };
        let option = format!("--arg {}={}", parameter.name, value.text);
        if !matches!(parameter.ty, ParameterType::Pointer(_) | ParameterType::Word) {
            return Err(Failure::new(format!(
                "{option}: {} is {}, not a pointer",
                parameter.name,
                parameter.describe()
            )));
        }
        let index = bound.buffer(&option, other)?;
        bound.arguments[position] = Argument::buffer(index);
        bound.names.push(named(position, Operand::Buffer(index)));
    }
    for (position, value) in set.into_iter().enumerate() {
        let Some(variable) = signature.variable(&value.name) else {
            let names: Vec<_> = signature.variables.iter().map(|variable| variable.name.as_str()).collect();
            let known = if names.is_empty() { "none".into() } else { names.join(", ") };
            let name = &value.name;
            return Err(Failure::new(format!(
                "{}: no variable '{name}'{}; its variables are {known}",
                signature.kernel,
                hint(name, names.iter().copied())
            )));
        };
        let wrong = |why: String| Failure::new(format!("--set {}={}: {why}", value.name, value.text));
        let array = variable_value(variable, value, 1000 + position as u64, progress, &wrong)?;
        if array.bytes.len() > variable.bytes {
            return Err(wrong(format!("{} bytes; {} has {}", array.bytes.len(), variable.name, variable.bytes)));
        }
        bound.variables.push(VariableValue { name: variable.symbol.clone(), bytes: array.bytes.clone() });
        bound.names.push(Named { name: variable.name.clone(), position: None, operand: Operand::Constant(array) });
    }
    Ok(bound)
}

fn unknown(signature: &Signature, name: &str) -> Failure {
    let kernel = &signature.kernel;
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        let count = signature.parameters.len();
        return Failure::new(format!(
            "{kernel}: no parameter {name}; it has {count}, counted from 0; {}",
            signature.takes()
        ));
    }
    let names = signature.parameters.iter().map(|parameter| parameter.name.as_str());
    let hint = hint(name, names.chain(signature.variables.iter().map(|variable| variable.name.as_str())));
    Failure::new(format!("{kernel}: no parameter '{name}'{hint}; {}", signature.takes()))
}

fn hint<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    closest(name, names).map_or(String::new(), |near| format!(" (did you mean {near}?)"))
}

/// A bound argument.
enum Bound {
    Memory(Array),
    /// The bytes of a parameter, and their type if it is a number.
    Value(Vec<u8>, Option<ScalarType>),
}

/// Converts the reason why a value is invalid to a failure.
type Wrong<'a> = &'a dyn Fn(String) -> Failure;

fn parameter_value(
    parameter: &Parameter,
    given: &NamedValue,
    seed: u64,
    progress: &ProgressDisplay,
    wrong: Wrong<'_>,
) -> Result<Bound> {
    let Parameter { name, ty, bytes, .. } = parameter;
    let bytes = *bytes;
    let sized = |value: Vec<u8>, ty| match value.len() == bytes as usize {
        true => Ok(Bound::Value(value, ty)),
        false => Err(wrong(format!("{} bytes; {name} has {bytes}", value.len()))),
    };
    let number = |number: Number, given: Option<ScalarType>, declared: ScalarType| {
        let ty = given.unwrap_or(declared);
        sized(number.encode(ty).map_err(wrong)?, Some(ty))
    };
    match (ty, &given.value) {
        (ParameterType::Pointer(_), Value::Number(_, Number::Integer(0))) => Ok(Bound::Value(vec![0; 8], None)),
        (ParameterType::Pointer(_), Value::Number(..)) => Err(wrong(format!(
            "{name} is a pointer; give its memory, such as f32[100], a file, or 0 for a null pointer"
        ))),
        (ParameterType::Word, Value::Number(ty, value)) => {
            number(value.whole(*ty).map_err(wrong)?, *ty, ScalarType::B64)
        }
        (ParameterType::Integer(declared), Value::Number(ty, value)) => {
            number(value.whole(*ty).map_err(wrong)?, *ty, *declared)
        }
        (ParameterType::Word, Value::Bytes(value)) if value.len() == 8 => Ok(Bound::Value(value.clone(), None)),
        (ParameterType::Pointer(element), _) => {
            array((name, given), *element, seed, progress, wrong).map(Bound::Memory)
        }
        (ParameterType::Word, _) => array((name, given), None, seed, progress, wrong).map(Bound::Memory),
        (ParameterType::Scalar(declared), Value::Number(ty, value)) => number(*value, *ty, *declared),
        (_, Value::Bytes(value)) => sized(value.clone(), None),
        (ParameterType::Structure, Value::List(list) | Value::Fields(list)) => {
            let value = fields::pack(list, &parameter.loads).map_err(wrong)?;
            if value.len() == bytes as usize {
                return Ok(Bound::Value(value, None));
            }
            Err(wrong(format!(
                "these fields have {} bytes, the structure has {bytes}; give a field its type, such as \"f64:2.5\"",
                value.len()
            )))
        }
        (ParameterType::Structure, _) => Err(wrong(format!(
            "{name} is a structure of {bytes} bytes; give its fields, such as [1,2.5], or its bytes, such as hex:0000803f"
        ))),
        (ParameterType::Scalar(_) | ParameterType::Integer(_), _) => {
            Err(wrong(format!("{name} is {}; give a number", parameter.describe())))
        }
    }
}

/// The memory of a pointer. `declared` is the element type, if it is known.
fn array(
    (name, given): (&str, &NamedValue),
    declared: Option<ScalarType>,
    seed: u64,
    progress: &ProgressDisplay,
    wrong: Wrong<'_>,
) -> Result<Array> {
    let declared = declared.map(element::of_memory);
    let check = |ty: ScalarType| match declared {
        Some(declared) if !element::is_compatible(declared, ty) => {
            let (ty, declared) = (element::name(ty), element::name(declared));
            Err(wrong(format!("elements of {ty}; the kernel declares {name} as {declared}*")))
        }
        _ => Ok(ty),
    };
    let element = |ty: Option<ScalarType>| match ty.or(declared) {
        Some(ty) => check(ty),
        None => Err(wrong(format!("give the element type of {name}, such as f32[100,70]"))),
    };
    match &given.value {
        Value::Array(fill, ty, shape) => filled(*fill, element(*ty)?, shape, seed, wrong),
        Value::List(list) => match Field::extents(list) {
            Some(shape) => filled(Fill::Random, element(None)?, &shape, seed, wrong),
            None => {
                Err(wrong("not the extents of an array; a list of elements has their type, such as f32:[1,2.5]".into()))
            }
        },
        Value::Elements(ty, list) => listed(check(*ty)?, list, wrong),
        Value::Bytes(bytes) => {
            let ty = declared.unwrap_or(ScalarType::U8);
            let size = ty.size() as usize;
            if bytes.len() % size != 0 {
                return Err(wrong(format!("{} bytes; an element of {name} has {size}", bytes.len())));
            }
            Ok(Array { ty, shape: vec![(bytes.len() / size) as u64], bytes: bytes.clone(), initialized: true })
        }
        Value::File(ty, path) => {
            // Text files have no element type, so the declared one is used.
            let ty = ty.or_else(|| declared.filter(|_| is_text(path)));
            let array = read(path, ty, progress).map_err(|failure| unreadable(path, failure, wrong))?;
            match check(array.ty) {
                Ok(_) => Ok(array),
                Err(_) => {
                    let (ty, declared) = (element::name(array.ty), declared.map_or("", element::name));
                    Err(wrong(format!(
                        "the file has {ty}, the kernel declares {name} as {declared}*; convert with {name}={declared}:{}",
                        given.text
                    )))
                }
            }
        }
        _ => Err(wrong(format!("{name} is a pointer; give its memory, such as f32[100] or a file"))),
    }
}

/// The value of a variable.
fn variable_value(
    variable: &Variable,
    given: &NamedValue,
    seed: u64,
    progress: &ProgressDisplay,
    wrong: Wrong<'_>,
) -> Result<Array> {
    let Variable { name, ty: declared, bytes, .. } = variable;
    // Compilers declare arrays and structures as bytes, so their element type is unknown.
    let element = |ty: Option<ScalarType>| {
        let known = (*declared != ScalarType::B8 || *bytes == 1).then_some(*declared);
        let needs = || {
            wrong(format!("{name} has {bytes} bytes; give the type of its elements, such as f32:[1,2.5] or f32:2.5"))
        };
        ty.or(known).ok_or_else(needs)
    };
    match &given.value {
        Value::Number(ty, number) => {
            let ty = element(*ty)?;
            if ty.size() as usize != *bytes {
                let elements = bytes / ty.size() as usize;
                let ty = element::name(element::of_memory(ty));
                return Err(wrong(format!(
                    "{name} has {bytes} bytes, {elements} elements of {ty}; give a list, such as {ty}:[1,2.5]"
                )));
            }
            Ok(Array { ty, shape: Vec::new(), bytes: number.encode(ty).map_err(wrong)?, initialized: true })
        }
        Value::Array(Fill::Uninitialized, ..) => {
            Err(wrong("a variable is always initialized; leave out 'out:'".into()))
        }
        Value::Array(fill, ty, shape) => filled(*fill, element::of_memory(element(*ty)?), shape, seed, wrong),
        Value::List(list) => listed(element(None)?, list, wrong),
        Value::Elements(ty, list) => listed(*ty, list, wrong),
        Value::Fields(list) => {
            let bytes = fields::pack(list, &Loads::new()).map_err(wrong)?;
            Ok(Array { ty: ScalarType::U8, shape: vec![bytes.len() as u64], bytes, initialized: true })
        }
        Value::Bytes(bytes) => {
            Ok(Array { ty: ScalarType::U8, shape: vec![bytes.len() as u64], bytes: bytes.clone(), initialized: true })
        }
        Value::File(ty, path) => read(path, *ty, progress).map_err(|failure| unreadable(path, failure, wrong)),
        Value::Same(_) => Err(wrong("a variable cannot share the memory of an argument".into())),
    }
}

fn is_text(path: &ArrayPath) -> bool {
    let ArrayPath::File { path, .. } = path else { return false };
    path.extension().is_some_and(|extension| ["csv", "mtx"].iter().any(|text| extension.eq_ignore_ascii_case(text)))
}

/// The failure for an unreadable file. A text that does not look like a path gets another message.
fn unreadable(path: &ArrayPath, failure: Failure, wrong: Wrong<'_>) -> Failure {
    match path {
        ArrayPath::File { path, name: None } if path.extension().is_none() && !path.exists() => {
            wrong("neither a number, nor an array such as f32[100,70], nor a file".into())
        }
        _ => failure,
    }
}

/// The elements of a file, in C order, converted to a type if one is given.
pub fn read(path: &ArrayPath, ty: Option<ScalarType>, progress: &ProgressDisplay) -> Result<Array> {
    let (array, _) = mul::load(path, ty.map(element::to_file), progress)?;
    macro_rules! elements {
        ($($tag:ident)*) => {
            match &array { $(AnyArray::$tag(array) => row_major(array),)* }
        };
    }
    let bytes = elements! { F64 F32 F16 BF16 F8E4M3 F8E5M2 I64 I32 I16 I8 U64 U32 U16 U8 Bool };
    let shape = array.layout().shape.iter().map(|&extent| extent as u64).collect();
    Ok(Array { ty: ty.unwrap_or_else(|| element::of_file(array.dtype())), shape, bytes, initialized: true })
}

fn row_major<T: FileNumber>(array: &tegula_files::Array<T>) -> Vec<u8> {
    let shape = &array.layout.shape;
    let len: usize = shape.iter().product();
    let mut bytes = Vec::with_capacity(len * size_of::<T>());
    let mut index = vec![0; shape.len()];
    for _ in 0..len {
        let element = array.layout.at(&index).and_then(|at| array.data.get(at));
        element.iter().for_each(|element| bytes.extend_from_slice(bytemuck::bytes_of(*element)));
        for (i, extent) in index.iter_mut().zip(shape).rev() {
            *i += 1;
            if *i < *extent {
                break;
            }
            *i = 0;
        }
    }
    bytes
}

fn listed(ty: ScalarType, list: &[Field], wrong: Wrong<'_>) -> Result<Array> {
    let numbers = Field::numbers(list);
    let bytes: std::result::Result<Vec<Vec<u8>>, String> = numbers.iter().map(|number| number.encode(ty)).collect();
    let ty = element::of_memory(ty);
    Ok(Array { ty, shape: vec![numbers.len() as u64], bytes: bytes.map_err(wrong)?.concat(), initialized: true })
}

fn filled(fill: Fill, ty: ScalarType, shape: &[u64], seed: u64, wrong: Wrong<'_>) -> Result<Array> {
    let size = u64::from(ty.size());
    let elements = shape.iter().try_fold(1u64, |n, &extent| n.checked_mul(extent));
    let bytes = elements.and_then(|elements| elements.checked_mul(size)).filter(|&bytes| bytes <= i64::MAX as u64);
    let Some(bytes) = bytes else { return Err(wrong("too large".into())) };
    let free = engine::free_memory();
    if bytes > free {
        let (needed, free) = (Bytes(bytes.into()), Bytes(free.into()));
        return Err(wrong(format!("needs {needed} of memory; {free} are free")));
    }
    let elements = bytes / size;
    if matches!(fill, Fill::Zeros | Fill::Uninitialized) {
        let initialized = fill == Fill::Zeros;
        return Ok(Array { ty, shape: shape.to_vec(), bytes: vec![0; bytes as usize], initialized });
    }
    let mut out = Vec::with_capacity(bytes as usize);
    for i in 0..elements {
        let number = match fill {
            Fill::Ones => Number::Integer(1),
            Fill::Range => Number::Integer(i.into()),
            Fill::Random if ty.is_float() => Number::Real(normal(seed, i)),
            Fill::Random if ty.is_signed() => Number::Integer(between(-128, 127, seed, i)),
            Fill::Random => Number::Integer(between(0, 255, seed, i)),
            _ if ty.is_float() || ty.is_signed() => Number::Integer(between(-8, 8, seed, i)),
            _ => Number::Integer(between(0, 8, seed, i)),
        };
        // The integers of a range wrap in a narrow type.
        let number = match (fill, number) {
            (Fill::Range, Number::Integer(value)) if !ty.is_float() => {
                Number::decode(ty, &value.to_le_bytes()[..size as usize])
            }
            (_, number) => number,
        };
        out.extend(number.encode(ty).map_err(wrong)?);
    }
    Ok(Array { ty, shape: shape.to_vec(), bytes: out, initialized: true })
}

/// A pseudorandom standard normal number. Source: Box and Muller, 1958.
fn normal(seed: u64, index: u64) -> f64 {
    let (radius, angle) = (uniform(seed, 2 * index), uniform(seed, 2 * index + 1));
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

fn between(low: i128, high: i128, seed: u64, index: u64) -> i128 {
    low + (uniform(seed, index) * (high - low + 1) as f64) as i128
}

#[cfg(test)]
mod tests {
    use tegula_ptx::ast::ScalarType::{F32, S32, U8};

    use super::*;

    fn fill(fill: Fill, ty: ScalarType, shape: &[u64]) -> Vec<f64> {
        let array = super::filled(fill, ty, shape, 1, &Failure::new).unwrap();
        let size = ty.size() as usize;
        array.bytes.chunks(size).map(|bytes| Number::decode(ty, bytes).to_f64()).collect()
    }

    #[test]
    fn fills_have_the_documented_values() {
        assert_eq!(fill(Fill::Range, U8, &[258])[254..], [254.0, 255.0, 0.0, 1.0]);
        assert_eq!(fill(Fill::Ones, F32, &[2, 1]), [1.0, 1.0]);
        let random = fill(Fill::Random, S32, &[4000]);
        assert!(
            random.iter().all(|x| (-128.0..=127.0).contains(x)) && random.contains(&-128.0) && random.contains(&127.0)
        );
        let small = fill(Fill::Integers, F32, &[400]);
        assert!(small.iter().all(|x| x.fract() == 0.0 && x.abs() <= 8.0) && small.contains(&-8.0));
        let normal = fill(Fill::Random, F32, &[10_000]);
        let mean = |f: fn(f64) -> f64| normal.iter().map(|&x| f(x)).sum::<f64>() / 1e4;
        assert!(mean(|x| x).abs() < 0.05 && (mean(|x| x * x) - 1.0).abs() < 0.05);
    }

    #[test]
    fn fill_beyond_memory_is_refused() {
        for shape in [&[u64::MAX, 2][..], &[1 << 62], &[1 << 45]] {
            assert!(super::filled(Fill::Zeros, F32, shape, 1, &Failure::new).is_err(), "{shape:?}");
        }
    }
}
