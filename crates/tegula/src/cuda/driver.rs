//! The driver library: initialization, device queries, and conversion of its errors.
//!
//! The lowest file of the module: it does not depend on contexts, memory or kernels.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};
use cudarc::driver::{CudaContext, DriverError};

use super::library;
use crate::error::{Error, Result};

/// Every driver function that this module calls, itself or through cudarc. None is newer than CUDA
/// 12.0.
///
/// cudarc resolves each function at its first call and panics where it is missing. So all are
/// resolved once, before the first call.
const NEEDED: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuMemAllocAsync",
    "cuMemAlloc_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD16Async",
    "cuMemsetD32Async",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleGetGlobal_v2",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamGetId",
    "cuStreamIsCapturing",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuTensorMapEncodeTiled",
    "cuThreadExchangeStreamCaptureMode",
];

/// Opens and initializes the driver, once per process.
pub(super) fn init() -> Result<()> {
    static STATE: OnceLock<Result<(), String>> = OnceLock::new();
    STATE.get_or_init(start).clone().map_err(|why| Error::NoDriver { why })
}

fn start() -> Result<(), String> {
    library::open()?;
    if let Some(name) = NEEDED.iter().find(|name| !has(name)) {
        return Err(format!("the driver library lacks {name}; CUDA 12.0 or later is required"));
    }
    // SAFETY: the function exists, and 0 is the only valid flag.
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(format!("cuInit failed: {} (CUDA error {})", text(code), code as i32)),
    }
}

