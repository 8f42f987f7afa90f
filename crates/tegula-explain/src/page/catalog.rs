//! The data of a page: launches with their traces and costs, and the text of their kernels.

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
use tegula_kernels::{Barriers, Edges, Mapping, Plain, PlainKind, Variant, sources};

use super::code::{Machine, code};
use super::ladder::{devices, ladder};
use super::parallel::parallel_map;
use crate::assembled::SharedCounters;
use crate::error::{Error, Result};
use crate::profile::PerThread;
use crate::sample_launch::SampleLaunch;
use crate::sass::Tools;
use crate::trace::{MAX_VALUES, TraceFilter};

/// A launch that a page can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The kernel.
    pub plain: Plain,
    /// m, n and k.
    pub extents: [usize; 3],
}

/// The launches of a page.
#[derive(Clone, Debug)]
pub struct Catalog {
    selections: Vec<Selection>,
    /// Whether a server answers requests for further launches.
    served: bool,
    /// The programs that print machine code; `None` for a page without it.
    tools: Option<Tools>,
}

/// A launch as the page reads it.
#[derive(Debug, Serialize)]
struct Entry {
    #[serde(flatten)]
    key: EntryKey,
    kernel: String,
    steps: u64,
    per_thread: PerThread,
    barriers_per_block: u64,
    counters: Counters,
    /// Shared memory counters at the widths of the machine code, if a CUDA toolkit is installed.
    assembled: Option<SharedCounters>,
    /// The error of the result.
    wrong: Option<String>,
    /// The trace file in base 64, or `#` and the number of the page element that holds it.
    trace: String,
}

/// A selection in the terms of the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct EntryKey {
    family: &'static str,
    dtype: Type,
    tile: u32,
    mapping: &'static str,
    /// An injected bug.
    #[serde(rename = "mistake")]
    bug: Option<&'static str>,
    m: usize,
    n: usize,
    k: usize,
}

impl Selection {
    fn key(&self) -> EntryKey {
        let Selection { plain, extents: [m, n, k] } = *self;
        let bug = match (plain.edges, plain.barriers) {
            (_, Barriers::NoFirst) => Some("missing-first-barrier"),
            (_, Barriers::NoSecond) => Some("missing-second-barrier"),
            (_, Barriers::Extra) => Some("extra-barrier"),
            (Edges::Floor, _) => Some("floor-launch"),
            (Edges::Unguarded, _) => Some("no-guards"),
            (Edges::Guarded, Barriers::Both) => None,
        };
        EntryKey {
            family: if plain.kind == PlainKind::Naive { "naive" } else { "tiled" },
            dtype: plain.ty,
            tile: plain.tile,
            mapping: if plain.mapping == Mapping::XRow { "x-row" } else { "x-col" },
            bug,
            m,
            n,
            k,
        }
    }

    /// The launch and the text of its kernel: JSON, deflated, in base 64.
    ///
    /// # Errors
    /// A kernel that cannot be built, [`Error::TraceTooLarge`], or [`Error::Canceled`] soon after
    /// `cancel` is set.
    pub fn packed(&self, cancel: &AtomicBool) -> Result<String> {
        let launch = SampleLaunch::new(self.plain, self.extents)?;
        let (text, machine) = code(launch.kernel(), Tools::find().as_ref())?;
        let codes = BTreeMap::from([(launch.kernel().name(), text)]);
        pack(&json!({ "entries": [self.entry(&launch, &machine, cancel)?], "codes": codes }))
    }

    fn entry(&self, launch: &SampleLaunch, machine: &Machine, cancel: &AtomicBool) -> Result<Entry> {
        let check_canceled = || if cancel.load(Ordering::Relaxed) { Err(Error::Canceled) } else { Ok(()) };
        check_canceled()?;
        let profile = launch.profile()?;
        check_canceled()?;
        let recorded = launch.trace(&TraceFilter::default(), MAX_VALUES)?;
        check_canceled()?;
        let mut trace = Vec::new();
        recorded.write(&mut trace)?;
        check_canceled()?;
        Ok(Entry {
            key: self.key(),
            kernel: launch.kernel().name().into(),
            steps: profile.steps,
            per_thread: profile.per_thread,
            barriers_per_block: profile.barriers_per_block,
            counters: profile.outcome.counters,
            assembled: machine.shared_counters(launch),
            wrong: launch.result_error(),
            trace: BASE64_STANDARD.encode(trace),
        })
    }
}

