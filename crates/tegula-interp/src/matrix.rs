//! Matrix instructions of a warp: `mma`, `ldmatrix`, `stmatrix`.

use tegula_core::element::Type;
use tegula_ir::Mma;

use super::count::wavefronts;
use super::lanes::Reg;
use super::observe::Computation;
use super::program::{ElementAddress, Fragments, MAX_WIDTH};
use super::race::AccessKind;
use super::tensor::{self, Matrices};
use super::warp::WarpContext;

impl WarpContext<'_, '_> {
    /// Executes C += A·B on fragments.
    pub fn mma(&mut self, pc: usize, mma: Mma, fragments: &Fragments) {
        if !self.check_participants(pc, u32::MAX) {
            return;
        }
        let mut matrices = self.gather(mma, fragments);
        tensor::multiply(self.machine.config.tensor_core, mma, &mut matrices);
        let ([.., count], [_, n, _]) = (mma.registers(), mma.shape());
        for (register, &reg) in (0..count).zip(&fragments.accumulators) {
            let bits = std::array::from_fn(|lane| {
                let (row, col) = mma.accumulator(lane as u32, register);
                matrices.accumulators[(row * n + col) as usize]
            });
            self.warp.registers.put_bits(mma.accumulator_type(), reg, &bits);
            self.observe_result(Computation::Matrix(mma), mma.accumulator_type(), reg, &[]);
        }
    }

    fn gather(&self, mma: Mma, fragments: &Fragments) -> Matrices {
        let mut matrices = Matrices { a: [0; 16 * 32], b: [0; 32 * 8], accumulators: [0; 16 * 8] };
        let ([a, b, accumulators], [_, n, k]) = (mma.registers(), mma.shape());
        let (ty, packed) = (mma.operand_type(), mma.elements_per_register());
        let part_bits = (ty.size() * 8) as u32 / packed;
        let element = |bits: u64, part: u32| bits >> (part * part_bits) & (u64::MAX >> (64 - part_bits));
        for (register, &reg) in (0..a).zip(&fragments.a) {
            for (lane, bits) in (0..).zip(self.warp.registers.bits(ty, reg)) {
                for part in 0..packed {
                    let (row, col) = mma.a(lane, register, part);
                    matrices.a[(row * k + col) as usize] = element(bits, part);
                }
            }
        }
        for (register, &reg) in (0..b).zip(&fragments.b) {
            for (lane, bits) in (0..).zip(self.warp.registers.bits(ty, reg)) {
                for part in 0..packed {
                    let (row, col) = mma.b(lane, register, part);
                    matrices.b[(col * k + row) as usize] = element(bits, part);
                }
            }
        }
        for (register, &reg) in (0..accumulators).zip(&fragments.accumulators) {
            for (lane, bits) in (0..).zip(self.warp.registers.bits(mma.accumulator_type(), reg)) {
                let (row, col) = mma.accumulator(lane, register);
                matrices.accumulators[(row * n + col) as usize] = bits;
            }
        }
        matrices
    }

    /// Executes `stmatrix`, the inverse of [`WarpContext::load_matrix`].
    ///
    /// The lane with the address of a row counts as its writer.
    pub fn store_matrix(&mut self, pc: usize, ty: Type, values: &[Reg], to: ElementAddress, transposed: bool) {
        if !self.check_participants(pc, u32::MAX) {
            return;
        }
        let width = 16 / ty.size();
        let writers = u32::MAX >> (32 - 8 * values.len());
        let lanes: [u32; MAX_WIDTH] = std::array::from_fn(|e| if e < width { writers } else { 0 });
        let target = self.resolve(ty, to, lanes, width as u32);
        self.count_access(ty, to, &target, width as u32, wavefronts);
        let mut rows = [[0u8; 16]; 32];
        for (rows, &value) in rows.chunks_mut(8).zip(values) {
            let mut put = |row: usize, col: usize, half: u32| {
                rows[row][2 * col..][..2].copy_from_slice(&(half as u16).to_le_bytes());
            };
            for (lane, pair) in self.warp.registers.u32s(value).into_iter().enumerate() {
                let (i, j) = (lane / 4, 2 * (lane % 4));
                let [first, second] = if transposed { [(j, i), (j + 1, i)] } else { [(i, j), (i, j + 1)] };
                put(first.0, first.1, pair);
                put(second.0, second.1, pair >> 16);
            }
        }
        for e in 0..width {
            let bits = rows.map(|row| {
                let mut bits = [0; 8];
                bits[..ty.size()].copy_from_slice(&row[e * ty.size()..][..ty.size()]);
                u64::from_le_bytes(bits)
            });
            self.check_lanes(&target, e, AccessKind::Write, None);
            self.put_lanes(&target, e, &bits);
            self.observe_access(&target, e, AccessKind::Write, None, &bits);
        }
    }

    /// Executes `ldmatrix`: matrices of 8 rows of 16 bytes.
    ///
    /// The lane with the address of a row counts as its reader.
    pub fn load_matrix(&mut self, pc: usize, ty: Type, dst: &[Reg], at: ElementAddress, transposed: bool) {
        if !self.check_participants(pc, u32::MAX) {
            return;
        }
        let width = 16 / ty.size();
        let readers = u32::MAX >> (32 - 8 * dst.len());
        let lanes: [u32; MAX_WIDTH] = std::array::from_fn(|e| if e < width { readers } else { 0 });
        let target = self.resolve(ty, at, lanes, width as u32);
        // One matrix after the other: addresses in rows of two matrices are read twice.
        self.count_access(ty, at, &target, width as u32, wavefronts);
        let mut rows = [[0u8; 16]; 32];
        for e in 0..width {
            let mut bits = [0; 32];
            self.check_lanes(&target, e, AccessKind::Read, None);
            self.fetch_lanes(&target, e, &mut bits);
            for (row, bits) in rows.iter_mut().zip(bits) {
                row[e * ty.size()..][..ty.size()].copy_from_slice(&bits.to_le_bytes()[..ty.size()]);
            }
            self.observe_access(&target, e, AccessKind::Read, None, &bits);
        }
        for (rows, &dst) in rows.chunks(8).zip(dst) {
            let half =
                |row: usize, col: usize| u64::from(u16::from_le_bytes([rows[row][2 * col], rows[row][2 * col + 1]]));
            let bits = std::array::from_fn(|lane| {
                let (i, j) = (lane / 4, 2 * (lane % 4));
                let [low, high] = if transposed { [half(j, i), half(j + 1, i)] } else { [half(i, j), half(i, j + 1)] };
                low | high << 16
            });
            self.warp.registers.put_bits(Type::U32, dst, &bits);
            self.observe_result(Computation::Other, Type::U32, dst, &[]);
        }
    }
}
