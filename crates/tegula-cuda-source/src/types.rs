//! Types of CUDA C++ that kernel arguments can have.

use rustc_hash::FxHashMap;

use super::ParamType;
use super::token::{Token, close_angle};
use crate::scalar_type::ScalarType::{self, *};

/// `long` has 32 bits on Windows.
const LONG: ScalarType = if cfg!(windows) { S32 } else { S64 };
const UNSIGNED_LONG: ScalarType = if cfg!(windows) { U32 } else { U64 };

/// Types with a name of one word: element type, and number of elements.
const WORDS: &[(&str, ScalarType, u32)] = &[
    ("bool", U8, 1),
    ("char", S8, 1),
    ("short", S16, 1),
    ("int", S32, 1),
    ("signed", S32, 1),
    ("unsigned", U32, 1),
    ("long", LONG, 1),
    ("float", F32, 1),
    ("double", F64, 1),
    ("size_t", U64, 1),
    ("ssize_t", S64, 1),
    ("ptrdiff_t", S64, 1),
    ("intptr_t", S64, 1),
    ("uintptr_t", U64, 1),
    ("int8_t", S8, 1),
    ("int16_t", S16, 1),
    ("int32_t", S32, 1),
    ("int64_t", S64, 1),
    ("uint8_t", U8, 1),
    ("uint16_t", U16, 1),
    ("uint32_t", U32, 1),
    ("uint64_t", U64, 1),
    ("byte", U8, 1),
    ("uchar", U8, 1),
    ("ushort", U16, 1),
    ("uint", U32, 1),
    ("ulong", UNSIGNED_LONG, 1),
    ("clock_t", S64, 1),
    ("half", F16, 1),
    ("__half", F16, 1),
    ("half2", F16x2, 1),
    ("__half2", F16x2, 1),
    ("nv_bfloat16", Bf16, 1),
    ("__nv_bfloat16", Bf16, 1),
    ("bfloat16", Bf16, 1),
    ("nv_bfloat162", Bf16x2, 1),
    ("__nv_bfloat162", Bf16x2, 1),
    ("__nv_fp8_e4m3", U8, 1),
    ("__nv_fp8_e5m2", U8, 1),
    ("cudaTextureObject_t", U64, 1),
    ("cudaSurfaceObject_t", U64, 1),
    ("cuComplex", F32, 2),
    ("cuFloatComplex", F32, 2),
    ("cuDoubleComplex", F64, 2),
];

/// Vector types: the name without its number of elements, and the element type.
const VECTORS: &[(&str, ScalarType)] = &[
    ("char", S8),
    ("uchar", U8),
    ("short", S16),
    ("ushort", U16),
    ("int", S32),
    ("uint", U32),
    ("long", LONG),
    ("ulong", UNSIGNED_LONG),
    ("longlong", S64),
    ("ulonglong", U64),
    ("float", F32),
    ("double", F64),
];

/// The type names that a program defines.
#[derive(Clone, Debug, Default)]
pub(super) struct Types {
    /// `typedef`, `using`, and the type arguments of a template.
    pub(super) aliases: FxHashMap<String, Vec<Token>>,
}

/// Words of a type that do not affect its elements.
const QUALIFIERS: &[&str] = &[
    "const",
    "volatile",
    "__restrict__",
    "__restrict",
    "restrict",
    "__grid_constant__",
    "typename",
    "struct",
    "class",
    "enum",
    "register",
    "static",
    "inline",
    "constexpr",
    "extern",
    "__device__",
    "__constant__",
    "__managed__",
    "__shared__",
];

pub(super) fn is_qualifier(token: &Token) -> bool {
    QUALIFIERS.iter().any(|q| token.is(q))
}

