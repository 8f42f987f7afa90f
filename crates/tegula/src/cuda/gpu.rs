//! The handle of a GPU: a context, and a stream for queued work.

use std::fmt;
use std::sync::{Arc, Mutex};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, sys};
use smallvec::SmallVec;

use super::driver::{self, DeviceInfo, Named};
use super::function::FunctionCache;
use super::staging::StagingBuffers;
use super::workspace_pool::WorkspacePool;
use crate::error::{Error, Result};
use crate::matrix::{DeviceMemory, HomeStream};

/// A GPU with a stream for queued work. Clones are cheap and share all state.
///
/// Threads may share a handle. (A handle with the *per-thread* default stream must stay on one
/// thread, since the driver resolves that stream per thread.)
#[derive(Clone)]
pub struct Gpu {
    state: Arc<ContextState>,
    functions: Arc<FunctionCache>,
    stream: Arc<CudaStream>,
}

/// State shared by a handle and its clones, those with another stream included.
struct ContextState {
    info: DeviceInfo,
    context: Arc<CudaContext>,
    staging: Mutex<Option<StagingBuffers>>,
    /// The event that orders one stream after another, created at the first use. A wait refers to
    /// the latest record before it, so one event serves all pairs. The lock spans record and wait.
    order_event: Mutex<Option<CudaEvent>>,
    workspaces: WorkspacePool,
}

impl Drop for ContextState {
    fn drop(&mut self) {
        driver::bind_to_release(&self.context);
        self.workspaces.free();
    }
}

/// The home streams of a launch's memory, without the stream of the launch itself.
pub(super) type HomeStreams = SmallVec<[Arc<CudaStream>; 3]>;

