//! The handles in which a kernel is written: values, variables, matrices and shared arrays.
//!
//! A handle is a small `Copy` value that names an object of one kernel's [`Builder`]. Its lifetime
//! `'k` is invariant, so handles of two kernels cannot be mixed. Its Rust type is the type of the
//! kernel's value, so a type error in a kernel is a compile error. [`Op`] defines the operations
//! that the methods append.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};
use std::panic::Location;

use tegula_core::diagnostic::FaultKind;
use tegula_core::element::{Arith, Scalar, Type, bf16, f16};

use super::fold;
use super::ops::*;
use super::recorder::Builder;

pub(crate) type Brand<'k, T> = PhantomData<(fn(T) -> T, Cell<&'k ()>)>;

/// A value of a kernel: one `T` in each lane.
pub struct Val<'k, T> {
    pub(crate) k: &'k Builder,
    pub(crate) operand: Operand,
    pub(crate) brand: Brand<'k, T>,
}

/// A predicate: one Boolean in each lane.
pub type Pred<'k> = Val<'k, bool>;

/// A mutable variable of a kernel: one `T` in each lane.
pub struct Var<'k, T> {
    pub(crate) k: &'k Builder,
    pub(crate) id: VarId,
    pub(crate) brand: Brand<'k, T>,
}

/// Variables indexed by constants of the build, so that they stay in registers.
pub struct Array<'k, T> {
    pub(crate) k: &'k Builder,
    pub(crate) first: VarId,
    pub(crate) len: u32,
    pub(crate) brand: Brand<'k, T>,
}

/// A matrix, or a batch of matrices, in global memory.
pub struct Global<'k, T> {
    pub(crate) k: &'k Builder,
    pub(crate) param: ParamId,
    pub(crate) batch: Operand,
    pub(crate) brand: Brand<'k, T>,
}

/// An array in the block's shared memory, uninitialized when the block starts.
pub struct Shared<'k, T> {
    pub(crate) k: &'k Builder,
    pub(crate) id: SharedId,
    pub(crate) brand: Brand<'k, T>,
}

macro_rules! handle {
    ($($name:ident)*) => {$(
        impl<T> Clone for $name<'_, T> {
            fn clone(&self) -> Self { *self }
        }
        impl<T> Copy for $name<'_, T> {}
    )*};
}
handle! { Val Var Array Global Shared }

/// The integer types of kernel arithmetic.
pub trait Integer: Arith {}
impl Integer for i32 {}
impl Integer for u32 {}
impl Integer for i64 {}
impl Integer for u64 {}

/// The floating-point types of kernel arithmetic.
pub trait Float: Arith {}
impl Float for f64 {}
impl Float for f32 {}
impl Float for f16 {}
impl Float for bf16 {}

/// The types with bit operations: integers and predicates.
pub trait Bits: Scalar {}
impl Bits for i32 {}
impl Bits for u32 {}
impl Bits for i64 {}
impl Bits for u64 {}
impl Bits for bool {}

/// An input of type `T`: a value, or a Rust constant.
pub trait IntoVal<'k, T> {
    /// The operand.
    fn operand(self) -> Operand;
}

impl<'k, T> IntoVal<'k, T> for Val<'k, T> {
    fn operand(self) -> Operand {
        self.operand
    }
}

/// The variable's value at this point of the kernel.
impl<'k, T: Scalar> IntoVal<'k, T> for Var<'k, T> {
    #[track_caller]
    fn operand(self) -> Operand {
        self.get().operand
    }
}

impl<T: Scalar> IntoVal<'_, T> for T {
    fn operand(self) -> Operand {
        constant(self)
    }
}

pub(crate) fn constant<T: Scalar>(value: T) -> Operand {
    Operand::Const(T::TYPE, value.to_bits())
}

