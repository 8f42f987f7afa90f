//! Descriptions of phases in words.

use std::collections::{BTreeMap, HashMap, HashSet};

use tegula_explain::trace::{Event, OperationKind, Phase, PhaseKind};

use super::trace_view::TraceView;

/// The description of a phase in a block.
pub struct Description {
    /// The name of the phase: `load`, `wait` and so on.
    pub verb: &'static str,
    /// The effect.
    pub what: String,
    /// The share of a thread; may be empty.
    pub each: String,
}

/// The name of a phase.
pub fn verb(does: PhaseKind) -> &'static str {
    match does {
        PhaseKind::Load => "load",
        PhaseKind::Wait => "wait",
        PhaseKind::Multiply => "multiply",
        PhaseKind::Slide => "slide",
        PhaseKind::Store => "store",
    }
}

/// Describes the phase at an index.
pub fn describe(view: &TraceView, at: usize, block: [u32; 3]) -> Description {
    let Some(phase) = view.trace.header.phases.get(at) else {
        return Description { verb: "", what: String::new(), each: String::new() };
    };
    let (what, each) = match phase.kind {
        PhaseKind::Load => load(view, phase, block),
        PhaseKind::Wait => (wait(view, at), String::new()),
        PhaseKind::Multiply => multiply(view, phase, block),
        PhaseKind::Slide => (slide(view, at, block), String::new()),
        PhaseKind::Store => store(view, phase, block),
    };
    Description { verb: verb(phase.kind), what, each }
}

fn load(view: &TraceView, phase: &Phase, block: [u32; 3]) -> (String, String) {
    let header = &view.trace.header;
    let [from, to] = phase.ticks;
    let read = view.trace.touched(block, OperationKind::GlobalLoad, from..to);
    // The shared array that each matrix is copied to.
    let mut put: BTreeMap<usize, (&str, HashSet<u64>)> = BTreeMap::new();
    for event in events(view, phase, block) {
        let operation = header.operation(event.tick);
        if operation.kind == OperationKind::SharedStore {
            for (matrix, position) in event.origins.iter().filter_map(|&number| header.position(number)) {
                let array = header.shared[operation.memory as usize].name.as_str();
                put.entry(matrix).or_insert((array, HashSet::new())).1.insert(position);
            }
        }
    }
    let whole = |matrix: usize| {
        let range = read.get(matrix).filter(|read| !read.is_empty()).map(|read| view.range(matrix, read));
        match (range, put.get(&matrix)) {
            (Some(range), Some((array, _))) => Some(format!("{range} → {array}")),
            (Some(range), None) => Some(format!("{range} → registers")),
            (None, Some((array, copies))) => Some(format!("{} → {array}", view.range(matrix, copies))),
            (None, None) => None,
        }
    };
    let parts: Vec<String> = (0..read.len()).filter_map(whole).collect();
    let nothing = "nothing: the tile is out of bounds and filled with zeros";
    let what = if parts.is_empty() { nothing.into() } else { parts.join(", ") };
    (what, each(view, phase, block, OperationKind::GlobalLoad, "reads", "element"))
}

fn wait(view: &TraceView, at: usize) -> String {
    let header = &view.trace.header;
    let phases = &header.phases;
    let does = |at: Option<usize>| at.and_then(|at| phases.get(at)).map(|phase| phase.kind);
    let copies =
        (phases[at].ticks[0]..phases[at].ticks[1]).any(|tick| header.operation(tick).kind == OperationKind::Wait);
    match (does(at.checked_sub(1)), does(Some(at + 1))) {
        (_, _) if copies => "until the copies have arrived and are visible to all threads".into(),
        (Some(PhaseKind::Load), _) => "until every thread has stored its elements: other threads read them next".into(),
        (Some(PhaseKind::Multiply), Some(PhaseKind::Multiply)) => {
            "for nothing: no thread writes elements that others still read".into()
        }
        (Some(PhaseKind::Multiply), Some(PhaseKind::Slide | PhaseKind::Load)) => {
            "until no thread reads these tiles any more: the next loads overwrite them".into()
        }
        (Some(PhaseKind::Multiply), _) if header.filter.steps.is_none() => {
            "until no thread reads these tiles any more; no load follows".into()
        }
        (Some(PhaseKind::Multiply), _) => "until no thread reads these tiles any more".into(),
        _ => "until every thread has arrived".into(),
    }
}

