//! Subjects of a guide, and what they have to say.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use tegula_core::element::Type;
use tegula_interp::{Finding, Severity};
use tegula_ir::{Mma, Order2d, cpp};
use tegula_kernels::plan::{Lie, Recipe};
use tegula_kernels::{GemmKernel, Mapping, Variant, sources};

use super::{Fault, Result, syntax};
use crate::nests::{Cache, Nest, traffic};
use crate::product::Product;
use crate::profile::Profile;
use crate::trace::{Does, Event, Header, MOST, Sample, Trace};

/// What a fact says.
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

/// What is told of.
#[derive(Debug)]
pub enum Subject {
    /// A launch of a kernel.
    Launch(Box<Launch>),
    /// A loop nest.
    Walk(Walk),
    /// A matrix instruction.
    Mma(Mma),
    /// What a file of results says.
    File(Facts),
}

/// A launch of a kernel in the interpreter, on matrices of small integers.
///
/// Its facts:
/// * the fields of [`tegula_interp::Counters`], and those of [`crate::profile::PerThread`] behind `thread_`;
/// * `m`, `n`, `k`, `steps`, `blocks`, `threads` of a block, `barriers_per_block`, `shared_bytes`, and how many `errors` and `notes` were found;
/// * the texts `name`, `wrong` (what is wrong with C), `finding_race` and so on (the first finding of the kind), and `cuda` (the loop over k as
///   CUDA C++);
/// * of the first request of the first warp to each matrix or array, `a_load_sectors`, `a_load_lanes`, `tile_a_store_wavefronts` and the like.
#[derive(Debug)]
pub struct Launch {
    product: Product,
    facts: Facts,
    findings: Vec<Finding>,
    /// What the first block does.
    trace: OnceCell<Trace>,
}

/// A loop nest, counted on the caches [`Cache::L1`] and [`Cache::L2`].
///
/// Its facts are `reads`, `writes`, `l1_misses`, `l2_misses`, `l1_kib`, `l2_kib`, `n`, and the texts `source` and `loops`: rows of a table of what
/// each loop becomes on a GPU.
#[derive(Debug)]
pub struct Walk {
    facts: Facts,
}

/// A request of a warp: one access to a matrix or array.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What the event's numbers refer to.
    pub header: &'a Header,
    /// What the warp did.
    pub event: &'a Event,
    /// Name of the matrix or array.
    pub memory: &'a str,
    /// Its element type.
    pub ty: Type,
    /// Where a shared array starts; `None` for a matrix.
    pub start: Option<u32>,
}

impl Subject {
    /// Reads what stands behind a `let`, and runs it.
    pub(super) fn parse(text: &str, files: &dyn Fn(&str) -> Option<String>) -> Result<Subject> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["kernel", name, ty, sizes, options @ ..] => {
                Ok(Subject::Launch(Launch::new(name, self::ty(ty)?, self::sizes(sizes)?, options)?.into()))
            }
            ["nest", name, ty, sizes, options @ ..] => {
                let tile = match options {
                    [] => 1,
                    ["tile", tile] => self::size(tile)?,
                    _ => return syntax(text, "take nest NAME TYPE MxNxK [tile T]"),
                };
                Ok(Subject::Walk(Walk::new(name, self::ty(ty)?, self::sizes(sizes)?, tile)?))
            }
            ["mma", shape] => {
                let named = format!("mma {}", shape.replace(':', " ").replace('x', "×"));
                match Mma::ALL.into_iter().find(|mma| mma.to_string() == named) {
                    Some(mma) => Ok(Subject::Mma(mma)),
                    None => syntax(text, "take a matrix instruction, as mma f64:16x8x16"),
                }
            }
            ["file", name, path @ ..] => {
                let refused = |why: &str| Fault::File { file: (*name).into(), why: why.into() };
                let content = files(name).ok_or_else(|| refused("it is not among the results"))?;
                let facts = match path {
                    [] => object(&content, ""),
                    [path] => object(&content, path),
                    [heading, row] => line(&content, heading, row),
                    _ => return syntax(text, "take file NAME, and a path or a heading and a row"),
                };
                facts.map(Subject::File).map_err(|why| refused(&why))
            }
            _ => syntax(text, "take kernel, nest, mma or file, and what belongs to it"),
        }
    }

    /// A fact, by its name; `name` is the subject's.
    pub(super) fn fact(&self, name: &str, fact: &str) -> Result<Value> {
        let of_mma;
        let facts = match self {
            Subject::Launch(launch) => return launch.fact(name, fact),
            Subject::Walk(walk) => &walk.facts,
            Subject::File(facts) => facts,
            Subject::Mma(mma) => {
                of_mma = self::mma(*mma);
                &of_mma
            }
        };
        facts.get(fact).cloned().ok_or_else(|| unknown(name, fact, facts.keys()))
    }
}

