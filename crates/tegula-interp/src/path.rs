//! Divergence: independent thread scheduling, as NVIDIA GPUs have had it since Volta.
//!
//! The lanes of a warp that run together are a *path*. A warp starts with one. Where a path waits, the lanes that have still to run the
//! other branch become a path of their own, so that divergent lanes make progress whatever they wait for. Paths reconverge at
//! the end of the branch or loop in which they parted: the one that comes first is absorbed by one that is still inside.
//! Reconvergence decides how accesses are counted as requests, never whether lanes get on: where nothing else in the launch can run,
//! lanes that wait at the end of a branch or loop, and lanes whose own wait is over, go ahead ([`Warp::release`]).
//!
//! Each path has registers of its own, of which those of the lanes that it carries count. Every lane is carried by one path.

use std::collections::VecDeque;
use std::sync::Arc;

use super::lanes::{LineLanes, Registers};
use super::program::{Code, Program};

/// Why a warp does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// At the block's barrier.
    Barrier,
    /// At a named barrier.
    Named(u32),
    /// Waiting for an element of memory to change.
    Polling,
    /// At a barrier in shared memory.
    Await,
    /// Waiting for registers.
    Registers,
    /// At the barrier of the cluster.
    Cluster,
    /// At an instruction of the whole warp, for lanes on other paths.
    Converge,
    /// In a loop that has gone round for long, or that nothing changes any more.
    Spinning,
    /// Absorbed by another path, or at the end of the kernel before others of its warp.
    Gone,
    Done,
}

impl State {
    /// Whether the warp itself looks again and again whether it can go on.
    pub fn looks(self) -> bool {
        use State::{Await, Cluster, Converge, Polling, Registers, Spinning};
        matches!(self, Polling | Await | Registers | Cluster | Converge | Spinning)
    }
}

/// 32 lanes with their registers: the path at hand, and those that are parked.
pub(super) struct Warp {
    pub index: u32,
    pub registers: Registers,
    pub pc: usize,
    /// Lanes that run.
    pub mask: u32,
    /// Lanes there are.
    pub existing: u32,
    /// Lanes whose registers are here: those that run, those that wait for them at the end of a branch or loop, and those that have still to
    /// run another branch.
    pub carried: u32,
    /// Of the lanes that wait, those whose own wait is over.
    pub satisfied: u32,
    /// The branches and loops it is in.
    pub stack: Vec<Frame>,
    /// The loops it is in, outermost first: the position of each, and how often its body was begun before.
    pub loops: Vec<(u32, u32)>,
    pub state: State,
    pub parked: VecDeque<Path>,
    /// Branches and loops that were opened.
    pub frames: u32,
    /// Instructions that it ran.
    pub steps: u64,
    pub line_lanes: Arc<[LineLanes]>,
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

/// A branch or loop that a path is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// The same in all paths that reconverge at its end.
    id: u32,
    /// The instruction that opens it.
    pub opened: u32,
    /// The lanes that reconverge at its end.
    pub lanes: u32,
    /// Those of them that have still to run the other branch.
    pub otherwise: u32,
}

impl Path {
    fn shares(&self, id: u32) -> bool {
        self.stack.iter().any(|frame| frame.id == id)
    }

    /// The lanes that are inside the frame at a depth, or have still to run its other branch.
    fn inside(&self, depth: usize) -> u32 {
        let running = self.stack.get(depth + 1).map_or(self.mask, |inner| inner.lanes);
        running | self.stack[depth].otherwise
    }
}

/// Whether a frame that this instruction opens is a loop.
fn is_loop(code: &Code) -> bool {
    matches!(code, Code::For { .. } | Code::While { .. })
}

/// Where a branch has its other body and its end.
fn branch(code: &[Code], opened: u32) -> Option<(usize, usize)> {
    let Code::If { otherwise, .. } = code[opened as usize] else { return None };
    let Code::Else { end } = code[otherwise as usize] else { return None };
    Some((otherwise as usize + 1, end as usize))
}

