//! Subjects of a guide and their facts.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use tegula_core::element::Type;
use tegula_interp::{Finding, Severity};
use tegula_ir::{Mma, Order2d, cpp};
use tegula_kernels::plan::{OperandLayout, Recipe};
use tegula_kernels::{GemmKernel, Mapping, Variant, sources};

use super::{ErrorKind, Result, syntax};
use crate::nests::{Cache, Nest, traffic};
use crate::profile::Profile;
use crate::sample_launch::SampleLaunch;
use crate::trace::{Event, Header, MAX_VALUES, OperationKind, Trace, TraceFilter};

/// The value of a fact.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Value::Number(number as f64)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        u64::from(number).into()
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}

/// Facts by name.
pub type Facts = BTreeMap<String, Value>;

/// A subject.
#[derive(Debug)]
pub enum Subject {
    /// A launch of a kernel.
    Launch(Box<LaunchFacts>),
    /// A loop nest.
    Nest(NestFacts),
    /// A matrix instruction.
    Mma(Mma),
    /// The fields of a results file entry.
    File(Facts),
}

/// A launch of a kernel in the interpreter, on matrices of small integers.
///
/// Its facts:
/// * the fields of [`tegula_interp::Counters`], and those of [`crate::profile::PerThread`] with the
///   prefix `thread_`;
/// * `m`, `n`, `k`, `steps`, `blocks`, `threads` of a block, `barriers_per_block`, `shared_bytes`,
///   and the numbers of `errors` and `notes`;
/// * the texts `name`, `wrong` (the error of C), `finding_race` and so on (the first finding of a
///   kind), and `cuda` (the loop over k as CUDA C++);
/// * for the first request of warp 0 to each matrix or array: `a_load_sectors`, `a_load_lanes`,
///   `tile_a_store_wavefronts` and so on.
#[derive(Debug)]
pub struct LaunchFacts {
    launch: SampleLaunch,
    facts: Facts,
    findings: Vec<Finding>,
    /// The trace of the first block.
    trace: OnceCell<Trace>,
}

/// A loop nest, counted with the caches [`Cache::L1`] and [`Cache::L2`].
///
/// Its facts are `reads`, `writes`, `l1_misses`, `l2_misses`, `l1_kib`, `l2_kib` and `n`. The texts
/// are `source`, and `loops`: table rows with the GPU counterpart of each loop.
#[derive(Debug)]
pub struct NestFacts {
    facts: Facts,
}

/// A request: one access of a warp to a matrix or array.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The header that the event's positions refer to.
    pub header: &'a Header,
    /// The event.
    pub event: &'a Event,
    /// The name of the matrix or array.
    pub memory: &'a str,
    /// The element type.
    pub ty: Type,
    /// The byte offset of a shared array; `None` for a matrix.
    pub start: Option<u32>,
}

impl Subject {
    /// Parses the right side of a `let`, and runs or reads the subject.
    pub(super) fn parse(text: &str, files: &dyn Fn(&str) -> Option<String>) -> Result<Subject> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["kernel", name, ty, sizes, options @ ..] => {
                Ok(Subject::Launch(LaunchFacts::new(name, self::ty(ty)?, self::sizes(sizes)?, options)?.into()))
            }
            ["nest", name, ty, sizes, options @ ..] => {
                let tile = match options {
                    [] => 1,
                    ["tile", tile] => self::size(tile)?,
                    _ => return syntax(text, "take nest NAME TYPE MxNxK [tile T]"),
                };
                Ok(Subject::Nest(NestFacts::new(name, self::ty(ty)?, self::sizes(sizes)?, tile)?))
            }
            ["mma", shape] => {
                let named = format!("mma {}", shape.replace(':', " ").replace('x', "×"));
                match Mma::ALL.into_iter().find(|mma| mma.to_string() == named) {
                    Some(mma) => Ok(Subject::Mma(mma)),
                    None => syntax(text, "take a matrix instruction, as mma f64:16x8x16"),
                }
            }
            ["file", name, path @ ..] => {
                let invalid = |reason: &str| ErrorKind::File { file: (*name).into(), reason: reason.into() };
                let content = files(name).ok_or_else(|| invalid("no such results file"))?;
                let facts = match path {
                    [] => object(&content, ""),
                    [path] => object(&content, path),
                    [heading, row] => line(&content, heading, row),
                    _ => return syntax(text, "take file NAME, and a path or a heading and a row"),
                };
                facts.map(Subject::File).map_err(|reason| invalid(&reason))
            }
            _ => syntax(text, "take kernel, nest, mma or file with its arguments"),
        }
    }

    /// A fact by name; `name` is the subject's.
    pub(super) fn fact(&self, name: &str, fact: &str) -> Result<Value> {
        let mma_facts;
        let facts = match self {
            Subject::Launch(launch) => return launch.fact(name, fact),
            Subject::Nest(nest) => &nest.facts,
            Subject::File(facts) => facts,
            Subject::Mma(mma) => {
                mma_facts = self::mma(*mma);
                &mma_facts
            }
        };
        facts.get(fact).cloned().ok_or_else(|| unknown(name, fact, facts.keys()))
    }
}

