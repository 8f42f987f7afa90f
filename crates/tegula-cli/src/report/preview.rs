//! A preview of an array: its top left corner.

use std::io::{self, Write};

use tegula::element::Scalar;
use tegula::nd::{NdArray, display};
use tegula_files::Number;

/// Maximum rows and columns shown.
const SHOWN: usize = 6;

/// Prints the shape, the type and the top left corner, in a stack that of the first matrix.
pub fn print<T: Number + Scalar>(out: &mut impl Write, array: &NdArray<T>) -> io::Result<()> {
    let shape = array.shape();
    writeln!(out, "{} {}", display(shape), T::TYPE)?;
    let (stack, [height, width]) = match shape {
        [stack @ .., height, width] => (stack, [*height, *width]),
        [width] => (&[][..], [1, *width]),
        [] => (&[][..], [1, 1]),
    };
    if !stack.is_empty() {
        writeln!(out, "  first of {} matrices:", display(stack))?;
    }
    let (rows, cols) = (height.min(SHOWN), width.min(SHOWN));
    let cell = |row: usize, col: usize| {
        let element = array.as_slice().get(row * width + col);
        element.map_or_else(String::new, |x| number(x.to_f64(), T::TYPE.is_int()))
    };
    let cells: Vec<Vec<String>> = (0..rows).map(|row| (0..cols).map(|col| cell(row, col)).collect()).collect();
    let longest = cells.iter().flatten().map(String::len).max().unwrap_or(0);
    for row in &cells {
        let line = row.iter().map(|cell| format!("{cell:>longest$}")).collect::<Vec<_>>().join("  ");
        writeln!(out, "  {line}{}", if width > cols { "  …" } else { "" })?;
    }
    if height > rows && cols > 0 {
        writeln!(out, "  …")?;
    }
    Ok(())
}

/// Six significant digits without trailing zeros.
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

    #[test]
    fn values_have_six_significant_digits() {
        let shown = [3070.0, 0.1, 1.0 / 3.0, -0.0, f64::NAN, f64::NEG_INFINITY, 1e-30, 123_456_789.0, 2.5e12];
        let text = shown.map(|x| number(x, false)).join(" ");
        assert_eq!(text, "3070 0.1 0.333333 -0 NaN -inf 1.00000e-30 123456789 2.50000e12");
        assert_eq!(number(-2_147_483_648.0, true), "-2147483648");
    }

    fn shown(shape: &[usize]) -> String {
        let len = shape.iter().product::<usize>() as i32;
        let mut out = Vec::new();
        print(&mut out, &NdArray::from_vec(shape, (0..len).collect()).unwrap()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn large_array_is_cut_to_its_corner() {
        let text = shown(&[7, 9]);
        assert_eq!(text.lines().count(), 1 + 6 + 1);
        assert_eq!(text.lines().nth(2), Some("   9  10  11  12  13  14  …"));
    }

    #[test]
    fn arrays_of_any_rank_are_shown() {
        assert_eq!(shown(&[]), "() i32\n  0\n");
        assert_eq!(shown(&[3]), "3 i32\n  0  1  2\n");
        assert_eq!(shown(&[2, 3, 1, 2]), "2×3×1×2 i32\n  first of 2×3 matrices:\n  0  1\n");
        assert_eq!(shown(&[0, 2, 2]), "0×2×2 i32\n  first of 0 matrices:\n    \n    \n");
    }
}
