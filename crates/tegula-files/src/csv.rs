//! Matrices in `.csv` files: one row a line, cells between commas, semicolons or tabs.
//!
//! Which of these separates cells is seen from the first line: a tab if it has one, else a semicolon, else a comma. The first
//! line is a header if none of its cells is a number. Lines that are blank or begin with `#` are skipped, cells may have
//! spaces around them and be quoted, and a UTF-8 byte order mark is allowed.

use std::io::{self, BufRead, BufWriter, Read, Write};

use csv_core::{ReadFieldResult, Reader, ReaderBuilder};
use tegula_core::nd::NdLayout;

use crate::number::Number;
use crate::text::{LONGEST, at, fill, quoted, rows_and_cols};
use crate::{AnyArray, Array, Refusal, decimal, show};

/// Bytes at the start in which the first line is looked for, after whatever comments.
const LOOKED_AT: usize = 1 << 16;

/// Reads a matrix of f64, row after row.
///
/// `room` is how many bytes the matrix may take.
///
/// # Errors
/// Where the source cannot be read, a cell is no number, the rows are of different lengths, there is none, or there is no room.
pub fn read(source: &mut dyn BufRead, room: u64) -> Result<AnyArray, Refusal> {
    let mut start = Vec::with_capacity(LOOKED_AT);
    source
        .take(LOOKED_AT as u64)
        .read_to_end(&mut start)
        .map_err(|error| format!("cannot be read: {}", show::error(&error)))?;
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&start);
    let mut whole = text.chain(source);
    let mut cells = Cells::new(&mut whole, separator(text));
    let mut rows =
        Rows { data: Vec::new(), room: usize::try_from(room / 8).unwrap_or(usize::MAX), rows: 0, first: None };
    while cells.next_row()? {
        rows.read(&mut cells)?;
    }
    rows.finish()
}

