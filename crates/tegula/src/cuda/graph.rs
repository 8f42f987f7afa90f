//! CUDA graphs: work captured from a stream, to be launched repeatedly by one call.

use std::fmt;

use cudarc::driver::sys::{self, CUgraphInstantiate_flags, CUstreamCaptureMode, CUstreamCaptureStatus};
use cudarc::driver::{CudaGraph, CudaStream};

use super::driver::{Named, bind_to_release};
use super::gpu::Gpu;
use crate::error::{Error, Result};
use crate::matrix::DeviceMemory;

/// An executable graph of work captured by [`Gpu::capture`].
pub struct Graph {
    graph: CudaGraph,
}

// SAFETY: the driver requires one thread at a time for a graph, which may change; `Graph` is not
// `Sync`.
unsafe impl Send for Graph {}

impl Gpu {
    /// Captures the work that `work` queues on this handle's stream, instead of running it. No
    /// other work may use the stream meanwhile.
    ///
    /// Products of matrices in GPU memory, launches and fills can be captured. Synchronous work
    /// cannot: loading a kernel (so run each product once before), allocating, copying from or to
    /// the host, waiting. This stream must be the home stream of the matrices. Memory borrowed from
    /// cudarc ([`Gpu::borrow`]) must be borrowed before the capture and returned after it. The
    /// default stream of cudarc cannot be captured.
    ///
    /// Products also work on a stream that the caller captures by other means, in any mode.
    ///
    /// ```no_run
    /// # use tegula::cuda::{DeviceMatrix, Gpu};
    /// # use tegula::{Device, Gemm, Shape};
    /// let gpu = Gpu::open(0)?;
    /// let (device, shape) = (Device::from(gpu.clone()), Shape::new(512, 512));
    /// let a = DeviceMatrix::<f32>::zeros(&gpu, shape)?;
    /// let b = DeviceMatrix::<f32>::zeros(&gpu, shape)?;
    /// let mut c = DeviceMatrix::uninit(&gpu, shape)?;
    /// let mut multiply =
    ///     || Gemm::new(a.view(), b.view(), c.view_mut()).on(&device).run().map(drop);
    /// multiply()?;
    /// let graph = gpu.capture(multiply)?;
    /// // SAFETY: a, b and c are alive, and all that uses them is on one stream.
    /// unsafe { graph.launch() }?;
    /// println!("{:?}", c.download()?);
    /// # Ok::<(), tegula::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Capture`] for work that cannot be captured, and errors of `work`; the capture has
    /// ended then.
    pub fn capture(&self, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        if self.raw_stream().is_null() {
            return Err(Error::Capture {
                why: "the default stream cannot be captured; use a handle with another stream".into(),
            });
        }
        self.capture_with_mode(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, work)
    }

    /// [`Gpu::capture`] for work of other libraries, which may allocate and load modules meanwhile.
    #[doc(hidden)]
    pub fn capture_foreign(&self, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        self.capture_with_mode(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED, work)
    }

    fn capture_with_mode(&self, mode: CUstreamCaptureMode, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        self.stream().begin_capture(mode).named("cuStreamBeginCapture")?;
        let guard = CaptureGuard(self);
        let done = work();
        let graph = guard.end();
        done?;
        graph
    }

    /// Whether this handle's stream is being captured.
    pub(super) fn is_capturing(&self) -> Result<bool> {
        is_capturing(self.stream())
    }

    /// Whether this handle's stream, or a home stream of the memory, is being captured.
    pub(crate) fn is_capturing_any(&self, memory: &[DeviceMemory<'_>]) -> Result<bool> {
        let homes = self.other_home_streams(memory)?;
        homes.iter().try_fold(self.is_capturing()?, |any, home| Ok(any || is_capturing(home)?))
    }

    /// Refuses work that cannot be captured, before the driver does and invalidates the capture.
    pub(super) fn refuse_capture(&self, what: impl FnOnce() -> String) -> Result<()> {
        if self.is_capturing()? { Err(Error::Capture { why: what() }) } else { Ok(()) }
    }
}

/// While it lives, this thread may allocate and load modules although streams are captured that its
/// work does not use: by this thread, or by another one in global mode. Otherwise the driver would
/// refuse that and invalidate these captures.
pub(crate) struct BesideCaptures(CUstreamCaptureMode);

impl BesideCaptures {
    pub(crate) fn begin() -> Result<Self> {
        exchange_capture_mode(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).map(BesideCaptures)
    }
}

impl Drop for BesideCaptures {
    fn drop(&mut self) {
        // Where this fails, as `begin` did not, the context is lost.
        let _ = exchange_capture_mode(self.0);
    }
}

/// Sets the capture mode of this thread; returns the one before.
fn exchange_capture_mode(mut mode: CUstreamCaptureMode) -> Result<CUstreamCaptureMode> {
    // SAFETY: the driver is loaded, since there is a GPU, and reads and writes one mode.
    unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) }.result().named("cuThreadExchangeStreamCaptureMode")?;
    Ok(mode)
}

fn is_capturing(stream: &CudaStream) -> Result<bool> {
    let status = stream.capture_status().named("cuStreamIsCapturing")?;
    Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

/// A capture in progress, which a panic ends as well.
struct CaptureGuard<'a>(&'a Gpu);

impl CaptureGuard<'_> {
    fn end(self) -> Result<Graph> {
        // Where this fails, `drop` ends the capture: cudarc may have failed before the call to the
        // driver.
        let graph = self.0.stream().end_capture(CUgraphInstantiate_flags(0)).named("cuStreamEndCapture")?;
        std::mem::forget(self);
        graph.map(|graph| Graph { graph }).ok_or_else(|| Error::Capture { why: "the driver captured nothing".into() })
    }
}

impl Drop for CaptureGuard<'_> {
    fn drop(&mut self) {
        // The captured work is discarded, so a failure changes nothing. The stream must leave
        // capture mode.
        bind_to_release(self.0.context());
        let _ = self.0.stream().end_capture(CUgraphInstantiate_flags(0));
    }
}

impl Graph {
    /// Launches the captured work on the stream that it was captured from, without waiting.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// # Safety
    /// The work uses the captured addresses and numbers. The matrices must stay alive at their
    /// addresses until the work is complete. Other work that uses them must be ordered with that
    /// stream. The captured functions must stay loaded.
    pub unsafe fn launch(&self) -> Result<()> {
        self.graph.launch().named("cuGraphLaunch")
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").finish_non_exhaustive()
    }
}