/// The primitives of the handles.
impl Builder {
    /// Allocates uninitialized variables. A kernel that may read one before it is set is rejected.
    pub fn array<T: Scalar>(&self, len: u32) -> Array<'_, T> {
        let vars = &mut self.state.borrow_mut().kernel.vars;
        let first = VarId(vars.len() as u32);
        // At least one variable, so that an invalid `at` still names a variable.
        vars.resize(vars.len() + len.max(1) as usize, T::TYPE);
        Array { k: self, first, len, brand: PhantomData }
    }

    /// A constant as a value.
    pub fn constant<T: Scalar>(&self, value: T) -> Val<'_, T> {
        self.val(constant(value))
    }

    pub(super) fn val<T>(&self, operand: Operand) -> Val<'_, T> {
        Val { k: self, operand, brand: PhantomData as Brand<'_, T> }
    }

    /// Appends a pure operation, after folding and common subexpression elimination.
    #[track_caller]
    pub(crate) fn pure<T: Scalar>(&self, op: Op) -> Val<'_, T> {
        self.val(self.pure_operand(op, T::TYPE, Location::caller()))
    }

    fn pure_operand(&self, op: Op, ty: Type, location: &'static Location<'static>) -> Operand {
        let op = match fold::simplify(op, ty) {
            fold::Simplified::Operand(operand) => return operand,
            fold::Simplified::Op(op) => op,
        };
        let mut state = self.state.borrow_mut();
        let shared = !ty.is_float() || matches!(op, Op::Scalar(_));
        let key = (op, ty);
        if shared && let Some(&value) = state.regions.iter().rev().find_map(|r| r.known.get(&key)) {
            return Operand::Val(value);
        }
        let (op, ty) = key;
        let value = state.value(ty, Some(op.clone()));
        if shared && let Some(region) = state.regions.last_mut() {
            region.known.insert((op.clone(), ty), value);
        }
        state.push(op, vec![value], location);
        Operand::Val(value)
    }

    /// Appends an operation whose result must not be shared.
    #[track_caller]
    pub(crate) fn effect_value<T: Scalar>(&self, op: Op) -> Val<'_, T> {
        let [value] = self.effect_values(op);
        value
    }

    #[track_caller]
    pub(crate) fn effect_values<T: Scalar, const N: usize>(&self, op: Op) -> [Val<'_, T>; N] {
        let first = self.effect_results(op, T::TYPE, N, Location::caller());
        std::array::from_fn(|i| self.val(Operand::Val(ValId(first.0 + i as u32))))
    }

    /// Appends an operation with results of one type, and returns the id of the first.
    fn effect_results(&self, op: Op, ty: Type, results: usize, location: &'static Location<'static>) -> ValId {
        let mut state = self.state.borrow_mut();
        let results: Vec<ValId> = (0..results).map(|_| state.value(ty, None)).collect();
        // For an operation without results, the id is not used.
        let first = results.first().copied().unwrap_or(ValId(0));
        state.push(op, results, location);
        first
    }

    /// Converts a predicate to a guard; a constant true predicate needs none.
    pub fn guard(guard: Pred<'_>) -> Guard {
        match guard.operand {
            Operand::Const(_, 1) => Guard::Always,
            operand => Guard::If(operand),
        }
    }

    #[track_caller]
    pub(crate) fn load<T: Scalar, const N: usize>(
        &self,
        from: MemoryRef,
        guard: Guard,
        fill: Operand,
        order: MemoryOrder,
        scope: Scope,
    ) -> [Val<'_, T>; N] {
        self.effect_values(Op::Load { from, width: N as u32, guard, fill, order, scope })
    }

    #[track_caller]
    pub(crate) fn store(&self, to: MemoryRef, values: Vec<Operand>, guard: Guard, order: MemoryOrder, scope: Scope) {
        self.effect(Op::Store { to, values, guard, order, scope });
    }

    /// The reference to an element of a shared array: a dynamic index and a static offset.
    #[track_caller]
    pub(crate) fn shared_memory_ref(&self, array: SharedId, coordinates: &[Operand]) -> MemoryRef {
        let dims = self.state.borrow().kernel.shared[array.index()].dims.clone();
        if dims.len() != coordinates.len() {
            self.fault(
                FaultKind::Type,
                format!("an array of {} axes takes {} coordinates, not {}", dims.len(), dims.len(), coordinates.len()),
            );
            return MemoryRef::Shared { array, index: constant(0u32), offset: 0, coordinates: CoordinatesId(0) };
        }
        let (mut index, mut offset) = (self.constant(0u32), 0u32);
        let split: Vec<_> = coordinates.iter().map(|&coordinate| self.split(coordinate)).collect();
        for (&(dynamic, fixed), &dim) in split.iter().zip(&dims) {
            index = index * dim + self.val::<u32>(dynamic);
            offset = offset.wrapping_mul(dim).wrapping_add(fixed);
        }
        let known = &mut self.state.borrow_mut().kernel.coordinates;
        let coordinates = CoordinatesId(if dims.len() > 1 { known.len() as u32 } else { 0 });
        known.extend((dims.len() > 1).then(|| split.into()));
        MemoryRef::Shared { array, index: index.operand, offset, coordinates }
    }
}

