//! `ldmatrix`, `stmatrix` and `movmatrix`: 8×8 matrices of 16-bit elements.
//!
//! In shared memory, a matrix is 8 rows of 16 bytes. Each lane provides the address of one row:
//! lanes 0–7 for the first matrix, lanes 8–15 for the second one, and so on. In registers, four
//! lanes hold a row, with two adjacent elements each.

use crate::alu::Lanes;
use crate::ast::StateSpace;

/// 32-bit words of a row.
const WORDS: usize = 4;

/// The modifiers of `ldmatrix` and `stmatrix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rows {
    matrices: u32,
    transposed: bool,
    space: Option<StateSpace>,
}

impl Rows {
    fn decode(modifiers: &[String]) -> Result<Self, String> {
        let mut rows = Rows { matrices: 0, transposed: false, space: None };
        let mut required = ["sync", "m8n8", "b16"].map(|name| (name, false));
        for name in modifiers.iter().map(String::as_str) {
            match name {
                "aligned" => {}
                "trans" => rows.transposed = true,
                "x1" => rows.matrices = 1,
                "x2" => rows.matrices = 2,
                "x4" => rows.matrices = 4,
                "shared" | "shared::cta" => rows.space = Some(StateSpace::Shared),
                _ => match required.iter_mut().find(|known| known.0 == name) {
                    Some(found) => found.1 = true,
                    None => return Err(format!(".{name} is not supported; use .m8n8 and .b16")),
                },
            }
        }
        match required.iter().find(|(_, found)| !found) {
            Some((name, _)) => Err(format!(".{name} is missing")),
            None if rows.matrices == 0 => Err("the number of matrices is missing: .x1, .x2 or .x4".into()),
            None => Ok(rows),
        }
    }

    fn address_lanes(&self) -> u32 {
        u32::MAX >> (32 - 8 * self.matrices)
    }
}

/// The rows of one 8×8 matrix of 16-bit elements.
type Matrix = [[u16; 8]; 8];

/// The elements of each lane: the low and the high half of its register.
fn positions(transposed: bool) -> impl Iterator<Item = [(usize, usize); 2]> {
    (0..32).map(move |lane| {
        let (line, at) = (lane / 4, 2 * (lane % 4));
        if transposed { [(at, line), (at + 1, line)] } else { [(line, at), (line, at + 1)] }
    })
}

/// Distributes a matrix to the lanes of a register.
fn to_register(matrix: &Matrix, transposed: bool, register: &mut Lanes) {
    for (value, [low, high]) in register.iter_mut().zip(positions(transposed)) {
        *value = u64::from(matrix[low.0][low.1]) | u64::from(matrix[high.0][high.1]) << 16;
    }
}

/// Collects a matrix from the lanes of a register.
fn from_register(register: &Lanes, transposed: bool) -> Matrix {
    let mut matrix = [[0; 8]; 8];
    for (value, [low, high]) in register.iter().zip(positions(transposed)) {
        matrix[low.0][low.1] = *value as u16;
        matrix[high.0][high.1] = (*value >> 16) as u16;
    }
    matrix
}

macro_rules! rows_instruction {
    ($name:ident, $what:literal) => {
        #[doc = concat!($what, " 8×8 matrices of 16-bit elements.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(Rows);

        impl $name {
            /// Decodes the instruction from its modifiers: what follows the opcode, split at dots.
            ///
            /// # Errors
            /// The modifier that is missing or not supported.
            pub fn decode(modifiers: &[String]) -> Result<Self, String> {
                Rows::decode(modifiers).map(Self)
            }

            /// Number of `b32` registers: one for each matrix.
            pub fn registers(&self) -> u32 {
                self.0.matrices
            }

            /// The space of its address; `None` if it is generic.
            pub fn space(&self) -> Option<StateSpace> {
                self.0.space
            }

            /// Mask of the lanes that provide the address of a row, of 16 bytes.
            ///
            /// The hardware accesses one matrix after the other, that is 8 lanes at a time.
            pub fn address_lanes(&self) -> u32 {
                self.0.address_lanes()
            }
        }
    };
}

rows_instruction!(LdMatrix, "`ldmatrix`: loads");
rows_instruction!(StMatrix, "`stmatrix`: stores");

impl LdMatrix {
    /// Computes the registers from the rows: `rows[w]` is word `w` of the row of each lane.
    pub fn load(&self, rows: &[Lanes; WORDS], registers: &mut [Lanes]) {
        for (first, register) in (0..32).step_by(8).zip(registers) {
            let matrix = std::array::from_fn(|row| {
                std::array::from_fn(|col| (rows[col / 2][first + row] >> (16 * (col % 2))) as u16)
            });
            to_register(&matrix, self.0.transposed, register);
        }
    }
}

