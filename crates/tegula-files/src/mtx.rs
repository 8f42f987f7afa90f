//! Matrix Market files, `.mtx`: dense matrices (`array`) and sparse ones (`coordinate`), read as dense and written as `array`.
//!
//! A matrix is read column after column, as the format has it. Of a `symmetric` or `skew-symmetric` matrix the file holds one
//! half; the other is filled in. Entries of a `coordinate` file that name the same place are summed in the file's order, as
//! SciPy does; a `pattern` has ones. Comments and blank lines may stand anywhere, and Fortran's `1.0D+03` is a number.

use std::io::{self, BufRead, BufWriter, Write};
use std::num::IntErrorKind;

use tegula_core::element::Scalar;
use tegula_core::nd::NdLayout;

use crate::number::Number;
use crate::text::{Lines, at, quoted, rows_and_cols};
use crate::{AnyArray, Array, Refusal, decimal};

/// Reads a matrix: of f64 where the file says `real` or `pattern`, of i32 where it says `integer`, or of
/// i64 where an integer needs it.
///
/// `room` is how many bytes the dense matrix may take while it is read: 8 an element, 12 where they are integers.
///
/// # Errors
/// Where the source cannot be read, is no Matrix Market file of real numbers, or needs more room.
pub fn read(source: &mut dyn BufRead, room: u64) -> Result<AnyArray, Refusal> {
    let mut lines = Lines::new(source);
    let banner = Banner::read(&mut lines)?;
    let size = Size::read(&mut lines, &banner)?;
    match banner.field {
        Field::Integer => integers(Body { lines, banner, size }.read(room, 12)?),
        Field::Real | Field::Pattern => Ok(f64::hold(Body { lines, banner, size }.read(room, 8)?)),
    }
}

/// Writes a matrix, given row after row, as `array real general` or `array integer general`; a vector becomes one column.
/// Every number has as few digits as read back to it in its type.
///
/// # Errors
/// Where the sink fails; [`io::ErrorKind::InvalidInput`] where `shape` has neither one nor two extents or does not fit `data`.
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
    /// Checks that an entry is in the half that the file holds.
    fn check(self, [row, col]: [usize; 2]) -> Result<(), Refusal> {
        let place = format_args!("row {}, column {}", row + 1, col + 1);
        match self {
            Symmetry::Symmetric if row < col => {
                Err(format!("{place} is above the diagonal; a symmetric file holds the rest only"))
            }
            Symmetry::Skew if row <= col => {
                Err(format!("{place} is not below the diagonal, where a skew-symmetric file has its entries"))
            }
            _ => Ok(()),
        }
    }
}

/// What the first line says.
#[derive(Clone, Copy)]
struct Banner {
    format: Format,
    field: Field,
    symmetry: Symmetry,
}

impl Banner {
    fn read(lines: &mut Lines<'_>) -> Result<Banner, Refusal> {
        if !lines.advance()? {
            return Err("is empty; give a Matrix Market file, as scipy.io.mmwrite writes it".into());
        }
        let line = lines.line();
        let words = String::from_utf8_lossy(line).to_ascii_lowercase();
        let mut words = words.split_ascii_whitespace();
        if words.next() != Some("%%matrixmarket") {
            let start = quoted(line);
            return Err(format!("is no Matrix Market file: it starts with {start}, not with %%MatrixMarket"));
        }
        let mut word = |what: &str| words.next().ok_or_else(|| at(1, format_args!("names no {what}; {FORM}")));
        let (object, format) = (word("object")?, word("format")?);
        let (field, symmetry) = (word("number type")?, word("symmetry")?);
        if object != "matrix" {
            return Err(at(1, format_args!("announces {}, not a matrix; {FORM}", quoted(object.as_bytes()))));
        }
        let banner =
            Banner { format: parse_format(format)?, field: parse_field(field)?, symmetry: parse_symmetry(symmetry)? };
        match banner {
            Banner { format: Format::Array, field: Field::Pattern, .. } => {
                Err(at(1, "an array has numbers, not a pattern; write 'coordinate pattern' or 'array real'"))
            }
            Banner { field: Field::Pattern, symmetry: Symmetry::Skew, .. } => {
                Err(at(1, "a pattern has no signs and cannot be skew-symmetric; write 'real' and the numbers"))
            }
            banner => Ok(banner),
        }
    }
}

const FORM: &str =
    "the line reads '%%MatrixMarket matrix array|coordinate real|integer|pattern general|symmetric|skew-symmetric'";

