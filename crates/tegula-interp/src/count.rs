//! Cost counters of a kernel: requests, sectors, wavefronts, arithmetic.
//!
//! They follow Nsight Compute's metrics of the same names, at the access widths of the kernel.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use tegula_core::element::Type;
use tegula_ir::{AtomicOp, Binary, SiteId, Wgmma};

use super::program::{ElementAddress, Instruction, LoweredOp, Program, WgmmaInstruction};

/// Bytes of a sector of global memory.
pub const SECTOR_BYTES: u64 = 32;
/// Banks of shared memory, 4 bytes wide each.
pub const BANKS: u64 = 32;

/// Nsight Compute's metrics for fields of [`Counters`], as (field, metric).
///
/// The metric for multiply-adds is that of f32; for f64 it is that of `dfma`.
///
/// Wavefronts of loads have the name of the hardware's counter, which the rules here follow. On a
/// busy GPU that counter is up to 0.6 % larger. The instrumented counter (`smsp__sass_l1tex_…`)
/// does not vary. It deviates from the hardware for some wide loads, and omits `ldmatrix`.
///
/// Wavefronts of stores have the instrumented name, because the hardware's counter includes the
/// writes of asynchronous copies. It omits `stmatrix`.
///
/// Atomic operations count as stores here. Nsight Compute counts them under `_op_atom`, or under
/// `_op_red` if the result is unused.
pub const METRICS: [(&str, &str); 7] = [
    ("global_load_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"),
    ("global_load_sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"),
    ("global_store_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"),
    ("global_store_sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"),
    ("shared_load_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"),
    ("shared_store_wavefronts", "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum"),
    ("fma", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"),
];

/// Counters of a launch, or of one source line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Warp-wide loads from global memory with at least one active lane.
    pub global_load_requests: u64,
    /// 32-byte sectors that those loads access, counted for each request.
    ///
    /// Asynchronous copies of 16 bytes a lane bypass L1. They fetch a sector requested by several
    /// lanes once for each sector of shared memory that they fill.
    pub global_load_sectors: u64,
    /// Elements that they read, counted for each lane.
    pub global_load_elements: u64,
    /// Warp-wide stores to global memory with at least one active lane, and atomic operations.
    pub global_store_requests: u64,
    /// 32-byte sectors that those stores access, counted for each request.
    ///
    /// Lanes of an atomic operation at one address count its sector once each.
    pub global_store_sectors: u64,
    /// Elements that they write, counted for each lane.
    pub global_store_elements: u64,
    /// Warp-wide loads from shared memory.
    pub shared_load_requests: u64,
    /// Wavefronts of those loads.
    pub shared_load_wavefronts: u64,
    /// Elements that they read, counted for each lane.
    pub shared_load_elements: u64,
    /// Warp-wide stores to shared memory, and atomic operations.
    pub shared_store_requests: u64,
    /// Wavefronts of those stores.
    pub shared_store_wavefronts: u64,
    /// Elements that they write, counted for each lane.
    pub shared_store_elements: u64,
    /// Warp-wide asynchronous copies to shared memory; their reads count as global loads.
    pub shared_copy_requests: u64,
    /// Wavefronts of stores to the same addresses.
    ///
    /// A GPU also stalls where the copies read from one bank of its cache.
    pub shared_copy_wavefronts: u64,
    /// Elements that they write, counted for each lane.
    pub shared_copy_elements: u64,
    /// Wavefronts caused by bank conflicts.
    pub shared_bank_conflicts: u64,
    /// Multiply-adds, counted for each lane; those of a matrix instruction once a warp.
    pub fma: u64,
    /// Floating-point operations, counted for each lane; a multiply-add counts as two.
    pub flops: u64,
    /// Barriers, counted for each warp.
    pub barriers: u64,
    /// Instructions, counted for each lane, without moves and jumps.
    pub lane_instructions: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        let Counters {
            global_load_requests,
            global_load_sectors,
            global_load_elements,
            global_store_requests,
            global_store_sectors,
            global_store_elements,
            shared_load_requests,
            shared_load_wavefronts,
            shared_load_elements,
            shared_store_requests,
            shared_store_wavefronts,
            shared_store_elements,
            shared_copy_requests,
            shared_copy_wavefronts,
            shared_copy_elements,
            shared_bank_conflicts,
            fma,
            flops,
            barriers,
            lane_instructions,
        } = other;
        self.global_load_requests += global_load_requests;
        self.global_load_sectors += global_load_sectors;
        self.global_load_elements += global_load_elements;
        self.global_store_requests += global_store_requests;
        self.global_store_sectors += global_store_sectors;
        self.global_store_elements += global_store_elements;
        self.shared_load_requests += shared_load_requests;
        self.shared_load_wavefronts += shared_load_wavefronts;
        self.shared_load_elements += shared_load_elements;
        self.shared_store_requests += shared_store_requests;
        self.shared_store_wavefronts += shared_store_wavefronts;
        self.shared_store_elements += shared_store_elements;
        self.shared_copy_requests += shared_copy_requests;
        self.shared_copy_wavefronts += shared_copy_wavefronts;
        self.shared_copy_elements += shared_copy_elements;
        self.shared_bank_conflicts += shared_bank_conflicts;
        self.fma += fma;
        self.flops += flops;
        self.barriers += barriers;
        self.lane_instructions += lane_instructions;
    }
}

