//! Images become functions: looked up in memory, else loaded by the driver.

use std::time::Instant;

use tegula_ir::ptx::Image;

use super::assemble::assemble;
use super::gpu::Gpu;
use super::image::{Function, Source, lock};
use crate::error::Result;

impl Gpu {
    /// Loads a kernel, once: several threads that ask for the same kernel at once get the same one.
    /// The driver assembles it, or has it in its cache on disk
    /// ([`cache_directory`](super::cache_directory)). The look-up reads the whole text, so whoever
    /// launches often keeps the function.
    ///
    /// # Errors
    /// [`Error::Assemble`](crate::Error::Assemble) with the assembler's logs;
    /// [`Error::Launch`](crate::Error::Launch) for a block that this GPU cannot run;
    /// [`Error::Capture`](crate::Error::Capture) while a stream is captured, since drivers load
    /// nothing then.
    pub fn load(&self, image: &Image) -> Result<(Function, Source)> {
        let slot = self.images().slot(image);
        let mut slot = lock(&slot);
        if let Some(function) = &*slot {
            return Ok((function.clone(), Source::Memory));
        }
        self.refuse_capture(|| format!("kernel {} is not loaded yet", image.entry))?;
        let start = Instant::now();
        let function = Function::new(self.info(), assemble(self.context(), image)?, image)?;
        tracing::info!(kernel = %image.entry, elapsed = ?start.elapsed(), gpu = ?self, "kernel loaded");
        Ok((slot.insert(function).clone(), Source::Driver))
    }
}
