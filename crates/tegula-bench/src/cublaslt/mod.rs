//! cublasLt as a peer library: all candidates of its heuristic for a product.
//!
//! The library is loaded on demand and optional. Its matrices are column-major: a row-major C = A·B
//! is its Cᵀ = Bᵀ·Aᵀ. So B is passed as its first matrix. Its bias, added to every column, is a
//! row.

mod ffi;

use std::ffi::c_void;
use std::ptr::{from_mut, from_ref, null_mut};

use ffi::{Algorithm, Functions, Heuristic, Status};
use tegula::cuda::{Buffer, Gpu};
use tegula::element::{Accuracy, Element, Scalar, Type};
use tegula::epilogue::{Activation, EpilogueOperands};
use tegula::error::{Error, Result};
use tegula::matrix::{DeviceMemory, Layout, Memory, MemoryMut, View, ViewMut};
use tegula::tune::operand_sets::{OperandSets, alignment};

/// Workspace limit of a candidate in bytes.
const WORKSPACE: usize = 256 << 20;
/// Maximum number of candidates to query.
const MAX_CANDIDATES: i32 = 64;

/// cublasLt on one GPU.
#[derive(Debug)]
pub struct CublasLt {
    gpu: Gpu,
    handle: OwnedHandle,
    workspace: Buffer<u8>,
}

impl CublasLt {
    /// Loads the library for the stream of a GPU.
    ///
    /// # Errors
    /// [`Error::PeerUnavailable`] if it is not found, [`Error::Peer`] if it cannot be initialized,
    /// [`Error::OutOfMemory`].
    pub fn open(gpu: &Gpu) -> Result<Self> {
        let functions = functions()?;
        gpu.bind()?;
        // SAFETY: the context is current, and the library stores a handle.
        let handle = OwnedHandle::new(functions, functions.destroy, "cublasLtCreate", |handle| unsafe {
            (functions.create)(handle)
        })?;
        Ok(CublasLt { gpu: gpu.clone(), handle, workspace: Buffer::uninit(gpu, WORKSPACE)? })
    }

    /// Version, such as `13.1.0`.
    pub fn version(&self) -> String {
        // SAFETY: the function has no preconditions.
        ffi::version_text(unsafe { (self.handle.functions.version)() })
    }

