//! Fragments: the mapping of matrix elements to lanes and parts of registers.
//!
//! One rule describes all fragments of `mma` and `wmma`, except those of `m8n8k4` with f16. A
//! matrix consists of *lines*: rows of A, columns of B, rows of C. A *tile* is 8 lines, each held
//! by 4 lanes. Each of these lanes holds consecutive elements of its line. The registers hold one
//! tile after the other.

use crate::alu::Lanes;

use super::element::Element;

/// The tiles of a fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiling {
    pub lines: u32,
    /// Number of parts of a line.
    pub depth: u32,
    /// Number of consecutive parts of a line that a lane holds in a tile.
    pub per_lane: u32,
    /// Number of tiles along the lines that precede the next tile along the depth: 2 for operands
    /// with 16 lines, otherwise 1.
    pub halves: u32,
}

impl Tiling {
    /// The tiles of A or B; without the repeated half of A and B of `wmma`.
    pub fn operand(lines: u32, k: u32, element: Element, halves: u32) -> Self {
        Self { lines, depth: k / element.per_part(), per_lane: element.parts(), halves }
    }

    /// The tiles of C or D.
    pub fn accumulator(lines: u32, depth: u32) -> Self {
        Self { lines, depth, per_lane: 2, halves: (lines / 8).min(2) }
    }

    /// Number of parts of a line in a tile.
    pub fn width(&self) -> u32 {
        4 * self.per_lane
    }

    pub fn tiles(&self) -> u32 {
        self.lines / 8 * (self.depth / self.width())
    }

    /// The first line of a tile, and the first part of its lines.
    pub fn origin(&self, tile: u32) -> (u32, u32) {
        let columns = self.depth / self.width();
        let (half, rest) = (tile % self.halves, tile / self.halves);
        (8 * (rest / columns * self.halves + half), rest % columns * self.width())
    }

    /// The line, and the part of the line, of part `index` of a lane.
    pub fn part(&self, lane: u32, index: u32) -> (u32, u32) {
        let (line, depth) = self.origin(index / self.per_lane);
        (line + lane / 4, depth + lane % 4 * self.per_lane + index % self.per_lane)
    }
}

/// The mapping between the registers of a warp and a matrix.
#[derive(Clone, Debug)]
pub(super) struct Fragment {
    element: Element,
    /// Number of registers of a lane. Registers after the last part of the matrix repeat it.
    registers: u32,
    /// Parts of the matrix.
    size: usize,
    /// The position in the matrix for each register, lane, and part of the register, in this order.
    positions: Vec<u16>,
}

impl Fragment {
    /// Creates a mapping: `position` gives the position of a part from its lane and its index.
    pub fn new(element: Element, parts: u32, size: u32, position: impl Fn(u32, u32) -> u32) -> Self {
        let per_register = element.parts();
        let registers = parts / per_register;
        let mut positions = Vec::with_capacity(32 * parts as usize);
        for register in 0..registers {
            for lane in 0..32 {
                let parts = register * per_register..(register + 1) * per_register;
                positions.extend(parts.map(|index| position(lane, index) as u16));
            }
        }
        Self { element, registers, size: size as usize, positions }
    }

    /// Creates the mapping of tiles: `position` gives the position from the line and the depth.
    pub fn tiled(element: Element, tiling: Tiling, position: impl Fn(u32, u32) -> u32) -> Self {
        let (parts, size) = (tiling.tiles() * tiling.per_lane, tiling.lines * tiling.depth);
        Self::new(element, parts, size, |lane, index| {
            let (line, depth) = tiling.part(lane, index);
            position(line, depth)
        })
    }

    /// Repeats the matrix until a lane has `registers` registers.
    pub fn repeated(self, registers: u32) -> Self {
        Self { registers, ..self }
    }

    pub fn element(&self) -> Element {
        self.element
    }

    /// Registers of a lane.
    pub fn registers(&self) -> u32 {
        self.registers
    }

    /// Parts of the matrix.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The position in the matrix of part `index` of a lane.
    #[cfg(test)]
    pub fn position(&self, lane: usize, index: usize) -> usize {
        let parts = self.element.parts() as usize;
        self.positions[(index / parts * 32 + lane) * parts + index % parts].into()
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.element.part_bits())
    }

    /// The positions in the matrix, one slice per register.
    fn by_register(&self) -> std::slice::Chunks<'_, u16> {
        self.positions.chunks(32 * self.element.parts() as usize)
    }

    /// Collects the matrix from the registers, with `convert` applied to each part.
    pub fn gather(&self, registers: &[&Lanes], convert: impl Fn(u64) -> u64) -> Vec<u64> {
        let (parts, bits, mask) = (self.element.parts() as usize, self.element.part_bits(), self.mask());
        let mut matrix = vec![0; self.size];
        for (lanes, positions) in registers.iter().zip(self.by_register()) {
            for (value, positions) in lanes.iter().zip(positions.chunks(parts)) {
                for (part, &position) in (0..).zip(positions) {
                    if let Some(to) = matrix.get_mut(position as usize) {
                        *to = convert(value >> (part * bits) & mask);
                    }
                }
            }
        }
        matrix
    }

    /// Distributes a matrix to the registers.
    pub fn scatter(&self, matrix: &[u64], registers: &mut [Lanes]) {
        let (parts, bits, mask) = (self.element.parts() as usize, self.element.part_bits(), self.mask());
        for (lanes, positions) in registers.iter_mut().zip(self.by_register().cycle()) {
            for (value, positions) in lanes.iter_mut().zip(positions.chunks(parts)) {
                *value = (0..).zip(positions).fold(0, |value, (part, &position)| {
                    value | (matrix.get(position as usize).unwrap_or(&0) & mask) << (part * bits)
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragment_scattered_and_gathered_is_the_same_matrix() {
        for (element, lines, k) in [(Element::F16, 16, 16), (Element::S4, 8, 32), (Element::B1, 16, 256)] {
            let tiling = Tiling::operand(lines, k, element, lines / 8);
            let fragment = Fragment::tiled(element, tiling, |line, depth| line * tiling.depth + depth);
            let matrix: Vec<u64> = (0..fragment.size() as u64).map(|x| (x * 7919) & fragment.mask()).collect();
            let mut registers = vec![[0; 32]; 2 * fragment.registers() as usize];
            fragment.clone().repeated(2 * fragment.registers()).scatter(&matrix, &mut registers);
            let (first, second) = registers.split_at(registers.len() / 2);
            assert_eq!(first, second);
            assert_eq!(fragment.gather(&first.iter().collect::<Vec<_>>(), |bits| bits), matrix);
        }
    }
}
