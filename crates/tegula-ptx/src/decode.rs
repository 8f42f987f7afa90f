//! Decoding of instructions: opcode, modifiers and operands to an operation.

use tegula_ir::{MemoryOrder, Scope};

use crate::address::{LOCAL_WINDOW, window};
use crate::alu::Arithmetic;
use crate::ast::{Instruction as Source, Operand, ScalarType, StateSpace};
use crate::error::LowerError;
use crate::lower::{Lowering, Name};
use crate::matrix::{LdMatrix, Mma, StMatrix, Wmma, decode_movmatrix};
use crate::program::{
    Address, Atomic, AtomicKind, Barrier, BarrierKind, Callee, MbarrierOp, NO_JOIN, Op, Reg, SINK, Slot, Transfer,
    WarpOp, WarpWide, ZERO,
};

type Guard = Option<(Reg, bool)>;

/// The modifiers of an instruction that are not decoded yet.
struct Modifiers<'a> {
    source: &'a Source,
    rest: Vec<&'a str>,
}

impl<'a> Modifiers<'a> {
    fn new(source: &'a Source) -> Self {
        Modifiers { source, rest: source.modifiers.iter().map(String::as_str).collect() }
    }

    /// Removes a modifier, and returns whether it was present.
    fn take(&mut self, name: &str) -> bool {
        self.take_map(|found| (found == name).then_some(())).is_some()
    }

    /// Removes the first modifier that `meaning` maps to a value, and returns the value.
    fn take_map<T>(&mut self, meaning: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (at, value) = self.rest.iter().enumerate().find_map(|(at, name)| Some((at, meaning(name)?)))?;
        self.rest.remove(at);
        Some(value)
    }

    fn need<T>(&mut self, what: &str, meaning: impl Fn(&str) -> Option<T>) -> Result<T, LowerError> {
        self.take_map(meaning).ok_or_else(|| LowerError::of(self.source, format!("{what} is missing or not supported")))
    }

    fn ty(&mut self) -> Result<ScalarType, LowerError> {
        self.need("the type", ScalarType::from_name)
    }

    fn scope(&mut self) -> Option<Scope> {
        self.take_map(|name| match name {
            "cta" => Some(Scope::Block),
            // Clusters are not supported: a cluster has one block. Device scope includes it.
            "cluster" | "gpu" => Some(Scope::Device),
            "sys" => Some(Scope::System),
            _ => None,
        })
    }

    fn space(&mut self) -> Option<StateSpace> {
        self.take_map(|name| match name.split("::").next()? {
            "global" => Some(StateSpace::Global),
            "shared" if name != "shared::cluster" => Some(StateSpace::Shared),
            "shared" => Some(StateSpace::Shared),
            "local" => Some(StateSpace::Local),
            "const" => Some(StateSpace::Const),
            "param" => Some(StateSpace::Param),
            _ => None,
        })
    }

    /// Removes cache hints, which change no result.
    fn drop_hints(&mut self) {
        self.rest.retain(|name| {
            let hint = matches!(*name, "ca" | "cg" | "cs" | "cv" | "lu" | "wb" | "wt" | "noftz" | "unified");
            !hint && !name.starts_with("L1::") && !name.starts_with("L2::")
        });
    }

    /// Returns an error if a modifier is left, which is then unsupported.
    fn finish(self) -> Result<(), LowerError> {
        match self.rest.first() {
            Some(name) => Err(LowerError::of(self.source, format!("modifier .{name} is not supported"))),
            None => Ok(()),
        }
    }
}