    /// Queries all candidates for a product; none if the library does not support it.
    ///
    /// # Errors
    /// [`Error::Peer`] for other errors of the library.
    pub fn candidates<'l, T: Element>(
        &'l self,
        operands: &'l OperandSets<T>,
        accuracy: Accuracy,
        activation: Activation,
    ) -> Result<Candidates<'l>> {
        self.gpu.same_context(operands.gpu().context(), "the operands")?;
        let epilogue = LtEpilogue::of(EpilogueOperands { bias: operands.bias(), activation }, T::TYPE);
        let (Some(types), Some(epilogue)) = (MatmulTypes::of(T::TYPE, accuracy), epilogue) else {
            return Ok(Candidates::none());
        };
        let requirements = OperandRequirements { layouts: operands.layouts(), alignments: operands.alignments() };
        let Some(descriptors) = MatmulDescriptors::new(self.handle.functions, types, &requirements.layouts, epilogue)?
        else {
            return Ok(Candidates::none());
        };
        let algorithms = self.query_heuristic(&descriptors, requirements.alignments)?;
        tracing::debug!(candidates = algorithms.len(), "cublasLt");
        Ok(Candidates(Some(CandidateSet { lt: self, ty: T::TYPE, requirements, descriptors, algorithms })))
    }

    fn query_heuristic(&self, descriptors: &MatmulDescriptors, [a, b, c]: [u32; 3]) -> Result<Vec<Algorithm>> {
        let functions = self.handle.functions;
        self.gpu.bind()?;
        let preference = descriptors.preference([b, a, c, c])?;
        let mut found = [Heuristic::default(); MAX_CANDIDATES as usize];
        let mut count = 0;
        let MatmulDescriptors { product, a, b, c } = descriptors;
        // SAFETY: all handles are alive and of the required kinds; `found` holds all results.
        let status = unsafe {
            (functions.heuristics)(
                self.handle.raw,
                product.raw,
                b.raw,
                a.raw,
                c.raw,
                c.raw,
                preference.raw,
                MAX_CANDIDATES,
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

/// Candidates of cublasLt for one product. They refer to its bias, so they do not outlive it.
#[derive(Debug)]
pub struct Candidates<'l>(Option<CandidateSet<'l>>);

#[derive(Debug)]
struct CandidateSet<'l> {
    lt: &'l CublasLt,
    ty: Type,
    requirements: OperandRequirements,
    descriptors: MatmulDescriptors,
    algorithms: Vec<Algorithm>,
}

/// Layouts and alignments of A, B and C that candidates require.
#[derive(Clone, Copy, Debug)]
struct OperandRequirements {
    layouts: [Layout; 3],
    alignments: [u32; 3],
}

impl Candidates<'_> {
    /// No candidates.
    pub const fn none() -> Self {
        Candidates(None)
    }

    /// Number of candidates.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |found| found.algorithms.len())
    }

    /// Whether the library has no candidate.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name of a candidate, with the numbers of the library's header:
    /// `cublasLt 13.1.0 algorithm 66, tile 18, stages 20, cluster 3, split-k 1`.
    pub fn name(&self, which: usize) -> String {
        let Some((found, algorithm)) = self.get(which) else { return "none".into() };
        let number = |(attribute, bytes)| {
            let (mut value, mut written) = (0i32, 0);
            // SAFETY: the algorithm is from the library, and `value` holds the attribute.
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

    fn get(&self, which: usize) -> Option<(&CandidateSet<'_>, &Algorithm)> {
        let found = self.0.as_ref()?;
        Some((found, found.algorithms.get(which)?))
    }

    /// Queues C = act(alpha·A·B + beta·C + bias) with one of the candidates.
    ///
    /// # Errors
    /// [`Error::Layout`] for operands other than the candidates were queried for;
    /// [`Error::DeviceMismatch`]; errors of the library.
    pub fn queue<T: Element>(
        &self,
        which: usize,
        alpha: T::Acc,
        [a, b]: [View<'_, T>; 2],
        beta: T::Acc,
        c: ViewMut<'_, T::Out>,
    ) -> Result<()> {
        let mismatch = || Error::Layout("this candidate of cublasLt requires other operands".into());
        let (found, algorithm) = self.get(which).ok_or_else(mismatch)?;
        let layouts = [a.layout(), b.layout(), c.layout()];
        let MemoryMut::Device(c) = c.into_memory() else { return Err(mismatch()) };
        let (Memory::Device(a), Memory::Device(b)) = (a.memory(), b.memory()) else { return Err(mismatch()) };
        let memory = [a, b, c];
        let addresses: [u64; 3] =
            std::array::from_fn(|i| address(memory[i], layouts[i], [T::TYPE, T::TYPE, out::<T>()][i]));
        let aligned = addresses.iter().zip(found.requirements.alignments).all(|(&at, least)| alignment(at) >= least);
        if found.ty != T::TYPE || layouts != found.requirements.layouts || !aligned {
            return Err(mismatch());
        }
        found.lt.gpu.submit_in_order(&memory, || found.queue(algorithm, [scalar(&alpha), scalar(&beta)], addresses))
    }
}

impl CandidateSet<'_> {
    fn queue(&self, algorithm: &Algorithm, [alpha, beta]: [*const c_void; 2], [a, b, c]: [u64; 3]) -> Result<()> {
        let (lt, descriptors) = (self.lt, &self.descriptors);
        let functions = lt.handle.functions;
        lt.gpu.bind()?;
        // SAFETY: the matrices have the layouts and alignments of the query, and are alive in this
        // context. So is the bias, which the candidates borrow. alpha and beta have the scale type
        // and are read before the call returns. Only this stream uses the workspace.
        let status = unsafe {
            (functions.matmul)(
                lt.handle.raw,
                descriptors.product.raw,
                alpha,
                b,
                descriptors.b.raw,
                a,
                descriptors.a.raw,
                beta,
                c,
                descriptors.c.raw,
                c,
                descriptors.c.raw,
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

/// Address of element (0, 0, 0).
fn address(memory: DeviceMemory<'_>, layout: Layout, ty: Type) -> u64 {
    memory.address() + (layout.offset * ty.size()) as u64
}

fn functions() -> Result<&'static Functions> {
    let advice = "install the CUDA toolkit, name the library in TEGULA_CUBLASLT, or leave out --vs";
    ffi::functions().map_err(|why| Error::PeerUnavailable { library: "cublasLt", why, advice })
}

impl Functions {
    fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == ffi::SUCCESS { Ok(()) } else { Err(Error::Peer { call, status: self.status_text(status) }) }
    }
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Functions")
    }
}

/// Object of the library that is destroyed when dropped.
#[derive(Debug)]
struct OwnedHandle {
    functions: &'static Functions,
    raw: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void) -> Status,
}

impl OwnedHandle {
    fn new(
        functions: &'static Functions,
        destroy: unsafe extern "C" fn(*mut c_void) -> Status,
        call: &'static str,
        create: impl FnOnce(*mut *mut c_void) -> Status,
    ) -> Result<Self> {
        let mut raw = null_mut();
        functions.check(call, create(&mut raw))?;
        Ok(OwnedHandle { functions, raw, destroy })
    }

    /// Sets an attribute with the function for this kind of object.
    fn set<V>(
        &self,
        set: unsafe extern "C" fn(*mut c_void, i32, *const c_void, usize) -> Status,
        attribute: i32,
        value: V,
    ) -> Result<()> {
        // SAFETY: the library copies the given number of bytes, and rejects a wrong number.
        let status = unsafe { set(self.raw, attribute, from_ref(&value).cast(), size_of::<V>()) };
        self.functions.check("a SetAttribute of cublasLt", status)
    }
}

impl Drop for OwnedHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and destroyed once, by the matching function. Errors are
        // harmless.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}

/// Types of a product as the library's enumerations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MatmulTypes {
    input: i32,
    output: i32,
    compute: i32,
    scale: i32,
}

