//! The explanation of a trace as text.

use std::io::{self, Write};

use tegula_explain::trace::{Finding, OperationKind};

use super::describe::{describe, per_thread, verb};
use super::formula::{Formula, joined};
use super::text::{WIDTH, at, launch, wrapped};
use super::timeline::timeline;
use super::trace_view::TraceView;
use crate::failure::one_line;
use crate::report::check::{Counters, print_counters};

/// Steps shown at the start of a long trace, and at its end.
const SHOWN_STEPS: [u32; 2] = [2, 1];

/// Prints the explanation of one block and one of its threads.
pub fn print(out: &mut impl Write, view: &TraceView, block: [u32; 3], thread: [u32; 3]) -> io::Result<()> {
    let mut lines = head(view, block);
    lines.push(String::new());
    lines.extend(phases(view, block));
    lines.push(String::new());
    lines.extend(timeline(view, block));
    lines.extend(sum(view, block, thread));
    lines.push(String::new());
    for line in lines.iter().flat_map(|line| wrapped(line, WIDTH)) {
        writeln!(out, "{}", one_line(&line))?;
    }
    costs(out, view)
}

fn head(view: &TraceView, block: [u32; 3]) -> Vec<String> {
    let header = &view.trace.header;
    let mut lines = vec![title(view)];
    lines.push(format!("  {}", launch(header.grid, header.block)));
    for array in &header.shared {
        let dims: Vec<String> = array.dims.iter().map(u32::to_string).collect();
        lines.push(format!("  shared memory of a block: {} {} {}", array.name, dims.join("×"), array.ty));
    }
    let all = [0, header.ticks.len() as u32];
    let most = |does| per_thread(view, all, block, does).into_values().max().unwrap_or(0);
    let (reads, writes) = (most(OperationKind::GlobalLoad), most(OperationKind::GlobalStore));
    let depth = view.roles[0].map_or(0, |a| header.matrices[a].shape[2]);
    let in_part = header.filter.steps.is_some();
    if !in_part && writes > 0 {
        let untiled = 2 * depth * writes;
        let saved = match header.shared.is_empty() {
            true => String::from("tiles in shared memory would save loads"),
            false => format!("without tiles it would load {untiled}"),
        };
        lines.push(format!("  a thread loads {reads} elements of global memory and stores {writes}; {saved}"));
    }
    lines.extend(sample(view));
    lines
}

/// The title, such as `tiled_f32_2: C = A·B, 4×4 = 4×4 · 4×4`.
pub fn title(view: &TraceView) -> String {
    let header = &view.trace.header;
    let shape = |matrix: usize| {
        let [batches, rows, cols] = header.matrices[matrix].shape;
        if batches > 1 { format!("{batches}×{rows}×{cols}") } else { format!("{rows}×{cols}") }
    };
    match view.roles {
        [Some(a), Some(b), Some(c)] => {
            let [name_a, name_b, name_c] = [a, b, c].map(|matrix| view.matrix_name(matrix));
            format!("{}: {name_c} = {name_a}·{name_b}, {} = {} · {}", header.kernel, shape(c), shape(a), shape(b))
        }
        _ => header.kernel.clone(),
    }
}

/// The part of the launch that was recorded.
fn sample(view: &TraceView) -> Vec<String> {
    let sample = &view.trace.header.filter;
    let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let mut parts = Vec::new();
    if let Some(blocks) = &sample.blocks {
        let names: Vec<String> = blocks.iter().take(4).map(|block| at(*block)).collect();
        let more = if blocks.len() > 4 { " …" } else { "" };
        parts.push(format!("blocks {}{more}", names.join("; ")));
    }
    if let Some(warps) = &sample.warps {
        parts.push(format!("warps {}", list(warps)));
    }
    if let Some([from, to]) = sample.steps {
        parts.push(format!("steps {from}..{to}"));
    }
    if parts.is_empty() { Vec::new() } else { vec![format!("  recorded: {}", parts.join(", "))] }
}

fn phases(view: &TraceView, block: [u32; 3]) -> Vec<String> {
    let phases = &view.trace.header.phases;
    let steps: Vec<u32> = phases.iter().filter_map(|phase| phase.step).collect();
    let (first, last) = (steps.iter().min().copied().unwrap_or(0), steps.iter().max().copied().unwrap_or(0));
    let is_shown = |step: u32| step < first + SHOWN_STEPS[0] || step + SHOWN_STEPS[1] > last || last - first < 4;
    let mut lines = vec![format!("block {}", at(block))];
    let mut left_out = 0;
    for (position, phase) in phases.iter().enumerate() {
        if phase.step.is_some_and(|step| !is_shown(step)) {
            left_out = last - first + 1 - SHOWN_STEPS.iter().sum::<u32>();
            continue;
        }
        if std::mem::take(&mut left_out) > 0 {
            lines.push(format!("  … {} more steps like these", last - first + 1 - SHOWN_STEPS.iter().sum::<u32>()));
        }
        let description = describe(view, position, block);
        let when = phase.step.map_or_else(
            || {
                if phases[..position].iter().any(|phase| phase.step.is_some()) {
                    "end".into()
                } else {
                    "before".to_owned()
                }
            },
            |step| format!("step {step}"),
        );
        let each = if description.each.is_empty() { String::new() } else { format!("   {}", description.each) };
        lines.push(format!("  {:<8} {:<9} {}{each}", format!("{when}:"), description.verb, description.what));
    }
    lines
}