/// Counts of one instruction of the program, over all warps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InstructionCounts {
    /// Executions by a warp.
    pub warps: u64,
    /// Active lanes, over all executions.
    pub lanes: u64,
    /// Elements loaded or stored.
    pub elements: u64,
    /// Requests with at least one active lane.
    pub requests: u64,
    /// Sectors or wavefronts.
    pub transactions: u64,
    /// Wavefronts caused by bank conflicts.
    pub conflicts: u64,
    /// Wavefronts of the write of an asynchronous copy, which reads and writes.
    pub write_wavefronts: u64,
}

impl AddAssign for InstructionCounts {
    fn add_assign(&mut self, other: Self) {
        self.warps += other.warps;
        self.lanes += other.lanes;
        self.elements += other.elements;
        self.requests += other.requests;
        self.transactions += other.transactions;
        self.conflicts += other.conflicts;
        self.write_wavefronts += other.write_wavefronts;
    }
}

/// Sums up the counters of a launch, in total and for each source line.
pub(super) fn summarize(
    program: &Program,
    instruction_counts: &[InstructionCounts],
) -> (Counters, BTreeMap<SiteId, Counters>) {
    let mut total = Counters::default();
    let mut lines: BTreeMap<SiteId, Counters> = BTreeMap::new();
    for ((code, &site), counts) in program.code.iter().zip(&program.sites).zip(instruction_counts) {
        let counters = instruction_counters(code, counts);
        total += counters;
        *lines.entry(site).or_default() += counters;
    }
    lines.retain(|_, c| *c != Counters::default());
    (total, lines)
}

fn instruction_counters(code: &Instruction, counts: &InstructionCounts) -> Counters {
    let mut c = Counters::default();
    if code.counts() {
        c.lane_instructions = counts.lanes;
    }
    match code {
        Instruction::MulAdd { ty, .. } => {
            c.fma = counts.lanes;
            c.flops = if ty.is_float() { 2 * counts.lanes } else { 0 };
        }
        Instruction::Binary { op: Binary::Add | Binary::Sub | Binary::Mul | Binary::Div, ty, .. } if ty.is_float() => {
            c.flops = counts.lanes;
        }
        Instruction::Mma { mma, .. } => {
            c.fma = mma.multiply_adds() * counts.warps;
            c.flops = if mma.accumulator_type().is_float() { 2 * c.fma } else { 0 };
        }
        Instruction::Hopper(op) => match **op {
            LoweredOp::Wgmma(WgmmaInstruction { wgmma, .. }) => {
                // Each of the four warps computes a quarter of the rows.
                c.fma = u64::from(Wgmma::M / 4 * wgmma.n * Wgmma::K) * counts.warps;
                c.flops = 2 * c.fma;
            }
            LoweredOp::StoreMatrix { .. } => {
                c.shared_store_requests = counts.requests;
                c.shared_store_wavefronts = counts.transactions;
                c.shared_store_elements = counts.elements;
                c.shared_bank_conflicts = counts.conflicts;
            }
            _ => {}
        },
        Instruction::Barrier | Instruction::NamedBarrier { .. } => c.barriers = counts.warps,
        Instruction::Load { at: ElementAddress::Global { .. }, .. }
        | Instruction::WaitUntil { at: ElementAddress::Global { .. }, .. } => {
            c.global_load_requests = counts.requests;
            c.global_load_sectors = counts.transactions;
            c.global_load_elements = counts.elements;
        }
        Instruction::Store { at: ElementAddress::Global { .. }, .. }
        | Instruction::Atomic { at: ElementAddress::Global { .. }, .. } => {
            c.global_store_requests = counts.requests;
            c.global_store_sectors = counts.transactions;
            c.global_store_elements = counts.elements;
        }
        Instruction::Load { at: ElementAddress::Shared { .. }, .. }
        | Instruction::LoadMatrix { .. }
        | Instruction::WaitUntil { at: ElementAddress::Shared { .. }, .. } => {
            c.shared_load_requests = counts.requests;
            c.shared_load_wavefronts = counts.transactions;
            c.shared_load_elements = counts.elements;
            c.shared_bank_conflicts = counts.conflicts;
        }
        Instruction::Store { at: ElementAddress::Shared { .. }, .. }
        | Instruction::Atomic { at: ElementAddress::Shared { .. }, .. } => {
            c.shared_store_requests = counts.requests;
            c.shared_store_wavefronts = counts.transactions;
            c.shared_store_elements = counts.elements;
            c.shared_bank_conflicts = counts.conflicts;
        }
        Instruction::CopyAsync { .. } => {
            c.global_load_requests = counts.requests;
            c.global_load_sectors = counts.transactions;
            c.global_load_elements = counts.elements;
            c.shared_copy_requests = counts.requests;
            c.shared_copy_wavefronts = counts.write_wavefronts;
            c.shared_copy_elements = counts.elements;
            c.shared_bank_conflicts = counts.conflicts;
        }
        _ => {}
    }
    c
}

