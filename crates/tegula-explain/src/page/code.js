// The kernel's source and its translations; the lines of the current tick are highlighted.

// Instructions that a counter counts, in PTX and SASS; in C++ any of them.
const WORK = {
  global_load_requests: /\bLDG|\bld\.global|\bcp\.async/,
  global_store_requests: /\bSTG|\bst\.global/,
  shared_load_requests: /\bLDS|\bld\.shared|\bldmatrix/,
  shared_store_requests: /\bSTS|\bst\.shared|\bcp\.async/,
  fma: /\b([FDH]FMA|IMAD|[DHI]MMA)|\b(fma|mad|mma)\./,
  barriers: /\bBAR|\bbar\./,
};
const WORK_IN_CPP = /\w\[|\bfmaf?\b|\*|__syncthreads/;
const LANGUAGES = [["rust", "Rust"], ["cuda", "CUDA C++"], ["ptx", "PTX"], ["sass", "SASS"]];

// The languages available for these kernels, and the selected one.
function languages(app, codes) {
  const available = LANGUAGES.filter(([key]) => key === "rust" || codes.every((code) => code?.[key]));
  const selected = available.some(([key]) => key === app.language) ? app.language : "rust";
  const buttons = available.map(([key, name]) => `<button type="button" data-language="${key}" aria-pressed="${key === selected}">${name}</button>`).join("");
  return { selected, buttons: `<p class="row">${buttons}</p>` };
}

// A kernel's lines in a language, each with the keys of its Rust source lines. For Rust, the
// functions with counted instructions and with the lines of `further` keys.
function codeLines(catalog, code, language, further = []) {
  if (language === "rust") return rustLines(catalog, code, further);
  return code[language].lines.map((text, i) => ({ number: i + 1, text, keys: code[language].from[i].map((place) => place.join(":")) }));
}

function drawCode(app, frame) {
  const code = app.code(), catalog = app.catalog, { selected, buttons } = languages(app, [code]);
  const site = frame.tick < 0 || frame.slide ? null : app.model.header.sites[app.model.operation(frame.tick).site];
  const lit = site && lineKey(catalog, site.file, site.line);
  const costs = lineCosts(app), { sites, operations } = app.model.header;
  const lines = codeLines(catalog, code, selected, operations.map(({ site: at }) => lineKey(catalog, sites[at].file, sites[at].line)));
  // The cost of a Rust line is shown at its first translated line with a counted instruction, not
  // at address arithmetic.
  const works = (text, cost) => selected === "rust" || (selected === "cuda" ? WORK_IN_CPP.test(text) : Object.entries(WORK).some(([what, pattern]) => cost[what] && pattern.test(text)));
  const costLines = new Map();
  for (const line of lines) for (const key of line.keys ?? []) if (costs.has(key) && !costLines.has(key) && works(line.text, costs.get(key))) costLines.set(key, line);
  const rows = lines.map((line) => {
    const { number, text, keys, gap } = line;
    if (gap) return `<tr><td class="n">⋮</td><td></td><td class="faint">${escaped(text)}</td></tr>`;
    const known = keys.some((key) => costs.has(key)), costsHere = keys.filter((key) => costLines.get(key) === line).map((key) => costs.get(key));
    return `<tr class="${keys.includes(lit) ? "lit" : ""} ${known ? "known" : ""}" data-key="${keys.join(" ")}"><td class="n">${number}</td><td class="cost">${costText(together(costsHere))}</td><td>${escaped(text)}</td></tr>`;
  });
  app.show("view", `<h2>${escaped(app.entry.kernel)}</h2>${buttons}`
    + `<p class="faint">${site ? `Highlighted: ${escaped(site.file.split("/").pop())}, line ${site.line}${site.copy ? `, unrolled copy ${site.copy + 1}` : ""}.` : "No instruction runs."} Costs are of the whole launch${selected === "rust" ? "" : ", at the first line of each Rust line"}.</p>`
    + `<div class="code" tabindex="0" aria-label="Source"><table>${rows.join("")}</table></div>`);
  const mark = document.querySelector("#view .lit:has(.cost:not(:empty))") ?? document.querySelector("#view .lit"), frame_ = document.querySelector("#view .code");
  if (mark) frame_.scrollTop = mark.offsetTop - frame_.clientHeight / 2;
}

function lineKey(catalog, file, line) {
  const name = file.split(/[\/\\]/).pop();
  return `${catalog.sources.findIndex((source) => source.file === name)}:${line}`;
}

// The cost of each line, summed over its unrolled copies.
function lineCosts(app) {
  const { header } = app.model, costs = new Map();
  for (const [site, counters] of header.lines) {
    const key = lineKey(app.catalog, header.sites[site].file, header.sites[site].line);
    costs.set(key, together([costs.get(key) ?? {}, counters]));
  }
  return costs;
}

function together(all) {
  const sum = {};
  for (const counters of all) for (const [name, count] of Object.entries(counters)) sum[name] = (sum[name] ?? 0) + count;
  return sum;
}

function costText(c) {
  const parts = [
    c.global_load_requests && `${grouped(c.global_load_requests)} ld, ${grouped(c.global_load_sectors)} sectors`,
    c.global_store_requests && `${grouped(c.global_store_requests)} st, ${grouped(c.global_store_sectors)} sectors`,
    c.shared_load_requests && `${grouped(c.shared_load_wavefronts)} ld wavefronts`,
    c.shared_store_requests && `${grouped(c.shared_store_wavefronts)} st wavefronts`,
    c.shared_bank_conflicts && `${grouped(c.shared_bank_conflicts)} conflicts`,
    c.fma && `${grouped(c.fma)} fma`,
    c.barriers && `${grouped(c.barriers)} barriers`,
  ];
  return parts.filter(Boolean).join("; ");
}

// The functions with counted instructions, according to the PTX source lines.
function rustLines(catalog, code, further) {
  const rows = [], files = new Map(), works = (text) => Object.values(WORK).some((pattern) => pattern.test(text));
  const places = code.ptx.from.filter((_, i) => works(code.ptx.lines[i])).flat().concat(further.map((key) => key.split(":").map(Number)));
  for (const [source, line] of places.filter(([source]) => source >= 0)) {
    const span = files.get(source) ?? [line, line];
    files.set(source, [Math.min(span[0], line), Math.max(span[1], line)]);
  }
  for (const source of [...files.keys()].sort((a, b) => a - b)) {
    const { file, text } = catalog.sources[source], lines = text.split("\n");
    let [from, to] = files.get(source);
    // Extend to the start and the end of the enclosing function.
    while (from > 1 && !/^\s*(pub(\(.*\))? )?fn /.test(lines[from - 1])) from--;
    while (to < lines.length && !/^( {4})?\}/.test(lines[to])) to++;
    const shown = lines.slice(from - 1, to + 1), blank = Math.min(...shown.filter((line) => line.trim()).map((line) => line.search(/\S/)));
    rows.push({ gap: true, text: file });
    shown.forEach((text, i) => rows.push({ number: from + i, text: text.slice(blank), keys: [`${source}:${from + i}`] }));
  }
  return rows;
}
