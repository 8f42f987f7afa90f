//! Removes host code from a program by replacing it with spaces.
//!
//! So lines and columns are unchanged. A declaration is kept if a kernel or a device variable uses
//! it, directly or through other kept declarations.

use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::declaration::{Declaration, Kind};
use super::headers;
use super::preprocess::{Preprocessed, SourceFile};
use super::token::{Token, written};

/// A program without its host code.
#[derive(Debug)]
pub(super) struct Blanked {
    /// The text of each file.
    pub(super) texts: Vec<String>,
    /// Names of removed functions and variables, with their lines.
    pub(super) removed: FxHashMap<String, (u32, Kind)>,
    /// Whether a kept function or variable has no execution space, such as `constexpr int f()`.
    pub(super) unannotated: bool,
    /// Whether kernels use templates of `namespace std`.
    pub(super) templates: bool,
    /// Macro invocations that expand to both kernels and host code: file, range of bytes, and the
    /// text that replaces the invocation.
    pub(super) edits: Vec<(u32, std::ops::Range<usize>, String)>,
    /// Names that the kept declarations use.
    used: FxHashSet<Rc<str>>,
}

impl Blanked {
    /// Whether a kept declaration uses a name.
    pub(super) fn uses(&self, name: &str) -> bool {
        self.used.contains(name)
    }
}

/// Specifiers of device declarations.
const DEVICE: &[&str] = &["__global__", "__device__", "__constant__", "__managed__", "__shared__"];

/// Namespaces of CUDA's device headers.
const DEVICE_NAMESPACES: &[&str] = &["nvcuda", "cooperative_groups", "cuda", "cub", "cg", "wmma"];

/// Whether a declaration is a kernel, a device function or a device variable.
pub(super) fn is_device(declaration: &Declaration, tokens: &[Token]) -> bool {
    declaration.words(tokens).iter().any(|t| DEVICE.iter().any(|word| t.is(word)))
}

/// Whether a declaration is a kernel.
pub(super) fn is_kernel(declaration: &Declaration, tokens: &[Token]) -> bool {
    matches!(declaration.kind, Kind::Function | Kind::Instantiation)
        && declaration.words(tokens).iter().any(|t| t.is("__global__"))
}

/// Blanks host code. `names` are the tokens of template arguments, whose declarations are kept.
pub(super) fn blank(program: &Preprocessed, declarations: &[Declaration], names: &[Token]) -> Blanked {
    let tokens = &program.tokens;
    let keep = Keep::find(tokens, declarations, names);
    let mut marks: Vec<Vec<Mark>> = vec![Vec::new(); program.files.len()];
    let mut removed = FxHashMap::default();
    let mut unannotated = false;
    for (declaration, kept) in declarations.iter().zip(&keep.kept) {
        mark(tokens, declaration, if *kept { Level::Kept } else { Level::Host }, &mut marks);
        if *kept {
            let needs_space = matches!(declaration.kind, Kind::Function | Kind::Variable);
            let array = declaration.words(tokens).iter().any(|t| t.is("constexpr")) && needs_space;
            unannotated |= array && !is_device(declaration, tokens);
        } else if matches!(declaration.kind, Kind::Function | Kind::Variable) {
            for token in declaration.names.iter().filter_map(|&name| tokens.get(name)) {
                removed.insert(token.text.to_string(), (token.line, declaration.kind));
            }
        }
    }
    for (declaration, _) in declarations.iter().zip(&keep.kept).filter(|(_, kept)| **kept) {
        members(tokens, declaration, &mut marks, &mut unannotated);
    }
    let edits = mixed(tokens, declarations, &keep.kept);
    let texts = program.files.iter().zip(&marks).map(|(file, marks)| apply(file, marks)).collect();
    let templates = headers::TEMPLATE_NAMES.iter().any(|name| keep.used.contains(*name));
    Blanked { texts, removed, unannotated, templates, edits, used: keep.used }
}

/// The class of a range of bytes. Ranges can overlap, since a macro can expand to kernels and host
/// code; later variants have precedence.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Host,
    Kept,
    HostMember,
}

/// A range of bytes of a file.
type Mark = (usize, usize, Level);