impl<'a> Lowering<'a> {
    /// Lowers an instruction.
    pub fn instruction(&mut self, function: usize, source: &'a Source) -> Result<(), LowerError> {
        let guard = match &source.guard {
            Some(guard) => {
                let register = self.operand(source, &Operand::Name(guard.register.clone()), ScalarType::Pred)?;
                Some((register, guard.negated))
            }
            None => None,
        };
        if source.opcode != "mov"
            && let Some(decoded) =
                Arithmetic::decode(&source.opcode, &source.modifiers, source.operands.len().saturating_sub(1))
        {
            let arithmetic = decoded.map_err(|reason| LowerError::of(source, reason))?;
            return self.arithmetic(guard, source, arithmetic);
        }
        let op = match source.opcode.as_str() {
            "mov" => self.mov(source)?,
            "ld" | "ldu" => self.transfer(source, true)?,
            "st" => self.transfer(source, false)?,
            "atom" | "red" => self.atomic(source)?,
            "cvta" => self.cvta(source)?,
            "isspacep" => self.isspacep(source)?,
            "bra" => return self.branch(guard, source),
            "brx" => return self.branch_indexed(guard, source),
            "call" => self.call(function, source)?,
            "ret" => Op::Return,
            "exit" => Op::Exit,
            "trap" => Op::Trap,
            "bar" | "barrier" => self.barrier(source)?,
            "fence" | "membar" => self.fence(source)?,
            "vote" => self.vote(source)?,
            "shfl" => self.shuffle(source)?,
            "match" | "redux" | "elect" => self.warp_wide(source)?,
            "activemask" => Op::ActiveMask { dst: self.destination_at(source, 0)? },
            "cp" => self.copy_async(source)?,
            "mbarrier" => self.mbarrier(source)?,
            "mma" => self.mma(source)?,
            "wmma" => self.wmma(source)?,
            "ldmatrix" => self.ldmatrix(source)?,
            "stmatrix" => self.stmatrix(source)?,
            "movmatrix" => {
                decode_movmatrix(&source.modifiers).map_err(|reason| LowerError::of(source, reason))?;
                Op::MovMatrix {
                    dst: self.destination_at(source, 0)?,
                    src: self.operand_at(source, 1, ScalarType::B32)?,
                }
            }
            "createpolicy" => Op::Move { dst: self.destination_at(source, 0)?, src: ZERO },
            "nanosleep" | "prefetch" | "prefetchu" | "applypriority" | "discard" | "pmevent" | "brkpt"
            | "griddepcontrol" => Op::Nop,
            _ => return Err(LowerError::of(source, "this instruction is not supported".into())),
        };
        self.push(guard, op, source.line);
        Ok(())
    }

    fn arithmetic(&mut self, guard: Guard, source: &Source, mut arithmetic: Arithmetic) -> Result<(), LowerError> {
        let signature = arithmetic.signature();
        let mut operands = source.operands.iter();
        let destination = operands.next().ok_or_else(|| LowerError::of(source, "operands are missing".into()))?;
        let dst = match destination {
            Operand::Pair(first, second) => [self.destination(source, first)?, self.destination(source, second)?],
            other => [self.destination(source, other)?, SINK],
        };
        if let Operand::Name(name) = destination
            && let Some(declared) = self.declared(name)
        {
            arithmetic.widen_destination(8 * declared.size());
        }
        let mut sources = Vec::with_capacity(signature.sources.len());
        for (operand, &ty) in operands.zip(&signature.sources) {
            sources.push(self.operand(source, operand, ty)?);
        }
        if arithmetic.is_approximate() && self.approximate.is_none() {
            self.approximate = Some(format!("{}.{}", source.opcode, source.modifiers.join(".")));
        }
        let carries = signature.reads_carry || signature.writes_carry;
        let op = Op::Arithmetic { arithmetic: Box::new(arithmetic), dst, sources, carries };
        self.push(guard, op, source.line);
        Ok(())
    }

    fn operand_at(&mut self, source: &Source, at: usize, ty: ScalarType) -> Result<Reg, LowerError> {
        let operand = source.operands.get(at);
        let operand = operand.ok_or_else(|| LowerError::of(source, "an operand is missing".into()))?;
        self.operand(source, operand, ty)
    }

    fn destination_at(&mut self, source: &Source, at: usize) -> Result<Reg, LowerError> {
        let operand = source.operands.get(at);
        let operand = operand.ok_or_else(|| LowerError::of(source, "an operand is missing".into()))?;
        self.destination(source, operand)
    }

    /// The register of a predicate operand, and whether the operand is negated.
    fn predicate_at(&mut self, source: &Source, at: usize) -> Result<(Reg, bool), LowerError> {
        match source.operands.get(at) {
            Some(Operand::Negated(name)) => {
                Ok((self.operand(source, &Operand::Name(name.clone()), ScalarType::Pred)?, true))
            }
            _ => Ok((self.operand_at(source, at, ScalarType::Pred)?, false)),
        }
    }

