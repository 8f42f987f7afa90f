//! Matrices in `.csv` files: one row per line, cells separated by commas, semicolons or tabs.
//!
//! The first line determines the separator: a tab if it contains one, else a semicolon, else a
//! comma. It is a header if none of its cells is a number. Blank lines and lines that start with
//! `#` are skipped. Cells may be padded by spaces and quoted. A UTF-8 byte order mark is allowed.

use std::io::{self, BufRead, BufWriter, Read, Write};

use csv_core::{ReadFieldResult, Reader, ReaderBuilder};
use tegula_core::nd::NdLayout;

use crate::number::Number;
use crate::text::{MAX_LINE_BYTES, at, fill, quoted, rows_and_cols};
use crate::{AnyArray, Array, ErrorMessage, decimal, display};

/// Bytes at the start that are searched for the first line, after any comments.
const DETECTION_BYTES: usize = 1 << 16;

/// Reads a matrix of f64 in row-major order, of at most `memory_limit` bytes.
///
/// # Errors
/// If the source cannot be read or the memory limit is exceeded. Also if a cell is not a number,
/// rows differ in length, or no row is found.
pub fn read(source: &mut dyn BufRead, memory_limit: u64) -> Result<AnyArray, ErrorMessage> {
    let mut start = Vec::with_capacity(DETECTION_BYTES);
    source
        .take(DETECTION_BYTES as u64)
        .read_to_end(&mut start)
        .map_err(|error| format!("cannot be read: {}", display::error(&error)))?;
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&start);
    let mut all = text.chain(source);
    let mut cells = Cells::new(&mut all, separator(text));
    let mut rows = Rows {
        data: Vec::new(),
        max_elements: usize::try_from(memory_limit / 8).unwrap_or(usize::MAX),
        rows: 0,
        first: None,
    };
    while cells.next_row()? {
        rows.read(&mut cells)?;
    }
    rows.finish()
}

/// Writes a row-major matrix, with commas and without a header; a vector becomes one column.
///
/// Numbers have the fewest digits that read back to the same value in their type.
///
/// # Errors
/// Errors of the sink; [`io::ErrorKind::InvalidInput`] for other than one or two dimensions, and if
/// `shape` does not match `data`. Also for empty matrices: a text file does not store their shape.
pub fn write<T: Number>(sink: &mut dyn Write, shape: &[usize], data: &[T]) -> io::Result<()> {
    let (rows, cols) = rows_and_cols(shape, data.len())?;
    if data.is_empty() {
        let message = format!("an empty {rows}×{cols} matrix cannot be written as text; use a .npy file");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut sink = BufWriter::new(sink);
    for row in data.chunks_exact(cols) {
        for (col, &value) in row.iter().enumerate() {
            if col > 0 {
                sink.write_all(b",")?;
            }
            decimal::write(&mut sink, value)?;
        }
        sink.write_all(b"\n")?;
    }
    sink.flush()
}

/// Separator of the first line that is neither blank nor a comment.
fn separator(start: &[u8]) -> u8 {
    let has_content = |line: &&[u8]| !line.trim_ascii().is_empty() && !line.starts_with(b"#");
    let line = start.split(|byte| matches!(byte, b'\n' | b'\r')).find(has_content).unwrap_or_default();
    // Every other part between quotes is quoted.
    let outside = || line.split(|&byte| byte == b'"').step_by(2);
    [b'\t', b';'].into_iter().find(|separator| outside().any(|piece| piece.contains(separator))).unwrap_or(b',')
}

/// Cells of a source, read one at a time into a fixed buffer.
struct Cells<'a> {
    source: &'a mut dyn BufRead,
    reader: Reader,
    cell: [u8; MAX_LINE_BYTES],
    len: usize,
    /// Line at which the row starts, from 1.
    line: u64,
    /// Column of the cell, from 1; 0 before the first.
    column: usize,
}

impl<'a> Cells<'a> {
    fn new(source: &'a mut dyn BufRead, separator: u8) -> Self {
        let reader = ReaderBuilder::new().delimiter(separator).build();
        Cells { source, reader, cell: [0; MAX_LINE_BYTES], len: 0, line: 1, column: 0 }
    }