/// The instruction after a branch or loop.
fn after(code: &[Code], opened: u32) -> usize {
    match code[opened as usize] {
        Code::For { exit, .. } | Code::While { exit } => exit as usize,
        _ => branch(code, opened).map_or(code.len(), |(_, end)| end + 1),
    }
}

impl Warp {
    /// Opens a branch or loop that `lanes` of the path have come to.
    pub fn enter(&mut self, lanes: u32, otherwise: u32) {
        self.frames += 1;
        self.stack.push(Frame { id: self.frames, opened: self.pc as u32, lanes, otherwise });
    }

    /// Reconverges at the end of the innermost branch or loop. Where other paths are still inside, one of them absorbs this one,
    /// which is gone then.
    pub fn leave(&mut self) {
        let Some(&Frame { id, lanes, .. }) = self.stack.last() else { return };
        match self.parked.iter().position(|path| path.shares(id)) {
            Some(survivor) => self.dissolve_into(survivor),
            None => {
                self.stack.pop();
                self.mask = lanes;
            }
        }
    }

    /// Lets a parked path take over all that this one carries.
    fn dissolve_into(&mut self, survivor: usize) {
        let survivor = &mut self.parked[survivor];
        survivor.registers.take(&self.registers, self.carried, &self.line_lanes);
        survivor.carried |= self.carried;
        for frame in &mut survivor.stack {
            let shared = self.stack.iter().find(|own| own.id == frame.id);
            frame.otherwise |= shared.map_or(0, |own| own.otherwise);
        }
        self.carried = 0;
        self.state = State::Gone;
    }

    /// Whether one path of the warp may get on when it is run.
    pub fn can_run(&self) -> bool {
        let runs = |state: State| state == State::Ready || state.looks();
        runs(self.state) || self.parked.iter().any(|path| runs(path.state))
    }

