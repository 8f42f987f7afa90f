//! cublasLt, to measure against: every candidate that its heuristic knows for a product, each to be run by itself.
//!
//! The library is looked for when it is asked for and never needed. It thinks in columns: a row-major C = A·B is what it calls
//! Cᵀ = Bᵀ·Aᵀ, so what it is given as its first matrix is B, and its bias, which it adds to every column, is a row.

mod ffi;

use std::ffi::c_void;
use std::ptr::{from_mut, from_ref, null_mut};

use ffi::{Algorithm, Functions, Heuristic, Status};
use tegula::cuda::{Buffer, Gpu};
use tegula::element::{Accuracy, Element, Scalar, Type};
use tegula::epilogue::{Activation, Finish};
use tegula::error::{Error, Result};
use tegula::matrix::{DeviceMemory, Layout, Memory, MemoryMut, View, ViewMut};

use crate::repeat::{Operands, alignment};

/// Bytes of memory that a candidate may use besides the matrices.
const WORKSPACE: usize = 256 << 20;
/// Candidates that are asked for.
const MOST: i32 = 64;

/// The library, on one GPU.
#[derive(Debug)]
pub struct CublasLt {
    gpu: Gpu,
    handle: Owned,
    workspace: Buffer<u8>,
}

impl CublasLt {
    /// Opens the library for the stream of this handle.
    ///
    /// # Errors
    /// [`Error::NoPeer`] where it is not here, [`Error::Peer`] where it does not start, [`Error::OutOfMemory`].
    pub fn open(gpu: &Gpu) -> Result<Self> {
        let functions = functions()?;
        gpu.bind()?;
        // SAFETY: the context is current, and the library stores a handle.
        let handle =
            Owned::new(functions, functions.destroy, "cublasLtCreate", |handle| unsafe { (functions.create)(handle) })?;
        Ok(CublasLt { gpu: gpu.clone(), handle, workspace: Buffer::uninit(gpu, WORKSPACE)? })
    }

    /// `13.1.0`.
    pub fn version(&self) -> String {
        // SAFETY: the function takes nothing and gives a number.
        ffi::version_text(unsafe { (self.handle.functions.version)() })
    }

    /// All candidates for the product of these operands, of that accuracy and with that activation; none where the library has no such
    /// product.
    ///
    /// # Errors
    /// [`Error::Peer`] where the library fails otherwise.
    pub fn products<'l, T: Element>(
        &'l self,
        operands: &'l Operands<T>,
        accuracy: Accuracy,
        activation: Activation,
    ) -> Result<Products<'l>> {
        self.gpu.same_context(operands.gpu().context(), "the operands")?;
        let last = Last::of(Finish { bias: operands.bias(), activation }, T::TYPE);
        let (Some(types), Some(last)) = (Types::of(T::TYPE, accuracy), last) else { return Ok(Products::none()) };
        let given = Given { layouts: operands.layouts(), alignments: operands.alignments() };
        let Some(described) = Described::new(self.handle.functions, types, &given.layouts, last)? else {
            return Ok(Products::none());
        };
        let algorithms = self.candidates(&described, given.alignments)?;
        tracing::debug!(candidates = algorithms.len(), "cublasLt");
        Ok(Products(Some(Found { lt: self, ty: T::TYPE, given, described, algorithms })))
    }

    fn candidates(&self, described: &Described, [a, b, c]: [u32; 3]) -> Result<Vec<Algorithm>> {
        let functions = self.handle.functions;
        self.gpu.bind()?;
        let preference = described.preference([b, a, c, c])?;
        let mut found = [Heuristic::default(); MOST as usize];
        let mut count = 0;
        let Described { product, a, b, c } = described;
        // SAFETY: all are alive and of the kinds that the function takes, and there is room for as many results as are asked for.
        let status = unsafe {
            (functions.heuristics)(
                self.handle.raw,
                product.raw,
                b.raw,
                a.raw,
                c.raw,
                c.raw,
                preference.raw,
                MOST,
                found.as_mut_ptr(),
                &mut count,
            )
        };
        if status == ffi::NOT_SUPPORTED {
            return Ok(Vec::new());
        }
        functions.check("cublasLtMatmulAlgoGetHeuristic", status)?;
        let found = found.iter().take(usize::try_from(count).unwrap_or(0));
        let usable = found.filter(|one| one.state == ffi::SUCCESS && one.workspace <= WORKSPACE);
        Ok(usable.map(|one| one.algorithm).collect())
    }
}

