//! Descriptions of a step as text: lanes, accesses, costs, synchronization.

use tegula_interp::{Counters, SECTOR_BYTES};
use tegula_ptx::trace::{Request, RequestKind, Space, Step, Sync};

use super::view::FileView;
use crate::report::check::grouped;

/// A lane mask as text: `#` for an active lane, `.` for an inactive one, lane 0 first.
pub fn lane_mask(lanes: u32) -> String {
    (0..32).map(|lane| if lanes >> lane & 1 == 1 { '#' } else { '.' }).collect()
}

/// The number of active lanes of a step as text.
pub fn active(view: &FileView, step: &Step) -> String {
    let lanes = step.lanes();
    let [x, y, z] = view.report.block.map(u64::from);
    let all = (x * y * z).saturating_sub(32 * u64::from(step.warp)).min(32);
    match lanes.count_ones() {
        count if u64::from(count) == all => format!("all {all} lanes"),
        count => format!("{count} of {all} lanes"),
    }
}

/// Describes a step: one line for the accesses to each memory, and for each synchronization.
pub fn describe(view: &FileView, step: &Step) -> Vec<String> {
    let mut lines = Vec::new();
    let mut groups: Vec<(RequestKind, u32)> = Vec::new();
    for event in &step.events {
        for request in &event.requests {
            if !groups.contains(&(request.kind, request.memory)) {
                groups.push((request.kind, request.memory));
            }
        }
    }
    for (kind, memory) in groups {
        lines.push(accesses(view, step, kind, memory));
    }
    lines.extend(step.events.iter().filter_map(|event| event.sync.map(|sync| synchronization(sync, event.lanes))));
    lines
}

fn synchronization(sync: Sync, lanes: u32) -> String {
    match sync {
        Sync::Barrier { threads: [_, all], completes: true, .. } => {
            format!("waits at the barrier, which completes: all {} threads have arrived", grouped(all.into()))
        }
        Sync::Barrier { threads: [arrived, all], .. } => {
            format!("waits at the barrier: {} of {} threads have arrived", grouped(arrived.into()), grouped(all.into()))
        }
        Sync::Warp { mask } => format!("synchronizes {} lanes of the warp", (mask | lanes).count_ones()),
        Sync::Copies => "waits for asynchronous copies".into(),
        Sync::Mbarrier => "arrives at an mbarrier, or initializes it".into(),
    }
}

/// The accesses of one kind to one memory, with their cost.
fn accesses(view: &FileView, step: &Step, kind: RequestKind, memory: u32) -> String {
    let of_group = |request: &&Request| (request.kind, request.memory) == (kind, memory);
    let requests: Vec<&Request> = step.requests().filter(of_group).collect();
    let mut counters = Counters::default();
    let events = step.events.iter().filter(|event| event.requests.iter().any(|request| of_group(&request)));
    events.for_each(|event| counters += event.counters);
    let space = view.memories[memory as usize].space;
    let cost = match space {
        Space::Global => global_cost(&requests, &counters),
        Space::Shared => shared_cost(&counters),
        Space::Constant | Space::Local => format!("{} memory", space.name()),
    };
    let what = pattern(view, &requests);
    let times = if requests.len() > 1 { format!(" in {} requests", requests.len()) } else { String::new() };
    format!("{:<7} {what}{times}: {cost}", kind.verb())
}

/// The cost of requests to global memory, and whether lanes access adjacent elements.
fn global_cost(requests: &[&Request], c: &Counters) -> String {
    let sectors = c.global_load_sectors + c.global_store_sectors;
    let best: u64 = requests.iter().map(|request| fewest_sectors(request)).sum();
    let verdict = match sectors {
        0 => return "no sector".into(),
        _ if sectors <= best => String::from("coalesced"),
        // A misaligned row costs one more sector.
        _ if sectors <= best + requests.len() as u64 => format!("not aligned, at best {}", grouped(best)),
        _ => format!("not coalesced, at best {}", grouped(best)),
    };
    format!("{}, {verdict}", count(sectors, "sector"))
}

/// The number of sectors of a request if its elements were adjacent and aligned.
fn fewest_sectors(request: &Request) -> u64 {
    let mut offsets = request.offsets.clone();
    offsets.sort_unstable();
    offsets.dedup();
    (offsets.len() as u64 * u64::from(request.bytes)).div_ceil(SECTOR_BYTES).max(1)
}

fn shared_cost(c: &Counters) -> String {
    let wavefronts = c.shared_load_wavefronts + c.shared_store_wavefronts + c.shared_copy_wavefronts;
    let conflicts = match c.shared_bank_conflicts {
        0 => "no bank conflict".into(),
        conflicts => count(conflicts, "bank conflict"),
    };
    format!("{}, {conflicts}", count(wavefronts, "wavefront"))
}

fn count(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{} {noun}s", grouped(count)) }
}

/// Describes the elements that requests access: one, a range, every n-th one, or the first and the
/// last. A single request is described with values.
fn pattern(view: &FileView, requests: &[&Request]) -> String {
    let memory = requests[0].memory;
    let size = u64::from(view.memories[memory as usize].ty.size().max(1));
    let mut all: Vec<(u64, &[u8])> = Vec::new();
    for (request, (_, offset, data)) in requests.iter().flat_map(|of| of.accesses().map(move |access| (of, access))) {
        all.extend(view.elements(request, offset).zip(data.chunks(size as usize)));
    }
    all.sort_unstable_by_key(|(element, _)| *element);
    all.dedup_by_key(|(element, _)| *element);
    let element = |at: usize| view.element(memory, all[at].0 * size);
    let value = |at: usize| view.value(memory, all[at].1);
    if all.is_empty() {
        return view.memories[memory as usize].name.clone();
    }
    let stride = all.get(1).map_or(1, |second| second.0 - all[0].0);
    let even = all.windows(2).all(|pair| pair[1].0 - pair[0].0 == stride);
    let lanes = requests.iter().fold(0, |lanes, request| lanes | request.lanes).count_ones();
    let last = all.len() - 1;
    let elements = match all.len() {
        1 if lanes > 1 => format!("{}, the same in {lanes} lanes", element(0)),
        1 => element(0),
        2 => format!("{}, {}", element(0), element(1)),
        elements if even && stride == 1 => format!("{} to {}, {elements} elements", element(0), element(last)),
        elements if even => format!("{}, {} to {}, {elements} elements", element(0), element(1), element(last)),
        elements => format!("{elements} elements from {} to {}", element(0), element(last)),
    };
    let values = match all.len() {
        _ if requests.len() > 1 => return elements,
        1 => value(0),
        2 => format!("{}, {}", value(0), value(1)),
        _ => format!("{}, {} … {}", value(0), value(1), value(last)),
    };
    format!("{elements} = {values}")
}