/// The element type and the number of elements of a type that is not a pointer.
fn elements(tokens: &[Token]) -> Option<(ScalarType, u32)> {
    let words: Vec<&str> = unqualified(tokens)?;
    if let [word] = words[..] {
        if let Some(&(_, scalar, count)) = WORDS.iter().find(|(name, ..)| *name == word) {
            return Some((scalar, count));
        }
        let count = word.get(word.len().checked_sub(1)?..)?.parse().ok().filter(|n| (1..=4).contains(n))?;
        let name = word.get(..word.len() - 1)?;
        return VECTORS.iter().find(|(vector, _)| *vector == name).map(|&(_, scalar)| (scalar, count));
    }
    let count = |word: &str| words.iter().filter(|w| **w == word).count();
    let known = ["unsigned", "signed", "long", "short", "int", "char", "double"];
    if words.is_empty() || words.iter().any(|word| !known.contains(word)) {
        return None;
    }
    let unsigned = count("unsigned") > 0;
    let (signed_type, unsigned_type) = match (count("char"), count("short"), count("long")) {
        (1, ..) => (S8, U8),
        (_, 1, _) => (S16, U16),
        (.., 2) => (S64, U64),
        // `long double` is not supported in device code.
        (.., 1) if count("double") > 0 => return None,
        (.., 1) => (LONG, UNSIGNED_LONG),
        _ => (S32, U32),
    };
    Some((if unsigned { unsigned_type } else { signed_type }, 1))
}

/// The words of a type without qualifiers and namespaces; `None` if it has other tokens.
fn unqualified(tokens: &[Token]) -> Option<Vec<&str>> {
    let mut words = Vec::new();
    for token in tokens.iter().filter(|t| !is_qualifier(t)) {
        if token.is("::") {
            words.pop();
        } else if token.is_name() {
            words.push(&*token.text);
        } else {
            return None;
        }
    }
    Some(words)
}

/// The type that tokens name, if it is an arithmetic type.
pub(super) fn arithmetic(tokens: &[Token]) -> Option<ScalarType> {
    elements(tokens).filter(|&(_, count)| count == 1).map(|(scalar, _)| scalar)
}

/// Size of a type in bytes; pointers have 8.
pub(super) fn size_of(tokens: &[Token]) -> Option<i64> {
    if tokens.last().is_some_and(|t| t.is("*")) {
        return Some(8);
    }
    elements(tokens).map(|(scalar, count)| i64::from(scalar.size() * count))
}

impl Types {
    /// The type of a parameter, from its tokens without the name. An array is a pointer.
    pub(super) fn param(&self, tokens: &[Token]) -> ParamType {
        self.resolve(tokens, 0)
    }

    /// Size of a type in bytes.
    pub(super) fn size_of(&self, tokens: &[Token]) -> Option<i64> {
        self.size_at(tokens, 0)
    }

    fn size_at(&self, tokens: &[Token], depth: u32) -> Option<i64> {
        size_of(tokens).or_else(|| match self.alias(tokens) {
            Some(alias) if depth < 8 => self.size_at(alias, depth + 1),
            _ => None,
        })
    }

    fn alias(&self, tokens: &[Token]) -> Option<&[Token]> {
        let words = unqualified(tokens)?;
        let [word] = words[..] else { return None };
        self.aliases.get(word).map(Vec::as_slice)
    }

    fn resolve(&self, tokens: &[Token], depth: u32) -> ParamType {
        let stars = tokens.iter().filter(|t| t.is("*")).count();
        let base: Vec<Token> = tokens.iter().filter(|t| !t.is("*")).cloned().collect();
        if depth > 8 || base.iter().any(|t| t.is("&") || t.is("&&") || t.is("(") || t.is("...")) {
            return ParamType::Unknown;
        }
        let inner = match (elements(&base), self.alias(&base)) {
            (_, Some(alias)) => self.resolve(alias, depth + 1),
            (Some((scalar, 1)), None) => ParamType::Scalar(scalar),
            // A pointer to a vector is a pointer to its elements; a vector by value is a structure.
            (Some((scalar, _)), None) if stars > 0 => ParamType::Scalar(scalar),
            _ => ParamType::Unknown,
        };
        match (stars, inner) {
            (0, inner) => inner,
            (1, ParamType::Scalar(scalar)) => ParamType::Pointer(Some(scalar)),
            (1, ParamType::Unknown) => {
                // An alias of a vector type: `typedef float4 quad; quad*`.
                let vector = self.alias(&base).and_then(elements).map(|(scalar, _)| scalar);
                ParamType::Pointer(vector)
            }
            // Pointers to pointers.
            _ => ParamType::Pointer(Some(B64)),
        }
    }
}

