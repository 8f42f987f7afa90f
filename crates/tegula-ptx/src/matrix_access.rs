//! Execution of matrix instructions: operands in the registers of a warp and in memory.

use tegula_interp::TensorCore;
use tegula_interp::rules::{load_wavefronts, sectors, wavefronts};

use crate::access::{Kind, Target};
use crate::alu::Lanes;
use crate::matrix::{LdMatrix, Mma, StMatrix, WmmaTransfer, movmatrix};
use crate::program::{Address, Op, Reg};
use crate::run::{Run, lanes};

/// Size of the words of a row of `ldmatrix` and `stmatrix`, in bytes.
const ROW_WORDS: usize = 4;

impl Run<'_, '_> {
    /// Executes a matrix instruction with all lanes of the warp.
    pub fn matrix(&mut self, frame: u32, op: &Op) {
        match op {
            Op::Mma { mma, operands } => self.mma(mma, operands),
            Op::WmmaLoad { transfer, registers, address, stride } => {
                self.wmma_load(frame, transfer, registers, address, *stride);
            }
            Op::WmmaStore { transfer, registers, address, stride } => {
                self.wmma_store(frame, transfer, registers, address, *stride);
            }
            Op::LdMatrix { ldmatrix, dst, address } => self.ldmatrix(frame, *ldmatrix, dst, address),
            Op::StMatrix { stmatrix, src, address } => self.stmatrix(frame, *stmatrix, src, address),
            Op::MovMatrix { dst, src } => {
                let transposed = movmatrix(self.register(*src));
                self.put(*dst, &transposed);
            }
            _ => {}
        }
    }

    fn mma(&mut self, mma: &Mma, [a, b, c, d]: &[Vec<Reg>; 4]) {
        let registers = |of: &[Reg]| of.iter().map(|&reg| self.register(reg)).collect::<Vec<&Lanes>>();
        let mut results = vec![[0; 32]; d.len()];
        mma.eval(TensorCore::Sm90, &registers(a), &registers(b), &registers(c), &mut results);
        d.iter().zip(&results).for_each(|(&reg, value)| self.put(reg, value));
    }

    fn wmma_load(
        &mut self,
        frame: u32,
        transfer: &WmmaTransfer,
        registers: &[Reg],
        address: &Address,
        stride: Option<Reg>,
    ) {
        let (base, stride) = (self.addresses(frame, address), self.stride(transfer, stride));
        let mut words: Vec<Lanes> = Vec::new();
        for access in transfer.accesses() {
            let first = words.len();
            words.resize(first + access.words as usize, [0; 32]);
            let (size, active) = (access.word_bytes, self.active);
            self.active &= access.mask();
            let offsets = access.offsets(stride);
            let addresses = std::array::from_fn(|lane| base[lane].wrapping_add(offsets[lane]));
            let target = self.resolve(address.space, &addresses, size * access.words, false);
            self.count(&target, size * access.words, access.words, (load_wavefronts, sectors));
            for word in 0..access.words {
                let at = self.elements(&target, word * size);
                self.check_lanes(&at, size, Kind::READ);
                for lane in lanes(at.lanes) {
                    words[first + word as usize][lane] = self.fetch(at.locations[lane], lane, size);
                }
            }
            self.active = active;
        }
        let mut values = vec![[0; 32]; registers.len()];
        transfer.load(&words, &mut values);
        registers.iter().zip(&values).for_each(|(&reg, value)| self.put(reg, value));
    }

    fn wmma_store(
        &mut self,
        frame: u32,
        transfer: &WmmaTransfer,
        registers: &[Reg],
        address: &Address,
        stride: Option<Reg>,
    ) {
        let (base, stride) = (self.addresses(frame, address), self.stride(transfer, stride));
        let words = transfer.store(&registers.iter().map(|&reg| self.register(reg)).collect::<Vec<_>>());
        let mut words = words.into_iter();
        for access in transfer.accesses() {
            let (size, active) = (access.word_bytes, self.active);
            self.active &= access.mask();
            let offsets = access.offsets(stride);
            let addresses = std::array::from_fn(|lane| base[lane].wrapping_add(offsets[lane]));
            let target = self.resolve(address.space, &addresses, size * access.words, true);
            self.count(&target, size * access.words, access.words, (wavefronts, sectors));
            for word in 0..access.words {
                let Some(values) = words.next() else { break };
                let mut at = self.elements(&target, word * size);
                self.store_weak(&mut at, size, &values);
            }
            self.active = active;
        }
    }

    /// The stride of a matrix in memory, in elements.
    fn stride(&self, transfer: &WmmaTransfer, stride: Option<Reg>) -> u32 {
        stride
            .map_or_else(|| transfer.default_stride(), |reg| self.u32s(reg)[self.active.trailing_zeros() as usize % 32])
    }

    fn ldmatrix(&mut self, frame: u32, ldmatrix: LdMatrix, dst: &[Reg], address: &Address) {
        let target = self.rows(frame, address, ldmatrix.address_lanes(), false);
        let mut rows = [[0; 32]; ROW_WORDS];
        for (word, row) in rows.iter_mut().enumerate() {
            let at = self.elements(&target, 4 * word as u32);
            self.check_lanes(&at, 4, Kind::READ);
            lanes(at.lanes).for_each(|lane| row[lane] = self.fetch(at.locations[lane], lane, 4));
        }
        let mut values = vec![[0; 32]; dst.len()];
        ldmatrix.load(&rows, &mut values);
        dst.iter().zip(&values).for_each(|(&reg, value)| self.put(reg, value));
    }

    fn stmatrix(&mut self, frame: u32, stmatrix: StMatrix, src: &[Reg], address: &Address) {
        let rows = stmatrix.store(&src.iter().map(|&reg| self.register(reg)).collect::<Vec<_>>());
        let target = self.rows(frame, address, stmatrix.address_lanes(), true);
        for (word, row) in rows.iter().enumerate() {
            let mut at = self.elements(&target, 4 * word as u32);
            self.store_weak(&mut at, 4, row);
        }
    }

    /// Resolves the rows of 8 × 8 matrices: 16 bytes at the address of each lane in the mask `of`.
    ///
    /// Each matrix takes at least one wavefront, also if two matrices have the same rows.
    fn rows(&mut self, frame: u32, address: &Address, of: u32, writes: bool) -> Target {
        let addresses = self.addresses(frame, address);
        let active = self.active;
        self.active &= of;
        let target = self.resolve(address.space, &addresses, 16, writes);
        self.active = active;
        self.count(&target, 16, 8, (wavefronts, sectors));
        target
    }
}