/// The candidates for one product. They know where its bias lies, so they do not outlive it.
#[derive(Debug)]
pub struct Products<'l>(Option<Found<'l>>);

#[derive(Debug)]
struct Found<'l> {
    lt: &'l CublasLt,
    ty: Type,
    given: Given,
    described: Described,
    algorithms: Vec<Algorithm>,
}

/// The operands that candidates were asked for.
#[derive(Clone, Copy, Debug)]
struct Given {
    layouts: [Layout; 3],
    alignments: [u32; 3],
}

impl Products<'_> {
    /// No candidate.
    pub const fn none() -> Self {
        Products(None)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |found| found.algorithms.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a candidate is called: `cublasLt 13.1.0 algorithm 66, tile 18, stages 20, cluster 3, split-k 1`, by the numbers of its header.
    pub fn name(&self, which: usize) -> String {
        let Some((found, algorithm)) = self.get(which) else { return "none".into() };
        let number = |(attribute, bytes)| {
            let (mut value, mut written) = (0i32, 0);
            // SAFETY: the algorithm is one that the library gave, and there is room for the number it stores.
            let status = unsafe {
                let functions = found.lt.handle.functions;
                (functions.config)(algorithm, attribute, from_mut(&mut value).cast(), bytes, &mut written)
            };
            if status == ffi::SUCCESS { value.to_string() } else { "?".into() }
        };
        let [id, tile, stages] = [ffi::config::ID, ffi::config::TILE, ffi::config::STAGES].map(number);
        let [cluster, split] = [ffi::config::CLUSTER, ffi::config::SPLIT_K].map(number);
        let version = found.lt.version();
        format!("cublasLt {version} algorithm {id}, tile {tile}, stages {stages}, cluster {cluster}, split-k {split}")
    }

    fn get(&self, which: usize) -> Option<(&Found<'_>, &Algorithm)> {
        let found = self.0.as_ref()?;
        Some((found, found.algorithms.get(which)?))
    }

    /// Queues C = act(alpha·A·B + beta·C + bias) by one of the candidates.
    ///
    /// # Errors
    /// [`Error::Layout`] for operands that are not as those that the candidates were asked for; [`Error::Elsewhere`]; what the library
    /// says.
    pub fn queue<T: Element>(
        &self,
        which: usize,
        alpha: T::Acc,
        [a, b]: [View<'_, T>; 2],
        beta: T::Acc,
        c: ViewMut<'_, T::Out>,
    ) -> Result<()> {
        let other = || Error::Layout("this candidate was chosen for other operands".into());
        let (found, algorithm) = self.get(which).ok_or_else(other)?;
        let layouts = [a.layout(), b.layout(), c.layout()];
        let MemoryMut::Device(c) = c.into_memory() else { return Err(other()) };
        let (Memory::Device(a), Memory::Device(b)) = (a.memory(), b.memory()) else { return Err(other()) };
        let memory = [a, b, c];
        let addresses: [u64; 3] =
            std::array::from_fn(|i| address(memory[i], layouts[i], [T::TYPE, T::TYPE, out::<T>()][i]));
        let aligned = addresses.iter().zip(found.given.alignments).all(|(&at, least)| alignment(at) >= least);
        if found.ty != T::TYPE || layouts != found.given.layouts || !aligned {
            return Err(other());
        }
        found.lt.gpu.ordered(&memory, || found.queue(algorithm, [scalar(&alpha), scalar(&beta)], addresses))
    }
}

impl Found<'_> {
    fn queue(&self, algorithm: &Algorithm, [alpha, beta]: [*const c_void; 2], [a, b, c]: [u64; 3]) -> Result<()> {
        let (lt, described) = (self.lt, &self.described);
        let functions = lt.handle.functions;
        lt.gpu.bind()?;
        // SAFETY: the addresses are those of matrices with the layouts and alignments that the algorithm was found for, alive and in
        // this context, as is the bias, which is borrowed with the candidates; alpha and beta are of the type that was said, and read before the call returns; the workspace is this stream's
        // alone.
        let status = unsafe {
            (functions.matmul)(
                lt.handle.raw,
                described.product.raw,
                alpha,
                b,
                described.b.raw,
                a,
                described.a.raw,
                beta,
                c,
                described.c.raw,
                c,
                described.c.raw,
                algorithm,
                lt.workspace.address(),
                WORKSPACE,
                lt.gpu.raw_stream().cast(),
            )
        };
        functions.check("cublasLtMatmul", status)
    }
}

