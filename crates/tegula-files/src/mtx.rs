//! Matrix Market files, `.mtx`: dense (`array`) and sparse (`coordinate`) matrices.
//!
//! Both are read as dense, in column-major order; writing uses `array`. `symmetric` and
//! `skew-symmetric` matrices store one triangle; the other is filled in. Duplicate entries of a
//! `coordinate` file are summed in file order, as in SciPy. Entries of a `pattern` are 1. Comments
//! and blank lines are allowed everywhere, as is Fortran's `1.0D+03`.

use std::io::{self, BufRead, BufWriter, Write};
use std::num::IntErrorKind;

use tegula_core::element::Scalar;
use tegula_core::nd::NdLayout;

use crate::number::Number;
use crate::text::{Lines, at, quoted, rows_and_cols};
use crate::{AnyArray, Array, ErrorMessage, decimal};

/// Reads a matrix: f64 for `real` and `pattern`, i32 for `integer`, or i64 if a value requires it.
///
/// `memory_limit` is in bytes. The dense matrix needs 8 bytes per element, 12 for integers.
///
/// # Errors
/// If the source cannot be read, is not a real Matrix Market file, or exceeds the memory limit.
pub fn read(source: &mut dyn BufRead, memory_limit: u64) -> Result<AnyArray, ErrorMessage> {
    let mut lines = Lines::new(source);
    let banner = Banner::read(&mut lines)?;
    let size = Size::read(&mut lines, &banner)?;
    match banner.field {
        Field::Integer => integers(Body { lines, banner, size }.read(memory_limit, 12)?),
        Field::Real | Field::Pattern => Ok(f64::into_any(Body { lines, banner, size }.read(memory_limit, 8)?)),
    }
}