    /// Parks the path and goes on with the one that has been parked longest. A path that is gone is dropped.
    pub fn switch(&mut self) {
        let Some(next) = self.parked.pop_front() else { return };
        let last = self.resume(next);
        if last.state != State::Gone {
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

    /// Makes a path of the lanes that have still to run the other branch of the innermost frame that has such; it is next to run.
    /// False where none has.
    pub fn fork(&mut self, code: &[Code]) -> bool {
        let pending = |frame: &Frame| branch(code, frame.opened).filter(|_| frame.otherwise != 0).map(|(body, _)| body);
        let Some((depth, pc)) =
            self.stack.iter().enumerate().rev().find_map(|(depth, frame)| Some((depth, pending(frame)?)))
        else {
            return false;
        };
        let mask = std::mem::take(&mut self.stack[depth].otherwise);
        let path = self.split_off(depth + 1, mask, pc, code);
        self.parked.push_front(path);
        true
    }

    /// A path of lanes that this one carries, within its outer frames.
    fn split_off(&mut self, depth: usize, mask: u32, pc: usize, code: &[Code]) -> Path {
        self.carried &= !mask;
        let stack: Vec<_> = self.stack[..depth].iter().map(|&frame| Frame { otherwise: 0, ..frame }).collect();
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

    /// Lets lanes go ahead of others of their path that nothing else lets on: those whose own wait is over, else those that wait for others at the
    /// end of the innermost branch or loop. False where there are none.
    pub fn release(&mut self, code: &[Code]) -> bool {
        (0..=self.parked.len()).any(|_| {
            self.switch();
            self.split_wait(code)
        }) || self.go_ahead(code)
    }

    /// Makes a path of the lanes whose own wait is over; it is next to run. False where there are
    /// none, or no others.
    pub fn split_wait(&mut self, code: &[Code]) -> bool {
        let satisfied = self.satisfied & self.mask;
        if !matches!(self.state, State::Polling | State::Await) || satisfied == 0 || satisfied == self.mask {
            return false;
        }
        let path = self.split_off(self.stack.len(), satisfied, self.pc, code);
        self.mask &= !satisfied;
        self.satisfied = 0;
        self.parked.push_front(path);
        true
    }

    fn go_ahead(&mut self, code: &[Code]) -> bool {
        if self.state == State::Done {
            return false;
        }
        // Every path in its turn as the one at hand; the deepest frame with lanes at its end, and the path to take it from.
        let mut found: Option<(usize, usize, u32)> = None;
        for turn in 0..=self.parked.len() {
            for (depth, frame) in self.stack.iter().enumerate() {
                let others = self.parked.iter().filter_map(|path| {
                    let depth = path.stack.iter().position(|other| other.id == frame.id)?;
                    Some(path.inside(depth))
                });
                let running = self.stack.get(depth + 1).map_or(self.mask, |inner| inner.lanes);
                let waiting = frame.lanes & !others.fold(running | frame.otherwise, |all, lanes| all | lanes);
                if waiting != 0 && found.is_none_or(|(_, deepest, _)| depth > deepest) {
                    found = Some((turn, depth, waiting));
                }
            }
            self.switch();
        }
        let Some((turn, depth, lanes)) = found else { return false };
        (0..turn).for_each(|_| self.switch());
        let Frame { id, opened, .. } = self.stack[depth];
        let mut path = self.split_off(depth, lanes, after(code, opened), code);
        self.stack[depth].lanes &= !lanes;
        for other in &mut self.parked {
            path.registers.take(&other.registers, other.carried & lanes, &self.line_lanes);
            other.carried &= !lanes;
            other.stack.iter_mut().filter(|frame| frame.id == id).for_each(|frame| frame.lanes &= !lanes);
        }
        self.parked.push_front(path);
        true
    }

    /// Joins with the parked paths that wait at this instruction for the rest of the warp.
    pub fn converge(&mut self) {
        let (pc, shape) = (self.pc, |stack: &[Frame]| stack.iter().map(|frame| frame.opened).collect::<Vec<_>>());
        let here = shape(&self.stack);
        while let Some(at) = self
            .parked
            .iter()
            .position(|path| path.state == State::Converge && path.pc == pc && shape(&path.stack) == here)
        {
            let Some(other) = self.parked.remove(at) else { return };
            self.registers.take(&other.registers, other.carried, &self.line_lanes);
            self.carried |= other.carried;
            self.mask |= other.mask;
            for (frame, theirs) in self.stack.iter_mut().zip(&other.stack) {
                frame.otherwise |= theirs.otherwise;
                frame.lanes |= theirs.lanes;
                let all = frame.lanes;
                let frames = self.parked.iter_mut().flat_map(|path| &mut path.stack);
                for shared in frames.filter(|shared| shared.id == theirs.id || shared.id == frame.id) {
                    (shared.id, shared.lanes) = (frame.id, all);
                }
            }
        }
    }
}

impl Warp {
    pub fn new(index: u32, existing: u32, program: &Program) -> Self {
        let registers = Registers { lines: program.lines.clone(), predicates: program.predicates.clone() };
        Warp {
            index,
            registers,
            pc: 0,
            mask: existing,
            existing,
            carried: existing,
            satisfied: 0,
            stack: Vec::new(),
            loops: Vec::new(),
            state: State::Ready,
            parked: Default::default(),
            frames: 0,
            steps: 0,
            line_lanes: program.line_lanes.clone(),
        }
    }

    /// What stands in a block's place for a warp that runs.
    pub fn placeholder(&self) -> Self {
        Warp {
            index: self.index,
            registers: Registers::none(),
            pc: self.pc,
            mask: self.mask,
            existing: self.existing,
            carried: self.carried,
            satisfied: 0,
            stack: Vec::new(),
            loops: Vec::new(),
            state: self.state,
            parked: Default::default(),
            frames: self.frames,
            steps: self.steps,
            line_lanes: self.line_lanes.clone(),
        }
    }
}