impl StMatrix {
    /// Computes the rows: element `w` of the result is word `w` of the row of each lane.
    pub fn store(&self, registers: &[&Lanes]) -> [Lanes; WORDS] {
        let mut rows = [[0; 32]; WORDS];
        for (first, register) in (0..32).step_by(8).zip(registers) {
            let matrix = from_register(register, self.0.transposed);
            for (row, elements) in matrix.iter().enumerate() {
                for (rows, pair) in rows.iter_mut().zip(elements.chunks(2)) {
                    rows[first + row] = u64::from(pair[0]) | u64::from(pair[1]) << 16;
                }
            }
        }
        rows
    }
}

/// Checks the modifiers of `movmatrix`: what follows the opcode, split at dots.
///
/// # Errors
/// The modifier that is missing or not supported.
pub fn decode_movmatrix(modifiers: &[String]) -> Result<(), String> {
    let required = ["sync", "m8n8", "trans", "b16"];
    let missing = required.iter().find(|&&name| modifiers.iter().all(|known| known != name));
    let unknown = modifiers.iter().find(|name| *name != "aligned" && !required.contains(&name.as_str()));
    match (unknown, missing) {
        (Some(name), _) => Err(format!(".{name} is not supported; use .trans, .m8n8 and .b16")),
        (None, Some(name)) => Err(format!(".{name} is missing")),
        (None, None) => Ok(()),
    }
}

/// `movmatrix`: transposes an 8×8 matrix of 16-bit elements.
pub fn movmatrix(register: &Lanes) -> Lanes {
    let mut transposed = [0; 32];
    to_register(&from_register(register, false), true, &mut transposed);
    transposed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split('.').map(String::from).collect()
    }

    /// Distinct values in the rows of all lanes.
    fn rows() -> [Lanes; WORDS] {
        std::array::from_fn(|w| {
            std::array::from_fn(|lane| {
                let first = 8 * lane as u64 + 2 * w as u64;
                first | (first + 1) << 16
            })
        })
    }

    /// Figures "ldmatrix fragment layout" of the PTX ISA: element (row, col) of matrix m has the
    /// value 64·m + 8·row + col.
    #[test]
    fn ldmatrix_gives_each_lane_two_neighbors_of_its_row() {
        for (text, count) in [("x1", 1), ("x2", 2), ("x4", 4)] {
            for trans in ["", ".trans"] {
                let load = LdMatrix::decode(&words(&format!("sync.aligned.m8n8.{text}{trans}.shared.b16"))).unwrap();
                assert_eq!((load.registers(), load.address_lanes().count_ones()), (count, 8 * count));
                let mut registers = vec![[0; 32]; count as usize];
                load.load(&rows(), &mut registers);
                for (m, register) in (0..).zip(registers) {
                    for (lane, value) in (0..).zip(register) {
                        let (g, t) = (lane >> 2, lane % 4);
                        let element = |row: u64, col: u64| 64 * m + 8 * row + col;
                        let [low, high] = match trans {
                            "" => [element(g, 2 * t), element(g, 2 * t + 1)],
                            _ => [element(2 * t, g), element(2 * t + 1, g)],
                        };
                        assert_eq!([value & 0xffff, value >> 16], [low, high]);
                    }
                }
            }
        }
    }

    #[test]
    fn ldmatrix_then_stmatrix_restores_the_rows() {
        for trans in ["", ".trans"] {
            let modifiers = words(&format!("sync.aligned.m8n8.x4{trans}.shared::cta.b16"));
            let (load, store) = (LdMatrix::decode(&modifiers).unwrap(), StMatrix::decode(&modifiers).unwrap());
            let mut registers = [[0; 32]; 4];
            load.load(&rows(), &mut registers);
            assert_eq!(store.store(&registers.each_ref()), rows());
        }
    }

    #[test]
    fn transposing_twice_is_the_identity() {
        let [plain, transposed] =
            ["", ".trans"].map(|trans| LdMatrix::decode(&words(&format!("sync.aligned.m8n8.x1{trans}.b16"))).unwrap());
        let (mut a, mut b) = ([[0; 32]], [[0; 32]]);
        plain.load(&rows(), &mut a);
        transposed.load(&rows(), &mut b);
        assert_ne!(a, b);
        assert_eq!(movmatrix(&a[0]), b[0]);
        assert_eq!(movmatrix(&movmatrix(&a[0])), a[0]);
    }

    #[test]
    fn forms_of_later_architectures_are_named() {
        for (text, name) in [
            ("sync.aligned.m16n16.x1.trans.shared.b8", "m16n16"),
            ("sync.aligned.m8n16.x1.shared.b8x16.b6x16_p32", "m8n16"),
            ("sync.aligned.m8n8.x8.shared.b16", "x8"),
            ("sync.aligned.m8n8.shared.b16", "x1"),
            ("sync.aligned.m8n8.x1.shared", "b16"),
        ] {
            assert!(LdMatrix::decode(&words(text)).unwrap_err().contains(name), "{text}");
        }
        assert!(StMatrix::decode(&words("sync.aligned.m16n8.x1.trans.shared.b8")).is_err());
        assert_eq!(decode_movmatrix(&words("sync.aligned.m8n8.trans.b16")), Ok(()));
        assert!(decode_movmatrix(&words("sync.aligned.m8n8.b16")).unwrap_err().contains("trans"));
    }
}
