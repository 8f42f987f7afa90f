//! Products by element type, compiled once: what is generic is compiled again in every crate that
//! calls it.

use tegula_core::element::{Element, for_each_operand_type};
use tegula_core::epilogue::Activation;
use tegula_core::error::Result;
use tegula_core::matrix::{Layout, Shape};

use crate::isa::Isa;
use crate::kernel::Operand;
use crate::panels::Panels;
use crate::scaled::{Host, Scaled, Workspace};
use crate::source::Source;

/// [`Scaled::run`] for an element type.
///
/// # Safety
/// As there.
pub type Multiply<'a, T> = unsafe fn(
    Scaled<'a, <T as Element>::Acc>,
    Host<*const T>,
    Host<*const T>,
    Host<*mut <T as Element>::Out>,
    Option<Host<*mut <T as Element>::Out>>,
    Activation,
) -> Result<()>;

/// An element type whose products are compiled in this crate.
pub trait Compiled: Operand {
    /// [`Scaled::run`].
    fn multiply<'a>() -> Multiply<'a, Self>;

    /// [`Scaled::workspace`].
    fn workspace(scaled: Scaled<'_, Self::Acc>, layouts: [Layout; 3]) -> Result<Workspace>;

    /// [`Panels::pack`].
    fn panels(isa: Isa, columns: Source<Self>, shape: Shape) -> Result<Panels>;
}

macro_rules! compiled {
    ($($t:ty;)*) => {$(impl Compiled for $t {
        // Inlined elsewhere, it would have the product compiled there.
        #[inline(never)]
        fn multiply<'a>() -> Multiply<'a, Self> {
            Scaled::run::<$t>
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