impl<'k, T: Scalar> Val<'k, T> {
    /// The operand of the handle.
    pub fn id(self) -> Operand {
        self.operand
    }

    #[track_caller]
    fn unary(self, op: Unary) -> Self {
        self.k.pure(Op::Unary(op, self.operand))
    }

    #[track_caller]
    fn binary(self, op: Binary, rhs: impl IntoVal<'k, T>) -> Self {
        self.k.pure(Op::Binary(op, self.operand, rhs.operand()))
    }

    #[track_caller]
    fn compare(self, how: Compare, rhs: impl IntoVal<'k, T>) -> Pred<'k> {
        self.k.pure(Op::Compare(how, self.operand, rhs.operand()))
    }

    /// Reinterprets the bits as another type of the same size; a fault where the sizes differ.
    #[track_caller]
    pub fn bitcast<U: Scalar>(self) -> Val<'k, U> {
        if T::TYPE.size() != U::TYPE.size() {
            self.k.fault(FaultKind::Type, format!("cannot bitcast {} to {}: the sizes differ", T::TYPE, U::TYPE));
        }
        if T::TYPE == Type::Pred || U::TYPE == Type::Pred {
            self.k.fault(FaultKind::Type, "cannot bitcast a predicate; use `select` or `ne`".into());
        }
        self.k.pure(Op::Bitcast(self.operand))
    }

    /// Converts the number to another type; see [`Op::Convert`].
    #[track_caller]
    pub fn to<U: Scalar>(self) -> Val<'k, U> {
        if T::TYPE == U::TYPE {
            return Val { k: self.k, operand: self.operand, brand: PhantomData };
        }
        if T::TYPE == Type::Pred || U::TYPE == Type::Pred {
            self.k.fault(FaultKind::Type, "cannot convert a predicate to or from a number; use `select`".into());
        }
        self.k.pure(Op::Convert(self.operand))
    }
}

impl<'k, T: Arith> Val<'k, T> {
    /// self · b + c: rounded once for floats, wrapping for integers.
    #[track_caller]
    pub fn mul_add(self, b: impl IntoVal<'k, T>, c: impl IntoVal<'k, T>) -> Self {
        self.k.pure(Op::MulAdd(self.operand, b.operand(), c.operand()))
    }

    /// The minimum.
    #[track_caller]
    pub fn min(self, rhs: impl IntoVal<'k, T>) -> Self {
        self.binary(Binary::Min, rhs)
    }

    /// The maximum.
    #[track_caller]
    pub fn max(self, rhs: impl IntoVal<'k, T>) -> Self {
        self.binary(Binary::Max, rhs)
    }

    /// |self|.
    #[track_caller]
    pub fn abs(self) -> Self {
        self.unary(Unary::Abs)
    }

