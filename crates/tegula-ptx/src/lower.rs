//! Lowering of a kernel: from the syntax tree to the program of a warp.
//!
//! Names are resolved to registers, addresses and code positions. Every function that the kernel
//! can call is lowered once, with its own registers.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use crate::address::{FUNCTION_WINDOW, allocation_address, shared_address};
use crate::alu::Lanes;
use crate::ast::{self, Initializer, Instruction as Source, Module, Operand, ScalarType, StateSpace, Statement};
use crate::cfg::{Exits, reconvergence};
use crate::error::LowerError;
use crate::program::{
    Function, Instruction, KernelInfo, NO_JOIN, Op, Parameter, Program, Reg, SINK, SharedSymbol, SiteSource, Slot, ZERO,
};
use crate::properties::{mark_polls, properties};

/// A variable of the module in global or constant memory.
#[derive(Clone, Debug)]
pub(crate) struct ModuleVariable {
    pub name: String,
    pub space: StateSpace,
    pub ty: ScalarType,
    pub bytes: Vec<u8>,
}

/// Largest size of a module variable, and of the frame of a function, in bytes.
const MAX_VARIABLE: u64 = 1 << 30;
const MAX_FRAME: u64 = 1 << 19;
/// The memory that synchronizes a cooperative grid, as messages call it.
const GRID_WORKSPACE: &str = "the workspace of the cooperative grid";

/// Lowers a kernel of a module, with the functions that it calls.
///
/// # Errors
/// [`LowerError`], with the line, for an undefined name or an unsupported construct.
pub(crate) fn lower(module: &Module, kernel: &str) -> Result<(Program, Vec<ModuleVariable>), LowerError> {
    let mut lowering = Lowering::new(module)?;
    // The kernel must be function 0, so it precedes functions named by initial values.
    lowering.function(kernel)?;
    lowering.initial_values()?;
    let mut next = 0;
    while next < lowering.queue.len() {
        let name = lowering.queue[next];
        lowering.body(next, name)?;
        next += 1;
    }
    lowering.finish(kernel)
}

/// The entity that a name denotes.
#[derive(Clone, Debug)]
pub(crate) enum Name {
    Register(Reg, ScalarType),
    /// Registers `prefix0` to `prefix(n - 1)`; each is allocated at its first use.
    Registers(u32, ScalarType),
    Vector(Vec<Reg>, ScalarType),
    /// A variable in the frame of the function: offset and size, in bytes.
    Frame(u32, u32),
    /// A parameter of the kernel: its offset in bytes.
    KernelParam(u32),
    /// A symbol of shared memory, by number.
    Shared(u32),
    /// A variable of the module, by number of its allocation.
    Global(u32),
    Label(u32),
    Targets(Vec<String>),
    Prototype,
}

pub(crate) struct Lowering<'a> {
    pub module: &'a Module,
    by_name: FxHashMap<&'a str, &'a ast::Function>,
    /// The functions to lower: the kernel, then the others in the order of their first references.
    queue: Vec<&'a str>,
    pub functions: Vec<Function>,
    /// The callees of each function.
    calls: Vec<Vec<u32>>,
    variables: Vec<ModuleVariable>,
    pub code: Vec<Instruction>,
    sites: Vec<SiteSource>,
    site_numbers: FxHashMap<SiteSource, u32>,
    registers: Vec<Lanes>,
    constants: FxHashMap<u64, Reg>,
    shared: Vec<SharedSymbol>,
    static_shared: u64,
    /// Names, innermost scope last; the first scope is that of the module.
    scopes: Vec<HashMap<String, Name>>,
    /// The code position of each label; `None` until the label is reached.
    labels: Vec<Option<u32>>,
    /// Branches with unresolved targets: position of the branch, and its labels.
    pub branches: Vec<(usize, Vec<u32>)>,
    frame: u64,
    pub in_kernel: bool,
    loc: Option<ast::Loc>,
    /// Inlined calls, as in [`Program::inlined`], and their numbers.
    inlined: Vec<(u32, u32, u32)>,
    inlined_numbers: FxHashMap<(u32, u32, u32), u32>,
    /// For each file, line and column of a `.loc`: the number of the inlined call around it, from
    /// the last such `.loc`; 0 if none.
    call_of: FxHashMap<(u32, u32, u32), u32>,
    pub approximate: Option<String>,
    kernel: KernelInfo,
}