/// The last request of an instruction, and its cost.
///
/// An instruction mostly repeats one address pattern from another base. The cost of a pattern is
/// the same at every base with the same offset in a sector or word.
#[derive(Clone, Copy, Debug)]
pub struct RequestCache {
    lanes: u32,
    phase: u64,
    offsets: [u64; 32],
    cost: (u64, u64),
}

impl RequestCache {
    /// The cache before the first request.
    pub const NONE: RequestCache = RequestCache { lanes: 0, phase: 0, offsets: [0; 32], cost: (0, 0) };

    /// Returns the cost of a request, cached or counted.
    pub fn cost(
        &mut self,
        addresses: &[u64; 32],
        lanes: u32,
        unit: u64,
        count: impl FnOnce() -> (u64, u64),
    ) -> (u64, u64) {
        if lanes == 0 {
            return (0, 0);
        }
        let base = addresses[lanes.trailing_zeros() as usize];
        let offsets =
            std::array::from_fn(|lane| if lanes >> lane & 1 == 1 { addresses[lane].wrapping_sub(base) } else { 0 });
        if self.lanes != lanes || self.phase != base % unit || self.offsets != offsets {
            *self = RequestCache { lanes, phase: base % unit, offsets, cost: count() };
        }
        self.cost
    }
}

/// Number of distinct 32-byte sectors of accesses of `bytes` bytes at these addresses.
pub fn sectors(addresses: &[u64], bytes: u64) -> u64 {
    let mut touched = [0u64; 64];
    let mut len = 0;
    for &address in addresses {
        for sector in address / SECTOR_BYTES..=(address + bytes - 1) / SECTOR_BYTES {
            if len == 0 || touched[len - 1] != sector {
                touched[len] = sector;
                len += 1;
                if len == touched.len() {
                    len = distinct(&mut touched);
                }
            }
        }
    }
    distinct(&mut touched[..len]) as u64
}

/// Sectors of an atomic operation: of each sector, the most lanes at one address.
///
/// Equal to `l1tex__t_sectors_pipe_lsu_mem_global_op_atom` and `_op_red` on an H100 for 695 of 701
/// random requests (`benchmarks/counters/h100-patterns.md`). The other six have 8 bytes a lane, and
/// are compare-and-exchange or have no result. For them the GPU counts one or two sectors more.
pub fn atomic_sectors(addresses: &[u64]) -> u64 {
    let mut sorted = [0; 32];
    let sorted = &mut sorted[..addresses.len()];
    sorted.copy_from_slice(addresses);
    sorted.sort_unstable();
    let of_sector = |sector: &[u64]| sector.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap_or(0) as u64;
    sorted.chunk_by(|a, b| a / SECTOR_BYTES == b / SECTOR_BYTES).map(of_sector).sum()
}

/// Sectors of a warp's asynchronous copies of 16 bytes a lane, which bypass L1.
///
/// For each 128-byte line read: its sectors, or the shared-memory sectors filled from it, whichever
/// are more. This is Nsight Compute's count on an H200.
pub fn l1_bypass_sectors(read: &[u64; 32], written: &[u64; 32], lanes: u32) -> u64 {
    let (mut copies, mut len) = ([(0, 0); 32], 0);
    for lane in (0..32).filter(|lane| lanes >> lane & 1 == 1) {
        copies[len] = (read[lane] / SECTOR_BYTES, written[lane] / SECTOR_BYTES);
        len += 1;
    }
    let copies = &mut copies[..len];
    copies.sort_unstable();
    let of_line = |line: &[(u64, u64)]| {
        let count = |which: fn(&(u64, u64)) -> u64| {
            let (mut sectors, mut len) = ([0; 32], 0);
            for copy in line {
                sectors[len] = which(copy);
                len += 1;
            }
            distinct(&mut sectors[..len]) as u64
        };
        count(|copy| copy.0).max(count(|copy| copy.1))
    };
    copies.chunk_by(|a, b| a.0 / 4 == b.0 / 4).map(of_line).sum()
}

