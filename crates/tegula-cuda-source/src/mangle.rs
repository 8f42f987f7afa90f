//! Demangling of kernel names in PTX: `_ZN2ns5tiledILi16EEEvPf` is `ns::tiled<16>`.
//!
//! Source: Itanium C++ ABI, "External Names (a.k.a. Mangling)". Names and template arguments are
//! decoded; the types of function parameters are ignored.

/// A function's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// The name with its namespaces, except anonymous ones.
    pub(super) name: String,
    /// Arguments of the template.
    pub(super) arguments: Option<Vec<String>>,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        match &self.arguments {
            Some(arguments) => write!(f, "<{}>", arguments.join(", ")),
            None => Ok(()),
        }
    }
}

/// Demangles a symbol. `None` if it is not mangled, or has an unsupported form.
pub(super) fn demangle(symbol: &str) -> Option<Name> {
    let mut parser = Parser { rest: symbol.strip_prefix("_Z")?, substitutions: Vec::new(), depth: 0 };
    let name = parser.function_name()?;
    Some(name)
}

/// Types of one letter.
const BUILTIN: &[(char, &str)] = &[
    ('v', "void"),
    ('b', "bool"),
    ('c', "char"),
    ('a', "signed char"),
    ('h', "unsigned char"),
    ('s', "short"),
    ('t', "unsigned short"),
    ('i', "int"),
    ('j', "unsigned int"),
    ('l', "long"),
    ('m', "unsigned long"),
    ('x', "long long"),
    ('y', "unsigned long long"),
    ('f', "float"),
    ('d', "double"),
];

