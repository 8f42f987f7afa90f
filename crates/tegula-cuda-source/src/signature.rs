//! Signatures of the kernels of a program: names, parameters and template parameters.

use super::blank::is_kernel;
use super::declaration::{Declaration, Kind};
use super::token::{Token, close_angle, join, split};
use super::types::{Types, arithmetic, is_qualifier};
use super::{Param, ParamType};

/// A kernel in the source.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// The name, with its namespaces.
    pub(super) name: String,
    /// Number of its file.
    pub(super) file: u32,
    /// Line of its name, and its last line.
    pub(super) lines: (u32, u32),
    pub(super) params: Vec<KernelParam>,
    /// Template parameters; `None` if it is not a template.
    pub(super) template: Option<Vec<TemplateParam>>,
    /// Template arguments of explicit instantiations, `template __global__ void k<3>(…);`.
    pub(super) instantiations: Vec<Vec<Token>>,
}

/// A parameter in the source.
#[derive(Clone, Debug)]
pub(super) struct KernelParam {
    pub(super) name: String,
    /// Its type, without the name and without a default.
    pub(super) ty: Vec<Token>,
}

/// A parameter of a template.
#[derive(Clone, Debug)]
pub(super) struct TemplateParam {
    pub(super) name: String,
    /// Whether it is a type parameter: `typename T` or `class T`.
    pub(super) is_type: bool,
    pub(super) is_bool: bool,
    /// Whether it is a value of an arithmetic type or `auto`, and not of an enumeration.
    pub(super) is_number: bool,
    pub(super) has_default: bool,
    pub(super) is_pack: bool,
    /// The source text.
    pub(super) text: String,
}

/// The kernels of a program, in source order. A prototype is used only without a definition.
pub(super) fn kernels(tokens: &[Token], declarations: &[Declaration]) -> Vec<Kernel> {
    let mut kernels: Vec<Kernel> = Vec::new();
    let is_kernel = |d: &&Declaration| is_kernel(d, tokens);
    for declaration in declarations.iter().filter(|d| d.kind == Kind::Function).filter(is_kernel) {
        // A specialization `template <> … k<float>` is not a separate kernel.
        let specialization = declaration.template.as_ref().is_some_and(|range| range.is_empty());
        if !declaration.body.is_empty() || declaration.range.end > declaration.head.end + 1 {
            let kernel = kernel(tokens, declaration);
            if !specialization && !kernels.iter().any(|k| k.same(&kernel)) {
                kernels.push(kernel);
            }
        }
    }
    for declaration in declarations.iter().filter(|d| d.kind == Kind::Instantiation).filter(is_kernel) {
        let Some(&name) = declaration.names.first() else { continue };
        let Some(end) = close_angle(tokens, name + 1, declaration.range.end) else { continue };
        let qualified = declaration.qualified(tokens);
        if let Some(kernel) = kernels.iter_mut().find(|k| k.template.is_some() && k.name == qualified) {
            kernel.instantiations.extend(tokens.get(name + 2..end - 1).map(<[Token]>::to_vec));
        }
    }
    kernels
}

fn kernel(tokens: &[Token], declaration: &Declaration) -> Kernel {
    let place = declaration.names.first().and_then(|&i| tokens.get(i));
    let line = place.map_or(0, |t| t.line);
    let last = tokens.get(declaration.range.end.saturating_sub(1)).map_or(line, |t| t.line);
    let list = |range: &std::ops::Range<usize>| tokens.get(range.clone()).unwrap_or(&[]);
    let mut params: Vec<_> = split(list(&declaration.params)).into_iter().map(param).collect();
    // `k(void)`
    if let [only] = &params[..]
        && join(&only.ty) == "void"
    {
        params.clear();
    }
    Kernel {
        name: declaration.qualified(tokens),
        file: place.map_or(0, |t| t.file),
        lines: (line, last),
        params: params.into_iter().enumerate().map(named).collect(),
        template: declaration
            .template
            .as_ref()
            .map(|range| split(list(range)).into_iter().map(template_param).collect()),
        instantiations: Vec::new(),
    }
}

fn named((i, param): (usize, KernelParam)) -> KernelParam {
    if param.name.is_empty() { KernelParam { name: format!("arg{i}"), ..param } } else { param }
}