    fn mov(&mut self, source: &Source) -> Result<Op, LowerError> {
        let mut modifiers = Modifiers::new(source);
        let ty = modifiers.ty()?;
        modifiers.finish()?;
        let (Some(to), Some(from)) = (source.operands.first(), source.operands.get(1)) else {
            return Err(LowerError::of(source, "operands are missing".into()));
        };
        let bits_of = |n: usize| (8 * ty.size()).checked_div(n as u32).unwrap_or(0);
        if ty.size() > 8 {
            return Err(LowerError::of(source, "values of 128 bits are not supported".into()));
        }
        match (to, from) {
            (Operand::Vector(_), _) => {
                let parts = self.vector(source, to, ty, true)?;
                let (bits, src) = (bits_of(parts.len()), self.operand(source, from, ty)?);
                Ok(Op::Unpack { parts, src, bits })
            }
            (_, Operand::Vector(parts)) if parts.len() > 1 => {
                let part_ty = if ty.size() as usize / parts.len() == 2 { ScalarType::B16 } else { ScalarType::B32 };
                let bits = bits_of(parts.len());
                let parts = self.vector(source, from, part_ty, false)?;
                Ok(Op::Pack { dst: self.destination(source, to)?, parts, bits })
            }
            _ => Ok(Op::Move { dst: self.destination(source, to)?, src: self.operand(source, from, ty)? }),
        }
    }

    /// The address of a memory operand.
    fn address(&mut self, source: &Source, at: usize, space: Option<StateSpace>) -> Result<Address, LowerError> {
        let Some(Operand::Address { base, offset }) = source.operands.get(at) else {
            return Err(LowerError::of(source, "an address in brackets is missing".into()));
        };
        let mut address = Address { space, base: ZERO, offset: *offset, narrow: false, frame: false };
        let Some(base) = base else { return Ok(address) };
        match self.lookup(base).cloned() {
            Some(Name::Register(register, ty)) => {
                address.base = register;
                address.narrow = ty.size() <= 4;
                // Parameters of a function are in its frame; those of the kernel are not.
                if space == Some(StateSpace::Param) && !self.in_kernel {
                    address.space = Some(StateSpace::Local);
                }
            }
            Some(Name::Frame(start, _)) => {
                address.offset += i64::from(start);
                (address.frame, address.space) = (true, Some(StateSpace::Local));
            }
            Some(Name::KernelParam(start)) => {
                address.offset += i64::from(start);
                address.space = Some(StateSpace::Param);
            }
            Some(Name::Shared(number)) => {
                address.base = self.shared_constant(number, 0);
                address.space = Some(StateSpace::Shared);
            }
            _ => address.base = self.operand(source, &Operand::Name(base.clone()), ScalarType::B64)?,
        }
        Ok(address)
    }

    fn transfer(&mut self, source: &Source, loads: bool) -> Result<Op, LowerError> {
        let mut modifiers = Modifiers::new(source);
        modifiers.drop_hints();
        let volatile = modifiers.take("volatile") || modifiers.take("mmio");
        let order = modifiers.take_map(|name| match name {
            "weak" => Some(MemoryOrder::Weak),
            "relaxed" => Some(MemoryOrder::Relaxed),
            "acquire" => Some(MemoryOrder::Acquire),
            "release" => Some(MemoryOrder::Release),
            _ => None,
        });
        let read_only = modifiers.take("nc") || source.opcode == "ldu";
        let scope = modifiers.scope().unwrap_or(Scope::System);
        let space = modifiers.space();
        let width =
            modifiers.take_map(|name| ["v2", "v4", "v8"].iter().position(|v| *v == name)).map_or(1, |at| 2 << at);
        let ty = modifiers.ty()?;
        modifiers.finish()?;
        if ty == ScalarType::B128 {
            return Err(LowerError::of(source, "values of 128 bits are not supported".into()));
        }
        let (to, at) = if loads { (0, 1) } else { (1, 0) };
        let address = self.address(source, at, space)?;
        let operand = source.operands.get(to).ok_or_else(|| LowerError::of(source, "an operand is missing".into()))?;
        let registers = self.vector(source, operand, ty, loads)?;
        if registers.len() != width {
            let message = format!("{} registers for {width} elements", registers.len());
            return Err(LowerError::of(source, message));
        }
        let order = order.unwrap_or(if volatile { MemoryOrder::Relaxed } else { MemoryOrder::Weak });
        let first = if let Operand::Vector(parts) = operand { parts.first() } else { Some(operand) };
        let declared = first.and_then(|first| if let Operand::Name(name) = first { self.declared(name) } else { None });
        let register_bits = 8 * declared.unwrap_or(ty).size().clamp(ty.size(), 8);
        let transfer =
            Box::new(Transfer { address, registers, ty, register_bits, order, scope, lockstep: volatile, read_only });
        Ok(if loads { Op::Load(transfer) } else { Op::Store(transfer) })
    }