impl MatmulTypes {
    /// Types for elements `ty`; `None` if the library does not support them.
    fn of(ty: Type, accuracy: Accuracy) -> Option<MatmulTypes> {
        use ffi::{compute, data};
        let types = |input, output, compute, scale| Some(MatmulTypes { input, output, compute, scale });
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

/// Epilogue as the library's flags, and the address of the bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LtEpilogue {
    flags: u32,
    bias: Option<u64>,
}

impl LtEpilogue {
    /// Translates an epilogue; `None` if the library does not support it.
    ///
    /// It has no SiLU and no column bias, and epilogues for f32 accumulators only.
    fn of<S: Scalar>(operands: EpilogueOperands<'_, S>, ty: Type) -> Option<LtEpilogue> {
        use ffi::epilogue;
        let activation = match operands.activation {
            Activation::None => 0,
            Activation::Relu => epilogue::RELU,
            Activation::Gelu => epilogue::GELU,
            Activation::Silu => return None,
        };
        let bias = match operands.bias {
            None => None,
            Some(bias) => match (bias.memory(), bias.layout()) {
                (Memory::Device(memory), layout) if layout.shape.rows == 1 && layout.strides[2] == 1 => {
                    Some(address(memory, layout, S::TYPE))
                }
                _ => return None,
            },
        };
        let flags = activation | if bias.is_some() { epilogue::BIAS } else { 0 };
        match (flags, ty) {
            (0, _) => Some(LtEpilogue { flags: epilogue::NONE, bias }),
            (_, Type::F32 | Type::F16 | Type::BF16) => Some(LtEpilogue { flags, bias }),
            _ => None,
        }
    }
}

/// Row-major matrix as a column-major one of the library, with rows and columns swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LtLayout {
    rows: u64,
    cols: u64,
    leading: i64,
    transposed: bool,
    batches: i32,
    stride: i64,
}

