//! Functions of loaded modules, and the cache of functions of a context.

use std::ffi::CString;
use std::fmt;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard};

use cudarc::driver::sys::{self, CUfunction_attribute as Attribute};
use rustc_hash::FxHashMap;
use tegula_ir::ptx::Image;

use super::assemble::Module;
use super::driver::{self, DeviceInfo, Named};
use crate::error::{Error, Result};

/// Largest shared memory of a block without an opt-in, in bytes.
const DEFAULT_SHARED_BYTES: u32 = 48 << 10;

/// The source of a loaded function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadSource {
    /// The table in memory: it was loaded before.
    Memory,
    /// The driver, from its cache on disk or by assembling.
    Driver,
}

/// Resources of a kernel, as the assembler reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Registers per thread.
    pub registers: u32,
    /// Local memory per thread in bytes: stack and register spills.
    pub local_bytes: u32,
    /// Static shared memory per block in bytes.
    pub static_shared_bytes: u32,
    /// Most threads of a block of this kernel.
    pub max_threads: u32,
}

/// A loaded kernel. Clones are cheap; dropping the last one unloads its module.
#[derive(Clone)]
pub struct Function(Arc<FunctionInner>);

struct FunctionInner {
    handle: sys::CUfunction,
    module: Module,
    entry: String,
    block: [u32; 3],
    shared_bytes: u32,
    early: bool,
    attributes: Attributes,
    /// Size of each parameter in bytes; unknown to drivers older than CUDA 12.4.
    parameters: Option<Vec<usize>>,
}

// SAFETY: any thread on which the context is current may use the handle.
unsafe impl Send for FunctionInner {}
// SAFETY: as above; a loaded function is immutable.
unsafe impl Sync for FunctionInner {}

/// The loaded functions of a handle and its clones, by image.
#[derive(Default)]
pub(super) struct FunctionCache {
    /// One lock per kernel: different kernels assemble in parallel, and each kernel once.
    slots: Mutex<FxHashMap<Image, Slot>>,
}

pub(super) type Slot = Arc<Mutex<Option<Function>>>;

impl FunctionCache {
    pub(super) fn slot(&self, image: &Image) -> Slot {
        let mut slots = lock(&self.slots);
        match slots.get(image) {
            Some(slot) => slot.clone(),
            None => slots.entry(image.clone()).or_default().clone(),
        }
    }
}

/// Locks a table, also after a panic of another thread: each change is one insertion.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Function {
    /// Finds the image's kernel in its module, on a GPU that `info` describes.
    pub(super) fn new(info: &DeviceInfo, module: Module, image: &Image) -> Result<Self> {
        let wrong = |why: String| Error::Launch { kernel: image.entry.clone(), why };
        let name = CString::new(image.entry.as_str()).map_err(|_| wrong("its name contains a NUL byte".into()))?;
        let mut handle = null_mut();
        // SAFETY: the module is loaded, its context is still current, and the name is a C string.
        unsafe { sys::cuModuleGetFunction(&mut handle, module.raw(), name.as_ptr()) }.named("cuModuleGetFunction")?;
        let attributes = Attributes {
            registers: attribute(handle, Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: attribute(handle, Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            static_shared_bytes: attribute(handle, Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            max_threads: attribute(handle, Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        };
        check_block(image, &attributes, info).map_err(wrong)?;
        allow_shared(handle, image.shared_bytes, attributes.static_shared_bytes)?;
        Ok(Function(Arc::new(FunctionInner {
            handle,
            module,
            entry: image.entry.clone(),
            block: image.block,
            shared_bytes: image.shared_bytes,
            early: image.uses_griddep_wait,
            attributes,
            parameters: parameters(handle),
        })))
    }

    /// The kernel's name.
    pub fn entry(&self) -> &str {
        &self.0.entry
    }

    /// Threads per block in x, y and z.
    pub fn block(&self) -> [u32; 3] {
        self.0.block
    }

    /// Dynamic shared memory per block in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.0.shared_bytes
    }

    /// Whether it may start before preceding work on its stream has ended (programmatic dependent
    /// launch). Such a kernel waits for that work itself, by `griddepcontrol.wait`.
    pub fn uses_griddep_wait(&self) -> bool {
        self.0.early
    }

    /// Resources of the kernel.
    pub fn attributes(&self) -> Attributes {
        self.0.attributes
    }

    /// Occupancy: resident blocks per multiprocessor.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn blocks_per_multiprocessor(&self) -> Result<u32> {
        self.module().context().bind_to_thread().named("cuCtxSetCurrent")?;
        let threads = self.block().iter().product::<u32>() as i32;
        let mut blocks = 0;
        // SAFETY: the function is loaded and its context is current. `check_block` has bounded the
        // threads.
        let code = unsafe {
            let shared = self.shared_bytes() as usize;
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, self.raw(), threads, shared)
        };
        code.named("cuOccupancyMaxActiveBlocksPerMultiprocessor")?;
        Ok(blocks.unsigned_abs())
    }

    /// Size of each parameter in bytes, where the driver reports it.
    pub(super) fn parameters(&self) -> Option<&[usize]> {
        self.0.parameters.as_deref()
    }

    /// The module of the function.
    pub(super) fn module(&self) -> &Module {
        &self.0.module
    }

    /// The driver's handle.
    pub(super) fn raw(&self) -> sys::CUfunction {
        self.0.handle
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Function").field(&self.entry()).field(&self.attributes()).finish()
    }
}

