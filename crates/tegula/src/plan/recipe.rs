//! How kernels make a product: which kernel, of which of the matrices, in how many parts.

use super::choose::Lie;
use crate::element::Type;
use crate::error::{Error, Result};
use crate::ir::Order2d;
use crate::kernels::{Blocked, Plain, Sum, Variant};
use crate::matrix::Shape;

/// A product as launches of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recipe {
    /// The kernel that multiplies.
    pub kernel: Variant,
    /// Whether it makes Cᵀ = Bᵀ·Aᵀ.
    pub swapped: bool,
    /// In how many parts the sums along k are made. Parts of more than one go to a workspace, and a second kernel adds them.
    pub parts: u32,
}

impl<V: Into<Variant>> From<V> for Recipe {
    fn from(kernel: V) -> Self {
        Recipe { kernel: kernel.into(), swapped: false, parts: 1 }
    }
}

impl Recipe {
    /// The recipe of a name: of a plain kernel, or of one with blocks ([`Blocked::named`]), after which `:` and a number say in how
    /// many parts sums along k are made.
    ///
    /// # Errors
    /// [`Error::KernelOption`] that says what names there are.
    pub fn named(name: &str, ty: Type) -> Result<Self> {
        let blocks = ["register", "dmma", "mma_", "limbs_"].iter().any(|family| name.starts_with(family));
        if !blocks {
            return Ok(Plain { ty, ..Plain::named(name)? }.into());
        }
        let (kernel, parts) = name.split_once(':').unwrap_or((name, "1"));
        let number = parts.parse().ok().filter(|&parts| parts > 0);
        let parts = number.ok_or_else(|| Error::KernelOption(format!("{parts:?} is no number of parts")))?;
        Ok(Recipe { parts, ..Blocked::named(kernel, ty)?.into() })
    }

    /// The same for matrices that lie so: A, B and C.
    #[must_use]
    pub fn fit(self, lies: [Lie; 3]) -> Self {
        match self.kernel {
            Variant::Plain(plain) => {
                Recipe { kernel: Plain { orders: lies.map(|lie| lie.order), ..plain }.into(), ..self }
            }
            Variant::Blocked(blocked) => {
                let [a, b, c] = lies;
                // Kernels of blocks store rows; a C of columns is a Cᵀ of rows.
                let swapped = c.order == Order2d::ColMajor;
                let lies = if swapped { [b.transposed(), a.transposed(), c.transposed()] } else { lies };
                let split = self.parts > 1;
                let (mut orders, mut vectors) = (lies.map(|lie| lie.order), lies.map(|lie| lie.vectors));
                if split {
                    // The workspace is row-major, with rows of any length.
                    (orders[2], vectors[2]) = (Order2d::RowMajor, false);
                }
                Recipe { kernel: Blocked { orders, vectors, split, ..blocked }.into(), swapped, ..self }
            }
            Variant::Sum(_) => self,
        }
    }

    /// The name of what runs.
    pub fn name(&self) -> String {
        self.name_with(&self.kernel.name())
    }

    /// The name, given the kernel's.
    pub(crate) fn name_with(&self, kernel: &str) -> String {
        match (self.parts, self.swapped) {
            (1, false) => kernel.into(),
            (1, true) => format!("{kernel}_swapped"),
            (parts, false) => format!("{kernel}_{parts}"),
            (parts, true) => format!("{kernel}_{parts}_swapped"),
        }
    }

    /// Whether the kernel takes A and B, after they were swapped, transposed.
    pub fn turned(&self) -> [bool; 2] {
        match self.kernel {
            Variant::Blocked(blocked) => blocked.turned(),
            Variant::Plain(_) | Variant::Sum(_) => [false; 2],
        }
    }

    /// A and B as the kernel takes them, given what transposes one.
    pub fn inputs<T>(&self, [a, b]: [T; 2], transposed: impl Fn(T) -> T) -> [T; 2] {
        let [a, b] = if self.swapped { [transposed(b), transposed(a)] } else { [a, b] };
        let [a_turned, b_turned] = self.turned();
        [if a_turned { transposed(a) } else { a }, if b_turned { transposed(b) } else { b }]
    }

    /// C as the kernel takes it, given what transposes it.
    pub fn output<T>(&self, c: T, transposed: impl Fn(T) -> T) -> T {
        if self.swapped { transposed(c) } else { c }
    }

    /// The shape of the workspace, for a C that lies as the kernel takes it.
    pub fn workspace(&self, c: Shape) -> Option<Shape> {
        (self.parts > 1).then(|| Shape { batches: c.batches.saturating_mul(self.parts as usize), ..c })
    }

    /// The kernel that adds the parts, for a C that lies so as the kernels take it.
    pub fn sum(&self, c: Lie) -> Variant {
        Variant::Sum(Sum { ty: self.kernel.ty(), order: c.order })
    }
}