    /// self = rhs, in each lane.
    #[track_caller]
    pub fn eq(self, rhs: impl IntoVal<'k, T>) -> Pred<'k> {
        self.compare(Compare::Eq, rhs)
    }

    /// self ≠ rhs, in each lane; true where one is NaN.
    #[track_caller]
    pub fn ne(self, rhs: impl IntoVal<'k, T>) -> Pred<'k> {
        self.compare(Compare::Ne, rhs)
    }

    /// self < rhs, in each lane.
    #[track_caller]
    pub fn lt(self, rhs: impl IntoVal<'k, T>) -> Pred<'k> {
        self.compare(Compare::Lt, rhs)
    }

    /// self ≤ rhs, in each lane.
    #[track_caller]
    pub fn le(self, rhs: impl IntoVal<'k, T>) -> Pred<'k> {
        self.compare(Compare::Le, rhs)
    }

    /// self > rhs, in each lane.
    #[track_caller]
    pub fn gt(self, rhs: impl IntoVal<'k, T>) -> Pred<'k> {
        self.compare(Compare::Gt, rhs)
    }

    /// self ≥ rhs, in each lane.
    #[track_caller]
    pub fn ge(self, rhs: impl IntoVal<'k, T>) -> Pred<'k> {
        self.compare(Compare::Ge, rhs)
    }
}

impl<'k, T: Scalar> Val<'k, T> {
    /// Packs two 16-bit numbers into a `u32`, self in the lower half; a fault for other sizes.
    #[track_caller]
    pub fn pack(self, upper: Val<'k, T>) -> Val<'k, u32> {
        if T::TYPE.size() != 2 {
            self.k.fault(FaultKind::Type, format!("cannot pack {}: it does not have 16 bits", T::TYPE));
            return self.k.constant(0u32);
        }
        self.k.pure(Op::Pack(self.operand, upper.operand))
    }
}

impl<'k> Val<'k, f32> {
    /// Rounds to tf32, as [`super::Mma::TF32`] takes it; see [`Op::RoundTf32`].
    #[track_caller]
    pub fn to_tf32(self) -> Val<'k, u32> {
        self.k.pure(Op::RoundTf32(self.operand))
    }
}

impl<'k> Val<'k, u32> {
    /// self ÷ rhs, rounded up, for rhs > 0 and self + rhs within `u32`, such as extents (below
    /// 2³¹).
    #[track_caller]
    pub fn div_ceil(self, rhs: u32) -> Self {
        (self + rhs.wrapping_sub(1)) / rhs
    }
}

impl<'k> Pred<'k> {
    /// `yes` where the predicate is true, else `no`.
    #[track_caller]
    pub fn select<T: Scalar>(self, yes: impl IntoVal<'k, T>, no: impl IntoVal<'k, T>) -> Val<'k, T> {
        self.k.pure(Op::Select(self.operand, yes.operand(), no.operand()))
    }
}

/// Accesses all elements if the predicate is true, else none.
impl From<Pred<'_>> for Guard {
    fn from(condition: Pred<'_>) -> Guard {
        Builder::guard(condition)
    }
}

macro_rules! operators {
    ($($bound:ident: $($trait:ident $method:ident $op:ident),*;)*) => {$($(
        impl<'k, T: $bound, R: IntoVal<'k, T>> $trait<R> for Val<'k, T> {
            type Output = Val<'k, T>;
            #[track_caller]
            fn $method(self, rhs: R) -> Self { self.binary(Binary::$op, rhs) }
        }

        /// The variable's value at this point of the kernel is the left operand.
        impl<'k, T: $bound, R: IntoVal<'k, T>> $trait<R> for Var<'k, T> {
            type Output = Val<'k, T>;
            #[track_caller]
            fn $method(self, rhs: R) -> Val<'k, T> { self.get().binary(Binary::$op, rhs) }
        }
    )*)*};
}
operators! {
    Arith: Add add Add, Sub sub Sub, Mul mul Mul, Div div Div;
    Integer: Rem rem Rem, Shl shl Shl, Shr shr Shr;
    Bits: BitAnd bitand And, BitOr bitor Or, BitXor bitxor Xor;
}

/// Operators with a Rust constant on the left, as in `63 - t`.
macro_rules! constant_operators {
    ($($ty:ident: $($trait:ident $method:ident $op:ident),*;)*) => {$($(
        impl<'k> $trait<Val<'k, $ty>> for $ty {
            type Output = Val<'k, $ty>;
            #[track_caller]
            fn $method(self, rhs: Val<'k, $ty>) -> Val<'k, $ty> {
                rhs.k.val(constant(self)).binary(Binary::$op, rhs)
            }
        }
    )*)*};
}
constant_operators! {
    f64: Add add Add, Sub sub Sub, Mul mul Mul, Div div Div;
    f32: Add add Add, Sub sub Sub, Mul mul Mul, Div div Div;
    i32: Add add Add, Sub sub Sub, Mul mul Mul, Div div Div, Rem rem Rem;
    u32: Add add Add, Sub sub Sub, Mul mul Mul, Div div Div, Rem rem Rem;
    i64: Add add Add, Sub sub Sub, Mul mul Mul, Div div Div, Rem rem Rem;
    u64: Add add Add, Sub sub Sub, Mul mul Mul, Div div Div, Rem rem Rem;
}

impl<T: Arith> Neg for Val<'_, T> {
    type Output = Self;
    #[track_caller]
    fn neg(self) -> Self {
        self.unary(Unary::Neg)
    }
}

impl<T: Bits> Not for Val<'_, T> {
    type Output = Self;
    #[track_caller]
    fn not(self) -> Self {
        self.unary(Unary::Not)
    }
}

impl<'k, T: Scalar> Var<'k, T> {
    /// Reads the current value; later writes do not change the result.
    #[track_caller]
    pub fn get(self) -> Val<'k, T> {
        self.k.effect_value(Op::Get(self.id))
    }