/// Checks that this GPU can run a block of the kernel.
fn check_block(image: &Image, attributes: &Attributes, info: &DeviceInfo) -> Result<(), String> {
    let [x, y, z] = image.block.map(u64::from);
    let threads = x.checked_mul(y).and_then(|xy| xy.checked_mul(z));
    let most = attributes.max_threads;
    if !threads.is_some_and(|threads| (1..=u64::from(most)).contains(&threads)) {
        return Err(format!("a block of {x}×{y}×{z} threads; with its registers the limit is 1 to {most}"));
    }
    let shared = u64::from(image.shared_bytes) + u64::from(attributes.static_shared_bytes);
    if shared > u64::from(info.shared_per_block) {
        return Err(format!(
            "a block needs {shared} bytes of shared memory; the limit of {} is {}",
            info.name, info.shared_per_block
        ));
    }
    Ok(())
}

/// Opts in to more than the default shared memory where a block needs it.
fn allow_shared(function: sys::CUfunction, dynamic: u32, fixed: u32) -> Result<()> {
    // Both are at most the shared memory of a multiprocessor, see `check_block`.
    if dynamic + fixed <= DEFAULT_SHARED_BYTES {
        return Ok(());
    }
    let which = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: the function is loaded and its context current.
    unsafe { sys::cuFuncSetAttribute(function, which, dynamic as i32) }.named("cuFuncSetAttribute")
}

fn attribute(function: sys::CUfunction, which: Attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the function is loaded, its context is current, and the driver writes one number.
    unsafe { sys::cuFuncGetAttribute(&mut value, which, function) }.named("cuFuncGetAttribute")?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// Size of each parameter, or `None` where the driver is too old to report it.
fn parameters(function: sys::CUfunction) -> Option<Vec<usize>> {
    if !driver::has("cuFuncGetParamInfo") {
        return None;
    }
    let size = |index| {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is loaded and its context is current. The driver refuses an index
        // past the last parameter.
        let code = unsafe { sys::cuFuncGetParamInfo(function, index, &mut offset, &mut size) };
        code.named("cuFuncGetParamInfo").ok().map(|()| size)
    };
    Some((0..).map_while(size).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        Image {
            entry: "k".into(),
            text: ".version 8.0".into(),
            shared_bytes: 0,
            block: [32, 8, 1],
            uses_griddep_wait: false,
        }
    }

    fn info() -> DeviceInfo {
        DeviceInfo {
            ordinal: 0,
            name: "a GPU".into(),
            compute: (9, 0),
            multiprocessors: 132,
            memory_bytes: 1 << 37,
            l2_bytes: 60 << 20,
            shared_per_block: 232_448,
            shared_per_multiprocessor: 233_472,
            registers_per_multiprocessor: 65_536,
            threads_per_block: 1024,
            threads_per_multiprocessor: 2048,
            clock_khz: 1_980_000,
            memory_bandwidth: 3_352_320,
            driver: (13, 0),
            memory_pools: true,
        }
    }

    #[test]
    fn different_images_have_different_slots() {
        let functions = FunctionCache::default();
        let all = [
            image(),
            Image { text: ".version 8.1".into(), ..image() },
            Image { entry: "l".into(), ..image() },
            Image { shared_bytes: 1, ..image() },
            Image { block: [8, 32, 1], ..image() },
        ];
        let slots = all.each_ref().map(|image| functions.slot(image));
        for (i, one) in slots.iter().enumerate() {
            assert_eq!(slots.iter().position(|other| Arc::ptr_eq(one, other)), Some(i));
            assert!(Arc::ptr_eq(one, &functions.slot(&all[i])));
        }
    }

    #[test]
    fn blocks_that_cannot_run_are_refused() {
        let attributes = Attributes { registers: 64, local_bytes: 0, static_shared_bytes: 448, max_threads: 512 };
        let check = |block, shared_bytes| check_block(&Image { block, shared_bytes, ..image() }, &attributes, &info());
        assert!(check([32, 16, 1], 232_000).is_ok());
        assert!(check([32, 16, 2], 0).unwrap_err().contains("1 to 512"));
        assert!(check([32, 0, 1], 0).is_err());
        assert!(check([u32::MAX; 3], 0).is_err());
        assert!(check([32, 16, 1], 232_001).unwrap_err().contains("232449 bytes"));
        assert!(check([32, 16, 1], u32::MAX).is_err());
    }
}
