//! A rectangle of styled characters, drawn before it is shown on a screen.

/// Colors; each has a mark of its own as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// Blue: the tile of A.
    A,
    /// Orange: the tile of B.
    B,
    /// Green: the tile of C.
    C,
    /// Vermilion: a finding.
    Wrong,
}

/// Style of a character.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    pub color: Option<Color>,
    pub bold: bool,
    pub underlined: bool,
    pub dim: bool,
}

impl Style {
    pub const PLAIN: Style = Style { color: None, bold: false, underlined: false, dim: false };
    pub const BOLD: Style = Style { bold: true, ..Style::PLAIN };
    pub const DIM: Style = Style { dim: true, ..Style::PLAIN };

    pub const fn of(color: Color) -> Style {
        Style { color: Some(color), ..Style::PLAIN }
    }
}

/// A rectangle of characters, which clips at its edges.
pub struct Canvas {
    width: usize,
    cells: Vec<(char, Style)>,
}

impl Canvas {
    pub fn new([width, height]: [usize; 2]) -> Canvas {
        Canvas { width, cells: vec![(' ', Style::PLAIN); width * height] }
    }

    /// Writes a text at a column and row in at most `room` characters; a longer text ends in `…`.
    pub fn put(&mut self, [x, y]: [usize; 2], room: usize, text: &str, style: Style) {
        let room = room.min(self.width.saturating_sub(x));
        let long = text.chars().count() > room;
        for (at, c) in text.chars().take(room).enumerate() {
            let c = match c {
                _ if long && at + 1 == room => '…',
                // Text from a file must not move the cursor.
                c if c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => '?',
                c => c,
            };
            if let Some(cell) = self.cells.get_mut(y * self.width + x + at) {
                *cell = (c, style);
            }
        }
    }

    /// The rows from top to bottom, as runs of one style.
    pub fn lines(&self) -> Vec<Vec<(String, Style)>> {
        let line = |row: &[(char, Style)]| {
            let runs = row.chunk_by(|(_, one), (_, other)| one == other);
            runs.map(|run| (run.iter().map(|(c, _)| c).collect(), run[0].1)).collect()
        };
        self.cells.chunks(self.width.max(1)).map(line).collect()
    }

    /// The rows without their styles.
    #[cfg(test)]
    pub fn text(&self) -> Vec<String> {
        let line = |row: &[(char, Style)]| row.iter().map(|(c, _)| c).collect::<String>().trim_end().to_owned();
        self.cells.chunks(self.width.max(1)).map(line).collect()
    }
}
