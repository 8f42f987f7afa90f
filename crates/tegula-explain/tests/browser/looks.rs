//! Layout and contrast of the page in both color schemes, on desktop and phone.

use crate::chromium::{Window, page};
use crate::full;

const VIEWS: [&str; 8] = ["threads", "memory", "code", "cost", "roof", "compare", "loops", "mistakes"];

/// Elements that overlap, overflow the viewport, or are clipped; empty if none.
const LAYOUT: &str = r##"(() => {
  const wrong = [], name = (e) => `${e.tagName.toLowerCase()}${e.id ? "#" + e.id : ""} "${(e.textContent || "").trim().slice(0, 30)}"`;
  if (document.documentElement.scrollWidth > innerWidth) wrong.push(`the page is ${document.documentElement.scrollWidth} wide of ${innerWidth}`);
  const scrolls = (e) => e.closest(".scroll, .code");
  const all = [...document.querySelectorAll("h1, h2, p, label, select, input, button, output, figcaption, th, td, svg, kbd")];
  const seen = all.filter((e) => e.checkVisibility() && e.getClientRects().length && !scrolls(e));
  for (const e of seen) {
    const r = e.getBoundingClientRect();
    if (r.left < -0.5 || r.right > innerWidth + 0.5) wrong.push(`${name(e)} overflows: ${r.left} to ${r.right}`);
    if (e.matches("button, label, th, td, figcaption, p, h1, h2") && e.scrollWidth > e.clientWidth + 1 && e.clientWidth) wrong.push(`${name(e)} is clipped`);
  }
  for (const span of document.querySelectorAll("#phases span")) if (span.scrollWidth > span.clientWidth + 1) wrong.push(`phase ${name(span)} is clipped`);
  // Each element with those that start left of its right edge.
  const boxes = seen.map((e) => ({ e, r: e.getBoundingClientRect() })).sort((p, q) => p.r.left - q.r.left);
  boxes.forEach(({ e, r: a }, i) => {
    for (let j = i + 1; j < boxes.length && boxes[j].r.left < a.right - 1; j++) {
      const { e: other, r: b } = boxes[j];
      const w = Math.min(a.right, b.right) - b.left, h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (w > 1 && h > 1 && !e.contains(other) && !other.contains(e)) wrong.push(`${name(e)} overlaps ${name(other)}`);
    }
  });
  return wrong.slice(0, 5).join("\n");
})()"##;

/// Text with less contrast than WCAG 2 level AA; empty if none.
const CONTRAST: &str = r##"(() => {
  const rgb = (text) => { const n = text.match(/[\d.]+/g).map(Number); return n.length > 3 && n[3] === 0 ? null : n.slice(0, 3); };
  const light = (c) => c.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const under = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c) return c; } return [255, 255, 255]; };
  const wrong = [];
  const judge = (e, ink, ground, size, bold) => {
    const enough = size >= 24 || bold && size >= 18.66 ? 3 : 4.5, r = ratio(ink, ground);
    if (r < enough) wrong.push(`"${e.textContent.trim().slice(0, 30)}" in ${e.closest("[id]").id}: ${r.toFixed(2)} (${ink} on ${ground})`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const e = node.parentElement;
    if (!node.textContent.trim() || !e.checkVisibility() || e.closest("svg, script, style, option")) continue;
    const style = getComputedStyle(e);
    judge(e, rgb(style.color), under(e), parseFloat(style.fontSize), style.fontWeight >= 700);
  }
  for (const e of document.querySelectorAll("svg text")) {
    const stack = () => {
      const r = e.getBoundingClientRect();
      return document.elementsFromPoint(r.left + r.width / 2, r.top + r.height / 2);
    };
    // Only elements in the window are found.
    let found = stack();
    if (!found.includes(e)) {
      e.scrollIntoView({ block: "center" });
      found = stack();
    }
    const below = found.find((x) => x !== e);
    const fill = below && below.tagName === "rect" ? rgb(getComputedStyle(below).fill) : null;
    judge(e, rgb(getComputedStyle(e).fill), fill ?? under(e), parseFloat(getComputedStyle(e).fontSize), false);
  }
  scrollTo(0, 0);
  return [...new Set(wrong)].slice(0, 5).join("\n");
})()"##;

fn check(window: &Window, name: &str) {
    assert_eq!(window.eval(LAYOUT), "", "{name}");
    assert_eq!(window.eval(CONTRAST), "", "{name}");
    window.screenshot(name);
}

/// Checks all views in both schemes, on desktop and phone; in the quick run each scheme on one of
/// them.
fn check_all_views(state: &str, name: &str) {
    let Some(window) = page(state) else { return };
    for (width, height, own_scheme) in [(1400, 1100, "light"), (375, 800, "dark")] {
        window.size(width, height);
        for scheme in ["light", "dark"].into_iter().filter(|scheme| full() || *scheme == own_scheme) {
            window.scheme(scheme);
            for view in VIEWS {
                window.click(&format!("[data-view={view}]"));
                // The tick of the first error, if any.
                window.eval("document.querySelector('.error [data-finding]')?.click()");
                check(&window, &format!("{name}-{view}-{scheme}-{width}"));
            }
        }
    }
    window.assert_quiet();
}

#[test]
fn checks_detect_overlap_overflow_clipping_and_low_contrast() {
    let Some(window) = page("view=cost") else { return };
    assert_eq!((window.eval(LAYOUT).as_str(), window.eval(CONTRAST).as_str()), ("", ""));
    let problems = |style: &str, check: &str| {
        window.eval(&format!("document.head.insertAdjacentHTML('beforeend', '<style id=injected>{style}</style>')"));
        let problems = window.eval(check);
        window.eval("document.getElementById('injected').remove()");
        problems
    };
    assert!(problems("#say { margin-top: -30px }", LAYOUT).contains("overlaps"));
    assert!(problems("#tabs { transform: translateX(300px) }", LAYOUT).contains("overflows"));
    assert!(problems("#tabs button { max-width: 30px; overflow: hidden }", LAYOUT).contains("is clipped"));
    assert!(problems("#what { color: #999 }", CONTRAST).contains("tiled_f32_2"));
    assert!(problems("#matrices text { fill: #bbb }", CONTRAST).contains("in matrices"));
}

#[test]
fn small_launch_is_legible() {
    check_all_views("at=9&thread=1,0", "small");
}

#[test]
fn bank_conflict_is_legible() {
    check_all_views("kernel=tiled&tile=16&map=x-row&size=16x16x16&at=4&names=1", "conflict");
}

#[test]
fn large_launch_and_race_are_legible() {
    if full() {
        check_all_views("kernel=naive&tile=32&size=32x32x32&at=50", "large");
    }
    check_all_views("kernel=tiled&tile=2&mistake=missing-first-barrier&at=6", "race");
}
