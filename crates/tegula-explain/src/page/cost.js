// What kernels cost, side by side.

const COUNTERS = [
  ["global_load_requests", "global load requests"],
  ["global_load_sectors", "global load sectors, 32 bytes each"],
  ["global_store_requests", "global store requests"],
  ["global_store_sectors", "global store sectors"],
  ["shared_load_wavefronts", "shared load wavefronts"],
  ["shared_store_wavefronts", "shared store wavefronts"],
  ["shared_bank_conflicts", "shared bank conflicts"],
  ["fma", "multiply-adds"],
  ["barriers", "barriers, once a warp"],
];

function drawCost(app) {
  const { book, entry } = app;
  const alike = book.entries.filter((e) => ["m", "n", "k", "dtype", "mapping"].every((key) => e[key] === entry[key]) && !e.mistake);
  const order = (e) => (e.family === "naive" ? 0 : 100) + e.tile;
  const shown = alike.sort((a, b) => order(a) - order(b));
  const most = Math.max(...shown.map((e) => e.counters.global_load_sectors));
  const outputs = entry.m * entry.n;
  const rows = shown.map((e) => {
    const c = e.counters;
    return `<tr class="${e.kernel === entry.kernel ? "now" : ""}"><th>${e.family} ${e.tile}</th><td>${e.per_thread.global_loads}</td><td>${grouped(c.global_load_requests)}</td><td>${grouped(c.global_load_sectors)}</td>`
      + `<td style="text-align:left;min-width:6rem"><span class="bar" style="width:${(100 * c.global_load_sectors / most).toFixed(1)}%"></span></td><td>${grouped(c.shared_load_wavefronts + c.shared_store_wavefronts)}</td><td>${grouped(c.shared_bank_conflicts)}</td><td>${e.barriers_per_block}</td><td>${(2 * c.fma / (32 * (c.global_load_sectors + c.global_store_sectors))).toFixed(2)}</td></tr>`;
  });
  app.show("view", `<h2>${entry.m}×${entry.n}×${entry.k}, ${entry.dtype}, thread x is the ${entry.mapping === "x-row" ? "row" : "column"}: naive and tiled</h2>`
    + `<p>Without tiles each of the ${grouped(outputs)} elements of C takes 2·k = ${2 * entry.k} reads of global memory; with tiles of T it takes 2·⌈k/T⌉, and 2·T·⌈k/T⌉ reads of shared memory.</p>`
    + `<div class="scroll" tabindex="0" aria-label="Costs"><table><thead><tr><th>kernel, block</th><th>reads a thread</th><th>load requests</th><th colspan="2">L1 sectors of loads</th><th>shared passes</th><th>conflicts</th><th>barriers a block</th><th>flops a byte of L1</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`
    + `<p class="faint">Counted by running the kernels, as Nsight Compute's metrics of these names count. L2 and DRAM are not counted here: caches hold what warps read again.</p>`
    + ladder(book.ladder) + measured());
}

const intensity = (c) => c.flops / (32 * (c.global_load_sectors + c.global_store_sectors));

// From no tiles to tiles in registers.
function ladder({ side, rungs }) {
  const rows = rungs.map(({ name, counters: c }) => `<tr><th>${escaped(name)}</th><td>${grouped(c.global_load_requests)}</td><td>${grouped(c.global_load_sectors)}</td><td>${grouped(c.shared_load_wavefronts + c.shared_store_wavefronts)}</td><td>${c.shared_load_wavefronts ? (c.fma / (32 * c.shared_load_wavefronts)).toFixed(2) : "–"}</td><td>${intensity(c).toFixed(2)}</td></tr>`);
  return `<h2>From no tiles to tiles in registers: ${side}×${side}×${side}, f32</h2><div class="scroll" tabindex="0" aria-label="Ladder"><table><thead><tr><th>kernel</th><th>load requests</th><th>L1 sectors</th><th>shared passes</th><th>multiply-adds of a warp for a pass of loads</th><th>flops a byte of L1</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`
    + "<p class=\"faint\">One element a thread takes two loads from shared memory for each multiply-add, so that shared memory is the limit. With an 8×4 patch of C in its registers a thread uses each number it loads several times.</p>";
}

// What was measured at a size that a page cannot trace.
function measured() {
  const rows = [
    ["L1 sectors of loads", "10.7 G", "0.54 G", "fall 20 times: a tile's row is read once, not by every thread"],
    ["L2 sectors of reads", "607 M", "642 M", "do not fall: L1 held what the naive kernel's warps read again"],
    ["DRAM bytes read", "4.3 GB", "8.4 GB", "do not fall either"],
    ["speed, TOP/s", "6.3", "8.75", "1.4 times as fast"],
  ];
  return `<h2>Measured on an H200: i32, 4096³, blocks of 32×32</h2><div class="scroll" tabindex="0" aria-label="Measured"><table><thead><tr><th></th><th>naive</th><th>tiled</th><th></th></tr></thead><tbody>`
    + rows.map(([what, naive, tiled, why]) => `<tr><th>${what}</th><td>${naive}</td><td>${tiled}</td><td style="text-align:left" class="faint">${why}</td></tr>`).join("") + "</tbody></table></div>"
    + `<p class="faint">What tiling saves is requests and L1 traffic. The next factor of ten comes from tiles in registers.</p>`;
}

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
    ...COUNTERS.map(([key, label]) => row(label, metric(book, key, entry.dtype), entry.counters[key], other.counters[key]))];
  app.show("view", `<h2>${escaped(name(entry))} beside another kernel</h2><p><label>Compare with <select id="other">${options}</select></label></p>`
    + `<div class="scroll" tabindex="0" aria-label="Comparison"><table><thead><tr><th>counter, and its name in Nsight Compute</th><th>this</th><th>other</th><th>difference</th><th>ratio</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`);
}
