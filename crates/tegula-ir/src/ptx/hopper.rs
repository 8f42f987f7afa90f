//! What Hopper brought.

use tegula_core::element::Type;

use super::printer::{Address, Class, Needs, Printer, Reg, braced};
use crate::launch::Field;
use crate::{Factor, Holds, Hopper, LeftFactor, Operand, Order2d, ParamId, ParamKind, Place, Swizzle, VarId, Wgmma};

impl Printer<'_> {
    pub fn hopper(&mut self, op: &Hopper) {
        self.need(needs(op));
        match op {
            Hopper::InitBarrier { barrier, arrivals } => {
                let barrier = self.locate(barrier);
                self.line(format_args!("mbarrier.init.shared::cta.b64 {barrier}, {arrivals}"));
            }
            Hopper::FenceInit => self.line("fence.mbarrier_init.release.cluster"),
            Hopper::Arrive { barrier, block: None, expect } => {
                let barrier = self.locate(barrier);
                match expect {
                    Some(bytes) => {
                        let bytes = self.operand(*bytes);
                        self.line(format_args!("mbarrier.arrive.expect_tx.shared::cta.b64 _, {barrier}, {bytes}"));
                    }
                    None => self.line(format_args!("mbarrier.arrive.shared::cta.b64 _, {barrier}")),
                }
            }
            Hopper::Arrive { barrier, block: Some(block), expect } => {
                let block = self.operand(*block);
                let there = self.elsewhere(barrier, &block);
                let (what, bytes) = match expect {
                    Some(bytes) => (".expect_tx", format!(", {}", self.operand(*bytes))),
                    None => ("", String::new()),
                };
                // With `.release.cluster` the assembler waits for all of memory. What is handed over here are tiles that only the copy engine writes and the
                // matrix instructions read, which the barrier itself puts in order; and an inbox, which is read a whole way there and back before it is written again.
                self.line(format_args!("mbarrier.arrive{what}.shared::cluster.b64 _, {there}{bytes}"));
            }
            Hopper::Await { barrier, parity } => {
                let again = self.label();
                let (barrier, parity, done) = (self.locate(barrier), self.operand(*parity), self.fresh(Class::Pred));
                self.place_label(&again);
                self.line(format_args!("mbarrier.try_wait.parity.shared::cta.b64 {done}, {barrier}, {parity}"));
                self.line(format_args!("@!{done} bra {again}"));
            }
            Hopper::CopyTile { matrix, at, to, barrier, blocks } => {
                let (to, barrier, from) = (self.locate(to), self.locate(barrier), self.tensor(*matrix, *at));
                let (multicast, blocks) = match blocks {
                    Some(blocks) => {
                        let (mask, blocks) = (self.fresh(Class::Half), self.operand(*blocks));
                        self.line(format_args!("cvt.u16.u32 {mask}, {blocks}"));
                        (".multicast::cluster", format!(", {mask}"))
                    }
                    None => ("", String::new()),
                };
                self.line(format_args!(
                    "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes{multicast} {to}, {from}, {barrier}{blocks}"
                ));
            }
            Hopper::Send { to, values, block, barrier } => {
                let block = self.operand(*block);
                let (to, barrier) = (self.elsewhere(to, &block), self.elsewhere(barrier, &block));
                let values: Vec<_> = values.iter().map(|&value| self.register(value)).collect();
                let width = if values.len() > 1 { format!(".v{}", values.len()) } else { String::new() };
                let values = braced(&values);
                self.line(format_args!(
                    "st.async.shared::cluster.mbarrier::complete_tx::bytes{width}.b32 {to}, {values}, {barrier}"
                ));
            }
            Hopper::StoreTile { matrix, at, from } => {
                let (from, to) = (self.locate(from), self.tensor(*matrix, *at));
                self.line(format_args!("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group {to}, {from}"));
            }
            Hopper::CommitStores => self.line("cp.async.bulk.commit_group"),
            Hopper::AwaitStores { pending, read } => {
                let read = if *read { ".read" } else { "" };
                self.line(format_args!("cp.async.bulk.wait_group{read} {pending}"));
            }
            Hopper::FenceProxy { global: false } => self.line("fence.proxy.async.shared::cta"),
            Hopper::FenceProxy { global: true } => self.line("fence.proxy.async.global"),
            Hopper::Wgmma { wgmma, a, b, sums, add } => self.wgmma(*wgmma, a, b, *sums, *add),
            Hopper::WgmmaFence => self.line("wgmma.fence.sync.aligned"),
            Hopper::WgmmaCommit => self.line("wgmma.commit_group.sync.aligned"),
            Hopper::WgmmaWait { pending } => self.line(format_args!("wgmma.wait_group.sync.aligned {pending}")),
            Hopper::StoreMatrix { to, values, transposed } => {
                let registers: Vec<_> = values.iter().map(|&value| self.register(value)).collect();
                let (values, to) = (braced(&registers), self.locate(to));
                let values = if registers.len() == 1 { format!("{{{values}}}") } else { values };
                let (count, transposed) = (registers.len(), if *transposed { ".trans" } else { "" });
                self.line(format_args!("stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {to}, {values}"));
            }
            Hopper::SetRegisters { count, more } => {
                let how = if *more { "inc" } else { "dec" };
                self.line(format_args!("setmaxnreg.{how}.sync.aligned.u32 {count}"));
            }
            Hopper::ClusterArrive => self.line("barrier.cluster.arrive.release.aligned"),
            Hopper::ClusterWait => self.line("barrier.cluster.wait.acquire.aligned"),
            Hopper::Prefetch { matrix } => {
                let tensor = self.param(Field::Tensor(*matrix));
                self.line(format_args!("prefetch.tensormap [{tensor}]"));
            }
            Hopper::AwaitLaunches => self.line("griddepcontrol.wait"),
            Hopper::AllowNext => self.line("griddepcontrol.launch_dependents"),
        }
    }

    /// The same place in shared memory of a block of the cluster.
    fn elsewhere(&mut self, place: &Place, block: &str) -> String {
        let at = self.locate(place);
        let ((base, offset), there) = (at.parts(), self.fresh(Class::Word));
        let own = match base {
            "arena" => {
                let own = self.fresh(Class::Word);
                self.line(format_args!("mov.u32 {own}, arena"));
                own.to_string()
            }
            base => base.to_string(),
        };
        self.line(format_args!("mapa.shared::cluster.u32 {there}, {own}, {block}"));
        format!("[{there}{offset:+}]")
    }

    /// A tile of a matrix: what says where the matrix is, and coordinates, those of neighbours in memory first.
    fn tensor(&mut self, matrix: ParamId, [batch, row, col]: [Operand; 3]) -> String {
        let tensor = self.param(Field::Tensor(matrix));
        let [batch, row, col] = [batch, row, col].map(|at| self.operand(at));
        let [inner, outer] = match self.kernel.params()[matrix.index()].kind {
            ParamKind::Matrix { order: Order2d::ColMajor, .. } => [row, col],
            _ => [col, row],
        };
        format!("[{tensor}, {{{inner}, {outer}, {batch}}}]")
    }

    fn wgmma(&mut self, wgmma: Wgmma, a: &LeftFactor, b: &Factor, sums: VarId, add: Operand) {
        let transposed = |factor: &Factor| u32::from(!factor.along_k);
        let (left, flags) = match a {
            LeftFactor::Shared(a) => (self.descriptor(a).to_string(), format!("{}, {}", transposed(a), transposed(b))),
            LeftFactor::Registers(a) => {
                let registers: Vec<_> = a.iter().map(|&a| self.register(a)).collect();
                (braced(&registers), transposed(b).to_string())
            }
        };
        let (right, add) = (self.descriptor(b), self.register(add));
        let sums: Vec<_> = (0..wgmma.sums()).map(|i| self.var(VarId(sums.0 + i))).collect();
        let ty = Wgmma::spelling(wgmma.ty).unwrap_or_else(|| unreachable!("checked: the instruction has the type"));
        let (n, sums) = (wgmma.n, braced(&sums));
        self.line(format_args!(
            "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{ty}.{ty} {sums}, {left}, {right}, {add}, 1, 1, {flags}"
        ));
    }

    /// How the instruction finds a factor: in units of 16 bytes, where it begins, from bit 16 on how far its cut rows go on, from bit 32
    /// on how far eight rows are from the next; in the highest bits the swizzle.
    fn descriptor(&mut self, factor: &Factor) -> Reg {
        let Place::Shared { array, index, offset, .. } = factor.at else { unreachable!("checked: a factor is shared") };
        let shared = &self.kernel.shared()[array.index()];
        let Holds::Tiles(swizzle) = shared.holds else { unreachable!("checked: a factor has tiles") };
        let (size, start) = (shared.ty.size() as u32, shared.start);
        let row = u64::from(swizzle.row_bytes());
        let code: u64 = match swizzle {
            Swizzle::None => 0,
            Swizzle::B128 => 1,
            Swizzle::B64 => 2,
            Swizzle::B32 => 3,
        };
        let cut = if factor.along_k { 1 } else { u64::from(shared.dims[1]) * row / 16 };
        let high = code << 62 | (8 * row / 16) << 32 | cut << 16;
        let (index, fixed) = match index {
            Operand::Const(_, index) => (Operand::Const(Type::U32, 0), (index as u32).wrapping_add(offset)),
            index => (index, offset),
        };
        let depth = self.depth(index);
        let base = self.part(Address::Factor(index, start, high), depth, Class::Long, |p, d| {
            let (arena, low) = (p.arena(), p.fresh(Class::Word));
            match index {
                Operand::Const(..) => p.line_at(depth, format_args!("add.u32 {low}, {arena}, {start}")),
                index => {
                    let index = p.operand(index);
                    p.line_at(depth, format_args!("mad.lo.u32 {low}, {index}, {size}, {arena}"));
                    p.line_at(depth, format_args!("add.u32 {low}, {low}, {start}"));
                }
            }
            // In a cluster, an address tells the block in its highest bits.
            p.line_at(depth, format_args!("bfe.u32 {low}, {low}, 4, 14"));
            p.line_at(depth, format_args!("cvt.u64.u32 {d}, {low}"));
            p.line_at(depth, format_args!("or.b64 {d}, {d}, {high:#018x}"));
        });
        let further = u64::from(fixed) * u64::from(size) / 16;
        if further == 0 {
            return base;
        }
        let reg = self.fresh(Class::Long);
        self.line(format_args!("add.s64 {reg}, {base}, {further}"));
        reg
    }
}

fn needs(op: &Hopper) -> Needs {
    match op {
        Hopper::Wgmma { .. }
        | Hopper::WgmmaFence
        | Hopper::WgmmaCommit
        | Hopper::WgmmaWait { .. }
        | Hopper::SetRegisters { .. } => Needs::SM_90A,
        Hopper::AwaitLaunches | Hopper::AllowNext => Needs::SM_90,
        Hopper::Send { .. } => Needs { version: (8, 1), ..Needs::SM_90 },
        _ => Needs { version: (8, 0), ..Needs::SM_90 },
    }
}
