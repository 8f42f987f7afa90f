//! Divergence: the paths of a warp, and where they reconverge.
//!
//! A path is a set of lanes of a warp that run together. Each lane is in one path, so the paths of
//! a warp share its register file. A divergent branch splits a path, and opens a *join* at the
//! immediate post-dominator: a path that arrives there waits for the other lanes of the join. Joins
//! decide which lanes issue a memory request together, as on the GPU. They do not decide whether
//! lanes make progress: if no path can run, waiting lanes leave their join and run alone, as
//! independent thread scheduling permits since Volta.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::alu::Lanes;
use crate::memory::Bytes;
use crate::program::Reg;

/// The state of a path: ready, or the event that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// Waits for the missing lanes of its innermost join.
    Joining,
    /// Waits at the barrier of this number, where all lanes of its warp have arrived.
    Barrier(u32),
    /// Waits at the barrier of this number, where lanes of its warp are missing.
    PartialBarrier(u32),
    /// Waits at a warp-wide instruction for the other lanes of its mask.
    Converge,
    /// Waits at an mbarrier, or yielded in a loop.
    Spinning,
}

/// A set of lanes that run together, with their position and calls.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub pc: u32,
    pub mask: u32,
    pub state: State,
    /// The open joins of the path, innermost last, as indices into the joins of the warp.
    pub joins: Vec<u32>,
    pub calls: Vec<Call>,
    /// The current function, and the offset of its frame in local memory, in bytes.
    pub function: u32,
    pub frame: u32,
}

/// A caller on the call stack of a path.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The position of the call instruction.
    pub pc: u32,
    pub function: u32,
    pub frame: u32,
    /// The registers of the callee before a recursive call: the first register, and the values.
    pub saved: Option<Rc<(Reg, Vec<Lanes>)>>,
}

/// A point where lanes reconverge.
#[derive(Clone, Copy, Debug)]
struct Join {
    pc: u32,
    depth: u32,
    expected: u32,
    arrived: u32,
}

/// A warp: its registers, local memory, and paths.
#[derive(Debug)]
pub(crate) struct Warp {
    pub index: u32,
    /// Lanes that have not ended.
    pub alive: u32,
    pub registers: Vec<Lanes>,
    /// The carry flag of each lane.
    pub carry: u32,
    pub local: Vec<Bytes>,
    pub paths: VecDeque<Path>,
    joins: Vec<Join>,
    /// Instructions executed.
    pub steps: u64,
}

impl Warp {
    pub fn new(index: u32, lanes: u32, registers: Vec<Lanes>, frame: u32) -> Self {
        let path = Path {
            pc: 0,
            mask: lanes,
            state: State::Ready,
            joins: Vec::new(),
            calls: Vec::new(),
            function: 0,
            frame: 0,
        };
        let mut local = vec![Bytes::default(); 32];
        local.iter_mut().for_each(|bytes| bytes.reserve(frame as usize));
        let paths = [path].into();
        Warp { index, alive: lanes, registers, carry: 0, local, paths, joins: Vec::new(), steps: 0 }
    }

    /// A warp without registers, which replaces the warp in its block while the warp runs.
    pub fn placeholder(&self) -> Self {
        let (index, alive, registers, local) = (self.index, self.alive, Vec::new(), Vec::new());
        Warp { index, alive, registers, carry: 0, local, paths: VecDeque::new(), joins: Vec::new(), steps: 0 }
    }

    /// Whether all lanes have ended.
    pub fn is_done(&self) -> bool {
        self.paths.is_empty()
    }

    /// Marks the arrival of a path at the joins at its position.
    ///
    /// Returns true if all of them are complete: the path now has all of their lanes. Otherwise the
    /// caller must park the path.
    pub fn arrive_at_joins(&mut self, path: &mut Path) -> bool {
        while let Some(&top) = path.joins.last() {
            let join = &mut self.joins[top as usize];
            if join.pc != path.pc || join.depth != path.calls.len() as u32 {
                return true;
            }
            join.arrived |= path.mask;
            if join.arrived != join.expected {
                return false;
            }
            path.mask = join.expected;
            path.joins.pop();
            self.paths.retain(|other| other.state != State::Joining || other.joins.last() != Some(&top));
        }
        true
    }

    /// Parks a path at its join. Lanes that wait there are merged into one path.
    pub fn park_at_join(&mut self, mut path: Path) {
        let waiting = |other: &&mut Path| other.state == State::Joining && other.joins.last() == path.joins.last();
        match self.paths.iter_mut().find(waiting) {
            Some(other) => other.mask |= path.mask,
            None => {
                path.state = State::Joining;
                self.paths.push_back(path);
            }
        }
    }

