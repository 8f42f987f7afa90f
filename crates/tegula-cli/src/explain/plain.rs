//! The story of a multiplication as text.

use std::io::{self, Write};

use tegula_explain::trace::{Does, Finding};

use super::stage::Stage;
use super::sum::{Formula, joined};
use super::text::{WIDTH, at, wrapped};
use super::timeline::timeline;
use super::words::{per_thread, tell, verb};
use crate::failure::one_line;
use crate::report::check::{Counters, print_counters};

/// Steps at the beginning of a long story, and at its end.
const TOLD: [u32; 2] = [2, 1];

/// Tells the story, of one block and one of its threads.
pub fn print(out: &mut impl Write, stage: &Stage, block: [u32; 3], thread: [u32; 3]) -> io::Result<()> {
    let mut lines = head(stage, block);
    lines.push(String::new());
    lines.extend(acts(stage, block));
    lines.push(String::new());
    lines.extend(timeline(stage, block));
    lines.extend(sum(stage, block, thread));
    lines.push(String::new());
    for line in lines.iter().flat_map(|line| wrapped(line, WIDTH)) {
        writeln!(out, "{}", one_line(&line))?;
    }
    costs(out, stage)
}

fn head(stage: &Stage, block: [u32; 3]) -> Vec<String> {
    let header = &stage.trace.header;
    let mut lines = vec![title(stage)];
    let ([gx, gy, gz], [bx, by, bz]) = (header.grid, header.block);
    let dims = |x, y, z| if z == 1 { format!("{x}×{y}") } else { format!("{x}×{y}×{z}") };
    lines.push(format!("  {} blocks of {} threads", dims(gx, gy, gz), dims(bx, by, bz)));
    for array in &header.shared {
        let dims: Vec<String> = array.dims.iter().map(u32::to_string).collect();
        lines.push(format!("  shared memory of a block: {} {} {}", array.name, dims.join("×"), array.ty));
    }
    let all = [0, header.moments.len() as u32];
    let most = |does| per_thread(stage, all, block, does).into_values().max().unwrap_or(0);
    let (reads, writes) = (most(Does::GlobalLoad), most(Does::GlobalStore));
    let depth = stage.roles[0].map_or(0, |a| header.matrices[a].shape[2]);
    let in_part = header.sample.steps.is_some();
    if !in_part && writes > 0 {
        let untiled = 2 * depth * writes;
        let saved = match header.shared.is_empty() {
            true => String::from("tiles in shared memory would save reads"),
            false => format!("without tiles it would read {untiled}"),
        };
        lines.push(format!("  a thread reads {reads} elements of global memory and writes {writes}; {saved}"));
    }
    lines.extend(sample(stage));
    lines
}

/// `tiled_f32_2: C = A·B, 4×4 = 4×4 · 4×4`.
pub fn title(stage: &Stage) -> String {
    let header = &stage.trace.header;
    let shape = |matrix: usize| {
        let [batches, rows, cols] = header.matrices[matrix].shape;
        if batches > 1 { format!("{batches}×{rows}×{cols}") } else { format!("{rows}×{cols}") }
    };
    match stage.roles {
        [Some(a), Some(b), Some(c)] => {
            let [name_a, name_b, name_c] = [a, b, c].map(|matrix| stage.matrix_name(matrix));
            format!("{}: {name_c} = {name_a}·{name_b}, {} = {} · {}", header.kernel, shape(c), shape(a), shape(b))
        }
        _ => header.kernel.clone(),
    }
}