fn unknown<'a>(subject: &str, fact: &str, known: impl Iterator<Item = &'a String>) -> ErrorKind {
    let known = known.map(String::as_str).collect::<Vec<_>>().join(", ");
    ErrorKind::UnknownFact { subject: subject.into(), fact: fact.into(), known }
}

fn size(text: &str) -> Result<usize> {
    // Larger launches take too long in the interpreter.
    match text.parse() {
        Ok(size @ 0..=4096) => Ok(size),
        _ => syntax(text, "take a size of at most 4096"),
    }
}

fn sizes(text: &str) -> Result<[usize; 3]> {
    let sizes = text.split('x').map(size).collect::<Result<Vec<_>>>()?;
    sizes.try_into().or_else(|_| syntax(text, "take m, n and k, as 64x64x64"))
}

fn ty(text: &str) -> Result<Type> {
    Type::operand_named(text).map_or_else(|| syntax(text, format!("take {}", Type::operand_names())), Ok)
}

/// The numbers and texts among the fields of a JSON object.
fn fields(of: impl serde::Serialize) -> Facts {
    fields_of(&serde_json::to_value(of).unwrap_or_default())
}

fn fields_of(of: &serde_json::Value) -> Facts {
    let values = of.as_object().into_iter().flatten().filter_map(|(name, value)| {
        let value = match value {
            serde_json::Value::Number(number) => Value::Number(number.as_f64()?),
            serde_json::Value::String(text) => Value::Text(text.clone()),
            _ => return None,
        };
        Some((name.clone(), value))
    });
    values.collect()
}

impl LaunchFacts {
    fn new(name: &str, ty: Type, sizes: [usize; 3], mut options: &[&str]) -> Result<LaunchFacts> {
        let mut variant = Variant::named(name, ty)?;
        if !matches!(variant, Variant::Gemm(GemmKernel::Plain(_))) {
            // As in a product: the widest accesses that row-major matrices allow.
            let layout = OperandLayout::new(Order2d::RowMajor, true);
            variant = Recipe::named(name, ty)?.legalize([layout; 3]).kernel.into();
        }
        loop {
            options = match (&mut variant, options) {
                (_, []) => break,
                (Variant::Gemm(GemmKernel::Plain(plain)), ["tile", tile, rest @ ..]) => {
                    plain.tile = size(tile)? as u32;
                    rest
                }
                (Variant::Gemm(GemmKernel::Plain(plain)), ["x-row", rest @ ..]) => {
                    plain.mapping = Mapping::XRow;
                    rest
                }
                (Variant::Gemm(GemmKernel::Plain(plain)), ["inject", bug, rest @ ..]) => {
                    *plain = plain.with_bug(bug)?;
                    rest
                }
                _ => return syntax(&options.join(" "), "plain kernels take tile T, x-row and inject BUG"),
            };
        }
        let launch = SampleLaunch::new(variant, sizes)?;
        let profile = launch.profile()?;
        let mut facts = facts_of(&profile, &launch);
        let numbers = ["m", "n", "k"].into_iter().zip(sizes);
        facts.extend(numbers.map(|(name, size)| (name.to_string(), Value::from(size as u64))));
        Ok(LaunchFacts { launch, facts, findings: profile.outcome.findings, trace: OnceCell::new() })
    }

