//! Reads a `.cu` or `.ptx` file, and finds the kernel to run in it.

use std::fs;
use std::io;
use std::path::Path;

use tegula_ptx::ast::{Operand, ScalarType, Statement};
use tegula_ptx::{Kernel, Module};

use super::element;
use super::fields::Loads;
use super::signature::{Parameter, ParameterType, Signature, Variable};
use super::symbol::{closest, source_name};
use crate::failure::{Failure, Result};

/// A lowered kernel with its source.
#[derive(Debug)]
pub struct Source {
    /// The file as given.
    pub file: String,
    /// Its text.
    pub text: String,
    /// The PTX: the file itself, or the output of the compiler.
    pub ptx: String,
    /// The compiler of CUDA C++.
    pub compiler: Option<String>,
    pub module: Module,
    pub kernel: Kernel,
    pub signature: Signature,
    /// Launches of the kernel in the source.
    pub launches: Vec<ProposedLaunch>,
}

/// A launch in the host code. Values that are not constant are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedLaunch {
    pub grid: Option<[u32; 3]>,
    pub block: Option<[u32; 3]>,
    pub shared: Option<u32>,
    pub line: u32,
}

/// A kernel as the source declares it.
#[derive(Clone, Debug, Default)]
pub struct Declaration {
    /// The name in messages.
    pub name: String,
    /// The name in the PTX.
    pub symbol: String,
    /// Names and types of parameters.
    pub params: Vec<(String, ParameterType)>,
    pub launches: Vec<ProposedLaunch>,
}

/// Reads a text file.
///
/// # Errors
/// If it cannot be read, or is a binary file.
pub fn read(path: &Path) -> Result<String> {
    let file = path.display();
    let bytes = fs::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::new(format!("{file}: file not found")),
        io::ErrorKind::IsADirectory => Failure::new(format!("{file}: is a directory; give a .cu or .ptx file")),
        _ => Failure::new(format!("{file}: cannot be read: {error}")),
    })?;
    if bytes.contains(&0) {
        return Err(Failure::new(format!("{file}: is a binary file; give CUDA C++ or PTX")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether a file is PTX, by its extension, else by its text.
pub fn is_ptx(path: &Path, text: &str) -> bool {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("ptx") => true,
        Some("cu" | "cuh" | "cpp" | "cc" | "cxx" | "c" | "h" | "hpp") => false,
        _ => text.lines().any(|line| line.trim_start().starts_with(".version")),
    }
}

impl Source {
    /// Finds a kernel in PTX: that of a name, or the only one.
    ///
    /// # Errors
    /// PTX that cannot be parsed or run, and a missing or ambiguous kernel.
    pub fn of_ptx(file: String, text: String, name: Option<&str>) -> Result<Source> {
        let module = Module::parse(&text).map_err(|error| Failure::new(format!("{file}: {error}")))?;
        let symbol = find(&file, &module.kernels(), name)?.to_owned();
        let same = module.kernels().iter().filter(|other| source_name(other) == source_name(&symbol)).count();
        // All instances of a template have the same source name, so their symbols are used.
        let name = if same == 1 { source_name(&symbol) } else { &symbol }.to_owned();
        let declaration = Declaration { name, symbol, ..Declaration::default() };
        Source::new(file, text.clone(), text, None, module, declaration)
    }

    /// Prepares a kernel of a module.
    ///
    /// # Errors
    /// An instruction that is not supported, with its line.
    pub fn new(
        file: String,
        text: String,
        ptx: String,
        compiler: Option<String>,
        module: Module,
        declaration: Declaration,
    ) -> Result<Source> {
        let kernel = module.kernel(&declaration.symbol).map_err(|error| Failure::new(format!("{file}: {error}")))?;
        let signature = signature(&module, &kernel, &declaration);
        Ok(Source { file, text, ptx, compiler, module, kernel, signature, launches: declaration.launches })
    }

    /// The file of the kernel, as the compiler wrote it; empty without source lines.
    pub fn main_file(&self) -> &str {
        let function = self.module.ast().functions.iter().find(|function| function.name == self.kernel.name());
        let number = function.and_then(|function| first_file(function.body.as_deref()?));
        let file = self.module.ast().files.iter().find(|(known, _)| Some(*known) == number);
        file.map_or("", |(_, name)| name)
    }
}

/// The file of the first source line that is not inlined.
fn first_file(body: &[Statement]) -> Option<u32> {
    body.iter().find_map(|statement| match statement {
        Statement::Loc(loc) if loc.inlined_at.is_none() => Some(loc.file),
        Statement::Block(inner) => first_file(inner),
        _ => None,
    })
}

/// Finds a kernel by its name in the source or in the PTX; without a name, the only kernel.
pub fn find<'a>(file: &str, kernels: &[&'a str], name: Option<&str>) -> Result<&'a str> {
    let list = |kernels: &[&str]| kernels.join(", ");
    let wrong = |message: String| Err(Failure::new(format!("{file}: {message}")));
    let Some(name) = name else {
        return match kernels {
            [] => wrong("no kernel; one is declared with __global__, or .entry in PTX".into()),
            [only] => Ok(only),
            many => wrong(format!("{} kernels: {}; choose one with --kernel", many.len(), list(many))),
        };
    };
    if let Some(exact) = kernels.iter().find(|kernel| **kernel == name) {
        return Ok(exact);
    }
    let named: Vec<&str> = kernels.iter().copied().filter(|kernel| source_name(kernel) == name).collect();
    match named[..] {
        [only] => Ok(only),
        [] => {
            let near = closest(name, kernels.iter().map(|kernel| source_name(kernel)));
            let hint = near.map_or(String::new(), |near| format!(" (did you mean {near}?)"));
            let known = if kernels.is_empty() { "none".into() } else { list(kernels) };
            wrong(format!("no kernel '{name}'{hint}; its kernels are {known}"))
        }
        _ => wrong(format!("{} kernels {name}: {}; choose one with --kernel", named.len(), list(&named))),
    }
}

