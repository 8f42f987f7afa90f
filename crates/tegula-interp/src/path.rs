//! Divergence: independent thread scheduling, as in NVIDIA GPUs since Volta.
//!
//! A *path* is a divergent subset of the lanes of a warp, which run together (a warp split). A warp
//! starts with one path. If a path waits, the lanes that have yet to run the other branch become a
//! path of their own. So divergent lanes make progress, whatever they wait for. Paths reconverge at
//! the end of the branch or loop where they diverged: the path that arrives first merges into one
//! that is still inside.
//!
//! Reconvergence affects how accesses are counted as requests, but not whether lanes make progress.
//! If nothing else in the launch can run, two kinds of lanes continue on their own
//! ([`Warp::release_stalled`]): those waiting for reconvergence, and those whose wait is over.
//!
//! Each path has its own registers; only those of the lanes that it carries are valid. Every lane
//! is carried by exactly one path.

use std::collections::VecDeque;
use std::sync::Arc;

use super::lanes::{RegisterLanes, Registers};
use super::program::{Instruction, Program};

/// The run state of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// Waits at the barrier of the block.
    Barrier,
    /// Waits at a named barrier.
    NamedBarrier(u32),
    /// Waits for an element of memory to change.
    Polling,
    /// Waits at an mbarrier.
    Mbarrier,
    /// Waits for registers.
    Registers,
    /// Waits at the barrier of the cluster.
    Cluster,
    /// Waits at a warp-wide instruction, for lanes of other paths.
    Converge,
    /// Ran a loop for many iterations, or without any change of state.
    Spinning,
    /// The path has ended, but its warp has not: the path merged into another one, or reached the
    /// end of the kernel before the parked paths. The next switch drops it.
    Retired,
    /// The last path of the warp reached the end of the kernel: the warp has ended.
    Done,
}

impl State {
    /// Whether the warp polls its condition itself.
    pub fn polls(self) -> bool {
        use State::{Cluster, Converge, Mbarrier, Polling, Registers, Spinning};
        matches!(self, Polling | Mbarrier | Registers | Cluster | Converge | Spinning)
    }
}

/// 32 lanes with their registers: the current path, and the parked ones.
pub(super) struct Warp {
    pub index: u32,
    pub registers: Registers,
    pub pc: usize,
    /// Active lanes.
    pub mask: u32,
    /// Lanes that exist in the block.
    pub existing_lanes: u32,
    /// Lanes with valid registers here: active, waiting for reconvergence, or with another branch
    /// to run.
    pub carried: u32,
    /// Waiting lanes whose own condition holds: their wait is over.
    pub satisfied: u32,
    /// The enclosing branches and loops.
    pub stack: Vec<Frame>,
    /// The enclosing loops, outermost first: the position of each, and its iteration.
    pub loops: Vec<(u32, u32)>,
    /// The state of the current path.
    pub state: State,
    /// The other paths, in the order in which they run next.
    pub parked: VecDeque<Path>,
    /// Number of branches and loops entered so far.
    pub frames: u32,
    /// Number of instructions executed.
    pub steps: u64,
    pub register_lanes: Arc<[RegisterLanes]>,
}

/// Lanes of a warp that run together.
pub(super) struct Path {
    pub registers: Registers,
    pub pc: usize,
    pub mask: u32,
    pub carried: u32,
    pub satisfied: u32,
    pub stack: Vec<Frame>,
    pub loops: Vec<(u32, u32)>,
    pub state: State,
}

/// A branch or loop that encloses a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// The same in all paths that reconverge at its end.
    id: u32,
    /// The instruction that opens it.
    pub opened: u32,
    /// The lanes that reconverge at its end.
    pub lanes: u32,
    /// The lanes among them that have yet to run the other branch.
    pub else_lanes: u32,
}

impl Path {
    fn contains(&self, id: u32) -> bool {
        self.stack.iter().any(|frame| frame.id == id)
    }

    /// The lanes inside the frame at a depth, or with its other branch to run.
    fn lanes_inside(&self, depth: usize) -> u32 {
        let running = self.stack.get(depth + 1).map_or(self.mask, |inner| inner.lanes);
        running | self.stack[depth].else_lanes
    }
}

/// Whether the instruction opens a loop.
fn is_loop(code: &Instruction) -> bool {
    matches!(code, Instruction::For { .. } | Instruction::While { .. })
}

/// Positions of the else body and the end of a branch.
fn branch(code: &[Instruction], opened: u32) -> Option<(usize, usize)> {
    let Instruction::If { else_target, .. } = code[opened as usize] else { return None };
    let Instruction::Else { end } = code[else_target as usize] else { return None };
    Some((else_target as usize + 1, end as usize))
}

