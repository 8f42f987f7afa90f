//! The handle of a GPU: a context and the stream that work is queued on.

use std::fmt;
use std::sync::{Arc, Mutex};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, sys};
use smallvec::SmallVec;

use super::driver::{self, DeviceInfo, Named};
use super::image::Images;
use super::kept::Workspaces;
use super::staging::Staging;
use crate::error::{Error, Result};
use crate::matrix::{DeviceMemory, Home};

/// A GPU, and the stream that work for it is queued on. Clones are cheap and share everything.
///
/// A handle may be used from any thread at the same time. (Only a handle with the *per-thread* default stream, if that
/// was asked for, has to stay on one thread: the driver resolves that stream anew on each thread.)
#[derive(Clone)]
pub struct Gpu {
    device: Arc<Device>,
    images: Arc<Images>,
    stream: Arc<CudaStream>,
}

/// What all handles of one context share.
struct Device {
    info: DeviceInfo,
    context: Arc<CudaContext>,
    staging: Mutex<Option<Staging>>,
    /// What one stream records and another waits for, made when it is first needed. A wait keeps to the record that it found, so
    /// one event does for all.
    turn: Mutex<Option<CudaEvent>>,
    workspaces: Workspaces,
}

impl Drop for Device {
    fn drop(&mut self) {
        driver::bind_to_release(&self.context);
        self.workspaces.free();
    }
}

/// The streams that memory of a launch is at home on.
pub(super) type Homes = SmallVec<[Arc<CudaStream>; 3]>;