impl<'a> Lowering<'a> {
    fn new(module: &'a Module) -> Result<Self, LowerError> {
        let mut by_name: FxHashMap<&str, &ast::Function> = FxHashMap::default();
        for function in &module.functions {
            let known = by_name.entry(&function.name).or_insert(function);
            if known.body.is_none() {
                *known = function;
            }
        }
        // An alias is declared as a function too.
        for (alias, function) in &module.aliases {
            if let Some(&function) = by_name.get(function.as_str()) {
                by_name.insert(alias, function);
            }
        }
        let mut lowering = Lowering {
            module,
            by_name,
            queue: Vec::new(),
            functions: Vec::new(),
            calls: Vec::new(),
            variables: Vec::new(),
            code: Vec::new(),
            sites: Vec::new(),
            site_numbers: FxHashMap::default(),
            registers: vec![[0; 32]; SINK as usize + 1],
            constants: FxHashMap::from_iter([(0, ZERO)]),
            shared: vec![SharedSymbol { name: "shared memory".into(), offset: 0, bytes: None, ty: ScalarType::B8 }],
            static_shared: 0,
            scopes: vec![HashMap::new()],
            labels: Vec::new(),
            branches: Vec::new(),
            frame: 0,
            in_kernel: true,
            loc: None,
            inlined: Vec::new(),
            inlined_numbers: FxHashMap::default(),
            call_of: FxHashMap::default(),
            approximate: None,
            kernel: KernelInfo::default(),
        };
        lowering.module_variables()?;
        Ok(lowering)
    }

    fn module_variables(&mut self) -> Result<(), LowerError> {
        let module = self.module;
        for variable in &module.variables {
            let name = match variable.space {
                StateSpace::Global | StateSpace::Const => {
                    if variable.bytes() > MAX_VARIABLE {
                        return Err(LowerError::at(variable.line, format!("variable {} exceeds 1 GiB", variable.name)));
                    }
                    let number = self.variables.len() as u32;
                    self.variables.push(ModuleVariable {
                        name: variable.name.clone(),
                        space: variable.space,
                        ty: variable.ty,
                        bytes: Vec::new(),
                    });
                    Name::Global(number)
                }
                StateSpace::Shared => self.shared_symbol(variable)?,
                _ => continue,
            };
            self.scopes[0].insert(variable.name.clone(), name);
        }
        Ok(())
    }

    /// Computes the initial values of variables, which can be addresses of each other.
    fn initial_values(&mut self) -> Result<(), LowerError> {
        let module = self.module;
        for variable in &module.variables {
            if let Some(&Name::Global(number)) = self.scopes[0].get(&variable.name) {
                self.variables[number as usize].bytes = self.initial_bytes(variable)?;
            }
        }
        Ok(())
    }

