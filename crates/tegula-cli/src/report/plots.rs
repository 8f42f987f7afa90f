//! The HTML page of `tegula bench`: two SVG plots and a table in one self-contained file.

use std::fmt::Write as _;

use tegula::element::Type;

use super::bench::{Figures, Report, Row, short};

/// Sizes of a plot and its margins, in pixels.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 50.0;

/// A color for each operand type, which differ in lightness as well.
const COLORS: [&str; Type::OPERANDS.len()] = ["#332288", "#0077bb", "#ee7733", "#cc3311", "#117733", "#aa4499"];

/// Renders the page.
pub fn page(report: &Report) -> String {
    let measured: Vec<_> = report.rows.iter().filter_map(|row| Some((row, row.figures.as_ref()?))).collect();
    let mut body = format!("<h1>tegula bench</h1>\n<p>{}</p>\n", escape(&report.heading()));
    let _ = writeln!(body, "<p><code>{}</code></p>", escape(&report.command));
    if measured.iter().any(|(_, figures)| figures.ratio.is_some()) {
        body += "<h2>Ratio to the peer</h2>\n<p>The peer's time divided by Tegula's: above 1, Tegula is faster. Bars span the 20th to the 80th \
                 percentile of both; the band is the noise floor.</p>\n";
        body += &ratios(&measured);
    }
    if let (Some(limits), false) = (&report.limits, measured.is_empty()) {
        body += "<h2>Roofline</h2>\n<p>Slanted: copy bandwidth, measured in this run. Level: sustained rate of an instruction \
                 without memory accesses. Filled: Tegula; rings: the peer.</p>\n";
        body += &roofline(&measured, limits.copy_gbs, &limits.ceilings);
    }
    body += &table(&report.rows);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>tegula bench</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n{body}</body>\n</html>\n"
    )
}

const STYLE: &str = "\
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1000px; padding: 0 1em; color: #222; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }
th, td { padding: 2px 8px; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
.wrong { background: #fdd; }
";

/// A linear or logarithmic axis, which maps values to pixels.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    pixels: (f64, f64),
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let scale = |x: f64| if self.logarithmic { x.ln() } else { x };
        let part = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low));
        let (from, to) = self.pixels;
        from + part.clamp(0.0, 1.0) * (to - from)
    }

    /// A logarithmic axis that spans the values in whole decades.
    fn decades(values: impl Iterator<Item = f64>, pixels: (f64, f64)) -> Axis {
        let (low, high) = extent(values.filter(|x| *x > 0.0 && x.is_finite()));
        let low = 10f64.powf(low.log10().floor());
        let high = 10f64.powf(high.log10().ceil()).max(10.0 * low);
        Axis { low, high, logarithmic: true, pixels }
    }

    fn marks(&self) -> Vec<f64> {
        if self.logarithmic {
            let (first, last) = (self.low.log10().round() as i32, self.high.log10().round() as i32);
            return (first..=last).map(|power| 10f64.powi(power)).collect();
        }
        let rough = (self.high - self.low) / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|x| x * power).into_iter().find(|step| *step >= rough).unwrap_or(rough);
        (0..).map(|i| self.low + f64::from(i) * step).take_while(|x| *x <= self.high * (1.0 + 1e-9)).collect()
    }
}

fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), x| (low.min(x), high.max(x)));
    if low <= high { (low, high) } else { (1.0, 10.0) }
}

/// The plot of ratios, by row.
fn ratios(rows: &[(&Row, &Figures)]) -> String {
    let rows: Vec<_> = rows.iter().filter_map(|(row, figures)| Some((row, figures, figures.ratio?))).collect();
    let bars = rows.iter().map(|(_, figures, ratio)| bar(figures).unwrap_or((*ratio, *ratio)));
    let (_, high) = extent(bars.clone().map(|(_, high)| high).chain([1.05]));
    let y = Axis { low: 0.0, high: 1.05 * high, logarithmic: false, pixels: (HEIGHT - BOTTOM, TOP) };
    let step = (WIDTH - LEFT - RIGHT) / rows.len().max(1) as f64;
    let mut plot = frame(None, &y, "row", "ratio");
    plot += &level(y.at(1.0), "1.0", "#222");
    for (i, ((row, figures, ratio), (low, high))) in rows.iter().zip(bars).enumerate() {
        let (x, color) = (LEFT + (i as f64 + 0.5) * step, color(row.dtype));
        let spread = (y.at(1.0 - figures.spread), y.at(1.0 + figures.spread));
        let _ = writeln!(
            plot,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{step:.1}\" height=\"{:.1}\" fill=\"#888\" opacity=\"0.25\"/>",
            x - step / 2.0,
            spread.1,
            spread.0 - spread.1,
        );
        let _ = writeln!(
            plot,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{color}\"/>",
            y.at(low),
            y.at(high)
        );
        plot += &point(x, y.at(*ratio), color, true, &format!("{}: {ratio:.3}", name(row)));
        if rows.len() <= 40 {
            let _ = writeln!(
                plot,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"9\">{}</text>",
                HEIGHT - BOTTOM + 14.0 + 10.0 * (i % 2) as f64,
                escape(&sizes(row))
            );
        }
    }
    svg(&(plot + &legend(rows.iter().map(|(row, ..)| row.dtype))))
}