impl LtLayout {
    /// Translates a layout; `None` if the library cannot express the strides.
    fn of(layout: &Layout) -> Option<LtLayout> {
        let [batch, row, col] = layout.strides;
        let (rows, cols) = (layout.shape.rows, layout.shape.cols);
        // Its columns are contiguous: Tegula's rows, or the columns of a transposed matrix.
        let (contiguous, strided, leading, transposed) = match (row, col) {
            (row, 1) => (cols, rows, row, false),
            (1, col) => (rows, cols, col, true),
            _ => return None,
        };
        let batches = i32::try_from(layout.shape.batches).ok()?;
        // The leading dimension of a single column is irrelevant.
        let leading = if strided == 1 { leading.max(contiguous as isize) } else { leading };
        let leading = i64::try_from(leading).ok().filter(|leading| *leading >= contiguous as i64)?;
        let stride = i64::try_from(batch).ok()?;
        Some(LtLayout { rows: contiguous as u64, cols: strided as u64, leading, transposed, batches, stride })
    }
}

/// Descriptors of an operation and its matrices.
#[derive(Debug)]
struct MatmulDescriptors {
    product: OwnedHandle,
    a: OwnedHandle,
    b: OwnedHandle,
    c: OwnedHandle,
}

impl MatmulDescriptors {
    /// Creates the descriptors; `None` if the library does not support a layout.
    fn new(
        functions: &'static Functions,
        types: MatmulTypes,
        [a, b, c]: &[Layout; 3],
        epilogue: LtEpilogue,
    ) -> Result<Option<Self>> {
        let (Some(a), Some(b), Some(c)) = (LtLayout::of(a), LtLayout::of(b), LtLayout::of(c).filter(|c| !c.transposed))
        else {
            return Ok(None);
        };
        // SAFETY: the library writes the handle.
        let product =
            OwnedHandle::new(functions, functions.product_destroy, "cublasLtMatmulDescCreate", |handle| unsafe {
                (functions.product)(handle, types.compute, types.scale)
            })?;
        let operation = |transposed| match transposed {
            true => ffi::operation::TRANSPOSED,
            false => ffi::operation::AS_STORED,
        };
        product.set(functions.product_set, ffi::product::TRANSPOSE_A, operation(b.transposed))?;
        product.set(functions.product_set, ffi::product::TRANSPOSE_B, operation(a.transposed))?;
        product.set(functions.product_set, ffi::product::EPILOGUE, epilogue.flags)?;
        if let Some(bias) = epilogue.bias {
            product.set(functions.product_set, ffi::product::BIAS, bias)?;
        }
        let matrix = |seen: LtLayout, ty| -> Result<OwnedHandle> {
            let LtLayout { rows, cols, leading, batches, stride, .. } = seen;
            // SAFETY: as above.
            let layout =
                OwnedHandle::new(functions, functions.layout_destroy, "cublasLtMatrixLayoutCreate", |handle| unsafe {
                    (functions.layout)(handle, ty, rows, cols, leading)
                })?;
            layout.set(functions.layout_set, ffi::layout::BATCH_COUNT, batches)?;
            layout.set(functions.layout_set, ffi::layout::BATCH_STRIDE, stride)?;
            Ok(layout)
        };
        Ok(Some(MatmulDescriptors {
            product,
            a: matrix(a, types.input)?,
            b: matrix(b, types.input)?,
            c: matrix(c, types.output)?,
        }))
    }