struct Parser<'a> {
    rest: &'a str,
    substitutions: Vec<String>,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn number(&mut self) -> Option<usize> {
        let digits = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at_checked(digits)?;
        self.rest = rest;
        number.parse().ok()
    }

    /// Reads a length and a name: `5tiled`.
    fn source_name(&mut self) -> Option<&'a str> {
        // Internal linkage.
        self.eat("L");
        let length = self.number()?;
        let (name, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(name)
    }

    fn starts_with_digit(&self) -> bool {
        let rest = self.rest.strip_prefix('L').unwrap_or(self.rest);
        rest.starts_with(|c: char| c.is_ascii_digit())
    }

    fn function_name(&mut self) -> Option<Name> {
        if self.rest.starts_with('N') {
            return self.nested();
        }
        let name =
            if self.eat("St") { format!("std::{}", self.source_name()?) } else { self.source_name()?.to_owned() };
        let arguments = if self.rest.starts_with('I') {
            self.substitutions.push(name.clone());
            Some(self.arguments()?)
        } else {
            None
        };
        Some(Name { name, arguments })
    }

    fn nested(&mut self) -> Option<Name> {
        self.eat("N");
        while ["K", "V", "R", "O"].iter().any(|qualifier| self.eat(qualifier)) {}
        let mut name = String::new();
        let mut arguments = None;
        loop {
            if self.eat("E") {
                return (!name.is_empty()).then_some(Name { name, arguments });
            }
            if self.rest.starts_with('I') {
                self.substitutions.push(name.clone());
                arguments = Some(self.arguments()?);
                continue;
            }
            // Template arguments of an enclosing class are a part of its name.
            if let Some(arguments) = arguments.take() {
                name = Name { name, arguments: Some(arguments) }.to_string();
                self.substitutions.push(name.clone());
            } else if !name.is_empty() && self.substitutions.last() != Some(&name) {
                self.substitutions.push(name.clone());
            }
            let part = if self.eat("St") {
                "std".to_owned()
            } else if self.rest.starts_with('S') {
                self.substitution()?
            } else {
                self.source_name()?.to_owned()
            };
            if part.starts_with("_GLOBAL__N_") {
                // The anonymous namespace is a candidate for substitution, too.
                self.substitutions.push(name.clone());
                continue;
            }
            if !name.is_empty() {
                name.push_str("::");
            }
            name.push_str(&part);
        }
    }

    /// Reads a substitution: `S_` is the first, `S0_` the second.
    fn substitution(&mut self) -> Option<String> {
        self.eat("S").then_some(())?;
        let end = self.rest.find('_')?;
        let index = match self.rest.get(..end)? {
            "" => 0,
            digits => usize::from_str_radix(digits, 36).ok()?.checked_add(1)?,
        };
        self.rest = self.rest.get(end + 1..)?;
        self.substitutions.get(index).cloned()
    }

    fn arguments(&mut self) -> Option<Vec<String>> {
        self.depth += 1;
        if self.depth > 32 {
            return None;
        }
        self.eat("I").then_some(())?;
        let mut out = Vec::new();
        while !self.eat("E") {
            if self.rest.starts_with('J') {
                self.rest = self.rest.get(1..)?;
                while !self.eat("E") {
                    out.push(self.argument()?);
                }
            } else {
                out.push(self.argument()?);
            }
        }
        self.depth -= 1;
        Some(out)
    }

    fn argument(&mut self) -> Option<String> {
        if !self.eat("L") {
            return self.ty();
        }
        // The address of a function: `_Z` and its name.
        if self.eat("_Z") {
            let name = self.function_name()?;
            let end = self.rest.find('E')?;
            self.rest = self.rest.get(end + 1..)?;
            return Some(name.to_string());
        }
        let bool = self.rest.starts_with('b');
        let builtin = self.rest.chars().next().is_some_and(|c| BUILTIN.iter().any(|(letter, _)| *letter == c));
        let ty = self.ty()?;
        let end = self.rest.find('E')?;
        let value = self.rest.get(..end)?.replace('n', "-");
        self.rest = self.rest.get(end + 1..)?;
        Some(match (bool, builtin) {
            (true, _) => (value != "0").to_string(),
            (_, true) => value,
            _ => format!("({ty}){value}"),
        })
    }

    fn ty(&mut self) -> Option<String> {
        self.depth += 1;
        if self.depth > 32 {
            return None;
        }
        let ty = self.ty_inner();
        self.depth -= 1;
        ty
    }

    fn ty_inner(&mut self) -> Option<String> {
        for (letter, suffix) in [("P", "*"), ("R", "&"), ("O", "&&"), ("K", " const"), ("V", " volatile")] {
            if self.eat(letter) {
                let inner = self.ty()?;
                let ty = if letter == "K" { format!("const {inner}") } else { format!("{inner}{suffix}") };
                self.substitutions.push(ty.clone());
                return Some(ty);
            }
        }
        if self.rest.starts_with('N') {
            let name = self.nested()?.to_string();
            self.substitutions.push(name.clone());
            return Some(name);
        }
        if self.rest.starts_with('S') && !self.rest.starts_with("St") {
            let name = self.substitution()?;
            return self.with_arguments(name);
        }
        if self.rest.starts_with("St") || self.starts_with_digit() {
            let std = if self.eat("St") { "std::" } else { "" };
            let name = format!("{std}{}", self.source_name()?);
            self.substitutions.push(name.clone());
            return self.with_arguments(name);
        }
        let letter = self.rest.chars().next()?;
        let (_, name) = BUILTIN.iter().find(|(known, _)| *known == letter)?;
        self.rest = self.rest.get(1..)?;
        Some((*name).to_owned())
    }

    fn with_arguments(&mut self, name: String) -> Option<String> {
        if !self.rest.starts_with('I') {
            return Some(name);
        }
        let name = Name { name, arguments: Some(self.arguments()?) }.to_string();
        self.substitutions.push(name.clone());
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demangle_names_of_kernels() {
        for (symbol, name) in [
            ("_Z9vectorAddPKfS0_Pfi", "vectorAdd"),
            ("_ZN1a1tILi16EfEEvPT0_", "a::t<16, float>"),
            ("_ZN1a30_GLOBAL__N__00000000_5_my_cu_c1kEPf", "a::k"),
            ("_ZL1kPf", "k"),
            ("_Z1tILb1ELin3EjEvv", "t<true, -3, unsigned int>"),
            ("_Z1tI6__halfS0_EvPT_", "t<__half, __half>"),
            ("_Z1tIN2ns1SEPKS1_EvT_", "t<ns::S, const ns::S*>"),
            ("_Z1tIJfdEEvDpT_", "t<float, double>"),
            ("_Z1tI4BaseIfEEvT_", "t<Base<float>>"),
            ("_Z1tIL2Op1EEvv", "t<(Op)1>"),
        ] {
            assert_eq!(demangle(symbol).map(|name| name.to_string()).as_deref(), Some(name), "{symbol}");
        }
    }

    #[test]
    fn demangle_other_symbols_is_none() {
        for symbol in ["kernel", "_Z", "_Z99x", "_ZN", "_ZN1aI", "_Z1tIXadEE", "_Z1tIS9_E", ""] {
            assert_eq!(demangle(symbol), None, "{symbol}");
        }
        assert_eq!(demangle(&format!("_Z1t{}", "I1a".repeat(10_000))), None);
        assert_eq!(demangle(&format!("_Z1tI{}", "P".repeat(10_000))), None);
    }
}