/// The ratio of the peer's fast to Tegula's slow samples, and the reverse.
fn bar(figures: &Figures) -> Option<(f64, f64)> {
    Some((figures.peer_p20_us? / figures.p80_us, figures.peer_p80_us? / figures.p20_us))
}

/// The roofline plot: speed by arithmetic intensity.
fn roofline(rows: &[(&Row, &Figures)], copy_gbs: f64, ceilings: &[super::bench::Ceiling]) -> String {
    let used = |dtype: &str| rows.iter().any(|(row, _)| row.dtype == dtype);
    let ceilings: Vec<_> = ceilings.iter().filter(|ceiling| used(ceiling.dtype)).collect();
    let speeds = rows.iter().flat_map(|(_, figures)| [Some(figures.tflops), figures.peer_tflops]).flatten();
    let speeds = speeds.chain(ceilings.iter().map(|ceiling| ceiling.tflops));
    // Include the ridge points.
    let ridges = speeds.clone().map(|speed| speed / (copy_gbs / 1e3));
    let x = Axis::decades(rows.iter().map(|(row, _)| row.intensity).chain(ridges), (LEFT, WIDTH - RIGHT));
    let y = Axis::decades(speeds, (HEIGHT - BOTTOM, TOP));
    let mut plot = frame(Some(&x), &y, "operations per byte", "TFLOP/s");
    for ceiling in &ceilings {
        let name = format!("{} {}", ceiling.instruction, short(ceiling.tflops));
        plot += &level(y.at(ceiling.tflops), &name, color(ceiling.dtype));
    }
    plot += &slope(&x, &y, copy_gbs / 1e3);
    for (row, figures) in rows {
        let (at, color) = (x.at(row.intensity), color(row.dtype));
        if let (Some(speed), Some(peer)) = (figures.peer_tflops, &figures.peer) {
            plot += &point(at, y.at(speed), color, false, &format!("{}: {peer}, {} TFLOP/s", name(row), short(speed)));
        }
        let said = format!("{}: {}, {} TFLOP/s", name(row), figures.kernel, short(figures.tflops));
        plot += &point(at, y.at(figures.tflops), color, true, &said);
    }
    svg(&(plot + &legend(rows.iter().map(|(row, _)| row.dtype))))
}

/// The slanted line of the roofline: speed = intensity · `rate`.
fn slope(x: &Axis, y: &Axis, rate: f64) -> String {
    let (from, to) = ((y.low / rate).max(x.low), (y.high / rate).min(x.high));
    if from >= to {
        return String::new();
    }
    format!(
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#222\" stroke-dasharray=\"6 3\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\">copy, {} TB/s</text>\n",
        x.at(from),
        y.at(from * rate),
        x.at(to),
        y.at(to * rate),
        x.at(from) + 24.0,
        y.at(from * rate) - 6.0,
        short(rate),
    )
}

/// Axes with ticks and names.
fn frame(x: Option<&Axis>, y: &Axis, x_name: &str, y_name: &str) -> String {
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    let mut plot = format!(
        "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#888\"/>\n",
        right - LEFT,
        bottom - TOP
    );
    for mark in y.marks() {
        let at = y.at(mark);
        let _ = writeln!(plot, "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>");
        let _ = writeln!(
            plot,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            mark_text(mark)
        );
    }
    for mark in x.map(Axis::marks).unwrap_or_default() {
        let at = x.map_or(0.0, |x| x.at(mark));
        let _ = writeln!(plot, "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"#ddd\"/>");
        let _ = writeln!(
            plot,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 16.0,
            mark_text(mark)
        );
    }
    let (middle, half) = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
    let _ = writeln!(plot, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{x_name}</text>", HEIGHT - 8.0);
    let _ = writeln!(
        plot,
        "<text x=\"16\" y=\"{half}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {half})\">{y_name}</text>"
    );
    plot
}

/// The label of an axis tick.
fn mark_text(mark: f64) -> String {
    let text = format!("{mark:.4}");
    if mark >= 1e5 { format!("{mark:.0e}") } else { text.trim_end_matches('0').trim_end_matches('.').into() }
}

/// A horizontal line with its name to the right.
fn level(y: f64, name: &str, color: &str) -> String {
    let right = WIDTH - RIGHT;
    format!(
        "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{color}\" stroke-width=\"1.5\"/>\n\
         <text x=\"{}\" y=\"{:.1}\" fill=\"{color}\">{}</text>\n",
        right + 6.0,
        y + 4.0,
        escape(name)
    )
}

fn point(x: f64, y: f64, color: &str, filled: bool, said: &str) -> String {
    let fill = if filled { color } else { "none" };
    format!(
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"{color}\" stroke-width=\"1.5\"><title>{}</title></circle>\n",
        escape(said)
    )
}

/// The legend of types that occur.
fn legend<'a>(dtypes: impl Iterator<Item = &'a str> + Clone) -> String {
    let used = colors().filter(|(name, _)| dtypes.clone().any(|dtype| dtype == *name));
    let entry = |(i, (name, color)): (usize, (&str, &str))| {
        let x = LEFT + 10.0 + 60.0 * i as f64;
        let text = format!("<text x=\"{}\" y=\"{}\">{name}</text>\n", x + 8.0, TOP + 16.0);
        point(x, TOP + 12.0, color, true, name) + &text
    };
    used.enumerate().map(entry).collect()
}

fn color(dtype: &str) -> &'static str {
    colors().find(|(name, _)| *name == dtype).map_or("#222", |(_, color)| color)
}

