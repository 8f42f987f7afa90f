//! `wmma`: matrices from memory to fragments, their product, and back.
//!
//! PTX does not specify the mapping of fragments. This is the mapping of sm_80 and sm_90, where the
//! assembler replaces `wmma.mma` by `mma` instructions; `m8n32k16` becomes a transposed product.
//! Memory accesses are also those of the assembled instructions:
//!
//! * Elements of 4 and 8 bytes of a lane that are adjacent in memory are accessed together.
//! * 16-bit elements are accessed in adjacent pairs, and exchanged between lanes if the matrix is
//!   transposed in memory.
//! * 8-bit elements are accessed four at a time, or one by one if the matrix is transposed.
//! * Operands of at most 16 bits in shared memory are loaded as by `ldmatrix`, except 8-bit
//!   elements of a transposed matrix.
//!
//! The accesses of a generic address are those of global memory.

use crate::alu::Lanes;
use crate::ast::StateSpace;

use super::element::Element;
use super::fragment::{Fragment, Tiling};
use super::mma::{Mma, Operand, Registers, Shapes, arithmetic, check_accumulators, check_shape};
use super::modifiers::{Layout, Modifiers};
use super::product::{Arithmetic, Blocks};

const SHAPES: [Shapes; 7] = [
    (&[Element::F16, Element::Bf16, Element::S8, Element::U8], &[[16, 16, 16], [8, 32, 16], [32, 8, 16]]),
    (&[Element::Tf32], &[[16, 16, 8]]),
    (&[Element::F64], &[[8, 8, 4]]),
    (&[Element::S4, Element::U4], &[[8, 8, 32]]),
    (&[Element::B1], &[[8, 8, 128]]),
    // Types of C and D only.
    (&[Element::F32], &[[16, 16, 16], [8, 32, 16], [32, 8, 16], [16, 16, 8]]),
    (&[Element::S32], &[[16, 16, 16], [8, 32, 16], [32, 8, 16], [8, 8, 32], [8, 8, 128]]),
];

/// A matrix of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Matrix {
    A,
    B,
    /// C or D.
    Accumulator,
}

/// A `wmma` instruction.
#[derive(Clone, Debug)]
pub enum Wmma {
    /// `wmma.load`
    Load(WmmaTransfer),
    /// `wmma.store`
    Store(WmmaTransfer),
    /// `wmma.mma`
    Mma(Box<Mma>),
}

impl Wmma {
    /// Decodes `wmma` from its modifiers: what follows the opcode, split at dots.
    ///
    /// # Errors
    /// A message about the unsupported combination of modifiers.
    pub fn decode(modifiers: &[String]) -> Result<Self, String> {
        match modifiers {
            [mma, rest @ ..] if mma == "mma" => decode_mma(rest).map(Box::new).map(Self::Mma),
            [operation, name, rest @ ..] => match (operation.as_str(), name.as_str()) {
                ("load", "a") => WmmaTransfer::decode(Matrix::A, rest).map(Self::Load),
                ("load", "b") => WmmaTransfer::decode(Matrix::B, rest).map(Self::Load),
                ("load", "c") => WmmaTransfer::decode(Matrix::Accumulator, rest).map(Self::Load),
                ("store", "d") => WmmaTransfer::decode(Matrix::Accumulator, rest).map(Self::Store),
                _ => Err(format!(".{operation}.{name} is not supported; use .load.a, .load.b, .load.c or .store.d")),
            },
            _ => Err("the operation is missing: .load, .mma or .store".into()),
        }
    }
}

fn decode_mma(modifiers: &[String]) -> Result<Mma, String> {
    let modifiers = Modifiers::parse(modifiers)?;
    let [d, a, b, c] = match *modifiers.elements.as_slice() {
        [d, c] => [d, Element::F16, Element::F16, c],
        [d, a, b, c] => [d, a, b, c],
        _ => return Err("two or four types are needed, such as .f32.f32 or .s32.s8.s8.s32".into()),
    };
    if a != b {
        return Err(format!("operands .{} and .{} are not supported together", a.name(), b.name()));
    }
    check_shape(&SHAPES, modifiers.shape, a, b)?;
    check_accumulators(a, c, d)?;
    let &[of_a, of_b] = modifiers.layouts.as_slice() else {
        return Err("the layouts of A and B are missing, such as .row.col".into());
    };
    check_layout(Matrix::A, a, of_a)?;
    check_layout(Matrix::B, b, of_b)?;
    let arithmetic = match arithmetic(&modifiers, a, [c, d])? {
        // The assembler uses the instruction with k = 4.
        Arithmetic::Blocks(blocks) if a == Element::Tf32 => Arithmetic::Blocks(Blocks { k: 4, ..blocks }),
        arithmetic => arithmetic,
    };
    let fragment = |matrix, element| repeated(operand(matrix, modifiers.shape, element).fragment(), matrix);
    let [a, b] = [fragment(Matrix::A, a), fragment(Matrix::B, b)];
    let [c, d] = [c, d].map(|element| fragment(Matrix::Accumulator, element));
    Ok(Mma::new(arithmetic, modifiers.shape, [a, b, c, d]))
}