impl Gpu {
    /// Opens `cuda:N` through its primary context, with a new stream.
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::NoSuchGpu`], or errors of the driver.
    pub fn open(ordinal: usize) -> Result<Self> {
        driver::device(ordinal)?;
        let context = CudaContext::new(ordinal).named("cuDevicePrimaryCtxRetain")?;
        // For the first stream of a handle, cudarc waits for all work of the context, to track
        // earlier allocations. The driver refuses that during a stream capture, and this handle has
        // no allocation yet. SAFETY: the handle is new and not shared, so no slice loses its
        // tracking.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().named("cuStreamCreate");
        // SAFETY: as above.
        unsafe { context.enable_event_tracking() };
        Self::new(context, stream?)
    }

    /// A handle for a context of the caller, on its default stream.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn from_context(context: Arc<CudaContext>) -> Result<Self> {
        let stream = context.default_stream();
        Self::new(context, stream)
    }

    fn new(context: Arc<CudaContext>, stream: Arc<CudaStream>) -> Result<Self> {
        driver::init()?;
        let info = DeviceInfo::of(context.cu_device(), context.ordinal())?;
        let state = ContextState {
            info,
            context,
            staging: Mutex::default(),
            order_event: Mutex::default(),
            workspaces: WorkspacePool::default(),
        };
        Ok(Gpu { state: Arc::new(state), functions: Arc::default(), stream })
    }

    /// A handle that queues its work on a stream of the caller.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] where the stream is not of this context.
    pub fn with_stream(&self, stream: Arc<CudaStream>) -> Result<Self> {
        self.same_context(stream.context(), "the stream")?;
        Ok(Gpu { stream, ..self.clone() })
    }

    /// Properties of this GPU.
    pub fn info(&self) -> &DeviceInfo {
        &self.state.info
    }

    /// The ordinal of the GPU: the N of `cuda:N`.
    pub fn ordinal(&self) -> usize {
        self.state.info.ordinal
    }

    /// The workspace pool of this handle and its clones.
    pub(super) fn workspaces(&self) -> &WorkspacePool {
        &self.state.workspaces
    }

    /// The context.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.state.context
    }

    /// The stream for queued work.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Waits until all work queued on this handle's stream is complete.
    ///
    /// # Errors
    /// Errors of the driver, including the failure of a kernel that was queued earlier.
    pub fn synchronize(&self) -> Result<()> {
        self.stream.synchronize().named("cuStreamSynchronize")
    }

    /// Orders later work on this stream after all work already queued on the stream of `other`.
    ///
    /// The host does not wait.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn wait_for(&self, other: &Gpu) -> Result<()> {
        self.order_after(&self.stream, &other.stream)
    }

    /// Queues work that uses memory with other home streams, ordered by events.
    ///
    /// The work starts after all work already queued on the home streams. Work queued there later,
    /// the release of the memory included, starts after it. The host does not wait. Memory whose
    /// home is this stream costs nothing.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for memory of another context; errors of the driver and of `work`.
    /// The error of `work` is returned even if the events after it fail too.
    pub fn submit_in_order<R>(&self, memory: &[DeviceMemory<'_>], work: impl FnOnce() -> Result<R>) -> Result<R> {
        let other_homes = self.wait_for_homes(memory)?;
        let done = work();
        // Signal even after a failure, which may have queued a part. The error of the work wins.
        let signaled = self.signal_homes(&other_homes);
        done.and_then(|done| signaled.map(|()| done))
    }

    /// Orders later work on this stream after all work already queued on the memory's home streams.
    ///
    /// Returns the home streams other than this stream, for [`signal_homes`](Self::signal_homes).
    pub(super) fn wait_for_homes(&self, memory: &[DeviceMemory<'_>]) -> Result<HomeStreams> {
        let other_homes = self.other_home_streams(memory)?;
        other_homes.iter().try_for_each(|other| self.order_after(&self.stream, other))?;
        Ok(other_homes)
    }

    /// Orders later work on the other home streams after all work already queued on this stream.
    pub(super) fn signal_homes(&self, other_homes: &HomeStreams) -> Result<()> {
        other_homes.iter().try_for_each(|other| self.order_after(other, &self.stream))
    }

    /// Orders later work on the stream `later` after all work already queued on `earlier`.
    fn order_after(&self, later: &CudaStream, earlier: &CudaStream) -> Result<()> {
        // Locked until the wait: another thread's record would change what the wait refers to.
        let mut order_event = self.state.order_event.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let event = match &*order_event {
            Some(event) => event,
            None => order_event.insert(self.context().new_event(None).named("cuEventCreate")?),
        };
        event.record(earlier).named("cuEventRecord")?;
        later.wait(event).named("cuStreamWaitEvent")
    }

    /// The home streams of the memory, other than this handle's stream.
    pub(super) fn other_home_streams(&self, memory: &[DeviceMemory<'_>]) -> Result<HomeStreams> {
        let here = self.home();
        let mut homes: SmallVec<[HomeStream; 3]> = SmallVec::new();
        for memory in memory {
            let home = memory.home();
            if home.context != here.context {
                return Err(self.device_mismatch("the matrix", memory.ordinal()));
            }
            if home != here && !homes.contains(&home) {
                homes.push(home);
            }
        }
        // SAFETY: the homes are of this context, as checked above. The callers drop the streams
        // while the memory is borrowed.
        Ok(homes.into_iter().map(|home| unsafe { self.stream_of(home) }).collect())
    }

    /// The stream of a home.
    ///
    /// # Safety
    /// The home is of this context. Memory with this home stays borrowed while the stream is alive.
    unsafe fn stream_of(&self, home: HomeStream) -> Arc<CudaStream> {
        let handle = std::ptr::with_exposed_provenance_mut(home.stream as usize);
        // SAFETY: the caller's promise: the stream is of this context, and lives while memory with
        // this home is borrowed.
        unsafe { self.context().wrap_borrowed_stream(handle) }
    }

    /// This GPU with the home stream of memory of `cuda:{ordinal}`, where work on it needs no
    /// events.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for the home of another context.
    ///
    /// # Safety
    /// The memory stays borrowed while the handle or a clone of it is alive.
    pub(super) unsafe fn on_home_stream(&self, home: HomeStream, ordinal: usize) -> Result<Self> {
        if home.context != self.home().context {
            return Err(self.device_mismatch("the matrix", ordinal));
        }
        // SAFETY: the context was checked; the caller's promise covers the rest.
        let stream = unsafe { self.stream_of(home) };
        Ok(Gpu { stream, ..self.clone() })
    }

    /// The home stream of memory allocated with this handle.
    pub(super) fn home(&self) -> HomeStream {
        HomeStream {
            context: self.context().cu_ctx().expose_provenance() as u64,
            stream: self.stream.cu_stream().expose_provenance() as u64,
        }
    }

    /// Makes the context current on the calling thread, as almost every driver call requires.
    #[doc(hidden)]
    pub fn bind(&self) -> Result<()> {
        self.context().bind_to_thread().named("cuCtxSetCurrent")
    }

    /// The driver's handle of the stream.
    #[doc(hidden)]
    pub fn raw_stream(&self) -> sys::CUstream {
        self.stream.cu_stream()
    }

    /// The cache of loaded functions.
    pub(super) fn functions(&self) -> &FunctionCache {
        &self.functions
    }

    /// Runs a copy through the staging buffers, which the first call allocates. After a failed copy
    /// it waits, so that the buffers are idle for the next copy.
    pub(super) fn with_staging<R>(&self, copy: impl FnOnce(&mut StagingBuffers) -> Result<R>) -> Result<R> {
        self.refuse_capture(|| "a matrix is copied between the host and the GPU".into())?;
        let mut staging = self.state.staging.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let staging = match &mut *staging {
            Some(staging) => staging,
            none => none.insert(StagingBuffers::new(self.context())?),
        };
        let done = copy(staging);
        if done.is_err() {
            // Report the error of the copy.
            let _ = self.stream.synchronize();
        }
        done
    }

    /// Refuses an object of another context.
    #[doc(hidden)]
    pub fn same_context(&self, context: &CudaContext, what: &str) -> Result<()> {
        if context.cu_ctx() == self.context().cu_ctx() {
            return Ok(());
        }
        Err(self.device_mismatch(what, context.ordinal()))
    }

    fn device_mismatch(&self, what: &str, ordinal: usize) -> Error {
        let owner = match ordinal == self.ordinal() {
            true => format!("another context of cuda:{ordinal}"),
            false => format!("cuda:{ordinal}"),
        };
        Error::DeviceMismatch { what: what.into(), owner, gpu: format!("cuda:{}", self.ordinal()) }
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{} ({})", self.ordinal(), self.info().name)
    }
}
