//! Orders of matrices in names of kernels.

use tegula_ir::Order2d;

/// Orders of A, B and C as a suffix of a name; nothing if all are row-major.
pub(super) fn order_letters(orders: [Order2d; 3]) -> String {
    if orders == [Order2d::RowMajor; 3] {
        return String::new();
    }
    let letters = orders.map(|order| match order {
        Order2d::RowMajor => 'r',
        Order2d::ColMajor => 'c',
        Order2d::Strided => 's',
    });
    letters.iter().fold("_".into(), |name, letter| name + &letter.to_string())
}