/// Writes a matrix, given row after row, with commas and no header; a vector becomes one column. Every number has as few
/// digits as read back to it in its type.
///
/// # Errors
/// Where the sink fails; [`io::ErrorKind::InvalidInput`] where `shape` has neither one nor two extents or does not fit `data`,
/// and where there is no element, since such a file would not say how many rows and columns there are.
pub fn write<T: Number>(sink: &mut dyn Write, shape: &[usize], data: &[T]) -> io::Result<()> {
    let (rows, cols) = rows_and_cols(shape, data.len())?;
    if data.is_empty() {
        let why = format!("a {rows}×{cols} matrix has no element to write as text; write a .npy file");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
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

/// What separates the cells of the first line that says something.
fn separator(start: &[u8]) -> u8 {
    let says_something = |line: &&[u8]| !line.trim_ascii().is_empty() && !line.starts_with(b"#");
    let line = start.split(|byte| matches!(byte, b'\n' | b'\r')).find(says_something).unwrap_or_default();
    // Every other piece between quotes is inside of them.
    let outside = || line.split(|&byte| byte == b'"').step_by(2);
    [b'\t', b';'].into_iter().find(|separator| outside().any(|piece| piece.contains(separator))).unwrap_or(b',')
}

/// The cells of a source, one at a time in a buffer of fixed size.
struct Cells<'a> {
    source: &'a mut dyn BufRead,
    reader: Reader,
    cell: [u8; LONGEST],
    len: usize,
    /// The line that the row begins in, from 1.
    line: u64,
    /// The cell's column, from 1; 0 before the first.
    column: usize,
}

impl<'a> Cells<'a> {
    fn new(source: &'a mut dyn BufRead, separator: u8) -> Self {
        let reader = ReaderBuilder::new().delimiter(separator).build();
        Cells { source, reader, cell: [0; LONGEST], len: 0, line: 1, column: 0 }
    }

    /// Goes to the next row: over blank lines and comments. `false` after the last.
    fn next_row(&mut self) -> Result<bool, Refusal> {
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

    /// Reads the row's next cell and says whether it is the last.
    fn read_cell(&mut self) -> Result<bool, Refusal> {
        (self.len, self.column) = (0, self.column + 1);
        loop {
            let bytes = fill(self.source)?;
            let (result, consumed, written) = self.reader.read_field(bytes, &mut self.cell[self.len..]);
            self.source.consume(consumed);
            self.len += written;
            match result {
                ReadFieldResult::InputEmpty => {}
                ReadFieldResult::OutputFull => {
                    return Err(self.at(format_args!("has more than {LONGEST} bytes; is a quote left open?")));
                }
                ReadFieldResult::Field { record_end } => return Ok(record_end),
                ReadFieldResult::End => return Ok(true),
            }
        }
    }

    /// The cell's text, without spaces around it.
    fn text(&self) -> &[u8] {
        self.cell[..self.len].trim_ascii()
    }

    /// The cell's number, if it is one.
    fn number(&self) -> Option<f64> {
        str::from_utf8(self.text()).ok()?.parse().ok()
    }

    /// Why the cell is no number.
    fn refuse(&self) -> Refusal {
        if self.text().is_empty() {
            return self.at("is empty; write nan where a number is missing");
        }
        let cell = quoted(self.text());
        match self.text().iter().any(|byte| matches!(byte, b' ' | b'\t')) {
            true => self.at(format_args!("{cell} is no number; put commas, semicolons or tabs between cells")),
            false => self.at(format_args!("{cell} is no number")),
        }
    }

    /// What is wrong with the cell.
    fn at(&self, why: impl std::fmt::Display) -> Refusal {
        format!("line {}, column {}: {why}", self.line, self.column)
    }
}

/// The first row, which the others must match.
struct First {
    line: u64,
    cols: usize,
}

/// The rows read so far.
struct Rows {
    data: Vec<f64>,
    /// Elements that there may be.
    room: usize,
    rows: usize,
    first: Option<First>,
}

impl Rows {
    fn read(&mut self, cells: &mut Cells<'_>) -> Result<(), Refusal> {
        match &self.first {
            Some(_) => self.read_row(cells),
            None => self.read_first(cells),
        }
    }

    /// The header, or a row if there is none.
    fn read_first(&mut self, cells: &mut Cells<'_>) -> Result<(), Refusal> {
        let mut refused = None;
        loop {
            let last = cells.read_cell()?;
            match cells.number() {
                Some(number) => self.push(number, cells)?,
                None => refused = refused.or_else(|| Some(cells.refuse())),
            }
            if last {
                break;
            }
        }
        // A line of spaces.
        if cells.column == 1 && cells.text().is_empty() {
            return Ok(());
        }
        match refused {
            Some(why) if !self.data.is_empty() => {
                return Err(format!("{why}, others of the line are; a header has none"));
            }
            Some(_) => {}
            None => self.rows = 1,
        }
        self.first = Some(First { line: cells.line, cols: cells.column });
        Ok(())
    }

    fn read_row(&mut self, cells: &mut Cells<'_>) -> Result<(), Refusal> {
        let Some(First { line, cols }) = self.first else { return Ok(()) };
        loop {
            let last = cells.read_cell()?;
            if last && cells.column == 1 && cells.text().is_empty() {
                return Ok(());
            }
            if cells.column <= cols {
                let number = cells.number().ok_or_else(|| cells.refuse())?;
                self.push(number, cells)?;
            }
            if last {
                break;
            }
        }
        if cells.column != cols {
            return Err(at(cells.line, format_args!("has {} cells, line {line} has {cols}", cells.column)));
        }
        self.rows += 1;
        Ok(())
    }

    fn push(&mut self, number: f64, cells: &Cells<'_>) -> Result<(), Refusal> {
        if self.data.len() == self.data.capacity() {
            let more = self.data.len().max(1 << 10).min(self.room - self.data.len());
            if more == 0 {
                let bytes = self.room as u128 * 8;
                return Err(cells.at(format_args!("the numbers up to here take the {bytes} bytes that may be used")));
            }
            self.data.try_reserve_exact(more).map_err(|_| cells.at("there is no memory for more numbers"))?;
        }
        self.data.push(number);
        Ok(())
    }

    fn finish(self) -> Result<AnyArray, Refusal> {
        let cols = self.first.map_or(0, |first| first.cols);
        if self.rows == 0 {
            return Err("holds no numbers; give a matrix, one row a line, with commas between its cells".into());
        }
        let layout = NdLayout::row_major(&[self.rows, cols]).map_err(|error| error.to_string())?;
        Ok(f64::hold(Array { data: self.data.into(), layout }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;
    use crate::number::f16;

    fn parse(text: &[u8]) -> Result<AnyArray, Refusal> {
        read(&mut &text[..], 1 << 20)
    }

    fn numbers(text: &str) -> (Vec<usize>, Vec<f64>) {
        let array = f64::open(parse(text.as_bytes()).unwrap()).unwrap();
        assert_eq!(array.layout, NdLayout::row_major(&array.layout.shape).unwrap());
        (array.layout.shape, array.data.to_vec())
    }

    fn refusal(text: &str) -> Refusal {
        let why = parse(text.as_bytes()).unwrap_err();
        assert!(!why.contains('\n'), "{why}");
        why
    }

    #[test]
    fn comments_do_not_hide_the_separator() {
        let text = format!("{}1;2\n3;4\n", "# a long explanation\n".repeat(500));
        assert_eq!(parse(text.as_bytes()).unwrap().layout().shape, [2, 2]);
    }

    #[test]
    fn rows_are_read() {
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
    fn a_first_line_without_numbers_is_a_header() {
        assert_eq!(numbers("x,\"y, or z\"\n1,2\n"), (vec![1, 2], vec![1., 2.]));
        assert_eq!(numbers("\"a;b\",c\n1,2\n").0, [1, 2]);
        assert_eq!(numbers(",b\n1,2\n").0, [1, 2]);
        assert_eq!(
            refusal("1,2,x,y\n1,2,3,4\n"),
            "line 1, column 3: 'x' is no number, others of the line are; a header has none"
        );
        assert_eq!(refusal("a,b\n1,2,3\n"), "line 2: has 3 cells, line 1 has 2");
        assert!(refusal("a,b\n").starts_with("holds no numbers"));
        assert!(refusal("\n").starts_with("holds no numbers"));
    }

    #[test]
    fn wrong_cells_and_ragged_rows_are_refused_with_their_place() {
        assert_eq!(refusal("1,2,3\n\n4,5,abc\n"), "line 3, column 3: 'abc' is no number");
        assert_eq!(
            refusal("1,2\r\n# no\r\n\r\n3,\r\n"),
            "line 4, column 2: is empty; write nan where a number is missing"
        );
        assert_eq!(refusal("1,2\n3\n"), "line 2: has 1 cells, line 1 has 2");
        assert_eq!(refusal("1,2\n3,4,5,6\n"), "line 2: has 4 cells, line 1 has 2");
        assert_eq!(
            refusal("1;2,5\n"),
            "line 1, column 2: '2,5' is no number, others of the line are; a header has none"
        );
        assert!(refusal("a\n1 2\n").starts_with("line 2, column 1: '1 2' is no number; put commas"));
        assert_eq!(refusal("1,2\n\"3\n4\",5\n"), "line 2, column 1: '3\\n4' is no number");
        assert_eq!(refusal("1,2\n\"3\",5\nx,6\n"), "line 3, column 1: 'x' is no number");
        let endless = format!("1,2\n3,\"{}", "4".repeat(10_000));
        assert_eq!(refusal(&endless), "line 2, column 2: has more than 4096 bytes; is a quote left open?");
        assert!(parse(b"\xff\xfe1\0,\x002\0\n\0").is_err());
    }

    #[test]
    fn the_room_is_kept() {
        let row = "1,".repeat(15) + "1\n";
        assert_eq!(parse(row.repeat(8192).as_bytes()).map(|_| ()), Ok(()));
        let why = refusal(&row.repeat(8193));
        assert_eq!(why, "line 8193, column 1: the numbers up to here take the 1048576 bytes that may be used");
    }

    #[test]
    fn what_a_buffer_holds_at_a_time_changes_nothing() {
        let text = "\u{feff}# c\r\n\r\na;\"b\"\r\n1;\"2\"\r\n \r\n3;4";
        for capacity in 1..text.len() {
            let array =
                f64::open(read(&mut BufReader::with_capacity(capacity, text.as_bytes()), 1 << 20).unwrap()).unwrap();
            assert_eq!((array.layout.shape, array.data.to_vec()), (vec![2, 2], vec![1., 2., 3., 4.]));
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let data = [1.0, -0.0, f64::MAX, f64::MIN_POSITIVE, 0.1, f64::NEG_INFINITY];
        let mut bytes = Vec::new();
        write(&mut bytes, &[2, 3], &data).unwrap();
        assert_eq!(bytes, b"1.0,-0.0,1.7976931348623157e308\n2.2250738585072014e-308,0.1,-inf\n");
        let read = f64::open(parse(&bytes).unwrap()).unwrap();
        assert_eq!(read.data.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), data.map(f64::to_bits));
        let mut bytes = Vec::new();
        write(&mut bytes, &[2], &[-7i8, 8]).unwrap();
        assert_eq!(bytes, b"-7\n8\n");
        assert!(write::<f16>(&mut Vec::new(), &[0, 3], &[]).unwrap_err().to_string().contains(".npy"));
        assert!(write(&mut Vec::new(), &[1, 1, 1], &[1.0]).is_err());
    }

    #[test]
    fn no_damaged_byte_makes_a_panic() {
        let good = b"a,\"b\"\n# c\n1,2\r\n3,4\n";
        for position in 0..good.len() {
            for byte in 0..=255 {
                let mut bytes = good.to_vec();
                bytes[position] = byte;
                if let Err(why) = parse(&bytes) {
                    assert!(!why.contains('\n'), "{why}");
                }
            }
        }
    }
}