/// The canonical spelling of a type: `unsigned` is `unsigned int`.
pub(super) fn spelling(tokens: &[Token]) -> String {
    match arithmetic(tokens) {
        Some(scalar) => scalar.name().to_owned(),
        None => {
            let kept: Vec<Token> = tokens.iter().filter(|t| !t.is("struct") && !t.is("class")).cloned().collect();
            super::token::join(&kept)
        }
    }
}

/// Whether tokens can be a type: `float`, `const int*`, `ns::T<3>`.
pub(super) fn may_be_type(tokens: &[Token]) -> bool {
    let mut i = 0;
    while let Some(token) = tokens.get(i) {
        if token.is("<") {
            match close_angle(tokens, i, tokens.len()) {
                Some(end) => i = end,
                None => return false,
            }
            continue;
        }
        if !(token.is_name() || token.is("::") || token.is("*")) {
            return false;
        }
        i += 1;
    }
    tokens.first().is_some_and(|t| t.is_name() || t.is("::"))
}

#[cfg(test)]
mod tests {
    use super::super::token::tokens;
    use super::*;

    fn param(text: &str) -> ParamType {
        let mut types = Types::default();
        for (name, ty) in [("real", "float"), ("quad", "float4"), ("pointer", "double*"), ("loop", "loop")] {
            types.aliases.insert(name.to_owned(), tokens(ty, 0));
        }
        types.param(&tokens(text, 0))
    }

    #[test]
    fn param_types_are_those_of_cuda() {
        use ParamType::{Pointer, Scalar, Unknown};
        for (text, ty) in [
            ("const float* __restrict__", Pointer(Some(F32))),
            ("float const*", Pointer(Some(F32))),
            ("unsigned long long int", Scalar(U64)),
            ("unsigned", Scalar(U32)),
            ("unsigned char*", Pointer(Some(U8))),
            ("long long", Scalar(S64)),
            ("std::size_t", Scalar(U64)),
            ("const std::uint16_t*", Pointer(Some(U16))),
            ("bool", Scalar(U8)),
            ("__half*", Pointer(Some(F16))),
            ("const __nv_bfloat162*", Pointer(Some(Bf16x2))),
            ("float4*", Pointer(Some(F32))),
            ("float4", Unknown),
            ("cuDoubleComplex*", Pointer(Some(F64))),
            ("void*", Pointer(None)),
            ("const Particle*", Pointer(None)),
            ("Particle", Unknown),
            ("float**", Pointer(Some(B64))),
            ("float&", Unknown),
            ("long double", Unknown),
            ("real*", Pointer(Some(F32))),
            ("const real", Scalar(F32)),
            ("quad*", Pointer(Some(F32))),
            ("pointer", Pointer(Some(F64))),
            ("pointer*", Pointer(Some(B64))),
            ("loop", Unknown),
            ("T*", Pointer(None)),
            ("float (*)(float)", Unknown),
        ] {
            assert_eq!(param(text), ty, "{text}");
        }
    }

    #[test]
    fn size_of_vectors_and_pointers_is_known() {
        let size = |text: &str| size_of(&tokens(text, 0));
        assert_eq!(
            [size("float"), size("float3"), size("char4"), size("T*"), size("T")],
            [Some(4), Some(12), Some(4), Some(8), None]
        );
    }
}