    fn atomic(&mut self, source: &Source) -> Result<Op, LowerError> {
        let mut modifiers = Modifiers::new(source);
        modifiers.drop_hints();
        let order = modifiers.take_map(|name| match name {
            "relaxed" => Some(MemoryOrder::Relaxed),
            "acquire" => Some(MemoryOrder::Acquire),
            "release" => Some(MemoryOrder::Release),
            "acq_rel" => Some(MemoryOrder::AcqRel),
            _ => None,
        });
        let scope = modifiers.scope().unwrap_or(Scope::Device);
        let space = modifiers.space();
        let kind = modifiers.need("the operation", |name| {
            use AtomicKind::{Add, And, Cas, Dec, Exch, Inc, Max, Min, Or, Xor};
            let names = [
                ("and", And),
                ("or", Or),
                ("xor", Xor),
                ("cas", Cas),
                ("exch", Exch),
                ("add", Add),
                ("inc", Inc),
                ("dec", Dec),
                ("min", Min),
                ("max", Max),
            ];
            names.into_iter().find(|(known, _)| *known == name).map(|(_, kind)| kind)
        })?;
        let width =
            modifiers.take_map(|name| ["v2", "v4", "v8"].iter().position(|v| *v == name)).map_or(1, |at| 2usize << at);
        let ty = modifiers.ty()?;
        modifiers.finish()?;
        if ty == ScalarType::B128 {
            return Err(LowerError::of(source, "values of 128 bits are not supported".into()));
        }
        let first = usize::from(source.opcode == "atom");
        let address = self.address(source, first, space)?;
        let operand_of =
            |at: usize| source.operands.get(at).ok_or_else(|| LowerError::of(source, "an operand is missing".into()));
        let values = self.vector(source, operand_of(first + 1)?, ty, false)?;
        let dst = if first == 1 { self.vector(source, operand_of(0)?, ty, true)? } else { vec![SINK; width] };
        let swap = if kind == AtomicKind::Cas { self.operand_at(source, first + 2, ty)? } else { SINK };
        if values.len() != width || dst.len() != width {
            return Err(LowerError::of(source, format!("{} registers for {width} elements", values.len())));
        }
        let order = order.unwrap_or(MemoryOrder::Relaxed);
        Ok(Op::Atomic(Box::new(Atomic { kind, ty, address, dst, values, swap, order, scope })))
    }

    fn cvta(&mut self, source: &Source) -> Result<Op, LowerError> {
        let mut modifiers = Modifiers::new(source);
        let to_generic = !modifiers.take("to");
        let space = modifiers.space();
        modifiers.ty()?;
        modifiers.finish()?;
        let space = space.ok_or_else(|| LowerError::of(source, "the state space is missing".into()))?;
        let (dst, src) = (self.destination_at(source, 0)?, self.operand_at(source, 1, ScalarType::B64)?);
        let window = if space == StateSpace::Param && !self.in_kernel { LOCAL_WINDOW } else { window(space) };
        Ok(if window == 0 { Op::Move { dst, src } } else { Op::ConvertAddress { dst, src, window, to_generic } })
    }

    fn isspacep(&mut self, source: &Source) -> Result<Op, LowerError> {
        let mut modifiers = Modifiers::new(source);
        let space = modifiers.space().ok_or_else(|| LowerError::of(source, "the state space is missing".into()))?;
        modifiers.finish()?;
        Ok(Op::IsSpace {
            dst: self.destination_at(source, 0)?,
            src: self.operand_at(source, 1, ScalarType::B64)?,
            space,
        })
    }

    fn branch(&mut self, guard: Guard, source: &Source) -> Result<(), LowerError> {
        let Some(Operand::Name(name)) = source.operands.first() else {
            return Err(LowerError::of(source, "the label is missing".into()));
        };
        let label = self.label(name, source)?;
        self.branches.push((self.code.len(), vec![label]));
        self.push(guard, Op::Branch { target: 0, join: NO_JOIN }, source.line);
        Ok(())
    }

    fn branch_indexed(&mut self, guard: Guard, source: &Source) -> Result<(), LowerError> {
        let index = self.operand_at(source, 0, ScalarType::U32)?;
        let targets = match source.operands.get(1) {
            Some(Operand::Name(name)) => match self.lookup(name) {
                Some(Name::Targets(targets)) => targets.clone(),
                _ => return Err(LowerError::of(source, format!("{name} is not a list of branch targets"))),
            },
            _ => return Err(LowerError::of(source, "the list of targets is missing".into())),
        };
        let labels = targets.iter().map(|name| self.label(name, source)).collect::<Result<Vec<_>, _>>()?;
        self.branches.push((self.code.len(), labels));
        self.push(guard, Op::BranchIndexed { index, targets: Vec::new(), join: NO_JOIN }, source.line);
        Ok(())
    }

