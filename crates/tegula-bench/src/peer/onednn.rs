//! oneDNN: `dnnl_sgemm`, and the primitive `matmul` for all types.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use libloading::Library;
use tegula::element::Type;
use tegula::error::{Error, Result};
use tegula::matrix::Layout;

use super::prepared::{BlasLayout, CallFn, Operand, PeerCall, PeerProblem};
use super::{Threads, symbol};

/// `dnnl_sgemm`, row-major: transposes, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc.
type Sgemm = unsafe extern "C" fn(
    c_char,
    c_char,
    i64,
    i64,
    i64,
    f32,
    *const f32,
    i64,
    *const f32,
    i64,
    f32,
    *mut f32,
    i64,
) -> c_int;

/// Object of the library.
type Handle = *mut c_void;

/// `dnnl_dims_t`: extents or strides, of which the library reads as many as the number of axes.
type Dims = [i64; 12];

/// `dnnl_exec_arg_t`: index and memory of an argument of a primitive.
#[repr(C)]
#[derive(Clone, Copy)]
struct Argument(c_int, Handle);

const CPU: c_int = 1;
const IN_ORDER: c_int = 1;
/// Indices of A, B and C among the arguments of `matmul`.
const A: c_int = 1;
const B: c_int = 33;
const C: c_int = 17;

/// Function table, each name without the prefix `dnnl_`.
macro_rules! functions {
    ($($name:ident($($argument:ty),*);)*) => {
        #[derive(Clone, Copy)]
        struct Api { $($name: unsafe extern "C" fn($($argument),*) -> c_int,)* }

        impl Api {
            /// # Safety
            /// The library is oneDNN.
            unsafe fn of(library: &Library) -> Option<Api> {
                // SAFETY: the types are those of the header, version 3.
                unsafe { Some(Api { $($name: symbol(library, &[concat!("dnnl_", stringify!($name))])?,)* }) }
            }
        }
    };
}

functions! {
    engine_create(*mut Handle, c_int, usize);
    engine_destroy(Handle);
    stream_create(*mut Handle, Handle, c_int);
    stream_destroy(Handle);
    stream_wait(Handle);
    memory_desc_create_with_strides(*mut Handle, c_int, *const Dims, c_int, *const Dims);
    memory_desc_destroy(Handle);
    memory_create(*mut Handle, Handle, Handle, *mut c_void);
    memory_set_data_handle(Handle, *mut c_void);
    memory_destroy(Handle);
    matmul_primitive_desc_create(*mut Handle, Handle, Handle, Handle, Handle, Handle, Handle);
    primitive_desc_destroy(Handle);
    primitive_create(*mut Handle, Handle);
    primitive_execute(Handle, Handle, c_int, *const Argument);
    primitive_destroy(Handle);
}

/// Object of the library that is destroyed when dropped.
struct OwnedHandle {
    handle: Handle,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
}

impl OwnedHandle {
    /// Calls a function that creates an object.
    fn create(
        call: &'static str,
        destroy: unsafe extern "C" fn(Handle) -> c_int,
        make: impl FnOnce(*mut Handle) -> c_int,
    ) -> Result<OwnedHandle> {
        let mut handle = null_mut();
        check_status(call, make(&mut handle)).map(|()| OwnedHandle { handle, destroy })
    }
}

impl Drop for OwnedHandle {
    fn drop(&mut self) {
        // SAFETY: the handle was created by the matching function and is not used afterwards.
        _ = unsafe { (self.destroy)(self.handle) };
    }
}

fn check_status(call: &'static str, status: c_int) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(Error::Peer { call, status: format!("status {status}") }) }
}

/// Functions of a loaded library.
pub struct Functions {
    sgemm: Option<Sgemm>,
    matmul: Option<Matmul>,
    threads: Threads,
}

