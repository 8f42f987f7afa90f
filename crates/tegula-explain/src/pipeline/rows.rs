//! What happened as rows: what each stage holds, what each warp does, and who waited for whom.

use std::collections::{BTreeMap, BTreeSet};

use super::replay::{By, Fill, Replay, Waited, Work};
use super::{Costs, Kind, Row, Span, State, Timeline, Wait, Whom};
use crate::trace::{Header, Spot};

/// Warps of a warpgroup.
const GROUP: u32 = 4;

/// What a replay shows of its block.
pub(super) fn timeline(header: &Header, replay: &Replay, costs: Costs) -> Timeline {
    let (cast, stages) = (cast(replay), stages(replay));
    let own = |kind| cast.iter().filter(move |member| (member.kind, member.block) == (kind, replay.block));
    let columns = last_column(replay);
    let arrays_of_barriers: BTreeSet<u32> = stages.keys().map(|[array, _]| *array).collect();
    let mut rows: Vec<Row> = own(Kind::Producer).map(|member| member.row(replay)).collect();
    rows.extend(stages.iter().map(|(&[array, index], fills)| {
        let name = match arrays_of_barriers.len() {
            1 => format!("stage {index}"),
            _ => format!("{}[{index}]", name(header, array)),
        };
        stage(name, fills, replay, columns)
    }));
    rows.extend(own(Kind::Consumer).chain(own(Kind::Stores)).map(|member| member.row(replay)));
    let arrays: BTreeSet<u32> = stages.values().flatten().flat_map(|fill| &fill.tiles).map(|tile| tile[0]).collect();
    let arrays = arrays.into_iter().map(|array| name(header, array)).collect();
    let waits = cast
        .iter()
        .filter(|member| member.block == replay.block)
        .flat_map(|member| waits(member, header, replay, &cast))
        .collect();
    Timeline { costs, columns, rows, waits, arrays, stuck: replay.stuck }
}

fn name(header: &Header, array: u32) -> String {
    header.shared.get(array as usize).map_or_else(String::new, |array| array.name.clone())
}

/// One who does something: a warp that asks for copies, a warpgroup that multiplies and sends, or stores.
struct Member {
    kind: Kind,
    name: String,
    block: u32,
    /// Positions among the warps of the replay. What the first does, all do.
    warps: Vec<usize>,
    numbers: [u32; 2],
}

/// All of them, in every block of the cluster.
fn cast(replay: &Replay) -> Vec<Member> {
    let of = |work: &[&[Work]], size: u32| -> BTreeSet<(u32, u32)> {
        let warps = work.iter().copied().flatten().map(|work| replay.warps[work.warp]);
        warps.map(|(block, warp)| (block, warp / size)).collect()
    };
    let kinds = [
        (Kind::Producer, "producer", of(&[&replay.asks], 1), 1),
        (Kind::Consumer, "consumer", of(&[&replay.products, &replay.sends], GROUP), GROUP),
        (Kind::Stores, "stores", of(&[&replay.stores], GROUP), GROUP),
    ];
    let mut cast = Vec::new();
    for (kind, role, all, size) in kinds {
        for &(block, which) in &all {
            let alike: Vec<u32> = all.iter().filter(|(other, _)| *other == block).map(|(_, which)| *which).collect();
            let position = alike.iter().position(|other| *other == which).unwrap_or(0);
            let name = if alike.len() == 1 { role.to_owned() } else { format!("{role} {position}") };
            let is_of = |&at: &usize| (replay.warps[at].0, replay.warps[at].1 / size) == (block, which);
            let warps = (0..replay.warps.len()).filter(is_of).collect();
            cast.push(Member { kind, name, block, warps, numbers: [which * size, (which + 1) * size - 1] });
        }
    }
    cast
}

impl Member {
    /// What it does: its work, and waits beside which it has none.
    fn row(&self, replay: &Replay) -> Row {
        let mine = |work: &&Work| match self.kind {
            // Any thread of the warpgroup may have had it stored.
            Kind::Stores => self.warps.contains(&work.warp),
            _ => self.warps.first() == Some(&work.warp),
        };
        let done: &[(State, &[Work])] = match self.kind {
            Kind::Producer => &[(State::Asking, &replay.asks)],
            Kind::Stores => &[(State::Storing, &replay.stores)],
            Kind::Consumer => &[(State::Multiplying, &replay.products), (State::Sending, &replay.sends)],
            Kind::Stage => &[],
        };
        let done = done.iter().flat_map(|&(state, work)| {
            work.iter().filter(mine).zip(0..).map(move |(work, before)| Span {
                state,
                columns: work.columns,
                number: if matches!(state, State::Sending | State::Storing) { before } else { work.turn },
            })
        });
        let waits = self.waits(replay).filter(|_| self.kind != Kind::Stores).filter(|wait| wait.took() > 0);
        let waits = waits.map(|wait| Span { state: State::Waiting, columns: wait.columns, number: 0 });
        let mut spans: Vec<Span> = done.chain(waits).collect();
        spans.sort_by_key(|span| span.columns);
        Row { kind: self.kind, name: self.name.clone(), warps: Some(self.numbers), spans }
    }

