//! Loading of images as functions: from the cache in memory, else by the driver.

use std::time::Instant;

use tegula_ir::ptx::Image;

use super::assemble::assemble;
use super::function::{Function, LoadSource, lock};
use super::gpu::Gpu;
use crate::error::Result;

impl Gpu {
    /// Loads a kernel once, also when several threads load it at the same time.
    ///
    /// The driver assembles it, or reads it from its cache on disk
    /// ([`cache_directory`](super::cache_directory)). The look-up hashes the whole text, so keep
    /// the function for frequent launches.
    ///
    /// # Errors
    /// - [`Error::Assemble`](crate::Error::Assemble) with the assembler's logs.
    /// - [`Error::Launch`](crate::Error::Launch) for a block that this GPU cannot run.
    /// - [`Error::Capture`](crate::Error::Capture) during a stream capture, when drivers cannot
    ///   load.
    pub fn load(&self, image: &Image) -> Result<(Function, LoadSource)> {
        let slot = self.functions().slot(image);
        let mut slot = lock(&slot);
        if let Some(function) = &*slot {
            return Ok((function.clone(), LoadSource::Memory));
        }
        self.refuse_capture(|| format!("kernel {} is not loaded yet", image.entry))?;
        let start = Instant::now();
        let function = Function::new(self.info(), assemble(self.context(), image)?, image)?;
        tracing::info!(kernel = %image.entry, elapsed = ?start.elapsed(), gpu = ?self, "kernel loaded");
        Ok((slot.insert(function).clone(), LoadSource::Driver))
    }
}