fn param(tokens: &[Token]) -> KernelParam {
    let end = tokens.iter().position(|t| t.is("=")).unwrap_or(tokens.len());
    let tokens = tokens.get(..end).unwrap_or(&[]);
    let bracket = tokens.iter().position(|t| t.is("[")).unwrap_or(tokens.len());
    let (declarator, extents) = tokens.split_at(bracket);
    // In `float (&x)[3]` and `float (*f)(float)`, the name is inside of the parentheses.
    let inner = declarator
        .iter()
        .position(|t| t.is("("))
        .and_then(|open| declarator.iter().skip(open).position(Token::is_name).map(|at| open + at));
    let words = declarator.iter().filter(|t| t.is_name() && !is_qualifier(t)).count();
    let last = declarator.len().checked_sub(1).filter(|&i| {
        let follows_scope = i > 0 && declarator.get(i - 1).is_some_and(|t| t.is("::"));
        let Some(token) = declarator.get(i) else { return false };
        let symbol = |t: &Token| t.is("*") || t.is("&") || t.is(">") || t.is("...") || t.is("&&");
        let after_type = words > 1 || declarator.iter().any(symbol);
        token.is_name() && !is_qualifier(token) && !follows_scope && after_type && !is_basic(token)
    });
    let name = inner.or(last);
    let mut ty: Vec<Token> = declarator.to_vec();
    let mut text = String::new();
    if let Some(name) = name.filter(|&i| i < ty.len()) {
        text = ty.remove(name).text.to_string();
    }
    // A parameter of an array type is a pointer.
    if !extents.is_empty() {
        let star = extents.first().map(|t| Token { text: "*".into(), ..t.clone() });
        ty.extend(star);
    }
    KernelParam { name: text, ty }
}

/// Whether a word is part of a basic type, as in an unnamed `unsigned int`.
fn is_basic(token: &Token) -> bool {
    ["int", "char", "short", "long", "float", "double", "bool", "unsigned", "signed", "void"]
        .iter()
        .any(|word| token.is(word))
}

fn template_param(tokens: &[Token]) -> TemplateParam {
    let end = tokens.iter().position(|t| t.is("=")).unwrap_or(tokens.len());
    let declared = tokens.get(..end).unwrap_or(&[]);
    let name = declared.iter().rev().find(|t| t.is_name()).map_or(String::new(), |t| t.text.to_string());
    let ty = declared.split_last().map_or(declared, |(_, ty)| ty);
    TemplateParam {
        name,
        is_number: arithmetic(ty).is_some() || declared.iter().any(|t| t.is("auto")),
        is_type: declared.first().is_some_and(|t| t.is("typename") || t.is("class") || t.is("template")),
        is_bool: declared.iter().any(|t| t.is("bool")),
        has_default: end < tokens.len(),
        is_pack: declared.iter().any(|t| t.is("...")),
        text: join(tokens),
    }
}

impl Kernel {
    /// Whether two declarations declare the same kernel.
    fn same(&self, other: &Self) -> bool {
        let types = |k: &Self| k.params.iter().map(|p| join(&p.ty)).collect::<Vec<_>>();
        self.name == other.name && self.file == other.file && self.lines == other.lines && types(self) == types(other)
    }

    /// The parameters, with type aliases and type arguments of the template resolved.
    pub(super) fn params(&self, types: &Types) -> Vec<Param> {
        self.params
            .iter()
            .map(|param| {
                let ty = types.param(&param.ty);
                let star = param.ty.iter().position(|t| t.is("*"));
                let pointee = param.ty.get(..star.unwrap_or(0)).unwrap_or(&[]);
                let is_const = matches!(ty, ParamType::Pointer(_)) && pointee.iter().any(|t| t.is("const"));
                Param { name: param.name.clone(), ty, is_const, text: join(&param.ty) }
            })
            .collect()
    }
}

/// The type aliases and enumerations of a program.
pub(super) fn types(tokens: &[Token], declarations: &[Declaration]) -> Types {
    let mut types = Types::default();
    let mut add = |name: &str, list: &[Token]| {
        if !list.is_empty() && !list.iter().any(|t| t.is_name() && t.is(name)) {
            types.aliases.entry(name.to_owned()).or_insert_with(|| list.to_vec());
        }
    };
    for declaration in declarations {
        let head = tokens.get(declaration.head.clone()).unwrap_or(&[]);
        let name = declaration.name(tokens);
        match declaration.kind {
            Kind::Alias if declaration.template.is_none() => {
                if head.first().is_some_and(|t| t.is("typedef")) {
                    let end = head.iter().position(|t| t.is(name)).unwrap_or(0);
                    let array = head.get(end + 1).is_some_and(|t| t.is("["));
                    if !array {
                        add(name, head.get(1..end).unwrap_or(&[]));
                    }
                } else if let Some(assigned) = head.iter().position(|t| t.is("=")) {
                    // Without the semicolon.
                    let end = head.len().saturating_sub(1);
                    add(name, head.get(assigned + 1..end).unwrap_or(&[]));
                }
            }
            Kind::Enum => {
                // The underlying type of `enum class E : unsigned char`; `int` without one.
                let colon = head.iter().position(|t| t.is(":"));
                let int = head.first().map(|t| Token { text: "int".into(), ..t.clone() });
                match colon.and_then(|colon| head.get(colon + 1..)) {
                    Some(list) => add(name, list),
                    None => add(name, int.as_slice()),
                }
            }
            _ => {}
        }
    }
    types
}

