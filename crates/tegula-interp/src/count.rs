//! What a kernel costs: requests, sectors, wavefronts and arithmetic, as Nsight Compute's metrics of the same names count them,
//! at the access widths the kernel is written with.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use tegula_core::element::Type;
use tegula_ir::{AtomicOp, Binary, SiteId, Wgmma};

use super::program::{Act, At, Code, Multiply, Program};

/// Bytes of a sector of global memory.
pub const SECTOR: u64 = 32;
/// Banks of shared memory, 4 bytes wide each.
pub const BANKS: u64 = 32;

/// What Nsight Compute calls the counters that it has too, by the names of [`Counters`]'s fields. Of multiply-adds the metric is that of f32;
/// of f64 it is that of `dfma`.
///
/// Wavefronts of loads carry the name of the hardware's counter, which the rules here follow. On a
/// busy GPU that counter is up to 0.6 % larger. The instrumented one (`smsp__sass_l1tex_…`) does
/// not vary, but departs from the hardware for some wide loads, and omits
/// `ldmatrix`. Wavefronts of stores carry the instrumented name, since the hardware's counter
/// includes what asynchronous copies write; it omits `stmatrix`. Atomic operations count as stores
/// here; Nsight Compute has them under `_op_atom`, or under `_op_red` where the result is unused.
pub const METRICS: [(&str, &str); 7] = [
    ("global_load_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"),
    ("global_load_sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"),
    ("global_store_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"),
    ("global_store_sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"),
    ("shared_load_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"),
    ("shared_store_wavefronts", "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum"),
    ("fma", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"),
];

/// Counters, of a whole launch or of one line of its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Warp-wide loads from global memory with at least one lane that reads.
    pub global_load_requests: u64,
    /// 32-byte sectors those loads touch, request by request. Asynchronous copies of 16 bytes a lane go past the first cache, and
    /// fetch a sector that several lanes want for each sector of shared memory that it fills.
    pub global_load_sectors: u64,
    /// Elements they read, lane by lane.
    pub global_load_elements: u64,
    /// Warp-wide stores to global memory with at least one lane that writes, and atomic operations.
    pub global_store_requests: u64,
    /// 32-byte sectors those stores touch, request by request. Lanes of an atomic operation at one
    /// address each touch its sector.
    pub global_store_sectors: u64,
    /// Elements they write, lane by lane.
    pub global_store_elements: u64,
    /// Warp-wide loads from shared memory.
    pub shared_load_requests: u64,
    /// Passes over the banks that those loads take.
    pub shared_load_wavefronts: u64,
    /// Elements they read, lane by lane.
    pub shared_load_elements: u64,
    /// Warp-wide stores to shared memory, and atomic operations.
    pub shared_store_requests: u64,
    /// Passes over the banks that those stores take.
    pub shared_store_wavefronts: u64,
    /// Elements they write, lane by lane.
    pub shared_store_elements: u64,
    /// Warp-wide asynchronous copies to shared memory; what they read counts as loads from global memory.
    pub shared_copy_requests: u64,
    /// Passes over the banks that stores to the same places would take. A GPU also waits where what copies read lies in one bank of its cache.
    pub shared_copy_wavefronts: u64,
    /// Elements they write, lane by lane.
    pub shared_copy_elements: u64,
    /// Passes beyond those the same accesses would take without conflicts.
    pub shared_bank_conflicts: u64,
    /// Multiply-adds, lane by lane; those of a matrix instruction once a warp.
    pub fma: u64,
    /// Floating-point operations, lane by lane; a multiply-add is two.
    pub flops: u64,
    /// Barriers, warp by warp.
    pub barriers: u64,
    /// Operations, lane by lane; moves and jumps are not counted.
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

/// What one instruction of the program did, over all warps that ran it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Times a warp ran it.
    pub warps: u64,
    /// Lanes it ran in.
    pub lanes: u64,
    /// Elements it moved.
    pub elements: u64,
    /// Requests with at least one lane.
    pub requests: u64,
    /// Sectors or wavefronts.
    pub passes: u64,
    /// Wavefronts beyond the fewest possible.
    pub conflicts: u64,
    /// For asynchronous copies, which read and write: wavefronts of the write.
    pub written: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.warps += other.warps;
        self.lanes += other.lanes;
        self.elements += other.elements;
        self.requests += other.requests;
        self.passes += other.passes;
        self.conflicts += other.conflicts;
        self.written += other.written;
    }
}

