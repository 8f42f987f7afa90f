//! Shared memory counters of a launch, at the access widths of its machine code.
//!
//! The assembler merges adjacent loads of a kernel into one wide load, which takes fewer
//! wavefronts. The interpreter runs the kernel as written; the widths come from the machine code.
//!
//! Between two barriers of a warp, a load that the machine code has keeps its machine width. A load
//! that it lacks is part of a wide one.

use std::collections::{BTreeSet, HashMap};
use std::ops::{AddAssign, ControlFlow};

use serde::Serialize;
use tegula_interp::{self as interp, Arg, Config, Event, EventKind, Observer, Space, shared_wavefronts};
use tegula_ir::ptx::Image;
use tegula_ir::{Checked, Kernel};

use crate::error::{Error, Result};
use crate::sass::Listing;

/// Requests to shared memory and their wavefronts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SharedCounters {
    /// Load requests, one per warp and instruction.
    pub load_requests: u64,
    /// Wavefronts of the loads.
    pub load_wavefronts: u64,
    /// Load wavefronts beyond the minimum for their lanes and widths.
    pub load_conflicts: u64,
    /// Store requests, one per warp and instruction.
    pub store_requests: u64,
    /// Wavefronts of the stores.
    pub store_wavefronts: u64,
    /// Store wavefronts due to bank conflicts.
    pub store_conflicts: u64,
}

impl AddAssign for SharedCounters {
    fn add_assign(&mut self, other: SharedCounters) {
        self.load_requests += other.load_requests;
        self.load_wavefronts += other.load_wavefronts;
        self.load_conflicts += other.load_conflicts;
        self.store_requests += other.store_requests;
        self.store_wavefronts += other.store_wavefronts;
        self.store_conflicts += other.store_conflicts;
    }
}