/// Whether the driver library has a function. Call it only after the library was opened.
pub(super) fn has(name: &str) -> bool {
    // SAFETY: the symbol is looked up and never called or read.
    unsafe { sys::culib().get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_ok()
}

/// Converts a result of the driver, with the name of the called function.
pub(super) trait Named<T> {
    /// The value, or an error with the name `call`.
    ///
    /// That is [`Error::Capture`] for the codes of stream capture, else [`Error::Driver`].
    fn named(self, call: &'static str) -> Result<T>;
}

impl<T> Named<T> for Result<T, DriverError> {
    fn named(self, call: &'static str) -> Result<T> {
        self.map_err(|DriverError(code)| match code as i32 {
            900..=908 => Error::Capture { why: format!("{call} failed: {}", text(code)) },
            number => Error::Driver { call, code: number, message: text(code) },
        })
    }
}

impl Named<()> for CUresult {
    fn named(self, call: &'static str) -> Result<()> {
        self.result().named(call)
    }
}

/// Makes a context current for a destructor, so that an earlier error does not leak memory.
///
/// cudarc reports an error of an earlier destructor once, in place of its next call. That error is
/// kept for the caller's next call.
pub(super) fn bind_to_release(context: &CudaContext) {
    if let Err(earlier) = context.bind_to_thread() {
        // If this fails as well, the context is most likely current, or lost with its memory.
        let _ = context.bind_to_thread();
        context.record_err(Err::<(), _>(earlier));
    }
}

/// The driver's name and description of an error.
fn text(code: CUresult) -> String {
    let ask = |f: unsafe fn(CUresult, *mut *const c_char) -> CUresult| {
        let mut text = std::ptr::null();
        // SAFETY: the driver stores a pointer to a static text, or reports failure.
        unsafe {
            let found = f(code, &mut text) == CUresult::CUDA_SUCCESS && !text.is_null();
            found.then(|| CStr::from_ptr(text).to_string_lossy())
        }
    };
    let name = ask(sys::cuGetErrorName).unwrap_or_else(|| format!("{code:?}").into());
    match ask(sys::cuGetErrorString) {
        Some(description) => format!("{name}: {description}"),
        None => name.into_owned(),
    }
}

/// Properties of a GPU, as the driver reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The N of `cuda:N`.
    pub ordinal: usize,
    /// The product name.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute: (u32, u32),
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Global memory in bytes.
    pub memory_bytes: u64,
    /// L2 cache in bytes.
    pub l2_bytes: u32,
    /// Largest shared memory per block in bytes, with the opt-in beyond 48 KiB.
    pub shared_per_block: u32,
    /// Shared memory per multiprocessor in bytes.
    pub shared_per_multiprocessor: u32,
    /// 32-bit registers per multiprocessor.
    pub registers_per_multiprocessor: u32,
    /// Most threads of a block.
    pub threads_per_block: u32,
    /// Most resident threads of a multiprocessor.
    pub threads_per_multiprocessor: u32,
    /// Maximum clock rate in kHz.
    pub clock_khz: u32,
    /// Peak bandwidth of global memory in megabytes (10^6) per second; 0 if unknown.
    pub memory_bandwidth: u32,
    /// The newest CUDA version that the driver supports, major and minor.
    pub driver: (u32, u32),
    /// Whether memory pools allow stream-ordered allocation.
    pub memory_pools: bool,
}

impl DeviceInfo {
    /// Queries the driver for a device.
    pub(super) fn of(device: sys::CUdevice, ordinal: usize) -> Result<Self> {
        let get = |which| attribute(device, which);
        Ok(DeviceInfo {
            ordinal,
            name: name(device)?,
            compute: (
                get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            memory_bytes: memory_bytes(device)?,
            l2_bytes: get(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            shared_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            shared_per_multiprocessor: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
            registers_per_multiprocessor: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
            threads_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            threads_per_multiprocessor: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            clock_khz: get(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            memory_bandwidth: memory_bandwidth(
                get(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?,
                get(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
            ),
            driver: driver_version()?,
            memory_pools: get(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0,
        })
    }
}

/// Peak bandwidth in megabytes per second of double-data-rate memory, by its clock in kHz and the
/// bits of its bus.
fn memory_bandwidth(clock_khz: u32, bus_bits: u32) -> u32 {
    (2 * u64::from(clock_khz) * u64::from(bus_bits) / 8 / 1000).try_into().unwrap_or(u32::MAX)
}

/// The GPUs of this machine, in the driver's order.
///
/// # Errors
/// [`Error::NoDriver`] without a usable driver, which includes a driver that detects no GPU.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    (0..count()?).map(|ordinal| DeviceInfo::of(device(ordinal)?, ordinal)).collect()
}

/// The newest CUDA version that the driver supports, major and minor.
///
/// # Errors
/// [`Error::NoDriver`] without a usable driver.
pub fn driver_version() -> Result<(u32, u32)> {
    init()?;
    let mut version = 0;
    // SAFETY: the driver is initialized and writes one number.
    unsafe { sys::cuDriverGetVersion(&mut version) }.named("cuDriverGetVersion")?;
    let version = version.unsigned_abs();
    Ok((version / 1000, version % 1000 / 10))
}

/// The device handle of a GPU ordinal, or [`Error::NoSuchGpu`].
pub(super) fn device(ordinal: usize) -> Result<sys::CUdevice> {
    let count = count()?;
    let number = i32::try_from(ordinal).ok().filter(|_| ordinal < count);
    let number = number.ok_or(Error::NoSuchGpu { ordinal, count })?;
    let mut device = 0;
    // SAFETY: the driver is initialized and writes one number.
    unsafe { sys::cuDeviceGet(&mut device, number) }.named("cuDeviceGet")?;
    Ok(device)
}

fn count() -> Result<usize> {
    init()?;
    let mut count = 0;
    // SAFETY: the driver is initialized and writes one number.
    unsafe { sys::cuDeviceGetCount(&mut count) }.named("cuDeviceGetCount")?;
    Ok(usize::try_from(count).unwrap_or(0))
}

fn attribute(device: sys::CUdevice, which: Attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: `device` came from the driver, which writes one number.
    unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) }.named("cuDeviceGetAttribute")?;
    Ok(u32::try_from(value).unwrap_or(0))
}

fn name(device: sys::CUdevice) -> Result<String> {
    let mut bytes = [0u8; 256];
    // SAFETY: `device` came from the driver, which writes at most the given number of bytes.
    unsafe { sys::cuDeviceGetName(bytes.as_mut_ptr().cast(), bytes.len() as i32, device) }.named("cuDeviceGetName")?;
    Ok(text_until_nul(&bytes))
}

fn memory_bytes(device: sys::CUdevice) -> Result<u64> {
    let mut bytes = 0;
    // SAFETY: `device` came from the driver, which writes one number.
    unsafe { sys::cuDeviceTotalMem_v2(&mut bytes, device) }.named("cuDeviceTotalMem")?;
    Ok(bytes as u64)
}

/// The C string in a buffer that a C function filled.
pub(super) fn text_until_nul(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|&byte| byte == 0).next().unwrap_or(bytes)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_driver_is_an_error() {
        match devices() {
            Ok(list) => assert!(list.iter().enumerate().all(|(i, info)| info.ordinal == i)),
            Err(Error::NoDriver { why }) => assert!(!why.is_empty()),
            Err(other) => panic!("expected NoDriver, found {other}"),
        }
    }

    #[test]
    fn unknown_ordinal_is_an_error() {
        match device(99) {
            Err(Error::NoSuchGpu { ordinal: 99, count }) => assert!(count < 99),
            Err(Error::NoDriver { .. }) => {}
            other => panic!("expected NoSuchGpu, found {other:?}"),
        }
    }

    /// A call of a function outside `NEEDED` would panic on a driver that lacks it.
    #[test]
    fn needed_lists_every_driver_function_called() {
        let sources = [
            include_str!("assemble.rs"),
            include_str!("driver.rs"),
            include_str!("foreign.rs"),
            include_str!("graph.rs"),
            include_str!("function.rs"),
            include_str!("launch.rs"),
            include_str!("memory.rs"),
            include_str!("staging.rs"),
        ];
        let optional = ["cuFuncGetParamInfo"];
        for source in sources {
            for call in source.split("sys::cu").skip(1) {
                let rest = call.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
                let name = format!("cu{rest}");
                let known = NEEDED.contains(&name.as_str()) || optional.contains(&name.as_str()) || name == "culib";
                assert!(known || rest.is_empty(), "{name} is called and not in NEEDED");
            }
        }
    }

    #[test]
    fn texts_end_at_the_first_nul() {
        assert_eq!(text_until_nul(b"NVIDIA H200\0\0\0"), "NVIDIA H200");
        assert_eq!(text_until_nul(b"full"), "full");
    }

    /// The clock and the bus of an H100 and of an H200.
    #[test]
    fn memory_bandwidth_is_that_of_two_transfers_a_clock() {
        assert_eq!(memory_bandwidth(2_619_000, 5120), 3_352_320);
        assert_eq!(memory_bandwidth(3_201_000, 6016), 4_814_304);
        assert_eq!(memory_bandwidth(0, 5120), 0);
    }
}