/// Position after a branch or loop.
fn after(code: &[Instruction], opened: u32) -> usize {
    match code[opened as usize] {
        Instruction::For { exit, .. } | Instruction::While { exit } => exit as usize,
        _ => branch(code, opened).map_or(code.len(), |(_, end)| end + 1),
    }
}

impl Warp {
    /// Enters a branch or loop with the given lanes of the path.
    pub fn push_frame(&mut self, lanes: u32, else_lanes: u32) {
        self.frames += 1;
        self.stack.push(Frame { id: self.frames, opened: self.pc as u32, lanes, else_lanes });
    }

    /// Reconverges at the end of the innermost branch or loop.
    ///
    /// If another path is still inside, this path merges into it and retires.
    pub fn reconverge(&mut self) {
        let Some(&Frame { id, lanes, .. }) = self.stack.last() else { return };
        match self.parked.iter().position(|path| path.contains(id)) {
            Some(survivor) => self.merge_into(survivor),
            None => {
                self.stack.pop();
                self.mask = lanes;
            }
        }
    }

    /// Merges the lanes and registers of this path into a parked one.
    fn merge_into(&mut self, survivor: usize) {
        let survivor = &mut self.parked[survivor];
        survivor.registers.copy_lanes(&self.registers, self.carried, &self.register_lanes);
        survivor.carried |= self.carried;
        for frame in &mut survivor.stack {
            let shared = self.stack.iter().find(|own| own.id == frame.id);
            frame.else_lanes |= shared.map_or(0, |own| own.else_lanes);
        }
        self.carried = 0;
        self.state = State::Retired;
    }

    /// Whether any path of the warp may make progress.
    pub fn can_run(&self) -> bool {
        let runs = |state: State| state == State::Ready || state.polls();
        runs(self.state) || self.parked.iter().any(|path| runs(path.state))
    }

    /// Parks the current path and resumes the one parked longest. A retired path is dropped.
    pub fn switch_path(&mut self) {
        let Some(next) = self.parked.pop_front() else { return };
        let last = self.resume(next);
        if last.state != State::Retired {
            self.parked.push_back(last);
        }
    }

    fn resume(&mut self, next: Path) -> Path {
        let Path { registers, pc, mask, carried, satisfied, stack, loops, state } = next;
        Path {
            registers: std::mem::replace(&mut self.registers, registers),
            pc: std::mem::replace(&mut self.pc, pc),
            mask: std::mem::replace(&mut self.mask, mask),
            carried: std::mem::replace(&mut self.carried, carried),
            satisfied: std::mem::replace(&mut self.satisfied, satisfied),
            stack: std::mem::replace(&mut self.stack, stack),
            loops: std::mem::replace(&mut self.loops, loops),
            state: std::mem::replace(&mut self.state, state),
        }
    }

    /// Forks a path of the lanes that have yet to run another branch; it runs next.
    ///
    /// The innermost frame with such lanes is used. Returns false if there are none.
    pub fn fork_else_path(&mut self, code: &[Instruction]) -> bool {
        let pending =
            |frame: &Frame| branch(code, frame.opened).filter(|_| frame.else_lanes != 0).map(|(body, _)| body);
        let Some((depth, pc)) =
            self.stack.iter().enumerate().rev().find_map(|(depth, frame)| Some((depth, pending(frame)?)))
        else {
            return false;
        };
        let mask = std::mem::take(&mut self.stack[depth].else_lanes);
        let path = self.split_off(depth + 1, mask, pc, code);
        self.parked.push_front(path);
        true
    }

    /// Splits off a path of carried lanes, within the outer frames.
    fn split_off(&mut self, depth: usize, mask: u32, pc: usize, code: &[Instruction]) -> Path {
        self.carried &= !mask;
        let stack: Vec<_> = self.stack[..depth].iter().map(|&frame| Frame { else_lanes: 0, ..frame }).collect();
        let loops = stack.iter().filter(|frame| is_loop(&code[frame.opened as usize])).count();
        Path {
            registers: self.registers.clone(),
            pc,
            mask,
            carried: mask,
            satisfied: 0,
            stack,
            loops: self.loops[..loops].to_vec(),
            state: State::Ready,
        }
    }

    /// Lets stalled lanes continue without the other lanes of their path.
    ///
    /// These are lanes whose wait is over, otherwise lanes that wait for reconvergence in the
    /// innermost frame. Returns false if there are none.
    pub fn release_stalled(&mut self, code: &[Instruction]) -> bool {
        (0..=self.parked.len()).any(|_| {
            self.switch_path();
            self.split_off_satisfied(code)
        }) || self.split_reconverging(code)
    }

