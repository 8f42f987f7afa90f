//! Points in a stream's work, and the time between two of them.

use cudarc::driver::CudaEvent;
use cudarc::driver::sys::CUevent_flags;

use super::driver::Named;
use super::gpu::Gpu;
use crate::error::Result;

/// A point in a stream's work.
#[derive(Debug)]
pub struct Event(CudaEvent);

impl Event {
    /// Waits until the work before it is done.
    ///
    /// # Errors
    /// What the driver says, which includes the failure of a kernel that was queued earlier.
    pub fn wait(&self) -> Result<()> {
        self.0.synchronize().named("cuEventSynchronize")
    }

    /// Waits for both events and gives the seconds from `earlier` to this one, to about half a microsecond.
    ///
    /// # Errors
    /// What the driver says.
    pub fn seconds_since(&self, earlier: &Event) -> Result<f64> {
        earlier.0.elapsed_ms(&self.0).named("cuEventElapsedTime").map(|ms| f64::from(ms) / 1e3)
    }
}

impl Gpu {
    /// Marks this point in the stream's work.
    ///
    /// # Errors
    /// What the driver says.
    pub fn record(&self) -> Result<Event> {
        let event = self.context().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).named("cuEventCreate")?;
        event.record(self.stream()).named("cuEventRecord")?;
        Ok(Event(event))
    }

    /// The seconds that the GPU takes for what `queue` queues on this handle. Waits for it to be done.
    ///
    /// # Errors
    /// What `queue` and the driver say.
    pub fn time(&self, queue: impl FnOnce() -> Result<()>) -> Result<f64> {
        let start = self.record()?;
        queue()?;
        self.record()?.seconds_since(&start)
    }
}