/// Sorts and deduplicates the front of the slice; returns the number of distinct values.
fn distinct(numbers: &mut [u64]) -> usize {
    if !numbers.is_sorted() {
        numbers.sort_unstable();
    }
    let mut len = 0;
    for i in 0..numbers.len() {
        if i == 0 || numbers[i] != numbers[len - 1] {
            numbers[len] = numbers[i];
            len += 1;
        }
    }
    len
}

/// Counts wavefronts of shared-memory loads of `bytes` bytes a lane, and those due to conflicts.
///
/// Lanes are served in groups, as for other accesses ([`wavefronts`]). The groups of wide loads (8
/// or 16 bytes a lane) are twice as large if the lanes are paired. They are paired if each lane of
/// the warp and its neighbor at distance 1 (i and i ^ 1) load from the same address, or each lane
/// and its neighbor at distance 2 (i and i ^ 2). A pair with an inactive lane does not break the
/// rule.
///
/// Equal to the hardware's counter `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld` on an H100
/// for all of 1,908 random requests of 1 to 16 bytes a lane
/// (`benchmarks/counters/h100-patterns.md`).
pub fn load_wavefronts(addresses: &[u64; 32], lanes: u32, bytes: u32) -> (u64, u64) {
    let words = bytes.div_ceil(4);
    let paired = words > 1 && [1, 2].iter().any(|&distance| is_paired(addresses, lanes, distance));
    let group = if paired { 64 / words } else { 32 / words };
    let (total, fewest) = group_wavefronts(addresses, lanes, words, group);
    (total, total - fewest)
}

/// Whether all active lanes at this distance access the same address.
fn is_paired(addresses: &[u64; 32], lanes: u32, distance: usize) -> bool {
    let both = |lane: usize| lanes >> lane & 1 == 1 && lanes >> (lane ^ distance) & 1 == 1;
    (0..32).all(|lane| !both(lane) || addresses[lane] == addresses[lane ^ distance])
}

/// Mask of `count` lanes, beginning with lane `first`.
fn lane_group(count: u32, first: usize) -> u32 {
    (((1u64 << count) - 1) as u32) << first
}

/// Counts wavefronts of shared-memory accesses of `bytes` bytes a lane, and those due to conflicts.
///
/// Addresses are bytes in shared memory. Lanes are served in groups of at most 128 bytes: all 32,
/// halves, or quarters of a warp. In each wavefront of a group, a bank delivers one 4-byte word, to
/// all lanes that request it.
///
/// Equal to the hardware's counter `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st` on an H100
/// for all of 770 random stores of 1 to 16 bytes a lane (`benchmarks/counters/h100-patterns.md`).
pub fn wavefronts(addresses: &[u64; 32], lanes: u32, bytes: u32) -> (u64, u64) {
    let words = bytes.div_ceil(4);
    let (total, fewest) = group_wavefronts(addresses, lanes, words, 32 / words);
    (total, total - fewest)
}

/// Wavefronts of lanes served in groups of `group` lanes, and the number without conflicts.
fn group_wavefronts(addresses: &[u64; 32], lanes: u32, words: u32, group: u32) -> (u64, u64) {
    lane_groups(lanes, group)
        .fold((0, 0), |(total, fewest), members| (total + worst_bank(addresses, members, words), fewest + 1))
}

/// Splits a mask into groups of `count` lanes, without empty groups.
fn lane_groups(lanes: u32, count: u32) -> impl Iterator<Item = u32> {
    (0..32).step_by(count as usize).map(move |first| lanes & lane_group(count, first)).filter(|&members| members != 0)
}

/// Counts the wavefronts of a shared-memory access from addresses, lanes and bytes a lane.
///
/// Returns all wavefronts, and those due to conflicts.
pub type WavefrontCount = fn(&[u64; 32], u32, u32) -> (u64, u64);

