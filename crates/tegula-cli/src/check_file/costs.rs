//! Costs of source lines, and the lines where coalesced or conflict-free accesses save the most.

use std::collections::BTreeMap;

use serde::Serialize;
use tegula_interp::{Counters, SECTOR_BYTES};
use tegula_ptx::ast::{Loc, Module, ScalarType, Statement};
use tegula_ptx::{Outcome, SourceLine};

use crate::report::check::grouped;

/// A line of a file; the file is empty for the text of the PTX.
pub type LineKey = (String, u32);

/// Maximum number of lines to improve in a report.
const NAMED: usize = 3;
/// Minimum fraction of a line's sectors or wavefronts that a change must save.
const WORTHWHILE: f64 = 0.1;

/// The memory instructions of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Accesses {
    /// Largest size of an element, in bytes.
    element_bytes: u32,
    /// Whether some are atomic operations, whose lanes often address one element intentionally.
    atomic: bool,
}

/// Costs of the lines of a source and of the files that it includes.
#[derive(Debug)]
pub struct LineCosts {
    pub lines: BTreeMap<LineKey, Counters>,
    accesses: BTreeMap<LineKey, Accesses>,
}

/// A line to improve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Improvement {
    pub file: String,
    pub line: u32,
    /// `sectors` of global memory, or `wavefronts` of shared memory.
    pub what: &'static str,
    /// Sectors or wavefronts of the line.
    pub of: u64,
    /// Number of them that coalesced or conflict-free accesses would save.
    pub saved: u64,
    pub message: String,
}

impl LineCosts {
    /// The costs of an outcome. Code inlined from a header is attributed to the line of the call in
    /// `main`, the checked file.
    pub fn new(outcome: &Outcome, module: &Module, main: &str) -> LineCosts {
        let mut lines: BTreeMap<LineKey, Counters> = BTreeMap::new();
        for (line, counters) in &outcome.lines {
            *lines.entry(place(line, main)).or_default() += *counters;
        }
        let mut accesses = BTreeMap::new();
        for body in module.functions.iter().filter_map(|function| function.body.as_ref()) {
            collect(body, &mut None, module, main, &mut accesses);
        }
        LineCosts { lines, accesses }
    }

    /// The lines with the largest savings. A sector and a wavefront are weighted equally, since
    /// they take about the same time.
    pub fn improvements(&self) -> Vec<Improvement> {
        let mut all: Vec<Improvement> = self
            .lines
            .iter()
            .flat_map(|(place, counters)| {
                let accesses = self.accesses.get(place).copied().unwrap_or_default();
                [sectors(place, counters, accesses), wavefronts(place, counters, accesses)]
            })
            .flatten()
            .collect();
        all.sort_by_key(|improvement| std::cmp::Reverse(improvement.saved));
        all.truncate(NAMED);
        all
    }
}

/// The line to which a cost is attributed.
fn place(line: &SourceLine, main: &str) -> LineKey {
    let at = line.in_file(main);
    (at.file.clone(), at.line)
}

/// Collects the memory instructions of each line.
fn collect(
    body: &[Statement],
    loc: &mut Option<Loc>,
    module: &Module,
    main: &str,
    accesses: &mut BTreeMap<LineKey, Accesses>,
) {
    let file = |number: u32| {
        let found = module.files.iter().find(|(known, _)| *known == number);
        found.map_or_else(String::new, |(_, name)| name.clone())
    };
    for statement in body {
        match statement {
            Statement::Loc(new) => *loc = Some(*new),
            Statement::Block(inner) => collect(inner, loc, module, main, accesses),
            Statement::Instruction(instruction) => {
                let mut types = instruction.modifiers.iter().filter_map(|modifier| ScalarType::from_name(modifier));
                let bytes = match instruction.opcode.as_str() {
                    "ld" | "ldu" | "st" | "atom" | "red" => types.next_back().map_or(0, ScalarType::size),
                    // The counters of these instructions count 4-byte words.
                    "cp" | "wmma" | "ldmatrix" | "stmatrix" => 4,
                    _ => continue,
                };
                let at = match loc {
                    Some(loc) => SourceLine {
                        file: file(loc.file),
                        line: loc.line,
                        inlined_at: loc.inlined_at.map(|(number, line, _)| {
                            Box::new(SourceLine { file: file(number), line, inlined_at: None })
                        }),
                    },
                    None => SourceLine { file: String::new(), line: instruction.line, inlined_at: None },
                };
                let known = accesses.entry(place(&at, main)).or_default();
                known.element_bytes = known.element_bytes.max(bytes);
                known.atomic |= matches!(instruction.opcode.as_str(), "atom" | "red");
            }
            _ => {}
        }
    }
}

fn sectors((file, line): &LineKey, c: &Counters, accesses: Accesses) -> Option<Improvement> {
    if accesses.atomic || accesses.element_bytes == 0 {
        return None;
    }
    // A request needs at least one sector. Lanes that read the same element share its sector.
    let ideal = |requests: u64, elements: u64, sectors: u64| {
        let bytes = elements.saturating_mul(accesses.element_bytes.into());
        bytes.div_ceil(SECTOR_BYTES).max(requests).min(sectors)
    };
    let requests = c.global_load_requests + c.global_store_requests;
    let of = c.global_load_sectors + c.global_store_sectors;
    let least = ideal(c.global_load_requests, c.global_load_elements, c.global_load_sectors)
        + ideal(c.global_store_requests, c.global_store_elements, c.global_store_sectors);
    let [now, best] = [of, least].map(|sectors| per(sectors, requests));
    // A misaligned row costs at most one more sector per request.
    let advice = match now > 2.0 * best && now > best + 1.0 {
        true => "let adjacent lanes access adjacent elements",
        false => "let each row begin at a multiple of 32 bytes",
    };
    improvement((file, *line), "sectors", (of, of - least), (now, best), advice)
}

