use super::super::token::tokens;
use super::*;

fn list(text: &str) -> Vec<(Kind, String)> {
    let tokens = tokens(text, 0);
    declarations(&tokens).iter().map(|d| (d.kind, d.qualified(&tokens))).collect()
}

fn one(text: &str) -> (Kind, String) {
    let found = list(text);
    assert_eq!(found.len(), 1, "{text}: {found:?}");
    found[0].clone()
}

#[test]
fn declarations_have_their_kind_and_name() {
    use Kind::*;
    for (text, kind, name) in [
        ("__global__ void k(float* a) { a[0] = {}; }", Function, "k"),
        ("extern \"C\" __global__ void __launch_bounds__(256, 2) k(int n);", Function, "k"),
        ("__attribute__((noinline)) __device__ int f(int x) noexcept(true) { return x; }", Function, "f"),
        ("template <int N, class T = A<(3 > 2)>> __global__ void k(T*) {}", Function, "k"),
        ("template <> __device__ float f<float, A<int>>(float x) { return x; }", Function, "f"),
        ("template __global__ void k<16>(float*);", Instantiation, "k"),
        ("auto f(int x) -> decltype(x) { return x; }", Function, "f"),
        ("S::S(int n) : a{n}, b(n), c<int>{3} { f(); }", Function, "S"),
        ("bool S::operator()(int a) const { return a; }", Function, "operator"),
        ("__host__ __device__ inline V operator+(const V& a, const V& b) { return {}; }", Function, "operator"),
        ("bool operator<(A a, B b) { return a.x < b.x; }", Function, "operator"),
        ("std::map<int, std::vector<int>> make(int n) { return {}; }", Function, "make"),
        ("const int N = 16;", Variable, "N"),
        ("static constexpr float table[] = {1, 2};", Variable, "table"),
        ("__constant__ float c[3][3];", Variable, "c"),
        ("int x{3};", Variable, "x"),
        ("std::vector<float> data;", Variable, "data"),
        ("std::function<void(int)> callback = [](int x) { f(x); };", Variable, "callback"),
        ("auto g = [] __device__ (float x) { return x; };", Variable, "g"),
        ("__device__ float (*op)(float) = f;", Variable, "op"),
        ("struct alignas(16) P { float x; void f() {} };", Class, "P"),
        ("template <typename T> struct S<T*> : Base<T> { };", Class, "S"),
        ("typedef struct { int a; } Pair;", Class, "Pair"),
        ("enum class E : int { A, B = f(1, 2) };", Enum, "E"),
        ("typedef float real;", Alias, "real"),
        ("typedef float (*op_t)(float);", Alias, "op_t"),
        ("using T = float;", Alias, "T"),
        ("template <class T> using V = S<T>;", Alias, "V"),
        ("struct S;", Alias, "S"),
        ("namespace cg = cooperative_groups;", Alias, "cg"),
        ("using namespace std;", Using, ""),
        ("static_assert(N > 3, \"\");", Other, ""),
        ("TEST(A, b) { f(); }", Function, "TEST"),
    ] {
        assert_eq!(one(text), (kind, name.to_owned()), "{text}");
    }
}

#[test]
fn declarations_end_where_the_next_begins() {
    let text = "int a = f({1, 2}); struct S { int x; S() : x(1) {} } s, *t; int main() { if (a) { } } ;\n\
                enum { A, B }; namespace n { inline namespace m { void f() {} } } extern \"C\" { void g(); }";
    let names: Vec<String> = list(text).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["a", "S", "main", "A", "n::m::f", "g"]);
}

#[test]
fn declarations_of_a_class_are_its_members() {
    let text = "class C { public: C(int n); ~C() {} template <class T> void f(T x) { } \n\
                __device__ float g() const { return 1; } private: int n = 3; std::vector<int> v; \n\
                C(const C&) = delete; operator bool() const { return true; } struct In { int a; }; };";
    let tokens = tokens(text, 0);
    let class = &declarations(&tokens)[0];
    let members: Vec<_> = class.members.iter().map(|d| (d.kind, d.name(&tokens))).collect();
    use Kind::*;
    assert_eq!(
        members,
        [
            (Function, "C"),
            (Function, "C"),
            (Function, "f"),
            (Function, "g"),
            (Variable, "n"),
            (Variable, "v"),
            (Function, "C"),
            (Function, "operator"),
            (Class, "In")
        ]
    );
}

#[test]
fn declarations_of_broken_text_end() {
    for text in ["}}}", "template <", "struct S {", "int f(", "a < b", "namespace {", "operator", "class", "(", "{{{"] {
        let _ = list(text);
    }
    let _ = list(&"namespace a { ".repeat(1000));
    let _ = list(&"struct a { ".repeat(1000));
}