fn parse_format(word: &str) -> Result<Format, Refusal> {
    match word {
        "array" => Ok(Format::Array),
        "coordinate" => Ok(Format::Coordinate),
        other => Err(at(1, format_args!("{} is no format; {FORM}", quoted(other.as_bytes())))),
    }
}

fn parse_field(word: &str) -> Result<Field, Refusal> {
    match word {
        "real" | "double" => Ok(Field::Real),
        "integer" | "unsigned-integer" => Ok(Field::Integer),
        "pattern" => Ok(Field::Pattern),
        "complex" => {
            Err(at(1, "holds complex numbers; save their parts apart: scipy.io.mmwrite(file, a.real), then a.imag"))
        }
        other => Err(at(1, format_args!("{} is no number type; {FORM}", quoted(other.as_bytes())))),
    }
}

fn parse_symmetry(word: &str) -> Result<Symmetry, Refusal> {
    match word {
        "general" => Ok(Symmetry::General),
        "symmetric" => Ok(Symmetry::Symmetric),
        "skew-symmetric" => Ok(Symmetry::Skew),
        "hermitian" => Err(at(1, "a Hermitian matrix is complex; save its real and imaginary parts apart")),
        other => Err(at(1, format_args!("{} is no symmetry; {FORM}", quoted(other.as_bytes())))),
    }
}

/// The extents, and how many entries follow.
struct Size {
    rows: usize,
    cols: usize,
    /// Of a `coordinate` file.
    entries: u64,
    /// The line that says so.
    line: u64,
}

impl Size {
    fn read(lines: &mut Lines<'_>, banner: &Banner) -> Result<Size, Refusal> {
        let line = next_content(lines)?.ok_or("is truncated: it ends before the line that gives its size")?;
        let form = match banner.format {
            Format::Array => "'rows columns'",
            Format::Coordinate => "'rows columns entries'",
        };
        let number = |word: &str| {
            let parsed = word.parse::<u64>();
            parsed.map_err(|_| at(line.number, format_args!("{} is no size; {form} is", quoted(word.as_bytes()))))
        };
        let sizes = line.text.split_ascii_whitespace().take(4).map(number).collect::<Result<Vec<_>, _>>()?;
        let (rows, cols, entries) = match (banner.format, sizes.as_slice()) {
            (Format::Array, &[rows, cols]) => (rows, cols, 0),
            (Format::Coordinate, &[rows, cols, entries]) => (rows, cols, entries),
            _ => return Err(at(line.number, format_args!("{} is no size; {form} is", line.quoted()))),
        };
        if banner.symmetry != Symmetry::General && rows != cols {
            return Err(at(line.number, format_args!("a {rows}×{cols} matrix is not square, so it has no symmetry")));
        }
        let extent = |x: u64| usize::try_from(x).map_err(|_| at(line.number, format_args!("{x} cannot be addressed")));
        Ok(Size { rows: extent(rows)?, cols: extent(cols)?, entries, line: line.number })
    }
}

/// A line that says something.
struct Content<'a> {
    text: &'a str,
    number: u64,
}

impl Content<'_> {
    /// The line's words.
    fn words<const N: usize>(&self, form: &str) -> Result<[&str; N], Refusal> {
        let mut words = self.text.split_ascii_whitespace();
        let found = std::array::from_fn(|_| words.next().unwrap_or_default());
        if found.last().is_some_and(|last| last.is_empty()) || words.next().is_some() {
            return Err(at(self.number, format_args!("{} is no entry; {form} is", self.quoted())));
        }
        Ok(found)
    }

    fn value<T: Value>(&self, word: &str) -> Result<T, Refusal> {
        T::parse(word).map_err(|why| at(self.number, format_args!("{} {why}", quoted(word.as_bytes()))))
    }

    /// A row or a column, which files count from 1.
    fn index(&self, what: &str, word: &str, extent: usize) -> Result<usize, Refusal> {
        let refuse = |why: String| at(self.number, format_args!("{what} {} {why}", quoted(word.as_bytes())));
        let index: usize = word.parse().map_err(|_| refuse("is no number of a ".to_string() + what))?;
        match index {
            1.. if index <= extent => Ok(index - 1),
            _ => Err(refuse(format!("is outside of 1 to {extent}"))),
        }
    }

    fn too_large(&self) -> Refusal {
        at(self.number, "leaves the range of 64-bit integers; write 'real' for 'integer' in line 1")
    }

    fn quoted(&self) -> String {
        quoted(self.text.trim_ascii().as_bytes())
    }
}