/// The counters of a launch, whole and line by line.
pub(super) fn summarise(program: &Program, tallies: &[Tally]) -> (Counters, BTreeMap<SiteId, Counters>) {
    let mut total = Counters::default();
    let mut lines: BTreeMap<SiteId, Counters> = BTreeMap::new();
    for ((code, &site), tally) in program.code.iter().zip(&program.sites).zip(tallies) {
        let counters = of_instruction(code, tally);
        total += counters;
        *lines.entry(site).or_default() += counters;
    }
    lines.retain(|_, c| *c != Counters::default());
    (total, lines)
}

fn of_instruction(code: &Code, tally: &Tally) -> Counters {
    let mut c = Counters::default();
    if code.counts() {
        c.lane_instructions = tally.lanes;
    }
    match code {
        Code::MulAdd { ty, .. } => {
            c.fma = tally.lanes;
            c.flops = if ty.is_float() { 2 * tally.lanes } else { 0 };
        }
        Code::Binary { op: Binary::Add | Binary::Sub | Binary::Mul | Binary::Div, ty, .. } if ty.is_float() => {
            c.flops = tally.lanes;
        }
        Code::Mma { mma, .. } => {
            c.fma = mma.products() * tally.warps;
            c.flops = if mma.sums().is_float() { 2 * c.fma } else { 0 };
        }
        Code::Hopper(act) => match **act {
            Act::Wgmma(Multiply { wgmma, .. }) => {
                // A warp's quarter.
                c.fma = u64::from(Wgmma::M / 4 * wgmma.n * Wgmma::K) * tally.warps;
                c.flops = 2 * c.fma;
            }
            Act::StoreMatrix { .. } => {
                c.shared_store_requests = tally.requests;
                c.shared_store_wavefronts = tally.passes;
                c.shared_store_elements = tally.elements;
                c.shared_bank_conflicts = tally.conflicts;
            }
            _ => {}
        },
        Code::Barrier | Code::NamedBarrier { .. } => c.barriers = tally.warps,
        Code::Load { at: At::Global { .. }, .. } | Code::WaitUntil { at: At::Global { .. }, .. } => {
            c.global_load_requests = tally.requests;
            c.global_load_sectors = tally.passes;
            c.global_load_elements = tally.elements;
        }
        Code::Store { at: At::Global { .. }, .. } | Code::Atomic { at: At::Global { .. }, .. } => {
            c.global_store_requests = tally.requests;
            c.global_store_sectors = tally.passes;
            c.global_store_elements = tally.elements;
        }
        Code::Load { at: At::Shared { .. }, .. }
        | Code::LoadMatrix { .. }
        | Code::WaitUntil { at: At::Shared { .. }, .. } => {
            c.shared_load_requests = tally.requests;
            c.shared_load_wavefronts = tally.passes;
            c.shared_load_elements = tally.elements;
            c.shared_bank_conflicts = tally.conflicts;
        }
        Code::Store { at: At::Shared { .. }, .. } | Code::Atomic { at: At::Shared { .. }, .. } => {
            c.shared_store_requests = tally.requests;
            c.shared_store_wavefronts = tally.passes;
            c.shared_store_elements = tally.elements;
            c.shared_bank_conflicts = tally.conflicts;
        }
        Code::CopyAsync { .. } => {
            c.global_load_requests = tally.requests;
            c.global_load_sectors = tally.passes;
            c.global_load_elements = tally.elements;
            c.shared_copy_requests = tally.requests;
            c.shared_copy_wavefronts = tally.written;
            c.shared_copy_elements = tally.elements;
            c.shared_bank_conflicts = tally.conflicts;
        }
        _ => {}
    }
    c
}