    fn call(&mut self, caller: usize, source: &Source) -> Result<Op, LowerError> {
        let mut operands = source.operands.iter().peekable();
        let list = |this: &mut Self, operand: Option<&Operand>| match operand {
            Some(Operand::List(items)) => items.iter().map(|item| this.slot_of(source, item)).collect(),
            _ => Ok(Vec::new()),
        };
        let returns: Vec<Slot> = list(self, operands.next_if(|operand| matches!(operand, Operand::List(_))))?;
        let Some(Operand::Name(name)) = operands.next() else {
            return Err(LowerError::of(source, "the function is missing".into()));
        };
        let arguments: Vec<Slot> = list(self, operands.next_if(|operand| matches!(operand, Operand::List(_))))?;
        match (name.as_str(), &arguments[..]) {
            ("vprintf", &[format, values]) => {
                return Ok(Op::Print { format, arguments: values, dst: returns.first().copied() });
            }
            ("__assertfail", _) => return Ok(Op::AssertFail { arguments }),
            _ => {}
        }
        if let Some(Name::Register(register, _)) = self.lookup(name) {
            return Ok(Op::Call { callee: Callee::Indirect(*register), arguments, returns });
        }
        if matches!(name.as_str(), "malloc" | "free") {
            return Err(LowerError::of(source, "memory allocation in a kernel is not supported".into()));
        }
        let callee = self.function(name).map_err(|error| LowerError::of(source, error.message))?;
        self.calls(caller, callee);
        let function = &self.functions[callee as usize];
        if function.params.len() != arguments.len() || function.returns.len() < returns.len() {
            let message = format!("{} arguments, where {name} takes {}", arguments.len(), function.params.len());
            return Err(LowerError::of(source, message));
        }
        Ok(Op::Call { callee: Callee::Function(callee), arguments, returns })
    }

    /// An argument or result of a call.
    fn slot_of(&mut self, source: &Source, operand: &Operand) -> Result<Slot, LowerError> {
        if let Operand::Name(name) = operand
            && let Some(&Name::Frame(offset, bytes)) = self.lookup(name)
        {
            return Ok(Slot::Frame(offset, bytes));
        }
        Ok(Slot::Register(self.operand(source, operand, ScalarType::B64)?))
    }

    fn barrier(&mut self, source: &Source) -> Result<Op, LowerError> {
        let mut modifiers = Modifiers::new(source);
        modifiers.take("cta");
        if modifiers.take("warp") {
            modifiers.take("sync");
            modifiers.finish()?;
            return Ok(Op::WarpSync { mask: self.operand_at(source, 0, ScalarType::B32)? });
        }
        if modifiers.rest.iter().any(|name| name.starts_with("cluster")) {
            return Err(LowerError::of(source, "barriers of a cluster are not supported".into()));
        }
        let aligned = modifiers.take("aligned") || source.opcode == "bar";
        let reduces = modifiers.take("red");
        let kind = modifiers.need("the operation", |name| match name {
            "sync" => Some(BarrierKind::Sync),
            "arrive" => Some(BarrierKind::Arrive),
            "popc" => Some(BarrierKind::Popc),
            "and" => Some(BarrierKind::And),
            "or" => Some(BarrierKind::Or),
            _ => None,
        })?;
        if reduces {
            modifiers.take_map(ScalarType::from_name);
        }
        modifiers.finish()?;
        let (mut dst, mut predicate, mut first) = (SINK, (ZERO, false), 0);
        let mut count = source.operands.len();
        if reduces {
            dst = self.destination_at(source, 0)?;
            predicate = self.predicate_at(source, count.saturating_sub(1))?;
            (first, count) = (1, count - 1);
        }
        let id = self.operand_at(source, first, ScalarType::U32)?;
        let threads = if count > first + 1 { Some(self.operand_at(source, first + 1, ScalarType::U32)?) } else { None };
        if kind == BarrierKind::Arrive && threads.is_none() {
            return Err(LowerError::of(source, "an arrival needs the number of threads".into()));
        }
        Ok(Op::Barrier(Box::new(Barrier { kind, id, threads, aligned, dst, predicate })))
    }

