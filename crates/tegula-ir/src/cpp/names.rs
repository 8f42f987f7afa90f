//! Names of values by their use.
//!
//! A row of C is `row`, its part in the block `block_row`, an accumulator `sum`.

use rustc_hash::{FxHashMap, FxHashSet};
use tegula_core::element::Type;

use super::ast::{Expr, Line, Stmt, visit, visit_exprs};
use crate::launch::Field;
use crate::{Access, Axis, Binary, Kernel, Order2d, ParamId, ParamKind, SpecialRegister, ValId, VarId};

/// The names of all objects. They are unique, and none is reserved in C++.
pub(super) struct Names {
    pub entry: String,
    values: FxHashMap<ValId, String>,
    /// The 64-bit counters of loops whose counter could overflow.
    wide: FxHashMap<ValId, String>,
    variables: FxHashMap<VarId, String>,
    rolled: FxHashMap<usize, String>,
    fields: FxHashMap<Field, String>,
    pub shared: Vec<String>,
}

/// Reserved names: C++ keywords, and names that CUDA or the text itself defines.
const RESERVED: &str = "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl \
    concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double \
    dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not \
    not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return short signed sizeof static \
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using \
    virtual void volatile wchar_t while xor xor_eq threadIdx blockIdx blockDim gridDim warpSize min max fma fmaf fmin fminf fmax \
    fmaxf fabs fabsf main wrapping_add wrapping_sub wrapping_mul wrapping_mul_add";

impl Names {
    pub fn new(kernel: &Kernel, body: &[Line]) -> Self {
        let mut pool = NamePool(RESERVED.split_whitespace().map(String::from).collect());
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
        visit(body, &mut |line| match &line.stmt {
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
                let name = if uses.accumulators.contains(variable) { "sum" } else { "value" };
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
            Expr::SpecialRegister(SpecialRegister::ThreadX) => "tx".into(),
            Expr::SpecialRegister(SpecialRegister::ThreadY) => "ty".into(),
            Expr::SpecialRegister(SpecialRegister::ThreadZ) => "tz".into(),
            Expr::Global(param, ..) => format!("{}_value", self.matrix(*param)),
            Expr::Shared(array, ..) => format!("{}_value", self.shared[array.index()]),
            Expr::Binary(Binary::Mul, _, operands) if operands.iter().any(|f| matches!(f, Expr::Scalar(_))) => {
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

struct NamePool(FxHashSet<String>);

impl NamePool {
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

/// The name of a parameter.
///
/// A stride that the declaration leaves open is a leading dimension, as in BLAS.
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

/// The uses of values.
#[derive(Default)]
struct Uses {
    /// For each value, the matrices of which it is the batch, the row or the column.
    roles: FxHashMap<ValId, [FxHashSet<ParamId>; 3]>,
    /// For each value, the first coordinate computed from it.
    feeds: FxHashMap<ValId, String>,
    /// Variables that accumulate.
    accumulators: FxHashSet<VarId>,
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
        visit(body, &mut |line| match &line.stmt {
            Stmt::Let(value, e) => {
                let Some(role) = uses.role(kernel, *value) else { return };
                e.visit(&mut |operand| {
                    if let Expr::Value(operand) = operand {
                        uses.feeds.entry(*operand).or_insert_with(|| role.clone());
                    }
                });
            }
            Stmt::Set(variable, e) if e.reads(*variable) => {
                uses.accumulators.insert(*variable);
            }
            _ => {}
        });
        uses
    }

    /// The coordinate that a value is.
    ///
    /// It is `row` or `col` for a written matrix or several matrices, and `a_col` for a single
    /// input.
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

    /// The name of a loop counter.
    ///
    /// Over blocks, it is the coordinate of the block; over coordinates `p`; else `step`.
    fn counter(&self, counter: ValId, start: &Expr) -> String {
        let of_blocks = match start {
            Expr::SpecialRegister(SpecialRegister::BlockX) => Some("block_x"),
            Expr::SpecialRegister(SpecialRegister::BlockY) => Some("block_y"),
            Expr::SpecialRegister(SpecialRegister::BlockZ) => Some("block_z"),
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
