//! A product of matrices on the host: batches, threads, and which instruction set for how many
//! rows.

use tegula_core::element::Type;
use tegula_core::epilogue::Activation;
use tegula_core::error::Result;
use tegula_core::matrix::{Layout, Shape, check_product, check_work};
use tegula_core::progress::Meter;
use tegula_core::threads;

use crate::blocked::{Product, scale_all};
use crate::buffer::{Buffer, Shared};
use crate::epilogue::Ending;
use crate::grid::Grid;
use crate::isa::Isa;
use crate::kernel::{Operand, Sum};
use crate::panels::Panels;
use crate::source::Source;
use crate::way::{Question, Way};

/// Below so many multiplications the threads of the pool are left alone: waking them would cost
/// more than they save. Miri, which looks for races, is too slow for large ones.
const SMALL: usize = if cfg!(miri) { 1 << 8 } else { 1 << 20 };

/// What a product takes besides its matrices.
pub struct Workspace {
    /// Whether sums are made in C itself.
    pub in_place: bool,
    /// Bytes of packed blocks and sums, on all threads.
    pub bytes: u128,
}

/// A matrix on the host: the address of position 0 of its layout.
pub struct Host<P> {
    pub memory: P,
    pub layout: Layout,
}

impl<P> Host<P> {
    fn t(self) -> Self {
        Host { layout: self.layout.transposed(), ..self }
    }
}

/// What a product is besides its matrices.
#[derive(Clone, Copy)]
pub struct Scaled<'a, S> {
    pub isa: Isa,
    pub alpha: S,
    pub beta: S,
    pub panels: Option<&'a Panels>,
    pub meter: Option<&'a Meter<'a>>,
}

impl<S: Sum> Scaled<'_, S> {
    /// Multiplies batch after batch with all threads, or where one product is too small for that,
    /// each thread its own batches.
    ///
    /// # Safety
    /// The elements of A, B and the bias, a matrix like C, may be read meanwhile, those of C are
    /// distinct and nobody else's.
    pub unsafe fn run<T: Operand<Acc = S>>(
        self,
        a: Host<*const T>,
        b: Host<*const T>,
        c: Host<*mut T::Out>,
        bias: Option<Host<*mut T::Out>>,
        activation: Activation,
    ) -> Result<()> {
        check_product(a.layout.shape, b.layout.shape, c.layout.shape)?;
        if c.layout.shape.is_empty() {
            return Ok(());
        }
        if self.alpha != S::ZERO {
            check_work(c.layout.shape, a.layout.shape.cols)?;
        }
        let turned = has_columns(&c.layout);
        let (a, b, c, bias) = if turned { (b.t(), a.t(), c.t(), bias.map(Host::t)) } else { (a, b, c, bias) };
        let Shape { batches, rows: m, cols: n } = c.layout.shape;
        let k = a.layout.shape.cols;
        let (parallel, apart) = threading([m, n, k], batches);
        let isa = isa_for::<T>(self.isa, m);
        let of_b = Shape { rows: k, ..c.layout.shape };
        let panels = |batch| usable::<T>(self.panels, turned, isa, of_b, batch);
        // SAFETY: the caller's promise.
        let (a, b) = unsafe { (Source::rows(a.memory, a.layout), Source::rows(b.memory, b.layout.transposed())) };
        let c = Grid::new(c.memory, c.layout);
        let bias = bias.map(|bias| Grid::new(bias.memory, bias.layout));
        let ending = Ending { isa: self.isa, bias, activation };
        let tiles = T::tiles(isa);
        let asked = Question {
            sizes: [m, n, k],
            factors: [self.alpha, self.beta],
            a: a.strides(),
            b: b.strides(),
            c_col: c.col(),
            panels: panels(0).is_some(),
            threads: if parallel { threads::count() } else { 1 },
        };
        let one = |batch| {
            let (a, b, c, ending) = (a.batch(batch), b.batch(batch), c.batch(batch), ending.batch(batch));
            let Scaled { alpha, beta, meter, .. } = self;
            // SAFETY: the caller's promise for C, of which each batch is written once. `isa` is one that the
            // machine has.
            unsafe {
                if k == 0 || alpha == S::ZERO {
                    scale_all::<T>(m, n, beta, ending, c);
                    return Ok(());
                }
                let way = Way::of::<T>(&tiles, &asked);
                let panels = panels(batch);
                Product { sizes: [m, n, k], alpha, a, b, panels, beta, c, ending, meter }.run(&tiles, &way)
            }
        };
        if apart { threads::for_each(batches, one) } else { (0..batches).try_for_each(one) }
    }

    /// What a product of matrices that lie so takes.
    pub fn workspace<T: Operand<Acc = S>>(self, [a, b, c]: [Layout; 3]) -> Result<Workspace> {
        let k = a.shape.cols;
        let turned = has_columns(&c);
        let (a, b, c) = if turned { (b.transposed(), a.transposed(), c.transposed()) } else { (a, b, c) };
        let Shape { batches, rows: m, cols: n } = c.shape;
        let sizes = [m, n, k];
        if c.shape.is_empty() || k == 0 || self.alpha == S::ZERO {
            return Ok(Workspace { in_place: true, bytes: 0 });
        }
        check_work(c.shape, k)?;
        let isa = isa_for::<T>(self.isa, m);
        let (tiles, (parallel, apart)) = (T::tiles(isa), threading(sizes, batches));
        let way = Way::of::<T>(
            &tiles,
            &Question {
                sizes,
                factors: [self.alpha, self.beta],
                a: [a.strides[1], a.strides[2]],
                b: [b.strides[2], b.strides[1]],
                c_col: c.strides[2],
                panels: usable::<T>(self.panels, turned, isa, Shape { rows: k, ..c.shape }, 0).is_some(),
                threads: if parallel { threads::count() } else { 1 },
            },
        );
        let bytes = way.room::<T>(&tiles, sizes).map(|extents| Buffer::<S>::bytes(&extents));
        let bytes = bytes.into_iter().fold(0, u128::saturating_add);
        let at_a_time = if apart { threads::count().min(batches) } else { 1 };
        Ok(Workspace { in_place: way.in_place, bytes: bytes.saturating_mul(at_a_time as u128) })
    }
}

/// Whether all threads work on each product, and whether each has products of its own.
fn threading([m, n, k]: [usize; 3], batches: usize) -> (bool, bool) {
    let work = m.saturating_mul(n).saturating_mul(k);
    let parallel = work >= SMALL;
    (parallel, !parallel && work.saturating_mul(batches) >= SMALL)
}

/// The instruction set for so many rows: a few are better multiplied by vectors than by tiles that
/// are mostly empty.
fn isa_for<T: Operand>(isa: Isa, rows: usize) -> Isa {
    let few = if T::TYPE == Type::I32 { 16 } else { 4 };
    if isa == Isa::Amx && rows <= few { Isa::Vnni } else { isa }
}

/// The micro-kernels write rows. Where C has columns instead, the transposed product has the same
/// sums in the same order.
fn has_columns(c: &Layout) -> bool {
    c.strides[1] == 1 && c.strides[2] != 1
}

/// The panels of B's matrix in a batch, where they can be read: they are those of B as it was
/// given, and of one kind of tiles.
fn usable<T: Operand>(
    panels: Option<&Panels>,
    turned: bool,
    isa: Isa,
    b: Shape,
    batch: usize,
) -> Option<Shared<T::Acc>> {
    panels.filter(|_| !turned).and_then(|panels| panels.of::<T>(isa, b, batch))
}
