//! What a page holds: products, each with its trace and what it costs, and the text of their kernels.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use serde_json::json;
use tegula_core::element::Type;
use tegula_interp::{self as interp, Counters};
use tegula_ir as ir;
use tegula_kernels::{Barriers, Edges, Family, Mapping, Plain, Variant, sources};

use super::code::{Machine, code};
use super::cores::share;
use super::ladder::{devices, ladder};
use crate::assembled::Shared;
use crate::error::{Error, Result};
use crate::product::Product;
use crate::profile::PerThread;
use crate::trace::{MOST, Sample};

/// A product that a page can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The kernel.
    pub plain: Plain,
    /// m, n and k.
    pub sizes: [usize; 3],
}

/// The products of a page.
#[derive(Clone, Debug)]
pub struct Book {
    choices: Vec<Choice>,
    /// Whether whoever gave the page out answers for further products.
    served: bool,
}

/// What a page is told of a product.
#[derive(Debug, Serialize)]
struct Entry {
    #[serde(flatten)]
    choice: Told,
    kernel: String,
    steps: u64,
    per_thread: PerThread,
    barriers_per_block: u64,
    counters: Counters,
    /// Shared memory's part of them as the assembler wrote it, where a toolkit is found.
    assembled: Option<Shared>,
    /// What is wrong with the result.
    wrong: Option<String>,
    /// The file of the trace, in base 64; or `#` and the number of the element of the page that holds it.
    trace: String,
}

/// A choice in the words of the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Told {
    family: &'static str,
    dtype: Type,
    tile: u32,
    mapping: &'static str,
    /// A planted mistake.
    mistake: Option<&'static str>,
    m: usize,
    n: usize,
    k: usize,
}

impl Choice {
    fn told(&self) -> Told {
        let Choice { plain, sizes: [m, n, k] } = *self;
        let mistake = match (plain.edges, plain.barriers) {
            (_, Barriers::NoFirst) => Some("missing-first-barrier"),
            (_, Barriers::NoSecond) => Some("missing-second-barrier"),
            (_, Barriers::Extra) => Some("extra-barrier"),
            (Edges::Floor, _) => Some("floor-launch"),
            (Edges::Unguarded, _) => Some("no-guards"),
            (Edges::Guarded, Barriers::Both) => None,
        };
        Told {
            family: if plain.family == Family::Naive { "naive" } else { "tiled" },
            dtype: plain.ty,
            tile: plain.tile,
            mapping: if plain.mapping == Mapping::XRow { "x-row" } else { "x-col" },
            mistake,
            m,
            n,
            k,
        }
    }

    /// The product and the text of its kernel, packed as the page reads it.
    ///
    /// # Errors
    /// Where the kernel cannot be built, or does more than a trace holds; [`Error::Stopped`] soon after `stop` is set.
    pub fn packed(&self, stop: &AtomicBool) -> Result<String> {
        let product = Product::new(self.plain, self.sizes)?;
        let (told, machine) = code(product.kernel())?;
        let codes = BTreeMap::from([(product.kernel().name(), told)]);
        pack(&json!({ "entries": [self.entry(&product, &machine, stop)?], "codes": codes }))
    }

    fn entry(&self, product: &Product, machine: &Machine, stop: &AtomicBool) -> Result<Entry> {
        let going = || if stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) };
        going()?;
        let profile = product.profile()?;
        going()?;
        let recorded = product.trace(&Sample::default(), MOST)?;
        going()?;
        let mut trace = Vec::new();
        recorded.write(&mut trace)?;
        going()?;
        Ok(Entry {
            choice: self.told(),
            kernel: product.kernel().name().into(),
            steps: profile.steps,
            per_thread: profile.per_thread,
            barriers_per_block: profile.barriers_per_block,
            counters: profile.outcome.counters,
            assembled: machine.cost(product),
            wrong: product.wrong(),
            trace: BASE64_STANDARD.encode(trace),
        })
    }
}

