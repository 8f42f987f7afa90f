//! The player's state and its keys, independent of a terminal.

use super::canvas::Canvas;
use super::trace_view::{TracePoint, TraceView};

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Right,
    Left,
    Up,
    Down,
    NextPhase,
    PreviousPhase,
    Char(char),
    Other,
}

/// Whether the player continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Continue,
    Quit,
}

/// What a terminal shows, and steps through by keys.
pub trait Playable {
    /// Draws a frame on columns and rows.
    fn draw(&self, size: [usize; 2]) -> Canvas;

    /// Applies a key.
    fn key(&mut self, key: Key) -> Flow;

    /// Whether it plays without keys.
    fn is_automatic(&self) -> bool;

    /// Advances while it plays without keys.
    fn tick(&mut self);
}

/// A trace being played.
pub struct Player {
    pub view: TraceView,
    at: usize,
    block: usize,
    pub thread: [u32; 3],
    /// Shows the names of elements in place of their values.
    pub names: bool,
    /// Plays without keys.
    pub auto: bool,
    /// Arrows select a thread.
    pub picking: bool,
    pub help: bool,
}

impl Player {
    /// A player at the start of the trace, for a block and one of its threads.
    pub fn new(view: TraceView, block: [u32; 3], thread: [u32; 3]) -> Player {
        let block = view.blocks.iter().position(|&other| other == block).unwrap_or(0);
        Player { view, at: 0, block, thread, names: false, auto: false, picking: false, help: false }
    }

    pub fn point(&self) -> TracePoint {
        self.view.points[self.at]
    }

    pub fn block(&self) -> [u32; 3] {
        self.view.blocks.get(self.block).copied().unwrap_or_default()
    }

    /// Whether this is the last point of the trace.
    pub fn at_end(&self) -> bool {
        self.at + 1 == self.view.points.len()
    }

    /// Applies a key.
    pub fn press(&mut self, key: Key) -> Flow {
        if key == Key::Char('q') {
            return Flow::Quit;
        }
        if std::mem::take(&mut self.help) || std::mem::take(&mut self.auto) {
            return Flow::Continue;
        }
        match key {
            Key::Right if self.picking => self.pick([1, 0]),
            Key::Left if self.picking => self.pick([-1, 0]),
            Key::Up if self.picking => self.pick([0, -1]),
            Key::Down if self.picking => self.pick([0, 1]),
            Key::Right | Key::Char('n' | ' ') => self.next(),
            Key::Left | Key::Char('p') => self.at = self.at.saturating_sub(1),
            Key::NextPhase | Key::Char(']') => self.next_phase(),
            Key::PreviousPhase | Key::Char('[') => self.previous_phase(),
            Key::Char('g') => self.at = 0,
            Key::Char('G') => self.at = self.view.points.len() - 1,
            Key::Char('a') => self.auto = true,
            Key::Char('t') => self.picking = !self.picking,
            Key::Char('h') => self.pick([-1, 0]),
            Key::Char('l') => self.pick([1, 0]),
            Key::Char('k') => self.pick([0, -1]),
            Key::Char('j') => self.pick([0, 1]),
            Key::Char('b') => self.block = (self.block + 1) % self.view.blocks.len().max(1),
            Key::Char('B') => {
                self.block = self.block.checked_sub(1).unwrap_or(self.view.blocks.len().saturating_sub(1))
            }
            Key::Char('v') => self.names = !self.names,
            Key::Char('?') => self.help = true,
            Key::Up | Key::Down | Key::Char(_) | Key::Other => {}
        }
        Flow::Continue
    }

    /// Advances while it plays without keys.
    pub fn advance(&mut self) {
        self.next();
        self.auto = !self.at_end();
    }

    fn next(&mut self) {
        self.at = (self.at + 1).min(self.view.points.len() - 1);
    }

    /// Moves to the end of this phase, or if there already, of the next one.
    fn next_phase(&mut self) {
        self.next();
        let phase = self.point().phase;
        while self.view.points.get(self.at + 1).is_some_and(|next| next.phase == phase) {
            self.at += 1;
        }
    }

    /// Moves to the end of the previous phase.
    fn previous_phase(&mut self) {
        let phase = self.point().phase;
        while self.at > 0 && self.point().phase == phase {
            self.at -= 1;
        }
    }

    fn pick(&mut self, by: [i32; 2]) {
        let extents = self.view.trace.header.block;
        for axis in 0..2 {
            let to = self.thread[axis].saturating_add_signed(by[axis]);
            self.thread[axis] = to.min(extents[axis].saturating_sub(1));
        }
    }
}