/// The element that the thread writes: with names, with values, and by steps.
fn sum(view: &TraceView, block: [u32; 3], thread: [u32; 3]) -> Vec<String> {
    let formula = Formula::of(view, block, thread);
    let subject = format!("thread {} of block {}", at(thread), at(block));
    // Producer threads store nothing, and neither do consumers where TMA stores C.
    if formula.name.is_none() && !view.trace.header.pipeline.is_empty() {
        let why = match view.tiles_stored(block) {
            0 => "other threads store its block's accumulators",
            _ => "TMA stores C tile by tile",
        };
        return vec![format!("{subject} writes nothing: {why}")];
    }
    let Some(name) = &formula.name else {
        return vec![format!("{subject} writes nothing: its element is out of bounds, or was not recorded")];
    };
    let result = formula.stored.as_ref().map_or("?", |(number, _)| number);
    if formula.products.is_empty() {
        return vec![
            format!("{subject} writes {name} = {result}"),
            "  Tensor Cores compute its products, which are not traced by element".into(),
        ];
    }
    let names: Vec<&str> = formula.products.iter().map(|product| product.names.as_str()).collect();
    let numbers: Vec<&str> = formula.products.iter().map(|product| product.numbers.as_str()).collect();
    let one = format!("  {name} = {} = {} = {result}", names.join(" + "), numbers.join(" + "));
    let mut lines = vec![format!("{subject} writes {name}")];
    if one.chars().count() <= WIDTH {
        lines.push(one);
    } else {
        let room = WIDTH - name.chars().count() - result.chars().count() - 8;
        lines.push(format!("  {name} = {}", joined(&names, 0, room)));
        lines.push(format!("  {:width$} = {} = {result}", "", joined(&numbers, 0, room), width = name.chars().count()));
    }
    lines.extend(by_step(&formula));
    if view.trace.header.filter.steps.is_some() {
        lines.push("  these are the products of the recorded steps; the result has all".into());
    }
    lines
}

fn by_step(formula: &Formula) -> Vec<String> {
    let steps = formula.steps();
    let line = |(step, products): &(Option<u32>, &[super::formula::Product])| {
        let numbers: Vec<&str> = products.iter().map(|product| product.numbers.as_str()).collect();
        let after = products.last().map_or("", |product| &product.sum);
        let when = step.map_or_else(|| "else".into(), |step| format!("step {step}"));
        format!("  {:<8} ({})   accumulator: {after}", format!("{when}:"), joined(&numbers, 0, WIDTH - 50))
    };
    let [first, last] = SHOWN_STEPS.map(|count| count as usize);
    // Steps of one product each, as without tiles, repeat the line above.
    if steps.iter().all(|(_, products)| products.len() == 1) {
        return Vec::new();
    }
    if steps.len() <= first + last + 1 {
        return steps.iter().map(line).collect();
    }
    let between = format!("  … {} more steps", steps.len() - first - last);
    steps[..first].iter().map(line).chain([between]).chain(steps[steps.len() - last..].iter().map(line)).collect()
}

fn costs(out: &mut impl Write, view: &TraceView) -> io::Result<()> {
    let header = &view.trace.header;
    let of = if header.filter.blocks.is_some() { "of the blocks that ran" } else { "of all blocks" };
    writeln!(out, "cost {of}")?;
    print_counters(out, &Counters::from(header.counters), false)?;
    let lines = header.findings.iter().map(|finding| found(view, finding)).chain(unwritten(view));
    for line in lines.flat_map(|line| wrapped(&line, WIDTH)) {
        writeln!(out, "{}", one_line(&line))?;
    }
    Ok(())
}

/// A finding, such as `error: race (step 0, multiply): …`.
pub fn found(view: &TraceView, finding: &Finding) -> String {
    let severity = if finding.error { "error" } else { "note" };
    let phase = finding.tick.and_then(|tick| {
        let phase = view.trace.header.phases.iter().find(|phase| (phase.ticks[0]..phase.ticks[1]).contains(&tick))?;
        let step = phase.step.map_or_else(String::new, |step| format!("step {step}, "));
        Some(format!(" ({step}{})", verb(phase.kind)))
    });
    let (phase, times) = (phase.unwrap_or_default(), finding.times);
    let times = if times > 1 { format!("; {times} times in all") } else { String::new() };
    format!("  {severity}: {}{phase}: {}{times}", finding.kind, finding.message)
}

/// A finding without source lines: threads, accesses and the element.
pub fn briefly(finding: &Finding) -> String {
    let places = finding.lines.iter().map(|(file, line)| format!(" ({file}:{line})"));
    let message = places.fold(finding.message.clone(), |message, place| message.replace(&place, ""));
    format!("{}: {message}", finding.kind)
}

/// The elements of C that were never written, where all was recorded.
fn unwritten(view: &TraceView) -> Option<String> {
    let header = &view.trace.header;
    let sample = &header.filter;
    // Elements stored by TMA are not recorded.
    if view.blocks.iter().any(|&block| view.tiles_stored(block) > 0) {
        return None;
    }
    let c = view.roles[2].filter(|_| sample.blocks.is_none() && sample.warps.is_none() && sample.steps.is_none())?;
    let scene = tegula_explain::memory_state::MemoryState::at(&view.trace, [0; 3], header.ticks.len() as u32);
    let all = header.matrices[c].shape.iter().product::<u64>();
    let missing = all - (scene.written[c].len() as u64).min(all);
    let name = view.matrix_name(c);
    (missing > 0).then(|| format!("  error: unwritten: {missing} of {all} elements of {name} are never written"))
}
