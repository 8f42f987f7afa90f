//! What a kernel reads like in each language, and what a block of it takes.

use std::panic::Location;

use serde::Serialize;
use serde_json::{Value, json};
use tegula_ir::ptx::Image;
use tegula_ir::{Checked, Kernel, Site, cpp, ptx};
use tegula_kernels::sources;

use crate::assembled::Shared;
use crate::error::Result;
use crate::product::Product;
use crate::sass::{Listing, Tools};

/// The GPU whose machine code a page shows, and on whose multiprocessors it counts blocks.
const MACHINE: &str = "sm_90";

/// A text, and for each of its lines the lines of source that it comes from.
#[derive(Debug, Serialize)]
struct Text {
    lines: Vec<String>,
    from: Vec<Vec<Place>>,
}

/// A line of source: the file's position among the sources, and the line.
type Place = (usize, u32);

impl Text {
    fn new(text: &str, from: impl IntoIterator<Item = Option<Site>>) -> Text {
        Text {
            lines: text.lines().map(String::from).collect(),
            from: from.into_iter().map(|site| place(site?.location)).map(Vec::from_iter).collect(),
        }
    }

    /// CUDA C++: loads stand within the statements that use them.
    fn of_cuda(cuda: &cpp::Source) -> Text {
        let mut text = Text::new(&cuda.text, cuda.lines.iter().copied());
        for (from, reads) in text.from.iter_mut().zip(&cuda.reads) {
            from.extend(reads.iter().filter_map(|read| place(read)));
            from.dedup();
        }
        text
    }
}

/// A kernel's machine code, where a toolkit is found.
pub struct Machine {
    image: Image,
    listing: Option<Listing>,
}

impl Machine {
    /// Assembles it. A page without machine code is better than none, so whatever is wrong with the toolkit is nobody's concern here.
    pub fn new(image: Image) -> Machine {
        let listing = Tools::find().and_then(|tools| tools.disassemble(&image, MACHINE).ok());
        Machine { image, listing }
    }

    /// What a product of the kernel costs in shared memory as assembled, where that can be told.
    pub fn cost(&self, product: &Product) -> Option<Shared> {
        product.assembled(&self.image, self.listing.as_ref()?).ok()
    }
}

/// The kernel as a page shows it, and its machine code.
pub fn code(kernel: &Checked<Kernel>) -> Result<(Value, Machine)> {
    let (image, sites) = ptx::print_lines(kernel)?;
    let sites: Vec<Option<Site>> = sites.into_iter().map(|site| site.map(|site| kernel.site(site))).collect();
    let cuda = cpp::print(kernel)?;
    let written = Text::new(&image.text, sites.iter().copied());
    let machine = Machine::new(image);
    let assembled = machine.listing.as_ref().map(|listing| {
        let lines: Vec<&str> = listing.code.iter().map(|instruction| instruction.text.as_str()).collect();
        let of = |line: Option<usize>| sites.get(line?).copied().flatten();
        Text::new(&lines.join("\n"), listing.code.iter().map(|instruction| of(instruction.line)))
    });
    let told = json!({
        "cuda": Text::of_cuda(&cuda),
        "ptx": written,
        "sass": assembled,
        "registers": machine.listing.as_ref().map(|listing| listing.registers),
        "shared_bytes": kernel.shared_bytes(),
        "threads": kernel.threads(),
    });
    Ok((told, machine))
}

fn place(at: &Location<'_>) -> Option<Place> {
    let file = at.file().rsplit(['/', '\\']).next()?;
    Some((sources().position(|(name, _)| name == file)?, at.line()))
}
