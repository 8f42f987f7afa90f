//! oneDNN: its product of f32 with the interface of BLAS, and its primitive `matmul` for all types that it has.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use libloading::Library;
use tegula::element::Type;
use tegula::error::{Error, Result};
use tegula::matrix::Layout;

use super::ready::{Call, Lies, Operand, Product, Work};
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

/// Something that the library made.
type Handle = *mut c_void;

/// Extents or strides, of which the library takes twelve and looks at as many as there are.
type Dims = [i64; 12];

/// An argument of a primitive: which one, and its memory.
#[repr(C)]
#[derive(Clone, Copy)]
struct Argument(c_int, Handle);

const CPU: c_int = 1;
const IN_ORDER: c_int = 1;
/// What A, B and C are called among the arguments of `matmul`.
const A: c_int = 1;
const B: c_int = 33;
const C: c_int = 17;

/// The functions that are used, each by its name behind `dnnl_`.
macro_rules! functions {
    ($($name:ident($($argument:ty),*);)*) => {
        #[derive(Clone, Copy)]
        struct Api { $($name: unsafe extern "C" fn($($argument),*) -> c_int,)* }

        impl Api {
            /// # Safety
            /// The library is oneDNN.
            unsafe fn of(library: &Library) -> Option<Api> {
                // SAFETY: the types that its header gives, version 3.
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

/// What was made, and is given back.
struct Made {
    handle: Handle,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
}

impl Made {
    /// What a function makes.
    fn by(
        call: &'static str,
        destroy: unsafe extern "C" fn(Handle) -> c_int,
        make: impl FnOnce(*mut Handle) -> c_int,
    ) -> Result<Made> {
        let mut handle = null_mut();
        done(call, make(&mut handle)).map(|()| Made { handle, destroy })
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: it was made by the function that belongs to this one, and nobody has it any more.
        _ = unsafe { (self.destroy)(self.handle) };
    }
}

fn done(call: &'static str, status: c_int) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(Error::Peer { call, status: format!("status {status}") }) }
}

/// The functions of an open library.
pub struct Functions {
    sgemm: Option<Sgemm>,
    matmul: Option<Matmul>,
    pub threads: Threads,
}

impl Functions {
    /// # Safety
    /// It is oneDNN.
    ///
    /// # Errors
    /// What it lacks.
    pub unsafe fn of(library: &Library) -> std::result::Result<Functions, &'static str> {
        // SAFETY: the types that the header gives, and that of OpenMP.
        let (sgemm, api, threads) = unsafe {
            let threads = symbol(library, &["omp_set_num_threads"]).map(Threads::Narrow);
            (symbol(library, &["dnnl_sgemm"]), Api::of(library), threads)
        };
        let threads = threads.ok_or("the number of its threads cannot be set, since it was not built for OpenMP")?;
        let matmul = api.and_then(|api| {
            Matmul::new(api).inspect_err(|why| tracing::debug!(%why, "oneDNN has no primitives here")).ok()
        });
        if sgemm.is_none() && matmul.is_none() {
            return Err("it has no product");
        }
        Ok(Functions { sgemm, matmul, threads })
    }

    /// The ways to make a product.
    pub fn calls<'a>(&'a self, product: &Product<'a>) -> Result<Vec<Call<'a>>> {
        let sgemm = self.sgemm.filter(|_| product.ty == Type::F32).and_then(|sgemm| single(sgemm, product));
        let sgemm = sgemm.map(|work| Call { name: "sgemm", single: false, work });
        let matmul = self.matmul.as_ref().and_then(|matmul| {
            let work = matmul.work(product).transpose()?;
            work.inspect_err(|why| tracing::debug!(%why, "oneDNN's matmul is out")).ok()
        });
        let matmul = matmul.map(|work| Call { name: "matmul", single: false, work });
        Ok(sgemm.into_iter().chain(matmul).collect())
    }
}

/// Calls of `dnnl_sgemm`, batch after batch.
fn single<'a>(sgemm: Sgemm, product: &Product<'a>) -> Option<Work<'a>> {
    let [m, n, k] = product.sizes().map(|size| size as i64);
    let [alpha, beta] = product.singles();
    let (a, b, batches) = (product.a, product.b, product.shape.batches);
    let (oa, ob) = (Lies::of(&a.layout)?, Lies::of(&b.layout)?);
    let letter = |lies: &Lies| if lies.transposed { b'T' as c_char } else { b'N' as c_char };
    let (ta, lda, tb, ldb) = (letter(&oa), oa.leading as i64, letter(&ob), ob.leading as i64);
    Some(Box::new(move |c| {
        for batch in 0..batches {
            let (a, b, c) = (a.at(batch), b.at(batch), c.cast::<f32>().wrapping_add(batch * (m * n) as usize));
            // SAFETY: A and B are borrowed to be read, with layouts that lie within their memory, and C has room for the batch.
            done("dnnl_sgemm", unsafe { sgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, n.max(1)) })?;
        }
        Ok(())
    }))
}

/// What primitives are made with.
struct Matmul {
    engine: Made,
    api: Api,
}

