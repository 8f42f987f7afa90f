//! Prints Hopper operations.

use tegula_core::element::Type;

use super::printer::{AddressPart, Printer, Reg, RegisterClass, Requirements, vector_operand};
use crate::launch::Field;
use crate::{
    ArrayContents, HopperOp, LeftOperand, MemoryRef, Operand, Order2d, ParamId, ParamKind, SharedOperand, Swizzle,
    VarId, Wgmma,
};

impl Printer<'_> {
    pub fn hopper(&mut self, op: &HopperOp) {
        self.require(requirements(op));
        match op {
            HopperOp::MbarrierInit { barrier, arrivals } => {
                let barrier = self.address(barrier);
                self.line(format_args!("mbarrier.init.shared::cta.b64 {barrier}, {arrivals}"));
            }
            HopperOp::FenceMbarrierInit => self.line("fence.mbarrier_init.release.cluster"),
            HopperOp::MbarrierArrive { barrier, block: None, expect } => {
                let barrier = self.address(barrier);
                match expect {
                    Some(bytes) => {
                        let bytes = self.operand(*bytes);
                        self.line(format_args!("mbarrier.arrive.expect_tx.shared::cta.b64 _, {barrier}, {bytes}"));
                    }
                    None => self.line(format_args!("mbarrier.arrive.shared::cta.b64 _, {barrier}")),
                }
            }
            HopperOp::MbarrierArrive { barrier, block: Some(block), expect } => {
                let block = self.operand(*block);
                let remote = self.remote_address(barrier, &block);
                let (what, bytes) = match expect {
                    Some(bytes) => (".expect_tx", format!(", {}", self.operand(*bytes))),
                    None => ("", String::new()),
                };
                // With `.release.cluster` the assembler would wait for all memory accesses. The
                // omission is safe: these arrivals release tiles that only TMA writes and `wgmma`
                // reads, which the mbarrier itself orders; and a DSMEM buffer, which is written
                // again only a whole round trip after it was read.
                self.line(format_args!("mbarrier.arrive{what}.shared::cluster.b64 _, {remote}{bytes}"));
            }
            HopperOp::MbarrierWait { barrier, parity } => {
                let again = self.label();
                let (barrier, parity, done) =
                    (self.address(barrier), self.operand(*parity), self.fresh(RegisterClass::Pred));
                self.place_label(&again);
                self.line(format_args!("mbarrier.try_wait.parity.shared::cta.b64 {done}, {barrier}, {parity}"));
                self.line(format_args!("@!{done} bra {again}"));
            }
            HopperOp::TmaLoad { matrix, at, to, barrier, blocks } => {
                let (to, barrier, from) = (self.address(to), self.address(barrier), self.tensor(*matrix, *at));
                let (multicast, blocks) = match blocks {
                    Some(blocks) => {
                        let (mask, blocks) = (self.fresh(RegisterClass::Half), self.operand(*blocks));
                        self.line(format_args!("cvt.u16.u32 {mask}, {blocks}"));
                        (".multicast::cluster", format!(", {mask}"))
                    }
                    None => ("", String::new()),
                };
                self.line(format_args!(
                    "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes{multicast} {to}, {from}, {barrier}{blocks}"
                ));
            }
            HopperOp::StoreAsync { to, values, block, barrier } => {
                let block = self.operand(*block);
                let (to, barrier) = (self.remote_address(to, &block), self.remote_address(barrier, &block));
                let values: Vec<_> = values.iter().map(|&value| self.register(value)).collect();
                let width = if values.len() > 1 { format!(".v{}", values.len()) } else { String::new() };
                let values = vector_operand(&values);
                self.line(format_args!(
                    "st.async.shared::cluster.mbarrier::complete_tx::bytes{width}.b32 {to}, {values}, {barrier}"
                ));
            }
            HopperOp::TmaStore { matrix, at, from } => {
                let (from, to) = (self.address(from), self.tensor(*matrix, *at));
                self.line(format_args!("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group {to}, {from}"));
            }
            HopperOp::BulkCommitGroup => self.line("cp.async.bulk.commit_group"),
            HopperOp::BulkWaitGroup { pending, read } => {
                let read = if *read { ".read" } else { "" };
                self.line(format_args!("cp.async.bulk.wait_group{read} {pending}"));
            }
            HopperOp::FenceProxyAsync { global: false } => self.line("fence.proxy.async.shared::cta"),
            HopperOp::FenceProxyAsync { global: true } => self.line("fence.proxy.async.global"),
            HopperOp::Wgmma { wgmma, a, b, accumulators, accumulate } => {
                self.wgmma(*wgmma, a, b, *accumulators, *accumulate);
            }
            HopperOp::WgmmaFence => self.line("wgmma.fence.sync.aligned"),
            HopperOp::WgmmaCommitGroup => self.line("wgmma.commit_group.sync.aligned"),
            HopperOp::WgmmaWaitGroup { pending } => self.line(format_args!("wgmma.wait_group.sync.aligned {pending}")),
            HopperOp::StoreMatrix { to, values, transposed } => {
                let registers: Vec<_> = values.iter().map(|&value| self.register(value)).collect();
                let (values, to) = (vector_operand(&registers), self.address(to));
                let values = if registers.len() == 1 { format!("{{{values}}}") } else { values };
                let (count, transposed) = (registers.len(), if *transposed { ".trans" } else { "" });
                self.line(format_args!("stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {to}, {values}"));
            }
            HopperOp::SetMaxRegisters { count, increase } => {
                let how = if *increase { "inc" } else { "dec" };
                self.line(format_args!("setmaxnreg.{how}.sync.aligned.u32 {count}"));
            }
            HopperOp::ClusterArrive => self.line("barrier.cluster.arrive.release.aligned"),
            HopperOp::ClusterWait => self.line("barrier.cluster.wait.acquire.aligned"),
            HopperOp::PrefetchTensorMap { matrix } => {
                let tensor = self.param(Field::Tensor(*matrix));
                self.line(format_args!("prefetch.tensormap [{tensor}]"));
            }
            HopperOp::GriddepWait => self.line("griddepcontrol.wait"),
            HopperOp::GriddepLaunchDependents => self.line("griddepcontrol.launch_dependents"),
        }
    }

    /// The address of the same element in shared memory of another block of the cluster (`mapa`).
    fn remote_address(&mut self, memory_ref: &MemoryRef, block: &str) -> String {
        let at = self.address(memory_ref);
        let ((base, offset), remote) = (at.parts(), self.fresh(RegisterClass::Word));
        let own = match base {
            "arena" => {
                let own = self.fresh(RegisterClass::Word);
                self.line(format_args!("mov.u32 {own}, arena"));
                own.to_string()
            }
            base => base.to_string(),
        };
        self.line(format_args!("mapa.shared::cluster.u32 {remote}, {own}, {block}"));
        format!("[{remote}{offset:+}]")
    }

    /// A tile of a matrix: the tensor map and the coordinates, the contiguous axis first.
    fn tensor(&mut self, matrix: ParamId, [batch, row, col]: [Operand; 3]) -> String {
        let tensor = self.param(Field::Tensor(matrix));
        let [batch, row, col] = [batch, row, col].map(|at| self.operand(at));
        let [inner, outer] = match self.kernel.params()[matrix.index()].kind {
            ParamKind::Matrix { order: Order2d::ColMajor, .. } => [row, col],
            _ => [col, row],
        };
        format!("[{tensor}, {{{inner}, {outer}, {batch}}}]")
    }

    fn wgmma(&mut self, wgmma: Wgmma, a: &LeftOperand, b: &SharedOperand, sums: VarId, add: Operand) {
        let transposed = |operand: &SharedOperand| u32::from(!operand.k_major);
        let (left, flags) = match a {
            LeftOperand::Shared(a) => (self.descriptor(a).to_string(), format!("{}, {}", transposed(a), transposed(b))),
            LeftOperand::Registers(a) => {
                let registers: Vec<_> = a.iter().map(|&a| self.register(a)).collect();
                (vector_operand(&registers), transposed(b).to_string())
            }
        };
        let (right, add) = (self.descriptor(b), self.register(add));
        let sums: Vec<_> = (0..wgmma.accumulators()).map(|i| self.var(VarId(sums.0 + i))).collect();
        let ty = Wgmma::ptx_type(wgmma.ty).unwrap_or_else(|| unreachable!("checked: the instruction has the type"));
        let (n, sums) = (wgmma.n, vector_operand(&sums));
        self.line(format_args!(
            "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{ty}.{ty} {sums}, {left}, {right}, {add}, 1, 1, {flags}"
        ));
    }

    /// The matrix descriptor of an operand, in units of 16 bytes.
    ///
    /// Bits from 0: the start address. From 16: the leading byte offset, to the next tile of an
    /// MN-major operand. From 32: the stride byte offset, between groups of eight rows. Highest
    /// bits: the swizzle.
    fn descriptor(&mut self, operand: &SharedOperand) -> Reg {
        let MemoryRef::Shared { array, index, offset, .. } = operand.at else {
            unreachable!("checked: the operand is in shared memory")
        };
        let shared = &self.kernel.shared()[array.index()];
        let ArrayContents::Tiles(swizzle) = shared.contents else { unreachable!("checked: the operand has tiles") };
        let (size, start) = (shared.ty.size() as u32, shared.start);
        let row = u64::from(swizzle.row_bytes());
        let code: u64 = match swizzle {
            Swizzle::None => 0,
            Swizzle::B128 => 1,
            Swizzle::B64 => 2,
            Swizzle::B32 => 3,
        };
        let leading = if operand.k_major { 1 } else { u64::from(shared.dims[1]) * row / 16 };
        let high = code << 62 | (8 * row / 16) << 32 | leading << 16;
        let (index, fixed) = match index {
            Operand::Const(_, index) => (Operand::Const(Type::U32, 0), (index as u32).wrapping_add(offset)),
            index => (index, offset),
        };
        let depth = self.depth(index);
        let base =
            self.address_part(AddressPart::Descriptor(index, start, high), depth, RegisterClass::Long, |p, d| {
                let (arena, low) = (p.arena(), p.fresh(RegisterClass::Word));
                match index {
                    Operand::Const(..) => p.line_at(depth, format_args!("add.u32 {low}, {arena}, {start}")),
                    index => {
                        let index = p.operand(index);
                        p.line_at(depth, format_args!("mad.lo.u32 {low}, {index}, {size}, {arena}"));
                        p.line_at(depth, format_args!("add.u32 {low}, {low}, {start}"));
                    }
                }
                // In a cluster, the highest bits of an address identify the block.
                p.line_at(depth, format_args!("bfe.u32 {low}, {low}, 4, 14"));
                p.line_at(depth, format_args!("cvt.u64.u32 {d}, {low}"));
                p.line_at(depth, format_args!("or.b64 {d}, {d}, {high:#018x}"));
            });
        let offset = u64::from(fixed) * u64::from(size) / 16;
        if offset == 0 {
            return base;
        }
        let reg = self.fresh(RegisterClass::Long);
        self.line(format_args!("add.s64 {reg}, {base}, {offset}"));
        reg
    }
}

fn requirements(op: &HopperOp) -> Requirements {
    match op {
        HopperOp::Wgmma { .. }
        | HopperOp::WgmmaFence
        | HopperOp::WgmmaCommitGroup
        | HopperOp::WgmmaWaitGroup { .. }
        | HopperOp::SetMaxRegisters { .. } => Requirements::SM_90A,
        HopperOp::GriddepWait | HopperOp::GriddepLaunchDependents => Requirements::SM_90,
        HopperOp::StoreAsync { .. } => Requirements { version: (8, 1), ..Requirements::SM_90 },
        _ => Requirements { version: (8, 0), ..Requirements::SM_90 },
    }
}
