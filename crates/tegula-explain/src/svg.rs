//! SVG output, legible on light and dark backgrounds.

use std::fmt::Write;

/// Colors by class. A, B, C and shared memory have colors of a palette for color-blind readers
/// (Okabe and Ito, 2008); numbers and edges carry the same information.
const STYLE: &str = "\
.ground{fill:#fff}.cell{fill:#fff;stroke:#b9bec7}.a{fill:#cfe6f7;stroke:#0072b2}.b{fill:#fbe3c4;stroke:#a34a00}\
.c{fill:#cdeee2;stroke:#00684a}.s{fill:#ecdcf2;stroke:#7b2d8b}.bar{fill:#0072b2}.bold{stroke:#1a1d23;stroke-width:2}\
text{fill:#1a1d23;font-family:ui-monospace,'DejaVu Sans Mono',monospace}.faint{fill:#565d69}\
@media(prefers-color-scheme:dark){.ground{fill:#14161a}.cell{fill:#191c21;stroke:#4a515e}.a{fill:#12354d;stroke:#6ec1ff}\
.b{fill:#4a2e0b;stroke:#ffb35c}.c{fill:#0d3d2f;stroke:#4fdcaf}.s{fill:#3d2347;stroke:#dd9cf0}.bar{fill:#6ec1ff}\
.bold{stroke:#eceff4}text{fill:#eceff4}.faint{fill:#aab2bf}}.flat{stroke:none}";

/// The alignment of a text at its x coordinate.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// An SVG under construction; its size follows its shapes.
#[derive(Debug, Default)]
pub(crate) struct Svg {
    body: String,
    right: f64,
    bottom: f64,
}

impl Svg {
    /// Adds a rectangle with its top left corner at x, y.
    pub fn rect(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], class: &str) {
        self.extend(x + width, y + height);
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.body,
            r#"<rect class="{class}" x="{}" y="{}" width="{}" height="{}"/>"#,
            tenths(x),
            tenths(y),
            tenths(width),
            tenths(height)
        );
    }

    /// Adds a text, vertically centered at y.
    pub fn text(&mut self, [x, y]: [f64; 2], size: f64, anchor: Anchor, class: &str, text: &str) {
        let width = 0.62 * size * text.chars().count() as f64;
        let (name, right) = match anchor {
            Anchor::Start => ("start", x + width),
            Anchor::Middle => ("middle", x + width / 2.0),
            Anchor::End => ("end", x),
        };
        self.extend(right, y + size / 2.0);
        let _ = writeln!(
            self.body,
            r#"<text class="{class}" x="{}" y="{}" font-size="{}" text-anchor="{name}">{}</text>"#,
            tenths(x),
            tenths(y + 0.36 * size),
            tenths(size),
            escaped(text)
        );
    }

    fn extend(&mut self, x: f64, y: f64) {
        (self.right, self.bottom) = (self.right.max(x), self.bottom.max(y));
    }

    /// The lowest edge of all shapes so far.
    pub fn bottom(&self) -> f64 {
        self.bottom
    }

    /// The rightmost edge of all shapes so far.
    pub fn right(&self) -> f64 {
        self.right
    }

    /// The SVG text; `description` is for screen readers.
    pub fn finish(self, title: &str, description: &str) -> String {
        let (width, height) = (self.right.ceil() + 12.0, self.bottom.ceil() + 12.0);
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title desc">
<title id="title">{}</title>
<desc id="desc">{}</desc>
<style>{STYLE}</style>
<rect class="ground" width="{width}" height="{height}"/>
{}</svg>
"#,
            escaped(title),
            escaped(description),
            self.body
        )
    }
}

/// Rounds to tenths of a pixel.
fn tenths(length: f64) -> f64 {
    (10.0 * length).round() / 10.0
}

/// Escapes a text for an element or a quoted attribute.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
