//! A matrix on a canvas: whole, or a window of it with marks at the cut edges.

use super::canvas::{Canvas, Color, Style};

/// Style of an element: a mark before and after it, so that color alone carries no information.
#[derive(Clone, Copy, Debug)]
pub struct CellStyle {
    pub edges: [char; 2],
    pub style: Style,
}

impl CellStyle {
    pub const PLAIN: CellStyle = CellStyle { edges: [' ', ' '], style: Style::PLAIN };

    /// The style of an element of a finding, if `wrong`.
    pub fn wrong_if(self, wrong: bool) -> CellStyle {
        match wrong {
            true => CellStyle { edges: ['!', '!'], style: Style { bold: true, ..Style::of(Color::Wrong) } },
            false => self,
        }
    }
}

/// A matrix to draw.
pub struct Grid<'a> {
    pub title: String,
    pub rows: u64,
    pub cols: u64,
    /// Characters of an element, without the marks beside it.
    pub width: usize,
    /// Whether elements have a mark before them only, which takes less space.
    pub compact: bool,
    /// The element that every window contains.
    pub center: [u64; 2],
    /// Text and style of the element at a row and column.
    pub cell: Box<dyn Fn(u64, u64) -> (String, CellStyle) + 'a>,
}

/// A range of rows or columns, and whether marks stand beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    from: u64,
    to: u64,
    marks: bool,
}

impl Window {
    /// The elements out of `all` that fit in `room` characters, `each` wide, with marks of `mark`
    /// characters on both sides.
    fn of(all: u64, center: u64, room: usize, each: usize, mark: usize) -> Window {
        let most = (room / each) as u64;
        if all <= most {
            return Window { from: 0, to: all, marks: false };
        }
        let fitting = (room.saturating_sub(2 * mark) / each) as u64;
        let (shown, marks) = if fitting == 0 { (most, false) } else { (fitting, true) };
        let from = center.saturating_sub(shown / 2).min(all - shown);
        Window { from, to: from + shown, marks }
    }
}

impl Grid<'_> {
    /// Characters of an element with its marks.
    fn step(&self) -> usize {
        self.width + if self.compact { 1 } else { 2 }
    }

    /// Columns and rows of characters of the whole matrix.
    pub fn needs(&self) -> [usize; 2] {
        let whole = |extent: u64| usize::try_from(extent).unwrap_or(usize::MAX);
        let wide = whole(self.cols).saturating_mul(self.step()).max(self.title.chars().count());
        [wide, whole(self.rows).saturating_add(1)]
    }

    /// Draws it in the rectangle with this corner and size.
    pub fn draw(&self, canvas: &mut Canvas, [x, y]: [usize; 2], [wide, high]: [usize; 2]) {
        if high == 0 {
            return;
        }
        let rows = Window::of(self.rows, self.center[0], high - 1, 1, 1);
        let cols = Window::of(self.cols, self.center[1], wide, self.step(), 2);
        let part = |window: Window, all: u64| {
            if window.to - window.from == all {
                String::new()
            } else {
                format!("{}..{} of {all}", window.from, window.to)
            }
        };
        let parts = [("rows ", part(rows, self.rows)), ("cols ", part(cols, self.cols))];
        let parts: Vec<String> =
            parts.iter().filter(|(_, part)| !part.is_empty()).map(|(name, part)| format!("{name}{part}")).collect();
        let whole = format!("{}  {}", self.title, parts.join(", "));
        // The ranges are left out where all is shown or the title has no room.
        let fits = !parts.is_empty() && whole.chars().count() <= wide;
        let title = if fits { whole } else { self.title.clone() };
        canvas.put([x, y], wide, &title, Style::BOLD);
        let (left, top) = (x + if cols.marks { 2 } else { 0 }, y + 1 + usize::from(rows.marks));
        let step = self.step();
        let row_at = |row: u64| top + (row - rows.from) as usize;
        if rows.marks {
            let marks = "⋮".to_owned() + &" ".repeat(step - 1);
            let line = marks.repeat((cols.to - cols.from) as usize);
            let middle = left + step / 2;
            if rows.from > 0 {
                canvas.put([middle, y + 1], wide, line.trim_end(), Style::DIM);
            }
            if rows.to < self.rows {
                canvas.put([middle, row_at(rows.to)], wide, line.trim_end(), Style::DIM);
            }
        }
        for row in rows.from..rows.to {
            if cols.marks && cols.from > 0 {
                canvas.put([x, row_at(row)], 1, "…", Style::DIM);
            }
            for col in cols.from..cols.to {
                let (text, look) = (self.cell)(row, col);
                let at = left + (col - cols.from) as usize * step;
                let [before, behind] = look.edges;
                let behind = if self.compact { String::new() } else { behind.to_string() };
                let text = format!("{before}{text:>width$}{behind}", width = self.width);
                canvas.put([at, row_at(row)], step, &text, look.style);
            }
            if cols.marks && cols.to < self.cols {
                canvas.put([left + (cols.to - cols.from) as usize * step + 1, row_at(row)], 1, "…", Style::DIM);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(rows: u64, cols: u64, center: [u64; 2], size: [usize; 2]) -> Vec<String> {
        let cell = Box::new(|row, col| (format!("{row}{col}"), CellStyle::PLAIN));
        let grid = Grid { title: "A".into(), rows, cols, width: 2, compact: false, center, cell };
        let mut canvas = Canvas::new(size);
        grid.draw(&mut canvas, [0, 0], size);
        canvas.text()
    }

    #[test]
    fn grid_that_fits_is_drawn_whole() {
        assert_eq!(drawn(2, 3, [0, 0], [12, 3]), ["A", " 00  01  02", " 10  11  12"]);
    }

    #[test]
    fn grid_too_large_has_marks_at_cut_edges() {
        let text = drawn(9, 9, [4, 4], [24, 6]);
        assert_eq!(text[0], "A", "the range has no room");
        assert_eq!(text[1], "    ⋮   ⋮   ⋮   ⋮   ⋮");
        assert_eq!(text[2], "…  32  33  34  35  36  …");
        assert_eq!(text[5], text[1]);
        let corner = drawn(9, 9, [0, 0], [24, 6]);
        assert_eq!((corner[1].as_str(), corner[2].as_str()), ("", "   00  01  02  03  04  …"));
        assert_eq!(drawn(9, 9, [8, 8], [24, 6])[5], "");
    }

    #[test]
    fn window_title_has_the_range() {
        assert_eq!(drawn(9, 2, [4, 0], [24, 6])[0], "A  rows 3..6 of 9");
    }

    #[test]
    fn any_canvas_size_is_accepted() {
        for size in [[0, 0], [1, 1], [3, 2], [5, 3], [200, 1]] {
            drawn(9, 9, [8, 8], size);
        }
        drawn(0, 0, [0, 0], [10, 10]);
    }
}