impl Functions {
    /// Looks up the functions of a library.
    ///
    /// # Safety
    /// `library` is oneDNN.
    ///
    /// # Errors
    /// The missing function.
    pub unsafe fn of(library: &Library) -> std::result::Result<Functions, &'static str> {
        // SAFETY: the types are those of the headers of oneDNN and OpenMP.
        let (sgemm, api, threads) = unsafe {
            let threads = symbol(library, &["omp_set_num_threads"]).map(Threads::Int32);
            (symbol(library, &["dnnl_sgemm"]), Api::of(library), threads)
        };
        let threads = threads.ok_or("its number of threads cannot be set, because it was not built for OpenMP")?;
        let matmul = api.and_then(|api| {
            Matmul::new(api).inspect_err(|error| tracing::debug!(%error, "oneDNN primitives unavailable")).ok()
        });
        if sgemm.is_none() && matmul.is_none() {
            return Err("it has neither sgemm nor matmul");
        }
        Ok(Functions { sgemm, matmul, threads })
    }

    /// Sets the number of threads in every OpenMP that the library may use.
    ///
    /// It is linked to one, but uses that of MKL if MKL has loaded its own for the whole process.
    pub fn set_threads(&self, count: usize) {
        self.threads.set(count);
        #[cfg(unix)]
        {
            let process: Library = libloading::os::unix::Library::this().into();
            // SAFETY: the type is that of the header of OpenMP.
            let global = unsafe { symbol(&process, &["omp_set_num_threads"]) };
            global.map(Threads::Int32).iter().for_each(|threads| threads.set(count));
        }
    }

    /// Calls that compute a product.
    pub fn calls<'a>(&'a self, product: &PeerProblem<'a>) -> Result<Vec<PeerCall<'a>>> {
        let sgemm = self.sgemm.filter(|_| product.ty == Type::F32).and_then(|sgemm| sgemm_call(sgemm, product));
        let sgemm = sgemm.map(|function| PeerCall { name: "sgemm", f32_c: false, function });
        let matmul = self.matmul.as_ref().and_then(|matmul| {
            let function = matmul.call(product).transpose()?;
            function.inspect_err(|error| tracing::debug!(%error, "oneDNN matmul failed")).ok()
        });
        let matmul = matmul.map(|function| PeerCall { name: "matmul", f32_c: false, function });
        Ok(sgemm.into_iter().chain(matmul).collect())
    }
}

/// Calls `dnnl_sgemm` for each matrix of the batch; `None` for unsupported layouts.
fn sgemm_call<'a>(sgemm: Sgemm, product: &PeerProblem<'a>) -> Option<CallFn<'a>> {
    let [m, n, k] = product.sizes().map(|size| size as i64);
    let [alpha, beta] = product.f32_scalars();
    let (a, b, batches) = (product.a, product.b, product.shape.batches);
    let (a_layout, b_layout) = (BlasLayout::of(&a.layout)?, BlasLayout::of(&b.layout)?);
    let transpose_char = |layout: &BlasLayout| if layout.transposed { b'T' as c_char } else { b'N' as c_char };
    let (ta, lda, tb, ldb) =
        (transpose_char(&a_layout), a_layout.leading as i64, transpose_char(&b_layout), b_layout.leading as i64);
    Some(Box::new(move |c| {
        for batch in 0..batches {
            let (a, b, c) = (a.at(batch), b.at(batch), c.cast::<f32>().wrapping_add(batch * (m * n) as usize));
            // SAFETY: A and B are borrowed, their layouts are in bounds, and C holds the batch.
            check_status("dnnl_sgemm", unsafe { sgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, n.max(1)) })?;
        }
        Ok(())
    }))
}

/// Factory of `matmul` primitives.
struct Matmul {
    engine: OwnedHandle,
    api: Api,
}

// SAFETY: engines may be used by several threads.
unsafe impl Send for Matmul {}
// SAFETY: as above.
unsafe impl Sync for Matmul {}

/// A primitive with its arguments and its stream.
struct Primitive {
    primitive: OwnedHandle,
    memories: [OwnedHandle; 3],
    stream: OwnedHandle,
    /// Address of C in the last call.
    c: *mut c_void,
    api: Api,
}

impl Primitive {
    fn run(&mut self, c: *mut c_void) -> Result<()> {
        let [a_memory, b_memory, c_memory] = self.memories.each_ref().map(|memory| memory.handle);
        if self.c != c {
            // SAFETY: C holds the product.
            check_status("dnnl_memory_set_data_handle", unsafe { (self.api.memory_set_data_handle)(c_memory, c) })?;
            self.c = c;
        }
        let (primitive, stream) = (self.primitive.handle, self.stream.handle);
        let arguments = [Argument(A, a_memory), Argument(B, b_memory), Argument(C, c_memory)];
        // SAFETY: A and B are borrowed and their layouts are in bounds; the call waits for the
        // stream.
        unsafe {
            check_status(
                "dnnl_primitive_execute",
                (self.api.primitive_execute)(primitive, stream, 3, arguments.as_ptr()),
            )?;
            check_status("dnnl_stream_wait", (self.api.stream_wait)(stream))
        }
    }
}

