//! The parameters of a kernel and the variables of its module, by their names in the source.

use tegula_ptx::ast::ScalarType;

use super::element;
use super::fields::Loads;

/// The signature of a kernel.
#[derive(Clone, Debug)]
pub struct Signature {
    /// The name of the kernel in messages.
    pub kernel: String,
    pub parameters: Vec<Parameter>,
    /// `__device__` and `__constant__` variables.
    pub variables: Vec<Variable>,
}

/// A parameter.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// The name in the source; `arg0` for an unnamed first parameter.
    pub name: String,
    /// The name in the PTX.
    pub symbol: String,
    pub ty: ParameterType,
    pub bytes: u32,
    /// For a structure: the types that the kernel loads, by offset.
    pub loads: Loads,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterType {
    /// A pointer, with its element type if it is known.
    Pointer(Option<ScalarType>),
    /// A number.
    Scalar(ScalarType),
    /// An integer whose sign is unknown, since only the PTX declares it: untyped bits.
    Integer(ScalarType),
    /// 64 bits that only the PTX declares: a pointer or a number.
    Word,
    /// A structure, or an array by value.
    Structure,
}

/// A variable of the module.
#[derive(Clone, Debug)]
pub struct Variable {
    /// The name in the source.
    pub name: String,
    /// The name in the PTX.
    pub symbol: String,
    /// The type in the PTX: bytes for an array.
    pub ty: ScalarType,
    pub bytes: usize,
}

impl Signature {
    /// The position of a parameter, from its name, its number, or its name in the PTX.
    pub fn position(&self, name: &str) -> Option<usize> {
        let by = |text: fn(&Parameter) -> &str| self.parameters.iter().position(|parameter| text(parameter) == name);
        let number = || number_of(name).filter(|&number| number < self.parameters.len());
        by(|parameter| &parameter.name).or_else(|| by(|parameter| &parameter.symbol)).or_else(number)
    }

    /// The variable of a name in the source or in the PTX.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        let by = |text: fn(&Variable) -> &str| self.variables.iter().find(|variable| text(variable) == name);
        by(|variable| &variable.symbol).or_else(|| by(|variable| &variable.name))
    }

    /// A text with all parameters, such as `it takes A: f32*, n: i32`.
    pub fn takes(&self) -> String {
        let all: Vec<_> =
            self.parameters.iter().map(|parameter| format!("{}: {}", parameter.name, parameter.describe())).collect();
        if all.is_empty() { "it takes no arguments".into() } else { format!("it takes {}", all.join(", ")) }
    }
}

/// The number of a parameter: 2 of `2` and `arg2`.
pub fn number_of(name: &str) -> Option<usize> {
    name.strip_prefix("arg").unwrap_or(name).parse().ok()
}

impl Parameter {
    /// The type in messages.
    pub fn describe(&self) -> String {
        match self.ty {
            ParameterType::Pointer(Some(element)) => format!("{}*", element::name(element::of_memory(element))),
            ParameterType::Pointer(None) => "pointer".into(),
            ParameterType::Integer(_) => format!("{}-bit integer", 8 * self.bytes),
            ParameterType::Scalar(ScalarType::B16 | ScalarType::B32 | ScalarType::B64) => {
                format!("{} bits", 8 * self.bytes)
            }
            ParameterType::Scalar(ty) => element::name(element::of_memory(ty)).into(),
            ParameterType::Word => "pointer or 64 bits".into(),
            ParameterType::Structure => format!("{} bytes", self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use tegula_ptx::ast::ScalarType::{B8, B32, F32};

    use super::*;

    fn parameter(name: &str, ty: ParameterType, bytes: u32) -> Parameter {
        Parameter { name: name.into(), symbol: format!("k_param_{name}"), ty, bytes, loads: Loads::new() }
    }

    #[test]
    fn parameters_are_found_and_described() {
        let signature = Signature {
            kernel: "k".into(),
            parameters: vec![
                parameter("A", ParameterType::Pointer(Some(F32)), 8),
                parameter("arg1", ParameterType::Word, 8),
                parameter("n", ParameterType::Scalar(B32), 4),
                parameter("p", ParameterType::Structure, 16),
                parameter("m", ParameterType::Integer(B32), 4),
            ],
            variables: vec![Variable { name: "w".into(), symbol: "_ZL1w".into(), ty: B8, bytes: 28 }],
        };
        let positions = ["A", "1", "arg1", "3", "k_param_n", "5", "x"].map(|name| signature.position(name));
        assert_eq!(positions, [Some(0), Some(1), Some(1), Some(3), Some(2), None, None]);
        assert_eq!(signature.variable("w").map(|variable| variable.bytes), signature.variable("_ZL1w").map(|_| 28));
        assert_eq!(
            signature.takes(),
            "it takes A: f32*, arg1: pointer or 64 bits, n: 32 bits, p: 16 bytes, m: 32-bit integer"
        );
    }
}