    /// Writes the value.
    #[track_caller]
    pub fn set(self, value: impl IntoVal<'k, T>) {
        self.k.effect(Op::Set(self.id, value.operand()));
    }
}

impl<'k, T: Scalar> Array<'k, T> {
    /// One of the variables; a fault where the index is out of bounds.
    #[track_caller]
    pub fn at(self, index: u32) -> Var<'k, T> {
        if index >= self.len {
            self.k.fault(
                FaultKind::Type,
                format!("register index {index} is out of bounds for an array of {}", self.len),
            );
        }
        Var { k: self.k, id: VarId(self.first.0 + index.min(self.len.saturating_sub(1))), brand: PhantomData }
    }

    /// The `len` variables from `first` on; a fault where the range is out of bounds.
    #[track_caller]
    pub fn slice(self, first: u32, len: u32) -> Self {
        if first.checked_add(len).is_none_or(|end| end > self.len) {
            self.k.fault(
                FaultKind::Type,
                format!(
                    "registers {first}..{} are out of bounds for an array of {}",
                    first.saturating_add(len),
                    self.len
                ),
            );
            return self;
        }
        // An empty slice keeps a valid first variable.
        let first = if len == 0 { self.first } else { VarId(self.first.0 + first) };
        Array { first, len, ..self }
    }

    /// The number of variables.
    pub fn len(self) -> u32 {
        self.len
    }

    /// Whether the array is empty.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// Coordinates: (row, col) or (batch, row, col) of a matrix, or one for each axis of a shared
/// array.
///
/// A shared array with one axis takes the index alone. A constant may be the left operand of an
/// operator, and a variable stands for its value:
///
/// ```
/// use tegula_ir::prelude::*;
///
/// let sums = kernel("sum_with_reverse", Block::d1(64), |k| {
///     let (a, c) = (k.input::<f32>("a"), k.output::<f32>("c"));
///     k.grid([k.constant(1), k.constant(1), k.constant(1)]);
///     let (tile, t) = (k.shared::<f32>("tile", [64]), k.thread_x());
///     tile.store(t, a.load((0, t)));
///     k.barrier();
///     let sum = k.var(tile.load(t));
///     sum.set(sum + tile.load(63 - t));
///     c.store((0, t), sum.get());
/// });
/// assert!(check(sums).is_ok());
/// ```
pub trait Coord<'k> {
    /// The operands, outermost first.
    fn operands(self) -> Vec<Operand>;
}