/// The addresses of an instruction's last request and what it cost.
///
/// An instruction mostly asks for the same pattern again, only elsewhere; a pattern costs the same wherever it starts, as long as
/// it starts equally far into a sector or word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    lanes: u32,
    phase: u64,
    offsets: [u64; 32],
    cost: (u64, u64),
}

impl Pattern {
    pub const NONE: Pattern = Pattern { lanes: 0, phase: 0, offsets: [0; 32], cost: (0, 0) };

    /// The cost of a request: remembered, or counted.
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
            *self = Pattern { lanes, phase: base % unit, offsets, cost: count() };
        }
        self.cost
    }
}

/// Distinct 32-byte sectors under accesses of `bytes` bytes at these addresses.
pub(super) fn sectors(addresses: &[u64], bytes: u64) -> u64 {
    let mut touched = [0u64; 64];
    let mut len = 0;
    for &address in addresses {
        for sector in address / SECTOR..=(address + bytes - 1) / SECTOR {
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

/// Sectors under an atomic operation at these addresses: of each sector, the most lanes at one
/// address.
///
/// Equal to `l1tex__t_sectors_pipe_lsu_mem_global_op_atom` and `_op_red` on an H100 for 695 of 701
/// random requests (`benchmarks/counters/h100-patterns.md`). The other six have 8 bytes a lane, and
/// are compare-and-exchange or have no result; the GPU counts one or two sectors more.
pub(super) fn atomic_sectors(addresses: &[u64]) -> u64 {
    let mut sorted = [0; 32];
    let sorted = &mut sorted[..addresses.len()];
    sorted.copy_from_slice(addresses);
    sorted.sort_unstable();
    let of_sector = |sector: &[u64]| sector.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap_or(0) as u64;
    sorted.chunk_by(|a, b| a / SECTOR == b / SECTOR).map(of_sector).sum()
}

/// Sectors of a warp's asynchronous copies of 16 bytes: of each line of 128 bytes that is read, its sectors, or the sectors of shared memory that they
/// fill if those are more. So Nsight Compute counts on an H200.
pub(super) fn sectors_past_the_cache(read: &[u64; 32], written: &[u64; 32], lanes: u32) -> u64 {
    let (mut copies, mut len) = ([(0, 0); 32], 0);
    for lane in (0..32).filter(|lane| lanes >> lane & 1 == 1) {
        copies[len] = (read[lane] / SECTOR, written[lane] / SECTOR);
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

/// Sorts, and moves each different number to the front once; gives how many there are.
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

/// Wavefronts that loads of `bytes` bytes by the lanes of a mask take, and how many of them are due to conflicts.
///
/// Lanes are served in groups, as other accesses are ([`wavefronts`]), but the groups of wide loads
/// (8 or 16 bytes a lane) are twice as large where lanes come in pairs. They do if, in the whole
/// warp, each lane and its neighbor at distance 1 (i and i ^ 1) load from the same address, or each
/// lane and its neighbor at distance 2 (i and i ^ 2). A pair with an inactive lane does not break
/// the rule.
///
/// Equal to the hardware's counter `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld` on an H100
/// for all of 1,908 random requests of 1 to 16 bytes a lane
/// (`benchmarks/counters/h100-patterns.md`).
pub(super) fn load_wavefronts(addresses: &[u64; 32], lanes: u32, bytes: u32) -> (u64, u64) {
    let words = bytes.div_ceil(4);
    let paired = words > 1 && [1, 2].iter().any(|&distance| in_pairs(addresses, lanes, distance));
    let group = if paired { 64 / words } else { 32 / words };
    let (passes, fewest) = served(addresses, lanes, words, group);
    (passes, passes - fewest)
}

/// Whether lanes so far apart want the same, where both take part.
fn in_pairs(addresses: &[u64; 32], lanes: u32, distance: usize) -> bool {
    let both = |lane: usize| lanes >> lane & 1 == 1 && lanes >> (lane ^ distance) & 1 == 1;
    (0..32).all(|lane| !both(lane) || addresses[lane] == addresses[lane ^ distance])
}

/// `count` lanes from the `first` on.
fn group_of(count: u32, first: usize) -> u32 {
    (((1u64 << count) - 1) as u32) << first
}

/// Wavefronts that accesses of `bytes` bytes by the lanes of a mask take, and how many of them are due to conflicts.
///
/// Addresses are bytes in shared memory. Lanes are served in groups that ask for at most 128 bytes: all 32, halves, or quarters
/// of a warp; in a group, a bank delivers one 4-byte word a pass, to all lanes that ask for it.
///
/// Equal to the hardware's counter `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st` on an H100
/// for all of 770 random stores of 1 to 16 bytes a lane (`benchmarks/counters/h100-patterns.md`).
pub(super) fn wavefronts(addresses: &[u64; 32], lanes: u32, bytes: u32) -> (u64, u64) {
    let words = bytes.div_ceil(4);
    let (passes, fewest) = served(addresses, lanes, words, 32 / words);
    (passes, passes - fewest)
}

/// Wavefronts of lanes that are served in groups of so many, and how few there would be without conflicts.
fn served(addresses: &[u64; 32], lanes: u32, words: u32, group: u32) -> (u64, u64) {
    groups(lanes, group)
        .fold((0, 0), |(passes, fewest), members| (passes + worst_bank(addresses, members, words), fewest + 1))
}

/// The lanes of a mask in groups of so many; empty groups are left out.
fn groups(lanes: u32, count: u32) -> impl Iterator<Item = u32> {
    (0..32).step_by(count as usize).map(move |first| lanes & group_of(count, first)).filter(|&members| members != 0)
}

/// Counts wavefronts of an access to shared memory by its addresses, lanes and bytes a lane. Gives
/// them, and how many of them are due to conflicts.
pub(super) type Passes = fn(&[u64; 32], u32, u32) -> (u64, u64);

/// How wavefronts of an atomic operation on shared memory are counted.
///
/// Lanes are served in groups: all 32, or halves of a warp at 8 bytes a lane. In a group, a bank
/// serves one lane a pass, also where lanes access the same word: 32 lanes at one address take 32
/// wavefronts. A pass of compare-and-exchange counts as two wavefronts.
///
/// Operations without an instruction of their own are assembled as a loop of load, compute and
/// compare-and-exchange: sums of f32, f64 and u64, and all others of 8 bytes but exchanges. Each
/// round serves one lane of each bank in each group, the lowest, unless an earlier group served its
/// address. The other lanes try again.
///
/// Equal to the hardware's counter `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom` on an H100
/// for all of 1,035 random requests (`benchmarks/counters/h100-patterns.md`). Three things are not
/// modeled. The loads of those loops are not counted. `min` and `max` of 8 bytes leave their loop
/// early where memory holds the result already. If the assembler can tell that all lanes have one
/// address, it reduces 4-byte integers within the warp first.
pub(super) fn atomic_wavefronts(op: AtomicOp, ty: Type) -> Passes {
    let loops = ty.is_float() || ty.size() == 8;
    match op {
        AtomicOp::CompareExchange { .. } => |addresses, lanes, bytes| in_turns(addresses, lanes, bytes, 2),
        AtomicOp::Exchange => |addresses, lanes, bytes| in_turns(addresses, lanes, bytes, 1),
        _ if loops => in_rounds,
        _ => |addresses, lanes, bytes| in_turns(addresses, lanes, bytes, 1),
    }
}

/// Wavefronts where a bank serves one lane a pass, and how many of them are due to conflicts. A
/// pass counts as `each`.
fn in_turns(addresses: &[u64; 32], lanes: u32, bytes: u32, each: u64) -> (u64, u64) {
    let (mut passes, mut fewest) = (0, 0);
    for members in groups(lanes, 128 / bytes) {
        let mut turns = [0u64; BANKS as usize];
        lanes_of(members).for_each(|lane| turns[bank(addresses[lane])] += 1);
        passes += each * turns.into_iter().max().unwrap_or(0);
        fewest += each;
    }
    (passes, passes - fewest)
}

/// Wavefronts of loops of compare-and-exchange, and how many of them are due to conflicts.
fn in_rounds(addresses: &[u64; 32], lanes: u32, bytes: u32) -> (u64, u64) {
    let (mut left, mut passes) = (lanes, 0);
    while left != 0 {
        let mut served = 0u32;
        for members in groups(left, 128 / bytes) {
            let (mut busy, before) = ([false; BANKS as usize], served);
            for lane in lanes_of(members) {
                let first = !std::mem::replace(&mut busy[bank(addresses[lane])], true);
                if first && lanes_of(before).all(|other| addresses[other] != addresses[lane]) {
                    served |= 1 << lane;
                }
            }
            passes += 2;
        }
        left &= !served;
    }
    (passes, passes - 2 * groups(lanes, 128 / bytes).count() as u64)
}

/// The lanes of a mask.
fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |lane| mask >> lane & 1 == 1)
}

/// The bank of an address in shared memory.
fn bank(address: u64) -> usize {
    (address / 4 % BANKS) as usize
}

/// Wavefronts that an access of a warp to shared memory takes, and how many of them are due to conflicts: `bytes` bytes (1 to 16) at these addresses
/// (in bytes from the start of a block's shared memory) for each lane of the mask.
///
/// The rules are those of the hardware's counters (`benchmarks/counters/h100-patterns.md`).
pub fn shared_wavefronts(addresses: &[u64; 32], lanes: u32, bytes: u32, write: bool) -> (u64, u64) {
    let count = if write { wavefronts } else { load_wavefronts };
    count(addresses, lanes, bytes.clamp(1, 16))
}

/// The most distinct words that one bank has to deliver.
fn worst_bank(addresses: &[u64; 32], members: u32, words: u32) -> u64 {
    // The first word asked of each bank; further ones, which are conflicts, go to a list.
    let mut held = [u64::MAX; BANKS as usize];
    let mut count = [1u8; BANKS as usize];
    let mut further = [0; 32];
    let (mut len, mut worst) = (0, 1);
    for (lane, address) in addresses.iter().enumerate() {
        if members >> lane & 1 == 0 {
            continue;
        }
        for word in address / 4..address / 4 + u64::from(words) {
            let bank = (word % BANKS) as usize;
            if held[bank] == u64::MAX {
                held[bank] = word;
            } else if held[bank] != word && !further[..len].contains(&word) {
                further[len] = word;
                len += 1;
                count[bank] += 1;
                worst = worst.max(count[bank]);
            }
        }
    }
    u64::from(worst)
}

/// The type's size as the counters see it.
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
    fn banks_conflict_where_words_differ() {
        assert_eq!(wavefronts(&lanes(|i| 4 * i), u32::MAX, 4), (1, 0));
        assert_eq!(wavefronts(&lanes(|_| 64), u32::MAX, 4), (1, 0));
        assert_eq!(wavefronts(&lanes(|i| 128 * i), u32::MAX, 4), (32, 31));
        assert_eq!(wavefronts(&lanes(|i| 4 * (16 * (i % 16) + i / 16)), u32::MAX, 4), (8, 7));
        assert_eq!(wavefronts(&lanes(|i| 8 * i), u32::MAX, 8), (2, 0));
        assert_eq!(wavefronts(&lanes(|i| 16 * i), u32::MAX, 16), (4, 0));
        assert_eq!(wavefronts(&lanes(|i| 2 * i), u32::MAX, 2), (1, 0));
        assert_eq!(wavefronts(&[0; 32], 0, 4), (0, 0));
    }

    /// What was measured on an H200: a load of 16 bytes takes 4 wavefronts where all lanes read different ones, and 2 where it is a
    /// broadcast, or lanes of a pair (one apart, or two) read the same.
    #[test]
    fn wide_loads_of_pairs_go_together() {
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

    /// As measured on an H200, as many others were.
    #[test]
    fn copies_past_the_cache_take_a_sector_for_each_that_they_fill() {
        let count = |read: fn(u64) -> u64, written: fn(u64) -> u64| {
            let of = |f: fn(u64) -> u64| std::array::from_fn(|lane| f(lane as u64));
            sectors_past_the_cache(&of(read), &of(written), u32::MAX)
        };
        let in_rows = |i: u64| i / 4 * 144 + i % 4 * 16;
        assert_eq!(count(|i| 16 * i, |i| 16 * i), 16);
        assert_eq!(count(|_| 0, |i| 16 * i), 16);
        assert_eq!(count(|i| i % 8 * 16, |i| 144 * i), 32);
        assert_eq!(count(|i| 16 * i, in_rows), 20);
        assert_eq!(count(|_| 0, in_rows), 20);
        assert_eq!(count(|i| 4096 * i, |i| 16 * i), 32);
        assert_eq!(count(|i| i / 2 * 16, |i| (i ^ (i / 8)) * 16), 16);
        assert_eq!(sectors_past_the_cache(&[0; 32], &[0; 32], 0), 0);
    }

    #[test]
    fn sectors_are_counted_once_a_request() {
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

    /// A row of `benchmarks/counters/h100-patterns.csv.gz`: a request, and what an H100 counted.
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

    /// An inactive lane does not break its pair; pairs are a matter of the whole warp.
    #[test]
    fn load_wavefronts_of_partial_masks_are_as_measured() {
        let wide = |f: &dyn Fn(u64) -> u64, mask| load_wavefronts(&lanes(|i| 16 * f(i)), mask, 16);
        // One address a quarter, and inactive lanes: two, then every other one. Two active lanes, of
        // different quarters, then of different halves.
        assert_eq!(wide(&|i| 201 + i / 8, 0xffff_fdfb), (2, 0));
        assert_eq!(wide(&|i| 115 + i / 8, 0x5555_5555), (2, 0));
        assert_eq!(wide(&|_| 55, 0x0000_8001), (1, 0));
        assert_eq!(wide(&|_| 55, 0x0800_1000), (2, 0));
        // The first half in pairs at distance 1, the second at distance 2.
        assert_eq!(wide(&|i| if i < 16 { i / 2 % 4 } else { i & 1 }, u32::MAX), (4, 0));
        assert_eq!(wide(&|i| if i < 16 { i / 2 % 4 } else { i & 1 }, 0xffff), (1, 0));
        // One lane that breaks all pairs, until it is inactive.
        let mut odd = three_or_five(0x0f0f_0f0f);
        odd[7] += 16;
        assert_eq!(load_wavefronts(&odd, u32::MAX, 16), (4, 0));
        assert_eq!(load_wavefronts(&odd, !(1 << 7), 16), (2, 0));
    }

    #[test]
    fn atomic_wavefronts_count_a_lane_of_a_bank_a_turn() {
        let all = u32::MAX;
        let add = atomic_wavefronts(AtomicOp::Add, Type::U32);
        assert_eq!(add(&lanes(|i| 4 * i), all, 4), (1, 0));
        assert_eq!(add(&lanes(|_| 64), all, 4), (32, 31));
        assert_eq!(add(&lanes(|_| 64), 0xff00, 4), (8, 7));
        // Two addresses: of one bank, and of two.
        assert_eq!(add(&lanes(|i| 128 * (i % 2)), all, 4), (32, 31));
        assert_eq!(add(&lanes(|i| 4 * (i % 2)), all, 4), (16, 15));
        assert_eq!(add(&[0; 32], 0, 4), (0, 0));
        let compare = AtomicOp::CompareExchange { expected: Operand::Const(Type::U32, 0) };
        assert_eq!(atomic_wavefronts(compare, Type::U32)(&lanes(|i| 4 * i), all, 4), (2, 0));
        assert_eq!(atomic_wavefronts(compare, Type::U64)(&lanes(|_| 8), all, 8), (64, 60));
        assert_eq!(atomic_wavefronts(AtomicOp::Exchange, Type::F64)(&lanes(|i| 8 * i), all, 8), (2, 0));
        // Loops. Where both halves access one address, each round serves a lane of one half only.
        assert_eq!(atomic_wavefronts(AtomicOp::Add, Type::F32)(&lanes(|_| 8), all, 4), (64, 62));
        assert_eq!(atomic_wavefronts(AtomicOp::Add, Type::U64)(&lanes(|_| 8), all, 8), (96, 92));
        assert_eq!(atomic_wavefronts(AtomicOp::Xor, Type::U64)(&lanes(|i| 8 * (i / 16)), all, 8), (64, 60));
    }

    #[test]
    fn atomic_sectors_count_again_for_lanes_at_one_address() {
        let at = |f: &dyn Fn(u64) -> u64| atomic_sectors(&(0..32).map(f).collect::<Vec<_>>());
        assert_eq!(at(&|i| 4 * i), 4);
        assert_eq!(at(&|_| 96), 32);
        assert_eq!(at(&|i| 4 * (i % 2)), 16);
        assert_eq!(at(&|i| 32 * (i % 2)), 32);
        assert_eq!(at(&|i| 8 * (31 - i)), 8);
        assert_eq!(atomic_sectors(&[]), 0);
    }

    #[test]
    fn loads_and_stores_of_any_lanes_count_as_measured() {
        let mut rows = 0;
        for row in measured().iter().filter(|row| row.kind.starts_with("ld") || row.kind.starts_with("st")) {
            let count = if row.kind.starts_with("ld") { load_wavefronts } else { wavefronts };
            assert_eq!(count(&row.addresses, row.lanes, row.bytes).0, row.count, "{} {:08x}", row.kind, row.lanes);
            rows += 1;
        }
        assert_eq!(rows, 2678);
    }

    #[test]
    fn shared_atomics_count_as_measured() {
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
    fn global_requests_count_as_measured() {
        let (mut rows, mut more) = (0, BTreeMap::new());
        for row in measured().into_iter().filter(|row| row.kind.starts_with('g')) {
            let addresses: Vec<u64> = lanes_of(row.lanes).map(|lane| row.addresses[lane]).collect();
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
        // The rule does not explain these: the GPU counts more sectors.
        assert_eq!(more, BTreeMap::from([("gcas_b64".into(), 4), ("gred_u64".into(), 2)]));
    }

    /// The operation of a kind of rows, if it is an atomic one on shared memory.
    fn operation(kind: &str) -> Option<(AtomicOp, Type)> {
        Some(match kind {
            "add_u32" | "red_u32" => (AtomicOp::Add, Type::U32),
            "add_u64" => (AtomicOp::Add, Type::U64),
            "add_f32" => (AtomicOp::Add, Type::F32),
            "add_f64" => (AtomicOp::Add, Type::F64),
            "min_u32" => (AtomicOp::Min, Type::U32),
            "xor_b32" => (AtomicOp::Xor, Type::U32),
            "exch_b32" => (AtomicOp::Exchange, Type::U32),
            "exch_b64" => (AtomicOp::Exchange, Type::U64),
            "cas_b32" => (AtomicOp::CompareExchange { expected: Operand::Const(Type::U32, 0) }, Type::U32),
            "cas_b64" => (AtomicOp::CompareExchange { expected: Operand::Const(Type::U32, 0) }, Type::U64),
            _ => return None,
        })
    }
}