impl Gpu {
    /// Opens `cuda:N` through its primary context, with a stream of its own.
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::NoSuchGpu`], or what the driver says.
    pub fn open(ordinal: usize) -> Result<Self> {
        driver::device(ordinal)?;
        let context = CudaContext::new(ordinal).named("cuDevicePrimaryCtxRetain")?;
        // With the first stream of a handle, cudarc waits for all work of the context, so that what was allocated before can be tracked. The
        // driver refuses that while anybody captures a stream, and this handle has nothing yet.
        // SAFETY: the handle is new and nobody else's: there is no slice whose uses would go untracked.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().named("cuStreamCreate");
        // SAFETY: as above.
        unsafe { context.enable_event_tracking() };
        Self::new(context, stream?)
    }

    /// Works in a context that the caller has, on its default stream.
    ///
    /// # Errors
    /// What the driver says.
    pub fn from_context(context: Arc<CudaContext>) -> Result<Self> {
        let stream = context.default_stream();
        Self::new(context, stream)
    }

    fn new(context: Arc<CudaContext>, stream: Arc<CudaStream>) -> Result<Self> {
        driver::init()?;
        let info = DeviceInfo::of(context.cu_device(), context.ordinal())?;
        let device = Device {
            info,
            context,
            staging: Mutex::default(),
            turn: Mutex::default(),
            workspaces: Workspaces::default(),
        };
        Ok(Gpu { device: Arc::new(device), images: Arc::default(), stream })
    }

    /// A handle that queues its work on a stream the caller has.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] where the stream is not of this context.
    pub fn with_stream(&self, stream: Arc<CudaStream>) -> Result<Self> {
        self.same_context(stream.context(), "the stream")?;
        Ok(Gpu { stream, ..self.clone() })
    }

    /// What the driver says of this GPU.
    pub fn info(&self) -> &DeviceInfo {
        &self.device.info
    }

    /// The N of `cuda:N`.
    pub fn ordinal(&self) -> usize {
        self.device.info.ordinal
    }

    /// The workspaces of the context.
    pub(super) fn workspaces(&self) -> &Workspaces {
        &self.device.workspaces
    }

    /// The context.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.device.context
    }

    /// The stream that work is queued on.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Waits until everything queued on this handle's stream is done.
    ///
    /// # Errors
    /// What the driver says, which includes the failure of a kernel that was queued earlier.
    pub fn synchronize(&self) -> Result<()> {
        self.stream.synchronize().named("cuStreamSynchronize")
    }

    /// Lets what is queued here later start only after what is queued on `other` now. The host does not wait.
    ///
    /// # Errors
    /// What the driver says.
    pub fn wait_for(&self, other: &Gpu) -> Result<()> {
        self.put_after(&self.stream, &other.stream)
    }

    /// Queues work that uses memory whose home may be another stream: the work starts after what is queued there on the
    /// memory, and what is queued there later, the memory's release included, starts after the work. The host does not
    /// wait, and memory at home on this handle's stream costs nothing.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] for memory of another context; what `work` and the driver say.
    pub fn ordered<R>(&self, memory: &[DeviceMemory<'_>], work: impl FnOnce() -> Result<R>) -> Result<R> {
        let others = self.begin(memory)?;
        let done = work();
        self.end(&others)?;
        done
    }

    /// Lets what is queued from now on start after what is queued at the other homes of memory. [`end`](Self::end) takes what
    /// this returns.
    pub(super) fn begin(&self, memory: &[DeviceMemory<'_>]) -> Result<Homes> {
        let others = self.other_homes(memory)?;
        others.iter().try_for_each(|other| self.put_after(&self.stream, other))?;
        Ok(others)
    }

    /// Lets what is queued at other homes from now on start after what is queued here.
    pub(super) fn end(&self, others: &Homes) -> Result<()> {
        others.iter().try_for_each(|other| self.put_after(other, &self.stream))
    }

    /// Lets what is queued on `later` from now on start after what is queued on `earlier` now.
    fn put_after(&self, later: &CudaStream, earlier: &CudaStream) -> Result<()> {
        let mut turn = self.device.turn.lock().unwrap_or_else(|broken| broken.into_inner());
        let event = match &*turn {
            Some(event) => event,
            None => turn.insert(self.context().new_event(None).named("cuEventCreate")?),
        };
        event.record(earlier).named("cuEventRecord")?;
        later.wait(event).named("cuStreamWaitEvent")
    }

    /// The streams, other than this handle's, that these pieces of memory are at home on.
    fn other_homes(&self, memory: &[DeviceMemory<'_>]) -> Result<Homes> {
        let here = self.home();
        let mut homes: SmallVec<[Home; 3]> = SmallVec::new();
        for piece in memory {
            let home = piece.home();
            if home.context != here.context {
                return Err(self.elsewhere("the matrix", piece.ordinal()));
            }
            if home != here && !homes.contains(&home) {
                homes.push(home);
            }
        }
        // SAFETY: the memory is borrowed for longer than the streams are kept; the caller puts their work in order with the result.
        Ok(homes.into_iter().map(|home| unsafe { self.stream_of(home) }).collect())
    }

    /// A home's stream.
    ///
    /// # Safety
    /// The home is of this context, and memory whose home it is stays borrowed for as long as the stream is kept.
    unsafe fn stream_of(&self, home: Home) -> Arc<CudaStream> {
        let handle = std::ptr::with_exposed_provenance_mut(home.stream as usize);
        // SAFETY: a home's stream outlives the borrow of its memory, and belongs to this context.
        unsafe { self.context().wrap_borrowed_stream(handle) }
    }

    /// This GPU with the stream that memory of `cuda:{ordinal}` is at home on, where work on it needs no events.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] for the home of another context.
    ///
    /// # Safety
    /// The memory stays borrowed for as long as the handle or a copy of it is kept.
    pub(super) unsafe fn at_home(&self, home: Home, ordinal: usize) -> Result<Self> {
        if home.context != self.home().context {
            return Err(self.elsewhere("the matrix", ordinal));
        }
        // SAFETY: the context was checked, the rest is the caller's promise.
        let stream = unsafe { self.stream_of(home) };
        Ok(Gpu { stream, ..self.clone() })
    }

    /// The home of memory allocated with this handle.
    pub(super) fn home(&self) -> Home {
        Home {
            context: self.context().cu_ctx().expose_provenance() as u64,
            stream: self.stream.cu_stream().expose_provenance() as u64,
        }
    }

    /// Makes the context current on the calling thread, as nearly every driver call needs.
    #[doc(hidden)]
    pub fn bind(&self) -> Result<()> {
        self.context().bind_to_thread().named("cuCtxSetCurrent")
    }

    /// The driver's handle of the stream.
    #[doc(hidden)]
    pub fn raw_stream(&self) -> sys::CUstream {
        self.stream.cu_stream()
    }

    /// The kernels that are loaded.
    pub(super) fn images(&self) -> &Images {
        &self.images
    }

    /// Runs a copy through the staging memory, which is made at the first call. A copy that fails is waited for, so that
    /// the next one finds the staging memory idle.
    pub(super) fn staged<R>(&self, copy: impl FnOnce(&mut Staging) -> Result<R>) -> Result<R> {
        self.refuse_capture(|| "a matrix is copied between the host and the GPU".into())?;
        let mut staging = self.device.staging.lock().unwrap_or_else(|broken| broken.into_inner());
        let staging = match &mut *staging {
            Some(staging) => staging,
            none => none.insert(Staging::new(self.context())?),
        };
        let done = copy(staging);
        if done.is_err() {
            // The copy's own error is the one to report.
            let _ = self.stream.synchronize();
        }
        done
    }

    /// Refuses what belongs to another context.
    #[doc(hidden)]
    pub fn same_context(&self, context: &CudaContext, what: &str) -> Result<()> {
        if context.cu_ctx() == self.context().cu_ctx() {
            return Ok(());
        }
        Err(self.elsewhere(what, context.ordinal()))
    }

    fn elsewhere(&self, what: &str, ordinal: usize) -> Error {
        let owner = match ordinal == self.ordinal() {
            true => format!("another context of cuda:{ordinal}"),
            false => format!("cuda:{ordinal}"),
        };
        Error::Elsewhere { what: what.into(), owner, gpu: format!("cuda:{}", self.ordinal()) }
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{} ({})", self.ordinal(), self.info().name)
    }
}
