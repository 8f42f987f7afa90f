//! A tile of A or B on its way to shared memory: who copies which of its elements, and from where.

use tegula_ir::prelude::*;

/// Room for the stages of one operand: `stages` tiles, each with a row for each k and a column for each row of A or column of B. Call that
/// side, m or n, the outer one.
#[derive(Clone, Copy)]
pub(super) struct Room<'k, T: Element> {
    elements: Shared<'k, T>,
    pub span: Span,
    /// Whether the source's rows run along k.
    along_k: bool,
}

/// Which stage is next, as the number of elements before it: a sum that goes on is cheaper than a product each time.
pub(super) struct Ring<'k> {
    at: Var<'k, u32>,
    /// Elements before the first stage: where in a stage a thread works.
    start: Val<'k, u32>,
    /// Elements of a stage, and of all.
    each: u32,
    all: u32,
}

/// What a thread copies of one operand, from where and to where.
pub(super) struct Stage<'k, T: Element> {
    source: Global<'k, T>,
    room: Room<'k, T>,
    /// Elements that are copied at once.
    width: u32,
    /// The thread's first place in a tile.
    k: Val<'k, u32>,
    outer: Val<'k, u32>,
    /// How much further along the outer side each of its lines is, and where that is in the matrix.
    lines: Vec<(u32, Val<'k, u32>)>,
    /// How much further along k each of its turns is, on every line.
    turns: Vec<u32>,
}

/// Where the next tile comes from, for each line, and where it goes.
pub(super) struct Walk<'k, T> {
    cursors: Vec<Cursor<'k, T>>,
    ring: Ring<'k>,
}

/// The shape of the tiles and of the block that copies them.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub outer: u32,
    pub depth: u32,
    pub stages: u32,
    pub threads: u32,
}

impl Span {
    /// Who copies, how many there are, and the columns and rows of what they share out: a warp takes a patch of 8 outer × 4 k, a thread
    /// `width` elements of one k.
    fn shares(&self, along_k: bool, width: u32) -> [u32; 3] {
        if along_k {
            [self.threads / 32, self.outer / 8, self.depth / 4]
        } else {
            [self.threads, self.outer / width, self.depth]
        }
    }

    /// Whether the tile can be shared out evenly, whichever way the source lies.
    pub fn even(&self, width: u32) -> bool {
        [(true, 1), (false, 1), (false, width)].into_iter().all(|(along_k, width)| {
            let [workers, across, down] = self.shares(along_k, width);
            let whole = self.outer.is_multiple_of(8 * width) && self.depth.is_multiple_of(4);
            let rows = workers.is_multiple_of(across) && down.is_multiple_of(workers / across);
            whole && (rows || across.is_multiple_of(workers))
        })
    }
}

impl<'k, T: Element> Room<'k, T> {
    /// A source that lies along k is turned on its way, element by element: a warp copies 8 outer × 4 k, which are whole sectors, and rows are
    /// padded so that those elements meet different banks.
    pub fn new(k: &'k Builder, name: &str, span: Span, along_k: bool) -> Self {
        let elements = k.shared(name, [span.stages * span.depth * Self::row(span, along_k)]);
        Room { elements, span, along_k }
    }

    fn row(span: Span, along_k: bool) -> u32 {
        span.outer + if along_k { 8 } else { 0 }
    }

    /// Elements between neighbours along k.
    pub fn pitch(&self) -> u32 {
        Self::row(self.span, self.along_k)
    }