fn out<T: Element>() -> Type {
    <T::Out as Scalar>::TYPE
}

fn scalar<S: Scalar>(value: &S) -> *const c_void {
    from_ref(value).cast()
}

/// The address of element (0, 0, 0).
fn address(memory: DeviceMemory<'_>, layout: Layout, ty: Type) -> u64 {
    memory.address() + (layout.offset * ty.size()) as u64
}

fn functions() -> Result<&'static Functions> {
    let advice = "install the CUDA toolkit, name the library in TEGULA_CUBLASLT, or leave out --vs";
    ffi::functions().map_err(|why| Error::NoPeer { library: "cublasLt", why, advice })
}

impl Functions {
    fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == ffi::SUCCESS { Ok(()) } else { Err(Error::Peer { call, status: self.name_of(status) }) }
    }
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Functions")
    }
}

/// Something that the library made, given back when dropped.
#[derive(Debug)]
struct Owned {
    functions: &'static Functions,
    raw: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void) -> Status,
}

impl Owned {
    fn new(
        functions: &'static Functions,
        destroy: unsafe extern "C" fn(*mut c_void) -> Status,
        call: &'static str,
        make: impl FnOnce(*mut *mut c_void) -> Status,
    ) -> Result<Self> {
        let mut raw = null_mut();
        functions.check(call, make(&mut raw))?;
        Ok(Owned { functions, raw, destroy })
    }

    /// Sets an attribute by the function for this kind of thing.
    fn set<V>(
        &self,
        set: unsafe extern "C" fn(*mut c_void, i32, *const c_void, usize) -> Status,
        attribute: i32,
        value: V,
    ) -> Result<()> {
        // SAFETY: the library copies as many bytes as it is told there are, and refuses another number than the attribute has.
        let status = unsafe { set(self.raw, attribute, from_ref(&value).cast(), size_of::<V>()) };
        self.functions.check("a SetAttribute of cublasLt", status)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it is ours and given back once, to the function that belongs to it. Nothing follows from a failure.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}

/// The library's names of the types of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Types {
    input: i32,
    output: i32,
    compute: i32,
    scale: i32,
}

impl Types {
    /// `None` where the library multiplies no such type.
    fn of(ty: Type, accuracy: Accuracy) -> Option<Types> {
        use ffi::{compute, data};
        let types = |input, output, compute, scale| Some(Types { input, output, compute, scale });
        match ty {
            Type::F64 => types(data::R_64F, data::R_64F, compute::F64, data::R_64F),
            Type::F32 => {
                let compute = if accuracy == Accuracy::Tf32 { compute::F32_BY_TF32 } else { compute::F32 };
                types(data::R_32F, data::R_32F, compute, data::R_32F)
            }
            Type::F16 => types(data::R_16F, data::R_16F, compute::F32, data::R_32F),
            Type::BF16 => types(data::R_16BF, data::R_16BF, compute::F32, data::R_32F),
            Type::I8 => types(data::R_8I, data::R_32I, compute::I32, data::R_32I),
            _ => None,
        }
    }
}

/// What is done last, in the library's words: a function, and where the bias lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Last {
    epilogue: u32,
    bias: Option<u64>,
}