/// Runs a kernel and counts its shared memory accesses at the widths of its machine code.
///
/// `image` is the kernel's PTX, `listing` the machine code assembled from it.
///
/// # Errors
/// [`Error::Kernel`] if the arguments do not fit, [`Error::Mismatch`] if the machine code does not
/// match the operations that ran.
pub fn shared_counters(
    kernel: &Checked<Kernel>,
    args: &[Arg<'_>],
    image: &Image,
    listing: &Listing,
) -> Result<SharedCounters> {
    if kernel.shared().is_empty() {
        return Ok(SharedCounters::default());
    }
    let mut executed = Operations::default();
    interp::observe(kernel, args, &Config::default(), &mut executed)?;
    let widths = |opcode, operations: &BTreeSet<u32>, written: &[&str], machine: &str| -> Result<HashMap<u32, u32>> {
        let lines: Vec<usize> = (0..)
            .zip(image.text.lines())
            .filter(|(_, text)| written.iter().any(|w| text.contains(w)))
            .map(|(i, _)| i)
            .collect();
        if lines.len() != operations.len() {
            let (executed, all) = (operations.len(), lines.len());
            return Err(Error::Mismatch(format!("{executed} of {all} shared memory {opcode} ran")));
        }
        let widest = |line: usize| {
            let of_line = listing.code.iter().filter(|instruction| instruction.line == Some(line));
            of_line.filter_map(|instruction| width(&instruction.text, machine)).max().unwrap_or(0)
        };
        Ok(operations.iter().copied().zip(lines.into_iter().map(widest)).collect())
    };
    let loads = widths("loads", &executed.loads, &["ld.shared", "ldmatrix"], "LDS")?;
    let stores = widths("stores", &executed.stores, &["st.shared"], "STS")?;
    let starts = kernel.shared().iter().map(|array| (array.start as u64, array.ty.size() as u64)).collect();
    let mut merging = RequestMerger {
        loads,
        stores,
        starts,
        open: HashMap::new(),
        block: None,
        total: SharedCounters::default(),
        unmatched: 0,
    };
    interp::observe(kernel, args, &Config::default(), &mut merging)?;
    merging.end_block();
    match merging.unmatched {
        0 => Ok(merging.total),
        unmatched => Err(Error::Mismatch(format!("{unmatched} loads match no instruction"))),
    }
}

/// The bytes per lane of an instruction with this opcode; `None` for another opcode.
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

/// The operations that load from and store to shared memory.
#[derive(Default)]
struct Operations {
    loads: BTreeSet<u32>,
    stores: BTreeSet<u32>,
    copies: BTreeSet<u32>,
}

impl Observer for Operations {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        if let EventKind::Access { write, space, .. } = event.kind {
            match (space, write) {
                (Space::Shared, false) => _ = self.loads.insert(event.operation),
                // An asynchronous copy has just read from global memory.
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

/// A request of the kernel as written: its active lanes and their addresses.
struct WarpRequest {
    operation: u32,
    lanes: u32,
    addresses: [u64; 32],
    bytes: u32,
}

/// Merges requests that are one instruction in the machine code.
struct RequestMerger {
    /// Bytes per lane in the machine code, by operation; 0 for an operation that it lacks.
    loads: HashMap<u32, u32>,
    stores: HashMap<u32, u32>,
    /// Byte offset and element size of each shared array.
    starts: Vec<(u64, u64)>,
    /// Loads and stores of each warp of the block since its last barrier.
    open: HashMap<u32, (Vec<WarpRequest>, Vec<WarpRequest>)>,
    block: Option<[u32; 3]>,
    total: SharedCounters,
    /// Requests that match no machine instruction.
    unmatched: u64,
}

impl RequestMerger {
    fn end_block(&mut self) {
        let warps: Vec<u32> = self.open.keys().copied().collect();
        warps.into_iter().for_each(|warp| self.end_step(warp));
    }

    /// Counts the requests of a warp between two barriers.
    fn end_step(&mut self, warp: u32) {
        let Some((loads, stores)) = self.open.remove(&warp) else { return };
        let loads = cost(&loads, &self.loads, false);
        self.total.load_requests += loads.requests;
        self.total.load_wavefronts += loads.wavefronts;
        self.total.load_conflicts += loads.conflicts;
        let stores = cost(&stores, &self.stores, true);
        self.total.store_requests += stores.requests;
        self.total.store_wavefronts += stores.wavefronts;
        self.total.store_conflicts += stores.conflicts;
        self.unmatched += loads.unmatched + stores.unmatched;
    }
}

/// Costs of a warp's accesses between two barriers.
#[derive(Default)]
struct Cost {
    requests: u64,
    wavefronts: u64,
    conflicts: u64,
    /// Requests that match no instruction.
    unmatched: u64,
}

fn cost(requests: &[WarpRequest], widths: &HashMap<u32, u32>, write: bool) -> Cost {
    // Requests that are wider in the machine code than written, each with the parts that it covers,
    // one bit a part.
    let mut wide: Vec<(WarpRequest, u32)> = Vec::new();
    let mut cost = Cost::default();
    let mut count = |one: &WarpRequest| {
        let (wavefronts, conflicts) = shared_wavefronts(&one.addresses, one.lanes, one.bytes, write);
        cost.requests += 1;
        cost.wavefronts += wavefronts;
        cost.conflicts += conflicts;
    };
    let mut alone = Vec::new();
    let join = |wide: &mut Vec<(WarpRequest, u32)>, one: &WarpRequest| {
        wide.iter_mut().rev().any(|(all, covered)| {
            let lane = one.lanes.trailing_zeros() as usize % 32;
            let offset = one.addresses[lane].wrapping_sub(all.addresses[lane]);
            let same = (0..32)
                .filter(|lane| one.lanes >> lane & 1 == 1)
                .all(|i| one.addresses[i].wrapping_sub(all.addresses[i]) == offset);
            let inside = one.lanes == all.lanes && same && offset < u64::from(all.bytes);
            let part = if inside { 1 << (offset / u64::from(one.bytes)) } else { 0 };
            let joins = inside && *covered & part == 0;
            *covered |= part;
            joins
        })
    };
    for one in requests {
        let bytes = widths.get(&one.operation).copied().unwrap_or(one.bytes);
        if join(&mut wide, one) {
            continue;
        }
        if bytes > one.bytes {
            let addresses = one.addresses.map(|address| address / u64::from(bytes) * u64::from(bytes));
            let mut all = vec![(WarpRequest { operation: one.operation, lanes: one.lanes, addresses, bytes }, 0)];
            join(&mut all, one);
            wide.append(&mut all);
        } else if bytes == 0 {
            alone.push(one);
        } else {
            count(one);
        }
    }
    // Requests before the one that the machine code has.
    let unmatched = alone.into_iter().filter(|one| !join(&mut wide, one)).count() as u64;
    wide.iter().for_each(|(all, _)| count(all));
    Cost { unmatched, ..cost }
}

impl Observer for RequestMerger {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        if self.block != Some(event.block) {
            self.end_block();
            self.block = Some(event.block);
        }
        match event.kind {
            EventKind::Barrier { .. } => self.end_step(event.warp),
            EventKind::Access { write, space: Space::Shared, memory, elements, request: Some(request), .. } => {
                let (start, size) = self.starts.get(memory).copied().unwrap_or((0, 4));
                let lanes = elements.iter().rev().fold(0, |mask, e| mask << 1 | u32::from(e.is_some()));
                if lanes == 0 {
                    return ControlFlow::Continue(());
                }
                let known = if write { &self.stores } else { &self.loads };
                if !known.contains_key(&event.operation) {
                    // Asynchronous copies are not stores.
                    return ControlFlow::Continue(());
                }
                let addresses = elements.map(|element| start + element.unwrap_or(0) * size);
                let bytes = request.width * size as u32;
                let (loads, stores) = self.open.entry(event.warp).or_default();
                let request = WarpRequest { operation: event.operation, lanes, addresses, bytes };
                if write { stores.push(request) } else { loads.push(request) }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
