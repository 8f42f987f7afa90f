//! Builds the plain kernels and the blocked ones, each family in its own file.

use tegula_core::error::{Error, Result};
use tegula_ir::MAX_THREADS;
use tegula_ir::prelude::*;

use super::blocked::{Blocked, Blocking, Core, Schedule};
use super::naive::naive;
use super::plain::{Family, Plain};
use super::tiled::tiled;
use super::{dmma, limbs, mma, register};

impl Plain {
    /// Builds the kernel.
    ///
    /// # Errors
    /// [`Error::KernelOption`] for a tile the block limit forbids, a type without kernels, or an option the kernel lacks.
    pub fn build(&self) -> Result<Kernel> {
        self.check()?;
        match self.family {
            Family::Naive => of_type!(self.ty, naive(self)),
            Family::Tiled => of_type!(self.ty, tiled(self)),
        }
    }
}

impl Blocked {
    /// Builds the kernel.
    ///
    /// # Errors
    /// [`Error::KernelOption`] for a type without such kernels or a blocking that does not divide.
    pub fn build(&self) -> Result<Kernel> {
        self.epilogue.check(self.ty)?;
        let Blocking { block: [bm, bn, bk], warp: [wm, wn], stages, slices, blocks, .. } = self.blocking;
        let divides = |part: u32, whole: u32| part > 0 && whole.is_multiple_of(part);
        let sound = divides(wm, bm) && divides(wn, bn) && divides(slices, bk) && stages >= 2 && blocks >= 1;
        if !sound || self.blocking.threads() > MAX_THREADS || self.orders[2] == Order2d::ColMajor {
            return Err(Error::KernelOption(format!("the tiles of {self} do not divide each other")));
        }
        if self.schedule == Schedule::Groups {
            return Err(Error::KernelOption(format!("{self}: groups are for hopper kernels")));
        }
        match (self.core, self.ty) {
            (Core::Register, Type::F32) => register::build::<f32>(self),
            (Core::Register, Type::F64) => register::build::<f64>(self),
            (Core::Register, Type::I32) => register::build::<i32>(self),
            (Core::Dmma(mma @ (Mma::F64M8K4 | Mma::F64K4 | Mma::F64K8 | Mma::F64K16)), Type::F64) => {
                dmma::build(self, mma)
            }
            (Core::Mma(mma @ Mma::F16), Type::F16) => mma::build::<f16>(self, mma),
            (Core::Mma(mma @ Mma::BF16), Type::BF16) => mma::build::<bf16>(self, mma),
            (Core::Mma(mma @ Mma::TF32), Type::F32) => mma::build::<f32>(self, mma),
            (Core::Mma(mma @ Mma::I8), Type::I8) => mma::build::<i8>(self, mma),
            (Core::Limbs, Type::I32) => limbs::build(self),
            (Core::Dmma(_) | Core::Mma(_) | Core::Limbs, ty) => {
                Err(Error::KernelOption(format!("there is no such matrix instruction of {ty}")))
            }
            (Core::Register, ty) => Err(Error::KernelOption(format!("there are no register tiles of {ty}"))),
        }
    }
}