    fn waits<'r>(&'r self, replay: &'r Replay) -> impl Iterator<Item = &'r Waited> {
        replay.waits.iter().filter(|wait| self.warps.first() == Some(&wait.warp))
    }
}

impl Waited {
    fn took(&self) -> u32 {
        self.columns[1] - self.columns[0]
    }
}

/// The fills of each stage of the block, by the barrier that counts them, in order.
fn stages(replay: &Replay) -> BTreeMap<Spot, Vec<&Fill>> {
    let mut stages: BTreeMap<Spot, Vec<&Fill>> = BTreeMap::new();
    for fill in replay.fills.iter().filter(|fill| fill.block == replay.block) {
        stages.entry(fill.barrier).or_default().push(fill);
    }
    stages
}

/// The column after the last in which something ends.
fn last_column(replay: &Replay) -> u32 {
    let here = |work: &&Work| replay.warps[work.warp].0 == replay.block;
    let work = [&replay.asks, &replay.products, &replay.sends, &replay.stores].into_iter().flatten().filter(here);
    let fills = replay.fills.iter().filter(|fill| fill.block == replay.block);
    let known = |end: &u32| *end < u32::MAX;
    let ends = fills.flat_map(|fill| [fill.columns[1], fill.handed_back.unwrap_or(0)]).filter(known);
    work.map(|work| work.columns[1]).chain(ends).max().unwrap_or(0)
}

/// What a stage holds: from each fill until it is handed back.
fn stage(name: String, fills: &[&Fill], replay: &Replay, columns: u32) -> Row {
    let mut spans = Vec::new();
    for (at, fill) in fills.iter().enumerate() {
        let next = fills.get(at + 1).map_or(columns, |next| next.columns[0]);
        let mut span = |state, from: u32, to: u32| {
            if from < to {
                spans.push(Span { state, columns: [from, to], number: fill.turn });
            }
        };
        let [asked, come] = fill.columns.map(|column| column.min(columns));
        span(State::Filling, asked, come);
        let mut at = come;
        for [from, to] in reads(fill, replay, asked..next) {
            span(State::Full, at, from);
            span(State::Multiplying, from, to);
            at = to;
        }
        let state = if at == come { State::Full } else { State::Used };
        span(state, at, fill.handed_back.unwrap_or(at));
    }
    Row { kind: Kind::Stage, name, warps: None, spans }
}

/// When what a fill has brought is multiplied, by anybody.
fn reads(fill: &Fill, replay: &Replay, during: std::ops::Range<u32>) -> Vec<[u32; 2]> {
    let of_fill = |work: &&Work| {
        replay.warps[work.warp].0 == fill.block
            && during.contains(&work.columns[0])
            && work.tiles.iter().any(|tile| fill.tiles.contains(tile))
    };
    let all: BTreeSet<[u32; 2]> = replay.products.iter().filter(of_fill).map(|work| work.columns).collect();
    let mut merged: Vec<[u32; 2]> = Vec::new();
    for [from, to] in all {
        match merged.last_mut() {
            Some(last) if from <= last[1] => last[1] = last[1].max(to),
            _ => merged.push([from, to]),
        }
    }
    merged
}

/// What a member waited for: of each array of barriers, by whom it waited for.
fn waits(member: &Member, header: &Header, replay: &Replay, cast: &[Member]) -> Vec<Wait> {
    let mut told: BTreeMap<(Option<u32>, BTreeSet<Whom>), [u32; 2]> = BTreeMap::new();
    let array = |wait: &Waited| wait.barrier.map(|[array, _]| array);
    // Who stores is whoever multiplies.
    for wait in member.waits(replay).filter(|_| member.kind != Kind::Stores).filter(|wait| wait.took() > 0) {
        let whom = wait.by.iter().map(|by| whom(*by, replay, cast)).collect();
        let [times, columns] = told.entry((array(wait), whom)).or_default();
        *times += 1;
        *columns += wait.took();
    }
    let all = |of| member.waits(replay).filter(|wait| array(wait) == of).count() as u32;
    told.into_iter()
        .map(|((of, whom), [times, columns])| Wait {
            who: member.name.clone(),
            at: of.map(|array| name(header, array)),
            of: whom.into_iter().collect(),
            times,
            all: all(of),
            columns,
        })
        .collect()
}

fn whom(by: By, replay: &Replay, cast: &[Member]) -> Whom {
    let warp = match by {
        By::Copies => return Whom::Copies,
        By::Stores => return Whom::Stores,
        By::Sums => return Whom::Sums,
        By::Warp(warp) => warp,
    };
    let (block, number) = replay.warps[warp];
    let name = cast.iter().find(|member| member.kind != Kind::Stores && member.warps.contains(&warp));
    let name = name.map_or_else(|| format!("warp {number}"), |member| member.name.clone());
    Whom::Row(if block == replay.block { name } else { format!("{name} of block {block} of the cluster") })
}