impl Last {
    /// `None` where the library has no such thing: it has no SiLU, no bias for every row, and all this only for sums in f32.
    fn of<S: Scalar>(finish: Finish<'_, S>, ty: Type) -> Option<Last> {
        use ffi::epilogue;
        let activation = match finish.activation {
            Activation::None => 0,
            Activation::Relu => epilogue::RELU,
            Activation::Gelu => epilogue::GELU,
            Activation::Silu => return None,
        };
        let bias = match finish.bias {
            None => None,
            Some(bias) => match (bias.memory(), bias.layout()) {
                (Memory::Device(memory), layout) if layout.shape.rows == 1 && layout.strides[2] == 1 => {
                    Some(address(memory, layout, S::TYPE))
                }
                _ => return None,
            },
        };
        let words = activation | if bias.is_some() { epilogue::BIAS } else { 0 };
        match (words, ty) {
            (0, _) => Some(Last { epilogue: epilogue::NONE, bias }),
            (_, Type::F32 | Type::F16 | Type::BF16) => Some(Last { epilogue: words, bias }),
            _ => None,
        }
    }
}

/// How a matrix of ours looks to the library, which takes rows for columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    rows: u64,
    cols: u64,
    leading: i64,
    transposed: bool,
    batches: i32,
    stride: i64,
}

impl Seen {
    /// `None` for strides that it cannot say.
    fn of(layout: &Layout) -> Option<Seen> {
        let [batch, row, col] = layout.strides;
        let (rows, cols) = (layout.shape.rows, layout.shape.cols);
        // Its columns are what lies together: our rows, or of a transposed matrix our columns.
        let (together, apart, leading, transposed) = match (row, col) {
            (row, 1) => (cols, rows, row, false),
            (1, col) => (rows, cols, col, true),
            _ => return None,
        };
        let batches = i32::try_from(layout.shape.batches).ok()?;
        // Of a single column it does not matter how far the next would be.
        let leading = if apart == 1 { leading.max(together as isize) } else { leading };
        let leading = i64::try_from(leading).ok().filter(|leading| *leading >= together as i64)?;
        let stride = i64::try_from(batch).ok()?;
        Some(Seen { rows: together as u64, cols: apart as u64, leading, transposed, batches, stride })
    }
}

/// A product in the library's words.
#[derive(Debug)]
struct Described {
    product: Owned,
    a: Owned,
    b: Owned,
    c: Owned,
}

impl Described {
    /// `None` where the library has no words for it.
    fn new(functions: &'static Functions, types: Types, [a, b, c]: &[Layout; 3], last: Last) -> Result<Option<Self>> {
        let (Some(a), Some(b), Some(c)) = (Seen::of(a), Seen::of(b), Seen::of(c).filter(|c| !c.transposed)) else {
            return Ok(None);
        };
        // SAFETY: the library stores what it makes.
        let product = Owned::new(functions, functions.product_destroy, "cublasLtMatmulDescCreate", |made| unsafe {
            (functions.product)(made, types.compute, types.scale)
        })?;
        let operation = |transposed| match transposed {
            true => ffi::operation::TRANSPOSED,
            false => ffi::operation::AS_STORED,
        };
        product.set(functions.product_set, ffi::product::TRANSPOSE_A, operation(b.transposed))?;
        product.set(functions.product_set, ffi::product::TRANSPOSE_B, operation(a.transposed))?;
        product.set(functions.product_set, ffi::product::EPILOGUE, last.epilogue)?;
        if let Some(bias) = last.bias {
            product.set(functions.product_set, ffi::product::BIAS, bias)?;
        }
        let matrix = |seen: Seen, ty| -> Result<Owned> {
            let Seen { rows, cols, leading, batches, stride, .. } = seen;
            // SAFETY: as above.
            let layout =
                Owned::new(functions, functions.layout_destroy, "cublasLtMatrixLayoutCreate", |made| unsafe {
                    (functions.layout)(made, ty, rows, cols, leading)
                })?;
            layout.set(functions.layout_set, ffi::layout::BATCH_COUNT, batches)?;
            layout.set(functions.layout_set, ffi::layout::BATCH_STRIDE, stride)?;
            Ok(layout)
        };
        Ok(Some(Described {
            product,
            a: matrix(a, types.input)?,
            b: matrix(b, types.input)?,
            c: matrix(c, types.output)?,
        }))
    }