/// What was left out of the trace.
fn sample(stage: &Stage) -> Vec<String> {
    let sample = &stage.trace.header.sample;
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

fn acts(stage: &Stage, block: [u32; 3]) -> Vec<String> {
    let acts = &stage.trace.header.acts;
    let steps: Vec<u32> = acts.iter().filter_map(|act| act.step).collect();
    let (first, last) = (steps.iter().min().copied().unwrap_or(0), steps.iter().max().copied().unwrap_or(0));
    let is_told = |step: u32| step < first + TOLD[0] || step + TOLD[1] > last || last - first < 4;
    let mut lines = vec![format!("block {}", at(block))];
    let mut left_out = 0;
    for (position, act) in acts.iter().enumerate() {
        if act.step.is_some_and(|step| !is_told(step)) {
            left_out = last - first + 1 - TOLD.iter().sum::<u32>();
            continue;
        }
        if std::mem::take(&mut left_out) > 0 {
            lines.push(format!("  … {} more steps like these", last - first + 1 - TOLD.iter().sum::<u32>()));
        }
        let told = tell(stage, position, block);
        let when = act.step.map_or_else(
            || if acts[..position].iter().any(|act| act.step.is_some()) { "end".into() } else { "before".to_owned() },
            |step| format!("step {step}"),
        );
        let each = if told.each.is_empty() { String::new() } else { format!("   {}", told.each) };
        lines.push(format!("  {:<8} {:<9} {}{each}", format!("{when}:"), told.verb, told.what));
    }
    lines
}

/// The element that the thread writes, with names, with numbers, and by steps.
fn sum(stage: &Stage, block: [u32; 3], thread: [u32; 3]) -> Vec<String> {
    let formula = Formula::of(stage, block, thread);
    let who = format!("thread {} of block {}", at(thread), at(block));
    // Whoever asks for copies stores nothing, nor do others where the copy engine does.
    if formula.name.is_none() && !stage.trace.header.deeds.is_empty() {
        let why = match stage.tiles_stored(block) {
            0 => "other threads store its block's sums",
            _ => "the copy engine stores C tile by tile",
        };
        return vec![format!("{who} writes nothing itself: {why}")];
    }
    let Some(name) = &formula.name else {
        return vec![format!("{who} writes nothing: its element lies beyond the edge, or was not recorded")];
    };
    let result = formula.stored.as_ref().map_or("?", |(number, _)| number);
    if formula.products.is_empty() {
        return vec![
            format!("{who} writes {name} = {result}"),
            "  its products are made by matrix instructions, which are not followed element by element".into(),
        ];
    }
    let names: Vec<&str> = formula.products.iter().map(|product| product.names.as_str()).collect();
    let numbers: Vec<&str> = formula.products.iter().map(|product| product.numbers.as_str()).collect();
    let one = format!("  {name} = {} = {} = {result}", names.join(" + "), numbers.join(" + "));
    let mut lines = vec![format!("{who} writes {name}")];
    if one.chars().count() <= WIDTH {
        lines.push(one);
    } else {
        let room = WIDTH - name.chars().count() - result.chars().count() - 8;
        lines.push(format!("  {name} = {}", joined(&names, 0, room)));
        lines.push(format!("  {:width$} = {} = {result}", "", joined(&numbers, 0, room), width = name.chars().count()));
    }
    lines.extend(by_step(&formula));
    if stage.trace.header.sample.steps.is_some() {
        lines.push("  these are the products of the steps that were recorded; the result has all".into());
    }
    lines
}

fn by_step(formula: &Formula) -> Vec<String> {
    let steps = formula.steps();
    let line = |(step, products): &(Option<u32>, &[super::sum::Product])| {
        let numbers: Vec<&str> = products.iter().map(|product| product.numbers.as_str()).collect();
        let after = products.last().map_or("", |product| &product.sum);
        let when = step.map_or_else(|| "else".into(), |step| format!("step {step}"));
        format!("  {:<8} ({})   the sum is now {after}", format!("{when}:"), joined(&numbers, 0, WIDTH - 50))
    };
    let [first, last] = TOLD.map(|count| count as usize);
    // Steps of one product, as without tiles, say nothing that is not said already.
    if steps.iter().all(|(_, products)| products.len() == 1) {
        return Vec::new();
    }
    if steps.len() <= first + last + 1 {
        return steps.iter().map(line).collect();
    }
    let between = format!("  … {} more steps", steps.len() - first - last);
    steps[..first].iter().map(line).chain([between]).chain(steps[steps.len() - last..].iter().map(line)).collect()
}

fn costs(out: &mut impl Write, stage: &Stage) -> io::Result<()> {
    let header = &stage.trace.header;
    let of = if header.sample.blocks.is_some() { "of the blocks that ran" } else { "of all blocks" };
    writeln!(out, "cost {of}")?;
    print_counters(out, &Counters::from(header.counters))?;
    let lines = header.findings.iter().map(|finding| found(stage, finding)).chain(unwritten(stage));
    for line in lines.flat_map(|line| wrapped(&line, WIDTH)) {
        writeln!(out, "{}", one_line(&line))?;
    }
    Ok(())
}

/// `error: race (step 0, multiply): …`.
pub fn found(stage: &Stage, finding: &Finding) -> String {
    let severity = if finding.error { "error" } else { "note" };
    let act = finding.moment.and_then(|moment| {
        let act = stage.trace.header.acts.iter().find(|act| (act.moments[0]..act.moments[1]).contains(&moment))?;
        let step = act.step.map_or_else(String::new, |step| format!("step {step}, "));
        Some(format!(" ({step}{})", verb(act.does)))
    });
    let (act, times) = (act.unwrap_or_default(), finding.times);
    let times = if times > 1 { format!("; {times} times in all") } else { String::new() };
    format!("  {severity}: {}{act}: {}{times}", finding.kind, finding.message)
}

/// The same without lines of source: which threads do what to which element.
pub fn briefly(finding: &Finding) -> String {
    let places = finding.lines.iter().map(|(file, line)| format!(" ({file}:{line})"));
    let message = places.fold(finding.message.clone(), |message, place| message.replace(&place, ""));
    format!("{}: {message}", finding.kind)
}

/// What nobody wrote, where everything was recorded.
fn unwritten(stage: &Stage) -> Option<String> {
    let header = &stage.trace.header;
    let sample = &header.sample;
    // Elements of tiles that the copy engine stores are not recorded.
    if stage.blocks.iter().any(|&block| stage.tiles_stored(block) > 0) {
        return None;
    }
    let c = stage.roles[2].filter(|_| sample.blocks.is_none() && sample.warps.is_none() && sample.steps.is_none())?;
    let scene = tegula_explain::scene::Scene::at(&stage.trace, [0; 3], header.moments.len() as u32);
    let all = header.matrices[c].shape.iter().product::<u64>();
    let missing = all - (scene.written[c].len() as u64).min(all);
    let name = stage.matrix_name(c);
    (missing > 0).then(|| format!("  error: unwritten: {missing} of {all} elements of {name} are never written"))
}