    fn fence(&mut self, source: &Source) -> Result<Op, LowerError> {
        let mut modifiers = Modifiers::new(source);
        if modifiers.take("proxy")
            || modifiers.take("mbarrier_init")
            || modifiers.rest.iter().any(|m| m.starts_with("proxy"))
        {
            return Ok(Op::Nop);
        }
        let sides = modifiers.take_map(|name| match name {
            "sc" | "acq_rel" => Some((true, true)),
            "acquire" => Some((true, false)),
            "release" => Some((false, true)),
            _ => None,
        });
        let (acquires, releases) = sides.unwrap_or((true, true));
        let level = modifiers.take_map(|name| (name == "gl").then_some(Scope::Device));
        let scope = modifiers.scope().or(level).unwrap_or(Scope::System);
        modifiers.finish()?;
        Ok(Op::Fence { scope, acquires, releases })
    }

    fn vote(&mut self, source: &Source) -> Result<Op, LowerError> {
        let mut modifiers = Modifiers::new(source);
        let synchronizes = modifiers.take("sync");
        let op = modifiers.need("the mode", |name| match name {
            "all" => Some(WarpOp::All),
            "any" => Some(WarpOp::Any),
            "uni" => Some(WarpOp::Uniform),
            "ballot" => Some(WarpOp::Ballot),
            _ => None,
        })?;
        let ty = modifiers.ty()?;
        modifiers.finish()?;
        let (src, negated) = self.predicate_at(source, 1)?;
        let mask = if synchronizes { Some(self.operand_at(source, 2, ScalarType::B32)?) } else { None };
        let dst = self.destination_at(source, 0)?;
        Ok(warp_wide(WarpWide { op, ty, dst, predicate: SINK, src, negated, b: ZERO, c: ZERO, mask }))
    }

    fn shuffle(&mut self, source: &Source) -> Result<Op, LowerError> {
        let mut modifiers = Modifiers::new(source);
        let synchronizes = modifiers.take("sync");
        let op = modifiers.need("the mode", |name| match name {
            "up" => Some(WarpOp::ShuffleUp),
            "down" => Some(WarpOp::ShuffleDown),
            "bfly" => Some(WarpOp::ShuffleXor),
            "idx" => Some(WarpOp::ShuffleIndex),
            _ => None,
        })?;
        let ty = modifiers.ty()?;
        modifiers.finish()?;
        let (dst, predicate) = self.pair_at(source)?;
        let src = self.operand_at(source, 1, ty)?;
        let (b, c) = (self.operand_at(source, 2, ScalarType::B32)?, self.operand_at(source, 3, ScalarType::B32)?);
        let mask = if synchronizes { Some(self.operand_at(source, 4, ScalarType::B32)?) } else { None };
        Ok(warp_wide(WarpWide { op, ty, dst, predicate, src, negated: false, b, c, mask }))
    }

    /// The destination d and the optional second destination p of `d|p`.
    fn pair_at(&mut self, source: &Source) -> Result<(Reg, Reg), LowerError> {
        match source.operands.first() {
            Some(Operand::Pair(first, second)) => {
                Ok((self.destination(source, first)?, self.destination(source, second)?))
            }
            _ => Ok((self.destination_at(source, 0)?, SINK)),
        }
    }

    fn warp_wide(&mut self, source: &Source) -> Result<Op, LowerError> {
        let mut modifiers = Modifiers::new(source);
        let mode = match source.opcode.as_str() {
            "elect" => Some(WarpOp::Elect),
            opcode => modifiers.take_map(|name| {
                Some(match (opcode, name) {
                    ("match", "any") => WarpOp::MatchAny,
                    ("match", "all") => WarpOp::MatchAll,
                    ("redux", "add") => WarpOp::Add,
                    ("redux", "min") => WarpOp::Min,
                    ("redux", "max") => WarpOp::Max,
                    ("redux", "and") => WarpOp::And,
                    ("redux", "or") => WarpOp::Or,
                    ("redux", "xor") => WarpOp::Xor,
                    _ => return None,
                })
            }),
        };
        let op = mode.ok_or_else(|| LowerError::of(source, "the operation is not supported".into()))?;
        modifiers.take("sync");
        let ty = modifiers.take_map(ScalarType::from_name).unwrap_or(ScalarType::B32);
        modifiers.finish()?;
        if ty.is_float() {
            return Err(LowerError::of(source, "a reduction of floating-point numbers is not supported".into()));
        }
        let (dst, predicate) = self.pair_at(source)?;
        let elects = op == WarpOp::Elect;
        let src = if elects { ZERO } else { self.operand_at(source, 1, ty)? };
        let mask = Some(self.operand_at(source, if elects { 1 } else { 2 }, ScalarType::B32)?);
        Ok(warp_wide(WarpWide { op, ty, dst, predicate, src, negated: false, b: ZERO, c: ZERO, mask }))
    }

