//! What an act does, in words.

use std::collections::{BTreeMap, HashMap, HashSet};

use tegula_explain::trace::{Act, Acts, Does, Event};

use super::stage::Stage;

/// What an act does in a block.
pub struct Told {
    /// `load`, `wait` and so on.
    pub verb: &'static str,
    /// What happens.
    pub what: String,
    /// What single threads have to do with it; may be empty.
    pub each: String,
}

/// An act's name.
pub fn verb(does: Acts) -> &'static str {
    match does {
        Acts::Load => "load",
        Acts::Wait => "wait",
        Acts::Multiply => "multiply",
        Acts::Slide => "slide",
        Acts::Store => "store",
    }
}

/// Tells of the act at a position among the acts.
pub fn tell(stage: &Stage, at: usize, block: [u32; 3]) -> Told {
    let Some(act) = stage.trace.header.acts.get(at) else {
        return Told { verb: "", what: String::new(), each: String::new() };
    };
    let (what, each) = match act.does {
        Acts::Load => load(stage, act, block),
        Acts::Wait => (wait(stage, at), String::new()),
        Acts::Multiply => multiply(stage, act, block),
        Acts::Slide => (slide(stage, at, block), String::new()),
        Acts::Store => store(stage, act, block),
    };
    Told { verb: verb(act.does), what, each }
}

fn load(stage: &Stage, act: &Act, block: [u32; 3]) -> (String, String) {
    let header = &stage.trace.header;
    let [from, to] = act.moments;
    let read = stage.trace.touched(block, Does::GlobalLoad, from..to);
    // Where copies of each matrix are put.
    let mut put: BTreeMap<usize, (&str, HashSet<u64>)> = BTreeMap::new();
    for event in events(stage, act, block) {
        let operation = header.operation(event.moment);
        if operation.does == Does::SharedStore {
            for (matrix, position) in event.from.iter().filter_map(|&number| header.position(number)) {
                let array = header.shared[operation.memory as usize].name.as_str();
                put.entry(matrix).or_insert((array, HashSet::new())).1.insert(position);
            }
        }
    }
    let whole = |matrix: usize| {
        let range = read.get(matrix).filter(|read| !read.is_empty()).map(|read| stage.range(matrix, read));
        match (range, put.get(&matrix)) {
            (Some(range), Some((array, _))) => Some(format!("{range} → {array}")),
            (Some(range), None) => Some(format!("{range} → registers")),
            (None, Some((array, copies))) => Some(format!("{} → {array}", stage.range(matrix, copies))),
            (None, None) => None,
        }
    };
    let parts: Vec<String> = (0..read.len()).filter_map(whole).collect();
    let nothing = "nothing: all of it lies beyond the edges, and zeros are put in its place";
    let what = if parts.is_empty() { nothing.into() } else { parts.join(", ") };
    (what, each(stage, act, block, Does::GlobalLoad, "reads", "element"))
}

fn wait(stage: &Stage, at: usize) -> String {
    let header = &stage.trace.header;
    let acts = &header.acts;
    let does = |at: Option<usize>| at.and_then(|at| acts.get(at)).map(|act| act.does);
    let copies = (acts[at].moments[0]..acts[at].moments[1]).any(|moment| header.operation(moment).does == Does::Wait);
    match (does(at.checked_sub(1)), does(Some(at + 1))) {
        (_, _) if copies => "until the copies have arrived, for all threads to see".into(),
        (Some(Acts::Load), _) => "until every thread has put its elements there: others are about to read them".into(),
        (Some(Acts::Multiply), Some(Acts::Multiply)) => "for nothing: nobody writes what others still read".into(),
        (Some(Acts::Multiply), Some(Acts::Slide | Acts::Load)) => {
            "until no thread needs these tiles any more: the next loads overwrite them".into()
        }
        (Some(Acts::Multiply), _) if header.sample.steps.is_none() => {
            "until no thread needs these tiles any more; no load follows".into()
        }
        (Some(Acts::Multiply), _) => "until no thread needs these tiles any more".into(),
        _ => "until every thread is here".into(),
    }
}