fn unknown<'a>(subject: &str, fact: &str, known: impl Iterator<Item = &'a String>) -> Fault {
    let known = known.map(String::as_str).collect::<Vec<_>>().join(", ");
    Fault::UnknownFact { subject: subject.into(), fact: fact.into(), known }
}

fn size(text: &str) -> Result<usize> {
    // Larger ones would not end while one waits.
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

/// The fields of what can be written as a JSON object.
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

impl Launch {
    fn new(name: &str, ty: Type, sizes: [usize; 3], mut options: &[&str]) -> Result<Launch> {
        let mut variant = Variant::named(name, ty)?;
        if !matches!(variant, Variant::Gemm(GemmKernel::Plain(_))) {
            // As products take it: loads and stores are as wide as row-major matrices let them be.
            let lies = Lie::new(Order2d::RowMajor, true);
            variant = Recipe::named(name, ty)?.fit([lies; 3]).kernel.into();
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
                (Variant::Gemm(GemmKernel::Plain(plain)), ["plant", mistake, rest @ ..]) => {
                    *plain = plain.planted(mistake)?;
                    rest
                }
                _ => return syntax(&options.join(" "), "plain kernels take tile T, x-row and plant MISTAKE"),
            };
        }
        let product = Product::new(variant, sizes)?;
        let profile = product.profile()?;
        let mut facts = facts_of(&profile, &product);
        let numbers = ["m", "n", "k"].into_iter().zip(sizes);
        facts.extend(numbers.map(|(name, size)| (name.to_string(), Value::from(size as u64))));
        Ok(Launch { product, facts, findings: profile.outcome.findings, trace: OnceCell::new() })
    }

    /// What its first block does, on its own.
    ///
    /// # Errors
    /// Where that is more than a trace holds.
    pub fn trace(&self) -> Result<&Trace> {
        if let Some(trace) = self.trace.get() {
            return Ok(trace);
        }
        let sample = Sample { blocks: Some(vec![[0; 3]]), ..Sample::default() };
        let trace = self.product.trace(&sample, MOST)?;
        Ok(self.trace.get_or_init(|| trace))
    }

    /// The first request of each sort, as `a_load` and `tile_a_store`.
    ///
    /// # Errors
    /// As [`Launch::trace`].
    pub fn requests(&self) -> Result<BTreeMap<String, Request<'_>>> {
        let trace = self.trace()?;
        let header = &trace.header;
        let mut requests = BTreeMap::new();
        for event in trace.events.iter().filter(|event| event.warp == 0 && event.passes > 0) {
            let operation = header.operation(event.moment);
            let at = operation.memory as usize;
            let (global, how) = match operation.does {
                Does::GlobalLoad => (true, "load"),
                Does::GlobalStore => (true, "store"),
                Does::SharedLoad => (false, "load"),
                Does::SharedStore => (false, "store"),
                _ => continue,
            };
            let of = if global {
                header.matrices.get(at).map(|of| (&of.name, of.ty, None))
            } else {
                header.shared.get(at).map(|of| (&of.name, of.ty, Some(of.start)))
            };
            if let Some((memory, ty, start)) = of {
                let request = Request { header, event, memory, ty, start };
                requests.entry(format!("{memory}_{how}")).or_insert(request);
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
            return Ok(told(finding).into());
        }
        // What there is besides, also to be told of where nothing fits.
        let mut all = self.facts.clone();
        all.extend(
            self.findings.iter().map(|of| (format!("finding_{}", of.kind.name().replace('-', "_")), 0u32.into())),
        );
        for (request, of) in self.requests()? {
            let passes = if of.start.is_some() { "wavefronts" } else { "sectors" };
            all.insert(format!("{request}_{passes}"), of.event.passes.into());
            all.insert(format!("{request}_lanes"), of.event.lanes.count_ones().into());
        }
        all.get(fact).cloned().ok_or_else(|| unknown(name, fact, all.keys()))
    }
}