/// Selects the wavefront rule of an atomic operation on shared memory.
///
/// Lanes are served in groups: all 32, or halves of a warp at 8 bytes a lane. In each wavefront of
/// a group, a bank serves one lane, even if lanes access the same word. 32 lanes at one address
/// take 32 wavefronts. A step of compare-and-exchange counts as two wavefronts.
///
/// Operations without a native instruction are assembled as a loop of load, compute and
/// compare-and-exchange. These are additions of f32, f64 and u64, and all other 8-byte operations
/// but exchanges. Each iteration serves one lane of each bank in each group, the lowest, unless an
/// earlier group served its address. The other lanes retry.
///
/// Equal to the hardware's counter `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom` on an H100
/// for all of 1,035 random requests (`benchmarks/counters/h100-patterns.md`). Three effects are not
/// modeled. The loads of those loops are not counted. `min` and `max` of 8 bytes exit their loop
/// early if memory holds the result already. If the assembler can prove that all lanes have one
/// address, it first reduces 4-byte integers within the warp.
pub fn atomic_wavefronts(op: AtomicOp, ty: Type) -> WavefrontCount {
    let loops = ty.is_float() || ty.size() == 8;
    match op {
        AtomicOp::CompareExchange { .. } => |addresses, lanes, bytes| serialized_wavefronts(addresses, lanes, bytes, 2),
        AtomicOp::Swap => |addresses, lanes, bytes| serialized_wavefronts(addresses, lanes, bytes, 1),
        _ if loops => compare_exchange_wavefronts,
        _ => |addresses, lanes, bytes| serialized_wavefronts(addresses, lanes, bytes, 1),
    }
}

/// Wavefronts of a bank that serves one lane at a time, and those due to conflicts.
///
/// Each step counts as `each` wavefronts.
fn serialized_wavefronts(addresses: &[u64; 32], lanes: u32, bytes: u32, each: u64) -> (u64, u64) {
    let (mut total, mut fewest) = (0, 0);
    for members in lane_groups(lanes, 128 / bytes) {
        let mut loads = [0u64; BANKS as usize];
        active_lanes(members).for_each(|lane| loads[bank(addresses[lane])] += 1);
        total += each * loads.into_iter().max().unwrap_or(0);
        fewest += each;
    }
    (total, total - fewest)
}

/// Wavefronts of compare-and-exchange loops, and those due to conflicts.
fn compare_exchange_wavefronts(addresses: &[u64; 32], lanes: u32, bytes: u32) -> (u64, u64) {
    let (mut remaining, mut total) = (lanes, 0);
    while remaining != 0 {
        let mut served = 0u32;
        for members in lane_groups(remaining, 128 / bytes) {
            let (mut busy, before) = ([false; BANKS as usize], served);
            for lane in active_lanes(members) {
                let first = !std::mem::replace(&mut busy[bank(addresses[lane])], true);
                if first && active_lanes(before).all(|other| addresses[other] != addresses[lane]) {
                    served |= 1 << lane;
                }
            }
            total += 2;
        }
        remaining &= !served;
    }
    (total, total - 2 * lane_groups(lanes, 128 / bytes).count() as u64)
}

/// Iterates over the lanes of a mask.
fn active_lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |lane| mask >> lane & 1 == 1)
}

/// Bank of a shared-memory address.
fn bank(address: u64) -> usize {
    (address / 4 % BANKS) as usize
}

/// Counts the wavefronts of a shared-memory access of a warp, and those due to conflicts.
///
/// Each lane of the mask accesses `bytes` bytes (1 to 16) at its address, in bytes from the start
/// of the block's shared memory.
///
/// The rules are those of the hardware's counters (`benchmarks/counters/h100-patterns.md`).
pub fn shared_wavefronts(addresses: &[u64; 32], lanes: u32, bytes: u32, write: bool) -> (u64, u64) {
    let count = if write { wavefronts } else { load_wavefronts };
    count(addresses, lanes, bytes.clamp(1, 16))
}

/// The largest number of distinct words that one bank delivers.
fn worst_bank(addresses: &[u64; 32], members: u32, words: u32) -> u64 {
    // The first word of each bank; later words, which conflict, go to a list.
    let mut held = [u64::MAX; BANKS as usize];
    let mut count = [1u8; BANKS as usize];
    let mut extra = [0; 32];
    let (mut len, mut worst) = (0, 1);
    for (lane, address) in addresses.iter().enumerate() {
        if members >> lane & 1 == 0 {
            continue;
        }
        for word in address / 4..address / 4 + u64::from(words) {
            let bank = (word % BANKS) as usize;
            if held[bank] == u64::MAX {
                held[bank] = word;
            } else if held[bank] != word && !extra[..len].contains(&word) {
                extra[len] = word;
                len += 1;
                count[bank] += 1;
                worst = worst.max(count[bank]);
            }
        }
    }
    u64::from(worst)
}