    /// Advances to the next row, past blank lines and comments; `false` at the end.
    fn next_row(&mut self) -> Result<bool, ErrorMessage> {
        (self.line, self.column) = (self.reader.line(), 0);
        let mut comment = false;
        while let Some(&byte) = fill(self.source)?.first() {
            match byte {
                b'\n' => (self.line, comment) = (self.line + 1, false),
                b'#' => comment = true,
                b'\r' => {}
                _ if comment => {}
                _ => {
                    self.reader.set_line(self.line);
                    return Ok(true);
                }
            }
            self.source.consume(1);
        }
        Ok(false)
    }

    /// Reads the next cell of the row; returns whether it is the last.
    fn read_cell(&mut self) -> Result<bool, ErrorMessage> {
        (self.len, self.column) = (0, self.column + 1);
        loop {
            let bytes = fill(self.source)?;
            let (result, consumed, written) = self.reader.read_field(bytes, &mut self.cell[self.len..]);
            self.source.consume(consumed);
            self.len += written;
            match result {
                ReadFieldResult::InputEmpty => {}
                ReadFieldResult::OutputFull => {
                    return Err(
                        self.at(format_args!("cell is longer than {MAX_LINE_BYTES} bytes; is a quote unterminated?"))
                    );
                }
                ReadFieldResult::Field { record_end } => return Ok(record_end),
                ReadFieldResult::End => return Ok(true),
            }
        }
    }

    /// Text of the cell, without surrounding spaces.
    fn text(&self) -> &[u8] {
        self.cell[..self.len].trim_ascii()
    }

    /// Number in the cell, if any.
    fn number(&self) -> Option<f64> {
        str::from_utf8(self.text()).ok()?.parse().ok()
    }

    /// Error message of a cell without a number.
    fn reject(&self) -> ErrorMessage {
        if self.text().is_empty() {
            return self.at("cell is empty; use nan for missing numbers");
        }
        let cell = quoted(self.text());
        match self.text().iter().any(|byte| matches!(byte, b' ' | b'\t')) {
            true => self.at(format_args!("{cell} is not a number; separate cells by commas, semicolons or tabs")),
            false => self.at(format_args!("{cell} is not a number")),
        }
    }

    /// Error message with the position of the cell.
    fn at(&self, message: impl std::fmt::Display) -> ErrorMessage {
        format!("line {}, column {}: {message}", self.line, self.column)
    }
}

/// First row, which determines the number of columns.
struct FirstRow {
    line: u64,
    cols: usize,
}

/// Rows read so far.
struct Rows {
    data: Vec<f64>,
    /// Limit of elements.
    max_elements: usize,
    rows: usize,
    first: Option<FirstRow>,
}

impl Rows {
    fn read(&mut self, cells: &mut Cells<'_>) -> Result<(), ErrorMessage> {
        match &self.first {
            Some(_) => self.read_row(cells),
            None => self.read_first(cells),
        }
    }

    /// Reads the header, or the first row if the file has no header.
    fn read_first(&mut self, cells: &mut Cells<'_>) -> Result<(), ErrorMessage> {
        let mut rejected = None;
        loop {
            let last = cells.read_cell()?;
            match cells.number() {
                Some(number) => self.push(number, cells)?,
                None => rejected = rejected.or_else(|| Some(cells.reject())),
            }
            if last {
                break;
            }
        }
        // A line of spaces only.
        if cells.column == 1 && cells.text().is_empty() {
            return Ok(());
        }
        match rejected {
            Some(message) if !self.data.is_empty() => {
                return Err(format!("{message}, but other cells of the line are; a header has no numbers"));
            }
            Some(_) => {}
            None => self.rows = 1,
        }
        self.first = Some(FirstRow { line: cells.line, cols: cells.column });
        Ok(())
    }