fn facts_of(profile: &Profile, product: &Product) -> Facts {
    let (kernel, outcome) = (product.kernel(), &profile.outcome);
    let mut facts = fields(outcome.counters);
    facts.extend(fields(profile.per_thread).into_iter().map(|(name, value)| (format!("thread_{name}"), value)));
    let found = |severity| outcome.findings.iter().filter(|of| of.severity() == severity).count() as u64;
    let more: [(&str, Value); 9] = [
        ("steps", profile.steps.into()),
        ("barriers_per_block", profile.barriers_per_block.into()),
        ("blocks", outcome.blocks.into()),
        ("threads", kernel.threads().into()),
        ("shared_bytes", kernel.shared_bytes().into()),
        ("errors", found(Severity::Error).into()),
        ("notes", found(Severity::Note).into()),
        ("name", kernel.name().to_string().into()),
        ("wrong", product.wrong().unwrap_or_default().into()),
    ];
    facts.extend(more.map(|(name, value)| (name.to_string(), value)));
    if let Some(text) = cpp::print(kernel).ok().and_then(|cuda| sum_over_k(&cuda.text)) {
        facts.insert("cuda".into(), text.into());
    }
    facts
}

/// From the line that makes the sum to the end of the loop behind it, moved to the left.
fn sum_over_k(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().position(|line| line.contains(" sum = "))?;
    let indent = lines[first].len() - lines[first].trim_start().len();
    let end = format!("{}}}", " ".repeat(indent));
    let last = first + lines[first..].iter().position(|line| *line == end)?;
    let moved: Vec<&str> = lines[first..=last].iter().map(|line| line.get(indent..).unwrap_or_default()).collect();
    Some(moved.join("\n"))
}

/// What was found, with what the lines say in place of their numbers.
fn told(finding: &Finding) -> String {
    finding.source.iter().fold(finding.message.clone(), |message, at| {
        let file = at.file().rsplit(['/', '\\']).next().unwrap_or_default();
        let text = sources().find(|(name, _)| *name == file).map_or("", |(_, text)| text);
        let line = (at.line() as usize).checked_sub(1).and_then(|before| text.lines().nth(before)).unwrap_or(file);
        message.replace(&format!("({}:{})", at.file(), at.line()), &format!("(`{}`)", line.trim()))
    })
}

impl Walk {
    fn new(name: &str, ty: Type, sizes: [usize; 3], tile: usize) -> Result<Walk> {
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
        Ok(Walk { facts })
    }
}

fn mma(mma: Mma) -> Facts {
    let ([m, n, k], [a, b, sum]) = (mma.shape(), mma.registers());
    let numbers = [("m", m), ("n", n), ("k", k), ("a_registers", a), ("b_registers", b), ("sum_registers", sum)];
    let numbers = numbers.into_iter().map(|(name, number)| (name.to_string(), number.into()));
    let name = mma.to_string().split(' ').take(2).collect::<Vec<_>>().join(" ");
    let more = [("products".to_string(), mma.products().into()), ("name".to_string(), name.into())];
    numbers.chain(more).collect()
}

/// The object of a JSON text that a path leads to: keys, and behind a key a pick of the one entry whose fields have these values.
fn object(content: &str, path: &str) -> std::result::Result<Facts, String> {
    let root: serde_json::Value = serde_json::from_str(content).map_err(|why| why.to_string())?;
    if path.is_empty() {
        return Ok(fields_of(&root));
    }
    let (key, pick) = path.strip_suffix(']').and_then(|path| path.split_once('[')).unwrap_or((path, ""));
    let entry = root.get(key).ok_or_else(|| format!("there is no {key:?}"))?;
    let Some(entries) = entry.as_array() else { return Ok(fields_of(entry)) };
    let written = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), String::from);
    let fits = |entry: &&serde_json::Value| {
        pick.split(',').all(|pair| {
            pair.split_once('=').is_some_and(|(field, value)| entry.get(field).is_some_and(|has| written(has) == value))
        })
    };
    match entries.iter().filter(fits).collect::<Vec<_>>().as_slice() {
        [entry] => Ok(fields_of(entry)),
        other => Err(format!("{} entries of {key} are {pick}; there must be one", other.len())),
    }
}

/// The words of the first line that starts with `row`, after one that holds `heading`.
fn line(content: &str, heading: &str, row: &str) -> std::result::Result<Facts, String> {
    let behind = content.lines().skip_while(|line| !line.contains(heading)).skip(1);
    let line = behind.map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|words| words.first() == Some(&row));
    let words = line.ok_or_else(|| format!("there is no line {row:?} after {heading:?}"))?;
    let value = |word: &str| word.parse().map_or_else(|_| Value::Text(word.into()), Value::Number);
    Ok(words.iter().enumerate().map(|(at, word)| (at.to_string(), value(word))).collect())
}
