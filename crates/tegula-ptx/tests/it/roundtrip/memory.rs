//! Random matrices, in the memory of both engines.

use tegula_core::element::Type;
use tegula_core::matrix::{Layout, Shape};
use tegula_interp::Arg;
use tegula_ir::launch::Field;
use tegula_ir::{Axis, ParamId};
use tegula_kernels::plan::{Argument, Launch, Launches};
use tegula_ptx::ast::ScalarType;

/// The splitmix64 generator.
pub struct Random {
    state: u64,
    /// Whether some elements are special numbers.
    specials: bool,
}

/// Infinities, a NaN, zeros, and numbers that are subnormal in the formats of 4 and of 2 bytes.
const SPECIALS: [f64; 8] = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0, -0.0, 1e-40, -1e-7, 1e30];

impl Random {
    pub fn new(seed: u64, specials: bool) -> Self {
        Random { state: seed, specials }
    }

    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// The bits of an element: from −1 up to 1, or any integer.
    pub fn element(&mut self, ty: Type) -> u64 {
        match ty.is_float() {
            true if self.specials && self.below(100) == 0 => ty.round(SPECIALS[self.below(SPECIALS.len())]),
            true => ty.round((self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0),
            false => self.next() & (u64::MAX >> (64 - 8 * ty.size())),
        }
    }
}

/// The PTX type of an element.
pub fn scalar_type(ty: Type) -> ScalarType {
    match ty {
        Type::F64 => ScalarType::F64,
        Type::F32 => ScalarType::F32,
        Type::F16 => ScalarType::F16,
        Type::BF16 => ScalarType::Bf16,
        Type::I64 => ScalarType::S64,
        Type::U64 => ScalarType::U64,
        Type::I32 => ScalarType::S32,
        Type::U32 => ScalarType::U32,
        Type::I8 => ScalarType::S8,
        Type::U8 | Type::Pred => ScalarType::U8,
    }
}

/// The contents of a matrix before the first launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Random elements that kernels only read.
    Input,
    /// Random elements that kernels read and write.
    InOut,
    /// Uninitialized elements.
    Output,
    /// Zeros that kernels read and write.
    Zeros,
}

/// How a matrix is stored: its order, and whether its elements have gaps between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    #[default]
    RowMajor,
    ColMajor,
    /// Row-major, in reverse, with a gap after each element.
    Strided,
}

impl Storage {
    /// The layout, and the number of elements of the memory.
    pub fn layout(self, shape: Shape) -> (Layout, usize) {
        let elements = shape.len().expect("small");
        let row_major = Layout::row_major(shape).expect("small");
        let transposed = Shape { rows: shape.cols, cols: shape.rows, ..shape };
        match self {
            Storage::RowMajor => (row_major, elements),
            Storage::ColMajor => (Layout::row_major(transposed).expect("small").transposed(), elements),
            Storage::Strided => {
                // The engines model addresses from element (0, 0, 0): it begins a line of memory.
                let offset = (2 * elements).next_multiple_of(128);
                let strides = row_major.strides.map(|stride| -2 * stride);
                (Layout { offset, strides, ..row_major }, offset + 1)
            }
        }
    }
}

/// A matrix in the memory of both engines.
pub struct Matrix {
    pub name: String,
    pub interp: tegula_interp::Buffer,
    /// Index of its buffer of the PTX engine.
    pub index: usize,
}

/// The matrices and scalars of the launches of a product.
#[derive(Default)]
pub struct Memory {
    pub matrices: Vec<Matrix>,
    /// The same for the PTX engine.
    pub buffers: Vec<tegula_ptx::Buffer>,
    /// Bits before the first launch.
    before: Vec<Vec<u8>>,
}

impl Memory {
    /// Adds a matrix; returns its index.
    pub fn add(
        &mut self,
        name: &str,
        ty: Type,
        (layout, len): (Layout, usize),
        contents: Contents,
        random: &mut Random,
    ) -> usize {
        let element = |random: &mut Random| match contents {
            Contents::Input | Contents::InOut => random.element(ty),
            Contents::Output | Contents::Zeros => 0,
        };
        let bytes: Vec<u8> = (0..len)
            .flat_map(|_| element(random).to_le_bytes().into_iter().take(ty.size()).collect::<Vec<_>>())
            .collect();
        let interp = match contents {
            Contents::Input => tegula_interp::Buffer::input(ty, &bytes, layout),
            Contents::InOut | Contents::Zeros => tegula_interp::Buffer::in_out(ty, &bytes, layout),
            Contents::Output => tegula_interp::Buffer::output(ty, layout),
        };
        let ptx = tegula_ptx::Buffer::new(name, scalar_type(ty), [len as u64], bytes);
        let ptx = tegula_ptx::Buffer { initialized: contents != Contents::Output, ..ptx };
        let index = self.matrices.len();
        self.before.push(ptx.bytes.clone());
        self.buffers.push(ptx);
        self.matrices.push(Matrix { name: name.into(), interp: interp.expect("valid"), index });
        index
    }