/// Writes a row-major matrix as `array real general` or `array integer general`.
///
/// A vector becomes one column. Numbers have the fewest digits that read back to the same value in
/// their type.
///
/// # Errors
/// Errors of the sink; [`io::ErrorKind::InvalidInput`] for other than one or two dimensions, and if
/// `shape` does not match `data`.
pub fn write<T: Number>(sink: &mut dyn Write, shape: &[usize], data: &[T]) -> io::Result<()> {
    let (rows, cols) = rows_and_cols(shape, data.len())?;
    let mut sink = BufWriter::new(sink);
    let field = if decimal::is_integer(T::DTYPE) { "integer" } else { "real" };
    writeln!(sink, "%%MatrixMarket matrix array {field} general\n{rows} {cols}")?;
    for col in 0..if rows == 0 { 0 } else { cols } {
        for &value in data[col..].iter().step_by(cols) {
            decimal::write(&mut sink, value)?;
            sink.write_all(b"\n")?;
        }
    }
    sink.flush()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Array,
    Coordinate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Real,
    Integer,
    Pattern,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Symmetry {
    General,
    Symmetric,
    Skew,
}

impl Symmetry {
    /// Checks that an entry is in the stored triangle.
    fn check(self, [row, col]: [usize; 2]) -> Result<(), ErrorMessage> {
        let position = format_args!("row {}, column {}", row + 1, col + 1);
        match self {
            Symmetry::Symmetric if row < col => {
                Err(format!("{position} is above the diagonal; a symmetric matrix stores the lower triangle only"))
            }
            Symmetry::Skew if row <= col => Err(format!(
                "{position} is not below the diagonal; a skew-symmetric matrix stores the strict lower triangle only"
            )),
            _ => Ok(()),
        }
    }
}

/// First line of a file.
#[derive(Clone, Copy)]
struct Banner {
    format: Format,
    field: Field,
    symmetry: Symmetry,
}

impl Banner {
    fn read(lines: &mut Lines<'_>) -> Result<Banner, ErrorMessage> {
        if !lines.advance()? {
            return Err("file is empty; use a Matrix Market file as written by scipy.io.mmwrite".into());
        }
        let line = lines.line();
        let words = String::from_utf8_lossy(line).to_ascii_lowercase();
        let mut words = words.split_ascii_whitespace();
        if words.next() != Some("%%matrixmarket") {
            let start = quoted(line);
            return Err(format!("not a Matrix Market file: it starts with {start} instead of %%MatrixMarket"));
        }
        let mut word = |what: &str| words.next().ok_or_else(|| at(1, format_args!("{what} is missing; {EXPECTED}")));
        let (object, format) = (word("object")?, word("format")?);
        let (field, symmetry) = (word("number type")?, word("symmetry")?);
        if object != "matrix" {
            return Err(at(1, format_args!("unsupported object {}; {EXPECTED}", quoted(object.as_bytes()))));
        }
        let banner =
            Banner { format: parse_format(format)?, field: parse_field(field)?, symmetry: parse_symmetry(symmetry)? };
        match banner {
            Banner { format: Format::Array, field: Field::Pattern, .. } => {
                Err(at(1, "an array cannot be a pattern; use 'coordinate pattern' or 'array real'"))
            }
            Banner { field: Field::Pattern, symmetry: Symmetry::Skew, .. } => {
                Err(at(1, "a pattern cannot be skew-symmetric; use 'real' with numbers"))
            }
            banner => Ok(banner),
        }
    }
}

const EXPECTED: &str =
    "expected '%%MatrixMarket matrix array|coordinate real|integer|pattern general|symmetric|skew-symmetric'";

fn parse_format(word: &str) -> Result<Format, ErrorMessage> {
    match word {
        "array" => Ok(Format::Array),
        "coordinate" => Ok(Format::Coordinate),
        other => Err(at(1, format_args!("unknown format {}; {EXPECTED}", quoted(other.as_bytes())))),
    }
}

fn parse_field(word: &str) -> Result<Field, ErrorMessage> {
    match word {
        "real" | "double" => Ok(Field::Real),
        "integer" | "unsigned-integer" => Ok(Field::Integer),
        "pattern" => Ok(Field::Pattern),
        "complex" => Err(at(
            1,
            "complex numbers are not supported; save the parts separately: scipy.io.mmwrite(file, a.real), then a.imag",
        )),
        other => Err(at(1, format_args!("unknown number type {}; {EXPECTED}", quoted(other.as_bytes())))),
    }
}

fn parse_symmetry(word: &str) -> Result<Symmetry, ErrorMessage> {
    match word {
        "general" => Ok(Symmetry::General),
        "symmetric" => Ok(Symmetry::Symmetric),
        "skew-symmetric" => Ok(Symmetry::Skew),
        "hermitian" => {
            Err(at(1, "complex Hermitian matrices are not supported; save real and imaginary parts separately"))
        }
        other => Err(at(1, format_args!("unknown symmetry {}; {EXPECTED}", quoted(other.as_bytes())))),
    }
}

/// Size line: extents and number of entries.
struct Size {
    rows: usize,
    cols: usize,
    /// Number of entries of a `coordinate` file.
    entries: u64,
    /// Line number.
    line: u64,
}

impl Size {
    fn read(lines: &mut Lines<'_>, banner: &Banner) -> Result<Size, ErrorMessage> {
        let line = next_content_line(lines)?.ok_or("file is truncated: the size line is missing")?;
        let expected = match banner.format {
            Format::Array => "'rows columns'",
            Format::Coordinate => "'rows columns entries'",
        };
        let number = |word: &str| {
            let parsed = word.parse::<u64>();
            parsed.map_err(|_| {
                at(line.number, format_args!("invalid size {}; expected {expected}", quoted(word.as_bytes())))
            })
        };
        let sizes = line.text.split_ascii_whitespace().take(4).map(number).collect::<Result<Vec<_>, _>>()?;
        let (rows, cols, entries) = match (banner.format, sizes.as_slice()) {
            (Format::Array, &[rows, cols]) => (rows, cols, 0),
            (Format::Coordinate, &[rows, cols, entries]) => (rows, cols, entries),
            _ => return Err(at(line.number, format_args!("invalid size {}; expected {expected}", line.quoted()))),
        };
        if banner.symmetry != Symmetry::General && rows != cols {
            return Err(at(line.number, format_args!("a {rows}×{cols} matrix is not square; use 'general' in line 1")));
        }
        let extent = |x: u64| {
            usize::try_from(x).map_err(|_| at(line.number, format_args!("extent {x} exceeds the address space")))
        };
        Ok(Size { rows: extent(rows)?, cols: extent(cols)?, entries, line: line.number })
    }
}

/// A line that is neither blank nor a comment.
struct ContentLine<'a> {
    text: &'a str,
    number: u64,
}

