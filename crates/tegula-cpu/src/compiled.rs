//! Products of each element type, compiled in this crate. Generic code would be compiled again in
//! every crate that calls it.

use tegula_core::element::{Element, for_each_operand_type};
use tegula_core::epilogue::Activation;
use tegula_core::error::Result;
use tegula_core::matrix::{Layout, Shape};

use crate::host_gemm::{HostGemm, HostMatrix, Workspace};
use crate::isa::Isa;
use crate::micro_kernel::CpuElement;
use crate::pack_source::PackSource;
use crate::packed_b::PackedB;
use crate::unblocked::multiply_small;
use crate::unpacked::UnpackedProduct;

/// [`HostGemm::run`] for an element type.
///
/// # Safety
/// As for [`HostGemm::run`].
pub type Multiply<'a, T> = unsafe fn(
    HostGemm<'a, <T as Element>::Acc>,
    HostMatrix<*const T>,
    HostMatrix<*const T>,
    HostMatrix<*mut <T as Element>::Out>,
    Option<HostMatrix<*mut <T as Element>::Out>>,
    Activation,
) -> Result<()>;

/// [`multiply_small`] for an element type.
///
/// # Safety
/// As for [`multiply_small`].
pub type MultiplySmall<T> = unsafe fn(Isa, &UnpackedProduct<T>) -> bool;

/// An element type whose products are compiled in this crate.
pub trait Compiled: CpuElement {
    /// [`HostGemm::run`].
    fn multiply<'a>() -> Multiply<'a, Self>;

    /// [`multiply_small`].
    fn multiply_small() -> MultiplySmall<Self>;

    /// [`HostGemm::workspace`].
    fn workspace(gemm: HostGemm<'_, Self::Acc>, layouts: [Layout; 3]) -> Result<Workspace>;

    /// [`PackedB::pack`].
    fn pack_b(isa: Isa, columns: PackSource<Self>, shape: Shape) -> Result<PackedB>;
}

macro_rules! compiled {
    ($($t:ty;)*) => {$(impl Compiled for $t {
        // Inlined into another crate, it would compile the product there.
        #[inline(never)]
        fn multiply<'a>() -> Multiply<'a, Self> {
            HostGemm::run::<$t>
        }

        #[inline(never)]
        fn multiply_small() -> MultiplySmall<Self> {
            multiply_small::<$t>
        }

        fn workspace(gemm: HostGemm<'_, Self::Acc>, layouts: [Layout; 3]) -> Result<Workspace> {
            gemm.workspace::<$t>(layouts)
        }

        fn pack_b(isa: Isa, columns: PackSource<Self>, shape: Shape) -> Result<PackedB> {
            PackedB::pack(isa, columns, shape)
        }
    })*};
}
for_each_operand_type!(compiled);