fn wavefronts((file, line): &LineKey, c: &Counters, accesses: Accesses) -> Option<Improvement> {
    if accesses.atomic {
        return None;
    }
    let requests = c.shared_load_requests + c.shared_store_requests + c.shared_copy_requests;
    let of = c.shared_load_wavefronts + c.shared_store_wavefronts + c.shared_copy_wavefronts;
    let saved = c.shared_bank_conflicts.min(of);
    let ratios = (per(of, requests), per(of - saved, requests));
    let advice = "pad the rows of the array by an element, or let adjacent lanes access adjacent elements";
    improvement((file, *line), "wavefronts", (of, saved), ratios, advice)
}

fn improvement(
    (file, line): (&str, u32),
    what: &'static str,
    (of, saved): (u64, u64),
    (now, best): (f64, f64),
    advice: &str,
) -> Option<Improvement> {
    if saved == 0 || (saved as f64) < WORTHWHILE * of as f64 {
        return None;
    }
    let (percent, of_text) = (100 * saved / of.max(1), grouped(of));
    let saved_text = grouped(saved);
    let message = format!(
        "{now:.1} {what} per request, at best {best:.1}, which saves {saved_text} of {of_text} ({percent} %): {advice}"
    );
    Some(Improvement { file: file.into(), line, what, of, saved, message })
}

/// The ratio of a count to requests; 0 without requests.
pub fn per(count: u64, requests: u64) -> f64 {
    if requests == 0 { 0.0 } else { count as f64 / requests as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNCOALESCED: Counters =
        Counters { global_load_requests: 2, global_load_sectors: 64, global_load_elements: 64, ..zero() };

    const fn zero() -> Counters {
        Counters {
            global_load_requests: 0,
            global_load_sectors: 0,
            global_load_elements: 0,
            global_store_requests: 0,
            global_store_sectors: 0,
            global_store_elements: 0,
            shared_load_requests: 0,
            shared_load_wavefronts: 0,
            shared_load_elements: 0,
            shared_store_requests: 0,
            shared_store_wavefronts: 0,
            shared_store_elements: 0,
            shared_copy_requests: 0,
            shared_copy_wavefronts: 0,
            shared_copy_elements: 0,
            shared_bank_conflicts: 0,
            fma: 0,
            flops: 0,
            barriers: 0,
            lane_instructions: 0,
        }
    }

    fn costs(lines: &[(u32, Counters)], atomic: bool) -> LineCosts {
        let at = |line: u32| ("k.cu".to_owned(), line);
        let accesses = Accesses { element_bytes: 4, atomic };
        LineCosts {
            lines: lines.iter().map(|&(line, counters)| (at(line), counters)).collect(),
            accesses: lines.iter().map(|&(line, _)| (at(line), accesses)).collect(),
        }
    }

    #[test]
    fn improvements_name_the_lines_that_save_most() {
        let broadcast =
            Counters { global_load_requests: 5, global_load_sectors: 5, global_load_elements: 160, ..zero() };
        let conflicts =
            Counters { shared_load_requests: 4, shared_load_wavefronts: 128, shared_bank_conflicts: 124, ..zero() };
        let found = costs(&[(3, UNCOALESCED), (4, broadcast), (5, conflicts)], false).improvements();
        assert_eq!(
            found.iter().map(|one| (one.line, one.what, one.saved)).collect::<Vec<_>>(),
            [(5, "wavefronts", 124), (3, "sectors", 56)]
        );
        let expected = "32.0 sectors per request, at best 4.0, which saves 56 of 64 (87 %): let adjacent lanes access adjacent elements";
        assert_eq!(found[1].message, expected);
    }

    #[test]
    fn rows_within_a_sector_are_not_called_uncoalesced() {
        let rows =
            Counters { global_store_requests: 10, global_store_sectors: 50, global_store_elements: 320, ..zero() };
        let found = costs(&[(3, rows)], false).improvements();
        assert!(found[0].message.ends_with("(20 %): let each row begin at a multiple of 32 bytes"), "{found:?}");
    }

    #[test]
    fn atomic_lines_and_small_savings_are_left_out() {
        assert!(costs(&[(3, UNCOALESCED)], true).improvements().is_empty());
        let nearly =
            Counters { global_load_requests: 100, global_load_sectors: 410, global_load_elements: 3200, ..zero() };
        assert!(costs(&[(3, nearly)], false).improvements().is_empty());
    }

    #[test]
    fn inlined_code_of_headers_counts_for_its_caller() {
        let call = SourceLine { file: "k.cu".into(), line: 7, inlined_at: None };
        let header = SourceLine { file: "h.cuh".into(), line: 90, inlined_at: Some(Box::new(call.clone())) };
        assert_eq!(place(&header, "k.cu"), ("k.cu".into(), 7));
        assert_eq!(place(&header, "other.cu"), ("h.cuh".into(), 90));
        let own = SourceLine { file: "k.cu".into(), line: 3, inlined_at: Some(Box::new(call)) };
        assert_eq!(place(&own, "k.cu"), ("k.cu".into(), 3));
    }
}