impl Book {
    /// Every tile and mapping of the plain kernels of a type for small products, and the mistakes that can be planted in them.
    pub fn small(ty: Type) -> Book {
        let mut choices = Vec::new();
        for sizes in [[4, 4, 4], [5, 6, 7], [8, 8, 8], [16, 16, 16], [32, 32, 32]] {
            for family in [Family::Tiled, Family::Naive] {
                for tile in [2, 4, 8, 16, 32] {
                    for mapping in [Mapping::XCol, Mapping::XRow] {
                        choices.push(Choice { plain: Plain { mapping, ..Plain::new(family, ty, tile) }, sizes });
                    }
                }
            }
        }
        for sizes in [[4, 4, 4], [5, 6, 7]] {
            for tile in [2, 4] {
                let tiled = Plain::new(Family::Tiled, ty, tile);
                for barriers in [Barriers::NoFirst, Barriers::NoSecond, Barriers::Extra] {
                    choices.push(Choice { plain: Plain { barriers, ..tiled }, sizes });
                }
                for edges in [Edges::Floor, Edges::Unguarded] {
                    choices.push(Choice { plain: Plain { edges, ..tiled }, sizes });
                }
            }
        }
        Book { choices, served: false }
    }

    /// The same, and first of all this product.
    pub fn opening_with(mut self, choice: Choice) -> Book {
        self.choices.retain(|other| *other != choice);
        self.choices.insert(0, choice);
        self
    }

    /// How many products it has.
    #[allow(clippy::len_without_is_empty, reason = "a book without products has no page")]
    pub fn len(&self) -> usize {
        self.choices.len()
    }

    /// These products, on a page that can ask for others: see [`Choice::packed`].
    pub fn served(choices: Vec<Choice>) -> Book {
        Book { choices, served: true }
    }

    /// The type of most of its products.
    fn ty(&self) -> Type {
        self.choices.first().map_or(Type::F32, |choice| choice.plain.ty)
    }

    /// Products of one kernel together, which is then assembled once.
    fn chapters(&self) -> Vec<Chapter> {
        let mut chapters: Vec<Chapter> = Vec::new();
        for (at, &choice) in self.choices.iter().enumerate() {
            match chapters.iter_mut().find(|chapter| chapter.plain == choice.plain) {
                Some(chapter) => chapter.choices.push((at, choice)),
                None => chapters.push(Chapter { plain: choice.plain, choices: vec![(at, choice)] }),
            }
        }
        chapters
    }

    /// All of it as the page reads it: JSON, deflated, in base 64; and the traces, which are unpacked one by one when they are looked at.
    pub(super) fn packed(&self, told: &dyn Fn(usize)) -> Result<(String, Vec<String>)> {
        let mut done = 0;
        let chapters = share(&self.chapters(), Chapter::write, |written| {
            done += written.entries.len();
            told(done);
        })?;
        let (mut codes, mut machines, mut entries) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for chapter in chapters {
            codes.insert(chapter.kernel.clone(), chapter.code);
            machines.insert(chapter.kernel, chapter.machine);
            entries.extend(chapter.entries);
        }
        // As they were chosen.
        entries.sort_by_key(|(at, _)| *at);
        let take =
            |(at, (_, entry)): (usize, &mut (usize, Entry))| std::mem::replace(&mut entry.trace, format!("#{at}"));
        let traces = entries.iter_mut().enumerate().map(take).collect();
        let entries: Vec<_> = entries.into_iter().map(|(_, entry)| entry).collect();
        let sources: Vec<_> = sources().map(|(file, text)| json!({ "file": file, "text": text })).collect();
        let book = pack(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "served": self.served,
            "largest": super::LARGEST,
            "sources": sources,
            "metrics": interp::METRICS,
            "loops": super::nests::nests()?,
            "ladder": ladder(self.ty(), &machines)?,
            "devices": devices()?,
            "codes": codes,
            "entries": entries,
        }))?;
        Ok((book, traces))
    }
}

/// Products of one kernel, each with its place among all.
struct Chapter {
    plain: Plain,
    choices: Vec<(usize, Choice)>,
}

/// What a page is told of them.
struct Written {
    kernel: String,
    code: serde_json::Value,
    machine: Machine,
    entries: Vec<(usize, Entry)>,
}

impl Chapter {
    fn write(&self) -> Result<Written> {
        let kernel = ir::check(Variant::from(self.plain).build()?)?;
        let (code, machine) = code(&kernel)?;
        let never = AtomicBool::new(false);
        let entry = |&(at, choice): &(usize, Choice)| {
            Ok((at, choice.entry(&Product::new(choice.plain, choice.sizes)?, &machine, &never)?))
        };
        let entries = self.choices.iter().map(entry).collect::<Result<_>>()?;
        Ok(Written { kernel: kernel.name().into(), code, machine, entries })
    }
}

fn pack(what: &serde_json::Value) -> Result<String> {
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    packed.write_all(what.to_string().as_bytes())?;
    Ok(BASE64_STANDARD.encode(packed.finish()?))
}