/// The next line that is neither blank nor a comment.
fn next_content<'l>(lines: &'l mut Lines<'_>) -> Result<Option<Content<'l>>, Refusal> {
    while lines.advance()? {
        if !matches!(lines.line().trim_ascii_start().first(), None | Some(b'%')) {
            return content(lines).map(Some);
        }
    }
    Ok(None)
}

fn content<'l>(lines: &'l Lines<'_>) -> Result<Content<'l>, Refusal> {
    let (line, number) = (lines.line(), lines.number());
    let text = str::from_utf8(line).map_err(|_| at(number, format_args!("{} is no text", quoted(line))))?;
    Ok(Content { text, number })
}

/// The size and what follows it.
struct Body<'a> {
    lines: Lines<'a>,
    banner: Banner,
    size: Size,
}

impl Body<'_> {
    /// Reads all entries. `each` is how many bytes an element takes of `room`.
    fn read<T: Value>(mut self, room: u64, each: u64) -> Result<Array<T>, Refusal> {
        let Size { rows, cols, line, .. } = self.size;
        let mut dense = Dense::<T>::zeros(rows, cols, room, each).map_err(|why| at(line, why))?;
        match self.banner.format {
            Format::Array => self.read_array(&mut dense)?,
            Format::Coordinate => self.read_coordinates(&mut dense)?,
        }
        if let Some(more) = next_content(&mut self.lines)? {
            return Err(at(
                more.number,
                format_args!("{} is one entry more than line {line} announces", more.quoted()),
            ));
        }
        let layout = NdLayout::column_major(&[rows, cols]).map_err(|error| error.to_string())?;
        Ok(Array { data: dense.data.into(), layout })
    }

    fn read_array<T: Value>(&mut self, dense: &mut Dense<T>) -> Result<(), Refusal> {
        let Size { rows, cols, .. } = self.size;
        for col in 0..if rows == 0 { 0 } else { cols } {
            let first = match self.banner.symmetry {
                Symmetry::General => 0,
                Symmetry::Symmetric => col,
                Symmetry::Skew => col + 1,
            };
            for row in first..rows {
                let truncated = || format!("is truncated: it ends before row {}, column {}", row + 1, col + 1);
                let line = next_content(&mut self.lines)?.ok_or_else(truncated)?;
                let [word] = line.words("one number a line")?;
                let value = line.value(word)?;
                dense
                    .put([row, col], value, self.banner.symmetry, |_, new| Some(new))
                    .ok_or_else(|| line.too_large())?;
            }
        }
        Ok(())
    }

    fn read_coordinates<T: Value>(&mut self, dense: &mut Dense<T>) -> Result<(), Refusal> {
        for read in 0..self.size.entries {
            let truncated = || format!("is truncated: it ends after {read} of {} entries", self.size.entries);
            let line = next_content(&mut self.lines)?.ok_or_else(truncated)?;
            let (row, col, value) = if self.banner.field == Field::Pattern {
                let [row, col] = line.words("'row column'")?;
                (row, col, T::ONE)
            } else {
                let [row, col, value] = line.words("'row column number'")?;
                (row, col, line.value(value)?)
            };
            let place = [line.index("row", row, self.size.rows)?, line.index("column", col, self.size.cols)?];
            self.banner.symmetry.check(place).map_err(|why| at(line.number, why))?;
            dense.put(place, value, self.banner.symmetry, T::plus).ok_or_else(|| line.too_large())?;
        }
        Ok(())
    }
}

/// A matrix with all its elements, column after column.
struct Dense<T> {
    data: Vec<T>,
    rows: usize,
}

impl<T: Value> Dense<T> {
    fn zeros(rows: usize, cols: usize, room: u64, each: u64) -> Result<Self, Refusal> {
        let bytes = (rows as u128 * cols as u128).saturating_mul(each.into());
        if bytes > u128::from(room) {
            return Err(format!("a dense {rows}×{cols} matrix takes {bytes} bytes, {room} may be used"));
        }
        let len = tegula_core::nd::len(&[rows, cols]).map_err(|error| error.to_string())?;
        let mut data = Vec::new();
        data.try_reserve_exact(len)
            .map_err(|_| format!("a {rows}×{cols} matrix of {bytes} bytes does not fit in memory"))?;
        data.resize(len, T::ZERO);
        Ok(Dense { data, rows })
    }

