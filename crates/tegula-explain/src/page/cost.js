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
  const outputs = entry.m * entry.n, assembled = shown.some((e) => e.assembled);
  const rows = shown.map((e) => {
    const c = e.counters;
    return `<tr class="${e.kernel === entry.kernel ? "now" : ""}"><th>${e.family}&nbsp;${e.tile}</th><td>${e.per_thread.global_loads}</td><td>${grouped(c.global_load_requests)}</td><td>${grouped(c.global_load_sectors)}</td>`
      + `<td style="text-align:left;min-width:6rem"><span class="bar" style="width:${(100 * c.global_load_sectors / most).toFixed(1)}%"></span></td><td>${grouped(passes(c))}</td>${assembled ? `<td>${e.assembled ? grouped(passes(c, e.assembled)) : "–"}</td>` : ""}<td>${grouped(c.shared_bank_conflicts)}</td><td>${e.barriers_per_block}</td><td>${(2 * c.fma / (32 * (c.global_load_sectors + c.global_store_sectors))).toFixed(2)}</td></tr>`;
  });
  app.show("view", `<h2>${entry.m}×${entry.n}×${entry.k}, ${entry.dtype}, thread x is the ${entry.mapping === "x-row" ? "row" : "column"}: naive and tiled</h2>`
    + `<p>Without tiles each of the ${grouped(outputs)} elements of C takes 2·k = ${2 * entry.k} reads of global memory; with tiles of T it takes 2·⌈k/T⌉, and 2·T·⌈k/T⌉ reads of shared memory.</p>`
    + `<div class="scroll" tabindex="0" aria-label="Costs"><table><thead><tr><th>kernel, block</th><th>reads a thread</th><th>load requests</th><th colspan="2">L1 sectors of loads</th><th>shared passes${assembled ? " as written</th><th>as assembled" : ""}</th><th>conflicts</th><th>barriers a block</th><th>flops a byte of L1</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`
    + `<p class="faint">Counted by running the kernels, as Nsight Compute's metrics of these names count.${assembled ? " The assembler makes one wide load of neighbours, which takes fewer passes over the banks." : ""} L2 and DRAM are not counted here: caches hold what warps read again.</p>`
    + ladder(book.ladder) + book.devices.map(measured).join(""));
}

const intensity = (c) => c.flops / (32 * (c.global_load_sectors + c.global_store_sectors));

// From no tiles to tiles in registers.
function ladder({ side, dtype, rungs }) {
  const same = rungs.filter(({ sizes }) => sizes.every((size) => size === side)), assembled = same.some((rung) => rung.assembled);
  const rows = same.map(({ name, counters: [c], assembled: a }) => `<tr><th>${escaped(name)}</th><td>${grouped(c.global_load_requests)}</td><td>${grouped(c.global_load_sectors)}</td><td>${grouped(passes(c))}</td>${assembled ? `<td>${a ? grouped(passes(c, a[0])) : "–"}</td>` : ""}<td>${c.shared_load_wavefronts ? (c.fma / (32 * c.shared_load_wavefronts)).toFixed(2) : "–"}</td><td>${intensity(c).toFixed(2)}</td></tr>`);
  return `<h2>From no tiles to tiles in registers: ${side}×${side}×${side}, ${dtype}</h2><div class="scroll" tabindex="0" aria-label="Ladder"><table><thead><tr><th>kernel</th><th>load requests</th><th>L1 sectors</th><th>shared passes${assembled ? " as written</th><th>as assembled" : ""}</th><th>multiply-adds of a warp for a pass of loads</th><th>flops a byte of L1</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`
    + "<p class=\"faint\">One element a thread takes two loads from shared memory for each multiply-add, so that shared memory is the limit. With an 8×4 patch of C in its registers a thread uses each number it loads several times.</p>";
}

// What was measured at a size that a page cannot trace.
function measured({ name, traffic: { dtype, side, tile, kernels, source } }) {
  const [naive, tiled] = ["naive", "tiled"].map((family) => kernels[`${family}_${dtype}_${tile}`]);
  const large = (value) => value >= 1e12 ? `${(value / 1e12).toPrecision(3)} T` : value >= 1e9 ? `${(value / 1e9).toPrecision(3)} G` : `${(value / 1e6).toPrecision(3)} M`;
  const rows = [
    ["L1 sectors of loads", "l1_sectors", (fall) => `fall ${fall.toFixed(0)} times: a tile's row is read once, not by every thread`],
    ["L2 sectors of reads", "l2_sectors", () => "do not fall: L1 held what the naive kernel's warps read again"],
    ["DRAM bytes read", "dram_bytes", () => "do not fall either"],
    ["operations a second", "speed", (fall) => `${(1 / fall).toFixed(1)} times as fast`],
  ];
  const of = (kernel, key) => key === "speed" ? kernel.tflops * 1e12 : kernel[key];
  return `<h2>Measured on an ${escaped(name)}: ${dtype}, ${side}³, blocks of ${tile}×${tile}</h2><div class="scroll" tabindex="0" aria-label="Measured"><table><thead><tr><th></th><th>naive</th><th>tiled</th><th></th></tr></thead><tbody>`
    + rows.map(([what, key, why]) => `<tr><th>${what}</th><td>${large(of(naive, key))}</td><td>${large(of(tiled, key))}</td><td style="text-align:left" class="faint">${why(of(naive, key) / of(tiled, key))}</td></tr>`).join("") + "</tbody></table></div>"
    + `<p class="faint">By ${escaped(source)}. What tiling saves is requests and L1 traffic. The next factor of ten comes from tiles in registers: see the roofline.</p>`;
}
