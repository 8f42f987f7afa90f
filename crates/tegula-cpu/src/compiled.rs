//! Products by element type, compiled once: what is generic is compiled again in every crate that
//! calls it.

use tegula_core::element::for_each_operand_type;
use tegula_core::epilogue::Activation;
use tegula_core::error::Result;
use tegula_core::matrix::{Layout, Shape};

use crate::isa::Isa;
use crate::kernel::Operand;
use crate::panels::Panels;
use crate::scaled::{Host, Scaled, Workspace};
use crate::source::Source;

/// An element type whose products are compiled in this crate.
pub trait Compiled: Operand {
    /// [`Scaled::run`].
    ///
    /// # Safety
    /// As there.
    unsafe fn multiply(
        scaled: Scaled<'_, Self::Acc>,
        a: Host<*const Self>,
        b: Host<*const Self>,
        c: Host<*mut Self::Out>,
        bias: Option<Host<*mut Self::Out>>,
        activation: Activation,
    ) -> Result<()>;

    /// [`Scaled::workspace`].
    fn workspace(scaled: Scaled<'_, Self::Acc>, layouts: [Layout; 3]) -> Result<Workspace>;

    /// [`Panels::pack`].
    fn panels(isa: Isa, columns: Source<Self>, shape: Shape) -> Result<Panels>;
}

macro_rules! compiled {
    ($($t:ty;)*) => {$(impl Compiled for $t {
        unsafe fn multiply(
            scaled: Scaled<'_, Self::Acc>,
            a: Host<*const Self>,
            b: Host<*const Self>,
            c: Host<*mut Self::Out>,
            bias: Option<Host<*mut Self::Out>>,
            activation: Activation,
        ) -> Result<()> {
            // SAFETY: the caller's promise.
            unsafe { scaled.run::<$t>(a, b, c, bias, activation) }
        }

        fn workspace(scaled: Scaled<'_, Self::Acc>, layouts: [Layout; 3]) -> Result<Workspace> {
            scaled.workspace::<$t>(layouts)
        }

        fn panels(isa: Isa, columns: Source<Self>, shape: Shape) -> Result<Panels> {
            Panels::pack(isa, columns, shape)
        }
    })*};
}
for_each_operand_type!(compiled);
