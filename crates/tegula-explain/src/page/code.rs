//! The text of a kernel in each language, and the resources of a block.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde_json::{Value, json};
use tegula_ir::ptx::Image;
use tegula_ir::{Checked, Kernel, Site, cpp, ptx};
use tegula_kernels::sources;

use crate::assembled::SharedCounters;
use crate::error::Result;
use crate::sample_launch::SampleLaunch;
use crate::sass::{Listing, Tools};

/// The GPU whose machine code a page shows, and whose occupancy it computes.
const TARGET: &str = "sm_90";

/// A text, and the Rust source lines of each of its lines.
#[derive(Debug, Serialize)]
struct Text {
    lines: Vec<String>,
    #[serde(rename = "from")]
    origins: Vec<Vec<SourcePosition>>,
}

/// A source line: position of the file in the sources, line.
type SourcePosition = (usize, u32);

impl Text {
    fn new(text: &str, origins: impl IntoIterator<Item = Option<Site>>) -> Text {
        Text {
            lines: text.lines().map(String::from).collect(),
            origins: origins.into_iter().map(|site| position(site?.location)).map(Vec::from_iter).collect(),
        }
    }

    /// CUDA C++, in which loads are part of the statements that use them.
    fn of_cuda(cuda: &cpp::Source) -> Text {
        let mut text = Text::new(&cuda.text, cuda.lines.iter().copied());
        for (origins, reads) in text.origins.iter_mut().zip(&cuda.reads) {
            origins.extend(reads.iter().filter_map(|read| position(read)));
            origins.dedup();
        }
        text
    }
}

/// A kernel's PTX and, with the tools of a CUDA toolkit, its machine code.
pub struct Machine {
    image: Image,
    listing: Option<Listing>,
}

impl Machine {
    /// Assembles PTX; errors of the toolkit count as no toolkit, since the page works without.
    pub fn new(image: Image, tools: Option<&Tools>) -> Machine {
        let listing = tools.and_then(|tools| listing(tools, &image));
        Machine { image, listing }
    }

    /// Shared memory counters of a launch at machine widths, if they can be computed.
    pub fn shared_counters(&self, launch: &SampleLaunch) -> Option<SharedCounters> {
        launch.assembled(&self.image, self.listing.as_ref()?).ok()
    }
}

/// Listings that a server keeps, since the tools take longer than a launch.
const KEPT: usize = 256;

/// The listing of a text, kept for later launches of its kernel; `None` if the tools fail.
fn listing(tools: &Tools, image: &Image) -> Option<Listing> {
    static LISTINGS: Mutex<BTreeMap<String, Listing>> = Mutex::new(BTreeMap::new());
    let kept = || LISTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(listing) = kept().get(&image.text) {
        return Some(listing.clone());
    }
    let listing = tools.disassemble(image, TARGET).ok()?;
    let mut kept = kept();
    if kept.len() < KEPT {
        kept.insert(image.text.clone(), listing.clone());
    }
    Some(listing)
}

/// The kernel's text and resources as JSON, and its machine code.
pub fn code(kernel: &Checked<Kernel>, tools: Option<&Tools>) -> Result<(Value, Machine)> {
    let (image, sites) = ptx::print_lines(kernel)?;
    let sites: Vec<Option<Site>> = sites.into_iter().map(|site| site.map(|site| kernel.site(site))).collect();
    let cuda = cpp::print(kernel)?;
    let ptx_text = Text::new(&image.text, sites.iter().copied());
    let machine = Machine::new(image, tools);
    let assembled = machine.listing.as_ref().map(|listing| {
        let lines: Vec<&str> = listing.code.iter().map(|instruction| instruction.text.as_str()).collect();
        let of = |line: Option<usize>| sites.get(line?).copied().flatten();
        Text::new(&lines.join("\n"), listing.code.iter().map(|instruction| of(instruction.line)))
    });
    let texts = json!({
        "cuda": Text::of_cuda(&cuda),
        "ptx": ptx_text,
        "sass": assembled,
        "registers": machine.listing.as_ref().map(|listing| listing.registers),
        "shared_bytes": kernel.shared_bytes(),
        "threads": kernel.threads(),
    });
    Ok((texts, machine))
}

fn position(at: &Location<'_>) -> Option<SourcePosition> {
    let file = at.file().rsplit(['/', '\\']).next()?;
    Some((sources().position(|(name, _)| name == file)?, at.line()))
}