/// Bytes of an access of `width` elements.
pub(super) fn bytes(ty: Type, width: u32) -> u32 {
    ty.size() as u32 * width
}

#[cfg(test)]
mod tests {
    use tegula_ir::Operand;

    use super::*;

    fn lanes(f: impl Fn(u64) -> u64) -> [u64; 32] {
        std::array::from_fn(|lane| f(lane as u64))
    }

    #[test]
    fn shared_stores_distinct_words_of_a_bank_conflict() {
        assert_eq!(wavefronts(&lanes(|i| 4 * i), u32::MAX, 4), (1, 0));
        assert_eq!(wavefronts(&lanes(|_| 64), u32::MAX, 4), (1, 0));
        assert_eq!(wavefronts(&lanes(|i| 128 * i), u32::MAX, 4), (32, 31));
        assert_eq!(wavefronts(&lanes(|i| 4 * (16 * (i % 16) + i / 16)), u32::MAX, 4), (8, 7));
        assert_eq!(wavefronts(&lanes(|i| 8 * i), u32::MAX, 8), (2, 0));
        assert_eq!(wavefronts(&lanes(|i| 16 * i), u32::MAX, 16), (4, 0));
        assert_eq!(wavefronts(&lanes(|i| 2 * i), u32::MAX, 2), (1, 0));
        assert_eq!(wavefronts(&[0; 32], 0, 4), (0, 0));
    }

    /// Wide loads as measured on an H200.
    ///
    /// A load of 16 bytes a lane takes 4 wavefronts if all lanes read different addresses. It takes
    /// 2 if it is a broadcast, or if the lanes of pairs (at distance 1 or 2) read the same address.
    #[test]
    fn wide_loads_paired_lanes_share_wavefronts() {
        let all = u32::MAX;
        let wide = |f: &dyn Fn(u64) -> u64| load_wavefronts(&lanes(|i| 16 * f(i)), all, 16);
        assert_eq!(wide(&|i| i), (4, 0));
        assert_eq!(wide(&|_| 5), (2, 0));
        // Bit 0 along m, bits 1 and 2 along n, bit 3 along m, bit 4 along n.
        assert_eq!(wide(&|i| i & 1 | i >> 2 & 2), (2, 0));
        assert_eq!(wide(&|i| i >> 1 & 3 | i >> 2 & 4), (2, 0));
        assert_eq!(wide(&|i| i & 3), (4, 0));
        assert_eq!(wide(&|i| 8 * (i >> 1 & 7)), (16, 14));
        assert_eq!(load_wavefronts(&lanes(|i| 8 * (i / 2)), all, 8), (1, 0));
        assert_eq!(load_wavefronts(&lanes(|i| 8 * i), all, 8), (2, 0));
        assert_eq!(load_wavefronts(&lanes(|i| 4 * i), all, 4), (1, 0));
        assert_eq!(load_wavefronts(&lanes(|i| 16 * i), 0xff, 16), (1, 0));
        assert_eq!(load_wavefronts(&lanes(|i| 16 * (i / 2)), 0xff, 16), (1, 0));
        assert_eq!(load_wavefronts(&[0; 32], 0, 16), (0, 0));
    }

    /// As measured on an H200.
    #[test]
    fn async_copies_bypassing_l1_count_filled_sectors() {
        let count = |read: fn(u64) -> u64, written: fn(u64) -> u64| {
            let of = |f: fn(u64) -> u64| std::array::from_fn(|lane| f(lane as u64));
            l1_bypass_sectors(&of(read), &of(written), u32::MAX)
        };
        let in_rows = |i: u64| i / 4 * 144 + i % 4 * 16;
        assert_eq!(count(|i| 16 * i, |i| 16 * i), 16);
        assert_eq!(count(|_| 0, |i| 16 * i), 16);
        assert_eq!(count(|i| i % 8 * 16, |i| 144 * i), 32);
        assert_eq!(count(|i| 16 * i, in_rows), 20);
        assert_eq!(count(|_| 0, in_rows), 20);
        assert_eq!(count(|i| 4096 * i, |i| 16 * i), 32);
        assert_eq!(count(|i| i / 2 * 16, |i| (i ^ (i / 8)) * 16), 16);
        assert_eq!(l1_bypass_sectors(&[0; 32], &[0; 32], 0), 0);
    }

