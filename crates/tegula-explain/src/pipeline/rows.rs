//! A replay as rows: spans of stages and warps, and the waits of warps.

use std::collections::{BTreeMap, BTreeSet};

use super::replay::{Cause, Interval, Replay, StageFill, WaitInterval};
use super::{Costs, Row, RowKind, Span, State, Timeline, Wait, WaitReason};
use crate::trace::{Header, SharedSlot};

/// Warps of a warpgroup.
const WARPGROUP: u32 = 4;

/// The timeline of the replayed block.
pub(super) fn timeline(header: &Header, replay: &Replay, costs: Costs) -> Timeline {
    let (workers, stages) = (workers(replay), stages(replay));
    let own = |kind| workers.iter().filter(move |worker| (worker.kind, worker.block) == (kind, replay.block));
    let columns = last_column(replay);
    let arrays_of_barriers: BTreeSet<u32> = stages.keys().map(|[array, _]| *array).collect();
    let mut rows: Vec<Row> = own(RowKind::Producer).map(|worker| worker.row(replay)).collect();
    rows.extend(stages.iter().map(|(&[array, index], fills)| {
        let name = match arrays_of_barriers.len() {
            1 => format!("stage {index}"),
            _ => format!("{}[{index}]", name(header, array)),
        };
        stage(name, fills, replay, columns)
    }));
    rows.extend(own(RowKind::Consumer).chain(own(RowKind::Stores)).map(|worker| worker.row(replay)));
    let arrays: BTreeSet<u32> = stages.values().flatten().flat_map(|fill| &fill.tiles).map(|tile| tile[0]).collect();
    let arrays = arrays.into_iter().map(|array| name(header, array)).collect();
    let waits = workers
        .iter()
        .filter(|worker| worker.block == replay.block)
        .flat_map(|worker| waits(worker, header, replay, &workers))
        .collect();
    Timeline { costs, columns, rows, waits, arrays, deadlocked: replay.deadlocked }
}

fn name(header: &Header, array: u32) -> String {
    header.shared.get(array as usize).map_or_else(String::new, |array| array.name.clone())
}

/// A producer warp, a consumer warpgroup, or the stores of a warpgroup.
struct Worker {
    kind: RowKind,
    name: String,
    block: u32,
    /// Positions in [`Replay::warps`]; all of them run the same operations.
    warps: Vec<usize>,
    numbers: [u32; 2],
}

/// The workers of all blocks of the cluster.
fn workers(replay: &Replay) -> Vec<Worker> {
    let of = |intervals: &[&[Interval]], size: u32| -> BTreeSet<(u32, u32)> {
        let warps = intervals.iter().copied().flatten().map(|interval| replay.warps[interval.warp]);
        warps.map(|(block, warp)| (block, warp / size)).collect()
    };
    let kinds = [
        (RowKind::Producer, "producer", of(&[&replay.issues], 1), 1),
        (RowKind::Consumer, "consumer", of(&[&replay.products, &replay.sends], WARPGROUP), WARPGROUP),
        (RowKind::Stores, "stores", of(&[&replay.stores], WARPGROUP), WARPGROUP),
    ];
    let mut workers = Vec::new();
    for (kind, role, all, size) in kinds {
        for &(block, group) in &all {
            let groups: Vec<u32> = all.iter().filter(|(other, _)| *other == block).map(|(_, group)| *group).collect();
            let position = groups.iter().position(|other| *other == group).unwrap_or(0);
            let name = if groups.len() == 1 { role.to_owned() } else { format!("{role} {position}") };
            let is_of = |&at: &usize| (replay.warps[at].0, replay.warps[at].1 / size) == (block, group);
            let warps = (0..replay.warps.len()).filter(is_of).collect();
            workers.push(Worker { kind, name, block, warps, numbers: [group * size, (group + 1) * size - 1] });
        }
    }
    workers
}

impl Worker {
    /// The row: operations, and waits with nothing else in flight.
    fn row(&self, replay: &Replay) -> Row {
        let is_own = |interval: &&Interval| match self.kind {
            // Any warp of the warpgroup may issue the store.
            RowKind::Stores => self.warps.contains(&interval.warp),
            _ => self.warps.first() == Some(&interval.warp),
        };
        let operations: &[(State, &[Interval])] = match self.kind {
            RowKind::Producer => &[(State::Issuing, &replay.issues)],
            RowKind::Stores => &[(State::Storing, &replay.stores)],
            RowKind::Consumer => &[(State::Multiplying, &replay.products), (State::Sending, &replay.sends)],
            RowKind::Stage => &[],
        };
        let operations = operations.iter().flat_map(|&(state, intervals)| {
            intervals.iter().filter(is_own).zip(0..).map(move |(interval, number)| Span {
                state,
                columns: interval.columns,
                number: if matches!(state, State::Sending | State::Storing) { number } else { interval.step },
            })
        });
        let waits = self.waits(replay).filter(|_| self.kind != RowKind::Stores).filter(|wait| wait.length() > 0);
        let waits = waits.map(|wait| Span { state: State::Waiting, columns: wait.columns, number: 0 });
        let mut spans: Vec<Span> = operations.chain(waits).collect();
        spans.sort_by_key(|span| span.columns);
        Row { kind: self.kind, name: self.name.clone(), warps: Some(self.numbers), spans }
    }