/// Marks the range of a declaration in each file that has tokens of it.
fn mark(tokens: &[Token], declaration: &Declaration, level: Level, marks: &mut [Vec<Mark>]) {
    let mut ranges: FxHashMap<u32, (usize, usize)> = FxHashMap::default();
    for token in tokens.get(declaration.range.clone()).unwrap_or(&[]) {
        let range = ranges.entry(token.file).or_insert((token.start, token.end));
        *range = (range.0.min(token.start), range.1.max(token.end));
    }
    for (file, (start, end)) in ranges {
        if let Some(marks) = marks.get_mut(file as usize) {
            marks.push((start, end, level));
        }
    }
}

/// Returns [`Blanked::edits`]: the kept text of macros that expand to kernels and host code.
fn mixed(tokens: &[Token], declarations: &[Declaration], kept: &[bool]) -> Vec<(u32, std::ops::Range<usize>, String)> {
    // The macro invocation that expands to the whole declaration.
    let invocation = |declaration: &Declaration| {
        let list = tokens.get(declaration.range.clone())?;
        let first = list.first().filter(|t| t.expanded)?;
        let place = (first.file, first.start, first.end);
        list.iter().all(|t| (t.file, t.start, t.end) == place).then_some(place)
    };
    let mut texts: FxHashMap<(u32, usize, usize), (String, bool)> = FxHashMap::default();
    for (declaration, kept) in declarations.iter().zip(kept) {
        let Some(place) = invocation(declaration) else { continue };
        let (text, host) = texts.entry(place).or_default();
        *host |= !kept;
        if *kept {
            text.push_str(&written(tokens.get(declaration.range.clone()).unwrap_or(&[])));
            text.push(' ');
        }
    }
    let mixed = texts.into_iter().filter(|(_, (text, host))| *host && !text.is_empty());
    mixed.map(|((file, start, end), (text, _))| (file, start..end, text)).collect()
}

/// Blanks the members of a kept class that only the host uses.
fn members(tokens: &[Token], class: &Declaration, marks: &mut [Vec<Mark>], unannotated: &mut bool) {
    for member in &class.members {
        if is_host_member(tokens, member) {
            mark(tokens, member, Level::HostMember, marks);
        } else {
            let constant = member.words(tokens).iter().any(|t| t.is("constexpr"));
            *unannotated |= member.kind == Kind::Function && constant && !is_device(member, tokens);
            members(tokens, member, marks, unannotated);
        }
    }
}

fn is_host_member(tokens: &[Token], member: &Declaration) -> bool {
    if is_device(member, tokens) {
        return false;
    }
    let list = tokens.get(member.range.clone()).unwrap_or(&[]);
    match member.kind {
        Kind::Function => {
            let after = tokens.get(member.head.end..member.range.end).unwrap_or(&[]);
            let defaulted = after.iter().any(|t| t.is("default") || t.is("delete"));
            let constant = member.words(tokens).iter().any(|t| t.is("constexpr"));
            !defaulted && (!constant || mentions_host(list))
        }
        // A friend.
        Kind::Other => list.iter().any(|t| t.is("(")) || mentions_host(list),
        Kind::Class => false,
        _ => mentions_host(list),
    }
}

/// Whether tokens use a host library: `std::vector`, `thrust::…`.
fn mentions_host(tokens: &[Token]) -> bool {
    tokens.windows(3).any(|window| {
        let [space, colons, name] = window else { return false };
        colons.is("::") && space.is("std") && !headers::in_namespace_std(&name.text)
    })
}

/// The text of a file with its host code blanked.
fn apply(file: &SourceFile, marks: &[Mark]) -> String {
    let mut blank = vec![false; file.text.len()];
    for level in [Level::Host, Level::Kept, Level::HostMember] {
        for &(start, end, _) in marks.iter().filter(|mark| mark.2 == level) {
            if let Some(range) = blank.get_mut(start..end) {
                range.fill(level != Level::Kept);
            }
        }
    }
    for directive in file.directives.iter().filter(|d| d.structural) {
        if let Some(range) = blank.get_mut(directive.start..directive.end) {
            range.fill(false);
        }
    }
    let mut text = String::with_capacity(file.text.len());
    for (at, c) in file.text.char_indices() {
        let keep = c == '\n' || c == '\r' || !blank.get(at).copied().unwrap_or(false);
        if keep {
            text.push(c);
        } else {
            text.extend(std::iter::repeat_n(' ', c.len_utf8()));
        }
    }
    text
}

