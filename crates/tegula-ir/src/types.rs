//! The handles a kernel is written with: values, variables, matrices and shared arrays.
//!
//! A handle is a small `Copy` value that names something in the [`Builder`] of one kernel. Its lifetime `'k` is invariant, so
//! handles of two kernels cannot meet; its Rust type is the type of the kernel's value, so a type error in a kernel is a
//! compile error. What a handle's methods build is defined at [`Op`].

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

/// A truth value in each lane.
pub type Pred<'k> = Val<'k, bool>;

/// A variable of a kernel: one `T` in each lane that changes while the kernel runs.
pub struct Var<'k, T> {
    pub(crate) k: &'k Builder,
    pub(crate) id: VarId,
    pub(crate) brand: Brand<'k, T>,
}

/// Several variables, indexed by numbers known when the kernel is built: they stay in registers.
pub struct Array<'k, T> {
    pub(crate) k: &'k Builder,
    pub(crate) first: VarId,
    pub(crate) len: u32,
    pub(crate) brand: Brand<'k, T>,
}

/// A matrix, or a batch of them, in global memory.
pub struct Global<'k, T> {
    pub(crate) k: &'k Builder,
    pub(crate) param: ParamId,
    pub(crate) batch: Operand,
    pub(crate) brand: Brand<'k, T>,
}

/// An array in the block's shared memory, uninitialised when the block starts.
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

/// Integers a kernel computes with.
pub trait Integer: Arith {}
impl Integer for i32 {}
impl Integer for u32 {}
impl Integer for i64 {}
impl Integer for u64 {}

/// Floats a kernel computes with.
pub trait Float: Arith {}
impl Float for f64 {}
impl Float for f32 {}
impl Float for f16 {}
impl Float for bf16 {}

/// Types with bit operations: integers and predicates.
pub trait Bits: Scalar {}
impl Bits for i32 {}
impl Bits for u32 {}
impl Bits for i64 {}
impl Bits for u64 {}
impl Bits for bool {}

/// What can stand where a value of type `T` is read: such a value, or a Rust constant.
pub trait IntoVal<'k, T> {
    /// The operand.
    fn operand(self) -> Operand;
}

