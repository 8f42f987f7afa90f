//! What a launch costs in shared memory as the assembler wrote it: it makes one wide load of neighbours that a kernel loads one by one, and that takes fewer
//! wavefronts. The interpreter runs the kernel as it is written; the widths come from its machine code.
//!
//! Between two barriers of a warp, loads that the machine code has are kept at its widths, and those that it lacks are part of a wide one.

use std::collections::{BTreeSet, HashMap};
use std::ops::{AddAssign, ControlFlow};

use serde::Serialize;
use tegula_interp::{self as interp, Arg, Config, Event, Observer, Space, What, shared_wavefronts};
use tegula_ir::ptx::Image;
use tegula_ir::{Checked, Kernel};

use crate::error::{Error, Result};
use crate::sass::Listing;

/// Requests of shared memory, and the wavefronts that they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shared {
    /// Loads, warp by warp.
    pub load_requests: u64,
    /// Passes over the banks that they take.
    pub load_wavefronts: u64,
    /// Those of them that no other addresses of the same lanes and widths would take.
    pub load_conflicts: u64,
    /// Stores, warp by warp.
    pub store_requests: u64,
    /// Passes over the banks that they take.
    pub store_wavefronts: u64,
    /// Those of them that are due to conflicts.
    pub store_conflicts: u64,
}

impl AddAssign for Shared {
    fn add_assign(&mut self, other: Shared) {
        self.load_requests += other.load_requests;
        self.load_wavefronts += other.load_wavefronts;
        self.load_conflicts += other.load_conflicts;
        self.store_requests += other.store_requests;
        self.store_wavefronts += other.store_wavefronts;
        self.store_conflicts += other.store_conflicts;
    }
}

