//! B packed once, for many products.

use tegula_core::error::Result;
use tegula_core::matrix::Shape;

use super::buffer::{Buffer, Shared};
use super::isa::Isa;
use super::kernel::{Operand, Tiles};
use super::source::Source;
use super::way::blocks;

/// Every panel of B: run after run of KC steps, in each all columns, packed as a product would.
#[derive(Debug)]
pub struct Panels {
    /// The instruction set whose tiles read them.
    isa: Isa,
    shape: Shape,
    /// Bytes of a matrix.
    each: usize,
    room: Buffer<i8>,
}

impl Panels {
    /// Packs the columns of as many matrices as the shape of B says, none of them empty.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](tegula_core::Error::OutOfMemory) where there is no room.
    pub fn pack<T: Operand>(isa: Isa, b: Source<T>, shape: Shape) -> Result<Panels> {
        let tiles = T::tiles(isa);
        let Shape { batches, rows: k, cols: n } = shape;
        let of_runs = k / tiles.kc * tiles.steps(tiles.kc) + tiles.steps(k % tiles.kc);
        let of_matrix = [of_runs, n.next_multiple_of(tiles.lanes), size_of::<T::Acc>()];
        let mut room = Buffer::<i8>::new("packed B", &[batches, of_matrix[0], of_matrix[1], of_matrix[2]])?;
        // The buffer holds all of it, so no offset into it overflows.
        let each = of_matrix.iter().product();
        let start = room.start();
        for batch in 0..batches {
            let b = b.batch(batch);
            let matrix = start.at(batch * each).cast::<T::Acc>();
            for depth in blocks(0..k, tiles.kc) {
                for cols in blocks(0..n, tiles.block[1]) {
                    let width = cols.len().next_multiple_of(tiles.lanes);
                    let to = matrix.wrapping_add(place(&tiles, n, depth.start, cols.start, tiles.steps(depth.len())));
                    // SAFETY: these columns and steps are in the matrix, every panel has a place of its own, and the machine has the instruction set.
                    unsafe { (tiles.pack[1])(b, cols, depth.clone(), width, to) };
                }
            }
        }
        Ok(Panels { isa, shape, each, room })
    }

    /// The panels of a matrix, if they are of this shape and for these tiles; where there is one matrix, it is that of every batch.
    pub fn of<T: Operand>(&self, isa: Isa, shape: Shape, batch: usize) -> Option<Shared<T::Acc>> {
        let fits = self.isa == isa && [self.shape.rows, self.shape.cols] == [shape.rows, shape.cols];
        let batch = if self.shape.batches == 1 { 0 } else { batch };
        (fits && batch < self.shape.batches).then(|| self.room.shared().from(batch * self.each).cast())
    }

    /// Bytes they take.
    pub fn bytes(&self) -> usize {
        self.each * self.shape.batches
    }
}

/// Where a panel begins, in packed values: its run of k, of so many steps, and its first column.
pub fn place<T: Operand>(tiles: &Tiles<T>, n: usize, k: usize, col: usize, steps: usize) -> usize {
    k / tiles.kc * tiles.steps(tiles.kc) * n.next_multiple_of(tiles.lanes) + col * steps
}

#[cfg(test)]
mod tests {
    use tegula_bench::oracle;
    use tegula_core::element::{Element, Scalar, Type, with_operand_type};
    use tegula_core::epilogue::Finish;
    use tegula_core::matrix::{Layout, View, ViewMut};

    use super::super::{gemm_told, prepack_as};
    use super::*;

    /// A product with B packed before is within the bound, whatever the rows and batches, also through a second matrix of the same shape.
    fn all<T: crate::compiled::Compiled>() {
        let number = |x: usize| {
            let small = (x.wrapping_mul(2_654_435_761) >> 7) % 13;
            if T::TYPE.is_int() { T::from_bits(small as u64) } else { T::narrow_from(small as f64 / 4.0 - 1.5) }
        };
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let cases = [
                (1, 1, [1, 7, 1]),
                (2, 2, [3, 9, 5]),
                (2, 2, [5, 33, 70]),
                (1, 1, [37, 51, 700]),
                (1, 1, [16, 600, 1030]),
                (3, 1, [130, 200, 530]),
            ];
            // Miri would take hours for all.
            for (batches, of_b, [m, n, k]) in cases.into_iter().take(if cfg!(miri) { 2 } else { 6 }) {
                let shape = |batches, rows, cols| Shape { batches, rows, cols };
                let layout = |batches, rows, cols| Layout::row_major(shape(batches, rows, cols)).unwrap();
                let numbers = |batches, rows: usize, cols: usize, first, step| -> Vec<T> {
                    let each = rows * cols;
                    (0..batches * each).map(|i| number(first + i / each * step + i % each)).collect()
                };
                let (a, b) = (numbers(batches, m, k, 0, 31), numbers(of_b, k, n, 7, 17));
                let a = View::strided(&a, layout(batches, m, k)).unwrap();
                let b = View::strided(&b, layout(of_b, k, n)).unwrap();
                let panels = prepack_as::<T, T>(isa, b).unwrap().unwrap();
                let b = b.broadcast(shape(batches, k, n)).unwrap();
                let mut c = vec![T::Out::ZERO; batches * m * n];
                let mut c = ViewMut::strided(&mut c, layout(batches, m, n)).unwrap();
                let (one, zero) = (T::Acc::ONE, T::Acc::ZERO);
                let last = Finish::default();
                gemm_told::<T>(isa, one, a, b, zero, c.reborrow(), last, Some(&panels), None).unwrap();
                let report = oracle::check::<T>(one, a, b, zero, None, c.as_view()).unwrap();
                assert!(report.within(oracle::bound::<T>(k)), "{isa} {} {m}×{n}×{k}: {report:?}", T::TYPE);
            }
        }
    }

    trait Narrow: Element {
        fn narrow_from(x: f64) -> Self;
    }

    impl<T: Element> Narrow for T {
        fn narrow_from(x: f64) -> Self {
            T::from_bits(T::TYPE.round(x))
        }
    }

    #[test]
    fn packed_panels_are_multiplied_as_b_is() {
        for ty in Type::OPERANDS {
            with_operand_type!(ty, T => all::<T>(), _ => {});
        }
    }

    #[test]
    fn panels_of_another_shape_are_not_used() {
        let b = View::new(&[0f32; 5 * 7], 5, 7).unwrap();
        let panels = prepack_as::<f32, f32>(Isa::Portable, b).unwrap().unwrap();
        assert!(panels.of::<f32>(Isa::Portable, Shape::new(5, 7), 3).is_some());
        assert!(panels.of::<f32>(Isa::Portable, Shape::new(5, 6), 0).is_none());
        assert!(panels.of::<f32>(Isa::Avx2, Shape::new(5, 7), 0).is_none());
    }
}