impl<'k, T> IntoVal<'k, T> for Val<'k, T> {
    fn operand(self) -> Operand {
        self.operand
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

/// What the handles build with.
impl Builder {
    /// Uninitialised variables; a kernel that could read one before it is set is refused.
    pub fn array<T: Scalar>(&self, len: u32) -> Array<'_, T> {
        let vars = &mut self.state.borrow_mut().kernel.vars;
        let first = VarId(vars.len() as u32);
        // One spare where `len` is 0, so that a faulty `at` still names a variable.
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

    /// A computation: folded, found, or appended.
    #[track_caller]
    pub(crate) fn pure<T: Scalar>(&self, op: Op) -> Val<'_, T> {
        self.val(self.pure_operand(op, T::TYPE, Location::caller()))
    }

    fn pure_operand(&self, op: Op, ty: Type, location: &'static Location<'static>) -> Operand {
        let op = match fold::simplify(op, ty) {
            fold::Simple::Operand(operand) => return operand,
            fold::Simple::Op(op) => op,
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

    /// An operation with a result that must not be shared.
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

    /// Appends an operation with results of one type. They are numbered from the one returned.
    fn effect_results(&self, op: Op, ty: Type, results: usize, location: &'static Location<'static>) -> ValId {
        let mut state = self.state.borrow_mut();
        let results: Vec<ValId> = (0..results).map(|_| state.value(ty, None)).collect();
        // An operation without a result has no first; nobody asks for it then.
        let first = results.first().copied().unwrap_or(ValId(0));
        state.push(op, results, location);
        first
    }

    /// A guard; one that is known to hold is none.
    pub fn guard(guard: Pred<'_>) -> Guard {
        match guard.operand {
            Operand::Const(_, 1) => Guard::Always,
            operand => Guard::If(operand),
        }
    }

    #[track_caller]
    pub(crate) fn load<T: Scalar, const N: usize>(
        &self,
        from: Place,
        guard: Guard,
        fill: Operand,
        order: Order,
        scope: Scope,
    ) -> [Val<'_, T>; N] {
        self.effect_values(Op::Load { from, width: N as u32, guard, fill, order, scope })
    }

    #[track_caller]
    pub(crate) fn store(&self, to: Place, values: Vec<Operand>, guard: Guard, order: Order, scope: Scope) {
        self.effect(Op::Store { to, values, guard, order, scope });
    }

    /// An element of a shared array: one index for the part known at run time, one offset for the rest.
    #[track_caller]
    pub(crate) fn shared_place(&self, array: SharedId, coordinates: &[Operand]) -> Place {
        let dims = self.state.borrow().kernel.shared[array.index()].dims.clone();
        if dims.len() != coordinates.len() {
            self.fault(FaultKind::Type, format!("an array of {} extents takes as many coordinates", dims.len()));
            return Place::Shared { array, index: constant(0u32), offset: 0, coordinates: CoordinatesId(0) };
        }
        let (mut index, mut offset) = (self.constant(0u32), 0u32);
        let parts: Vec<_> = coordinates.iter().map(|&coordinate| self.split(coordinate)).collect();
        for (&(dynamic, fixed), &dim) in parts.iter().zip(&dims) {
            index = index * dim + self.val::<u32>(dynamic);
            offset = offset.wrapping_mul(dim).wrapping_add(fixed);
        }
        let known = &mut self.state.borrow_mut().kernel.coordinates;
        let coordinates = CoordinatesId(if dims.len() > 1 { known.len() as u32 } else { 0 });
        known.extend((dims.len() > 1).then(|| parts.into()));
        Place::Shared { array, index: index.operand, offset, coordinates }
    }
}

impl<'k, T: Scalar> Val<'k, T> {
    /// The operand this handle stands for.
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

    /// The same bits as another type of the same size; a fault where the sizes differ.
    #[track_caller]
    pub fn bitcast<U: Scalar>(self) -> Val<'k, U> {
        if T::TYPE.size() != U::TYPE.size() {
            self.k.fault(FaultKind::Type, format!("{} and {} differ in size", T::TYPE, U::TYPE));
        }
        if T::TYPE == Type::Pred || U::TYPE == Type::Pred {
            self.k.fault(FaultKind::Type, "a predicate has no bits in memory; use `select` or `ne`".into());
        }
        self.k.pure(Op::Bitcast(self.operand))
    }

    /// The number in another type; see [`Op::Convert`].
    #[track_caller]
    pub fn to<U: Scalar>(self) -> Val<'k, U> {
        if T::TYPE == U::TYPE {
            return Val { k: self.k, operand: self.operand, brand: PhantomData };
        }
        if T::TYPE == Type::Pred || U::TYPE == Type::Pred {
            self.k.fault(FaultKind::Type, "a predicate is no number; use `select`".into());
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

    /// The lesser.
    #[track_caller]
    pub fn min(self, rhs: impl IntoVal<'k, T>) -> Self {
        self.binary(Binary::Min, rhs)
    }

    /// The greater.
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
    /// With another 16-bit number in the upper half of a `u32`; a fault where the type has another size.
    #[track_caller]
    pub fn pack(self, upper: Val<'k, T>) -> Val<'k, u32> {
        if T::TYPE.size() != 2 {
            self.k.fault(FaultKind::Type, format!("{} is not of 16 bits", T::TYPE));
            return self.k.constant(0u32);
        }
        self.k.pure(Op::Pack(self.operand, upper.operand))
    }
}

impl<'k> Val<'k, f32> {
    /// Rounded to tf32, as [`super::Mma::TF32`] takes it; see [`Op::RoundTf32`].
    #[track_caller]
    pub fn to_tf32(self) -> Val<'k, u32> {
        self.k.pure(Op::RoundTf32(self.operand))
    }
}

impl<'k> Val<'k, u32> {
    /// self ÷ rhs rounded up, for rhs > 0 and self + rhs within `u32`: extents are, since they stay below 2³¹.
    #[track_caller]
    pub fn div_ceil(self, rhs: u32) -> Self {
        (self + rhs.wrapping_sub(1)) / rhs
    }
}

impl<'k> Pred<'k> {
    /// One value where the predicate holds, another where it does not.
    #[track_caller]
    pub fn select<T: Scalar>(self, yes: impl IntoVal<'k, T>, no: impl IntoVal<'k, T>) -> Val<'k, T> {
        self.k.pure(Op::Select(self.operand, yes.operand(), no.operand()))
    }
}

/// All elements where the predicate holds, else none.
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
    )*)*};
}
operators! {
    Arith: Add add Add, Sub sub Sub, Mul mul Mul, Div div Div;
    Integer: Rem rem Rem, Shl shl Shl, Shr shr Shr;
    Bits: BitAnd bitand And, BitOr bitor Or, BitXor bitxor Xor;
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
    /// The value now. Later changes leave it as it is.
    #[track_caller]
    pub fn get(self) -> Val<'k, T> {
        self.k.effect_value(Op::Get(self.id))
    }

    /// Changes the value.
    #[track_caller]
    pub fn set(self, value: impl IntoVal<'k, T>) {
        self.k.effect(Op::Set(self.id, value.operand()));
    }
}

