//! Runs a launch and compares what the checker reports with what it must report.

use tegula_ptx::{Buffer, Config, Diagnostic, Kernel, Outcome, SourceLine};

use super::entry::{Array, Cost, Entry, Expected, Prepared, encode, unwritten};
use super::formula;

/// What a launch showed.
pub struct Verdict {
    pub outcome: Outcome,
    /// Elements that differ from the formula, and outputs that were not stored.
    pub results: Vec<Observed>,
}

/// A kind, the lines it names, and a description.
#[derive(Clone, Debug)]
pub struct Observed {
    pub kind: String,
    pub lines: Vec<u32>,
    pub text: String,
}

/// Runs a launch for some seeds.
pub fn run(entry: &Entry, kernel: &Kernel, seeds: u64) -> Result<Verdict, String> {
    let prepared = entry.prepare(kernel)?;
    let mut buffers = prepared.buffers.clone();
    // No launch here runs so long; one that never ends is found soon.
    let config = Config { steps: 1 << 20, ..Config::default() };
    let checked = kernel.check(&prepared.launch, &mut buffers, &config, seeds);
    let outcome = checked.map_err(|error| error.to_string())?;
    let mut results = outputs(entry, &prepared, &buffers)?;
    if let Some((name, seed)) = &outcome.seed_dependent {
        // The results of another seed must hold as well.
        buffers.clone_from(&prepared.buffers);
        let again = Config { seed: *seed, ..config };
        kernel.run(&prepared.launch, &mut buffers, &again).map_err(|error| error.to_string())?;
        let others = outputs(entry, &prepared, &buffers)?;
        results.extend(
            others.into_iter().map(|other| Observed { text: format!("seed {seed}, {name}: {}", other.text), ..other }),
        );
    }
    Ok(Verdict { outcome, results })
}

/// Compares outputs with the formula, and finds elements that were not stored.
fn outputs(entry: &Entry, prepared: &Prepared, buffers: &[Buffer]) -> Result<Vec<Observed>, String> {
    let observed = |kind: &str, text: String| Observed { kind: kind.into(), lines: Vec::new(), text };
    let missing = buffers.iter().map(|buffer| (buffer, unwritten(buffer))).filter(|(_, missing)| *missing > 0);
    let mut found: Vec<Observed> = missing
        .map(|(buffer, missing)| observed("unwritten", format!("{missing} elements of {}", buffer.name)))
        .collect();
    let Some((name, formula)) = entry.expect.as_deref().and_then(|expect| expect.split_once(" = ")) else {
        return Ok(found);
    };
    let buffer = buffers.iter().find(|buffer| buffer.name == name).ok_or(format!("no output {name}"))?;
    let want = formula::compute(formula, &prepared.values)?;
    let round = |value: &f64| Array::of(&Buffer::new("", buffer.ty, [1], encode(*value, buffer.ty))).values[0];
    let want: Vec<f64> = want.iter().map(round).collect();
    let got = Array::of(buffer).values;
    if got.len() != want.len() {
        return Err(format!("{name} has {} elements, the formula {}", got.len(), want.len()));
    }
    let fits = |got: f64, want: f64| (got - want).abs() <= entry.tolerance * (1.0 + want.abs());
    let wrong: Vec<usize> = (0..got.len()).filter(|&i| !fits(got[i], want[i])).collect();
    if let Some(&first) = wrong.first() {
        let text =
            format!("{} elements of {name}; {name}[{first}] is {}, not {}", wrong.len(), got[first], want[first]);
        found.push(observed("wrong-result", text));
    }
    Ok(found)
}

impl Verdict {
    /// Everything that was reported; lines are those of a file.
    pub fn observed(&self, file: &str) -> Vec<Observed> {
        let of = |diagnostic: &Diagnostic| Observed {
            kind: diagnostic.kind.name().into(),
            lines: diagnostic.lines.iter().filter_map(|line| line_in(line, file)).collect(),
            text: diagnostic.message.clone(),
        };
        self.outcome.diagnostics.iter().map(of).chain(self.results.iter().cloned()).collect()
    }

    /// Differences to what the entry expects; empty if it is all as expected.
    pub fn failures(&self, entry: &Entry) -> Vec<String> {
        let file = entry.file.rsplit('/').next().unwrap_or_default();
        let observed = self.observed(file);
        let mut failures = Vec::new();
        for expected in &entry.findings {
            if !alternatives(expected).any(|expected| observed.iter().any(|observed| matches(expected, observed))) {
                let reported: Vec<String> = observed.iter().map(|o| format!("{} {:?}", o.kind, o.lines)).collect();
                let reported = reported.join(", ");
                failures.push(format!("missing: {} {:?}; reported: {reported}", expected.kind, expected.lines));
            }
        }
        for observed in &observed {
            let expected = entry.findings.iter().flat_map(alternatives).any(|expected| matches(expected, observed));
            if !expected && !entry.allowed.contains(&observed.kind) {
                failures.push(format!("false alarm: {} {:?}: {}", observed.kind, observed.lines, observed.text));
            }
        }
        if let Some(prints) = &entry.prints
            && !self.outcome.output.lines().any(|line| line.ends_with(prints.as_str()))
        {
            failures.push(format!("prints {:?}, not {prints:?}", self.outcome.output));
        }
        failures.extend(entry.cost.iter().flat_map(|cost| self.cost(cost, file)));
        failures
    }

    fn cost(&self, cost: &Cost, file: &str) -> Vec<String> {
        let mut counters = tegula_interp::Counters::default();
        let lines = self.outcome.lines.iter().filter(|(line, _)| line_in(line, file) == Some(cost.line));
        lines.for_each(|(_, line)| counters += *line);
        let sectors = counters.global_load_sectors + counters.global_store_sectors;
        let requests = counters.global_load_requests + counters.global_store_requests;
        let wavefronts = counters.shared_load_wavefronts + counters.shared_store_wavefronts;
        let shared = counters.shared_load_requests + counters.shared_store_requests;
        let exactly = |what: &str, got: u64, requests: u64, want: Option<u64>| {
            let want = want.filter(|want| requests == 0 || got != want * requests)?;
            Some(format!("cost of line {}: {got} {what} for {requests} requests, not {want} each", cost.line))
        };
        let sectors = exactly("sectors", sectors, requests, cost.sectors_per_request);
        let wavefronts = exactly("wavefronts", wavefronts, shared, cost.shared_wavefronts_per_request);
        sectors.into_iter().chain(wavefronts).collect()
    }
}

fn alternatives(expected: &Expected) -> impl Iterator<Item = &Expected> {
    std::iter::once(expected).chain(&expected.or)
}

/// Whether a report is the expected one: a race has exactly its two lines, another all of them.
fn matches(expected: &Expected, observed: &Observed) -> bool {
    if expected.kind != observed.kind {
        return false;
    }
    if expected.kind == "race" && !expected.lines.is_empty() {
        let mut lines = observed.lines.clone();
        lines.sort_unstable();
        return lines == expected.lines;
    }
    expected.lines.iter().all(|line| observed.lines.contains(line))
}

/// The line in a file, or that of the call from there.
fn line_in(line: &SourceLine, file: &str) -> Option<u32> {
    if line.file.ends_with(file) {
        return Some(line.line);
    }
    line.inlined_at.as_deref().and_then(|call| line_in(call, file))
}