    /// Joins a value to what is at its place and, where the file leaves it out, its mirror image. `None` where the result cannot
    /// be held.
    fn put(&mut self, place: [usize; 2], value: T, symmetry: Symmetry, join: impl Fn(T, T) -> Option<T>) -> Option<()> {
        let [row, col] = place;
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

/// Holds integers as i32, which products take, if all of them are.
fn integers(wide: Array<i64>) -> Result<AnyArray, Refusal> {
    if wide.data.iter().any(|&value| i32::try_from(value).is_err()) {
        return Ok(i64::hold(wide));
    }
    let mut data = Vec::new();
    data.try_reserve_exact(wide.data.len()).map_err(|_| "does not fit in memory beside itself")?;
    data.extend(wide.data.iter().map(|&value| value as i32));
    Ok(i32::hold(Array { data: data.into(), layout: wide.layout }))
}

/// A number as entries have it.
trait Value: Number + Scalar {
    /// The word's value, exactly or rounded to nearest.
    fn parse(word: &str) -> Result<Self, &'static str>;
    /// `None` where it cannot be held.
    fn plus(self, other: Self) -> Option<Self>;
    /// As `plus`.
    fn negated(self) -> Option<Self>;
}

impl Value for f64 {
    fn parse(word: &str) -> Result<Self, &'static str> {
        word.parse().or_else(|_| word.replace(['d', 'D'], "e").parse()).map_err(|_| "is no number")
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
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "is more than a 64-bit integer holds",
            _ => "is no integer; write 'real' for 'integer' in line 1 if it is a number",
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

    fn parse(text: &str) -> Result<AnyArray, Refusal> {
        read(&mut text.as_bytes(), 1 << 20)
    }

    fn refusal(text: &str) -> Refusal {
        let why = parse(text).unwrap_err();
        assert!(!why.contains('\n'), "{why}");
        why
    }

    fn reals(text: &str) -> (Vec<usize>, Vec<f64>) {
        let array = f64::open(parse(text).unwrap()).unwrap();
        assert_eq!(array.layout, NdLayout::column_major(&array.layout.shape).unwrap());
        (array.layout.shape, array.data.to_vec())
    }

    fn ints(text: &str) -> Vec<i32> {
        i32::open(parse(text).unwrap()).unwrap().data.to_vec()
    }

    /// A file with a first line that is mostly the same.
    fn mtx(kind: &str, rest: &str) -> String {
        format!("%%MatrixMarket matrix {kind}\n{rest}")
    }

    #[test]
    fn arrays_are_read_column_after_column() {
        let text = mtx("array real general", "% by hand\n\n2 3\n1\n 2.5 \r\n-3e-2\n% more\n1.0D+03\ninf\nNaN\n\n% end");
        let (shape, data) = reals(&text);
        assert_eq!(shape, [2, 3]);
        assert_eq!(data[..5], [1.0, 2.5, -0.03, 1000.0, f64::INFINITY]);
        assert!(data[5].is_nan());
        assert_eq!(ints(&mtx("ARRAY Integer General", "1 2\n-7\n+8")), [-7, 8]);
        assert_eq!(reals(&mtx("array real general", "0 18446744073709551615\n")).0, [0, usize::MAX]);
    }

    #[test]
    fn halves_are_mirrored() {
        let symmetric = mtx("array integer symmetric", "2 2\n1\n2\n3\n");
        assert_eq!(ints(&symmetric), [1, 2, 2, 3]);
        assert_eq!(ints(&mtx("array integer skew-symmetric", "3 3\n1\n2\n3\n")), [0, 1, 2, -1, 0, 3, -2, -3, 0]);
        assert_eq!(reals(&mtx("coordinate real symmetric", "2 2 2\n1 1 5\n2 1 6\n")).1, [5.0, 6.0, 6.0, 0.0]);
        assert_eq!(reals(&mtx("coordinate real skew-symmetric", "2 2 1\n2 1 6\n")).1, [0.0, 6.0, -6.0, 0.0]);
        assert_eq!(reals(&mtx("coordinate pattern symmetric", "2 2 1\n2 1\n")).1, [0.0, 1.0, 1.0, 0.0]);
    }

    #[test]
    fn entries_of_one_place_are_summed() {
        assert_eq!(reals(&mtx("coordinate real general", "1 2 3\n1 2 5\n1 1 1\n1 2 .5\n")).1, [1.0, 5.5]);
        let large = i64::MAX;
        let overflow = mtx("coordinate integer general", &format!("1 1 2\n1 1 {large}\n1 1 1\n"));
        assert!(refusal(&overflow).starts_with("line 4: leaves the range of 64-bit integers"));
        let wide = i64::open(parse(&mtx("array integer general", &format!("2 1\n{large}\n1\n"))).unwrap()).unwrap();
        assert_eq!(wide.data[..], [large, 1]);
        let back = mtx("coordinate integer general", &format!("1 1 2\n1 1 {large}\n1 1 -{large}\n"));
        assert_eq!(ints(&back), [0]);
    }

    #[test]
    fn damaged_files_are_refused_with_the_line() {
        let array = |rest: &str| refusal(&mtx("array real general", rest));
        assert_eq!(array("1 1\nabc\n"), "line 3: 'abc' is no number");
        assert_eq!(array("1 1\n1 2\n"), "line 3: '1 2' is no entry; one number a line is");
        assert_eq!(array("2 1\n1\n"), "is truncated: it ends before row 2, column 1");
        assert_eq!(array("1 1\n1\n2\n"), "line 4: '2' is one entry more than line 2 announces");
        assert_eq!(array("1 1 1\n1\n2\n"), "line 2: '1 1 1' is no size; 'rows columns' is");
        assert_eq!(array("-1 1\n"), "line 2: '-1' is no size; 'rows columns' is");
        assert_eq!(array(""), "is truncated: it ends before the line that gives its size");

        let coordinate = |rest: &str| refusal(&mtx("coordinate integer general", rest));
        assert_eq!(coordinate("2 3 2\n0 1 1\n1 3 4\n"), "line 3: row '0' is outside of 1 to 2");
        assert_eq!(coordinate("2 3 2\n1 4 1\n"), "line 3: column '4' is outside of 1 to 3");
        assert_eq!(coordinate("2 3 2\n1 x 1\n"), "line 3: column 'x' is no number of a column");
        assert_eq!(coordinate("2 3 2\n1 1\n"), "line 3: '1 1' is no entry; 'row column number' is");
        assert_eq!(coordinate("2 3 2\n1 1 1\n\n"), "is truncated: it ends after 1 of 2 entries");
        assert!(coordinate("2 3 2\n1 1 1.5\n").starts_with("line 3: '1.5' is no integer"));

        let half = |kind: &str, rest: &str| refusal(&mtx(&format!("coordinate real {kind}"), rest));
        assert!(half("symmetric", "2 2 1\n1 2 1\n").starts_with("line 3: row 1, column 2 is above the diagonal"));
        assert!(half("skew-symmetric", "2 2 1\n1 1 1\n").starts_with("line 3: row 1, column 1 is not below"));
        assert!(half("symmetric", "2 3 1\n1 2 1\n").starts_with("line 2: a 2×3 matrix is not square"));
    }

    #[test]
    fn other_first_lines_are_refused() {
        assert!(refusal("").starts_with("is empty"));
        assert!(refusal("PK\x03\x04 and more").starts_with("is no Matrix Market file: it starts with 'PK"));
        assert!(refusal(&mtx("array complex general", "")).starts_with("line 1: holds complex numbers; save"));
        assert!(refusal(&mtx("array real hermitian", "")).contains("Hermitian"));
        assert!(refusal(&mtx("array pattern general", "")).contains("not a pattern"));
        assert!(refusal(&mtx("coordinate pattern skew-symmetric", "")).contains("no signs"));
        assert!(refusal(&mtx("array real", "1 1\n1")).starts_with("line 1: names no symmetry"));
        assert!(refusal("%%MatrixMarket vector array real general").starts_with("line 1: announces 'vector'"));
    }

    #[test]
    fn claims_are_held_against_the_room() {
        let claim = mtx("array real general", "1000000 1000000\n1");
        assert_eq!(
            refusal(&claim),
            "line 2: a dense 1000000×1000000 matrix takes 8000000000000 bytes, 1048576 may be used"
        );
        let vast = mtx("coordinate real general", "18446744073709551615 18446744073709551615 1\n1 1 1");
        assert!(refusal(&vast).contains("may be used"));
        assert!(refusal(&mtx("array integer general", "87382 1\n")).contains("takes 1048584 bytes"));
        assert!(refusal(&mtx("array integer general", "87381 1\n")).starts_with("is truncated"));
    }

    #[test]
    fn what_is_written_is_read_back() {
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
            assert_eq!((read.dtype(), f64::open(read).unwrap().layout.shape), (Dtype::F64, shape.to_vec()));
        }
    }

    #[test]
    fn no_damaged_byte_makes_a_panic() {
        for good in
            [mtx("array real symmetric", "2 2\n1\n2\n3\n"), mtx("coordinate integer skew-symmetric", "9 9 1\n2 1 -4\n")]
        {
            for position in 0..good.len() {
                for byte in 0..=255 {
                    let mut bytes = good.clone().into_bytes();
                    bytes[position] = byte;
                    if let Err(why) = read(&mut &bytes[..], 1 << 20) {
                        assert!(!why.contains('\n'), "{why}");
                    }
                }
            }
        }
    }
}