    /// Creates the preference: workspace limit and alignments of the library's A, B, C and D.
    fn preference(&self, alignments: [u32; 4]) -> Result<OwnedHandle> {
        let functions = self.product.functions;
        // SAFETY: the library writes the handle.
        let handle = OwnedHandle::new(
            functions,
            functions.preference_destroy,
            "cublasLtMatmulPreferenceCreate",
            |handle| unsafe { (functions.preference)(handle) },
        )?;
        handle.set(functions.preference_set, ffi::preference::MAX_WORKSPACE, WORKSPACE as u64)?;
        for (attribute, alignment) in ffi::preference::ALIGNMENTS.into_iter().zip(alignments) {
            handle.set(functions.preference_set, attribute, alignment)?;
        }
        Ok(handle)
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
    fn lt_layout_swaps_rows_and_columns() {
        let plain = LtLayout { rows: 5, cols: 2, leading: 5, transposed: false, batches: 3, stride: 10 };
        assert_eq!(LtLayout::of(&layout(2, 5)), Some(plain));
        // The transpose has the same memory; the operation transposes it.
        let [batch, row, col] = layout(2, 5).strides;
        let transposed =
            Layout { shape: Shape { batches: 3, rows: 5, cols: 2 }, strides: [batch, col, row], offset: 0 };
        assert_eq!(LtLayout::of(&transposed), Some(LtLayout { transposed: true, ..plain }));
        let row = Layout { shape: Shape::new(1, 5), strides: [5, 1, 1], offset: 0 };
        assert_eq!(LtLayout::of(&row), Some(LtLayout { rows: 5, cols: 1, leading: 5, batches: 1, stride: 5, ..plain }));
        let holes = Layout { strides: [30, 10, 2], ..layout(2, 5) };
        assert_eq!(LtLayout::of(&holes), None);
        let repeated = Layout { strides: [0, 0, 1], ..layout(2, 5) };
        assert_eq!(LtLayout::of(&repeated), None, "overlapping rows");
    }

    #[test]
    fn matmul_types_keep_full_accuracy_and_exclude_i32() {
        let of = |ty| MatmulTypes::of(ty, Accuracy::Full);
        let all = [Type::F64, Type::F32, Type::F16, Type::BF16, Type::I8].map(|ty| of(ty).unwrap());
        assert_eq!(all.map(|types| types.compute), [70, 68, 68, 68, 72]);
        assert_eq!(all.map(|types| (types.input, types.output)), [(1, 1), (0, 0), (2, 2), (14, 14), (3, 10)]);
        assert_eq!(of(Type::I32), None);
        let fast = MatmulTypes::of(Type::F32, Accuracy::Tf32).unwrap();
        assert_eq!(fast, MatmulTypes { compute: 77, ..all[1] });
        assert_eq!(MatmulTypes::of(Type::F64, Accuracy::Tf32), of(Type::F64));
    }

    #[test]
    fn lt_epilogue_translates_supported_epilogues_only() {
        let epilogue = |activation, ty| {
            LtEpilogue::of::<f32>(EpilogueOperands { bias: None, activation }, ty).map(|epilogue| epilogue.flags)
        };
        let all = Activation::ALL.map(|activation| epilogue(activation, Type::F16));
        assert_eq!(all, [Some(1), Some(2), Some(32), None]);
        assert_eq!([Type::F64, Type::I8].map(|ty| epilogue(Activation::Relu, ty)), [None; 2]);
        assert_eq!(epilogue(Activation::None, Type::F64), Some(1));
        let five = [0f32; 5];
        let on_the_host =
            EpilogueOperands { bias: Some(View::new(&five, 1, 5).unwrap()), activation: Activation::None };
        assert_eq!(LtEpilogue::of(on_the_host, Type::F32), None);
    }

    /// Descriptors need no GPU. The test is skipped if the library is not found.
    #[test]
    fn matmul_descriptors_are_accepted_by_the_library() {
        let functions = match functions() {
            Ok(functions) => functions,
            Err(why) => return println!("skipped: {why}"),
        };
        for types in Type::OPERANDS.into_iter().filter_map(|ty| MatmulTypes::of(ty, Accuracy::Full)) {
            let layouts = [layout(2, 5), layout(5, 7), layout(2, 7)];
            for epilogue in [(1, None), (6, Some(1 << 40)), (36, Some(1 << 40)), (32, None)] {
                let epilogue = LtEpilogue { flags: epilogue.0, bias: epilogue.1 };
                let descriptors = MatmulDescriptors::new(functions, types, &layouts, epilogue).unwrap().unwrap();
                descriptors.preference([256, 16, 8, 8]).unwrap();
            }
        }
    }
}