/// Checks that a layout exists: elements of fewer than 8 bits are contiguous along k.
fn check_layout(matrix: Matrix, element: Element, layout: Layout) -> Result<(), String> {
    let (along_k, name) = if matrix == Matrix::A { (Layout::Row, "row") } else { (Layout::Col, "col") };
    if element.bits() < 8 && layout != along_k {
        return Err(format!("{matrix:?} of .{} must be .{name}", element.name()));
    }
    Ok(())
}

/// The operand of the `mma` instructions that replace `wmma.mma`.
fn operand(matrix: Matrix, [m, n, k]: [u32; 3], element: Element) -> Operand {
    // The first operand of `mma` has 16 lines: A of `wmma`, or B if n is 32 (transposed product).
    let transposed = n == 32;
    let (lines, is_first) = match matrix {
        Matrix::A => (m, !transposed),
        Matrix::B => (n, transposed),
        Matrix::Accumulator => return Operand::Accumulator { element, rows: m, cols: n, transposed },
    };
    Operand::Multiplicand { element, lines, k, halves: if is_first { (lines / 8).min(2) } else { 1 } }
}

/// A and B of f16 always have 8 registers. Registers after the last part of the matrix repeat it.
fn repeated(fragment: Fragment, matrix: Matrix) -> Fragment {
    match (fragment.element(), matrix) {
        (Element::F16, Matrix::A | Matrix::B) => fragment.repeated(8),
        _ => fragment,
    }
}

/// `wmma.load` or `wmma.store`: a matrix in memory and its fragment.
///
/// The stride is the distance in elements between rows of a row-major matrix, or between columns
/// of a column-major matrix.
#[derive(Clone, Debug)]
pub struct WmmaTransfer {
    space: Option<StateSpace>,
    element: Element,
    tiling: Tiling,
    fragment: Fragment,
    /// Whether the parts of a line are adjacent in memory.
    along_depth: bool,
    accesses: Vec<Access>,
}

impl WmmaTransfer {
    fn decode(matrix: Matrix, modifiers: &[String]) -> Result<Self, String> {
        let modifiers = Modifiers::parse(modifiers)?;
        let (&[element], &[layout]) = (modifiers.elements.as_slice(), modifiers.layouts.as_slice()) else {
            return Err("one type and one layout are needed, such as .row and .f16".into());
        };
        check_shape(&SHAPES, modifiers.shape, element, element)?;
        let only_accumulates = matches!(element, Element::F32 | Element::S32);
        let is_accumulator = matrix == Matrix::Accumulator;
        if only_accumulates != is_accumulator && !matches!(element, Element::F16 | Element::F64) {
            let what = if is_accumulator { "C and D" } else { "A and B" };
            return Err(format!("{what} of .{} are not supported", element.name()));
        }
        check_layout(matrix, element, layout)?;
        let operand = operand(matrix, modifiers.shape, element);
        let tiling = operand.tiling();
        let along_depth = match operand {
            _ if matrix == Matrix::B => layout == Layout::Col,
            Operand::Accumulator { transposed: true, .. } => layout == Layout::Col,
            _ => layout == Layout::Row,
        };
        let fragment = Fragment::tiled(element, tiling, |line, depth| line * tiling.depth + depth);
        let fragment = repeated(fragment, matrix);
        let shared = modifiers.space == Some(StateSpace::Shared);
        let as_rows = shared && !is_accumulator && element.bits() <= 16 && (along_depth || element.bits() == 16);
        let accesses = accesses(element, tiling, along_depth, as_rows);
        Ok(Self { space: modifiers.space, element, tiling, fragment, along_depth, accesses })
    }

    /// The space of its address; `None` if it is generic.
    pub fn space(&self) -> Option<StateSpace> {
        self.space
    }

    /// The registers of the fragment.
    pub fn registers(&self) -> Registers {
        Registers { count: self.fragment.registers(), ty: self.element.register() }
    }

    /// The stride of an instruction without a stride operand, in elements.
    pub fn default_stride(&self) -> u32 {
        let depth = self.tiling.depth * self.element.per_part();
        if self.along_depth { depth } else { self.tiling.lines }
    }

    /// Required alignment of each row or column, in bytes: the size of a lane's fragment.
    pub fn alignment(&self) -> u32 {
        self.registers().count * self.element.register().size()
    }

    /// The accesses to memory, in order.
    pub fn accesses(&self) -> &[Access] {
        &self.accesses
    }