impl<'k, T: Scalar> Array<'k, T> {
    /// One of the variables; a fault where there are fewer.
    #[track_caller]
    pub fn at(self, index: u32) -> Var<'k, T> {
        if index >= self.len {
            self.k.fault(FaultKind::Type, format!("register {index} of an array of {}", self.len));
        }
        Var { k: self.k, id: VarId(self.first.0 + index.min(self.len.saturating_sub(1))), brand: PhantomData }
    }

    /// `len` of the variables, from number `first` on; a fault where there are fewer.
    #[track_caller]
    pub fn part(self, first: u32, len: u32) -> Self {
        if first.checked_add(len).is_none_or(|end| end > self.len) {
            self.k.fault(FaultKind::Type, format!("{len} registers from {first} on of an array of {}", self.len));
            return self;
        }
        // An empty part names no variable; it stays where there is one.
        let first = if len == 0 { self.first } else { VarId(self.first.0 + first) };
        Array { first, len, ..self }
    }

    /// How many there are.
    pub fn len(self) -> u32 {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// Coordinates of an element: (row, col) or (batch, row, col) of a matrix; one for each dimension of a shared array.
pub trait Coord<'k> {
    /// The operands, outermost first.
    fn operands(self) -> Vec<Operand>;
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

/// Memory that holds elements of type `T`: a [`Global`] matrix or a [`Shared`] array.
pub trait Elements<'k, T: Scalar>: Copy {
    /// The kernel being built.
    fn builder(self) -> &'k Builder;

    /// The element at these coordinates.
    #[track_caller]
    fn place(self, at: impl Coord<'k>) -> Place;

    /// One element.
    #[track_caller]
    fn load(self, at: impl Coord<'k>) -> Val<'k, T> {
        let [value] = self.builder().load(self.place(at), Guard::Always, constant(T::ZERO), Order::Weak, Scope::Block);
        value
    }

    /// One element, or `fill` where the guard does not hold.
    #[track_caller]
    fn load_or(self, at: impl Coord<'k>, guard: Pred<'k>, fill: impl IntoVal<'k, T>) -> Val<'k, T> {
        let guard = Builder::guard(guard);
        let [value] = self.builder().load(self.place(at), guard, fill.operand(), Order::Weak, Scope::Block);
        value
    }

    /// `WIDTH` elements side by side, the first a multiple of `WIDTH`, in one access.
    #[track_caller]
    fn load_vec<const WIDTH: usize>(self, at: impl Coord<'k>) -> [Val<'k, T>; WIDTH] {
        self.builder().load(self.place(at), Guard::Always, constant(T::ZERO), Order::Weak, Scope::Block)
    }

    /// As [`Elements::load_vec`], with `fill` for all but the first `valid` elements.
    #[track_caller]
    fn load_vec_or<const WIDTH: usize>(
        self,
        at: impl Coord<'k>,
        valid: Val<'k, u32>,
        fill: impl IntoVal<'k, T>,
    ) -> [Val<'k, T>; WIDTH] {
        let guard = Guard::First(valid.operand);
        self.builder().load(self.place(at), guard, fill.operand(), Order::Weak, Scope::Block)
    }

    /// As [`Elements::load_vec`], or `fill` for all of them where the guard does not hold.
    #[track_caller]
    fn load_vec_if<const WIDTH: usize>(
        self,
        at: impl Coord<'k>,
        guard: Pred<'k>,
        fill: impl IntoVal<'k, T>,
    ) -> [Val<'k, T>; WIDTH] {
        self.builder().load(self.place(at), Builder::guard(guard), fill.operand(), Order::Weak, Scope::Block)
    }

    /// Stores one element.
    #[track_caller]
    fn store(self, at: impl Coord<'k>, value: impl IntoVal<'k, T>) {
        let values = vec![value.operand()];
        self.builder().store(self.place(at), values, Guard::Always, Order::Weak, Scope::Block);
    }

    /// Stores one element where the guard holds.
    #[track_caller]
    fn store_if(self, at: impl Coord<'k>, value: impl IntoVal<'k, T>, guard: Pred<'k>) {
        let values = vec![value.operand()];
        self.builder().store(self.place(at), values, Builder::guard(guard), Order::Weak, Scope::Block);
    }

    /// Stores `WIDTH` elements side by side, the first at a multiple of `WIDTH`, in one access.
    #[track_caller]
    fn store_vec<const WIDTH: usize>(self, at: impl Coord<'k>, values: [Val<'k, T>; WIDTH]) {
        let values = values.map(|v| v.operand).to_vec();
        self.builder().store(self.place(at), values, Guard::Always, Order::Weak, Scope::Block);
    }

    /// As [`Elements::store_vec`], where the guard holds.
    #[track_caller]
    fn store_vec_if<const WIDTH: usize>(self, at: impl Coord<'k>, values: [Val<'k, T>; WIDTH], guard: Pred<'k>) {
        let values = values.map(|v| v.operand).to_vec();
        self.builder().store(self.place(at), values, Builder::guard(guard), Order::Weak, Scope::Block);
    }

    /// As [`Elements::store_vec`], storing the first `valid` elements only.
    #[track_caller]
    fn store_vec_first<const WIDTH: usize>(self, at: impl Coord<'k>, values: [Val<'k, T>; WIDTH], valid: Val<'k, u32>) {
        let values = values.map(|v| v.operand).to_vec();
        self.builder().store(self.place(at), values, Guard::First(valid.operand), Order::Weak, Scope::Block);
    }

    /// One element, with `Relaxed` or `Acquire` order.
    #[track_caller]
    fn load_ordered(self, at: impl Coord<'k>, order: Order, scope: Scope) -> Val<'k, T> {
        let [value] = self.builder().load(self.place(at), Guard::Always, constant(T::ZERO), order, scope);
        value
    }

    /// Stores one element, with `Relaxed` or `Release` order.
    #[track_caller]
    fn store_ordered(self, at: impl Coord<'k>, value: impl IntoVal<'k, T>, order: Order, scope: Scope) {
        self.builder().store(self.place(at), vec![value.operand()], Guard::Always, order, scope);
    }

    /// Reads, computes and writes one element at once; gives what was there.
    #[track_caller]
    fn atomic(
        self,
        op: AtomicOp,
        at: impl Coord<'k>,
        value: impl IntoVal<'k, T>,
        order: Order,
        scope: Scope,
    ) -> Val<'k, T> {
        let at = self.place(at);
        self.builder().effect_value(Op::Atomic { op, at, value: value.operand(), order, scope })
    }

    /// Waits until the element compares so with the value, then acquires what its writer released.
    #[track_caller]
    fn wait_until(self, at: impl Coord<'k>, compare: Compare, value: impl IntoVal<'k, T>, scope: Scope) {
        let at = self.place(at);
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

    /// A cursor that stands at these coordinates, (row, col).
    #[track_caller]
    pub fn cursor(self, at: impl Coord<'k>) -> Cursor<'k, T> {
        let id = self.k.array::<u32>(2).first;
        self.k.effect(Op::SetCursor(id, self.place(at)));
        Cursor { k: self.k, matrix: self, id }
    }

    /// One matrix of the batch: coordinates (row, col) mean that matrix.
    #[must_use]
    pub fn batch(self, batch: impl IntoVal<'k, u32>) -> Self {
        Global { batch: batch.operand(), ..self }
    }
}

/// A place in a matrix that moves along while a loop goes, so that its address is a running sum and not a new product each time. Its coordinates
/// are relative to where it stands, and constants.
#[derive(Clone, Copy)]
pub struct Cursor<'k, T> {
    k: &'k Builder,
    matrix: Global<'k, T>,
    id: VarId,
}

impl<'k, T: Scalar> Cursor<'k, T> {
    /// Moves on by rows and columns.
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
    fn place(self, at: impl Coord<'k>) -> Place {
        let (param, batch, cursor) = (self.matrix.param, self.matrix.batch, self.id);
        match at.operands()[..] {
            [Operand::Const(_, row), Operand::Const(_, col)] => {
                Place::Cursor { param, batch, cursor, row: row as u32, col: col as u32 }
            }
            _ => {
                self.k.fault(FaultKind::Type, "a cursor takes (row, col), both constants".into());
                Place::Cursor { param, batch, cursor, row: 0, col: 0 }
            }
        }
    }
}

impl<'k, T: Scalar> Elements<'k, T> for Global<'k, T> {
    fn builder(self) -> &'k Builder {
        self.k
    }

    fn place(self, at: impl Coord<'k>) -> Place {
        let (batch, row, col) = match at.operands()[..] {
            [row, col] => (self.batch, row, col),
            [batch, row, col] => (batch, row, col),
            _ => {
                self.k.fault(FaultKind::Type, "a matrix takes (row, col) or (batch, row, col)".into());
                let zero = constant(0u32);
                (zero, zero, zero)
            }
        };
        Place::Global { param: self.param, batch, row, col }
    }
}

