//! The events of an execution and their order: a graph, and its transitive closure.

/// When an edge of the graph exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edge {
    /// In every execution.
    Certain,
    /// In one of both directions in every execution: the order of a lock.
    Lock,
    /// In some executions.
    Possible,
}

/// Events in the order of the execution, each with the events that precede it directly.
#[derive(Debug, Default)]
pub struct Graph {
    predecessors: Vec<Vec<(usize, Edge)>>,
}

impl Graph {
    pub fn event(&mut self, predecessors: impl IntoIterator<Item = usize>) -> usize {
        self.predecessors.push(predecessors.into_iter().map(|event| (event, Edge::Certain)).collect());
        self.predecessors.len() - 1
    }

    pub fn add_edge(&mut self, from: usize, to: usize, edge: Edge) {
        assert!(from < to, "an event precedes only later ones");
        self.predecessors[to].push((from, edge));
    }

    /// The transitive closure of the edges up to a kind.
    pub fn closure(&self, edges: Edge) -> Closure {
        let events = self.predecessors.len();
        let words = events.div_ceil(64);
        let mut rows = vec![0u64; events * words];
        for (to, predecessors) in self.predecessors.iter().enumerate() {
            let (before, own) = rows.split_at_mut(to * words);
            for &(from, _) in predecessors.iter().filter(|(_, edge)| *edge <= edges) {
                let row = &before[from * words..][..words];
                own.iter_mut().zip(row).for_each(|(own, row)| *own |= row);
                own[from / 64] |= 1 << (from % 64);
            }
        }
        Closure { words, rows }
    }
}

/// For each event, the set of events before it.
pub struct Closure {
    words: usize,
    rows: Vec<u64>,
}

impl Closure {
    pub fn precedes(&self, from: usize, to: usize) -> bool {
        self.rows[to * self.words + from / 64] >> (from % 64) & 1 == 1
    }
}