/// The kept declarations at namespace scope, and the names that they use.
struct Keep {
    kept: Vec<bool>,
    used: FxHashSet<Rc<str>>,
}

impl Keep {
    fn find(tokens: &[Token], declarations: &[Declaration], names: &[Token]) -> Self {
        // Indices of declarations by the names that they declare.
        let mut by_name: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
        let mut work = Vec::new();
        let mut own_namespaces: FxHashSet<&str> = DEVICE_NAMESPACES.iter().copied().collect();
        for (i, declaration) in declarations.iter().enumerate() {
            own_namespaces.extend(declaration.scope.iter().map(String::as_str));
            if is_root(tokens, declaration) {
                work.push(i);
            }
            for name in declaration.names.iter().filter_map(|&name| tokens.get(name)) {
                by_name.entry(&name.text).or_default().push(i);
            }
        }
        let mut keep = Self { kept: vec![false; declarations.len()], used: FxHashSet::default() };
        for name in names.iter().filter(|token| token.is_name() && keep.used.insert(token.text.clone())) {
            let found = by_name.get(&*name.text).into_iter().flatten();
            work.extend(found.filter(|&&found| declarations.get(found).is_some_and(|d| is_usable(tokens, d))));
        }
        while let Some(i) = work.pop() {
            let (Some(declaration), Some(kept)) = (declarations.get(i), keep.kept.get_mut(i)) else { continue };
            if std::mem::replace(kept, true) {
                continue;
            }
            keep.use_names(tokens, declaration, &mut |name| {
                for &found in by_name.get(name).into_iter().flatten() {
                    if declarations.get(found).is_some_and(|d| is_usable(tokens, d)) {
                        work.push(found);
                    }
                }
            });
        }
        for (i, declaration) in declarations.iter().enumerate().filter(|(_, d)| d.kind == Kind::Using) {
            let path: Vec<&Token> = tokens
                .get(declaration.head.clone())
                .unwrap_or(&[])
                .iter()
                .filter(|t| t.is_name() && !t.is("using") && !t.is("namespace"))
                .collect();
            let kept = match path[..] {
                [first] => first.is("std") || own_namespaces.contains(&*first.text),
                [first, name] if first.is("std") => headers::in_namespace_std(&name.text),
                [first, ..] => own_namespaces.contains(&*first.text),
                [] => false,
            };
            if let Some(slot) = keep.kept.get_mut(i) {
                *slot = kept;
            }
        }
        keep
    }

    /// Calls `visit` for each name that a declaration is the first to use. Blanked members are
    /// skipped.
    fn use_names(&mut self, tokens: &[Token], declaration: &Declaration, visit: &mut dyn FnMut(&str)) {
        let skipped: Vec<_> = declaration
            .members
            .iter()
            .filter(|member| is_host_member(tokens, member))
            .map(|m| m.range.clone())
            .collect();
        for i in declaration.range.clone() {
            let Some(token) = tokens.get(i).filter(|t| t.is_name()) else { continue };
            if !skipped.iter().any(|range| range.contains(&i)) && self.used.insert(token.text.clone()) {
                visit(&token.text);
            }
        }
    }
}

/// Whether a declaration is always kept: kernels, device variables, device operators.
fn is_root(tokens: &[Token], declaration: &Declaration) -> bool {
    if declaration.kind == Kind::Instantiation || is_kernel(declaration, tokens) {
        return is_device(declaration, tokens);
    }
    let operator = declaration.name(tokens) == "operator";
    let variable = declaration.kind == Kind::Variable;
    let definition = declaration.kind == Kind::Function && is_member_definition(tokens, declaration);
    is_device(declaration, tokens) && (operator || variable || definition)
}

/// Whether a declaration defines a member outside of its class: `float C::f() { … }`.
fn is_member_definition(tokens: &[Token], declaration: &Declaration) -> bool {
    let before = declaration.names.first().and_then(|name| name.checked_sub(1)).and_then(|i| tokens.get(i));
    before.is_some_and(|t| t.is("::"))
}

