//! Work that is captured once and then queued as a whole: what a launch costs the host is paid before anything is timed.

use cudarc::driver::sys::{self, CUstreamCaptureMode};

use super::driver::Named;
use super::gpu::Gpu;
use crate::error::Result;

/// Captured work.
#[derive(Debug)]
pub(super) struct Graph {
    gpu: Gpu,
    exec: sys::CUgraphExec,
}

impl Gpu {
    /// Captures what `queue` queues on this handle, none of which runs.
    ///
    /// # Errors
    /// What `queue` and the driver say.
    pub(super) fn capture(&self, queue: impl FnOnce() -> Result<()>) -> Result<Graph> {
        self.bind()?;
        // Relaxed: libraries may allocate and load while they queue.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the context is current and the stream alive.
        unsafe { sys::cuStreamBeginCapture_v2(self.raw_stream(), mode) }.named("cuStreamBeginCapture")?;
        let queued = queue();
        let mut graph = std::ptr::null_mut();
        // SAFETY: the capture was begun above, on this stream; the driver stores a graph, or null where the capture broke.
        let ended = unsafe { sys::cuStreamEndCapture(self.raw_stream(), &mut graph) }.named("cuStreamEndCapture");
        let made = queued.and(ended).and_then(|()| {
            let mut exec = std::ptr::null_mut();
            // SAFETY: the graph is the one just captured; the driver stores what it makes of it.
            unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0) }.named("cuGraphInstantiate")?;
            Ok(Graph { gpu: self.clone(), exec })
        });
        if !graph.is_null() {
            // SAFETY: the graph is ours and not used again; what was made of it is a copy. Nothing follows from a failure.
            let _ = unsafe { sys::cuGraphDestroy(graph) };
        }
        made
    }
}

impl Graph {
    /// Queues the captured work.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// The memory that the captured work uses has to be alive until the work is done, and nothing on another stream may use it
    /// meanwhile.
    pub(super) unsafe fn launch(&self) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: graph and stream are alive and of one context; the rest is the caller's promise.
        unsafe { sys::cuGraphLaunch(self.exec, self.gpu.raw_stream()) }.named("cuGraphLaunch")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: it is ours and destroyed once; the driver waits where it is still at work.
            let _ = unsafe { sys::cuGraphExecDestroy(self.exec) };
        }
    }
}