    /// The trace of the first block alone.
    ///
    /// # Errors
    /// A block that exceeds the limit of a trace.
    pub fn trace(&self) -> Result<&Trace> {
        if let Some(trace) = self.trace.get() {
            return Ok(trace);
        }
        let filter = TraceFilter { blocks: Some(vec![[0; 3]]), ..TraceFilter::default() };
        let trace = self.launch.trace(&filter, MAX_VALUES)?;
        Ok(self.trace.get_or_init(|| trace))
    }

    /// The first request of warp 0 to each matrix or array, by names such as `a_load`.
    ///
    /// # Errors
    /// As for [`LaunchFacts::trace`].
    pub fn requests(&self) -> Result<BTreeMap<String, Request<'_>>> {
        let trace = self.trace()?;
        let header = &trace.header;
        let mut requests = BTreeMap::new();
        for event in trace.events.iter().filter(|event| event.warp == 0 && event.transactions > 0) {
            let operation = header.operation(event.tick);
            let at = operation.memory as usize;
            let (global, access) = match operation.kind {
                OperationKind::GlobalLoad => (true, "load"),
                OperationKind::GlobalStore => (true, "store"),
                OperationKind::SharedLoad => (false, "load"),
                OperationKind::SharedStore => (false, "store"),
                _ => continue,
            };
            let of = if global {
                header.matrices.get(at).map(|of| (&of.name, of.ty, None))
            } else {
                header.shared.get(at).map(|of| (&of.name, of.ty, Some(of.start)))
            };
            if let Some((memory, ty, start)) = of {
                let request = Request { header, event, memory, ty, start };
                requests.entry(format!("{memory}_{access}")).or_insert(request);
            }
        }
        Ok(requests)
    }

    fn fact(&self, name: &str, fact: &str) -> Result<Value> {
        if let Some(value) = self.facts.get(fact) {
            return Ok(value.clone());
        }
        let kind = fact.strip_prefix("finding_").map(|kind| kind.replace('_', "-"));
        if let Some(finding) = kind.and_then(|kind| self.findings.iter().find(|finding| finding.kind.name() == kind)) {
            return Ok(message(finding).into());
        }
        // The facts of requests; an error lists the names of all.
        let mut all = self.facts.clone();
        all.extend(
            self.findings.iter().map(|of| (format!("finding_{}", of.kind.name().replace('-', "_")), 0u32.into())),
        );
        for (request, of) in self.requests()? {
            let unit = if of.start.is_some() { "wavefronts" } else { "sectors" };
            all.insert(format!("{request}_{unit}"), of.event.transactions.into());
            all.insert(format!("{request}_lanes"), of.event.lanes.count_ones().into());
        }
        all.get(fact).cloned().ok_or_else(|| unknown(name, fact, all.keys()))
    }
}

fn facts_of(profile: &Profile, launch: &SampleLaunch) -> Facts {
    let (kernel, outcome) = (launch.kernel(), &profile.outcome);
    let mut facts = fields(outcome.counters);
    facts.extend(fields(profile.per_thread).into_iter().map(|(name, value)| (format!("thread_{name}"), value)));
    let count = |severity| outcome.findings.iter().filter(|of| of.severity() == severity).count() as u64;
    let more: [(&str, Value); 9] = [
        ("steps", profile.steps.into()),
        ("barriers_per_block", profile.barriers_per_block.into()),
        ("blocks", outcome.blocks.into()),
        ("threads", kernel.threads().into()),
        ("shared_bytes", kernel.shared_bytes().into()),
        ("errors", count(Severity::Error).into()),
        ("notes", count(Severity::Note).into()),
        ("name", kernel.name().to_string().into()),
        ("wrong", launch.result_error().unwrap_or_default().into()),
    ];
    facts.extend(more.map(|(name, value)| (name.to_string(), value)));
    if let Some(text) = cpp::print(kernel).ok().and_then(|cuda| loop_over_k(&cuda.text)) {
        facts.insert("cuda".into(), text.into());
    }
    facts
}

/// The lines from the accumulator to the end of the following loop, unindented.
fn loop_over_k(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().position(|line| line.contains(" sum = "))?;
    let indent = lines[first].len() - lines[first].trim_start().len();
    let end = format!("{}}}", " ".repeat(indent));
    let last = first + lines[first..].iter().position(|line| *line == end)?;
    let unindented: Vec<&str> = lines[first..=last].iter().map(|line| line.get(indent..).unwrap_or_default()).collect();
    Some(unindented.join("\n"))
}