impl ContentLine<'_> {
    /// Splits the line into N words.
    fn words<const N: usize>(&self, expected: &str) -> Result<[&str; N], ErrorMessage> {
        let mut words = self.text.split_ascii_whitespace();
        let found = std::array::from_fn(|_| words.next().unwrap_or_default());
        if found.last().is_some_and(|last| last.is_empty()) || words.next().is_some() {
            return Err(at(self.number, format_args!("invalid entry {}; expected {expected}", self.quoted())));
        }
        Ok(found)
    }

    fn value<T: Value>(&self, word: &str) -> Result<T, ErrorMessage> {
        T::parse(word).map_err(|message| at(self.number, format_args!("{} {message}", quoted(word.as_bytes()))))
    }

    /// Parses a row or column index, which files count from 1.
    fn index(&self, what: &str, word: &str, extent: usize) -> Result<usize, ErrorMessage> {
        let reject = |message: String| at(self.number, format_args!("{what} {} {message}", quoted(word.as_bytes())));
        let index: usize = word.parse().map_err(|_| reject("is not an integer".into()))?;
        match index {
            1.. if index <= extent => Ok(index - 1),
            _ => Err(reject(format!("is out of range; expected 1 to {extent}"))),
        }
    }

    fn overflow_error(&self) -> ErrorMessage {
        at(self.number, "the value exceeds the range of 64-bit integers; use 'real' instead of 'integer' in line 1")
    }

    fn quoted(&self) -> String {
        quoted(self.text.trim_ascii().as_bytes())
    }
}

/// Reads the next line that is neither blank nor a comment.
fn next_content_line<'l>(lines: &'l mut Lines<'_>) -> Result<Option<ContentLine<'l>>, ErrorMessage> {
    while lines.advance()? {
        if !matches!(lines.line().trim_ascii_start().first(), None | Some(b'%')) {
            return content_line(lines).map(Some);
        }
    }
    Ok(None)
}

fn content_line<'l>(lines: &'l Lines<'_>) -> Result<ContentLine<'l>, ErrorMessage> {
    let (line, number) = (lines.line(), lines.number());
    let text = str::from_utf8(line).map_err(|_| at(number, format_args!("{} is not UTF-8 text", quoted(line))))?;
    Ok(ContentLine { text, number })
}

/// Entries after the size line.
struct Body<'a> {
    lines: Lines<'a>,
    banner: Banner,
    size: Size,
}

impl Body<'_> {
    /// Reads all entries; the dense matrix takes `element_bytes` per element of the `memory_limit`.
    fn read<T: Value>(mut self, memory_limit: u64, element_bytes: u64) -> Result<Array<T>, ErrorMessage> {
        let Size { rows, cols, line, .. } = self.size;
        let mut dense =
            Dense::<T>::zeros(rows, cols, memory_limit, element_bytes).map_err(|message| at(line, message))?;
        match self.banner.format {
            Format::Array => self.read_array(&mut dense)?,
            Format::Coordinate => self.read_coordinates(&mut dense)?,
        }
        if let Some(more) = next_content_line(&mut self.lines)? {
            return Err(at(
                more.number,
                format_args!("extra entry {}; line {line} declares fewer entries", more.quoted()),
            ));
        }
        let layout = NdLayout::column_major(&[rows, cols]).map_err(|error| error.to_string())?;
        Ok(Array { data: dense.data.into(), layout })
    }

    fn read_array<T: Value>(&mut self, dense: &mut Dense<T>) -> Result<(), ErrorMessage> {
        let Size { rows, cols, .. } = self.size;
        for col in 0..if rows == 0 { 0 } else { cols } {
            let first = match self.banner.symmetry {
                Symmetry::General => 0,
                Symmetry::Symmetric => col,
                Symmetry::Skew => col + 1,
            };
            for row in first..rows {
                let truncated = || format!("file is truncated: it ends before row {}, column {}", row + 1, col + 1);
                let line = next_content_line(&mut self.lines)?.ok_or_else(truncated)?;
                let [word] = line.words("one number per line")?;
                let value = line.value(word)?;
                dense
                    .put([row, col], value, self.banner.symmetry, |_, new| Some(new))
                    .ok_or_else(|| line.overflow_error())?;
            }
        }
        Ok(())
    }

    fn read_coordinates<T: Value>(&mut self, dense: &mut Dense<T>) -> Result<(), ErrorMessage> {
        for read in 0..self.size.entries {
            let truncated = || format!("file is truncated: it ends after {read} of {} entries", self.size.entries);
            let line = next_content_line(&mut self.lines)?.ok_or_else(truncated)?;
            let (row, col, value) = if self.banner.field == Field::Pattern {
                let [row, col] = line.words("'row column'")?;
                (row, col, T::ONE)
            } else {
                let [row, col, value] = line.words("'row column number'")?;
                (row, col, line.value(value)?)
            };
            let position = [line.index("row", row, self.size.rows)?, line.index("column", col, self.size.cols)?];
            self.banner.symmetry.check(position).map_err(|message| at(line.number, message))?;
            dense.put(position, value, self.banner.symmetry, T::plus).ok_or_else(|| line.overflow_error())?;
        }
        Ok(())
    }
}