/// The parameters of a kernel: as the source declares them, otherwise as the PTX does.
fn signature(module: &Module, kernel: &Kernel, declaration: &Declaration) -> Signature {
    let function = module.ast().functions.iter().find(|function| function.name == kernel.name());
    let params = function.map_or(&[][..], |function| &function.params);
    // If the numbers of parameters differ, no declaration of the source is used.
    let declared = |i: usize| declaration.params.get(i).filter(|_| declaration.params.len() == params.len());
    let parameter = |(i, param): (usize, tegula_ptx::KernelParam)| {
        let pointer = params.get(i).is_some_and(|param| param.pointer.is_some());
        let in_ptx = match param.ty {
            _ if pointer => ParameterType::Pointer(None),
            ScalarType::B8 if param.bytes > 1 => ParameterType::Structure,
            ScalarType::U64 | ScalarType::S64 | ScalarType::B64 => ParameterType::Word,
            ScalarType::B8 | ScalarType::B16 | ScalarType::B32 => ParameterType::Scalar(param.ty),
            ty if ty.is_float() => ParameterType::Scalar(ty),
            ty => ParameterType::Integer(element::untyped(ty)),
        };
        let (name, ty) = match declared(i) {
            Some((name, ty)) => (name.as_str(), *ty),
            None => ("", in_ptx),
        };
        let ty = match ty {
            ParameterType::Scalar(scalar) if scalar.size() != param.bytes => in_ptx,
            ParameterType::Pointer(_) if param.bytes != 8 => in_ptx,
            // The source does not determine the type, for example in a template.
            ParameterType::Structure => in_ptx,
            ty => ty,
        };
        let name = match name {
            "" if param.name.contains("_param_") => format!("arg{i}"),
            "" => param.name.clone(),
            name => name.into(),
        };
        let mut found = Loads::new();
        if let (ParameterType::Structure, Some(body)) = (ty, function.and_then(|function| function.body.as_ref())) {
            loads(body, &param.name, &mut found);
        }
        Parameter { name, symbol: param.name, ty, bytes: param.bytes, loads: found }
    };
    let variable = |(symbol, ty, bytes): (&str, ScalarType, usize)| Variable {
        name: source_name(symbol).into(),
        symbol: symbol.into(),
        ty: if ty.is_float() { element::of_memory(ty) } else { ty },
        bytes,
    };
    Signature {
        kernel: declaration.name.clone(),
        parameters: kernel.params().into_iter().enumerate().map(parameter).collect(),
        variables: kernel.variables().map(variable).collect(),
    }
}

/// The types that a function loads from a parameter, by offset.
fn loads(body: &[Statement], param: &str, found: &mut Loads) {
    for statement in body {
        match statement {
            Statement::Block(inner) => loads(inner, param, found),
            Statement::Instruction(instruction) if instruction.opcode == "ld" => {
                let [_, Operand::Address { base: Some(base), offset }] = &instruction.operands[..] else { continue };
                let Some(ty) = instruction.modifiers.last().and_then(|ty| ScalarType::from_name(ty)) else { continue };
                let Ok(offset) = usize::try_from(*offset) else { continue };
                if base != param {
                    continue;
                }
                let modifiers = &instruction.modifiers;
                let vector = [("v2", 2), ("v4", 4)]
                    .into_iter()
                    .find(|(name, _)| modifiers.iter().any(|modifier| modifier == name));
                for i in 0..vector.map_or(1, |(_, elements)| elements) {
                    found.insert(offset.saturating_add(i * ty.size() as usize), ty);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_either_name() {
        let kernels = ["_Z1fPf", "_Z1gILi1EEvv", "_Z1gILi2EEvv", "h"];
        let find = |name: Option<&str>| find("k.ptx", &kernels, name).map_err(|error| error.to_string());
        assert_eq!(find(Some("f")), Ok("_Z1fPf"));
        assert_eq!(find(Some("_Z1gILi2EEvv")), Ok("_Z1gILi2EEvv"));
        for (name, expected) in [
            (Some("g"), "k.ptx: 2 kernels g: _Z1gILi1EEvv, _Z1gILi2EEvv; choose one with --kernel"),
            (
                Some("hh"),
                "k.ptx: no kernel 'hh' (did you mean h?); its kernels are _Z1fPf, _Z1gILi1EEvv, _Z1gILi2EEvv, h",
            ),
            (None, "k.ptx: 4 kernels: _Z1fPf, _Z1gILi1EEvv, _Z1gILi2EEvv, h; choose one with --kernel"),
        ] {
            assert_eq!(find(name).unwrap_err(), expected);
        }
    }

    #[test]
    fn ptx_is_recognized_by_extension_or_text() {
        assert!(is_ptx(Path::new("k.PTX"), "") && is_ptx(Path::new("k"), "//\n.version 8.0\n"));
        assert!(!is_ptx(Path::new("k.cu"), ".version 8.0") && !is_ptx(Path::new("k.txt"), "int main() {}"));
    }
}
