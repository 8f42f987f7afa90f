//! Measurements of each element type, compiled in this crate.
//!
//! Generic code is compiled in the crate that names its types. The program `tegula` is hardly
//! optimized, and a short call would take twice as long there.

use tegula::Device;
use tegula::element::Element;
use tegula::error::Result;
use tegula_core::element::for_each_operand_type;

use crate::{BenchReport, Case, Peer, Settings, measure_inputs};

/// An element type whose products can be [measured](crate::measure).
pub trait Measured: Element {
    /// [`measure`](crate::measure).
    ///
    /// # Errors
    /// Those of [`measure`](crate::measure).
    fn measure(device: &Device, case: &Case<Self>, settings: &Settings, peer: &Peer) -> Result<BenchReport>;
}

macro_rules! measured {
    ($($t:ty;)*) => {$(impl Measured for $t {
        // Inlined into another crate, it would be compiled there.
        #[inline(never)]
        fn measure(device: &Device, case: &Case<$t>, settings: &Settings, peer: &Peer) -> Result<BenchReport> {
            measure_inputs(device, case, settings, peer)
        }
    })*};
}
for_each_operand_type!(measured);
