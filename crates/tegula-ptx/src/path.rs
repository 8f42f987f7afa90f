//! Divergence: the paths of a warp, and where they reconverge.
//!
//! A path is a set of lanes of a warp that run together. The paths of a warp share its register
//! file, since each lane belongs to one path. A branch whose lanes disagree splits a path, and
//! opens a *join* at the immediate post-dominator: a path that arrives there waits for the other
//! lanes of the join. Joins decide which lanes issue a request together, as on the GPU. They do not
//! decide whether lanes make progress: if nothing else can run, the lanes that wait leave their
//! join
//! and go on alone, as independent thread scheduling permits since Volta.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::alu::Lanes;
use crate::memory::Bytes;
use crate::program::Reg;

/// What a path waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// Waits for other lanes of its innermost join.
    Joining,
    /// Waits at a barrier of the block, by number, with all lanes of its warp.
    Barrier(u32),
    /// Waits at a barrier without some lanes of its warp.
    PartialBarrier(u32),
    /// Waits at a warp-wide instruction for lanes of its mask.
    Converge,
    /// Waits at an mbarrier, or ran a loop without any change of state.
    Spinning,
}

/// Lanes that run together.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub pc: u32,
    pub mask: u32,
    pub state: State,
    /// The open joins of the path, innermost last, as indices into those of the warp.
    pub joins: Vec<u32>,
    pub calls: Vec<Call>,
    /// The function that runs, and where its frame begins in local memory.
    pub function: u32,
    pub frame: u32,
}

/// A call that a path will return from.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The instruction of the call.
    pub pc: u32,
    pub function: u32,
    pub frame: u32,
    /// The registers of the callee before the call, if it was already running.
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

    /// Stands in the block for the warp while it runs.
    pub fn placeholder(&self) -> Self {
        let (index, alive, registers, local) = (self.index, self.alive, Vec::new(), Vec::new());
        Warp { index, alive, registers, carry: 0, local, paths: VecDeque::new(), joins: Vec::new(), steps: 0 }
    }

    /// Whether all lanes have ended.
    pub fn is_done(&self) -> bool {
        self.paths.is_empty()
    }

    /// Lets a path arrive at joins that are here. Returns whether it goes on.
    ///
    /// Otherwise it was parked, or merged into the path that waits there.
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

    /// Parks a path that waits at its join; one path stands for all lanes that arrived.
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

    /// Opens a join for lanes that are about to diverge, unless the innermost one is the same.
    pub fn open_join(&mut self, path: &mut Path, pc: u32) {
        let depth = path.calls.len() as u32;
        let same = path.joins.last().is_some_and(|&top| {
            let join = &self.joins[top as usize];
            (join.pc, join.depth) == (pc, depth)
        });
        if !same {
            // Joins of a warp without divergent paths are over: the list stays short.
            if self.paths.is_empty() && path.joins.is_empty() {
                self.joins.clear();
            }
            path.joins.push(self.joins.len() as u32);
            self.joins.push(Join { pc, depth, expected: path.mask, arrived: 0 });
        }
    }

    /// Ends lanes: no join waits for them any more.
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

    /// Lets the lanes that wait at the innermost join go on alone; false if none waits.
    ///
    /// Optionally, not those that wait only for lanes at a barrier.
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

    /// Merges paths that wait at the same instruction as this one, in the same calls.
    pub fn merge_waiting(&mut self, path: &mut Path, state: impl Fn(State) -> bool) {
        let (pc, depth) = (path.pc, path.calls.len());
        let mut at = 0;
        while at < self.paths.len() {
            let other = &self.paths[at];
            if other.pc == pc && other.calls.len() == depth && state(other.state) && other.frame == path.frame {
                let Some(other) = self.paths.remove(at) else { return };
                // The joins that only one of them has wait for its lanes no longer.
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