    fn copy_async(&mut self, source: &Source) -> Result<Op, LowerError> {
        let mut modifiers = Modifiers::new(source);
        if !modifiers.take("async") || modifiers.rest.iter().any(|m| matches!(*m, "bulk" | "reduce")) {
            return Err(LowerError::of(source, "bulk copies (TMA) are not supported".into()));
        }
        if modifiers.take("commit_group") {
            return Ok(Op::CopyAsyncCommit);
        }
        if modifiers.take("wait_all") {
            return Ok(Op::CopyAsyncWait { pending: None });
        }
        if modifiers.take("wait_group") {
            let count = self.operand_at(source, 0, ScalarType::U32)?;
            let count = self
                .constant_bits(count)
                .ok_or_else(|| LowerError::of(source, "the number of groups is not a constant".into()))?;
            return Ok(Op::CopyAsyncWait { pending: Some(count as u32) });
        }
        if modifiers.take("mbarrier") {
            let no_increment = modifiers.rest.contains(&"noinc");
            let space = modifiers.space();
            let address = self.address(source, 0, space)?;
            let op = MbarrierOp::CopyArrive { no_increment };
            return Ok(Op::Mbarrier { op, dst: SINK, address, state: SINK, count: None });
        }
        let bypass = modifiers.take("cg");
        modifiers.drop_hints();
        let (to_space, from_space) = (modifiers.space(), modifiers.space());
        modifiers.finish()?;
        let (to, from) = (self.address(source, 0, to_space)?, self.address(source, 1, from_space)?);
        let bytes = self.operand_at(source, 2, ScalarType::U32)?;
        let bytes = self.constant_bits(bytes).filter(|bytes| matches!(bytes, 4 | 8 | 16));
        let bytes = bytes.ok_or_else(|| LowerError::of(source, "the size must be 4, 8 or 16".into()))? as u32;
        let (mut source_bytes, mut ignore) = (None, None);
        // Optional: the bytes to read (32 bits), a predicate, or a cache policy (64 bits).
        match source.operands.get(3) {
            Some(Operand::Name(name)) if self.declared(name) == Some(ScalarType::Pred) => {
                ignore = Some(self.predicate_at(source, 3)?);
            }
            Some(Operand::Negated(_)) => ignore = Some(self.predicate_at(source, 3)?),
            Some(Operand::Name(name)) if self.declared(name).is_some_and(|ty| ty.size() == 8) => {}
            Some(_) => source_bytes = Some(self.operand_at(source, 3, ScalarType::U32)?),
            None => {}
        }
        Ok(Op::CopyAsync { to, from, bytes, source_bytes, ignore, bypass })
    }

    fn mbarrier(&mut self, source: &Source) -> Result<Op, LowerError> {
        let mut modifiers = Modifiers::new(source);
        let name = modifiers.need("the operation", |name| Some(name.to_string()))?;
        let parity = modifiers.take("parity");
        let complete = !modifiers.take("noComplete");
        modifiers.take_map(|name| matches!(name, "acquire" | "release" | "relaxed").then_some(()));
        modifiers.scope();
        if modifiers.rest.contains(&"expect_tx") || name.contains("tx") {
            return Err(LowerError::of(source, "transaction counts (TMA) are not supported".into()));
        }
        let space = modifiers.space();
        modifiers.take("b64");
        modifiers.finish()?;
        let op = match name.as_str() {
            "init" => MbarrierOp::Init,
            "inval" => MbarrierOp::Invalidate,
            "arrive" => MbarrierOp::Arrive { drop: false, complete },
            "arrive_drop" => MbarrierOp::Arrive { drop: true, complete },
            "test_wait" | "try_wait" => MbarrierOp::Test { parity },
            "pending_count" => MbarrierOp::PendingCount,
            _ => return Err(LowerError::of(source, "this operation is not supported".into())),
        };
        let none = Address { space: Some(StateSpace::Shared), base: ZERO, offset: 0, narrow: true, frame: false };
        Ok(match op {
            MbarrierOp::Init => {
                let count = Some(self.operand_at(source, 1, ScalarType::U32)?);
                Op::Mbarrier { op, dst: SINK, address: self.address(source, 0, space)?, state: SINK, count }
            }
            MbarrierOp::Invalidate => {
                Op::Mbarrier { op, dst: SINK, address: self.address(source, 0, space)?, state: SINK, count: None }
            }
            MbarrierOp::PendingCount => {
                let state = self.operand_at(source, 1, ScalarType::B64)?;
                Op::Mbarrier { op, dst: self.destination_at(source, 0)?, address: none, state, count: None }
            }
            MbarrierOp::Test { parity } => {
                let ty = if parity { ScalarType::U32 } else { ScalarType::B64 };
                let state = self.operand_at(source, 2, ty)?;
                let (dst, address) = (self.destination_at(source, 0)?, self.address(source, 1, space)?);
                Op::Mbarrier { op, dst, address, state, count: None }
            }
            _ => {
                // The destination, which receives the state, is optional.
                let at = usize::from(!matches!(source.operands.first(), Some(Operand::Address { .. })));
                let dst = if at == 1 { self.destination_at(source, 0)? } else { SINK };
                let count = match source.operands.get(at + 1) {
                    Some(_) => Some(self.operand_at(source, at + 1, ScalarType::U32)?),
                    None => None,
                };
                Op::Mbarrier { op, dst, address: self.address(source, at, space)?, state: SINK, count }
            }
        })
    }

