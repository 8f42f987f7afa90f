//! Where the player is and what keys do. It knows no terminal.

use super::stage::{Stage, Stop};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Right,
    Left,
    Up,
    Down,
    NextAct,
    LastAct,
    Char(char),
    Other,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    GoOn,
    Quit,
}

/// A trace being played.
pub struct Player {
    pub stage: Stage,
    at: usize,
    block: usize,
    pub thread: [u32; 3],
    /// Names of elements in place of numbers.
    pub names: bool,
    /// Goes on by itself.
    pub auto: bool,
    /// Arrows pick a thread.
    pub picking: bool,
    pub help: bool,
}

impl Player {
    /// At the beginning, with a block of the stage and one of its threads.
    pub fn new(stage: Stage, block: [u32; 3], thread: [u32; 3]) -> Player {
        let block = stage.blocks.iter().position(|&other| other == block).unwrap_or(0);
        Player { stage, at: 0, block, thread, names: false, auto: false, picking: false, help: false }
    }

    pub fn stop(&self) -> Stop {
        self.stage.stops[self.at]
    }

    pub fn block(&self) -> [u32; 3] {
        self.stage.blocks.get(self.block).copied().unwrap_or_default()
    }

    /// What a key does.
    pub fn key(&mut self, key: Key) -> Then {
        if key == Key::Char('q') {
            return Then::Quit;
        }
        if std::mem::take(&mut self.help) || std::mem::take(&mut self.auto) {
            return Then::GoOn;
        }
        match key {
            Key::Right if self.picking => self.pick([1, 0]),
            Key::Left if self.picking => self.pick([-1, 0]),
            Key::Up if self.picking => self.pick([0, -1]),
            Key::Down if self.picking => self.pick([0, 1]),
            Key::Right | Key::Char('n' | ' ') => self.next(),
            Key::Left | Key::Char('p') => self.at = self.at.saturating_sub(1),
            Key::NextAct | Key::Char(']') => self.next_act(),
            Key::LastAct | Key::Char('[') => self.last_act(),
            Key::Char('g') => self.at = 0,
            Key::Char('G') => self.at = self.stage.stops.len() - 1,
            Key::Char('a') => self.auto = true,
            Key::Char('t') => self.picking = !self.picking,
            Key::Char('h') => self.pick([-1, 0]),
            Key::Char('l') => self.pick([1, 0]),
            Key::Char('k') => self.pick([0, -1]),
            Key::Char('j') => self.pick([0, 1]),
            Key::Char('b') => self.block = (self.block + 1) % self.stage.blocks.len().max(1),
            Key::Char('B') => {
                self.block = self.block.checked_sub(1).unwrap_or(self.stage.blocks.len().saturating_sub(1))
            }
            Key::Char('v') => self.names = !self.names,
            Key::Char('?') => self.help = true,
            Key::Up | Key::Down | Key::Char(_) | Key::Other => {}
        }
        Then::GoOn
    }

    /// Time has passed while it goes on by itself.
    pub fn tick(&mut self) {
        self.next();
        self.auto = self.at + 1 < self.stage.stops.len();
    }

    fn next(&mut self) {
        self.at = (self.at + 1).min(self.stage.stops.len() - 1);
    }

    /// To where this act is over, or if it is, the next one.
    fn next_act(&mut self) {
        self.next();
        let act = self.stop().act;
        while self.stage.stops.get(self.at + 1).is_some_and(|next| next.act == act) {
            self.at += 1;
        }
    }

    /// To where the act before was over.
    fn last_act(&mut self) {
        let act = self.stop().act;
        while self.at > 0 && self.stop().act == act {
            self.at -= 1;
        }
    }

    fn pick(&mut self, by: [i32; 2]) {
        let extents = self.stage.trace.header.block;
        for axis in 0..2 {
            let to = self.thread[axis].saturating_add_signed(by[axis]);
            self.thread[axis] = to.min(extents[axis].saturating_sub(1));
        }
    }
}