impl Catalog {
    /// The plain kernels of a type on small problems: every tile and mapping, and injected bugs.
    pub fn small(ty: Type) -> Catalog {
        let mut selections = Vec::new();
        for extents in [[4, 4, 4], [5, 6, 7], [8, 8, 8], [16, 16, 16], [32, 32, 32]] {
            for family in [PlainKind::Tiled, PlainKind::Naive] {
                for tile in [2, 4, 8, 16, 32] {
                    for mapping in [Mapping::XCol, Mapping::XRow] {
                        selections
                            .push(Selection { plain: Plain { mapping, ..Plain::new(family, ty, tile) }, extents });
                    }
                }
            }
        }
        for extents in [[4, 4, 4], [5, 6, 7]] {
            for tile in [2, 4] {
                let tiled = Plain::new(PlainKind::Tiled, ty, tile);
                for barriers in [Barriers::NoFirst, Barriers::NoSecond, Barriers::Extra] {
                    selections.push(Selection { plain: Plain { barriers, ..tiled }, extents });
                }
                for edges in [Edges::Floor, Edges::Unguarded] {
                    selections.push(Selection { plain: Plain { edges, ..tiled }, extents });
                }
            }
        }
        Catalog { selections, served: false, tools: Tools::find() }
    }

    /// Moves a launch to the front, or adds it there.
    pub fn starting_with(mut self, selection: Selection) -> Catalog {
        self.selections.retain(|other| *other != selection);
        self.selections.insert(0, selection);
        self
    }

    /// The same launches without machine code, which takes most of the time of a page.
    pub fn without_machine_code(self) -> Catalog {
        Catalog { tools: None, ..self }
    }

    /// The number of launches.
    #[allow(clippy::len_without_is_empty, reason = "a page has at least one launch")]
    pub fn len(&self) -> usize {
        self.selections.len()
    }

    /// The launches of a page that requests further ones: see [`Selection::packed`].
    pub fn served(selections: Vec<Selection>) -> Catalog {
        Catalog { selections, served: true, tools: Tools::find() }
    }

    /// The type of the first launch.
    fn ty(&self) -> Type {
        self.selections.first().map_or(Type::F32, |selection| selection.plain.ty)
    }

    /// The launches grouped by kernel, so that each kernel is assembled once.
    fn groups(&self) -> Vec<KernelGroup> {
        let mut groups: Vec<KernelGroup> = Vec::new();
        for (at, &selection) in self.selections.iter().enumerate() {
            match groups.iter_mut().find(|group| group.plain == selection.plain) {
                Some(group) => group.selections.push((at, selection)),
                None => groups.push(KernelGroup { plain: selection.plain, selections: vec![(at, selection)] }),
            }
        }
        groups
    }

    /// All data but the traces (JSON, deflated, in base 64), and the traces.
    ///
    /// The page unpacks a trace when it is shown. `progress` gets the number of finished launches.
    pub(super) fn packed(&self, progress: &dyn Fn(usize)) -> Result<(String, Vec<String>)> {
        let mut done = 0;
        let trace = |group: &KernelGroup| group.trace(self.tools.as_ref());
        let kernels = parallel_map(&self.groups(), trace, |kernel| {
            done += kernel.entries.len();
            progress(done);
        })?;
        let (mut codes, mut machines, mut entries) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for kernel in kernels {
            codes.insert(kernel.name.clone(), kernel.code);
            machines.insert(kernel.name, kernel.machine);
            entries.extend(kernel.entries);
        }
        // In the order of the selections.
        entries.sort_by_key(|(at, _)| *at);
        let take =
            |(at, (_, entry)): (usize, &mut (usize, Entry))| std::mem::replace(&mut entry.trace, format!("#{at}"));
        let traces = entries.iter_mut().enumerate().map(take).collect();
        let entries: Vec<_> = entries.into_iter().map(|(_, entry)| entry).collect();
        let sources: Vec<_> = sources().map(|(file, text)| json!({ "file": file, "text": text })).collect();
        let catalog = pack(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "served": self.served,
            "largest": super::MAX_EXTENT,
            "sources": sources,
            "metrics": interp::METRICS,
            "loops": super::nests::nests()?,
            "ladder": ladder(self.ty(), &machines, self.tools.as_ref())?,
            "devices": devices()?,
            "codes": codes,
            "entries": entries,
        }))?;
        Ok((catalog, traces))
    }
}

/// The launches of one kernel, each with its position in the catalog.
struct KernelGroup {
    plain: Plain,
    selections: Vec<(usize, Selection)>,
}

/// A kernel and its launches as the page reads them.
struct TracedKernel {
    name: String,
    code: serde_json::Value,
    machine: Machine,
    entries: Vec<(usize, Entry)>,
}

impl KernelGroup {
    fn trace(&self, tools: Option<&Tools>) -> Result<TracedKernel> {
        let kernel = ir::check(Variant::from(self.plain).build()?)?;
        let (code, machine) = code(&kernel, tools)?;
        let never = AtomicBool::new(false);
        let entry = |&(at, selection): &(usize, Selection)| {
            Ok((at, selection.entry(&SampleLaunch::new(selection.plain, selection.extents)?, &machine, &never)?))
        };
        let entries = self.selections.iter().map(entry).collect::<Result<_>>()?;
        Ok(TracedKernel { name: kernel.name().into(), code, machine, entries })
    }
}

/// Serializes to JSON, deflated, in base 64.
fn pack(value: &serde_json::Value) -> Result<String> {
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    packed.write_all(value.to_string().as_bytes())?;
    Ok(BASE64_STANDARD.encode(packed.finish()?))
}
