//! `a * b` for owned and borrowed matrices. A separate file, since products depend on matrices, and
//! the type itself must not depend on products.

use std::ops::Mul;

use super::Matrix;
use crate::element::Element;
use crate::gemm::matmul;

#[track_caller]
fn product<T: Element>(a: &Matrix<T>, b: &Matrix<T>) -> Matrix<T::Out> {
    match matmul(a, b) {
        Ok(c) => c,
        Err(error) => panic!("{error}"),
    }
}

macro_rules! operator {
    ($($a:ty, $b:ty;)*) => {$(
        /// The matrix product A·B, as [`matmul`] computes it: on a GPU where one is present.
        ///
        /// # Panics
        /// With the error message of [`matmul`], such as for shapes that do not match. Use `matmul`
        /// to handle errors.
        impl<T: Element> Mul<$b> for $a {
            type Output = Matrix<T::Out>;

            #[track_caller]
            fn mul(self, b: $b) -> Matrix<T::Out> {
                product(&self, &b)
            }
        }
    )*};
}

operator! {
    &Matrix<T>, &Matrix<T>;
    &Matrix<T>, Matrix<T>;
    Matrix<T>, &Matrix<T>;
    Matrix<T>, Matrix<T>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Scalar, Type, with_operand_type};
    use crate::matrix::Shape;

    fn message(f: impl FnOnce()) -> String {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_err();
        panic.downcast_ref::<String>().cloned().unwrap()
    }

    #[test]
    fn operands_may_be_owned_or_borrowed() {
        let a = Matrix::from_vec(2, 3, vec![1i32, 2, 3, 4, 5, 6]).unwrap();
        let b = Matrix::from_vec(3, 2, vec![1i32, 0, 0, 1, 1, 1]).unwrap();
        let c = Matrix::from_vec(2, 2, vec![4i32, 5, 10, 11]).unwrap();
        assert_eq!(&a * &b, c);
        assert_eq!(&a * b.clone(), c);
        assert_eq!(a.clone() * &b, c);
        assert_eq!(a * b, c);
    }

    #[test]
    fn operator_gives_the_product_for_every_element_type() {
        fn small<S: Scalar>(rows: usize, cols: usize, numbers: [i32; 4]) -> Matrix<S> {
            let bits = |number: i32| match S::TYPE.is_float() {
                true => S::TYPE.round(f64::from(number)),
                false => number as u64,
            };
            Matrix::from_vec(rows, cols, numbers.map(|number| S::from_bits(bits(number))).to_vec()).unwrap()
        }
        fn one<T: Element>() {
            let (a, b) = (small::<T>(2, 2, [1, 2, 3, 4]), small::<T>(2, 2, [5, 6, 7, 8]));
            assert_eq!(&a * &b, small::<T::Out>(2, 2, [19, 22, 43, 50]), "{}", T::TYPE);
        }
        for ty in Type::OPERANDS {
            with_operand_type!(ty, T => one::<T>(), _ => unreachable!());
        }
    }

    #[test]
    fn operator_multiplies_batches() {
        let a = Matrix::from_shape_fn(Shape { batches: 2, rows: 1, cols: 2 }, |i, _, k| (10 * i + k) as i32).unwrap();
        let b = Matrix::from_vec(2, 1, vec![1, 100]).unwrap();
        let c = &a * &b;
        assert_eq!((c.shape(), c.as_slice()), (Shape { batches: 2, rows: 1, cols: 1 }, &[100, 1110][..]));
    }

    #[test]
    fn operator_panics_with_the_message_of_matmul() {
        let (a, b) = (Matrix::<f32>::zeros(2, 3).unwrap(), Matrix::<f32>::zeros(2, 3).unwrap());
        let expected = matmul(&a, &b).unwrap_err().to_string();
        assert!(expected.contains("3 columns"), "{expected}");
        assert_eq!(message(|| drop(&a * &b)), expected);
        assert_eq!(message(|| drop(a * b)), expected);
    }
}
