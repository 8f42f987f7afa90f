//! What values are called, by how they are used: a row of C is `row`, the block's part of it `block_row`, what is added up is `sum`.

use rustc_hash::{FxHashMap, FxHashSet};
use tegula_core::element::Type;

use super::tree::{Expr, Line, Stmt, visit, visit_exprs};
use crate::launch::Field;
use crate::{Access, Axis, Binary, Kernel, Order2d, ParamId, ParamKind, Special, ValId, VarId};

/// A name for everything that needs one. No two are the same, and none means something in C++.
pub(super) struct Names {
    pub entry: String,
    values: FxHashMap<ValId, String>,
    /// Of the 64-bit counters behind those that could overflow.
    wide: FxHashMap<ValId, String>,
    variables: FxHashMap<VarId, String>,
    rolled: FxHashMap<usize, String>,
    fields: FxHashMap<Field, String>,
    pub shared: Vec<String>,
}

/// Names that are taken: the language's words, and what CUDA and the text itself define.
const TAKEN: &str = "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl \
    concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double \
    dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not \
    not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return short signed sizeof static \
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using \
    virtual void volatile wchar_t while xor xor_eq threadIdx blockIdx blockDim gridDim warpSize min max fma fmaf fmin fminf fmax \
    fmaxf fabs fabsf main wrapping_add wrapping_sub wrapping_mul wrapping_mul_add";

impl Names {
    pub fn new(kernel: &Kernel, body: &[Line]) -> Self {
        let mut pool = Pool(TAKEN.split_whitespace().map(String::from).collect());
        let entry = pool.fresh(kernel.name());
        let mut fields: FxHashMap<Field, String> = FxHashMap::default();
        for field in kernel.fields() {
            let name = pool.fresh(&field_name(kernel, field));
            fields.insert(field, name);
        }
        let shared = kernel.shared().iter().map(|array| pool.fresh(&array.name)).collect();
        let mut names = Names {
            entry,
            values: FxHashMap::default(),
            wide: FxHashMap::default(),
            variables: FxHashMap::default(),
            rolled: FxHashMap::default(),
            fields,
            shared,
        };
        let uses = Uses::new(kernel, body);
        visit(body, &mut |line| match &line.what {
            Stmt::Let(value, e) => {
                let name = pool.fresh(&names.constant(kernel, &uses, *value, e));
                names.values.insert(*value, name);
            }
            Stmt::For { counter, start, overflows, .. } => {
                let name = pool.fresh(&uses.counter(*counter, start));
                if *overflows {
                    names.wide.insert(*counter, pool.fresh(&format!("wide_{name}")));
                }
                names.values.insert(*counter, name);
            }
            Stmt::Declare(variable, _) => {
                let name = if uses.sums.contains(variable) { "sum" } else { "value" };
                names.variables.insert(*variable, pool.fresh(name));
            }
            Stmt::Rolled { number, .. } => {
                names.rolled.insert(*number, pool.fresh("p"));
            }
            Stmt::Set(..) | Stmt::Store { .. } | Stmt::Barrier | Stmt::If { .. } => {}
        });
        names
    }

    fn constant(&self, kernel: &Kernel, uses: &Uses, value: ValId, e: &Expr) -> String {
        if let Some(role) = uses.role(kernel, value) {
            return role;
        }
        match e {
            Expr::Special(Special::ThreadX) => "tx".into(),
            Expr::Special(Special::ThreadY) => "ty".into(),
            Expr::Special(Special::ThreadZ) => "tz".into(),
            Expr::Global(param, ..) => format!("{}_value", self.matrix(*param)),
            Expr::Shared(array, ..) => format!("{}_value", self.shared[array.index()]),
            Expr::Binary(Binary::Mul, _, factors) if factors.iter().any(|f| matches!(f, Expr::Scalar(_))) => {
                "scaled".into()
            }
            _ => match kernel.value_type(value) {
                Type::Pred => "holds".into(),
                Type::U32 => "index".into(),
                _ => "value".into(),
            },
        }
    }

    pub fn value(&self, value: ValId) -> &str {
        self.values.get(&value).map_or("", String::as_str)
    }

    pub fn wide(&self, counter: ValId) -> &str {
        self.wide.get(&counter).map_or("", String::as_str)
    }

    pub fn variable(&self, variable: VarId) -> &str {
        self.variables.get(&variable).map_or("", String::as_str)
    }

    pub fn rolled(&self, number: usize) -> &str {
        self.rolled.get(&number).map_or("", String::as_str)
    }

    pub fn field(&self, field: Field) -> &str {
        self.fields.get(&field).map_or("", String::as_str)
    }

