//! Work recorded from a stream into a CUDA graph, to be queued again and again at the cost of one call.

use std::fmt;

use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode, CUstreamCaptureStatus};

use super::driver::{Named, bind_to_release};
use super::gpu::Gpu;
use crate::error::{Error, Result};

/// Work that [`Gpu::capture`] has recorded.
pub struct Graph {
    graph: CudaGraph,
}

// SAFETY: the driver wants one thread at a time for a graph, not always the same one; a `Graph` is not `Sync`.
unsafe impl Send for Graph {}

impl Gpu {
    /// Records what `work` queues on this handle's stream instead of running it. Nothing else may use the stream meanwhile.
    ///
    /// Products of matrices that lie on the GPU, launches and fills can be recorded. What the driver has to do at once cannot:
    /// loading a kernel, so run each product once before; allocating, copying from or to the host, waiting. Matrices are to be at
    /// home on this stream, and what is borrowed from cudarc ([`Gpu::borrow`]) is to be borrowed before and returned after.
    /// The stream that cudarc calls the default one cannot be recorded.
    ///
    /// A stream that the caller records with other means, in whatever mode, takes products in the same way.
    ///
    /// ```no_run
    /// # use tegula::cuda::{DeviceMatrix, Gpu};
    /// # use tegula::{Device, Gemm, Shape};
    /// let gpu = Gpu::open(0)?;
    /// let (device, shape) = (Device::from(gpu.clone()), Shape::new(512, 512));
    /// let (a, b) = (DeviceMatrix::<f32>::zeros(&gpu, shape)?, DeviceMatrix::<f32>::zeros(&gpu, shape)?);
    /// let mut c = DeviceMatrix::uninit(&gpu, shape)?;
    /// let mut multiply = || Gemm::new(a.view(), b.view(), c.view_mut()).on(&device).run().map(drop);
    /// multiply()?;
    /// let graph = gpu.capture(multiply)?;
    /// // SAFETY: a, b and c are alive, and all that uses them is on one stream.
    /// unsafe { graph.launch() }?;
    /// println!("{:?}", c.download()?);
    /// # Ok::<(), tegula::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Capture`] for work that cannot be recorded, and what `work` says; the stream is an ordinary one again then.
    pub fn capture(&self, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        if self.raw_stream().is_null() {
            return Err(Error::Capture {
                why: "it is queued on the default stream; take a handle with another".into(),
            });
        }
        self.record_graph(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, work)
    }

    /// [`Gpu::capture`] of other libraries' work, which may allocate and load while it is queued.
    #[doc(hidden)]
    pub fn capture_foreign(&self, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        self.record_graph(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED, work)
    }

    fn record_graph(&self, mode: CUstreamCaptureMode, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        self.stream().begin_capture(mode).named("cuStreamBeginCapture")?;
        let recording = Recording(self);
        let done = work();
        let graph = recording.end();
        done?;
        graph
    }

    /// Whether what is queued on this handle's stream is recorded instead of run.
    pub(super) fn is_capturing(&self) -> Result<bool> {
        let status = self.stream().capture_status().named("cuStreamIsCapturing")?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Refuses what cannot be recorded, before the driver does and spoils the recording.
    pub(super) fn refuse_capture(&self, what: impl FnOnce() -> String) -> Result<()> {
        if self.is_capturing()? { Err(Error::Capture { why: what() }) } else { Ok(()) }
    }
}

/// A recording under way; a panic ends it too.
struct Recording<'a>(&'a Gpu);

impl Recording<'_> {
    fn end(self) -> Result<Graph> {
        // Where this fails, `drop` ends what may still be under way: cudarc may have failed before it came to that.
        let graph = self.0.stream().end_capture(CUgraphInstantiate_flags(0)).named("cuStreamEndCapture")?;
        std::mem::forget(self);
        graph.map(|graph| Graph { graph }).ok_or_else(|| Error::Capture { why: "the driver recorded nothing".into() })
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        // What was recorded is of no use, and a failure to end it no more than another reason. A stream that goes on recording
        // would be of no use either.
        bind_to_release(self.0.context());
        let _ = self.0.stream().end_capture(CUgraphInstantiate_flags(0));
    }
}

impl Graph {
    /// Queues the recorded work on the stream that it was recorded from, once more; nothing waits.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// The work runs on the addresses and numbers that were recorded. So the matrices have to be alive, where they were, until
    /// the work is done; what else uses them has to be ordered with that stream; and functions that were launched have to be loaded.
    pub unsafe fn launch(&self) -> Result<()> {
        self.graph.launch().named("cuGraphLaunch")
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").finish_non_exhaustive()
    }
}