impl<'k> Coord<'k> for Val<'k, u32> {
    fn operands(self) -> Vec<Operand> {
        vec![self.operand]
    }
}

impl Coord<'_> for u32 {
    fn operands(self) -> Vec<Operand> {
        vec![constant(self)]
    }
}

impl<'k, A: IntoVal<'k, u32>> Coord<'k> for (A,) {
    fn operands(self) -> Vec<Operand> {
        vec![self.0.operand()]
    }
}

impl<'k, A: IntoVal<'k, u32>, B: IntoVal<'k, u32>> Coord<'k> for (A, B) {
    fn operands(self) -> Vec<Operand> {
        vec![self.0.operand(), self.1.operand()]
    }
}

impl<'k, A: IntoVal<'k, u32>, B: IntoVal<'k, u32>, C: IntoVal<'k, u32>> Coord<'k> for (A, B, C) {
    fn operands(self) -> Vec<Operand> {
        vec![self.0.operand(), self.1.operand(), self.2.operand()]
    }
}

/// Memory with elements of type `T`: a [`Global`] matrix or a [`Shared`] array.
pub trait Elements<'k, T: Scalar>: Copy {
    /// The builder of the kernel.
    fn builder(self) -> &'k Builder;

    /// The reference to the element at the coordinates.
    #[track_caller]
    fn memory_ref(self, at: impl Coord<'k>) -> MemoryRef;

    /// Loads one element.
    #[track_caller]
    fn load(self, at: impl Coord<'k>) -> Val<'k, T> {
        let [value] =
            self.builder().load(self.memory_ref(at), Guard::Always, constant(T::ZERO), MemoryOrder::Weak, Scope::Block);
        value
    }

    /// Loads one element, or `fill` where the guard is false.
    #[track_caller]
    fn load_or(self, at: impl Coord<'k>, guard: Pred<'k>, fill: impl IntoVal<'k, T>) -> Val<'k, T> {
        let guard = Builder::guard(guard);
        let [value] = self.builder().load(self.memory_ref(at), guard, fill.operand(), MemoryOrder::Weak, Scope::Block);
        value
    }

    /// Loads `WIDTH` contiguous elements in one access; the first index is a multiple of `WIDTH`.
    #[track_caller]
    fn load_vec<const WIDTH: usize>(self, at: impl Coord<'k>) -> [Val<'k, T>; WIDTH] {
        self.builder().load(self.memory_ref(at), Guard::Always, constant(T::ZERO), MemoryOrder::Weak, Scope::Block)
    }

    /// Loads the first `valid` of `WIDTH` contiguous elements, and `fill` for the others.
    #[track_caller]
    fn load_vec_or<const WIDTH: usize>(
        self,
        at: impl Coord<'k>,
        valid: Val<'k, u32>,
        fill: impl IntoVal<'k, T>,
    ) -> [Val<'k, T>; WIDTH] {
        let guard = Guard::First(valid.operand);
        self.builder().load(self.memory_ref(at), guard, fill.operand(), MemoryOrder::Weak, Scope::Block)
    }

    /// Loads `WIDTH` contiguous elements, or `fill` for all of them where the guard is false.
    #[track_caller]
    fn load_vec_if<const WIDTH: usize>(
        self,
        at: impl Coord<'k>,
        guard: Pred<'k>,
        fill: impl IntoVal<'k, T>,
    ) -> [Val<'k, T>; WIDTH] {
        self.builder().load(self.memory_ref(at), Builder::guard(guard), fill.operand(), MemoryOrder::Weak, Scope::Block)
    }

    /// Stores one element.
    #[track_caller]
    fn store(self, at: impl Coord<'k>, value: impl IntoVal<'k, T>) {
        let values = vec![value.operand()];
        self.builder().store(self.memory_ref(at), values, Guard::Always, MemoryOrder::Weak, Scope::Block);
    }

    /// Stores one element where the guard is true.
    #[track_caller]
    fn store_if(self, at: impl Coord<'k>, value: impl IntoVal<'k, T>, guard: Pred<'k>) {
        let values = vec![value.operand()];
        self.builder().store(self.memory_ref(at), values, Builder::guard(guard), MemoryOrder::Weak, Scope::Block);
    }

    /// Stores `WIDTH` contiguous elements in one access; the first index is a multiple of `WIDTH`.
    #[track_caller]
    fn store_vec<const WIDTH: usize>(self, at: impl Coord<'k>, values: [Val<'k, T>; WIDTH]) {
        let values = values.map(|v| v.operand).to_vec();
        self.builder().store(self.memory_ref(at), values, Guard::Always, MemoryOrder::Weak, Scope::Block);
    }

    /// Stores `WIDTH` contiguous elements where the guard is true.
    #[track_caller]
    fn store_vec_if<const WIDTH: usize>(self, at: impl Coord<'k>, values: [Val<'k, T>; WIDTH], guard: Pred<'k>) {
        let values = values.map(|v| v.operand).to_vec();
        self.builder().store(self.memory_ref(at), values, Builder::guard(guard), MemoryOrder::Weak, Scope::Block);
    }

    /// Stores the first `valid` of `WIDTH` contiguous elements.
    #[track_caller]
    fn store_vec_first<const WIDTH: usize>(self, at: impl Coord<'k>, values: [Val<'k, T>; WIDTH], valid: Val<'k, u32>) {
        let values = values.map(|v| v.operand).to_vec();
        self.builder().store(self.memory_ref(at), values, Guard::First(valid.operand), MemoryOrder::Weak, Scope::Block);
    }

    /// Loads one element with `Relaxed` or `Acquire` order.
    #[track_caller]
    fn load_ordered(self, at: impl Coord<'k>, order: MemoryOrder, scope: Scope) -> Val<'k, T> {
        let [value] = self.builder().load(self.memory_ref(at), Guard::Always, constant(T::ZERO), order, scope);
        value
    }

    /// Stores one element with `Relaxed` or `Release` order.
    #[track_caller]
    fn store_ordered(self, at: impl Coord<'k>, value: impl IntoVal<'k, T>, order: MemoryOrder, scope: Scope) {
        self.builder().store(self.memory_ref(at), vec![value.operand()], Guard::Always, order, scope);
    }

    /// Atomically reads, computes and writes one element, and returns the old value.
    #[track_caller]
    fn atomic(
        self,
        op: AtomicOp,
        at: impl Coord<'k>,
        value: impl IntoVal<'k, T>,
        order: MemoryOrder,
        scope: Scope,
    ) -> Val<'k, T> {
        let at = self.memory_ref(at);
        self.builder().effect_value(Op::Atomic { op, at, value: value.operand(), order, scope })
    }

    /// Spins until the element compares with the value as given, then acquires.
    #[track_caller]
    fn wait_until(self, at: impl Coord<'k>, compare: Compare, value: impl IntoVal<'k, T>, scope: Scope) {
        let at = self.memory_ref(at);
        self.builder().effect(Op::WaitUntil { at, compare, value: value.operand(), scope });
    }
}