    fn initial_bytes(&mut self, variable: &'a ast::Variable) -> Result<Vec<u8>, LowerError> {
        let too_large = || LowerError::at(variable.line, format!("out of memory for variable {}", variable.name));
        let (len, size) = (variable.bytes() as usize, variable.ty.size() as usize);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| too_large())?;
        bytes.resize(len, 0u8);
        for (element, init) in bytes.chunks_mut(size.max(1)).zip(&variable.init) {
            let bits = match init {
                Initializer::Bits(bits) => *bits,
                Initializer::Address { symbol, offset, generic, shift } => {
                    let address = match self.scopes[0].get(symbol) {
                        Some(&Name::Global(number)) => allocation_address(number),
                        Some(&Name::Shared(number)) => self.symbol_address(number, *generic),
                        _ => self.function_address(symbol, variable.line)?,
                    };
                    address.wrapping_add_signed(*offset) >> shift.unwrap_or(0).min(63)
                }
            };
            let bits = u128::from(bits).to_le_bytes();
            element.copy_from_slice(&bits[..element.len()]);
        }
        Ok(bytes)
    }

    fn symbol_address(&self, number: u32, generic: bool) -> u64 {
        let address = shared_address(number, self.shared[number as usize].offset);
        if generic { crate::address::SHARED_WINDOW + address } else { address }
    }

    /// The address of a function; queues the function for lowering if it is new.
    pub fn function_address(&mut self, name: &str, line: u32) -> Result<u64, LowerError> {
        let Some((&name, _)) = self.by_name.get_key_value(name) else {
            return Err(LowerError::at(line, format!("{name} is not defined")));
        };
        Ok(FUNCTION_WINDOW + 16 * u64::from(self.function(name)?))
    }

    /// The number of a function; queues the function for lowering if it is new.
    pub fn function(&mut self, name: &str) -> Result<u32, LowerError> {
        if let Some(number) = self.queue.iter().position(|&known| known == name) {
            return Ok(number as u32);
        }
        let Some((&name, &function)) = self.by_name.get_key_value(name) else {
            return Err(LowerError::at(0, format!("function {name} is not defined")));
        };
        if function.body.is_none() {
            return Err(LowerError::at(
                function.line,
                format!("function {name} has no body; link the code that defines it, or remove its calls"),
            ));
        }
        self.queue.push(name);
        self.calls.push(Vec::new());
        self.functions.push(Function {
            name: name.into(),
            entry: 0,
            registers: 0..0,
            frame: 0,
            params: Vec::new(),
            returns: Vec::new(),
            recursive: false,
        });
        // A call can be lowered before the body of its callee. So the slots of the parameters are
        // allocated here: registers, or the beginning of the frame.
        let number = self.functions.len() - 1;
        let mut frame = 0;
        let returns = function.returns.iter().map(|v| self.slot(v, &mut frame)).collect();
        let params = if function.entry {
            Vec::new()
        } else {
            function.params.iter().map(|v| self.slot(v, &mut frame)).collect()
        };
        let this = &mut self.functions[number];
        (this.returns, this.params, this.frame) = (returns, params, frame as u32);
        Ok(number as u32)
    }

    fn slot(&mut self, variable: &ast::Variable, frame: &mut u64) -> Slot {
        if variable.space == StateSpace::Register {
            return Slot::Register(self.register());
        }
        let offset = frame.next_multiple_of(variable.alignment().max(1));
        *frame = offset + variable.bytes();
        Slot::Frame(offset as u32, variable.bytes() as u32)
    }

    /// Allocates a register.
    pub fn register(&mut self) -> Reg {
        self.registers.push([0; 32]);
        self.registers.len() as Reg - 1
    }

    /// The register that holds a constant in all lanes.
    pub fn constant(&mut self, bits: u64) -> Reg {
        if let Some(&reg) = self.constants.get(&bits) {
            return reg;
        }
        self.registers.push([bits; 32]);
        let reg = self.registers.len() as Reg - 1;
        self.constants.insert(bits, reg);
        reg
    }

    /// The value of a register that holds a constant; `None` for other registers.
    pub fn constant_bits(&self, reg: Reg) -> Option<u64> {
        self.constants.iter().find(|&(_, &known)| known == reg).map(|(&bits, _)| bits)
    }

    fn body(&mut self, number: usize, name: &'a str) -> Result<(), LowerError> {
        let function = self.by_name[name];
        let body: &'a [Statement] = function.body.as_deref().unwrap_or_default();
        self.in_kernel = number == 0;
        self.loc = None;
        self.frame = u64::from(self.functions[number].frame);
        self.functions[number].entry = self.code.len() as u32;
        let first_register = self.registers.len() as Reg;
        self.scopes.push(HashMap::new());
        self.parameters(number, function)?;
        self.labels.clear();
        self.branches.clear();
        let start = self.code.len();
        self.statements(number, body)?;
        self.push(None, Op::Return, function.line);
        self.scopes.truncate(1);
        self.resolve_branches(start)?;
        let this = &mut self.functions[number];
        this.registers = first_register..self.registers.len() as Reg;
        this.frame = self.frame.next_multiple_of(16) as u32;
        if self.frame > MAX_FRAME {
            let message = format!("function {name} has {} bytes of local memory; the limit is {MAX_FRAME}", self.frame);
            return Err(LowerError::at(function.line, message));
        }
        Ok(())
    }

    fn parameters(&mut self, number: usize, function: &'a ast::Function) -> Result<(), LowerError> {
        if self.in_kernel {
            if !function.entry {
                return Err(LowerError::at(function.line, format!("{} is a function, not a kernel", function.name)));
            }
            let mut end = 0u64;
            for param in &function.params {
                let offset = end.next_multiple_of(param.alignment().max(1));
                end = offset + param.bytes();
                let (offset, bytes) = (offset as u32, param.bytes() as u32);
                self.kernel.params.push(Parameter { name: param.name.clone(), offset, bytes, ty: param.ty });
                self.define(&param.name, Name::KernelParam(offset));
            }
            if end > 32764 {
                return Err(LowerError::at(function.line, format!("{end} bytes of parameters; the limit is 32764")));
            }
            self.kernel.name = function.name.clone();
            (self.kernel.max_block, self.kernel.required_block) = (function.max_block, function.required_block);
            return Ok(());
        }
        let slots = self.functions[number].returns.iter().chain(&self.functions[number].params);
        let slots: Vec<Slot> = slots.copied().collect();
        for (variable, slot) in function.returns.iter().chain(&function.params).zip(slots) {
            let name = match slot {
                Slot::Register(reg) => Name::Register(reg, variable.ty),
                Slot::Frame(offset, bytes) => Name::Frame(offset, bytes),
            };
            self.define(&variable.name, name);
        }
        Ok(())
    }

    fn define(&mut self, name: &str, meaning: Name) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.into(), meaning);
        }
    }

    /// The entity that a name denotes, from the innermost scope that defines it.
    pub fn lookup(&mut self, name: &str) -> Option<&Name> {
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = name[prefix.len()..].parse::<u32>().ok();
        let depth = self.scopes.iter().rposition(|scope| {
            let in_range =
                |meaning: &Name| matches!(meaning, Name::Registers(count, _) if number.is_some_and(|n| n < *count));
            scope.contains_key(name) || scope.get(prefix).is_some_and(in_range)
        })?;
        if !self.scopes[depth].contains_key(name)
            && let Some(&Name::Registers(_, ty)) = self.scopes[depth].get(prefix)
        {
            let register = self.register();
            self.scopes[depth].insert(name.into(), Name::Register(register, ty));
        }
        self.scopes[depth].get(name)
    }

    fn statements(&mut self, number: usize, statements: &'a [Statement]) -> Result<(), LowerError> {
        for statement in statements {
            if let Statement::Label(name) = statement {
                let label = self.labels.len() as u32;
                self.labels.push(None);
                self.define(name, Name::Label(label));
            }
        }
        for statement in statements {
            match statement {
                Statement::Label(name) => {
                    if let Some(&Name::Label(label)) = self.lookup(name) {
                        self.labels[label as usize] = Some(self.code.len() as u32);
                    }
                }
                Statement::Variable(variable) => self.variable(variable)?,
                Statement::Instruction(source) => self.instruction(number, source)?,
                // Line 0 marks code that the compiler added. It counts for the preceding line.
                Statement::Loc(loc) if loc.line == 0 => {}
                Statement::Loc(loc) => self.set_loc(*loc),
                Statement::Block(inner) => {
                    self.scopes.push(HashMap::new());
                    self.statements(number, inner)?;
                    self.scopes.pop();
                }
                Statement::Targets { name, targets } => self.define(name, Name::Targets(targets.clone())),
                Statement::Prototype { name, .. } => self.define(name, Name::Prototype),
            }
        }
        Ok(())
    }

    fn variable(&mut self, variable: &'a ast::Variable) -> Result<(), LowerError> {
        let unsupported = |what: &str| Err(LowerError::at(variable.line, format!("{what} in a function")));
        match variable.space {
            StateSpace::Register => {
                let meaning = match (variable.count, variable.vector) {
                    (Some(count), _) => Name::Registers(count, variable.ty),
                    (None, 1) => Name::Register(self.register(), variable.ty),
                    (None, n) => Name::Vector((0..n).map(|_| self.register()).collect(), variable.ty),
                };
                self.define(&variable.name, meaning);
            }
            StateSpace::Local | StateSpace::Param => {
                let offset = self.frame.next_multiple_of(variable.alignment().max(1));
                self.frame = offset.saturating_add(variable.bytes());
                if self.frame > MAX_FRAME {
                    let message = format!("{} needs more than {MAX_FRAME} bytes of local memory", variable.name);
                    return Err(LowerError::at(variable.line, message));
                }
                self.define(&variable.name, Name::Frame(offset as u32, variable.bytes() as u32));
            }
            StateSpace::Shared => {
                let name = self.shared_symbol(variable)?;
                self.define(&variable.name, name);
            }
            StateSpace::Global | StateSpace::Const => return unsupported("a variable of global memory"),
        }
        Ok(())
    }

    fn shared_symbol(&mut self, variable: &ast::Variable) -> Result<Name, LowerError> {
        let number = self.shared.len() as u32;
        let dynamic = variable.external && variable.bytes() == 0;
        let offset = self.static_shared.next_multiple_of(variable.alignment().max(1));
        if !dynamic {
            self.static_shared = offset.saturating_add(variable.bytes());
        }
        if self.static_shared > 1 << 18 || number >= 1 << 11 {
            let message = "static shared memory exceeds the limit of 232448 bytes or 2047 symbols".into();
            return Err(LowerError::at(variable.line, message));
        }
        self.shared.push(SharedSymbol {
            name: demangled(&variable.name).into(),
            offset: if dynamic { variable.alignment() as u32 } else { offset as u32 },
            bytes: (!dynamic).then_some(variable.bytes() as u32),
            ty: variable.ty,
        });
        Ok(Name::Shared(number))
    }

    /// Sets the source line of the next instructions.
    ///
    /// `inlined_at` gives the position of the innermost inlined call only. The calls around it are
    /// those of the last `.loc` at that position.
    fn set_loc(&mut self, loc: ast::Loc) {
        let call = loc.inlined_at.map_or(0, |(file, line, column)| {
            let around = self.call_of.get(&(file, line, column)).copied().unwrap_or(0);
            *self.inlined_numbers.entry((file, line, around)).or_insert_with(|| {
                self.inlined.push((file, line, around));
                self.inlined.len() as u32
            })
        });
        self.call_of.insert((loc.file, loc.line, loc.column), call);
        self.loc = Some(loc);
    }

    /// Appends an instruction.
    pub fn push(&mut self, guard: Option<(Reg, bool)>, op: Op, line: u32) {
        let call = self.loc.and_then(|loc| self.call_of.get(&(loc.file, loc.line, loc.column)).copied());
        let source = SiteSource { loc: self.loc, call: call.unwrap_or(0), ptx_line: line };
        let sites = &mut self.sites;
        let site = *self.site_numbers.entry(source).or_insert_with(|| {
            sites.push(source);
            sites.len() as u32 - 1
        });
        self.code.push(Instruction { guard, op, site, joins: false });
    }

    /// Records a call, to find recursive functions.
    pub fn calls(&mut self, caller: usize, callee: u32) {
        self.calls[caller].push(callee);
    }

    pub fn label(&mut self, name: &str, source: &Source) -> Result<u32, LowerError> {
        match self.lookup(name) {
            Some(&Name::Label(label)) => Ok(label),
            _ => Err(LowerError::of(source, format!("label {name} is not defined"))),
        }
    }

    /// Replaces labels by code positions, and sets the reconvergence point of each branch.
    fn resolve_branches(&mut self, start: usize) -> Result<(), LowerError> {
        for (at, labels) in std::mem::take(&mut self.branches) {
            let resolved = labels.iter().map(|&label| self.labels[label as usize].unwrap_or(NO_JOIN));
            let resolved: Vec<u32> = resolved.collect();
            match &mut self.code[at].op {
                Op::Branch { target, .. } => *target = resolved[0],
                Op::BranchIndexed { targets, .. } => *targets = resolved,
                _ => {}
            }
        }
        let relative = |position: u32| position - start as u32;
        let exits: Vec<Exits> = self.code[start..]
            .iter()
            .map(|instruction| match &instruction.op {
                Op::Branch { target, .. } => Exits::Branch(vec![relative(*target)], instruction.guard.is_some()),
                Op::BranchIndexed { targets, .. } => {
                    Exits::Branch(targets.iter().map(|&to| relative(to)).collect(), instruction.guard.is_some())
                }
                Op::Return | Op::Exit | Op::Trap => Exits::Leave { guarded: instruction.guard.is_some() },
                _ => Exits::Next,
            })
            .collect();
        for (at, join_at) in reconvergence(&exits).into_iter().enumerate() {
            if join_at == NO_JOIN {
                continue;
            }
            let position = join_at + start as u32;
            // Lanes need not reconverge to exit the kernel: barriers do not count exited lanes.
            let target = &self.code[position as usize];
            if self.in_kernel && target.guard.is_none() && matches!(target.op, Op::Return | Op::Exit) {
                continue;
            }
            if let Op::Branch { join, .. } | Op::BranchIndexed { join, .. } = &mut self.code[start + at].op {
                *join = position;
                self.code[position as usize].joins = true;
            }
        }
        for at in start + 1..self.code.len() {
            if matches!(self.code[at - 1].op, Op::Call { .. }) {
                self.code[at].joins = true;
            }
        }
        Ok(())
    }

    fn finish(mut self, kernel: &str) -> Result<(Program, Vec<ModuleVariable>), LowerError> {
        assert_eq!(self.kernel.name, kernel);
        self.mark_recursive();
        mark_polls(&mut self.code);
        let (granules, orders_finely, orders_blocks) = properties(&self.code, &self.registers);
        let dynamic_start = self.static_shared;
        for symbol in self.shared.iter_mut().skip(1).filter(|symbol| symbol.bytes.is_none()) {
            // Until here, `offset` holds the alignment of a dynamic symbol.
            symbol.offset = dynamic_start.next_multiple_of(u64::from(symbol.offset.max(1))) as u32;
        }
        self.patch_dynamic_symbols();
        Ok((
            Program {
                code: self.code,
                sites: self.sites,
                registers: self.registers,
                functions: self.functions,
                kernel: self.kernel,
                shared: self.shared,
                static_shared: self.static_shared as u32,
                inlined: self.inlined,
                files: self.module.files.clone(),
                granules,
                orders_finely,
                orders_blocks,
                approximate: self.approximate,
            },
            self.variables,
        ))
    }

    /// Replaces the placeholders of dynamic shared memory by addresses, which follow all static
    /// symbols.
    fn patch_dynamic_symbols(&mut self) {
        for (number, symbol) in self.shared.iter().enumerate().skip(1) {
            let placeholder = dynamic_placeholder(number as u32);
            let address = shared_address(number as u32, symbol.offset);
            for lanes in self.registers.iter_mut() {
                if lanes[0] & !0xf_ffff == placeholder && symbol.bytes.is_none() {
                    *lanes = [address + (lanes[0] & 0xf_ffff); 32];
                }
            }
        }
    }

    fn mark_recursive(&mut self) {
        let n = self.functions.len();
        for start in 0..n {
            let (mut seen, mut stack) = (vec![false; n], self.calls[start].clone());
            while let Some(next) = stack.pop() {
                if !std::mem::replace(&mut seen[next as usize], true) {
                    stack.extend(&self.calls[next as usize]);
                }
            }
            self.functions[start].recursive = seen[start];
        }
    }

    /// The register that holds the address of a shared symbol plus `offset` bytes.
    pub fn shared_constant(&mut self, number: u32, offset: i64) -> Reg {
        let symbol = &self.shared[number as usize];
        let address = match symbol.bytes {
            Some(_) => shared_address(number, symbol.offset),
            None => dynamic_placeholder(number),
        };
        self.constant(address.wrapping_add_signed(offset))
    }

    /// The register of a source operand of type `ty`. Literals and addresses become constants.
    pub fn operand(&mut self, source: &Source, operand: &Operand, ty: ScalarType) -> Result<Reg, LowerError> {
        let mask = if ty.size() >= 8 { u64::MAX } else { (1u64 << (8 * ty.size())) - 1 };
        match operand {
            Operand::Integer(value) if ty.is_float() && *value != 0 => Err(LowerError::of(
                source,
                format!("{value} is an integer, where a floating-point literal is expected"),
            )),
            Operand::Integer(value) => {
                let bits = if ty == ScalarType::Pred { u64::from(*value != 0) } else { *value as u64 & mask };
                Ok(self.constant(bits))
            }
            Operand::F32(bits) if ty.size() == 8 => Ok(self.constant(f64::from(f32::from_bits(*bits)).to_bits())),
            Operand::F32(bits) => Ok(self.constant(u64::from(*bits))),
            Operand::F64(bits) if ty.size() == 4 => {
                Ok(self.constant(u64::from((f64::from_bits(*bits) as f32).to_bits())))
            }
            Operand::F64(bits) => Ok(self.constant(*bits)),
            Operand::Name(name) => self.value(source, name, 0),
            Operand::NameOffset(name, offset) => self.value(source, name, *offset),
            Operand::Negated(name) => {
                let value = self.value(source, name, 0)?;
                let (dst, one) = (self.register(), self.constant(1));
                self.push_xor(dst, value, one, source.line)?;
                Ok(dst)
            }
            Operand::Vector(parts) if parts.len() == 1 => self.operand(source, &parts[0], ty),
            _ => Err(LowerError::of(source, "an operand of this form is not supported here".into())),
        }
    }

    fn push_xor(&mut self, dst: Reg, a: Reg, b: Reg, line: u32) -> Result<(), LowerError> {
        let decoded = crate::alu::Arithmetic::decode("xor", &["pred".into()], 2);
        let Some(Ok(arithmetic)) = decoded else {
            return Err(LowerError::at(line, "xor.pred is not supported".into()));
        };
        let op =
            Op::Arithmetic { arithmetic: Box::new(arithmetic), dst: [dst, SINK], sources: vec![a, b], carries: false };
        self.push(None, op, line);
        Ok(())
    }

    /// The register that holds a named value: a register, a special register, or an address.
    fn value(&mut self, source: &Source, name: &str, offset: i64) -> Result<Reg, LowerError> {
        match self.lookup(name).cloned() {
            Some(Name::Register(reg, _)) => return Ok(reg),
            Some(Name::Shared(number)) => return Ok(self.shared_constant(number, offset)),
            Some(Name::Global(number)) => {
                return Ok(self.constant(allocation_address(number).wrapping_add_signed(offset)));
            }
            Some(Name::KernelParam(at)) => return Ok(self.constant((i64::from(at) + offset) as u64)),
            Some(Name::Frame(at, _)) => {
                let dst = self.register();
                let offset = (i64::from(at) + offset) as u32;
                self.push(None, Op::FrameAddress { dst, offset, window: 0 }, source.line);
                return Ok(dst);
            }
            _ => {}
        }
        if let Some((vector, element)) = name.rsplit_once('.')
            && let Some(Name::Vector(registers, _)) = self.lookup(vector)
            && let Some(index) = "xyzw".find(element).or_else(|| "rgba".find(element))
            && let Some(&reg) = registers.get(index)
        {
            return Ok(reg);
        }
        // The high and low 32 bits of the address of the workspace of a cooperative grid.
        if matches!(name, "%envreg1" | "%envreg2") {
            let address = allocation_address(self.grid_workspace());
            return Ok(self.constant(if name == "%envreg1" { address >> 32 } else { address & 0xffff_ffff }));
        }
        if let Some(register) = crate::special::special(name) {
            let dst = self.register();
            self.push(None, Op::Special { dst, register }, source.line);
            return Ok(dst);
        }
        if self.by_name.contains_key(name) {
            let address = self.function_address(name, source.line)?;
            return Ok(self.constant(address));
        }
        Err(LowerError::of(source, format!("{name} is not defined")))
    }

    /// The number of the workspace that synchronizes a cooperative grid; on a GPU, the driver
    /// allocates it.
    fn grid_workspace(&mut self) -> u32 {
        let known = self.variables.iter().position(|variable| variable.name == GRID_WORKSPACE);
        known.unwrap_or_else(|| {
            let (name, space, ty) = (GRID_WORKSPACE.into(), StateSpace::Global, ScalarType::U32);
            self.variables.push(ModuleVariable { name, space, ty, bytes: vec![0; 64] });
            self.variables.len() - 1
        }) as u32
    }

    /// The register of a destination operand; the sink for `_`.
    pub fn destination(&mut self, source: &Source, operand: &Operand) -> Result<Reg, LowerError> {
        match operand {
            Operand::Name(name) if name == "_" => Ok(SINK),
            Operand::Name(name) => self.value(source, name, 0),
            Operand::Vector(parts) if parts.len() == 1 => self.destination(source, &parts[0]),
            _ => Err(LowerError::of(source, "the destination is not a register".into())),
        }
    }

    /// The registers of a vector operand `{a, b}`, of a vector variable, or of a scalar operand.
    pub fn vector(
        &mut self,
        source: &Source,
        operand: &Operand,
        ty: ScalarType,
        writes: bool,
    ) -> Result<Vec<Reg>, LowerError> {
        let parts = match operand {
            Operand::Vector(parts) => parts.as_slice(),
            Operand::Name(name) => {
                if let Some(Name::Vector(registers, _)) = self.lookup(name) {
                    return Ok(registers.clone());
                }
                std::slice::from_ref(operand)
            }
            other => std::slice::from_ref(other),
        };
        parts
            .iter()
            .map(|part| if writes { self.destination(source, part) } else { self.operand(source, part, ty) })
            .collect()
    }

    /// The declared type of a register.
    pub fn declared(&mut self, name: &str) -> Option<ScalarType> {
        match self.lookup(name)? {
            Name::Register(_, ty) | Name::Vector(_, ty) => Some(*ty),
            _ => None,
        }
    }
}

