//! Texts of a timeline: legend, terms, wait reports.

use super::{Costs, Row, RowKind, Span, State, Timeline, Wait, WaitReason};

/// The activity of a row, and its waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitReport {
    /// `consumer 0 (warps 4 to 7) multiplies in 16 of 22 columns`.
    pub activity: String,
    /// `waited 1 of 8 times at full, 4 columns in total, for copies`.
    pub waits: Vec<String>,
}

impl State {
    /// The symbol beside a span's number.
    pub const fn symbol(self) -> char {
        match self {
            State::Issuing => '>',
            State::Waiting => '.',
            State::Filling => '~',
            State::Full => '=',
            State::Multiplying => '×',
            State::Consumed => '-',
            State::Sending => '<',
            State::Storing => '^',
        }
    }
}

/// The meaning of the symbols.
pub const LEGEND: &str = "> issues copies, ~ filling, = full, × multiplying, - multiplied and not released, \
     < sends partial sums, ^ storing, . waits; a stage without a symbol is empty";

impl Timeline {
    /// Explains stages, columns and numbers of this timeline.
    pub fn terms(&self) -> Vec<String> {
        let Timeline { costs: Costs { issue, copy, multiply, store, send }, arrays, rows, .. } = self;
        let stages = rows.iter().filter(|row| row.kind == RowKind::Stage).count();
        let producers = rows.iter().filter(|row| row.kind == RowKind::Producer);
        let restarts = producers.flat_map(|row| row.issues().zip(row.issues().skip(1))).any(|(one, next)| next <= one);
        let restarts = if restarts { " They start over with each tile of C." } else { "" };
        let used = if stages == 1 { "the block uses one".into() } else { format!("the block cycles through {stages}") };
        let stage = match stages {
            0 => "The block has no k-steps: other blocks of the cluster have those of its tile.".into(),
            _ => format!(
                "A stage is shared memory for the tiles of one k-step ({}); {used}. The producer's copies fill a \
                 stage. Consumers multiply its tiles, then release it.",
                arrays.join(", ")
            ),
        };
        let sends = rows.iter().flat_map(|row| &row.spans).any(|span| span.state == State::Sending);
        let (send_cost, and_sends) =
            if sends { (format!(", sending partial sums {send}"), " and sends") } else { (String::new(), "") };
        let split = sends.then(|| {
            "The blocks of a cluster split the k-steps of a tile of C. Each accumulates its own k-steps, sends partial \
             sums of the elements that another block stores, and adds those that it receives to the elements that it \
             stores itself."
                .into()
        });
        let terms = [
            stage,
            format!(
                "A column is a unit of logical time, not of measured time. Issuing the copies of a k-step takes \
                 {issue}, a copy {copy}, multiplying a k-step {multiply}, storing a tile {store}{send_cost}; all else \
                 takes none."
            ),
            format!("Numbers are k-steps; stores{and_sends} are counted from 0.{restarts}"),
        ];
        terms.into_iter().chain(split).collect()
    }

    /// The activity and waits of each producer and consumer, in row order.
    pub fn wait_reports(&self) -> Vec<WaitReport> {
        let workers = self.rows.iter().filter(|row| matches!(row.kind, RowKind::Producer | RowKind::Consumer));
        workers
            .map(|row| WaitReport {
                activity: row.activity(self.columns),
                waits: self
                    .waits
                    .iter()
                    .filter(|wait| wait.row == row.name)
                    .map(|wait| wait.describe(row.kind))
                    .collect(),
            })
            .collect()
    }
}

impl Row {
    /// The k-steps whose copies the row issues.
    fn issues(&self) -> impl Iterator<Item = u32> {
        self.spans.iter().filter(|span| span.state == State::Issuing).map(|span| span.number)
    }

    fn activity(&self, columns: u32) -> String {
        let of = |state| self.spans.iter().filter(|span| span.state == state).map(Span::length).sum::<u32>();
        let activity = match (self.kind, of(State::Sending)) {
            (RowKind::Producer, _) => format!("issues copies in {}", of(State::Issuing)),
            (_, 0) => format!("multiplies in {}", of(State::Multiplying)),
            (_, sends) => format!("multiplies in {} and sends in {sends}", of(State::Multiplying)),
        };
        let warps = match self.warps {
            Some([first, last]) if first == last => format!(" (warp {first})"),
            Some([first, last]) => format!(" (warps {first} to {last})"),
            None => String::new(),
        };
        format!("{}{warps} {activity} of {columns} columns", self.name)
    }
}

impl Span {
    /// The number of columns.
    pub fn length(&self) -> u32 {
        self.columns[1] - self.columns[0]
    }
}

impl Wait {
    fn describe(&self, waiting: RowKind) -> String {
        let Wait { barrier, reasons, count, total, columns, .. } = self;
        let rows: Vec<String> = reasons.iter().filter_map(WaitReason::row).collect();
        // A producer waits for consumers only to release a stage.
        let verb = if waiting == RowKind::Producer { "release the stage" } else { "arrive" };
        let reason = match reasons.first() {
            Some(WaitReason::Row(_)) => format!("{} to {verb}", rows.join(" and ")),
            Some(WaitReason::PartialSums) => "partial sums of other blocks".into(),
            Some(WaitReason::Stores) => "its TMA stores".into(),
            Some(WaitReason::Copies) | None => "copies".to_owned(),
        };
        let at = barrier.as_ref().map_or_else(String::new, |barrier| format!(" at {barrier}"));
        let plural = if *columns == 1 { "" } else { "s" };
        format!("waited {count} of {total} times{at}, {columns} column{plural} in total, for {reason}")
    }
}

impl WaitReason {
    fn row(&self) -> Option<String> {
        let WaitReason::Row(name) = self else { return None };
        // Rows of a kind are numbered if the block has more than one.
        let unique = !name.contains(|c: char| c.is_ascii_digit());
        Some(if unique { format!("the {name}") } else { name.clone() })
    }
}