    pub fn matrix(&self, param: ParamId) -> &str {
        self.field(Field::Address(param))
    }
}

struct Pool(FxHashSet<String>);

impl Pool {
    fn fresh(&mut self, name: &str) -> String {
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let name = if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { format!("k{name}") };
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let free =
            std::iter::once(name.clone()).chain(numbered).find(|name| !self.0.contains(name)).unwrap_or_default();
        self.0.insert(free.clone());
        free
    }
}

/// A parameter's name. The stride that a declaration leaves open is the leading dimension of BLAS.
fn field_name(kernel: &Kernel, field: Field) -> String {
    let name = |param: ParamId| &kernel.params()[param.index()].name;
    let leading = |param: ParamId| match kernel.params()[param.index()].kind {
        ParamKind::Matrix { order, .. } => order != Order2d::Strided && name(param).len() == 1,
        ParamKind::Scalar(_) => false,
    };
    match field {
        Field::Address(param) | Field::Tensor(param) | Field::Scalar(param, _) => name(param).clone(),
        Field::Extent(param, Axis::Batches) => format!("{}_batches", name(param)),
        Field::Extent(param, Axis::Rows) => format!("{}_rows", name(param)),
        Field::Extent(param, Axis::Cols) => format!("{}_cols", name(param)),
        Field::Stride(param, Axis::Batches) => format!("{}_batch_stride", name(param)),
        Field::Stride(param, _) if leading(param) => format!("ld{}", name(param)),
        Field::Stride(param, Axis::Rows) => format!("{}_row_stride", name(param)),
        Field::Stride(param, Axis::Cols) => format!("{}_col_stride", name(param)),
    }
}

/// How values are used.
#[derive(Default)]
struct Uses {
    /// The matrices of which a value is the batch, the row or the column.
    roles: FxHashMap<ValId, [FxHashSet<ParamId>; 3]>,
    /// The first value that is computed from a value and is a coordinate.
    feeds: FxHashMap<ValId, String>,
    /// Variables that something is added to.
    sums: FxHashSet<VarId>,
}

impl Uses {
    fn new(kernel: &Kernel, body: &[Line]) -> Self {
        let mut uses = Uses::default();
        visit_exprs(body, &mut |e| {
            if let Expr::Global(param, at, _) = e {
                for (axis, coordinate) in at.iter().enumerate() {
                    if let Expr::Value(value) = coordinate {
                        uses.roles.entry(*value).or_default()[axis].insert(*param);
                    }
                }
            }
        });
        visit(body, &mut |line| match &line.what {
            Stmt::Let(value, e) => {
                let Some(role) = uses.role(kernel, *value) else { return };
                e.visit(&mut |part| {
                    if let Expr::Value(part) = part {
                        uses.feeds.entry(*part).or_insert_with(|| role.clone());
                    }
                });
            }
            Stmt::Set(variable, e) if e.reads(*variable) => {
                uses.sums.insert(*variable);
            }
            _ => {}
        });
        uses
    }

    /// The coordinate that a value is: `row` and `col` of what is written or of several matrices, `a_col` of one that is read.
    fn role(&self, kernel: &Kernel, value: ValId) -> Option<String> {
        let [batches, rows, cols] = self.roles.get(&value)?;
        let (axis, of) = match (batches.is_empty(), rows.is_empty(), cols.is_empty()) {
            (false, true, true) => return Some("batch".into()),
            (true, false, true) => ("row", rows),
            (true, true, false) => ("col", cols),
            _ => return None,
        };
        let written = |param: &ParamId| {
            !matches!(kernel.params()[param.index()].kind, ParamKind::Matrix { access: Access::Read, .. })
        };
        match of.iter().next() {
            Some(param) if of.len() == 1 && !written(param) => {
                Some(format!("{}_{axis}", kernel.params()[param.index()].name))
            }
            _ => Some(axis.into()),
        }
    }

    /// A loop's counter: one over blocks by what the block makes, one over coordinates `p`, any other `step`.
    fn counter(&self, counter: ValId, start: &Expr) -> String {
        let of_blocks = match start {
            Expr::Special(Special::BlockX) => Some("block_x"),
            Expr::Special(Special::BlockY) => Some("block_y"),
            Expr::Special(Special::BlockZ) => Some("block_z"),
            _ => None,
        };
        match (self.roles.get(&counter), of_blocks) {
            (Some([batches, rows, cols]), _) if !batches.is_empty() && rows.is_empty() && cols.is_empty() => {
                "batch".into()
            }
            (_, Some(block)) => self.feeds.get(&counter).map_or(block.into(), |role| format!("block_{role}")),
            (Some(_), None) => "p".into(),
            (None, None) => "step".into(),
        }
    }
}