/// A placeholder for the address of a dynamic shared symbol; see `patch_dynamic_symbols`.
fn dynamic_placeholder(number: u32) -> u64 {
    0xdead_0000_0000_0000 | shared_address(number, 0)
}

/// The source name of a variable declared in a function: `a` for the mangled `_ZZ5tiledE1a`.
pub(crate) fn demangled(name: &str) -> &str {
    if !name.starts_with("_ZZ") {
        return name;
    }
    // The mangled form is `E`, the length, the name, and an optional discriminator `_…`.
    let mut parts = name.match_indices('E').filter_map(|(at, _)| {
        let rest = &name[at + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let len = rest[..digits].parse::<usize>().ok().filter(|&len| len > 0)?;
        let (found, tail) = (rest.get(digits..digits + len)?, rest.get(digits + len..)?);
        (tail.is_empty() || tail.starts_with('_')).then_some(found)
    });
    parts.next_back().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use crate::{Argument, Buffer, Config, Launch, Module};

    #[test]
    fn call_of_an_alias_calls_its_function() {
        const TEXT: &str = "
            .version 8.0
            .target sm_80
            .address_size 64
            .func (.reg .u32 r) seven() { mov.u32 r, 7; ret; }
            .func (.reg .u32 r) alias();
            .alias alias, seven;
            .visible .entry k(.param .u64 to)
            {
                .reg .u32 %r;
                .reg .u64 %to;
                ld.param.u64 %to, [to];
                call (%r), alias;
                st.global.u32 [%to], %r;
                ret;
            }";
        let module = Module::parse(TEXT).unwrap();
        let mut buffers = [Buffer::f32("to", &[0.0])];
        let launch = Launch::new([1, 1, 1], [1, 1, 1], vec![Argument::buffer(0)]);
        let outcome = module.kernel("k").unwrap().run(&launch, &mut buffers, &Config::default()).unwrap();
        assert!(outcome.error().is_none(), "{:?}", outcome.diagnostics);
        assert_eq!(buffers[0].bytes, 7u32.to_le_bytes());
    }

    #[test]
    fn demangled_local_variable_is_its_source_name() {
        assert_eq!(super::demangled("_ZZ5tiledE1a"), "a");
        assert_eq!(super::demangled("_ZZ9k6_tiledILi16EEvPKfS1_PfiiiE5tileE"), "tileE");
        assert_eq!(super::demangled("_ZZ5tiledE4tile_0"), "tile");
        assert_eq!(super::demangled("global_smem"), "global_smem");
    }
}
