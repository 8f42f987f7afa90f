// Two kernels side by side: every counter as a difference, and their sources.

// What Nsight Compute calls a counter; of multiply-adds it has one for each type, and none for integers alone.
function metric(book, key, dtype) {
  const name = new Map(book.metrics).get(key);
  if (key !== "fma" || dtype === "f32") return name;
  return dtype === "f64" ? name.replace("ffma", "dfma") : "";
}

function drawCompare(app) {
  const { book, entry } = app;
  const same = book.entries.filter((e) => e.m === entry.m && e.n === entry.n && e.k === entry.k && e.dtype === entry.dtype);
  const name = (e) => `${e.family} ${e.tile} ${e.mapping}${e.mistake ? `, ${e.mistake}` : ""}`;
  const fallback = same.find((e) => e.family !== entry.family && e.tile === entry.tile && e.mapping === entry.mapping) ?? same.find((e) => e !== entry) ?? entry;
  const other = same.find((e) => e !== entry && name(e) === app.other) ?? fallback;
  if (other === entry) return app.show("view", "<p>There is nothing of this size to compare with yet: choose another kernel first.</p>");
  const options = same.filter((e) => e !== entry).map((e) => `<option ${e === other ? "selected" : ""}>${escaped(name(e))}</option>`).join("");
  const row = (label, metric, mine, theirs) => {
    const difference = mine - theirs, ratio = theirs ? mine / theirs : mine ? Infinity : 1;
    return `<tr><th>${label}${metric ? `<br><span class="faint mono">${metric}</span>` : ""}</th><td>${grouped(mine)}</td><td>${grouped(theirs)}</td><td>${difference > 0 ? "+" : ""}${grouped(difference)}</td><td>${ratio === 1 ? "=" : Number.isFinite(ratio) ? `×${ratio.toPrecision(3)}` : ""}</td></tr>`;
  };
  const threads = Object.keys(entry.per_thread).map((key) => row(`${key.replace("_", " ")}, a thread`, "", entry.per_thread[key], other.per_thread[key]));
  const rows = [row("steps", "", entry.steps, other.steps), ...threads, row("barriers a block", "", entry.barriers_per_block, other.barriers_per_block),
    ...COUNTERS.flatMap(([key, label]) => {
      const written = row(label, metric(book, key, entry.dtype), entry.counters[key], other.counters[key]), merged = key.replace("shared_", "");
      const both = entry.assembled && other.assembled && merged in entry.assembled;
      return both ? [written, row(`${label}, as assembled`, "", entry.assembled[merged], other.assembled[merged])] : [written];
    })];
  app.show("view", `<h2>${escaped(name(entry))} beside another kernel</h2><p><label>Compare with <select id="other">${options}</select></label></p>`
    + `<div class="scroll" tabindex="0" aria-label="Comparison"><table><thead><tr><th>counter, and its name in Nsight Compute</th><th>this</th><th>other</th><th>difference</th><th>ratio</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`
    + beside(app, entry, other));
}

// The sources of two kernels, line by line; what only one has is marked.
function beside(app, entry, other) {
  const { book } = app, codes = [entry, other].map(({ kernel }) => book.codes[kernel]), { chosen, buttons } = languages(app, codes);
  const key = [entry.kernel, other.kernel, chosen].join(), known = app.beside ??= new Map();
  if (!known.has(key)) known.set(key, differences(...codes.map((code) => codeLines(book, code, chosen))));
  // Half as far indented, for there is half as much room.
  const narrow = (text) => text.replace(/^ +/, (blank) => blank.slice(blank.length / 2));
  const cell = (line, sign, same) => `<td class="n">${line?.number ?? ""}</td><td class="${line && !same ? "differs" : ""}">${line ? `${same ? " " : sign} ${escaped(narrow(line.text))}` : ""}</td>`;
  const rows = known.get(key).map(({ mine, theirs, same }) => `<tr>${cell(mine, "−", same)}${cell(theirs, "+", same)}</tr>`);
  return `<h2>Their sources</h2>${buttons}<p class="faint">− only here, + only in the other.</p><div class="code pair" tabindex="0" aria-label="Sources side by side"><table><thead><tr><th class="n"></th><th>${escaped(entry.kernel)}</th><th class="n"></th><th>${escaped(other.kernel)}</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`;
}

// Rows of two sources, as many the same as can be; what differs between those stands side by side.
function differences(mine, theirs) {
  const same = (i, j) => mine[i].text.trim() === theirs[j].text.trim(), wide = theirs.length + 1;
  const longest = new Uint16Array((mine.length + 1) * wide);
  for (let i = mine.length - 1; i >= 0; i--) {
    for (let j = theirs.length - 1; j >= 0; j--) longest[i * wide + j] = same(i, j) ? longest[(i + 1) * wide + j + 1] + 1 : Math.max(longest[(i + 1) * wide + j], longest[i * wide + j + 1]);
  }
  const rows = [], [here, there] = [[], []];
  const apart = () => {
    for (let i = 0; i < Math.max(here.length, there.length); i++) rows.push({ mine: here[i], theirs: there[i], same: false });
    here.length = there.length = 0;
  };
  for (let i = 0, j = 0; i < mine.length || j < theirs.length;) {
    if (i < mine.length && j < theirs.length && same(i, j)) {
      apart();
      rows.push({ mine: mine[i++], theirs: theirs[j++], same: true });
    } else if (j === theirs.length || i < mine.length && longest[(i + 1) * wide + j] >= longest[i * wide + j + 1]) here.push(mine[i++]);
    else there.push(theirs[j++]);
  }
  apart();
  return rows;
}