/// Dense matrix in column-major order.
struct Dense<T> {
    data: Vec<T>,
    rows: usize,
}

impl<T: Value> Dense<T> {
    fn zeros(rows: usize, cols: usize, memory_limit: u64, element_bytes: u64) -> Result<Self, ErrorMessage> {
        let bytes = (rows as u128 * cols as u128).saturating_mul(element_bytes.into());
        if bytes > u128::from(memory_limit) {
            return Err(format!(
                "a dense {rows}×{cols} matrix needs {bytes} bytes of memory; the limit is {memory_limit}"
            ));
        }
        let len = tegula_core::nd::len(&[rows, cols]).map_err(|error| error.to_string())?;
        let mut data = Vec::new();
        data.try_reserve_exact(len)
            .map_err(|_| format!("a {rows}×{cols} matrix of {bytes} bytes does not fit in memory"))?;
        data.resize(len, T::ZERO);
        Ok(Dense { data, rows })
    }

    /// Combines a value with the element at a position, and with its mirror image if not stored.
    ///
    /// `None` if the result cannot be represented.
    fn put(
        &mut self,
        position: [usize; 2],
        value: T,
        symmetry: Symmetry,
        join: impl Fn(T, T) -> Option<T>,
    ) -> Option<()> {
        let [row, col] = position;
        let mut put = |row: usize, col: usize, value: T| {
            let element = &mut self.data[row + col * self.rows];
            *element = join(*element, value)?;
            Some(())
        };
        put(row, col, value)?;
        match symmetry {
            Symmetry::Symmetric if row != col => put(col, row, value),
            Symmetry::Skew => put(col, row, value.negated()?),
            _ => Some(()),
        }
    }
}

/// Narrows integers to i32, an operand type of products, if all fit.
fn integers(wide: Array<i64>) -> Result<AnyArray, ErrorMessage> {
    if wide.data.iter().any(|&value| i32::try_from(value).is_err()) {
        return Ok(i64::into_any(wide));
    }
    let mut data = Vec::new();
    data.try_reserve_exact(wide.data.len()).map_err(|_| "out of memory while converting integers")?;
    data.extend(wide.data.iter().map(|&value| value as i32));
    Ok(i32::into_any(Array { data: data.into(), layout: wide.layout }))
}

/// A number of an entry.
trait Value: Number + Scalar {
    /// Parses a word, exactly or rounded to nearest.
    fn parse(word: &str) -> Result<Self, &'static str>;
    /// Sum; `None` if it cannot be represented.
    fn plus(self, other: Self) -> Option<Self>;
    /// Negation; `None` if it cannot be represented.
    fn negated(self) -> Option<Self>;
}

impl Value for f64 {
    fn parse(word: &str) -> Result<Self, &'static str> {
        word.parse().or_else(|_| word.replace(['d', 'D'], "e").parse()).map_err(|_| "is not a number")
    }
    fn plus(self, other: Self) -> Option<Self> {
        Some(self + other)
    }
    fn negated(self) -> Option<Self> {
        Some(-self)
    }
}