    fn vector_at(&mut self, source: &Source, at: usize, writes: bool) -> Result<Vec<Reg>, LowerError> {
        let operand = source.operands.get(at);
        let operand = operand.ok_or_else(|| LowerError::of(source, "an operand is missing".into()))?;
        self.vector(source, operand, ScalarType::B32, writes)
    }

    fn mma(&mut self, source: &Source) -> Result<Op, LowerError> {
        let mma = Mma::decode(&source.modifiers).map_err(|reason| LowerError::of(source, reason))?;
        self.product(source, Box::new(mma))
    }

    fn product(&mut self, source: &Source, mma: Box<Mma>) -> Result<Op, LowerError> {
        let d = self.vector_at(source, 0, true)?;
        let [a, b, c] = [1, 2, 3].map(|at| self.vector_at(source, at, false));
        let operands = [a?, b?, c?, d];
        let expected = mma.registers().map(|registers| registers.count as usize);
        if operands.each_ref().map(Vec::len) != expected {
            return Err(LowerError::of(source, format!("A, B, C and D must have {expected:?} registers")));
        }
        Ok(Op::Mma { mma, operands: Box::new(operands) })
    }

    fn wmma(&mut self, source: &Source) -> Result<Op, LowerError> {
        let (transfer, loads) =
            match Wmma::decode(&source.modifiers).map_err(|reason| LowerError::of(source, reason))? {
                Wmma::Mma(mma) => return self.product(source, mma),
                Wmma::Load(transfer) => (transfer, true),
                Wmma::Store(transfer) => (transfer, false),
            };
        let registers = self.vector_at(source, usize::from(!loads), loads)?;
        let address = self.address(source, usize::from(loads), transfer.space())?;
        if registers.len() != transfer.registers().count as usize {
            return Err(LowerError::of(
                source,
                format!("the fragment must have {} registers", transfer.registers().count),
            ));
        }
        let stride = match source.operands.get(2) {
            Some(_) => Some(self.operand_at(source, 2, ScalarType::U32)?),
            None => None,
        };
        let transfer = Box::new(transfer);
        Ok(match loads {
            true => Op::WmmaLoad { transfer, registers, address, stride },
            false => Op::WmmaStore { transfer, registers, address, stride },
        })
    }

    fn ldmatrix(&mut self, source: &Source) -> Result<Op, LowerError> {
        let ldmatrix = LdMatrix::decode(&source.modifiers).map_err(|reason| LowerError::of(source, reason))?;
        let (dst, address) = (self.vector_at(source, 0, true)?, self.address(source, 1, ldmatrix.space())?);
        self.check_count(source, dst.len(), ldmatrix.registers())?;
        Ok(Op::LdMatrix { ldmatrix, dst, address })
    }

    fn stmatrix(&mut self, source: &Source) -> Result<Op, LowerError> {
        let stmatrix = StMatrix::decode(&source.modifiers).map_err(|reason| LowerError::of(source, reason))?;
        let (src, address) = (self.vector_at(source, 1, false)?, self.address(source, 0, stmatrix.space())?);
        self.check_count(source, src.len(), stmatrix.registers())?;
        Ok(Op::StMatrix { stmatrix, src, address })
    }

    fn check_count(&self, source: &Source, found: usize, expected: u32) -> Result<(), LowerError> {
        let message = || LowerError::of(source, format!("{found} registers, where {expected} are expected"));
        (found == expected as usize).then_some(()).ok_or_else(message)
    }
}

fn warp_wide(wide: WarpWide) -> Op {
    Op::WarpWide(Box::new(wide))
}