    /// Splits off the lanes whose wait is over; they run next.
    ///
    /// Returns false if there are none, or if it is over for all.
    pub fn split_off_satisfied(&mut self, code: &[Instruction]) -> bool {
        let satisfied = self.satisfied & self.mask;
        if !matches!(self.state, State::Polling | State::Mbarrier) || satisfied == 0 || satisfied == self.mask {
            return false;
        }
        let path = self.split_off(self.stack.len(), satisfied, self.pc, code);
        self.mask &= !satisfied;
        self.satisfied = 0;
        self.parked.push_front(path);
        true
    }

    fn split_reconverging(&mut self, code: &[Instruction]) -> bool {
        if self.state == State::Done {
            return false;
        }
        // Examine every path as the current one; find the deepest frame with lanes that wait at its
        // end.
        let mut found: Option<(usize, usize, u32)> = None;
        for rotation in 0..=self.parked.len() {
            for (depth, frame) in self.stack.iter().enumerate() {
                let other_lanes = self.parked.iter().filter_map(|path| {
                    let depth = path.stack.iter().position(|other| other.id == frame.id)?;
                    Some(path.lanes_inside(depth))
                });
                let running = self.stack.get(depth + 1).map_or(self.mask, |inner| inner.lanes);
                let waiting = frame.lanes & !other_lanes.fold(running | frame.else_lanes, |all, lanes| all | lanes);
                if waiting != 0 && found.is_none_or(|(_, deepest, _)| depth > deepest) {
                    found = Some((rotation, depth, waiting));
                }
            }
            self.switch_path();
        }
        let Some((rotation, depth, lanes)) = found else { return false };
        (0..rotation).for_each(|_| self.switch_path());
        let Frame { id, opened, .. } = self.stack[depth];
        let mut path = self.split_off(depth, lanes, after(code, opened), code);
        self.stack[depth].lanes &= !lanes;
        for other in &mut self.parked {
            path.registers.copy_lanes(&other.registers, other.carried & lanes, &self.register_lanes);
            other.carried &= !lanes;
            other.stack.iter_mut().filter(|frame| frame.id == id).for_each(|frame| frame.lanes &= !lanes);
        }
        self.parked.push_front(path);
        true
    }

    /// Merges the parked paths that wait at this warp-wide instruction.
    pub fn merge_waiting_paths(&mut self) {
        let (pc, shape) = (self.pc, |stack: &[Frame]| stack.iter().map(|frame| frame.opened).collect::<Vec<_>>());
        let here = shape(&self.stack);
        while let Some(at) = self
            .parked
            .iter()
            .position(|path| path.state == State::Converge && path.pc == pc && shape(&path.stack) == here)
        {
            let Some(other) = self.parked.remove(at) else { return };
            self.registers.copy_lanes(&other.registers, other.carried, &self.register_lanes);
            self.carried |= other.carried;
            self.mask |= other.mask;
            for (frame, merged) in self.stack.iter_mut().zip(&other.stack) {
                frame.else_lanes |= merged.else_lanes;
                frame.lanes |= merged.lanes;
                let all = frame.lanes;
                let frames = self.parked.iter_mut().flat_map(|path| &mut path.stack);
                for shared in frames.filter(|shared| shared.id == merged.id || shared.id == frame.id) {
                    (shared.id, shared.lanes) = (frame.id, all);
                }
            }
        }
    }
}

impl Warp {
    pub fn new(index: u32, existing_lanes: u32, program: &Program) -> Self {
        let registers = Registers { vectors: program.vectors.clone(), predicates: program.predicates.clone() };
        Warp {
            index,
            registers,
            pc: 0,
            mask: existing_lanes,
            existing_lanes,
            carried: existing_lanes,
            satisfied: 0,
            stack: Vec::new(),
            loops: Vec::new(),
            state: State::Ready,
            parked: Default::default(),
            frames: 0,
            steps: 0,
            register_lanes: program.register_lanes.clone(),
        }
    }

    /// The placeholder in the block while the warp runs.
    pub fn placeholder(&self) -> Self {
        Warp {
            index: self.index,
            registers: Registers::none(),
            pc: self.pc,
            mask: self.mask,
            existing_lanes: self.existing_lanes,
            carried: self.carried,
            satisfied: 0,
            stack: Vec::new(),
            loops: Vec::new(),
            state: self.state,
            parked: Default::default(),
            frames: self.frames,
            steps: self.steps,
            register_lanes: self.register_lanes.clone(),
        }
    }
}
