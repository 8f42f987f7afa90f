//! What a page holds: products, each with its trace and what it costs, and the text of their kernels.

use std::collections::BTreeMap;
use std::io::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use serde_json::json;
use tegula::element::Type;
use tegula::interp::{self, Counters};
use tegula::ir::{Checked, Kernel, Order2d, Site};
use tegula::kernels::{Barriers, Edges, Family, Mapping, Plain, SOURCES, Variant};
use tegula::plan::{Lie, Recipe};
use tegula::{cpp, ptx};

use crate::error::Result;
use crate::product::Product;
use crate::profile::PerThread;
use crate::sass::Tools;
use crate::trace::{MOST, Sample};

/// The GPU whose machine code a page shows, and on whose multiprocessors it counts blocks.
const MACHINE: &str = "sm_90";

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

/// A text, and for each of its lines the line of source that it comes from: the file's position among the sources, and the line.
#[derive(Debug, Serialize)]
struct Text {
    lines: Vec<String>,
    from: Vec<Option<(usize, u32)>>,
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
    /// Where the kernel cannot be built, or does more than a trace holds.
    pub fn packed(&self) -> Result<String> {
        let product = Product::new(self.plain, self.sizes)?;
        let mut codes = BTreeMap::new();
        codes.insert(product.kernel().name().to_string(), code(product.kernel())?);
        pack(&json!({ "entries": [self.entry(&product)?], "codes": codes }))
    }

    fn entry(&self, product: &Product) -> Result<Entry> {
        let profile = product.profile()?;
        let mut trace = Vec::new();
        product.trace(&Sample::default(), MOST)?.write(&mut trace)?;
        Ok(Entry {
            choice: self.told(),
            kernel: product.kernel().name().into(),
            steps: profile.steps,
            per_thread: profile.per_thread,
            barriers_per_block: profile.barriers_per_block,
            counters: profile.outcome.counters,
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

    /// All of it as the page reads it: JSON, deflated, in base 64; and the traces, which are unpacked one by one when they are looked at.
    pub(super) fn packed(&self, told: &dyn Fn(usize)) -> Result<(String, Vec<String>)> {
        let (mut entries, mut traces, mut codes) = (Vec::new(), Vec::new(), BTreeMap::new());
        for choice in &self.choices {
            let product = Product::new(choice.plain, choice.sizes)?;
            let mut entry = choice.entry(&product)?;
            traces.push(std::mem::replace(&mut entry.trace, format!("#{}", traces.len())));
            entries.push(entry);
            let name = product.kernel().name().to_string();
            if let std::collections::btree_map::Entry::Vacant(vacant) = codes.entry(name) {
                vacant.insert(code(product.kernel())?);
            }
            told(entries.len());
        }
        let sources: Vec<_> = SOURCES.iter().map(|(file, text)| json!({ "file": file, "text": text })).collect();
        let book = pack(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "served": self.served,
            "sources": sources,
            "metrics": interp::METRICS,
            "loops": super::nests::nests()?,
            "ladder": ladder()?,
            "codes": codes,
            "entries": entries,
        }))?;
        Ok((book, traces))
    }
}

/// From no tiles to tiles in registers: what each kernel costs for the same product.
fn ladder() -> Result<serde_json::Value> {
    const SIDE: usize = 64;
    let plain = |family, tile| Variant::from(Plain::new(family, Type::F32, tile));
    let naive = [(plain(Family::Naive, 32), "naive, 32×32 threads".to_string())];
    let tiled = [2, 4, 8, 16, 32].map(|tile| (plain(Family::Tiled, tile), format!("tiled, T = {tile}")));
    let row_major = Lie { order: Order2d::RowMajor, vectors: true };
    let registers = Recipe::named("register_64x64x16_32x32_8x4_3_1_2", Type::F32)?.fit([row_major; 3]).kernel;
    let all = naive.into_iter().chain(tiled).chain([(registers, "tiles of 64×64 in registers".to_string())]);
    let rungs = all.map(|(kernel, name)| {
        let profile = Product::new(kernel, [SIDE; 3])?.profile()?;
        Ok(json!({ "name": name, "kernel": kernel.to_string(), "counters": profile.outcome.counters, "per_thread": profile.per_thread }))
    });
    Ok(json!({ "side": SIDE, "rungs": rungs.collect::<Result<Vec<_>>>()? }))
}

fn pack(what: &serde_json::Value) -> Result<String> {
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    packed.write_all(what.to_string().as_bytes())?;
    Ok(BASE64_STANDARD.encode(packed.finish()?))
}

/// What a kernel reads like, and what a block of it takes.
fn code(kernel: &Checked<Kernel>) -> Result<serde_json::Value> {
    let text = |text: &str, from: Vec<Option<Site>>| Text {
        lines: text.lines().map(String::from).collect(),
        from: from.into_iter().map(|site| line_of(site?)).collect(),
    };
    let (image, sites) = ptx::print_lines(kernel)?;
    let sites: Vec<Option<Site>> = sites.into_iter().map(|site| site.map(|site| kernel.site(site))).collect();
    // A page without machine code is better than none, so whatever is wrong with the toolkit is nobody's concern here.
    let listing = Tools::find().and_then(|tools| tools.disassemble(&image, MACHINE).ok());
    let machine = listing.as_ref().map(|listing| {
        let lines: Vec<&str> = listing.code.iter().map(|instruction| instruction.text.as_str()).collect();
        let of = |line: Option<usize>| sites.get(line?).copied().flatten();
        text(&lines.join("\n"), listing.code.iter().map(|instruction| of(instruction.line)).collect())
    });
    let cuda = cpp::print(kernel)?;
    Ok(json!({
        "cuda": text(&cuda.text, cuda.lines),
        "ptx": text(&image.text, sites.clone()),
        "sass": machine,
        "registers": listing.map(|listing| listing.registers),
        "shared_bytes": kernel.shared_bytes(),
        "threads": kernel.threads(),
    }))
}

fn line_of(site: Site) -> Option<(usize, u32)> {
    let at = site.location;
    let file = at.file().rsplit(['/', '\\']).next()?;
    Some((SOURCES.iter().position(|(name, _)| *name == file)?, at.line()))
}