    /// The parts of all words, in the order of the accesses, with their positions in the matrix.
    fn positions(&self) -> impl Iterator<Item = (usize, u32, usize, usize)> {
        let counts = self.accesses.iter().map(|access| access.words);
        let first_words = counts.scan(0, |next, words| Some(std::mem::replace(next, *next + words as usize)));
        self.accesses.iter().zip(first_words).flat_map(move |(access, first)| {
            let parts = access.word_bytes * 8 / self.element.part_bits();
            (0..access.words * parts).flat_map(move |part| {
                let word = first + (part / parts) as usize;
                access.lanes().map(move |lane| {
                    let (major, minor) = access.starts[lane];
                    let minor = minor + part;
                    let (line, depth) = if self.along_depth { (major, minor) } else { (minor, major) };
                    let shift = part % parts * self.element.part_bits();
                    (word, shift, lane, (line * self.tiling.depth + depth) as usize)
                })
            })
        })
    }

    /// Computes the fragment from the loaded words, in the order of the accesses.
    pub fn load(&self, words: &[Lanes], registers: &mut [Lanes]) {
        let mut matrix = vec![0; self.fragment.size()];
        for (word, shift, lane, position) in self.positions() {
            if let (Some(word), Some(to)) = (words.get(word), matrix.get_mut(position)) {
                *to = word[lane] >> shift;
            }
        }
        self.fragment.scatter(&matrix, registers);
    }

    /// Computes the words to store, in the order of the accesses.
    pub fn store(&self, registers: &[&Lanes]) -> Vec<Lanes> {
        let matrix = self.fragment.gather(registers, |bits| bits);
        let count: u32 = self.accesses.iter().map(|access| access.words).sum();
        let mut words = vec![[0; 32]; count as usize];
        for (word, shift, lane, position) in self.positions() {
            if let (Some(word), Some(part)) = (words.get_mut(word), matrix.get(position)) {
                word[lane] |= part << shift;
            }
        }
        words
    }
}

/// One access to memory by the lanes of the warp.
#[derive(Clone, Debug)]
pub struct Access {
    /// Bytes of a word: 1, 4 or 8.
    pub word_bytes: u32,
    /// Number of consecutive words per lane.
    pub words: u32,
    /// Whether 8 lanes with 16 bytes each are accessed at a time, as by `ldmatrix`.
    pub as_ldmatrix: bool,
    /// Number of participating lanes, from lane 0.
    count: usize,
    element: Element,
    /// Row and column (or column and row) of the first part of each lane.
    starts: [(u32, u32); 32],
}

impl Access {
    /// Mask of the lanes that access memory.
    pub fn mask(&self) -> u32 {
        u32::MAX >> (32 - self.count)
    }

    fn lanes(&self) -> std::ops::Range<usize> {
        0..self.count
    }

    /// Offset of each lane from the address, in bytes. Lanes outside of the mask have offset 0.
    pub fn offsets(&self, stride: u32) -> [u64; 32] {
        self.starts.map(|(major, minor)| {
            let row = u64::from(major) * u64::from(stride) * u64::from(self.element.bits()) / 8;
            row + u64::from(minor * self.element.part_bits() / 8)
        })
    }
}

/// The accesses to all tiles, in the order of the registers.
fn accesses(element: Element, tiling: Tiling, along_depth: bool, as_rows: bool) -> Vec<Access> {
    let in_memory = |(line, depth)| if along_depth { (line, depth) } else { (depth, line) };
    if as_rows {
        // An `ldmatrix` loads at most four tiles, all in one group.
        let columns = tiling.depth / tiling.width();
        let group = (2 * columns).min(tiling.tiles());
        return (0..tiling.tiles())
            .step_by(group as usize)
            .map(|first| {
                let mut starts = [(0, 0); 32];
                for (at, start) in (0..8 * group).zip(&mut starts) {
                    let (major, minor) = in_memory(tiling.origin(first + at / 8));
                    *start = (major + at % 8, minor);
                }
                Access { word_bytes: 4, words: 4, as_ldmatrix: true, count: 8 * group as usize, element, starts }
            })
            .collect();
    }
    // The accesses of a tile: words per lane, bytes of a word, and the first part of each lane.
    let per_lane = tiling.per_lane;
    let access =
        |words, word_bytes, starts| Access { word_bytes, words, as_ldmatrix: false, count: 32, element, starts };
    let lanes = |start: &dyn Fn(u32) -> (u32, u32)| std::array::from_fn(|lane| start(lane as u32));
    (0..tiling.tiles())
        .flat_map(|tile| {
            let first = tile * per_lane;
            match (along_depth, element.part_bits()) {
                // One access for all parts of a lane.
                (true, bits) => {
                    let starts = lanes(&|lane| in_memory(tiling.part(lane, first)));
                    let (bytes, word_bytes) = (per_lane * bits / 8, (bits / 8).max(4));
                    vec![access(bytes / word_bytes, word_bytes, starts)]
                }
                // Adjacent 16-bit elements are of two lines: they are exchanged after the access.
                (false, 16) => {
                    let (line, depth) = tiling.origin(tile);
                    vec![access(1, 4, lanes(&|lane| (depth + lane / 4, line + 2 * (lane % 4))))]
                }
                // One access per part.
                (false, bits) => (first..first + per_lane)
                    .map(|part| access(1, bits / 8, lanes(&|lane| in_memory(tiling.part(lane, part)))))
                    .collect(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