/// The names of types and their colors.
fn colors() -> impl Iterator<Item = (&'static str, &'static str)> {
    Type::OPERANDS.into_iter().map(Type::name).zip(COLORS)
}

fn svg(content: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n{content}</svg>\n")
}

fn sizes(row: &Row) -> String {
    let Row { m, n, k, batch, .. } = row;
    let one = if m == n && n == k { format!("{m}³") } else { format!("{m}×{n}×{k}") };
    if *batch == 1 { one } else { format!("{batch}·{one}") }
}

fn name(row: &Row) -> String {
    format!("{} {} {}", row.dtype, row.layout, sizes(row))
}

fn table(rows: &[Row]) -> String {
    let names = [
        "product", "kernel", "TFLOP/s", "µs", "p20", "p80", "peer", "TFLOP/s", "µs", "ratio", "spread", "r", "peer r",
        "rows",
    ];
    let mut table = "<h2>Rows</h2>\n<table>\n<tr>".to_owned();
    names.iter().for_each(|name| table += &format!("<th>{name}</th>"));
    table += "</tr>\n";
    for row in rows {
        let cells = cells(row);
        let wrong = row.figures.as_ref().is_none_or(|figures| !figures.ok);
        table += if wrong { "<tr class=\"wrong\">" } else { "<tr>" };
        cells.iter().for_each(|cell| table += &format!("<td>{}</td>", escape(cell)));
        table += "</tr>\n";
    }
    table + "</table>\n"
}

fn cells(row: &Row) -> Vec<String> {
    let Some(figures) = &row.figures else {
        return vec![name(row), row.error.clone().unwrap_or_default()];
    };
    let or_none = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), short);
    vec![
        name(row),
        figures.kernel.clone(),
        short(figures.tflops),
        short(figures.us),
        short(figures.p20_us),
        short(figures.p80_us),
        figures.peer.clone().unwrap_or_else(|| "–".into()),
        or_none(figures.peer_tflops),
        or_none(figures.peer_us),
        figures.ratio.map_or_else(|| "–".into(), |ratio| format!("{ratio:.3}")),
        format!("{:.4}", figures.spread),
        short(figures.r),
        or_none(figures.peer_r),
        figures.rows_checked.to_string(),
    ]
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::bench::tests::{report, row};
    use super::*;

    #[test]
    fn page_is_self_contained_and_escaped() {
        let page = page(&report(vec![row(Some(0.25), None), row(None, Some("no <room> & \"more\""))]));
        for outside in ["http", "src=", "href=", "url(", "@import", "<script", "<link"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("no &lt;room&gt; &amp; &quot;more&quot;"));
        for part in ["svg", "table", "html", "body"] {
            let (opened, closed) =
                (page.matches(&format!("<{part}")).count(), page.matches(&format!("</{part}>")).count());
            assert_eq!((opened, opened > 0), (closed, true), "{part}");
        }
        assert!(page.contains("FFMA 64.5") && page.contains("copy, 4.29 TB/s"));
    }

    #[test]
    fn plots_have_a_point_per_measurement() {
        let points = |rows| page(&report(rows)).matches("<circle").count();
        // In the plot of ratios one, in the other one for each side, and one in each legend.
        assert_eq!(points(vec![row(Some(0.25), None), row(Some(1.5), None)]), 2 + 4 + 2);
        assert_eq!(points(vec![row(None, None)]), 1 + 1, "no ratio, no plot of it");
        assert_eq!(points(vec![row(None, Some("no room"))]), 0);
        assert!(!page(&report(Vec::new())).contains("NaN"));
    }

    #[test]
    fn axes_map_values_to_pixels() {
        let linear = Axis { low: 0.0, high: 2.0, logarithmic: false, pixels: (100.0, 0.0) };
        assert_eq!([0.0, 1.0, 2.0, 9.0].map(|x| linear.at(x)), [100.0, 50.0, 0.0, 0.0]);
        assert_eq!(linear.marks(), [0.0, 0.5, 1.0, 1.5, 2.0]);
        let decades = Axis::decades([3.0, 0.2, f64::NAN].into_iter(), (0.0, 200.0));
        assert_eq!((decades.low, decades.high, decades.at(1.0).round()), (0.1, 10.0, 100.0));
        assert_eq!(decades.marks().len(), 3);
        assert_eq!(Axis::decades([].into_iter(), (0.0, 1.0)).marks(), [1.0, 10.0]);
        assert_eq!([0.5, 10.0, 1e6, 0.001].map(mark_text), ["0.5", "10", "1e6", "0.001"]);
    }
}
