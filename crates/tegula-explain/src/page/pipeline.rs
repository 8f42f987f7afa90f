//! A page of one pipeline: its timeline as a picture, and who waited for whom. It has no program: nothing on it moves.

use super::STYLE;
use crate::pipeline::{MARKS, Timeline, picture, told};
use crate::svg::{Svg, escaped};
use crate::trace::Trace;

const FRAME: &str = include_str!("pipeline.html");

/// Columns of a picture; a longer timeline has several, one below the other.
const COLUMNS: u32 = 60;

/// The most pictures: of what is longer, the beginning is shown.
const PICTURES: u32 = 20;

/// The page, whole. `block` is the one that is shown.
pub fn pipeline(trace: &Trace, block: [u32; 3], timeline: &Timeline) -> String {
    let [x, y, _] = block;
    let shown = timeline.columns.min(COLUMNS * PICTURES);
    let pictures = (0..shown.div_ceil(COLUMNS).max(1)).map(|part| {
        let mut svg = Svg::default();
        picture(&mut svg, timeline, [part * COLUMNS, (part + 1) * COLUMNS]);
        let svg = svg.finish("Who does what when", &told(timeline));
        // Each has its own title, and ids are unique in a page.
        let svg = ["title", "told"]
            .iter()
            .fold(svg, |svg, id| svg.replace(&format!("id=\"{id}\""), &format!("id=\"{id}-{part}\"")));
        let svg =
            svg.replace("aria-labelledby=\"title told\"", &format!("aria-labelledby=\"title-{part} told-{part}\""));
        format!(
            "    <div class=\"scroll timeline\" tabindex=\"0\" aria-label=\"Columns from {}\">{svg}</div>\n",
            part * COLUMNS
        )
    });
    let mut pictures: String = pictures.collect();
    if shown < timeline.columns {
        pictures += &format!("    <p class=\"faint\">… and {} more columns.</p>\n", timeline.columns - shown);
    }
    let terms: String = timeline.terms().iter().map(|line| format!("    <p>{}</p>\n", escaped(line))).collect();
    let waits: String = timeline
        .who_waited()
        .iter()
        .map(|told| {
            let waits: String = told.waits.iter().map(|wait| format!("<li>{}</li>", escaped(wait))).collect();
            format!("    <p>{}</p>\n    <ul>{waits}</ul>\n", escaped(&told.busy))
        })
        .collect();
    let what = format!("{}: block {x},{y}; {} columns", trace.header.kernel, timeline.columns);
    let made = format!("Made by tegula {} by running the kernel itself.", env!("CARGO_PKG_VERSION"));
    FRAME
        .replace("/*STYLE*/", STYLE)
        .replace("/*WHAT*/", &escaped(&what))
        .replace("/*TERMS*/\n", &terms)
        .replace("/*MARKS*/", &escaped(&format!("{MARKS}.")))
        .replace("/*PICTURES*/\n", &pictures)
        .replace("/*WAITS*/\n", &waits)
        .replace("/*MADE*/", &made)
}
