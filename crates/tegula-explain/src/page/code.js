// The kernel as it was written, and what it becomes, with the lines of the moment lit.

// What does the work that a counter counts, in the languages of the machine; in C++ any of it.
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

// The languages in which a kernel can be shown, and of them the chosen one.
function languages(app, codes) {
  const there = LANGUAGES.filter(([key]) => key === "rust" || codes.every((code) => code?.[key]));
  const chosen = there.some(([key]) => key === app.language) ? app.language : "rust";
  const buttons = there.map(([key, name]) => `<button type="button" data-language="${key}" aria-pressed="${key === chosen}">${name}</button>`).join("");
  return { chosen, buttons: `<p class="row">${buttons}</p>` };
}

// A kernel's lines in a language, each with the keys of the lines of Rust that it comes from; of Rust itself the functions that do its work,
// and those with the lines of further keys.
function codeLines(book, code, language, further = []) {
  if (language === "rust") return rustLines(book, code, further);
  return code[language].lines.map((text, i) => ({ number: i + 1, text, keys: code[language].from[i].map((place) => place.join(":")) }));
}

function drawCode(app, frame) {
  const code = app.code(), book = app.book, { chosen, buttons } = languages(app, [code]);
  const site = frame.moment < 0 || frame.slide ? null : app.scenes.header.sites[app.scenes.operation(frame.moment).site];
  const lit = site && lineKey(book, site.file, site.line);
  const costs = lineCosts(app), { sites, operations } = app.scenes.header;
  const lines = codeLines(book, code, chosen, operations.map(({ site: at }) => lineKey(book, sites[at].file, sites[at].line)));
  // What a line of Rust cost stands at the first of those that it became which does such work, not where addresses are computed for it.
  const works = (text, cost) => chosen === "rust" || (chosen === "cuda" ? WORK_IN_CPP.test(text) : Object.entries(WORK).some(([what, pattern]) => cost[what] && pattern.test(text)));
  const bearers = new Map();
  for (const line of lines) for (const key of line.keys ?? []) if (costs.has(key) && !bearers.has(key) && works(line.text, costs.get(key))) bearers.set(key, line);
  const rows = lines.map((line) => {
    const { number, text, keys, gap } = line;
    if (gap) return `<tr><td class="n">⋮</td><td></td><td class="faint">${escaped(text)}</td></tr>`;
    const known = keys.some((key) => costs.has(key)), borne = keys.filter((key) => bearers.get(key) === line).map((key) => costs.get(key));
    return `<tr class="${keys.includes(lit) ? "lit" : ""} ${known ? "known" : ""}" data-key="${keys.join(" ")}"><td class="n">${number}</td><td class="cost">${costText(together(borne))}</td><td>${escaped(text)}</td></tr>`;
  });
  app.show("view", `<h2>${escaped(app.entry.kernel)}</h2>${buttons}`
    + `<p class="faint">${site ? `Lit: ${escaped(site.file.split("/").pop())}, line ${site.line}${site.copy ? `, unrolled copy ${site.copy + 1}` : ""}.` : "Nothing runs here."} Beside ${chosen === "rust" ? "each line" : "the first line of what a line of Rust became"} what it cost the whole launch.</p>`
    + `<div class="code" tabindex="0" aria-label="Source"><table>${rows.join("")}</table></div>`);
  const mark = document.querySelector("#view .lit:has(.cost:not(:empty))") ?? document.querySelector("#view .lit"), frame_ = document.querySelector("#view .code");
  if (mark) frame_.scrollTop = mark.offsetTop - frame_.clientHeight / 2;
}

function lineKey(book, file, line) {
  const name = file.split(/[\/\\]/).pop();
  return `${book.sources.findIndex((source) => source.file === name)}:${line}`;
}

// What each line cost, copies of it together.
function lineCosts(app) {
  const { header } = app.scenes, costs = new Map();
  for (const [site, counters] of header.lines) {
    const key = lineKey(app.book, header.sites[site].file, header.sites[site].line);
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
    c.shared_load_requests && `${grouped(c.shared_load_wavefronts)} ld passes`,
    c.shared_store_requests && `${grouped(c.shared_store_wavefronts)} st passes`,
    c.shared_bank_conflicts && `${grouped(c.shared_bank_conflicts)} conflicts`,
    c.fma && `${grouped(c.fma)} fma`,
    c.barriers && `${grouped(c.barriers)} waits`,
  ];
  return parts.filter(Boolean).join("; ");
}

// The functions in which the kernel's work is written: PTX says where that is.
function rustLines(book, code, further) {
  const rows = [], files = new Map(), works = (text) => Object.values(WORK).some((pattern) => pattern.test(text));
  const places = code.ptx.from.filter((_, i) => works(code.ptx.lines[i])).flat().concat(further.map((key) => key.split(":").map(Number)));
  for (const [source, line] of places.filter(([source]) => source >= 0)) {
    const span = files.get(source) ?? [line, line];
    files.set(source, [Math.min(span[0], line), Math.max(span[1], line)]);
  }
  for (const source of [...files.keys()].sort((a, b) => a - b)) {
    const { file, text } = book.sources[source], lines = text.split("\n");
    let [from, to] = files.get(source);
    // To the beginning and the end of the function that they are in.
    while (from > 1 && !/^\s*(pub(\(.*\))? )?fn /.test(lines[from - 1])) from--;
    while (to < lines.length && !/^( {4})?\}/.test(lines[to])) to++;
    const shown = lines.slice(from - 1, to + 1), blank = Math.min(...shown.filter((line) => line.trim()).map((line) => line.search(/\S/)));
    rows.push({ gap: true, text: file });
    shown.forEach((text, i) => rows.push({ number: from + i, text: text.slice(blank), keys: [`${source}:${from + i}`] }));
  }
  return rows;
}