    fn waits<'r>(&'r self, replay: &'r Replay) -> impl Iterator<Item = &'r WaitInterval> {
        replay.waits.iter().filter(|wait| self.warps.first() == Some(&wait.warp))
    }
}

impl WaitInterval {
    fn length(&self) -> u32 {
        self.columns[1] - self.columns[0]
    }
}

/// The fills of each stage of the block in order, by full barrier.
fn stages(replay: &Replay) -> BTreeMap<SharedSlot, Vec<&StageFill>> {
    let mut stages: BTreeMap<SharedSlot, Vec<&StageFill>> = BTreeMap::new();
    for fill in replay.fills.iter().filter(|fill| fill.block == replay.block) {
        stages.entry(fill.barrier).or_default().push(fill);
    }
    stages
}

/// The number of columns: the end of the last operation or fill.
fn last_column(replay: &Replay) -> u32 {
    let here = |interval: &&Interval| replay.warps[interval.warp].0 == replay.block;
    let intervals =
        [&replay.issues, &replay.products, &replay.sends, &replay.stores].into_iter().flatten().filter(here);
    let fills = replay.fills.iter().filter(|fill| fill.block == replay.block);
    let known = |end: &u32| *end < u32::MAX;
    let ends = fills.flat_map(|fill| [fill.columns[1], fill.released.unwrap_or(0)]).filter(known);
    intervals.map(|interval| interval.columns[1]).chain(ends).max().unwrap_or(0)
}

/// The row of a stage: from each fill to its release.
fn stage(name: String, fills: &[&StageFill], replay: &Replay, columns: u32) -> Row {
    let mut spans = Vec::new();
    for (at, fill) in fills.iter().enumerate() {
        let next = fills.get(at + 1).map_or(columns, |next| next.columns[0]);
        let mut span = |state, from: u32, to: u32| {
            if from < to {
                spans.push(Span { state, columns: [from, to], number: fill.step });
            }
        };
        let [issued, arrived] = fill.columns.map(|column| column.min(columns));
        span(State::Filling, issued, arrived);
        let mut at = arrived;
        for [from, to] in reads(fill, replay, issued..next) {
            span(State::Full, at, from);
            span(State::Multiplying, from, to);
            at = to;
        }
        let state = if at == arrived { State::Full } else { State::Consumed };
        span(state, at, fill.released.unwrap_or(at));
    }
    Row { kind: RowKind::Stage, name, warps: None, spans }
}

/// The merged column ranges in which consumers multiply the tiles of a fill.
fn reads(fill: &StageFill, replay: &Replay, during: std::ops::Range<u32>) -> Vec<[u32; 2]> {
    let of_fill = |interval: &&Interval| {
        replay.warps[interval.warp].0 == fill.block
            && during.contains(&interval.columns[0])
            && interval.tiles.iter().any(|tile| fill.tiles.contains(tile))
    };
    let all: BTreeSet<[u32; 2]> = replay.products.iter().filter(of_fill).map(|interval| interval.columns).collect();
    let mut merged: Vec<[u32; 2]> = Vec::new();
    for [from, to] in all {
        match merged.last_mut() {
            Some(last) if from <= last[1] => last[1] = last[1].max(to),
            _ => merged.push([from, to]),
        }
    }
    merged
}

/// The waits of a worker, by array of barriers and reasons.
fn waits(worker: &Worker, header: &Header, replay: &Replay, workers: &[Worker]) -> Vec<Wait> {
    let mut waits: BTreeMap<(Option<u32>, BTreeSet<WaitReason>), [u32; 2]> = BTreeMap::new();
    let array = |wait: &WaitInterval| wait.barrier.map(|[array, _]| array);
    // The stores row has the warps of a consumer, whose waits are counted there.
    for wait in worker.waits(replay).filter(|_| worker.kind != RowKind::Stores).filter(|wait| wait.length() > 0) {
        let reasons = wait.causes.iter().map(|cause| reason(*cause, replay, workers)).collect();
        let [count, columns] = waits.entry((array(wait), reasons)).or_default();
        *count += 1;
        *columns += wait.length();
    }
    let total = |of| worker.waits(replay).filter(|wait| array(wait) == of).count() as u32;
    waits
        .into_iter()
        .map(|((of, reasons), [count, columns])| Wait {
            row: worker.name.clone(),
            barrier: of.map(|array| name(header, array)),
            reasons: reasons.into_iter().collect(),
            count,
            total: total(of),
            columns,
        })
        .collect()
}

/// The reason of a wait: of a cause that is a warp, the name of its row.
fn reason(cause: Cause, replay: &Replay, workers: &[Worker]) -> WaitReason {
    let warp = match cause {
        Cause::Copies => return WaitReason::Copies,
        Cause::Stores => return WaitReason::Stores,
        Cause::PartialSums => return WaitReason::PartialSums,
        Cause::Warp(warp) => warp,
    };
    let (block, number) = replay.warps[warp];
    let name = workers.iter().find(|worker| worker.kind != RowKind::Stores && worker.warps.contains(&warp));
    let name = name.map_or_else(|| format!("warp {number}"), |worker| worker.name.clone());
    WaitReason::Row(if block == replay.block { name } else { format!("{name} of block {block} of the cluster") })
}