impl Matmul {
    fn new(api: Api) -> Result<Matmul> {
        let engine = OwnedHandle::create("dnnl_engine_create", api.engine_destroy, |to| {
            // SAFETY: `to` is valid for a write.
            unsafe { (api.engine_create)(to, CPU, 0) }
        })?;
        Ok(Matmul { engine, api })
    }

    /// Calls the primitive for the whole batch; `None` for scaled products and unsupported types.
    fn call<'a>(&'a self, product: &PeerProblem<'a>) -> Result<Option<CallFn<'a>>> {
        // `dnnl_data_type_t` of inputs and C.
        let types = match product.ty {
            Type::F32 => [3, 3],
            Type::BF16 => [2, 2],
            Type::F16 => [1, 1],
            Type::I8 => [5, 4],
            _ => return Ok(None),
        };
        if !product.is_unscaled() || product.shape.is_empty() || product.k == 0 {
            return Ok(None);
        }
        // The method call makes the closure capture the whole primitive, not single fields.
        let mut primitive = self.primitive(product, types)?;
        Ok(Some(Box::new(move |c| primitive.run(c))))
    }

    fn primitive(&self, product: &PeerProblem<'_>, [input, output]: [c_int; 2]) -> Result<Primitive> {
        let (api, engine) = (self.api, self.engine.handle);
        let c_layout = Layout::row_major(product.shape)?;
        let a = self.descriptor(&product.a.layout, input)?;
        let b = self.descriptor(&product.b.layout, input)?;
        let c = self.descriptor(&c_layout, output)?;
        let none = null_mut();
        let descriptor = OwnedHandle::create("dnnl_matmul_primitive_desc_create", api.primitive_desc_destroy, |to| {
            // SAFETY: engine and descriptors are alive; null means no bias and no attributes.
            unsafe { (api.matmul_primitive_desc_create)(to, engine, a.handle, b.handle, none, c.handle, none) }
        })?;
        let primitive = OwnedHandle::create("dnnl_primitive_create", api.primitive_destroy, |to| {
            // SAFETY: the descriptor is alive.
            unsafe { (api.primitive_create)(to, descriptor.handle) }
        })?;
        let memory = |descriptor: &OwnedHandle, at: *mut c_void| {
            OwnedHandle::create("dnnl_memory_create", api.memory_destroy, |to| {
                // SAFETY: the address holds the described matrix, or is set before the first use.
                unsafe { (api.memory_create)(to, descriptor.handle, engine, at) }
            })
        };
        let input = |operand: &Operand<'_>| operand.at::<c_void>(0).cast_mut();
        let memories = [memory(&a, input(&product.a))?, memory(&b, input(&product.b))?, memory(&c, null_mut())?];
        let stream = OwnedHandle::create("dnnl_stream_create", api.stream_destroy, |to| {
            // SAFETY: the engine is alive.
            unsafe { (api.stream_create)(to, engine, IN_ORDER) }
        })?;
        Ok(Primitive { primitive, memories, stream, c: null_mut(), api })
    }

    /// Creates the descriptor of a matrix or a batch.
    fn descriptor(&self, layout: &Layout, ty: c_int) -> Result<OwnedHandle> {
        let (mut extents, mut strides) = ([0; 12], [0; 12]);
        // The library may use faster kernels without a batch axis.
        let first = usize::from(layout.shape.batches == 1);
        let axes = layout.extents().into_iter().zip(layout.strides).skip(first);
        for (axis, (extent, stride)) in axes.enumerate() {
            (extents[axis], strides[axis]) = (extent as i64, stride as i64);
        }
        let count = 3 - first as c_int;
        OwnedHandle::create("dnnl_memory_desc_create_with_strides", self.api.memory_desc_destroy, |to| {
            // SAFETY: `extents` and `strides` have at least `count` values.
            unsafe { (self.api.memory_desc_create_with_strides)(to, count, &extents, ty, &strides) }
        })
    }
}