    /// The stages from this one on, for a thread that works so many elements behind each one's beginning.
    pub fn ring(&self, stage: u32, within: Val<'k, u32>) -> Ring<'k> {
        let each = self.span.depth * self.pitch();
        let at = self.elements.builder().var(within + stage * each);
        Ring { at, start: within, each, all: self.span.stages * each }
    }

    /// As many elements as 16 bytes hold.
    pub fn load_vector(&self, at: Val<'k, u32>) -> Vec<Val<'k, T>> {
        match 16 / size_of::<T>() {
            4 => self.elements.load_vec::<4>((at,)).to_vec(),
            _ => self.elements.load_vec::<2>((at,)).to_vec(),
        }
    }
}

impl<'k> Ring<'k> {
    /// Where the thread works in the stage at hand.
    pub fn at(&self) -> Val<'k, u32> {
        self.at.get()
    }

    /// To the next stage; after the last comes the first.
    pub fn advance(&self) {
        let after = self.at.get() + self.each;
        self.at.set(after.eq(self.start + self.all).select(self.start, after));
    }
}

/// Where along a side of `extent` elements to take `width` from that a tile has beyond the edge: from its beginning. Lanes that all took what is at
/// the edge would wait for each other: one sector is copied to shared memory once at a time.
pub(super) fn around<'k>(at: Val<'k, u32>, extent: Val<'k, u32>, width: u32) -> Val<'k, u32> {
    at.lt(extent).select(at, at - extent).min(extent - width)
}

impl<'k, T: Element> Stage<'k, T> {
    /// `first` is where the block's tile begins along the outer side, of which there are `extent`. Beyond the edge the side begins again: sums
    /// of that are never stored, and the loop needs no guard.
    pub fn new(
        source: Global<'k, T>,
        room: Room<'k, T>,
        width: u32,
        thread: Val<'k, u32>,
        [first, extent]: [Val<'k, u32>; 2],
    ) -> Self {
        let Room { span, along_k, .. } = room;
        // What lies along k is turned on its way, one element at a time.
        let width = if along_k { 1 } else { width };
        let (worker, unit, deep) = if along_k { (thread / 32, 8, 4) } else { (thread, width, 1) };
        let [workers, across, down] = span.shares(along_k, width);
        // Workers stand in a row across, which several rows may share or one may need several times.
        let (over, row, lines, step) = match workers.is_multiple_of(across) {
            true => (worker % across, worker / across, 1, workers / across),
            false => (worker, source.builder().constant(0), across / workers, 1),
        };
        let (k, outer) = match along_k {
            true => (row * deep + thread % deep, over * unit + thread % 32 / deep),
            false => (row, over * unit),
        };
        let lines = (0..lines).map(|i| i * workers * unit).map(|i| (i, around(first + (outer + i), extent, width)));
        let turns = (0..down).step_by(step as usize).map(|row| row * deep);
        Stage { source, room, width, k, outer, lines: lines.collect(), turns: turns.collect() }
    }

    /// Starts copying the tile whose first k is `from` to the first stage. `valid` says for a k of the tile whether it is there; elsewhere zeros
    /// are written.
    pub fn copy_first(&self, from: Val<'k, u32>, valid: impl Fn(Val<'k, u32>) -> Pred<'k>) {
        for &(outer, line) in &self.lines {
            for &further in &self.turns {
                let k = self.k + further;
                let to = self.within() + (further * self.room.pitch() + outer);
                let from = self.at(from + k, line);
                self.room.elements.copy_async((to,), self.source, from, self.width, Builder::guard(valid(k)));
            }
        }
    }

    /// A walk along the tiles from the one whose first k is `from`, to the second stage and on.
    pub fn walk(&self, from: Val<'k, u32>) -> Walk<'k, T> {
        let cursors = self.lines.iter().map(|&(_, line)| self.source.cursor(self.at(from + self.k, line)));
        Walk { cursors: cursors.collect(), ring: self.room.ring(1, self.within()) }
    }

    /// Starts copying the tile that the walk has reached, all of it or nothing.
    pub fn copy(&self, walk: &Walk<'k, T>, there: Pred<'k>) {
        let k = self.source.builder();
        for (&(outer, _), &cursor) in self.lines.iter().zip(&walk.cursors) {
            for &further in &self.turns {
                let to = walk.ring.at() + (further * self.room.pitch() + outer);
                let from = self.at(k.constant(further), k.constant(0));
                self.room.elements.copy_async((to,), cursor, from, self.width, Builder::guard(there));
            }
        }
    }

    /// To the next tile and stage.
    pub fn advance(&self, walk: &Walk<'k, T>) {
        let depth = self.room.span.depth;
        for cursor in &walk.cursors {
            if self.room.along_k { cursor.advance(0, depth) } else { cursor.advance(depth, 0) }
        }
        walk.ring.advance();
    }

    /// The thread's first place in a stage.
    fn within(&self) -> Val<'k, u32> {
        self.k * self.room.pitch() + self.outer
    }

    fn at(&self, k: Val<'k, u32>, outer: Val<'k, u32>) -> (Val<'k, u32>, Val<'k, u32>) {
        if self.room.along_k { (outer, k) } else { (k, outer) }
    }
}
