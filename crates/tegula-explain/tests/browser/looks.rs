//! How the page looks: nothing overlaps or is cut off, and all text can be read, in both colour schemes, on a desk and on a phone.

use crate::chromium::{Window, page};
use crate::full;

const VIEWS: [&str; 8] = ["threads", "memory", "code", "cost", "roof", "compare", "loops", "mistakes"];

/// What overlaps, sticks out, or has its text cut; empty if nothing.
const LAYOUT: &str = r##"(() => {
  const wrong = [], name = (e) => `${e.tagName.toLowerCase()}${e.id ? "#" + e.id : ""} "${(e.textContent || "").trim().slice(0, 30)}"`;
  if (document.documentElement.scrollWidth > innerWidth) wrong.push(`the page is ${document.documentElement.scrollWidth} wide of ${innerWidth}`);
  const scrolls = (e) => e.closest(".scroll, .code");
  const all = [...document.querySelectorAll("h1, h2, p, label, select, input, button, output, figcaption, th, td, svg, kbd")];
  const seen = all.filter((e) => e.checkVisibility() && e.getClientRects().length && !scrolls(e));
  for (const e of seen) {
    const r = e.getBoundingClientRect();
    if (r.left < -0.5 || r.right > innerWidth + 0.5) wrong.push(`${name(e)} sticks out: ${r.left} to ${r.right}`);
    if (e.matches("button, label, th, td, figcaption, p, h1, h2") && e.scrollWidth > e.clientWidth + 1 && e.clientWidth) wrong.push(`${name(e)} is cut off`);
  }
  for (const span of document.querySelectorAll("#acts span")) if (span.scrollWidth > span.clientWidth + 1) wrong.push(`act ${name(span)} is cut off`);
  for (let i = 0; i < seen.length; i++) {
    for (let j = i + 1; j < seen.length; j++) {
      if (seen[i].contains(seen[j]) || seen[j].contains(seen[i])) continue;
      const [a, b] = [seen[i].getBoundingClientRect(), seen[j].getBoundingClientRect()];
      const w = Math.min(a.right, b.right) - Math.max(a.left, b.left), h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (w > 1 && h > 1) wrong.push(`${name(seen[i])} overlaps ${name(seen[j])}`);
    }
  }
  return wrong.slice(0, 5).join("\n");
})()"##;

/// Text whose contrast is below that of WCAG 2, level AA; empty if none.
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
    e.scrollIntoView({ block: "center" });
    const r = e.getBoundingClientRect(), below = document.elementsFromPoint(r.left + r.width / 2, r.top + r.height / 2).find((x) => x !== e);
    const fill = below && below.tagName === "rect" ? rgb(getComputedStyle(below).fill) : null;
    judge(e, rgb(getComputedStyle(e).fill), fill ?? under(e), parseFloat(getComputedStyle(e).fontSize), false);
  }
  scrollTo(0, 0);
  return [...new Set(wrong)].slice(0, 5).join("\n");
})()"##;

fn judged(window: &Window, name: &str) {
    assert_eq!(window.ask(LAYOUT), "", "{name}");
    assert_eq!(window.ask(CONTRAST), "", "{name}");
    window.picture(name);
}

/// In all views, both schemes, on a desk and on a phone.
fn everywhere(state: &str, name: &str) {
    let Some(window) = page(state) else { return };
    for (width, height) in [(1400, 1100), (375, 800)] {
        window.size(width, height);
        for scheme in ["light", "dark"] {
            window.scheme(scheme);
            for view in VIEWS {
                window.click(&format!("[data-view={view}]"));
                // Where it happens, if there is something wrong.
                window.ask("document.querySelector('.error [data-finding]')?.click()");
                judged(&window, &format!("{name}-{view}-{scheme}-{width}"));
            }
        }
    }
    window.was_quiet();
}

#[test]
fn what_cannot_be_read_is_noticed() {
    let Some(window) = page("view=cost") else { return };
    assert_eq!((window.ask(LAYOUT).as_str(), window.ask(CONTRAST).as_str()), ("", ""));
    let noticed = |style: &str, check: &str| {
        window.ask(&format!("document.head.insertAdjacentHTML('beforeend', '<style id=planted>{style}</style>')"));
        let said = window.ask(check);
        window.ask("document.getElementById('planted').remove()");
        said
    };
    assert!(noticed("#say { margin-top: -30px }", LAYOUT).contains("overlaps"));
    assert!(noticed("#tabs { transform: translateX(300px) }", LAYOUT).contains("sticks out"));
    assert!(noticed("#tabs button { max-width: 30px; overflow: hidden }", LAYOUT).contains("is cut off"));
    assert!(noticed("#what { color: #999 }", CONTRAST).contains("tiled_f32_2"));
    assert!(noticed("#matrices text { fill: #bbb }", CONTRAST).contains("in matrices"));
}

#[test]
fn the_smallest_product_can_be_read() {
    everywhere("at=9&thread=1,0", "small");
}

#[test]
fn a_conflict_can_be_read() {
    everywhere("kernel=tiled&tile=16&map=x-row&size=16x16x16&at=4&names=1", "conflict");
}

#[test]
fn a_large_product_and_a_race_can_be_read() {
    if full() {
        everywhere("kernel=naive&tile=32&size=32x32x32&at=50", "large");
    }
    everywhere("kernel=tiled&tile=2&mistake=missing-first-barrier&at=6", "race");
}