    /// Opens a join for a path that is about to diverge, unless its innermost join is the same.
    pub fn open_join(&mut self, path: &mut Path, pc: u32) {
        let depth = path.calls.len() as u32;
        let same = path.joins.last().is_some_and(|&top| {
            let join = &self.joins[top as usize];
            (join.pc, join.depth) == (pc, depth)
        });
        if !same {
            // Without divergent paths, all joins of the warp are complete: the list can be cleared.
            if self.paths.is_empty() && path.joins.is_empty() {
                self.joins.clear();
            }
            path.joins.push(self.joins.len() as u32);
            self.joins.push(Join { pc, depth, expected: path.mask, arrived: 0 });
        }
    }

    /// Removes exited lanes from the warp and from their joins.
    pub fn end_lanes(&mut self, joins: &[u32], lanes: u32) {
        self.alive &= !lanes;
        self.leave_joins(joins, lanes);
    }

    fn leave_joins(&mut self, joins: &[u32], lanes: u32) {
        for &at in joins {
            let join = &mut self.joins[at as usize];
            join.expected &= !lanes;
            join.arrived &= !lanes;
            if join.arrived != join.expected {
                continue;
            }
            for path in &mut self.paths {
                if path.state == State::Joining && path.joins.last() == Some(&at) {
                    path.state = State::Ready;
                }
            }
        }
    }

    /// Releases the path that waits at the deepest join; returns false if no path waits at a join.
    ///
    /// With `except_for_barriers`, paths that wait only for lanes at a barrier are not released.
    pub fn release_join(&mut self, except_for_barriers: bool) -> bool {
        let busy = self.paths.iter().filter(|path| !matches!(path.state, State::PartialBarrier(_)));
        let busy = busy.fold(0, |lanes, path| lanes | path.mask);
        let joins = &self.joins;
        let may_go_on = |path: &Path| {
            let missing = path.joins.last().map_or(0, |&at| joins[at as usize].expected & !path.mask);
            path.state == State::Joining && (!except_for_barriers || missing & busy != 0)
        };
        let deepest = self.paths.iter_mut().filter(|path| may_go_on(path)).max_by_key(|path| path.joins.len());
        let Some(path) = deepest else { return false };
        let Some(at) = path.joins.pop() else { return false };
        path.state = State::Ready;
        let join = &mut self.joins[at as usize];
        join.expected &= !path.mask;
        join.arrived = 0;
        true
    }

    /// Merges into `path` the paths that wait at the same instruction, at the same call depth.
    pub fn merge_waiting(&mut self, path: &mut Path, state: impl Fn(State) -> bool) {
        let (pc, depth) = (path.pc, path.calls.len());
        let mut at = 0;
        while at < self.paths.len() {
            let other = &self.paths[at];
            if other.pc == pc && other.calls.len() == depth && state(other.state) && other.frame == path.frame {
                let Some(other) = self.paths.remove(at) else { return };
                // Joins of only one of the two paths no longer expect its lanes.
                let shared = path.joins.iter().zip(&other.joins).take_while(|(a, b)| a == b).count();
                let (own, theirs) = (path.joins.split_off(shared), &other.joins[shared..]);
                self.leave_joins(&own, path.mask);
                self.leave_joins(theirs, other.mask);
                path.mask |= other.mask;
            } else {
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warp() -> (Warp, Path) {
        let mut warp = Warp::new(0, 0xff, Vec::new(), 0);
        let path = warp.paths.pop_front().unwrap();
        (warp, path)
    }

    #[test]
    fn paths_that_arrive_at_their_join_merge() {
        let (mut warp, mut path) = warp();
        warp.open_join(&mut path, 9);
        let mut other = Path { mask: 0x0f, pc: 9, ..path.clone() };
        path.mask = 0xf0;
        assert!(!warp.arrive_at_joins(&mut other));
        warp.park_at_join(other);
        path.pc = 9;
        assert!(warp.arrive_at_joins(&mut path));
        assert_eq!((path.mask, path.joins.len(), warp.paths.len()), (0xff, 0, 0));
    }

    #[test]
    fn join_does_not_wait_for_lanes_that_ended() {
        let (mut warp, mut path) = warp();
        warp.open_join(&mut path, 9);
        let mut other = Path { mask: 0x0f, pc: 9, ..path.clone() };
        assert!(!warp.arrive_at_joins(&mut other));
        warp.park_at_join(other);
        warp.end_lanes(&path.joins, 0xf0);
        let mut waiting = warp.paths.pop_front().unwrap();
        assert_eq!(waiting.state, State::Ready);
        assert!(warp.arrive_at_joins(&mut waiting));
    }

    #[test]
    fn released_lanes_go_on_without_their_join() {
        let (mut warp, mut path) = warp();
        warp.open_join(&mut path, 9);
        let mut other = Path { mask: 0x0f, pc: 9, ..path.clone() };
        path.mask = 0xf0;
        assert!(!warp.arrive_at_joins(&mut other));
        warp.park_at_join(other);
        assert!(warp.release_join(false));
        let mut released = warp.paths.pop_front().unwrap();
        assert!(released.state == State::Ready && warp.arrive_at_joins(&mut released));
        path.pc = 9;
        assert!(warp.arrive_at_joins(&mut path), "the join expects only the other lanes");
        assert_eq!(path.mask, 0xf0);
    }
}
