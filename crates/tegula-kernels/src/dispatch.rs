//! Builders of the plain and the blocked kernels; each kernel is in its own file.

use tegula_core::error::{Error, Result};
use tegula_ir::MAX_THREADS;
use tegula_ir::prelude::*;

use super::blocked::{Blocked, Blocking, MathInstruction, Schedule};
use super::naive::naive;
use super::plain::{Plain, PlainKind};
use super::tiled::tiled;
use super::{dmma, limbs, mma, register};

impl Plain {
    /// Builds the kernel.
    ///
    /// # Errors
    /// [`Error::KernelOption`] for a tile beyond the block limit, an unsupported type, or an option
    /// that the kernel lacks.
    pub fn build(&self) -> Result<Kernel> {
        self.check()?;
        match self.kind {
            PlainKind::Naive => of_type!(self.ty, naive(self)),
            PlainKind::Tiled => of_type!(self.ty, tiled(self)),
        }
    }
}

impl Blocked {
    /// Builds the kernel.
    ///
    /// # Errors
    /// [`Error::KernelOption`] for an unsupported type, or a blocking that does not divide.
    pub fn build(&self) -> Result<Kernel> {
        self.epilogue.check(self.ty)?;
        let Blocking { block: [bm, bn, bk], warp: [wm, wn], stages, slices, blocks, .. } = self.blocking;
        let divides = |divisor: u32, extent: u32| divisor > 0 && extent.is_multiple_of(divisor);
        let is_valid = divides(wm, bm) && divides(wn, bn) && divides(slices, bk) && stages >= 2 && blocks >= 1;
        if !is_valid || self.blocking.threads() > MAX_THREADS || self.orders[2] == Order2d::ColMajor {
            return Err(Error::KernelOption(format!("invalid tiles in {self}: each must divide the next larger one")));
        }
        if self.schedule == Schedule::Grouped {
            return Err(Error::KernelOption(format!("{self}: only hopper kernels support grouped products")));
        }
        match (self.instruction, self.ty) {
            (MathInstruction::Fma, Type::F32) => register::build::<f32>(self),
            (MathInstruction::Fma, Type::F64) => register::build::<f64>(self),
            (MathInstruction::Fma, Type::I32) => register::build::<i32>(self),
            (MathInstruction::Dmma(mma @ (Mma::F64M8K4 | Mma::F64K4 | Mma::F64K8 | Mma::F64K16)), Type::F64) => {
                dmma::build(self, mma)
            }
            (MathInstruction::Mma(mma @ Mma::F16), Type::F16) => mma::build::<f16>(self, mma),
            (MathInstruction::Mma(mma @ Mma::BF16), Type::BF16) => mma::build::<bf16>(self, mma),
            (MathInstruction::Mma(mma @ Mma::TF32), Type::F32) => mma::build::<f32>(self, mma),
            (MathInstruction::Mma(mma @ Mma::I8), Type::I8) => mma::build::<i8>(self, mma),
            (MathInstruction::Limbs, Type::I32) => limbs::build(self),
            (MathInstruction::Dmma(_) | MathInstruction::Mma(_) | MathInstruction::Limbs, ty) => {
                Err(Error::KernelOption(format!("the Tensor Core instruction of {self} does not support {ty}")))
            }
            (MathInstruction::Fma, ty) => Err(Error::KernelOption(format!("register kernels do not support {ty}"))),
        }
    }
}