/// The message of a finding, with source text in place of line numbers.
fn message(finding: &Finding) -> String {
    finding.source.iter().fold(finding.message.clone(), |message, at| {
        let file = at.file().rsplit(['/', '\\']).next().unwrap_or_default();
        let text = sources().find(|(name, _)| *name == file).map_or("", |(_, text)| text);
        let line = (at.line() as usize).checked_sub(1).and_then(|before| text.lines().nth(before)).unwrap_or(file);
        message.replace(&format!("({}:{})", at.file(), at.line()), &format!("(`{}`)", line.trim()))
    })
}

impl NestFacts {
    fn new(name: &str, ty: Type, sizes: [usize; 3], tile: usize) -> Result<NestFacts> {
        let Some(nest) = Nest::ALL.into_iter().find(|nest| nest.name() == name) else {
            return syntax(name, "take ijk, kij, split or tiled");
        };
        let caches = [Cache::L1, Cache::L2];
        let traffic = traffic(nest, tile, sizes, ty, &caches)?;
        let loops = nest.loops().iter().map(|of| format!("| `{}` | `{}` | {} |", of.name, of.range, of.becomes));
        let mut facts: Facts = [
            ("reads".to_string(), traffic.reads.iter().sum::<u64>().into()),
            ("writes".to_string(), traffic.writes.into()),
            ("n".to_string(), (sizes[1] as u64).into()),
            ("source".to_string(), nest.source().to_string().into()),
            ("loops".to_string(), loops.collect::<Vec<_>>().join("\n").into()),
        ]
        .into();
        for (level, (cache, misses)) in (1..).zip(caches.iter().zip(traffic.misses)) {
            facts.insert(format!("l{level}_misses"), misses.into());
            facts.insert(format!("l{level}_kib"), ((cache.bytes >> 10) as u64).into());
        }
        Ok(NestFacts { facts })
    }
}

fn mma(mma: Mma) -> Facts {
    let ([m, n, k], [a, b, accumulator]) = (mma.shape(), mma.registers());
    let numbers =
        [("m", m), ("n", n), ("k", k), ("a_registers", a), ("b_registers", b), ("accumulator_registers", accumulator)];
    let numbers = numbers.into_iter().map(|(name, number)| (name.to_string(), number.into()));
    let name = mma.to_string().split(' ').take(2).collect::<Vec<_>>().join(" ");
    let more = [("multiply_adds".to_string(), mma.multiply_adds().into()), ("name".to_string(), name.into())];
    numbers.chain(more).collect()
}

/// The object at a path of a JSON text: a key, and for a list a filter that matches one entry.
fn object(content: &str, path: &str) -> std::result::Result<Facts, String> {
    let root: serde_json::Value = serde_json::from_str(content).map_err(|error| error.to_string())?;
    if path.is_empty() {
        return Ok(fields_of(&root));
    }
    let (key, pick) = path.strip_suffix(']').and_then(|path| path.split_once('[')).unwrap_or((path, ""));
    let entry = root.get(key).ok_or_else(|| format!("no key {key:?}"))?;
    let Some(entries) = entry.as_array() else { return Ok(fields_of(entry)) };
    let text_of = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), String::from);
    let fits = |entry: &&serde_json::Value| {
        pick.split(',').all(|pair| {
            pair.split_once('=').is_some_and(|(field, value)| entry.get(field).is_some_and(|has| text_of(has) == value))
        })
    };
    match entries.iter().filter(fits).collect::<Vec<_>>().as_slice() {
        [entry] => Ok(fields_of(entry)),
        other => Err(format!("{} entries of {key} match {pick}; one must", other.len())),
    }
}

/// The words of the first line that starts with `row`, after a line that contains `heading`.
fn line(content: &str, heading: &str, row: &str) -> std::result::Result<Facts, String> {
    let behind = content.lines().skip_while(|line| !line.contains(heading)).skip(1);
    let line = behind.map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|words| words.first() == Some(&row));
    let words = line.ok_or_else(|| format!("no line {row:?} after {heading:?}"))?;
    let value = |word: &str| word.parse().map_or_else(|_| Value::Text(word.into()), Value::Number);
    Ok(words.iter().enumerate().map(|(at, word)| (at.to_string(), value(word))).collect())
}
