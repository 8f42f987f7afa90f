//! The state of the player, and its keys.

use super::super::player::{Flow, Key};
use super::view::FileView;

/// A trace being played.
pub struct FilePlayer {
    pub view: FileView,
    /// The steps that are shown, by position in the trace.
    shown: Vec<usize>,
    /// The current step, as an index into `shown`; `None` before the first step.
    at: Option<usize>,
    /// Whether elements show the lanes that access them instead of their values.
    pub lanes: bool,
    /// The first array to draw.
    pub array: usize,
    /// Whether the steps advance automatically.
    pub auto: bool,
    pub help: bool,
}

impl FilePlayer {
    /// A player before the first step.
    pub fn new(view: FileView) -> FilePlayer {
        let shown = view.shown_steps();
        FilePlayer { view, shown, at: None, lanes: false, array: 0, auto: false, help: false }
    }

    /// The index of the current step in the trace; `None` before the first step.
    pub fn step(&self) -> Option<usize> {
        self.shown.get(self.at?).copied()
    }

    /// Whether the current step is the last one.
    pub fn at_end(&self) -> bool {
        self.at.map_or(0, |at| at + 1) == self.shown.len()
    }

    /// Applies a key.
    pub fn press(&mut self, key: Key) -> Flow {
        if key == Key::Char('q') {
            return Flow::Quit;
        }
        if std::mem::take(&mut self.help) || std::mem::take(&mut self.auto) {
            return Flow::Continue;
        }
        let view = &self.view;
        let barrier = |at: usize| view.completes_barrier(at);
        let wrong = |at: usize| view.trace.steps[at].findings().next().is_some();
        match key {
            Key::Right | Key::Down | Key::Char('n' | ' ' | 'l' | 'j') => self.next(),
            Key::Left | Key::Up | Key::Char('p' | 'h' | 'k') => self.at = self.at.and_then(|at| at.checked_sub(1)),
            Key::NextPhase | Key::Char(']') => self.at = self.following(barrier).or(self.last()),
            Key::PreviousPhase | Key::Char('[') => self.at = self.preceding(barrier),
            Key::Char('e') => self.at = self.following(wrong).or(self.at),
            Key::Char('E') => self.at = self.preceding(wrong).or(self.at),
            Key::Char('g') => self.at = None,
            Key::Char('G') => self.at = self.last(),
            Key::Char('a') => self.auto = true,
            Key::Char('w') => self.select_warp(true),
            Key::Char('W') => self.select_warp(false),
            Key::Char('s') => self.array = (self.array + 1) % self.view.arrays.len().max(1),
            Key::Char('v') => self.lanes = !self.lanes,
            Key::Char('?') => self.help = true,
            Key::Char(_) | Key::Other => {}
        }
        Flow::Continue
    }

    /// Advances by a step.
    pub fn next(&mut self) {
        self.at = self.at.map_or(0, |at| at + 1).checked_sub(usize::from(self.at_end()));
    }

    fn last(&self) -> Option<usize> {
        self.shown.len().checked_sub(1)
    }

    /// The next step that satisfies a condition.
    fn following(&self, condition: impl Fn(usize) -> bool) -> Option<usize> {
        let after = self.at.map_or(0, |at| at + 1);
        (after..self.shown.len()).find(|&at| condition(self.shown[at]))
    }

    /// The previous step that satisfies a condition.
    fn preceding(&self, condition: impl Fn(usize) -> bool) -> Option<usize> {
        (0..self.at?).rev().find(|&at| condition(self.shown[at]))
    }

    /// Shows only the steps of the next or previous warp; after the last warp, all steps. The
    /// current step becomes the nearest one shown.
    fn select_warp(&mut self, forward: bool) {
        let warps = self.view.report.block.iter().product::<u32>().div_ceil(32);
        let before = self.step();
        let now = match self.view.warps.as_deref() {
            Some(&[warp, ..]) => Some(warp),
            _ => None,
        };
        let next = match (now, forward) {
            (None, true) => Some(0),
            (None, false) => warps.checked_sub(1),
            (Some(warp), true) => Some(warp + 1).filter(|&next| next < warps),
            (Some(warp), false) => warp.checked_sub(1),
        };
        self.view.warps = next.map(|warp| vec![warp]);
        self.shown = self.view.shown_steps();
        self.at = before.and_then(|before| self.shown.partition_point(|&at| at <= before).checked_sub(1));
    }
}