/// Whether device code can use a declaration.
fn is_usable(tokens: &[Token], declaration: &Declaration) -> bool {
    if is_device(declaration, tokens) {
        return true;
    }
    let words = declaration.words(tokens);
    let has = |word: &str| words.iter().any(|t| t.is(word));
    let list = tokens.get(declaration.range.clone()).unwrap_or(&[]);
    match declaration.kind {
        Kind::Function => has("constexpr") && !has("__host__") && !mentions_host(list),
        Kind::Variable => (has("const") || has("constexpr")) && !mentions_host(list),
        Kind::Class | Kind::Enum => true,
        Kind::Alias => !mentions_host(list),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::declaration::declarations;
    use super::super::preprocess::preprocess;
    use super::*;

    fn run(text: &str) -> Blanked {
        let program = preprocess(Path::new("a.cu"), text, &[], &[], &|_| None);
        let declarations = declarations(&program.tokens);
        let blanked = blank(&program, &declarations, &[]);
        assert_eq!(blanked.texts[0].len(), text.len());
        assert_eq!(blanked.texts[0].lines().count(), text.lines().count());
        blanked
    }

    /// The words that are left.
    fn left(text: &str) -> String {
        run(text).texts[0].split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn blank_keeps_what_kernels_use_and_their_columns() {
        let text = "const int N = 4; const int M = 5;\nstruct S { int a; };\nstruct H { std::string s; };\n\
                    __device__ int f(S s) { return s.a; }\n__global__ void k(int* p) { *p = f({N}); }\n\
                    int main() { /* } */ k<<<1, 1>>>(0); }\nvoid g();\n";
        let blanked = run(text).texts.remove(0);
        assert_eq!(blanked.lines().nth(4), text.lines().nth(4));
        assert_eq!(
            blanked.split_whitespace().collect::<Vec<_>>().join(" "),
            "const int N = 4; struct S { int a; }; __device__ int f(S s) { return s.a; } \
             __global__ void k(int* p) { *p = f({N}); }"
        );
    }

    #[test]
    fn blank_conditionals_stay_balanced() {
        let text = "int main() {\n#ifdef A\n  if (1) {\n#else\n  {\n#endif\n  }\n#define N 3\n#include <x>\n}\n\
                    __global__ void k() {}";
        assert_eq!(left(text), "#ifdef A #else #endif #define N 3 __global__ void k() {}");
    }

    #[test]
    fn blank_members_of_the_host_are_taken_out_of_kept_classes() {
        let text = "struct S { float x; S() {} void print() { std::cout << x; } std::vector<int> v;\n\
                    __device__ float get() const { return x; } S(const S&) = default;\n\
                    friend std::ostream& operator<<(std::ostream& o, S s) { return o; } };\n\
                    __global__ void k(S s) {}";
        assert_eq!(
            left(text),
            "struct S { float x; __device__ float get() const { return x; } S(const S&) = default; }; \
             __global__ void k(S s) {}"
        );
    }

    #[test]
    fn blank_macros_that_make_kernels_stay() {
        let text = "#define MAKE(name) __global__ void name(int* p) { *p = 1; } void call_##name() { }\n\
                    #define CHECK(x) do { x; } while (0)\nMAKE(a)\nint main() { CHECK(f()); }\n";
        let blanked = run(text);
        assert!(blanked.texts[0].ends_with("MAKE(a)\n                          \n"), "{:?}", blanked.texts[0]);
        assert_eq!(blanked.removed.get("main"), Some(&(4, Kind::Function)));
    }

    #[test]
    fn blank_using_of_host_namespaces_is_taken_out() {
        let text = "using namespace std; using namespace std::chrono; using std::vector; using std::max;\n\
                    using namespace nvcuda; using namespace boost; namespace own { int x; } using namespace own;";
        assert_eq!(
            left(text),
            "using namespace std; using std::max; using namespace nvcuda; namespace own { } using namespace own;"
        );
    }

    #[test]
    fn blank_constexpr_functions_need_a_default_space() {
        assert!(run("constexpr int f() { return 1; } __global__ void k() { f(); }").unannotated);
        assert!(!run("constexpr int f() { return 1; } __global__ void k() { }").unannotated);
        assert!(!run("const int n = 1; __global__ void k(int* p) { *p = n; }").unannotated);
        assert!(run("__global__ void k(int* p) { *p = std::numeric_limits<int>::max(); }").templates);
    }
}