    #[test]
    fn sectors_of_one_request_are_deduplicated() {
        let at = |f: &dyn Fn(u64) -> u64| (0..32).map(f).collect::<Vec<_>>();
        assert_eq!(sectors(&at(&|i| 4 * i), 4), 4);
        assert_eq!(sectors(&at(&|i| 4 * (31 - i)), 4), 4);
        assert_eq!(sectors(&at(&|_| 96), 4), 1);
        assert_eq!(sectors(&at(&|i| 4096 * (i % 16) + 4 * (i / 16)), 4), 16);
        assert_eq!(sectors(&at(&|i| 4096 * i), 4), 32);
        assert_eq!(sectors(&at(&|i| 16 * i), 16), 16);
        assert_eq!(sectors(&at(&|i| 28 + 4096 * i), 8), 64);
        assert_eq!(sectors(&[], 4), 0);
    }

    /// A row of `benchmarks/counters/h100-patterns.csv.gz`: a request, and the count of an H100.
    struct Measured {
        kind: String,
        lanes: u32,
        addresses: [u64; 32],
        bytes: u32,
        count: u64,
    }

    fn measured() -> Vec<Measured> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benchmarks/counters/h100-patterns.csv.gz");
        let mut text = String::new();
        let file = std::fs::File::open(path).unwrap();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut text).unwrap();
        text.lines().skip(1).map(of_line).collect()
    }

    fn of_line(line: &str) -> Measured {
        let [kind, _, mask, offsets, count, ..] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let bytes = match kind.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().unwrap() {
            bits @ (32 | 64) => bits / 8,
            bytes => bytes,
        };
        let digit = |byte: u8| match byte {
            b'A'..=b'Z' => u64::from(byte - b'A'),
            b'a'..=b'z' => u64::from(byte - b'a') + 26,
            b'0'..=b'9' => u64::from(byte - b'0') + 52,
            b'-' => 62,
            b'_' => 63,
            // An inactive lane, at any address.
            _ => 7,
        };
        let address = |lane: usize| {
            let digits = &offsets.as_bytes()[2 * lane..][..2];
            (64 * digit(digits[0]) + digit(digits[1])) * u64::from(bytes)
        };
        Measured {
            kind: kind.into(),
            lanes: u32::from_str_radix(mask, 16).unwrap(),
            addresses: std::array::from_fn(address),
            bytes,
            count: count.parse().unwrap(),
        }
    }

    /// 3 in the lanes of the mask and 5 elsewhere.
    fn three_or_five(mask: u32) -> [u64; 32] {
        lanes(|i| 16 * if mask >> i & 1 == 1 { 3 } else { 5 })
    }

    /// An inactive lane does not break its pair; the pair rule applies to the whole warp.
    #[test]
    fn load_wavefronts_partial_masks_match_h100() {
        let wide = |f: &dyn Fn(u64) -> u64, mask| load_wavefronts(&lanes(|i| 16 * f(i)), mask, 16);
        // One address for each quarter, with inactive lanes: two, then every second one. Then two
        // active lanes, of different quarters and of different halves.
        assert_eq!(wide(&|i| 201 + i / 8, 0xffff_fdfb), (2, 0));
        assert_eq!(wide(&|i| 115 + i / 8, 0x5555_5555), (2, 0));
        assert_eq!(wide(&|_| 55, 0x0000_8001), (1, 0));
        assert_eq!(wide(&|_| 55, 0x0800_1000), (2, 0));
        // The first half in pairs at distance 1, the second at distance 2.
        assert_eq!(wide(&|i| if i < 16 { i / 2 % 4 } else { i & 1 }, u32::MAX), (4, 0));
        assert_eq!(wide(&|i| if i < 16 { i / 2 % 4 } else { i & 1 }, 0xffff), (1, 0));
        // One lane breaks all pairs while it is active.
        let mut odd = three_or_five(0x0f0f_0f0f);
        odd[7] += 16;
        assert_eq!(load_wavefronts(&odd, u32::MAX, 16), (4, 0));
        assert_eq!(load_wavefronts(&odd, !(1 << 7), 16), (2, 0));
    }

    #[test]
    fn shared_atomics_lanes_of_a_bank_serialize() {
        let all = u32::MAX;
        let add = atomic_wavefronts(AtomicOp::Add, Type::U32);
        assert_eq!(add(&lanes(|i| 4 * i), all, 4), (1, 0));
        assert_eq!(add(&lanes(|_| 64), all, 4), (32, 31));
        assert_eq!(add(&lanes(|_| 64), 0xff00, 4), (8, 7));
        // Two addresses: in one bank, and in two.
        assert_eq!(add(&lanes(|i| 128 * (i % 2)), all, 4), (32, 31));
        assert_eq!(add(&lanes(|i| 4 * (i % 2)), all, 4), (16, 15));
        assert_eq!(add(&[0; 32], 0, 4), (0, 0));
        let compare = AtomicOp::CompareExchange { expected: Operand::Const(Type::U32, 0) };
        assert_eq!(atomic_wavefronts(compare, Type::U32)(&lanes(|i| 4 * i), all, 4), (2, 0));
        assert_eq!(atomic_wavefronts(compare, Type::U64)(&lanes(|_| 8), all, 8), (64, 60));
        assert_eq!(atomic_wavefronts(AtomicOp::Swap, Type::F64)(&lanes(|i| 8 * i), all, 8), (2, 0));
        // Loops. If both halves access one address, each iteration serves a lane of one half only.
        assert_eq!(atomic_wavefronts(AtomicOp::Add, Type::F32)(&lanes(|_| 8), all, 4), (64, 62));
        assert_eq!(atomic_wavefronts(AtomicOp::Add, Type::U64)(&lanes(|_| 8), all, 8), (96, 92));
        assert_eq!(atomic_wavefronts(AtomicOp::Xor, Type::U64)(&lanes(|i| 8 * (i / 16)), all, 8), (64, 60));
    }

    #[test]
    fn atomic_sectors_lanes_at_one_address_count_each() {
        let at = |f: &dyn Fn(u64) -> u64| atomic_sectors(&(0..32).map(f).collect::<Vec<_>>());
        assert_eq!(at(&|i| 4 * i), 4);
        assert_eq!(at(&|_| 96), 32);
        assert_eq!(at(&|i| 4 * (i % 2)), 16);
        assert_eq!(at(&|i| 32 * (i % 2)), 32);
        assert_eq!(at(&|i| 8 * (31 - i)), 8);
        assert_eq!(atomic_sectors(&[]), 0);
    }

    #[test]
    fn shared_loads_and_stores_match_h100() {
        let mut rows = 0;
        for row in measured().iter().filter(|row| row.kind.starts_with("ld") || row.kind.starts_with("st")) {
            let count = if row.kind.starts_with("ld") { load_wavefronts } else { wavefronts };
            assert_eq!(count(&row.addresses, row.lanes, row.bytes).0, row.count, "{} {:08x}", row.kind, row.lanes);
            rows += 1;
        }
        assert_eq!(rows, 2678);
    }

    #[test]
    fn shared_atomics_match_h100() {
        let mut rows = 0;
        for row in measured() {
            let Some((op, ty)) = operation(&row.kind) else { continue };
            let count = atomic_wavefronts(op, ty)(&row.addresses, row.lanes, row.bytes).0;
            assert_eq!(count, row.count, "{} {:08x}", row.kind, row.lanes);
            rows += 1;
        }
        assert_eq!(rows, 1035);
    }

    #[test]
    fn global_requests_match_h100() {
        let (mut rows, mut more) = (0, BTreeMap::new());
        for row in measured().into_iter().filter(|row| row.kind.starts_with('g')) {
            let addresses: Vec<u64> = active_lanes(row.lanes).map(|lane| row.addresses[lane]).collect();
            let moves = row.kind.starts_with("gld") || row.kind.starts_with("gst");
            let count = if moves { sectors(&addresses, row.bytes.into()) } else { atomic_sectors(&addresses) };
            if count < row.count {
                *more.entry(row.kind).or_insert(0) += 1;
            } else {
                assert_eq!(count, row.count, "{} {:08x}", row.kind, row.lanes);
            }
            rows += 1;
        }
        assert_eq!(rows, 848);
        // The rule does not explain these requests: the GPU counts more sectors.
        assert_eq!(more, BTreeMap::from([("gcas_b64".into(), 4), ("gred_u64".into(), 2)]));
    }

    /// Parses the kind of a row as an atomic operation on shared memory.
    fn operation(kind: &str) -> Option<(AtomicOp, Type)> {
        Some(match kind {
            "add_u32" | "red_u32" => (AtomicOp::Add, Type::U32),
            "add_u64" => (AtomicOp::Add, Type::U64),
            "add_f32" => (AtomicOp::Add, Type::F32),
            "add_f64" => (AtomicOp::Add, Type::F64),
            "min_u32" => (AtomicOp::Min, Type::U32),
            "xor_b32" => (AtomicOp::Xor, Type::U32),
            "exch_b32" => (AtomicOp::Swap, Type::U32),
            "exch_b64" => (AtomicOp::Swap, Type::U64),
            "cas_b32" => (AtomicOp::CompareExchange { expected: Operand::Const(Type::U32, 0) }, Type::U32),
            "cas_b64" => (AtomicOp::CompareExchange { expected: Operand::Const(Type::U32, 0) }, Type::U64),
            _ => return None,
        })
    }
}
