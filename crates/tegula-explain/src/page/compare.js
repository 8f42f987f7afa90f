// Two kernels side by side: counters with differences, and sources.

// The Nsight Compute metric of a counter; multiply-adds have one by type, and none for integers.
function metric(catalog, key, dtype) {
  const name = new Map(catalog.metrics).get(key);
  if (key !== "fma" || dtype === "f32") return name;
  return dtype === "f64" ? name.replace("ffma", "dfma") : "";
}

function drawCompare(app) {
  const { catalog, entry } = app;
  const same = catalog.entries.filter((e) => e.m === entry.m && e.n === entry.n && e.k === entry.k && e.dtype === entry.dtype);
  const name = (e) => `${e.family} ${e.tile} ${e.mapping}${e.mistake ? `, ${e.mistake}` : ""}`;
  const fallback = same.find((e) => e.family !== entry.family && e.tile === entry.tile && e.mapping === entry.mapping) ?? same.find((e) => e !== entry) ?? entry;
  const other = same.find((e) => e !== entry && name(e) === app.other) ?? fallback;
  if (other === entry) return app.show("view", "<p>No other kernel of this size has run: select another kernel first.</p>");
  const options = same.filter((e) => e !== entry).map((e) => `<option ${e === other ? "selected" : ""}>${escaped(name(e))}</option>`).join("");
  const row = (label, metric, mine, theirs) => {
    const difference = mine - theirs, ratio = theirs ? mine / theirs : mine ? Infinity : 1;
    return `<tr><th>${label}${metric ? `<br><span class="faint mono">${metric}</span>` : ""}</th><td>${grouped(mine)}</td><td>${grouped(theirs)}</td><td>${difference > 0 ? "+" : ""}${grouped(difference)}</td><td>${ratio === 1 ? "=" : Number.isFinite(ratio) ? `×${ratio.toPrecision(3)}` : ""}</td></tr>`;
  };
  const threads = Object.keys(entry.per_thread).map((key) => row(`${key.replace("_", " ")}, a thread`, "", entry.per_thread[key], other.per_thread[key]));
  const rows = [row("steps", "", entry.steps, other.steps), ...threads, row("barriers a block", "", entry.barriers_per_block, other.barriers_per_block),
    ...COUNTERS.flatMap(([key, label]) => {
      const written = row(label, metric(catalog, key, entry.dtype), entry.counters[key], other.counters[key]), merged = key.replace("shared_", "");
      const both = entry.assembled && other.assembled && merged in entry.assembled;
      return both ? [written, row(`${label}, as assembled`, "", entry.assembled[merged], other.assembled[merged])] : [written];
    })];
  app.show("view", `<h2>${escaped(name(entry))} and another kernel</h2><p><label>Compare with <select id="other">${options}</select></label></p>`
    + `<div class="scroll" tabindex="0" aria-label="Comparison"><table><thead><tr><th>counter, Nsight Compute metric</th><th>this</th><th>other</th><th>difference</th><th>ratio</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`
    + sideBySide(app, entry, other));
}

// The sources of two kernels by line; lines of only one are marked.
function sideBySide(app, entry, other) {
  const { catalog } = app, codes = [entry, other].map(({ kernel }) => catalog.codes[kernel]), { selected, buttons } = languages(app, codes);
  const key = [entry.kernel, other.kernel, selected].join(), known = app.differences ??= new Map();
  if (!known.has(key)) known.set(key, differences(...codes.map((code) => codeLines(catalog, code, selected))));
  // Half the indentation, since a column has half the width.
  const narrow = (text) => text.replace(/^ +/, (blank) => blank.slice(blank.length / 2));
  const cell = (line, sign, same) => `<td class="n">${line?.number ?? ""}</td><td class="${line && !same ? "differs" : ""}">${line ? `${same ? " " : sign} ${escaped(narrow(line.text))}` : ""}</td>`;
  const rows = known.get(key).map(({ mine, theirs, same }) => `<tr>${cell(mine, "−", same)}${cell(theirs, "+", same)}</tr>`);
  return `<h2>Sources</h2>${buttons}<p class="faint">− only in this kernel, + only in the other.</p><div class="code pair" tabindex="0" aria-label="Sources side by side"><table><thead><tr><th class="n"></th><th>${escaped(entry.kernel)}</th><th class="n"></th><th>${escaped(other.kernel)}</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`;
}

// Rows of two sources along a longest common subsequence; other lines are paired side by side.
function differences(mine, theirs) {
  const same = (i, j) => mine[i].text.trim() === theirs[j].text.trim(), wide = theirs.length + 1;
  const longest = new Uint16Array((mine.length + 1) * wide);
  for (let i = mine.length - 1; i >= 0; i--) {
    for (let j = theirs.length - 1; j >= 0; j--) longest[i * wide + j] = same(i, j) ? longest[(i + 1) * wide + j + 1] + 1 : Math.max(longest[(i + 1) * wide + j], longest[i * wide + j + 1]);
  }
  const rows = [], [here, there] = [[], []];
  const flush = () => {
    for (let i = 0; i < Math.max(here.length, there.length); i++) rows.push({ mine: here[i], theirs: there[i], same: false });
    here.length = there.length = 0;
  };
  for (let i = 0, j = 0; i < mine.length || j < theirs.length;) {
    if (i < mine.length && j < theirs.length && same(i, j)) {
      flush();
      rows.push({ mine: mine[i++], theirs: theirs[j++], same: true });
    } else if (j === theirs.length || i < mine.length && longest[(i + 1) * wide + j] >= longest[i * wide + j + 1]) here.push(mine[i++]);
    else there.push(theirs[j++]);
  }
  flush();
  return rows;
}
