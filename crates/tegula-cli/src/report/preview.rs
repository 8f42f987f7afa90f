//! The corner of a matrix, for eyes.

use std::io::{self, Write};

use tegula::Matrix;
use tegula::element::Scalar;
use tegula_files::Number;

/// Rows and columns shown.
const SHOWN: usize = 6;

/// Prints the shape, the type and the top left corner.
pub fn print<T: Number + Scalar>(out: &mut impl Write, matrix: &Matrix<T>) -> io::Result<()> {
    let shape = matrix.shape();
    let (rows, cols) = (shape.rows.min(SHOWN), shape.cols.min(SHOWN));
    writeln!(out, "{shape} {}", T::TYPE)?;
    let view = matrix.view();
    let cell = |row, col| view.get(0, row, col).map_or_else(String::new, |x| number(x.to_f64(), T::TYPE.is_int()));
    let cells: Vec<Vec<String>> = (0..rows).map(|row| (0..cols).map(|col| cell(row, col)).collect()).collect();
    let width = cells.iter().flatten().map(String::len).max().unwrap_or(0);
    for row in &cells {
        let line = row.iter().map(|cell| format!("{cell:>width$}")).collect::<Vec<_>>().join("  ");
        writeln!(out, "  {line}{}", if shape.cols > cols { "  …" } else { "" })?;
    }
    if shape.rows > rows && cols > 0 {
        writeln!(out, "  …")?;
    }
    Ok(())
}

/// Six significant digits, without the zeros that say nothing.
fn number(value: f64, whole: bool) -> String {
    let magnitude = value.abs();
    if whole || !value.is_finite() || value == 0.0 {
        return value.to_string();
    }
    if !(1e-4..1e9).contains(&magnitude) {
        return format!("{value:.5e}");
    }
    let digits = (5.0 - magnitude.log10().floor()).max(0.0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tegula::Shape;

    #[test]
    fn numbers_are_short() {
        let shown = [3070.0, 0.1, 1.0 / 3.0, -0.0, f64::NAN, f64::NEG_INFINITY, 1e-30, 123_456_789.0, 2.5e12];
        let text = shown.map(|x| number(x, false)).join(" ");
        assert_eq!(text, "3070 0.1 0.333333 -0 NaN -inf 1.00000e-30 123456789 2.50000e12");
        assert_eq!(number(-2_147_483_648.0, true), "-2147483648");
    }

    #[test]
    fn only_the_corner_is_shown() {
        let matrix = Matrix::from_fn(Shape::new(7, 9), |_, row, col| (row * col) as i32).unwrap();
        let mut out = Vec::new();
        print(&mut out, &matrix).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 1 + 6 + 1);
        assert_eq!(text.lines().nth(6), Some("   0   5  10  15  20  25  …"));
    }
}