impl<'k, T: Scalar> Shared<'k, T> {
    /// Starts copying `width` elements of a matrix into this array, together 4, 8 or 16 bytes; the elements that the guard
    /// leaves out become zero. They may be read after [`Builder::copy_async_wait`], by other threads after a barrier on top.
    #[track_caller]
    pub fn copy_async<At: Coord<'k>, From: Coord<'k>>(
        self,
        at: At,
        source: impl Elements<'k, T>,
        from: From,
        width: u32,
        guard: impl Into<Guard>,
    ) {
        let (to, from) = (self.place(at), source.place(from));
        self.k.effect(Op::CopyAsync { to, from, width, guard: guard.into() });
    }

    /// `N` matrices (1, 2 or 4) of 8 rows of 16 bytes, spread over the warp as [`Mma`](crate::Mma) takes its operands; `at` is where the
    /// lane's row begins. See [`Op::LoadMatrix`].
    #[track_caller]
    pub fn load_matrix<const N: usize>(self, at: impl Coord<'k>, transposed: bool) -> [Val<'k, u32>; N] {
        let from = self.place(at);
        self.k.effect_values(Op::LoadMatrix { from, count: N as u32, transposed })
    }
}

impl<'k, T: Scalar> Elements<'k, T> for Shared<'k, T> {
    fn builder(self) -> &'k Builder {
        self.k
    }

    #[track_caller]
    fn place(self, at: impl Coord<'k>) -> Place {
        self.k.shared_place(self.id, &at.operands())
    }
}
