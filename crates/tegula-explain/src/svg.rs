//! Shapes as the text of an SVG file that is readable on light and on dark ground.

use std::fmt::Write;

/// Colours by class. Those of A, B, C and shared memory are from a palette that colour-blind readers tell apart (Okabe and Ito, 2008);
/// what matters is said by numbers and edges besides.
const STYLE: &str = "\
.ground{fill:#fff}.cell{fill:#fff;stroke:#b9bec7}.a{fill:#cfe6f7;stroke:#0072b2}.b{fill:#fbe3c4;stroke:#a34a00}\
.c{fill:#cdeee2;stroke:#00684a}.s{fill:#ecdcf2;stroke:#7b2d8b}.bar{fill:#0072b2}.bold{stroke:#1a1d23;stroke-width:2}\
text{fill:#1a1d23;font-family:ui-monospace,'DejaVu Sans Mono',monospace}.faint{fill:#565d69}\
@media(prefers-color-scheme:dark){.ground{fill:#14161a}.cell{fill:#191c21;stroke:#4a515e}.a{fill:#12354d;stroke:#6ec1ff}\
.b{fill:#4a2e0b;stroke:#ffb35c}.c{fill:#0d3d2f;stroke:#4fdcaf}.s{fill:#3d2347;stroke:#dd9cf0}.bar{fill:#6ec1ff}\
.bold{stroke:#eceff4}text{fill:#eceff4}.faint{fill:#aab2bf}}.flat{stroke:none}";

/// Where a text begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture in the making. It grows as far as its shapes reach.
#[derive(Debug, Default)]
pub(crate) struct Svg {
    body: String,
    right: f64,
    bottom: f64,
}

impl Svg {
    /// A rectangle with its top left corner at x, y.
    pub fn rect(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], class: &str) {
        self.reach(x + width, y + height);
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

    /// A text on a line whose middle is at y.
    pub fn text(&mut self, [x, y]: [f64; 2], size: f64, anchor: Anchor, class: &str, text: &str) {
        let width = 0.62 * size * text.chars().count() as f64;
        let (name, right) = match anchor {
            Anchor::Start => ("start", x + width),
            Anchor::Middle => ("middle", x + width / 2.0),
            Anchor::End => ("end", x),
        };
        self.reach(right, y + size / 2.0);
        let _ = writeln!(
            self.body,
            r#"<text class="{class}" x="{}" y="{}" font-size="{}" text-anchor="{name}">{}</text>"#,
            tenths(x),
            tenths(y + 0.36 * size),
            tenths(size),
            escaped(text)
        );
    }

    fn reach(&mut self, x: f64, y: f64) {
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

    /// The file. `told` is what somebody hears who does not see it.
    pub fn finish(self, title: &str, told: &str) -> String {
        let (width, height) = (self.right.ceil() + 12.0, self.bottom.ceil() + 12.0);
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title told">
<title id="title">{}</title>
<desc id="told">{}</desc>
<style>{STYLE}</style>
<rect class="ground" width="{width}" height="{height}"/>
{}</svg>
"#,
            escaped(title),
            escaped(told),
            self.body
        )
    }
}

/// Finer than that nobody sees.
fn tenths(length: f64) -> f64 {
    (10.0 * length).round() / 10.0
}

/// As the text of an element, or within quotes.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