    /// The first difference of the matrices of the two engines, with the bytes between the elements
    /// of
    /// a matrix, which kernels must not write. All NaNs are the same.
    pub fn difference(&self) -> Option<String> {
        self.matrices.iter().zip(&self.before).find_map(|(matrix, before)| {
            let (layout, size) = (matrix.interp.layout(), matrix.interp.ty().size());
            let mut expected = before.clone();
            let Shape { batches, rows, cols } = layout.shape;
            for (batch, row) in (0..batches).flat_map(|batch| (0..rows).map(move |row| (batch, row))) {
                for col in 0..cols {
                    let bits = matrix.interp.bits(batch, row, col).expect("within").to_le_bytes();
                    let at = layout.at(batch, row, col) * size;
                    let found = &self.buffers[matrix.index].bytes[at..at + size];
                    // The interpreter's NaNs have the bits of the host, those of PTX the bits of a
                    // GPU.
                    let both_nan = is_nan(matrix.interp.ty(), &bits[..size]) && is_nan(matrix.interp.ty(), found);
                    expected[at..at + size].copy_from_slice(if both_nan { found } else { &bits[..size] });
                    if found != &expected[at..at + size] {
                        let name = &matrix.name;
                        return Some(format!(
                            "{name}[{batch}, {row}, {col}] is {found:02x?}, where the interpreter has {:02x?}",
                            &bits[..size]
                        ));
                    }
                }
            }
            (expected != self.buffers[matrix.index].bytes)
                .then(|| format!("bytes between the elements of {}", matrix.name))
        })
    }
}

fn is_nan(ty: Type, bytes: &[u8]) -> bool {
    let mut bits = [0; 8];
    bits[..bytes.len()].copy_from_slice(bytes);
    ty.is_float() && ty.to_f64(u64::from_le_bytes(bits)).is_nan()
}

/// An argument of a launch: a matrix by index, or a scalar.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    Matrix(usize),
    Scalar(Type, u64),
}

impl Bound {
    /// The argument of the interpreter.
    pub fn interp<'a>(&self, memory: &'a Memory) -> Arg<'a> {
        match *self {
            Bound::Matrix(index) => Arg::from(&memory.matrices[index].interp),
            Bound::Scalar(ty, bits) => Arg::Scalar { ty, bits },
        }
    }
}

/// The arguments of a kernel in PTX, as the CUDA driver takes them.
pub fn ptx_arguments(fields: &[Field], arguments: &[Bound], memory: &Memory) -> Vec<tegula_ptx::Argument> {
    let matrix = |id: ParamId| match arguments[id.index()] {
        Bound::Matrix(index) => &memory.matrices[index],
        Bound::Scalar(..) => panic!("a scalar for a matrix"),
    };
    let value = |bytes: &[u8]| tegula_ptx::Argument::Value(bytes.to_vec());
    let argument = |field: &Field| match *field {
        Field::Address(id) => {
            let Matrix { interp, index, .. } = matrix(id);
            let offset = interp.layout().offset * interp.ty().size();
            tegula_ptx::Argument::Buffer { index: *index, offset: offset as i64 }
        }
        Field::Extent(id, axis) => {
            value(&(matrix(id).interp.layout().extents()[axis_number(axis)] as u32).to_le_bytes())
        }
        Field::Stride(id, axis) => {
            let interp = &matrix(id).interp;
            let stride = interp.layout().strides[axis_number(axis)] as i64 * interp.ty().size() as i64;
            value(&stride.to_le_bytes())
        }
        Field::Scalar(id, ty) => match arguments[id.index()] {
            Bound::Scalar(_, bits) => value(&bits.to_le_bytes()[..ty.size()]),
            Bound::Matrix(_) => panic!("a matrix for a scalar"),
        },
        Field::Tensor(_) => panic!("a kernel with tensor maps"),
    };
    fields.iter().map(argument).collect()
}

fn axis_number(axis: Axis) -> usize {
    match axis {
        Axis::Batches => 0,
        Axis::Rows => 1,
        Axis::Cols => 2,
    }
}

/// The matrices and scalars of a product: A, B, C, bias, workspaces, alpha and beta.
pub struct Operands {
    pub a: usize,
    pub b: usize,
    pub c: usize,
    pub bias: Option<usize>,
    pub workspaces: Vec<usize>,
    pub alpha: (Type, u64),
    pub beta: (Type, u64),
}

impl Operands {
    /// Adds the workspaces of launches to the memory.
    pub fn add_workspaces(&mut self, launches: &Launches, memory: &mut Memory) {
        for (number, workspace) in launches.workspaces.iter().enumerate() {
            let contents = if workspace.zeroed { Contents::Zeros } else { Contents::Output };
            let len = workspace.layout.shape.len().expect("small");
            let name = format!("workspace{number}");
            self.workspaces.push(memory.add(
                &name,
                workspace.ty,
                (workspace.layout, len),
                contents,
                &mut Random::new(0, false),
            ));
        }
    }

    /// The arguments of a launch.
    pub fn arguments(&self, launch: &Launch) -> Vec<Bound> {
        let resolve = |argument: &Argument| match *argument {
            Argument::A => Bound::Matrix(self.a),
            Argument::B => Bound::Matrix(self.b),
            Argument::C => Bound::Matrix(self.c),
            Argument::Bias => Bound::Matrix(self.bias.expect("a bias")),
            Argument::Workspace(number) => Bound::Matrix(self.workspaces[usize::from(number)]),
            Argument::Alpha => Bound::Scalar(self.alpha.0, self.alpha.1),
            Argument::Beta => Bound::Scalar(self.beta.0, self.beta.1),
            Argument::Number(number) => Bound::Scalar(Type::U32, number.into()),
        };
        launch.arguments.iter().map(resolve).collect()
    }
}