    /// What candidates may use, and the alignments of its A, B, C and D.
    fn preference(&self, alignments: [u32; 4]) -> Result<Owned> {
        let functions = self.product.functions;
        // SAFETY: the library stores what it makes.
        let made =
            Owned::new(functions, functions.preference_destroy, "cublasLtMatmulPreferenceCreate", |made| unsafe {
                (functions.preference)(made)
            })?;
        made.set(functions.preference_set, ffi::preference::MOST_WORKSPACE, WORKSPACE as u64)?;
        for (attribute, alignment) in ffi::preference::ALIGNMENTS.into_iter().zip(alignments) {
            made.set(functions.preference_set, attribute, alignment)?;
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use tegula::matrix::Shape;

    use super::*;

    fn layout(rows: usize, cols: usize) -> Layout {
        Layout::row_major(Shape { batches: 3, rows, cols }).unwrap()
    }

    #[test]
    fn matrices_are_seen_as_columns() {
        let plain = Seen { rows: 5, cols: 2, leading: 5, transposed: false, batches: 3, stride: 10 };
        assert_eq!(Seen::of(&layout(2, 5)), Some(plain));
        // The transpose lies the same; it is turned by the operation.
        let [batch, row, col] = layout(2, 5).strides;
        let turned = Layout { shape: Shape { batches: 3, rows: 5, cols: 2 }, strides: [batch, col, row], offset: 0 };
        assert_eq!(Seen::of(&turned), Some(Seen { transposed: true, ..plain }));
        let row = Layout { shape: Shape::new(1, 5), strides: [5, 1, 1], offset: 0 };
        assert_eq!(Seen::of(&row), Some(Seen { rows: 5, cols: 1, leading: 5, batches: 1, stride: 5, ..plain }));
        let holes = Layout { strides: [30, 10, 2], ..layout(2, 5) };
        assert_eq!(Seen::of(&holes), None);
        let repeated = Layout { strides: [0, 0, 1], ..layout(2, 5) };
        assert_eq!(Seen::of(&repeated), None, "rows that overlap");
    }

    #[test]
    fn no_type_is_made_less_exact_and_32_bit_integers_have_no_product() {
        let of = |ty| Types::of(ty, Accuracy::Full);
        let all = [Type::F64, Type::F32, Type::F16, Type::BF16, Type::I8].map(|ty| of(ty).unwrap());
        assert_eq!(all.map(|types| types.compute), [70, 68, 68, 68, 72]);
        assert_eq!(all.map(|types| (types.input, types.output)), [(1, 1), (0, 0), (2, 2), (14, 14), (3, 10)]);
        assert_eq!(of(Type::I32), None);
        let fast = Types::of(Type::F32, Accuracy::Tf32).unwrap();
        assert_eq!(fast, Types { compute: 77, ..all[1] });
        assert_eq!(Types::of(Type::F64, Accuracy::Tf32), of(Type::F64));
    }

    #[test]
    fn what_is_done_last_is_the_libraries_or_nothing() {
        let last = |activation, ty| Last::of::<f32>(Finish { bias: None, activation }, ty).map(|last| last.epilogue);
        let all = Activation::ALL.map(|activation| last(activation, Type::F16));
        assert_eq!(all, [Some(1), Some(2), Some(32), None]);
        assert_eq!([Type::F64, Type::I8].map(|ty| last(Activation::Relu, ty)), [None; 2]);
        assert_eq!(last(Activation::None, Type::F64), Some(1));
        let five = [0f32; 5];
        let on_the_host = Finish { bias: Some(View::new(&five, 1, 5).unwrap()), activation: Activation::None };
        assert_eq!(Last::of(on_the_host, Type::F32), None);
    }

    /// The library takes what it is told, which needs no GPU. Where it is not here, that is said.
    #[test]
    fn the_library_understands_the_description() {
        let functions = match functions() {
            Ok(functions) => functions,
            Err(why) => return println!("skipped: {why}"),
        };
        for types in Type::OPERANDS.into_iter().filter_map(|ty| Types::of(ty, Accuracy::Full)) {
            let layouts = [layout(2, 5), layout(5, 7), layout(2, 7)];
            for last in [(1, None), (6, Some(1 << 40)), (36, Some(1 << 40)), (32, None)] {
                let last = Last { epilogue: last.0, bias: last.1 };
                let described = Described::new(functions, types, &layouts, last).unwrap().unwrap();
                described.preference([256, 16, 8, 8]).unwrap();
            }
        }
    }
}