impl Value for i64 {
    fn parse(word: &str) -> Result<Self, &'static str> {
        word.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "exceeds the range of 64-bit integers",
            _ => "is not an integer; use 'real' instead of 'integer' in line 1 for other numbers",
        })
    }
    fn plus(self, other: Self) -> Option<Self> {
        self.checked_add(other)
    }
    fn negated(self) -> Option<Self> {
        self.checked_neg()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;
    use crate::number::f16;

    fn parse(text: &str) -> Result<AnyArray, ErrorMessage> {
        read(&mut text.as_bytes(), 1 << 20)
    }

    fn error_message(text: &str) -> ErrorMessage {
        let message = parse(text).unwrap_err();
        assert!(!message.contains('\n'), "{message}");
        message
    }

    fn reals(text: &str) -> (Vec<usize>, Vec<f64>) {
        let array = f64::downcast(parse(text).unwrap()).unwrap();
        assert_eq!(array.layout, NdLayout::column_major(&array.layout.shape).unwrap());
        (array.layout.shape, array.data.to_vec())
    }

    fn ints(text: &str) -> Vec<i32> {
        i32::downcast(parse(text).unwrap()).unwrap().data.to_vec()
    }

    /// A file with a banner of the given kind.
    fn mtx(kind: &str, rest: &str) -> String {
        format!("%%MatrixMarket matrix {kind}\n{rest}")
    }

    #[test]
    fn mtx_array_is_read_in_column_major_order() {
        let text = mtx("array real general", "% by hand\n\n2 3\n1\n 2.5 \r\n-3e-2\n% more\n1.0D+03\ninf\nNaN\n\n% end");
        let (shape, data) = reals(&text);
        assert_eq!(shape, [2, 3]);
        assert_eq!(data[..5], [1.0, 2.5, -0.03, 1000.0, f64::INFINITY]);
        assert!(data[5].is_nan());
        assert_eq!(ints(&mtx("ARRAY Integer General", "1 2\n-7\n+8")), [-7, 8]);
        assert_eq!(reals(&mtx("array real general", "0 18446744073709551615\n")).0, [0, usize::MAX]);
    }

    #[test]
    fn mtx_symmetric_matrix_is_expanded() {
        let symmetric = mtx("array integer symmetric", "2 2\n1\n2\n3\n");
        assert_eq!(ints(&symmetric), [1, 2, 2, 3]);
        assert_eq!(ints(&mtx("array integer skew-symmetric", "3 3\n1\n2\n3\n")), [0, 1, 2, -1, 0, 3, -2, -3, 0]);
        assert_eq!(reals(&mtx("coordinate real symmetric", "2 2 2\n1 1 5\n2 1 6\n")).1, [5.0, 6.0, 6.0, 0.0]);
        assert_eq!(reals(&mtx("coordinate real skew-symmetric", "2 2 1\n2 1 6\n")).1, [0.0, 6.0, -6.0, 0.0]);
        assert_eq!(reals(&mtx("coordinate pattern symmetric", "2 2 1\n2 1\n")).1, [0.0, 1.0, 1.0, 0.0]);
    }

    #[test]
    fn mtx_duplicate_entries_are_summed() {
        assert_eq!(reals(&mtx("coordinate real general", "1 2 3\n1 2 5\n1 1 1\n1 2 .5\n")).1, [1.0, 5.5]);
        let large = i64::MAX;
        let overflow = mtx("coordinate integer general", &format!("1 1 2\n1 1 {large}\n1 1 1\n"));
        assert!(error_message(&overflow).starts_with("line 4: the value exceeds the range of 64-bit integers"));
        let wide = i64::downcast(parse(&mtx("array integer general", &format!("2 1\n{large}\n1\n"))).unwrap()).unwrap();
        assert_eq!(wide.data[..], [large, 1]);
        let back = mtx("coordinate integer general", &format!("1 1 2\n1 1 {large}\n1 1 -{large}\n"));
        assert_eq!(ints(&back), [0]);
    }

    #[test]
    fn mtx_error_names_the_line() {
        let array = |rest: &str| error_message(&mtx("array real general", rest));
        assert_eq!(array("1 1\nabc\n"), "line 3: 'abc' is not a number");
        assert_eq!(array("1 1\n1 2\n"), "line 3: invalid entry '1 2'; expected one number per line");
        assert_eq!(array("2 1\n1\n"), "file is truncated: it ends before row 2, column 1");
        assert_eq!(array("1 1\n1\n2\n"), "line 4: extra entry '2'; line 2 declares fewer entries");
        assert_eq!(array("1 1 1\n1\n2\n"), "line 2: invalid size '1 1 1'; expected 'rows columns'");
        assert_eq!(array("-1 1\n"), "line 2: invalid size '-1'; expected 'rows columns'");
        assert_eq!(array(""), "file is truncated: the size line is missing");

        let coordinate = |rest: &str| error_message(&mtx("coordinate integer general", rest));
        assert_eq!(coordinate("2 3 2\n0 1 1\n1 3 4\n"), "line 3: row '0' is out of range; expected 1 to 2");
        assert_eq!(coordinate("2 3 2\n1 4 1\n"), "line 3: column '4' is out of range; expected 1 to 3");
        assert_eq!(coordinate("2 3 2\n1 x 1\n"), "line 3: column 'x' is not an integer");
        assert_eq!(coordinate("2 3 2\n1 1\n"), "line 3: invalid entry '1 1'; expected 'row column number'");
        assert_eq!(coordinate("2 3 2\n1 1 1\n\n"), "file is truncated: it ends after 1 of 2 entries");
        assert!(coordinate("2 3 2\n1 1 1.5\n").starts_with("line 3: '1.5' is not an integer"));

        let half = |kind: &str, rest: &str| error_message(&mtx(&format!("coordinate real {kind}"), rest));
        assert!(half("symmetric", "2 2 1\n1 2 1\n").starts_with("line 3: row 1, column 2 is above the diagonal"));
        assert!(half("skew-symmetric", "2 2 1\n1 1 1\n").starts_with("line 3: row 1, column 1 is not below"));
        assert!(half("symmetric", "2 3 1\n1 2 1\n").starts_with("line 2: a 2×3 matrix is not square"));
    }

    #[test]
    fn mtx_unsupported_banner_is_rejected() {
        assert!(error_message("").starts_with("file is empty"));
        assert!(error_message("PK\x03\x04 and more").starts_with("not a Matrix Market file: it starts with 'PK"));
        assert!(
            error_message(&mtx("array complex general", ""))
                .starts_with("line 1: complex numbers are not supported; save")
        );
        assert!(error_message(&mtx("array real hermitian", "")).contains("Hermitian"));
        assert!(error_message(&mtx("array pattern general", "")).contains("cannot be a pattern"));
        assert!(error_message(&mtx("coordinate pattern skew-symmetric", "")).contains("cannot be skew-symmetric"));
        assert!(error_message(&mtx("array real", "1 1\n1")).starts_with("line 1: symmetry is missing"));
        assert!(
            error_message("%%MatrixMarket vector array real general")
                .starts_with("line 1: unsupported object 'vector'")
        );
    }

    #[test]
    fn mtx_memory_limit_is_enforced() {
        let claim = mtx("array real general", "1000000 1000000\n1");
        assert_eq!(
            error_message(&claim),
            "line 2: a dense 1000000×1000000 matrix needs 8000000000000 bytes of memory; the limit is 1048576"
        );
        let vast = mtx("coordinate real general", "18446744073709551615 18446744073709551615 1\n1 1 1");
        assert!(error_message(&vast).contains("the limit is"));
        assert!(error_message(&mtx("array integer general", "87382 1\n")).contains("needs 1048584 bytes"));
        assert!(error_message(&mtx("array integer general", "87381 1\n")).starts_with("file is truncated"));
    }

    #[test]
    fn mtx_round_trips() {
        let mut bytes = Vec::new();
        write(&mut bytes, &[2, 3], &[1.0, -0.0, f64::MAX, f64::MIN_POSITIVE, 0.1, f64::NEG_INFINITY]).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            text.starts_with(
                "%%MatrixMarket matrix array real general\n2 3\n1.0\n2.2250738585072014e-308\n-0.0\n0.1\n"
            )
        );
        let (shape, data) = reals(&text);
        assert_eq!(shape, [2, 3]);
        assert_eq!(
            data.iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
            [1.0, f64::MIN_POSITIVE, -0.0, 0.1, f64::MAX, f64::NEG_INFINITY].map(f64::to_bits)
        );
        let mut bytes = Vec::new();
        write(&mut bytes, &[2], &[i32::MIN, i32::MAX]).unwrap();
        assert_eq!(ints(str::from_utf8(&bytes).unwrap()), [i32::MIN, i32::MAX]);
        for shape in [[0, 3], [3, 0]] {
            let mut bytes = Vec::new();
            write::<f16>(&mut bytes, &shape, &[]).unwrap();
            let read = parse(str::from_utf8(&bytes).unwrap()).unwrap();
            assert_eq!((read.dtype(), f64::downcast(read).unwrap().layout.shape), (Dtype::F64, shape.to_vec()));
        }
    }

    #[test]
    fn mtx_corrupt_byte_does_not_panic() {
        for good in
            [mtx("array real symmetric", "2 2\n1\n2\n3\n"), mtx("coordinate integer skew-symmetric", "9 9 1\n2 1 -4\n")]
        {
            for position in 0..good.len() {
                for byte in 0..=255 {
                    let mut bytes = good.clone().into_bytes();
                    bytes[position] = byte;
                    if let Err(message) = read(&mut &bytes[..], 1 << 20) {
                        assert!(!message.contains('\n'), "{message}");
                    }
                }
            }
        }
    }
}
