//! Events in a stream, and the time between two of them.

use cudarc::driver::CudaEvent;
use cudarc::driver::sys::CUevent_flags;

use super::driver::Named;
use super::gpu::Gpu;
use crate::error::Result;

/// An event in a stream.
#[derive(Debug)]
pub struct Event(CudaEvent);

impl Event {
    /// Waits until the work queued before the event is complete.
    ///
    /// # Errors
    /// Errors of the driver, including the failure of a kernel that was queued earlier.
    pub fn wait(&self) -> Result<()> {
        self.0.synchronize().named("cuEventSynchronize")
    }

    /// Waits for both events and returns the time from `earlier` to this event in seconds.
    ///
    /// The resolution is about half a microsecond.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn seconds_since(&self, earlier: &Event) -> Result<f64> {
        earlier.0.elapsed_ms(&self.0).named("cuEventElapsedTime").map(|ms| f64::from(ms) / 1e3)
    }
}

impl Gpu {
    /// Records an event in the stream.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn record(&self) -> Result<Event> {
        let event = self.context().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).named("cuEventCreate")?;
        event.record(self.stream()).named("cuEventRecord")?;
        Ok(Event(event))
    }

    /// Runs `queue`, waits, and returns the time of the work that it queued on this stream, in
    /// seconds.
    ///
    /// # Errors
    /// Errors of `queue` and of the driver.
    pub fn time(&self, queue: impl FnOnce() -> Result<()>) -> Result<f64> {
        let start = self.record()?;
        queue()?;
        self.record()?.seconds_since(&start)
    }
}