/// Runs a kernel and counts its accesses to shared memory at the widths of its machine code, `listing`, which was made from its PTX, `image`.
///
/// # Errors
/// [`Error::Kernel`] where the arguments do not fit, [`Error::Unlike`] where the machine code cannot be put beside what ran.
pub fn shared(kernel: &Checked<Kernel>, args: &[Arg<'_>], image: &Image, listing: &Listing) -> Result<Shared> {
    if kernel.shared().is_empty() {
        return Ok(Shared::default());
    }
    let mut seen = Operations::default();
    interp::observe(kernel, args, &Config::default(), &mut seen)?;
    let widths = |opcode, operations: &BTreeSet<u32>, written: &[&str], machine: &str| -> Result<HashMap<u32, u32>> {
        let lines: Vec<usize> = (0..)
            .zip(image.text.lines())
            .filter(|(_, text)| written.iter().any(|w| text.contains(w)))
            .map(|(i, _)| i)
            .collect();
        if lines.len() != operations.len() {
            let (some, all) = (operations.len(), lines.len());
            return Err(Error::Unlike(format!("of {all} {opcode} of shared memory {some} ran")));
        }
        let widest = |line: usize| {
            let of_line = listing.code.iter().filter(|instruction| instruction.line == Some(line));
            of_line.filter_map(|instruction| width(&instruction.text, machine)).max().unwrap_or(0)
        };
        Ok(operations.iter().copied().zip(lines.into_iter().map(widest)).collect())
    };
    let loads = widths("loads", &seen.loads, &["ld.shared", "ldmatrix"], "LDS")?;
    let stores = widths("stores", &seen.stores, &["st.shared"], "STS")?;
    let starts = kernel.shared().iter().map(|array| (array.start as u64, array.ty.size() as u64)).collect();
    let mut merging =
        Merging { loads, stores, starts, now: HashMap::new(), block: None, total: Shared::default(), left: 0 };
    interp::observe(kernel, args, &Config::default(), &mut merging)?;
    merging.end_block();
    match merging.left {
        0 => Ok(merging.total),
        left => Err(Error::Unlike(format!("{left} loads are of no instruction"))),
    }
}

/// The bytes that an instruction of this kind moves for each lane; `None` for another one.
fn width(text: &str, machine: &str) -> Option<u32> {
    let opcode = text.split_whitespace().find(|word| !word.starts_with('@'))?;
    let mut parts = opcode.split('.');
    // LDSM gathers rows of 16 bytes for 8 lanes each, and is never merged.
    match parts.next()? {
        "LDSM" if machine == "LDS" => return Some(16),
        name if name != machine => return None,
        _ => {}
    }
    Some(match parts.next_back() {
        Some("128") => 16,
        Some("64") => 8,
        Some("U16" | "S16") => 2,
        Some("U8" | "S8") => 1,
        _ => 4,
    })
}

/// Which operations load from and store to shared memory.
#[derive(Default)]
struct Operations {
    loads: BTreeSet<u32>,
    stores: BTreeSet<u32>,
    copies: BTreeSet<u32>,
}

impl Observer for Operations {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        if let What::Access { write, space, .. } = event.what {
            match (space, write) {
                (Space::Shared, false) => _ = self.loads.insert(event.operation),
                // What an asynchronous copy writes it has read from global memory just before.
                (Space::Shared, true) if !self.copies.contains(&event.operation) => {
                    self.stores.insert(event.operation);
                }
                (Space::Global, false) => _ = self.copies.insert(event.operation),
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }
}

/// A request as it is written: its lanes' bytes.
struct Asked {
    operation: u32,
    lanes: u32,
    addresses: [u64; 32],
    bytes: u32,
}

/// Puts together what the machine code has as one.
struct Merging {
    /// Bytes that the machine code moves at once for an operation; 0 for one that it lacks.
    loads: HashMap<u32, u32>,
    stores: HashMap<u32, u32>,
    /// Where each shared array begins, and the size of its elements.
    starts: Vec<(u64, u64)>,
    /// What each warp of the block has asked for since its last barrier.
    now: HashMap<u32, (Vec<Asked>, Vec<Asked>)>,
    block: Option<[u32; 3]>,
    total: Shared,
    /// Requests that are part of nothing.
    left: u64,
}

impl Merging {
    fn end_block(&mut self) {
        let warps: Vec<u32> = self.now.keys().copied().collect();
        warps.into_iter().for_each(|warp| self.end_step(warp));
    }

    /// Counts what a warp asked for between two barriers.
    fn end_step(&mut self, warp: u32) {
        let Some((loads, stores)) = self.now.remove(&warp) else { return };
        let loads = cost(&loads, &self.loads, false);
        self.total.load_requests += loads.requests;
        self.total.load_wavefronts += loads.wavefronts;
        self.total.load_conflicts += loads.conflicts;
        let stores = cost(&stores, &self.stores, true);
        self.total.store_requests += stores.requests;
        self.total.store_wavefronts += stores.wavefronts;
        self.total.store_conflicts += stores.conflicts;
        self.left += loads.left + stores.left;
    }
}

/// What a warp's accesses between two barriers cost.
#[derive(Default)]
struct Cost {
    requests: u64,
    wavefronts: u64,
    conflicts: u64,
    /// How much of what was asked is part of no instruction.
    left: u64,
}

fn cost(asked: &[Asked], widths: &HashMap<u32, u32>, write: bool) -> Cost {
    // Begun by what the machine code has wider than it is written; each holds the pieces that it covers, one bit a piece.
    let mut wide: Vec<(Asked, u32)> = Vec::new();
    let mut cost = Cost::default();
    let mut count = |one: &Asked| {
        let (wavefronts, conflicts) = shared_wavefronts(&one.addresses, one.lanes, one.bytes, write);
        cost.requests += 1;
        cost.wavefronts += wavefronts;
        cost.conflicts += conflicts;
    };
    let mut alone = Vec::new();
    let join = |wide: &mut Vec<(Asked, u32)>, one: &Asked| {
        wide.iter_mut().rev().any(|(all, covered)| {
            let lane = one.lanes.trailing_zeros() as usize % 32;
            let offset = one.addresses[lane].wrapping_sub(all.addresses[lane]);
            let same = (0..32)
                .filter(|lane| one.lanes >> lane & 1 == 1)
                .all(|i| one.addresses[i].wrapping_sub(all.addresses[i]) == offset);
            let inside = one.lanes == all.lanes && same && offset < u64::from(all.bytes);
            let piece = if inside { 1 << (offset / u64::from(one.bytes)) } else { 0 };
            let joins = inside && *covered & piece == 0;
            *covered |= piece;
            joins
        })
    };
    for one in asked {
        let bytes = widths.get(&one.operation).copied().unwrap_or(one.bytes);
        if join(&mut wide, one) {
            continue;
        }
        if bytes > one.bytes {
            let addresses = one.addresses.map(|address| address / u64::from(bytes) * u64::from(bytes));
            let mut all = vec![(Asked { operation: one.operation, lanes: one.lanes, addresses, bytes }, 0)];
            join(&mut all, one);
            wide.append(&mut all);
        } else if bytes == 0 {
            alone.push(one);
        } else {
            count(one);
        }
    }
    // Those before the one that the machine code names.
    let left = alone.into_iter().filter(|one| !join(&mut wide, one)).count() as u64;
    wide.iter().for_each(|(all, _)| count(all));
    Cost { left, ..cost }
}

impl Observer for Merging {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        if self.block != Some(event.block) {
            self.end_block();
            self.block = Some(event.block);
        }
        match event.what {
            What::Barrier { .. } => self.end_step(event.warp),
            What::Access { write, space: Space::Shared, memory, elements, request: Some(request), .. } => {
                let (start, size) = self.starts.get(memory).copied().unwrap_or((0, 4));
                let lanes = elements.iter().rev().fold(0, |mask, e| mask << 1 | u32::from(e.is_some()));
                if lanes == 0 {
                    return ControlFlow::Continue(());
                }
                let known = if write { &self.stores } else { &self.loads };
                if !known.contains_key(&event.operation) {
                    // An asynchronous copy, which is no store.
                    return ControlFlow::Continue(());
                }
                let addresses = elements.map(|element| start + element.unwrap_or(0) * size);
                let bytes = request.width * size as u32;
                let (loads, stores) = self.now.entry(event.warp).or_default();
                let asked = Asked { operation: event.operation, lanes, addresses, bytes };
                if write { stores.push(asked) } else { loads.push(asked) }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