fn multiply(view: &TraceView, phase: &Phase, block: [u32; 3]) -> (String, String) {
    let header = &view.trace.header;
    let operations = || events(view, phase, block).map(|event| header.operation(event.tick));
    if let Some(matrix) = operations().find(|operation| operation.kind == OperationKind::Matrix) {
        return (format!("Tensor Cores accumulate products: {}", matrix.name), String::new());
    }
    if !operations().any(|operation| operation.kind == OperationKind::MulAdd) {
        return ("elements are read or computed".into(), String::new());
    }
    let shared = operations().any(|operation| operation.kind == OperationKind::SharedLoad);
    let from = if shared { "products of elements in shared memory" } else { "products of elements in registers" };
    (from.into(), each(view, phase, block, OperationKind::MulAdd, "adds", "product"))
}

fn slide(view: &TraceView, at: usize, block: [u32; 3]) -> String {
    let phases = &view.trace.header.phases;
    let step = phases[at].step;
    let (Some(first), Some(last)) = (
        phases.iter().position(|phase| phase.step == step && phase.kind != PhaseKind::Slide),
        phases.iter().rposition(|phase| phase.step == step),
    ) else {
        return "the tiles advance along k".into();
    };
    let read = view.trace.touched(block, OperationKind::GlobalLoad, phases[first].ticks[0]..phases[last].ticks[1]);
    let to = |matrix: usize, direction: &str| {
        let read = read.get(matrix).filter(|read| !read.is_empty())?;
        Some(format!("{direction} to {}", view.range(matrix, read)))
    };
    let [a, b, _] = view.roles;
    let moves: Vec<String> = a.and_then(|a| to(a, "right")).into_iter().chain(b.and_then(|b| to(b, "down"))).collect();
    let subject = if view.trace.header.shared.is_empty() { "every thread advances" } else { "the tiles advance" };
    if moves.is_empty() { format!("{subject} along k") } else { format!("{subject}: {}", moves.join(", ")) }
}

fn store(view: &TraceView, phase: &Phase, block: [u32; 3]) -> (String, String) {
    let [from, to] = phase.ticks;
    let written = view.trace.touched(block, OperationKind::GlobalStore, from..to);
    let parts: Vec<String> = (0..written.len())
        .filter(|&matrix| !written[matrix].is_empty())
        .map(|matrix| format!("accumulators → {}", view.range(matrix, &written[matrix])))
        .collect();
    if parts.is_empty() {
        return match view.tiles_stored(block) {
            0 => ("nothing: this block writes no element".into(), String::new()),
            1 => ("a tile of accumulators, by TMA".into(), String::new()),
            tiles => (format!("{tiles} tiles of accumulators, by TMA"), String::new()),
        };
    }
    (parts.join(", "), each(view, phase, block, OperationKind::GlobalStore, "writes", "element"))
}

/// The share of a thread, such as `every thread reads 2 elements`.
fn each(view: &TraceView, phase: &Phase, block: [u32; 3], does: OperationKind, verb: &str, noun: &str) -> String {
    let counts = per_thread(view, phase.ticks, block, does);
    let (Some(&least), Some(&most)) = (counts.values().min(), counts.values().max()) else { return String::new() };
    let count = |count: u64| if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") };
    let all = view.threads();
    if counts.len() < all as usize {
        let up_to = if least == most { "" } else { "up to " };
        return format!("{} of {all} threads: each {verb} {up_to}{}", counts.len(), count(most));
    }
    if least == most {
        format!("every thread {verb} {}", count(most))
    } else {
        format!("a thread {verb} up to {}", count(most))
    }
}

/// Operations of a kind by thread.
pub fn per_thread(view: &TraceView, ticks: [u32; 2], block: [u32; 3], does: OperationKind) -> HashMap<u32, u64> {
    let mut counts = HashMap::new();
    for event in view.trace.during(ticks[0]..ticks[1]).iter().filter(|event| event.block == block) {
        if view.trace.header.operation(event.tick).kind == does {
            event.threads().for_each(|thread| *counts.entry(thread).or_insert(0) += 1);
        }
    }
    counts
}

fn events<'a>(view: &'a TraceView, phase: &Phase, block: [u32; 3]) -> impl Iterator<Item = &'a Event> {
    view.trace.during(phase.ticks[0]..phase.ticks[1]).iter().filter(move |event| event.block == block)
}