impl<'k, T: Scalar> Global<'k, T> {
    /// Matrices in the batch.
    #[track_caller]
    pub fn batches(self) -> Val<'k, u32> {
        self.k.pure(Op::Extent(self.param, Axis::Batches))
    }

    /// Rows of each matrix.
    #[track_caller]
    pub fn rows(self) -> Val<'k, u32> {
        self.k.pure(Op::Extent(self.param, Axis::Rows))
    }

    /// Columns of each matrix.
    #[track_caller]
    pub fn cols(self) -> Val<'k, u32> {
        self.k.pure(Op::Extent(self.param, Axis::Cols))
    }

    /// A cursor at the coordinates (row, col).
    #[track_caller]
    pub fn cursor(self, at: impl Coord<'k>) -> Cursor<'k, T> {
        let id = self.k.array::<u32>(2).first;
        self.k.effect(Op::SetCursor(id, self.memory_ref(at)));
        Cursor { k: self.k, matrix: self, id }
    }

    /// One matrix of the batch, to which the coordinates (row, col) refer.
    #[must_use]
    pub fn batch(self, batch: impl IntoVal<'k, u32>) -> Self {
        Global { batch: batch.operand(), ..self }
    }
}

/// A moving reference into a matrix, for strength reduction of addresses in loops.
///
/// Its address is a running sum instead of a product in each iteration. Coordinates are relative to
/// it, and constants.
#[derive(Clone, Copy)]
pub struct Cursor<'k, T> {
    k: &'k Builder,
    matrix: Global<'k, T>,
    id: VarId,
}

