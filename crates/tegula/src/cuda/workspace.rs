//! Memory for the parts of sums, and flags, kept from product to product: a second product allocates nothing, and can be recorded.

use std::marker::PhantomData;
use std::sync::PoisonError;

use cudarc::driver::sys;

use super::driver::Named;
use super::gpu::Gpu;
use super::kept::{Kept, Kind};
use super::memory::allocate;
use crate::error::{Error, Result};
use crate::matrix::DeviceMemory;

impl Gpu {
    /// Memory of so many elements for the next work on this handle's stream.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], and [`Error::Capture`] where it would have to be allocated while work is recorded.
    pub(super) fn workspace(&self, elements: usize, size: usize, kind: Kind) -> Result<DeviceMemory<'_>> {
        let bytes = elements as u128 * size as u128;
        let mut all = self.workspaces().0.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = self.raw_stream() as usize;
        // The driver does not say the number while work is recorded, but then the stream has been there since its first product.
        let number = if self.is_capturing()? { None } else { Some(number_of(self)?) };
        let here = all.iter().filter(|kept| {
            kept.kind == kind && kept.stream == stream && number.is_none_or(|number| number == kept.number)
        });
        let most = here.clone().map(|kept| kept.bytes).max().unwrap_or(0);
        let fitting = here.filter(|kept| kept.bytes >= bytes).map(|kept| kept.address).next_back();
        let address = match fitting {
            Some(address) => address,
            None => {
                let roomy = bytes.max(2 * most).max(kind.least());
                let (address, bytes) = match allocate(self, roomy) {
                    Ok(address) => (address, roomy),
                    Err(Error::OutOfMemory { .. }) => (allocate(self, bytes)?, bytes),
                    Err(error) => return Err(error),
                };
                let number = number.map_or_else(|| number_of(self), Ok)?;
                all.push(Kept { kind, stream, number, address, bytes });
                if kind == Kind::Zeros {
                    // SAFETY: the context is current since the allocation, and so many bytes lie there.
                    let code = unsafe { sys::cuMemsetD8Async(address, 0, bytes as usize, self.raw_stream()) };
                    if let Err(error) = code.named("cuMemsetAsync") {
                        // What is not zero is for nobody; it is freed with the rest.
                        all.last_mut().into_iter().for_each(|kept| kept.kind = Kind::Any);
                        return Err(error);
                    }
                }
                address
            }
        };
        Ok(DeviceMemory { address, len: elements, ordinal: self.ordinal(), home: self.home(), owner: PhantomData })
    }
}

/// The number of a handle's stream.
fn number_of(gpu: &Gpu) -> Result<u64> {
    let mut number = 0;
    // SAFETY: the stream is alive, and the driver stores a number.
    unsafe { sys::cuStreamGetId(gpu.raw_stream(), &mut number) }.named("cuStreamGetId")?;
    Ok(number)
}