    fn read_row(&mut self, cells: &mut Cells<'_>) -> Result<(), ErrorMessage> {
        let Some(FirstRow { line, cols }) = self.first else { return Ok(()) };
        loop {
            let last = cells.read_cell()?;
            if last && cells.column == 1 && cells.text().is_empty() {
                return Ok(());
            }
            if cells.column <= cols {
                let number = cells.number().ok_or_else(|| cells.reject())?;
                self.push(number, cells)?;
            }
            if last {
                break;
            }
        }
        if cells.column != cols {
            return Err(at(cells.line, format_args!("{} cells, expected {cols} as in line {line}", cells.column)));
        }
        self.rows += 1;
        Ok(())
    }

    fn push(&mut self, number: f64, cells: &Cells<'_>) -> Result<(), ErrorMessage> {
        if self.data.len() == self.data.capacity() {
            let more = self.data.len().max(1 << 10).min(self.max_elements - self.data.len());
            if more == 0 {
                let bytes = self.max_elements as u128 * 8;
                return Err(cells.at(format_args!("the matrix exceeds the memory limit of {bytes} bytes")));
            }
            self.data.try_reserve_exact(more).map_err(|_| cells.at("out of memory"))?;
        }
        self.data.push(number);
        Ok(())
    }

    fn finish(self) -> Result<AnyArray, ErrorMessage> {
        let cols = self.first.map_or(0, |first| first.cols);
        if self.rows == 0 {
            return Err("contains no numbers; use one row per line, with commas between cells".into());
        }
        let layout = NdLayout::row_major(&[self.rows, cols]).map_err(|error| error.to_string())?;
        Ok(f64::into_any(Array { data: self.data.into(), layout }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;
    use crate::number::f16;

    fn parse(text: &[u8]) -> Result<AnyArray, ErrorMessage> {
        read(&mut &text[..], 1 << 20)
    }

    fn numbers(text: &str) -> (Vec<usize>, Vec<f64>) {
        let array = f64::downcast(parse(text.as_bytes()).unwrap()).unwrap();
        assert_eq!(array.layout, NdLayout::row_major(&array.layout.shape).unwrap());
        (array.layout.shape, array.data.to_vec())
    }

    fn error_message(text: &str) -> ErrorMessage {
        let message = parse(text.as_bytes()).unwrap_err();
        assert!(!message.contains('\n'), "{message}");
        message
    }

    #[test]
    fn csv_separator_is_found_after_comments() {
        let text = format!("{}1;2\n3;4\n", "# a long explanation\n".repeat(500));
        assert_eq!(parse(text.as_bytes()).unwrap().layout().shape, [2, 2]);
    }

    #[test]
    fn csv_rows_are_read() {
        assert_eq!(numbers("1,2,3\n4,5,6\n"), (vec![2, 3], vec![1., 2., 3., 4., 5., 6.]));
        assert_eq!(numbers("1"), (vec![1, 1], vec![1.]));
        assert_eq!(numbers("1;2\n3;4"), (vec![2, 2], vec![1., 2., 3., 4.]));
        assert_eq!(numbers("1\t2\r\n3\t-inf\r\n"), (vec![2, 2], vec![1., 2., 3., f64::NEG_INFINITY]));
        assert_eq!(
            numbers("\u{feff}# made by hand\n\n \n1 ,\" 2\" \n  \n\n# more\n3,4\n\n"),
            (vec![2, 2], vec![1., 2., 3., 4.])
        );
        assert!(numbers("nan\n1e-400").1[0].is_nan());
    }

    #[test]
    fn csv_first_line_without_numbers_is_a_header() {
        assert_eq!(numbers("x,\"y, or z\"\n1,2\n"), (vec![1, 2], vec![1., 2.]));
        assert_eq!(numbers("\"a;b\",c\n1,2\n").0, [1, 2]);
        assert_eq!(numbers(",b\n1,2\n").0, [1, 2]);
        assert_eq!(
            error_message("1,2,x,y\n1,2,3,4\n"),
            "line 1, column 3: 'x' is not a number, but other cells of the line are; a header has no numbers"
        );
        assert_eq!(error_message("a,b\n1,2,3\n"), "line 2: 3 cells, expected 2 as in line 1");
        assert!(error_message("a,b\n").starts_with("contains no numbers"));
        assert!(error_message("\n").starts_with("contains no numbers"));
    }

    #[test]
    fn csv_error_names_line_and_column() {
        assert_eq!(error_message("1,2,3\n\n4,5,abc\n"), "line 3, column 3: 'abc' is not a number");
        assert_eq!(
            error_message("1,2\r\n# no\r\n\r\n3,\r\n"),
            "line 4, column 2: cell is empty; use nan for missing numbers"
        );
        assert_eq!(error_message("1,2\n3\n"), "line 2: 1 cells, expected 2 as in line 1");
        assert_eq!(error_message("1,2\n3,4,5,6\n"), "line 2: 4 cells, expected 2 as in line 1");
        assert_eq!(
            error_message("1;2,5\n"),
            "line 1, column 2: '2,5' is not a number, but other cells of the line are; a header has no numbers"
        );
        assert!(error_message("a\n1 2\n").starts_with("line 2, column 1: '1 2' is not a number; separate cells"));
        assert_eq!(error_message("1,2\n\"3\n4\",5\n"), "line 2, column 1: '3\\n4' is not a number");
        assert_eq!(error_message("1,2\n\"3\",5\nx,6\n"), "line 3, column 1: 'x' is not a number");
        let endless = format!("1,2\n3,\"{}", "4".repeat(10_000));
        assert_eq!(
            error_message(&endless),
            "line 2, column 2: cell is longer than 4096 bytes; is a quote unterminated?"
        );
        assert!(parse(b"\xff\xfe1\0,\x002\0\n\0").is_err());
    }

    #[test]
    fn csv_memory_limit_is_enforced() {
        let row = "1,".repeat(15) + "1\n";
        assert_eq!(parse(row.repeat(8192).as_bytes()).map(|_| ()), Ok(()));
        let message = error_message(&row.repeat(8193));
        assert_eq!(message, "line 8193, column 1: the matrix exceeds the memory limit of 1048576 bytes");
    }

    #[test]
    fn csv_result_is_independent_of_buffer_size() {
        let text = "\u{feff}# c\r\n\r\na;\"b\"\r\n1;\"2\"\r\n \r\n3;4";
        for capacity in 1..text.len() {
            let array = f64::downcast(read(&mut BufReader::with_capacity(capacity, text.as_bytes()), 1 << 20).unwrap())
                .unwrap();
            assert_eq!((array.layout.shape, array.data.to_vec()), (vec![2, 2], vec![1., 2., 3., 4.]));
        }
    }

    #[test]
    fn csv_round_trips() {
        let data = [1.0, -0.0, f64::MAX, f64::MIN_POSITIVE, 0.1, f64::NEG_INFINITY];
        let mut bytes = Vec::new();
        write(&mut bytes, &[2, 3], &data).unwrap();
        assert_eq!(bytes, b"1.0,-0.0,1.7976931348623157e308\n2.2250738585072014e-308,0.1,-inf\n");
        let read = f64::downcast(parse(&bytes).unwrap()).unwrap();
        assert_eq!(read.data.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), data.map(f64::to_bits));
        let mut bytes = Vec::new();
        write(&mut bytes, &[2], &[-7i8, 8]).unwrap();
        assert_eq!(bytes, b"-7\n8\n");
        assert!(write::<f16>(&mut Vec::new(), &[0, 3], &[]).unwrap_err().to_string().contains(".npy"));
        assert!(write(&mut Vec::new(), &[1, 1, 1], &[1.0]).is_err());
    }

    #[test]
    fn csv_corrupt_byte_does_not_panic() {
        let good = b"a,\"b\"\n# c\n1,2\r\n3,4\n";
        for position in 0..good.len() {
            for byte in 0..=255 {
                let mut bytes = good.to_vec();
                bytes[position] = byte;
                if let Err(message) = parse(&bytes) {
                    assert!(!message.contains('\n'), "{message}");
                }
            }
        }
    }
}