// SAFETY: of what the library makes, an engine may be used by several threads.
unsafe impl Send for Matmul {}
// SAFETY: as above.
unsafe impl Sync for Matmul {}

/// A primitive, its arguments, and the stream that it runs in.
struct Primitive {
    primitive: Made,
    memories: [Made; 3],
    stream: Made,
    /// Where C was last.
    c: *mut c_void,
    api: Api,
}

impl Primitive {
    fn run(&mut self, c: *mut c_void) -> Result<()> {
        let [of_a, of_b, of_c] = self.memories.each_ref().map(|memory| memory.handle);
        if self.c != c {
            // SAFETY: C has room for the product.
            done("dnnl_memory_set_data_handle", unsafe { (self.api.memory_set_data_handle)(of_c, c) })?;
            self.c = c;
        }
        let (primitive, stream) = (self.primitive.handle, self.stream.handle);
        let arguments = [Argument(A, of_a), Argument(B, of_b), Argument(C, of_c)];
        // SAFETY: A and B are borrowed to be read, with layouts that lie within their memory; the stream is waited for.
        unsafe {
            done("dnnl_primitive_execute", (self.api.primitive_execute)(primitive, stream, 3, arguments.as_ptr()))?;
            done("dnnl_stream_wait", (self.api.stream_wait)(stream))
        }
    }
}

impl Matmul {
    fn new(api: Api) -> Result<Matmul> {
        let engine = Made::by("dnnl_engine_create", api.engine_destroy, |to| {
            // SAFETY: it is written where it is asked for.
            unsafe { (api.engine_create)(to, CPU, 0) }
        })?;
        Ok(Matmul { engine, api })
    }

    /// Calls of the primitive, the whole batch at once. `None` of a product that is scaled, or of a type that it does not have.
    fn work<'a>(&'a self, product: &Product<'a>) -> Result<Option<Work<'a>>> {
        // Numbers of its types, for inputs and for C.
        let types = match product.ty {
            Type::F32 => [3, 3],
            Type::BF16 => [2, 2],
            Type::F16 => [1, 1],
            Type::I8 => [5, 4],
            _ => return Ok(None),
        };
        if !product.is_plain() || product.shape.is_empty() || product.k == 0 {
            return Ok(None);
        }
        // A method takes the primitive as a whole, so the closure keeps all of it.
        let mut primitive = self.primitive(product, types)?;
        Ok(Some(Box::new(move |c| primitive.run(c))))
    }

    fn primitive(&self, product: &Product<'_>, [input, output]: [c_int; 2]) -> Result<Primitive> {
        let (api, engine) = (self.api, self.engine.handle);
        let of_c = Layout::row_major(product.shape)?;
        let a = self.description(&product.a.layout, input)?;
        let b = self.description(&product.b.layout, input)?;
        let c = self.description(&of_c, output)?;
        let none = null_mut();
        let description = Made::by("dnnl_matmul_primitive_desc_create", api.primitive_desc_destroy, |to| {
            // SAFETY: the engine and the descriptions are there; there is no bias and nothing that is special.
            unsafe { (api.matmul_primitive_desc_create)(to, engine, a.handle, b.handle, none, c.handle, none) }
        })?;
        let primitive = Made::by("dnnl_primitive_create", api.primitive_destroy, |to| {
            // SAFETY: the description is there.
            unsafe { (api.primitive_create)(to, description.handle) }
        })?;
        let memory = |description: &Made, at: *mut c_void| {
            Made::by("dnnl_memory_create", api.memory_destroy, |to| {
                // SAFETY: what is described lies there, or is said to lie elsewhere before it is used.
                unsafe { (api.memory_create)(to, description.handle, engine, at) }
            })
        };
        let input = |operand: &Operand<'_>| operand.at::<c_void>(0).cast_mut();
        let memories = [memory(&a, input(&product.a))?, memory(&b, input(&product.b))?, memory(&c, null_mut())?];
        let stream = Made::by("dnnl_stream_create", api.stream_destroy, |to| {
            // SAFETY: the engine is there.
            unsafe { (api.stream_create)(to, engine, IN_ORDER) }
        })?;
        Ok(Primitive { primitive, memories, stream, c: null_mut(), api })
    }

    /// A matrix or a batch of them, by how they lie.
    fn description(&self, layout: &Layout, ty: c_int) -> Result<Made> {
        let (mut extents, mut strides) = ([0; 12], [0; 12]);
        // It may know better ways for what it does not take to be a batch.
        let first = usize::from(layout.shape.batches == 1);
        let axes = layout.extents().into_iter().zip(layout.strides).skip(first);
        for (axis, (extent, stride)) in axes.enumerate() {
            (extents[axis], strides[axis]) = (extent as i64, stride as i64);
        }
        let count = 3 - first as c_int;
        Made::by("dnnl_memory_desc_create_with_strides", self.api.memory_desc_destroy, |to| {
            // SAFETY: there are as many extents and strides as it looks at.
            unsafe { (self.api.memory_desc_create_with_strides)(to, count, &extents, ty, &strides) }
        })
    }
}