#[cfg(test)]
mod tests {
    use super::super::declaration::declarations;
    use super::super::token::tokens;
    use super::*;
    use crate::scalar_type::ScalarType::{F16, F32, S32, U8, U32, U64};

    fn read(text: &str) -> (Vec<Kernel>, Types) {
        let tokens = tokens(text, 0);
        let declarations = declarations(&tokens);
        (kernels(&tokens, &declarations), types(&tokens, &declarations))
    }

    fn params(text: &str) -> Vec<(String, ParamType, bool, String)> {
        let (kernels, types) = read(text);
        assert_eq!(kernels.len(), 1, "{text}");
        kernels[0].params(&types).into_iter().map(|p| (p.name, p.ty, p.is_const, p.text)).collect()
    }

    fn param(name: &str, ty: ParamType, is_const: bool, text: &str) -> (String, ParamType, bool, String) {
        (name.to_owned(), ty, is_const, text.to_owned())
    }

    #[test]
    fn params_have_names_types_and_text() {
        use ParamType::{Pointer, Scalar, Unknown};
        let text = "__global__ void k(const float* __restrict__ A, float const B[], unsigned int n, const int m = 3,\n\
                    half *const C, struct P p, unsigned long long, float (&x)[3], float a[4][4], int32_t* const* q) {}";
        assert_eq!(
            params(text),
            [
                param("A", Pointer(Some(F32)), true, "const float* __restrict__"),
                param("B", Pointer(Some(F32)), true, "float const*"),
                param("n", Scalar(U32), false, "unsigned int"),
                param("m", Scalar(S32), false, "const int"),
                param("C", Pointer(Some(F16)), false, "half* const"),
                param("p", Unknown, false, "struct P"),
                param("arg6", Scalar(U64), false, "unsigned long long"),
                param("x", Unknown, false, "float(&)*"),
                param("a", Pointer(Some(F32)), false, "float*"),
                param("q", Pointer(Some(crate::scalar_type::ScalarType::B64)), false, "int32_t* const*"),
            ]
        );
        assert_eq!(params("__global__ void k(void) {}"), []);
    }

    #[test]
    fn params_use_the_types_of_the_program() {
        use ParamType::{Pointer, Scalar};
        let text = "typedef float real; using index = unsigned; enum class E : unsigned char { A }; enum F { B };\n\
                    typedef real* vec; __global__ void k(real* a, index n, E e, F f, vec v, const ns::real* b) {}";
        let types: Vec<_> = params(text).into_iter().map(|p| p.1).collect();
        assert_eq!(
            types,
            [Pointer(Some(F32)), Scalar(U32), Scalar(U8), Scalar(S32), Pointer(Some(F32)), Pointer(Some(F32))]
        );
    }

    #[test]
    fn kernels_are_found_with_namespaces_templates_and_instantiations() {
        let text = "namespace a { namespace { __global__ void __launch_bounds__(64) k(int) {} } }\n\
                    template <int N, typename T = float, bool flag = false>\n__global__ void t(T* p)\n{\n}\n\
                    template __global__ void t<3, double>(double*); __global__ void only_declared(int);\n\
                    extern \"C\" { __global__ void c() {} } __device__ void f() {} void host() {}";
        let (kernels, _) = read(text);
        let found: Vec<_> = kernels.iter().map(|k| (k.name.as_str(), k.lines)).collect();
        assert_eq!(found, [("a::k", (1, 1)), ("t", (3, 5)), ("c", (7, 7))]);
        let template = kernels[1].template.as_ref().unwrap();
        let about: Vec<_> = template.iter().map(|p| (p.name.as_str(), p.is_type, p.is_bool, p.has_default)).collect();
        assert_eq!(about, [("N", false, false, false), ("T", true, false, true), ("flag", false, true, true)]);
        assert_eq!(join(&kernels[1].instantiations[0]), "3, double");
    }
}
