//! Storage orders in kernel names.

use tegula_ir::Order2d;

/// The name suffix for the orders of A, B and C; empty if all are row-major.
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