impl<'k, T: Scalar> Cursor<'k, T> {
    /// Advances by rows and columns.
    #[track_caller]
    pub fn advance(self, rows: impl IntoVal<'k, u32>, cols: impl IntoVal<'k, u32>) {
        let (rows, cols) = (rows.operand(), cols.operand());
        self.k.effect(Op::MoveCursor { cursor: self.id, param: self.matrix.param, rows, cols });
    }
}

impl<'k, T: Scalar> Elements<'k, T> for Cursor<'k, T> {
    fn builder(self) -> &'k Builder {
        self.k
    }

    #[track_caller]
    fn memory_ref(self, at: impl Coord<'k>) -> MemoryRef {
        let (param, batch, cursor) = (self.matrix.param, self.matrix.batch, self.id);
        match at.operands()[..] {
            [Operand::Const(_, row), Operand::Const(_, col)] => {
                MemoryRef::Cursor { param, batch, cursor, row: row as u32, col: col as u32 }
            }
            _ => {
                self.k.fault(FaultKind::Type, "a cursor takes constant coordinates (row, col)".into());
                MemoryRef::Cursor { param, batch, cursor, row: 0, col: 0 }
            }
        }
    }
}

impl<'k, T: Scalar> Elements<'k, T> for Global<'k, T> {
    fn builder(self) -> &'k Builder {
        self.k
    }

    fn memory_ref(self, at: impl Coord<'k>) -> MemoryRef {
        let (batch, row, col) = match at.operands()[..] {
            [row, col] => (self.batch, row, col),
            [batch, row, col] => (batch, row, col),
            _ => {
                self.k.fault(FaultKind::Type, "a matrix takes the coordinates (row, col) or (batch, row, col)".into());
                let zero = constant(0u32);
                (zero, zero, zero)
            }
        };
        MemoryRef::Global { param: self.param, batch, row, col }
    }
}

impl<'k, T: Scalar> Shared<'k, T> {
    /// Starts an asynchronous copy of `width` elements of a matrix, of together 4, 8 or 16 bytes.
    ///
    /// Elements that the guard excludes are zero-filled. The thread may read the elements after
    /// [`Builder::copy_async_wait`], other threads after an additional barrier.
    #[track_caller]
    pub fn copy_async<At: Coord<'k>, From: Coord<'k>>(
        self,
        at: At,
        source: impl Elements<'k, T>,
        from: From,
        width: u32,
        guard: impl Into<Guard>,
    ) {
        let (to, from) = (self.memory_ref(at), source.memory_ref(from));
        self.k.effect(Op::CopyAsync { to, from, width, guard: guard.into() });
    }

    /// Loads `N` matrices (1, 2 or 4) of 8 rows of 16 bytes.
    ///
    /// The results have the layout of [`Mma`](crate::Mma) operands; `at` is the start of the lane's
    /// row. See [`Op::LoadMatrix`].
    #[track_caller]
    pub fn load_matrix<const N: usize>(self, at: impl Coord<'k>, transposed: bool) -> [Val<'k, u32>; N] {
        let from = self.memory_ref(at);
        self.k.effect_values(Op::LoadMatrix { from, count: N as u32, transposed })
    }
}

impl<'k, T: Scalar> Elements<'k, T> for Shared<'k, T> {
    fn builder(self) -> &'k Builder {
        self.k
    }

    #[track_caller]
    fn memory_ref(self, at: impl Coord<'k>) -> MemoryRef {
        self.k.shared_memory_ref(self.id, &at.operands())
    }
}