fn multiply(stage: &Stage, act: &Act, block: [u32; 3]) -> (String, String) {
    let header = &stage.trace.header;
    let operations = || events(stage, act, block).map(|event| header.operation(event.moment));
    if let Some(matrix) = operations().find(|operation| operation.does == Does::Matrix) {
        return (format!("matrix units add products to sums: {}", matrix.name), String::new());
    }
    if !operations().any(|operation| operation.does == Does::MulAdd) {
        return ("elements are read or computed with".into(), String::new());
    }
    let shared = operations().any(|operation| operation.does == Does::SharedLoad);
    let from = if shared { "products of what lies in shared memory" } else { "products of what lies in registers" };
    (from.into(), each(stage, act, block, Does::MulAdd, "adds", "product"))
}

fn slide(stage: &Stage, at: usize, block: [u32; 3]) -> String {
    let acts = &stage.trace.header.acts;
    let step = acts[at].step;
    let (Some(first), Some(last)) = (
        acts.iter().position(|act| act.step == step && act.does != Acts::Slide),
        acts.iter().rposition(|act| act.step == step),
    ) else {
        return "the tiles move on along k".into();
    };
    let read = stage.trace.touched(block, Does::GlobalLoad, acts[first].moments[0]..acts[last].moments[1]);
    let to = |matrix: usize, way: &str| {
        let read = read.get(matrix).filter(|read| !read.is_empty())?;
        Some(format!("{way} to {}", stage.range(matrix, read)))
    };
    let [a, b, _] = stage.roles;
    let moves: Vec<String> = a.and_then(|a| to(a, "right")).into_iter().chain(b.and_then(|b| to(b, "down"))).collect();
    let who = if stage.trace.header.shared.is_empty() { "every thread moves on" } else { "the tiles move on" };
    if moves.is_empty() { format!("{who} along k") } else { format!("{who}: {}", moves.join(", ")) }
}

fn store(stage: &Stage, act: &Act, block: [u32; 3]) -> (String, String) {
    let [from, to] = act.moments;
    let written = stage.trace.touched(block, Does::GlobalStore, from..to);
    let parts: Vec<String> = (0..written.len())
        .filter(|&matrix| !written[matrix].is_empty())
        .map(|matrix| format!("sums → {}", stage.range(matrix, &written[matrix])))
        .collect();
    if parts.is_empty() {
        return match stage.tiles_stored(block) {
            0 => ("nothing: this block writes no element".into(), String::new()),
            1 => ("a tile of sums, by the copy engine".into(), String::new()),
            tiles => (format!("{tiles} tiles of sums, by the copy engine"), String::new()),
        };
    }
    (parts.join(", "), each(stage, act, block, Does::GlobalStore, "writes", "element"))
}

/// `every thread reads 2 elements`.
fn each(stage: &Stage, act: &Act, block: [u32; 3], does: Does, verb: &str, noun: &str) -> String {
    let counts = per_thread(stage, act.moments, block, does);
    let (Some(&least), Some(&most)) = (counts.values().min(), counts.values().max()) else { return String::new() };
    let count = |count: u64| if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") };
    let all = stage.threads();
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

/// How often each thread takes part in operations of a kind.
pub fn per_thread(stage: &Stage, moments: [u32; 2], block: [u32; 3], does: Does) -> HashMap<u32, u64> {
    let mut counts = HashMap::new();
    for event in stage.trace.during(moments[0]..moments[1]).iter().filter(|event| event.block == block) {
        if stage.trace.header.operation(event.moment).does == does {
            event.threads().for_each(|thread| *counts.entry(thread).or_insert(0) += 1);
        }
    }
    counts
}

fn events<'a>(stage: &'a Stage, act: &Act, block: [u32; 3]) -> impl Iterator<Item = &'a Event> {
    stage.trace.during(act.moments[0]..act.moments[1]).iter().filter(move |event| event.block == block)
}
