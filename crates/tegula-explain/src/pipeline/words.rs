//! A timeline in words: what one must know to read it, and who waited for whom.

use super::{Costs, Kind, Row, Span, State, Timeline, Wait, Whom};

/// What a row says of itself, and of each of its waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// `consumer 0 (warps 4 to 7) multiplies in 16 of 22 columns`.
    pub busy: String,
    /// `waited 1 of 8 times at full, 4 columns in all, for copies to come`.
    pub waits: Vec<String>,
}

impl State {
    /// What stands for it beside a number.
    pub const fn mark(self) -> char {
        match self {
            State::Asking => '>',
            State::Waiting => '.',
            State::Filling => '~',
            State::Full => '=',
            State::Multiplying => '×',
            State::Used => '-',
            State::Sending => '<',
            State::Storing => '^',
        }
    }
}

/// What the marks mean.
pub const MARKS: &str = "> asks, ~ is filled, = full, × multiplies or is multiplied, - multiplied but not handed back, < sends sums, \
     ^ is stored, . waits; a stage without a mark is empty";

impl Timeline {
    /// What stages are, what a column is, and what numbers count.
    pub fn terms(&self) -> Vec<String> {
        let Timeline { costs: Costs { ask, copy, multiply, store, send }, arrays, rows, .. } = self;
        let stages = rows.iter().filter(|row| row.kind == Kind::Stage).count();
        let producers = rows.iter().filter(|row| row.kind == Kind::Producer);
        let again = producers.flat_map(|row| row.asks().zip(row.asks().skip(1))).any(|(one, next)| next <= one);
        let again = if again { " They begin again with each tile of C." } else { "" };
        let used = if stages == 1 { "the block uses one".into() } else { format!("there are {stages}, used in turn") };
        let stage = match stages {
            0 => "The block has no k-steps: other blocks of the cluster have those of its tile.".into(),
            _ => format!(
                "A stage is room for the tiles of one k-step ({}); {used}. Copies that a producer asks for fill it; \
                 consumers drain it: they multiply what it holds, and hand it back.",
                arrays.join(", ")
            ),
        };
        let sends = rows.iter().flat_map(|row| &row.spans).any(|span| span.state == State::Sending);
        let (to_send, and_sends) =
            if sends { (format!(", to send sums {send}"), " and sends") } else { (String::new(), "") };
        let sums = sends.then(|| {
            "Blocks of the cluster share the k-steps of a tile of C. Each counts its own, sends those with whom it shares its sums of what they \
             store, and stores the rest when theirs have come."
                .into()
        });
        let terms = [
            stage,
            format!(
                "A column is a unit of logical time, not a measured one: to ask for the copies of a k-step takes {ask}, until they have come \
                 {copy}, to multiply a k-step {multiply}, to store a tile of sums {store}{to_send}; all else takes none."
            ),
            format!("Numbers are k-steps; of stores{and_sends}, how many were before.{again}"),
        ];
        terms.into_iter().chain(sums).collect()
    }

    /// Who waited for whom: of each row that does something in order.
    pub fn who_waited(&self) -> Vec<Told> {
        let workers = self.rows.iter().filter(|row| matches!(row.kind, Kind::Producer | Kind::Consumer));
        workers
            .map(|row| Told {
                busy: row.busy(self.columns),
                waits: self.waits.iter().filter(|wait| wait.who == row.name).map(|wait| wait.told(row.kind)).collect(),
            })
            .collect()
    }
}

impl Row {
    fn asks(&self) -> impl Iterator<Item = u32> {
        self.spans.iter().filter(|span| span.state == State::Asking).map(|span| span.number)
    }

    fn busy(&self, columns: u32) -> String {
        let of = |state| self.spans.iter().filter(|span| span.state == state).map(Span::length).sum::<u32>();
        let does = match (self.kind, of(State::Sending)) {
            (Kind::Producer, _) => format!("asks in {}", of(State::Asking)),
            (_, 0) => format!("multiplies in {}", of(State::Multiplying)),
            (_, sends) => format!("multiplies in {}, and sends in {sends},", of(State::Multiplying)),
        };
        let warps = match self.warps {
            Some([first, last]) if first == last => format!(" (warp {first})"),
            Some([first, last]) => format!(" (warps {first} to {last})"),
            None => String::new(),
        };
        format!("{}{warps} {does} of {columns} columns", self.name)
    }
}

impl Span {
    /// Columns that it has.
    pub fn length(&self) -> u32 {
        self.columns[1] - self.columns[0]
    }
}

impl Wait {
    fn told(&self, who: Kind) -> String {
        let Wait { at, of, times, all, columns, .. } = self;
        let rows: Vec<String> = of.iter().filter_map(Whom::row).collect();
        // A producer waits for nothing else of those who multiply.
        let does = if who == Kind::Producer { "hand the stage back" } else { "arrive" };
        let whom = match of.first() {
            Some(Whom::Row(_)) => format!("{} to {does}", rows.join(" and ")),
            Some(Whom::Sums) => "the other blocks' sums".into(),
            Some(Whom::Stores) => "tiles of sums to be stored".into(),
            Some(Whom::Copies) | None => "copies to come".to_owned(),
        };
        let at = at.as_ref().map_or_else(String::new, |at| format!(" at {at}"));
        let plural = if *columns == 1 { "" } else { "s" };
        format!("waited {times} of {all} times{at}, {columns} column{plural} in all, for {whom}")
    }
}

impl Whom {
    fn row(&self) -> Option<String> {
        let Whom::Row(name) = self else { return None };
        // One of several has a number.
        let alone = !name.contains(|c: char| c.is_ascii_digit());
        Some(if alone { format!("the {name}") } else { name.clone() })
    }
}
